"""What the servers are asked for: a constant in plain PHP, two routes of a Symfony application, one of Laravel.

The applications are those of the tests, as a deployment leaves them: in a directory of their own, with production
settings, container compiled, caches warm. They are built once for each run.
"""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

from apps import sites

HERE = pathlib.Path(__file__).resolve().parent
STATUS = b'{"status":"OK"}'


@dataclass(frozen=True)
class Workload:
    """One request, sent again and again over so many connections, and an answer that says it was understood.

    `root` is the application's directory, `docroot` nginx's. `worker` is the script that keeps the application's state.
    A project that is `recognised` runs without it as well, by the boot script that comes with Hayate.
    """

    name: str
    title: str
    path: str
    connections: int
    root: pathlib.Path
    docroot: pathlib.Path
    worker: pathlib.Path
    #: A part of the body.
    expected: bytes
    recognised: bool = False
    ini: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


def plain(scratch: pathlib.Path) -> list[Workload]:
    """W1: the server itself. A script that does nothing."""
    root = scratch / "w1"
    shutil.copytree(HERE / "w1", root)
    title = 'W1: {"status":"OK"}, plain PHP'
    return [Workload("W1", title, "/index.php", 100, root, root, root / "worker.php", STATUS)]


def symfony(scratch: pathlib.Path) -> list[Workload]:
    """W2: a small answer of a framework. W2T: a page of it, firewall and templates included."""
    site = sites.symfony(scratch)
    routes = {
        "W2": ("W2: a JSON route of Symfony 5.4", "/json", STATUS),
        "W2T": ("W2T: a page of Symfony 5.4, Twig and firewall", "/winds", b"<td>Hurricane</td><td>34.8 m/s</td></tr>"),
    }
    return [_of(site, name, *route) for name, route in routes.items()]


def laravel(scratch: pathlib.Path) -> list[Workload]:
    """W3: the same small answer of the other framework."""
    return [_of(sites.laravel(scratch), "W3", "W3: a JSON route of Laravel 8.83", "/api/json", STATUS)]


def _of(site: sites.Site, name: str, title: str, path: str, expected: bytes) -> Workload:
    worker = site.root / "public/worker.php"
    return Workload(name, title, path, 16, site.root, site.docroot, worker, expected, True, site.ini, site.env)


#: By name of a workload: makes it, and others that share its application, below a directory.
WORKLOADS: dict[str, Callable[[pathlib.Path], list[Workload]]] = {
    "W1": plain,
    "W2": symfony,
    "W2T": symfony,
    "W3": laravel,
}


def build(names: list[str], scratch: pathlib.Path) -> list[Workload]:
    """The workloads of these names; each application is built once. Raises ServerError when one cannot be."""
    makers = dict.fromkeys(WORKLOADS[name] for name in names)
    return [load for make in makers for load in make(scratch) if load.name in names]
