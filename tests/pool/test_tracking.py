"""What the kernel gives for rewinding, as `check` and `explain` say it; also without userfaultfd, as in containers."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import platform
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator

import pytest
import requests

from lib.process import wait_until
from lib.servers import free_port, hayate_binary

WORKER = "<?php\n$n = 0;\nwhile (hayate_handle_request(function () use (&$n) { echo ++$n; })) {\n}\n"
#: asm/unistd_64.h, linux/prctl.h, linux/seccomp.h, linux/filter.h
USERFAULTFD, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 323, 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN, ALLOW, EPERM = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001


def forbid_userfaultfd() -> None:
    """As the seccomp profiles of Docker and others do; holds for all that the process starts."""
    steps = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, USERFAULTFD), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in [(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, MODE_FILTER, ctypes.addressof(program), 0, 0)]:
        if libc.prctl(*(ctypes.c_ulong(argument) for argument in call)) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def run(*arguments: str | pathlib.Path, forbidden: bool = False, user: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(hayate_binary()), *map(str, arguments)],
        preexec_fn=forbid_userfaultfd if forbidden else None,
        user=user or ("nobody" if forbidden and os.geteuid() == 0 else None),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.fixture
def site() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="hayate-tracking-") as name:
        directory = pathlib.Path(name)
        (directory / "worker.php").write_text(WORKER)
        directory.chmod(0o755)
        yield directory


def test_check_names_the_tracking(site) -> None:
    said = run("check", site, "--worker", site / "worker.php").stdout
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    if release >= (6, 7):
        assert "tracking    uffd, the fastest there is\n" in said, said
    else:
        assert "Linux 6.7" in said, said


def test_check_says_what_to_change(site) -> None:
    said = run("check", site, "--worker", site / "worker.php", forbidden=True).stdout
    assert "tracking    none, so each request runs in a fork" in said or "tracking    soft-dirty" in said, said
    assert "userfaultfd is forbidden here" in said and "allow that system call" in said


def test_the_device_serves_where_the_system_call_is_forbidden(site) -> None:
    """Whoever may open it; for others it is as if there were none."""
    me = "root" if os.geteuid() == 0 else None
    opened = os.access("/dev/userfaultfd", os.R_OK | os.W_OK)
    said = run("check", site, "--worker", site / "worker.php", forbidden=True, user=me).stdout
    assert ("tracking    uffd, the fastest there is\n" in said) == opened, said
    done = run("explain", site, "--worker", site / "worker.php", "--json", forbidden=True, user=me)
    (report,) = json.loads(done.stdout)
    assert (report["tracking"] == "uffd") == opened and report["samples"][0]["status"] == 200


def test_without_tracking_each_request_is_forked(site) -> None:
    done = run("explain", site, "--worker", site / "worker.php", "--json", forbidden=True)
    (report,) = json.loads(done.stdout)
    assert report["tracking"] in ("fork", "soft-dirty") and "forbidden here" in report["tracking_why"]
    assert report["samples"][0]["status"] == 200
    if report["tracking"] == "fork":
        assert any("runs in a fork" in advice and "allow that system call" in advice for advice in report["advice"])


def test_a_slow_request_is_told_where_a_worker_came_to_forks_by_itself(site) -> None:
    """It boots by itself, since its boot opens a connection; so its zygote knows nothing of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, open(site / "log", "w+") as log:
        boot = f"$open = stream_socket_client('tcp://127.0.0.1:{listener.getsockname()[1]}');"
        (site / "worker.php").write_text(f"<?php {boot} while (hayate_handle_request(function () {{ sleep(1); echo 'slept'; }}));")
        port, control = free_port(), site / "control"
        control.mkdir()
        control.chmod(0o777)
        flags = ["--worker", site / "worker.php", "--workers", "1", "--warmup", "off", "--slow-request", "300ms"]
        command = [hayate_binary(), "serve", site, *flags, "--listen", f"127.0.0.1:{port}", "--control", control / "sock"]
        user = "nobody" if os.geteuid() == 0 else None
        server = subprocess.Popen([*map(str, command)], preexec_fn=forbid_userfaultfd, user=user, stdout=log, stderr=log)
        try:
            said = lambda: (site / "log").read_text()  # noqa: E731
            assert wait_until(lambda: " serves http" in said() or server.poll() is not None), said()
            assert requests.get(f"http://127.0.0.1:{port}/", timeout=60).text == "slept", said()
            if "in a process of its own" in said():  # else soft-dirty bits track it
                assert wait_until(lambda: "slow request: has run for" in said()), said()
                assert "is not known where each request runs in a fork" in said()
        finally:
            server.terminate()
            server.wait(60)


def test_a_user_without_privileges_has_the_same(site) -> None:
    done = subprocess.run(
        [str(hayate_binary()), "check", str(site), "--worker", str(site / "worker.php")],
        user="nobody" if os.geteuid() == 0 else None,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    own = run("check", site, "--worker", site / "worker.php").stdout
    assert [line for line in done.stdout.splitlines() if "tracking" in line] == [
        line for line in own.splitlines() if "tracking" in line
    ]
