"""A worker script in each way that it is rewound, and under php-fpm, which boots it for each request."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib

import pytest
import requests

from lib.servers import Hayate, NginxFpm

#: A pair of sockets is what workers must not share: each then boots by itself.
PRELUDE = """<?php
if (getenv('PRIVATE_BOOT')) {
    $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
}
"""
#: Rewound or forked; one boot for all workers, or one for each. Both of the second is by hand, for CI's time: HAYATE_MODES=fork.
MODES = [("on", "shared"), ("fork", "shared"), ("on", "private")]
if "fork" in os.environ.get("HAYATE_MODES", "").split():
    MODES.append(("fork", "private"))
#: Settings of a php-fpm that serves a worker script.
ONCE = {"auto_prepend_file": str(pathlib.Path(__file__).parent / "once.php")}
INI = {"ffi.enable": "1", "display_errors": "1", "html_errors": "0", "max_execution_time": "60"}

each_mode = pytest.mark.parametrize(("rewind", "boot"), MODES, ids=["-".join(mode) for mode in MODES])


def write(directory: pathlib.Path, script: str) -> pathlib.Path:
    """The worker script."""
    file = directory / "worker.php"
    file.write_text(PRELUDE + script)
    return file


def front_controller(directory: pathlib.Path) -> None:
    """By it the same script is served in classic mode, where it boots for each request."""
    once = pathlib.Path(ONCE["auto_prepend_file"]).read_text()
    (directory / "once.php").write_text(once.replace("hayate_handle_request(", "once("))
    script = (directory / "worker.php").read_text().replace("hayate_handle_request(", "once(")
    (directory / "index.php").write_text(script.replace("<?php", "<?php require __DIR__ . '/once.php';", 1))


def hayate(
    directory: pathlib.Path,
    rewind: str,
    boot: str,
    *,
    workers: int = 4,
    args: tuple = (),
    warmup: str = "off",
    user: str | None = None,
) -> Hayate:
    """A server of that script, without warm-up unless a path is given for it."""
    private = ["--env", "PRIVATE_BOOT=1"] if boot == "private" else []
    flags = ["--rewind", rewind, "--warmup", warmup, *private, *args]
    worker = directory / "worker.php"
    return Hayate(directory, worker=worker, workers=workers, ini=INI, args=flags, user=user)


def php_fpm(directory: pathlib.Path, *, workers: int = 4, ini: dict[str, str] = {}) -> NginxFpm:
    """php-fpm with that script as index."""
    return NginxFpm(directory, index="worker.php", ini={**INI, **ONCE, **ini}, workers=workers)


def get(server: Hayate | NginxFpm, query: str = "") -> str:
    """The body of one answer, which must be 200."""
    answer = requests.get(f"{server.url}/?{query}", timeout=60)
    assert answer.status_code == 200, (answer.status_code, answer.text, server.log()[-3000:])
    return answer.text


def many(server: Hayate | NginxFpm, count: int, query: str = "", at_once: int = 8) -> list[str]:
    """The bodies of so many answers, several at once."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda _: get(server, query), range(count)))


def application(server: Hayate) -> dict:
    """What `hayate status` says of the only application."""
    (app,) = server.status()["apps"]
    return app
