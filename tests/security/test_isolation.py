"""What a script does to other processes of the server: refused, and the server goes on.

One user for all is the harder case: there the kernel's rules for users say nothing, and processes that are not dumpable,
and Landlock (Linux 6.12), have to.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
from collections.abc import Iterator

import pytest
import requests

from lib.process import descendants, temporary_directory
from lib.servers import GENERIC_WORKER, Hayate

USER = "www-data"
SECRET = "hunter2-in-env"
INI_SECRET = "hunter2-in-ini"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server that changes its user")

# What a request asks for, done to another process. Each says what came of it.
SCRIPT = """<?php
$pid = (int) ($_GET['pid'] ?? 0);
echo json_encode(match ($_GET['do']) {
    'pid' => getmypid(),
    'env' => getenv('SECRET'),
    'ini' => ini_get('auto_append_file'),
    'kill' => $pid === getmypid() ? 'itself' : posix_kill($pid, (int) $_GET['signal']),
    'read' => @file_get_contents("/proc/$pid/{$_GET['file']}", length: 64) !== false,
    'write' => ($file = @fopen($_GET['file'], 'r+')) !== false && @fwrite($file, '0') !== false,
    'append' => @file_put_contents($_GET['file'], "a line\\n", FILE_APPEND) !== false,
    'own' => count(scandir('/proc/self/fd')) > 3 && is_readable('/proc/self/maps'),
    'control' => (function () {
        $socket = @stream_socket_client("unix://{$_GET['file']}", $code, $why, 2);
        if ($socket === false) {
            return 'refused';
        }
        fwrite($socket, "POST /stop HTTP/1.1\\r\\nHost: hayate\\r\\nConnection: close\\r\\n\\r\\n");
        return substr((string) fgets($socket), 9, 3) ?: 'refused';
    })(),
});
"""


@pytest.fixture(scope="module")
def site() -> Iterator[pathlib.Path]:
    """A directory that every user may read."""
    directory = temporary_directory("isolation")
    (directory / "public").mkdir()
    (directory / "public/act.php").write_text(SCRIPT)
    shutil.copyfile(GENERIC_WORKER, directory / "worker.php")
    yield directory
    shutil.rmtree(directory)


def configuration(site: pathlib.Path, mode: str) -> str:
    """Two applications, `/` and `/b`, the second with secrets."""
    how = f'worker = "{site}/worker.php"\n' if mode == "worker" else ""
    apps = ""
    for name, path in (("a", "/"), ("b", "/b")):
        apps += f'[[app]]\nname = "{name}"\npath = "{path}"\nroot = "{site}"\ndocument_root = "public"\n'
        apps += f'workers = 2\n{how}'
        if name == "b":
            apps += f'ini = {{ "user_agent" = "{INI_SECRET}" }}\nenv = {{ SECRET = "{SECRET}" }}\n'
    return apps


@pytest.fixture(scope="module", params=["classic", "worker"])
def server(request, hayate_command, site) -> Iterator[Hayate]:
    """One user for front and PHP."""
    with Hayate(config=configuration(site, request.param), user=USER) as server:
        yield server


def ask(server: Hayate, do: str, path: str = "", **more: object) -> object:
    """What the script says of an attempt."""
    answer = requests.get(f"{server.url}{path}/act.php", params={"do": do, **more}, timeout=15)
    assert answer.status_code == 200, answer.text
    return answer.json()


def processes(server: Hayate) -> dict[str, int]:
    """The processes that are none of a worker of application `a`'s business, by name."""
    a, b = server.status()["apps"]
    return {
        "the server": server.pid,
        "its own zygote": a["zygote"],
        "another's zygote": b["zygote"],
        "another's worker": b["workers"][0]["pid"],
    }


def has_landlock_scopes() -> bool:
    """Linux 6.12; below, processes of one user may signal each other."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1) >= 6


def test_secrets_are_in_no_list_of_processes(server) -> None:
    assert ask(server, "env", "/b") == SECRET
    for pid in [server.pid, *descendants(server.pid)]:
        for file in ("cmdline", "environ"):
            text = pathlib.Path(f"/proc/{pid}/{file}").read_bytes()
            assert SECRET.encode() not in text and INI_SECRET.encode() not in text, (pid, file, text)


def test_a_list_of_processes_names_the_application(server) -> None:
    zygote = server.status()["apps"][1]["zygote"]
    arguments = pathlib.Path(f"/proc/{zygote}/cmdline").read_bytes().split(b"\0")
    assert arguments[arguments.index(b"--name") + 1] == b"b"


@pytest.mark.parametrize("file", ["mem", "environ", "maps", "fd/0"])
def test_memory_and_environment_of_others_cannot_be_read(server, file) -> None:
    for name, pid in processes(server).items():
        assert ask(server, "read", pid=pid, file=file) is False, name


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, 0], ids=lambda n: str(int(n)))
def test_others_cannot_be_signalled(server, number) -> None:
    if not has_landlock_scopes():
        pytest.skip("this kernel cannot keep processes of one user from signalling each other (Linux 6.12 can)")
    before = processes(server)
    for name, pid in before.items():
        assert ask(server, "kill", pid=pid, signal=int(number)) is False, name
    for sibling in server.status()["apps"][0]["workers"]:
        assert ask(server, "kill", pid=sibling["pid"], signal=int(number)) in (False, "itself")
    assert {name: pid for name, pid in processes(server).items() if "worker" not in name} == {
        name: pid for name, pid in before.items() if "worker" not in name
    }
    assert ask(server, "env", "/b") == SECRET


@pytest.mark.parametrize("file", ["mem", "oom_score_adj", "comm", "clear_refs", "coredump_filter"])
def test_what_a_process_may_set_of_itself_is_closed_to_its_scripts(server, file) -> None:
    assert ask(server, "write", file=f"/proc/self/{file}") is False
    assert ask(server, "own") is True


def test_workers_die_before_zygotes_and_zygotes_before_the_front_when_memory_runs_out(server) -> None:
    def score(pid: int) -> int:
        return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())

    app = server.status()["apps"][0]
    front, zygote = score(server.pid), score(app["zygote"])
    for worker in app["workers"]:
        assert front < zygote < score(worker["pid"])
