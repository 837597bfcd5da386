"""What a script does to other processes of the server: refused, and the server goes on.

One user for all is the harder case: there the kernel's rules for users say nothing, and processes that are not dumpable,
and Landlock (Linux 6.12), have to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import pwd
import re
import shutil
import signal
import struct
import sys
from collections.abc import Iterator

import pytest
import requests

from lib.process import descendants, temporary_directory, wait_until
from lib.servers import GENERIC_WORKER, PHP, REPOSITORY, Hayate

USER = "www-data"
SECRET = "hunter2-in-env"
INI_SECRET = "hunter2-in-ini"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server that changes its user")

#: As /proc shows the memory that front and workers share.
RING = "/memfd:hayate (deleted)"

# What a request asks for, done to another process. Each says what came of it.
SCRIPT = """<?php
$pid = (int) ($_GET['pid'] ?? 0);
echo json_encode(match ($_GET['do']) {
    'pid' => getmypid(),
    'env' => getenv('SECRET'),
    'ini' => ini_get('user_agent'),
    'kill' => $pid === getmypid() ? 'itself' : posix_kill($pid, (int) $_GET['signal']),
    'kill by a program' => (function () use ($pid) {
        exec("kill -{$_GET['signal']} -- $pid 2>/dev/null", $said, $code);
        return $code === 0;
    })(),
    'kill by a descriptor' => (function () use ($pid) {
        $libc = FFI::cdef('long syscall(long, ...);');
        $fd = $libc->syscall(434, $pid, 0);
        return $fd < 0 ? 'no descriptor' : $libc->syscall(424, $fd, (int) $_GET['signal'], null, 0) === 0;
    })(),
    'read' => @file_get_contents("/proc/$pid/{$_GET['file']}", length: 64) !== false,
    'write' => ($file = @fopen($_GET['file'], 'r+')) !== false && @fwrite($file, '0') !== false,
    'append' => @file_put_contents($_GET['file'], "a line\\n", FILE_APPEND) !== false,
    'open' => (is_dir($_GET['file']) ? @scandir($_GET['file']) : @fopen($_GET['file'], 'r')) !== false,
    // Inodes of all that it has open or mapped.
    'rings' => array_values(array_unique([
        ...array_map(fn (string $fd) => (string) (@stat("/proc/self/fd/$fd")['ino'] ?? ''), scandir('/proc/self/fd')),
        ...array_map(fn (string $line) => preg_split('/ +/', $line)[4] ?? '', file('/proc/self/maps')),
    ])),
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
    answer = requests.get(f"{server.url}{path}/act.php", params={"do": do, **more}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def processes(server: Hayate) -> dict[str, int]:
    """The processes that are none of a worker of application `a`'s business, by name."""
    a, b = server.status()["apps"]
    return {
        "the master": server.pid,
        "the front": server.front,
        "its own zygote": a["zygote"],
        "another's zygote": b["zygote"],
        "another's worker": b["workers"][0]["pid"],
    }


def has_landlock_scopes() -> bool:
    """Linux 6.12; below, processes of one user may signal each other."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1) >= 6


def test_secrets_are_in_no_list_of_processes(server) -> None:
    assert ask(server, "env", "/b") == SECRET and ask(server, "ini", "/b") == INI_SECRET
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


#: Nobody else's, so that what should not be hit and is, is the test's own.
ALONE = "news"


def every_process(server: Hayate) -> dict[str, int]:
    """All of the server, workers of the application itself included."""
    own = {f"worker {worker['index']} of its own": worker["pid"] for worker in server.status()["apps"][0]["workers"]}
    return processes(server) | own


def processes_of(user: str) -> list[int]:
    """Of the whole machine; what ends meanwhile is none."""
    uid, found = pwd.getpwnam(user).pw_uid, []
    for process in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if process.name.isdigit() and process.stat().st_uid == uid:
                found.append(int(process.name))
    return found


def killed_workers(server: Hayate) -> int:
    return server.status()["apps"][0]["restarts"].get("signal_9", 0)


@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_no_other_way_of_signalling_reaches_others(hayate_command, site, mode) -> None:
    """Everybody at once, groups of processes, descriptors of processes, programs: nobody but the worker itself can be hit."""
    if not has_landlock_scopes():
        pytest.skip("this kernel cannot keep processes of one user from signalling each other (Linux 6.12 can)")
    others = processes_of(ALONE)
    assert not others, f"processes of {ALONE} run: {others}"
    with Hayate(config=configuration(site, mode), user=ALONE, ini={"ffi.enable": "1"}) as server:
        before = every_process(server)
        # The worker that is asked may be any of its application's.
        victims = {name: pid for name, pid in before.items() if "of its own" not in name}
        for way in ("kill by a program", "kill by a descriptor"):
            for name, pid in victims.items():
                for number in (0, signal.SIGSTOP, signal.SIGKILL):
                    assert ask(server, way, pid=pid, signal=int(number)) is False, (way, name, number)
        for name, group in {name: os.getpgid(pid) for name, pid in victims.items()}.items():
            if group not in {os.getpgid(pid) for name, pid in before.items() if "of its own" in name}:
                assert ask(server, "kill", pid=-group, signal=int(signal.SIGKILL)) is False, (name, "group")
                assert ask(server, "kill by a program", pid=-group, signal=int(signal.SIGKILL)) is False, (name, "group")
        # A worker of its own may have been replaced: what it was asked to do cannot be rewound.
        assert processes(server) == victims
        # Everybody whom the kernel lets it, and its own group; what is hit is the worker that does it, and what it has started.
        for do, pid in (("kill", -1), ("kill", 0), ("kill by a program", -1)):
            before, killed = every_process(server), killed_workers(server)
            answer = requests.get(f"{server.url}/act.php", params={"do": do, "pid": pid, "signal": int(signal.SIGKILL)}, timeout=60)
            assert answer.status_code in (200, 502), answer.text
            assert wait_until(lambda: len(every_process(server)) == len(before))
            hit = {name for name, pid in every_process(server).items() if pid != before[name]}
            assert all("of its own" in name for name in hit), (do, pid, hit)
            assert killed_workers(server) <= killed + 1, (do, pid)
        assert ask(server, "env", "/b") == SECRET


@pytest.mark.parametrize("file", ["mem", "oom_score_adj", "comm", "clear_refs", "coredump_filter"])
def test_what_a_process_may_set_of_itself_is_closed_to_its_scripts(server, file) -> None:
    assert ask(server, "write", file=f"/proc/self/{file}") is False
    assert ask(server, "own") is True


def test_one_applications_shared_memory_is_out_of_reach_of_another(server) -> None:
    """The front holds a ring for each application. A worker holds its own alone, and opens no other by any process that does."""

    def rings(pid: int) -> dict[str, int]:
        """Inode and number of each memory of the kind that a process has open or has mapped."""
        found = {}
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(fd.readlink()) == RING:
                    found[str(fd.stat().st_ino)] = int(fd.name)
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith(RING):
                found.setdefault(line.split()[4], -1)
        return found

    a, b = server.status()["apps"]
    of_front = rings(server.front)
    assert len(of_front) == 2, of_front
    own, others = (rings(app["workers"][0]["pid"]).keys() for app in (a, b))
    assert len(own) == len(others) == 1 and not own & others
    assert own | others == of_front.keys()
    # From within: its descriptors are those, and no other process's can be opened, nor what others have mapped.
    (other,) = others
    inodes = ask(server, "rings")
    assert set(inodes) & of_front.keys() == own, inodes
    for name, pid in processes(server).items():
        assert ask(server, "open", file=f"/proc/{pid}/fd") is False, name
        for number in range(64):
            assert ask(server, "open", file=f"/proc/{pid}/fd/{number}") is False, (name, number)
        assert ask(server, "open", file=f"/proc/{pid}/map_files") is False, name
        assert ask(server, "read", pid=pid, file="maps") is False, name
    # The other way round: this would see it.
    assert set(ask(server, "rings", "/b")) & of_front.keys() == {other}


def test_workers_die_before_zygotes_and_zygotes_before_the_front_when_memory_runs_out(server) -> None:
    def score(pid: int) -> int:
        return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())

    app = server.status()["apps"][0]
    front, zygote = score(server.front), score(app["zygote"])
    for worker in app["workers"]:
        assert front < zygote < score(worker["pid"])


def test_the_control_socket_is_closed_to_scripts(server) -> None:
    assert server.control.stat().st_uid == 0 and server.control.stat().st_mode & 0o777 == 0o600
    assert ask(server, "control", file=str(server.control)) == "refused"
    assert ask(server, "env", "/b") == SECRET


def test_the_pid_file_is_closed_to_scripts(server) -> None:
    assert ask(server, "append", file=str(server.pid_file)) is False


def status_of(pid: int) -> dict[str, str]:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_each_process_has_its_user_and_no_privilege(hayate_command, site) -> None:
    text = configuration(site, "worker").replace('name = "b"\n', 'name = "b"\nuser = "backup"\n')
    text = f'user = "{USER}"\nfront_user = "nobody"\naccess_log = "@LOG@"\n{text}'
    logs = temporary_directory("isolation-log")
    shutil.chown(logs, "nobody")
    with Hayate(config=text.replace("@LOG@", f"{logs}/access.log"), access_log=None) as server:
        a, b = server.status()["apps"]
        expected = {server.pid: "root", server.front: "nobody", a["zygote"]: USER, b["zygote"]: "backup"}
        expected |= {worker["pid"]: USER for worker in a["workers"]}
        expected |= {worker["pid"]: "backup" for worker in b["workers"]}
        for pid, user in expected.items():
            status = status_of(pid)
            uid, gid = pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid
            assert status["Uid"].split() == [str(uid)] * 4 and status["Gid"].split() == [str(gid)] * 4, user
            if user != "root":
                assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0 and status["NoNewPrivs"] == "1"
        # The front reads what the applications share with their groups.
        groups = {pwd.getpwnam(name).pw_gid for name in (USER, "backup")}
        assert groups <= {int(gid) for gid in status_of(server.front)["Groups"].split()}
        for path in ("", "/b"):
            for victim in [server.pid, server.front, b["zygote"] if path == "" else a["zygote"]]:
                assert ask(server, "kill", path, pid=victim, signal=int(signal.SIGKILL)) is False
                assert ask(server, "read", path, pid=victim, file="environ") is False
            assert ask(server, "append", path, file=f"{logs}/access.log") is False
            assert ask(server, "control", path, file=str(server.control)) == "refused"
        assert ask(server, "env", "/b") == SECRET
        # A worker of another user is killed by the master, on the front's word.
        assert (logs / "access.log").stat().st_uid == pwd.getpwnam("nobody").pw_uid
        assert server.reload().returncode == 0
        assert ask(server, "env", "/b") == SECRET
    shutil.rmtree(logs)


def test_the_capabilities_of_the_unit_are_enough(hayate_command, site) -> None:
    """As packaging/hayate.service starts it: root, but with the capabilities that the unit names, and no new ones."""
    unit = (REPOSITORY / "packaging/hayate.service").read_text()
    (names,) = re.findall(r"(?m)^CapabilityBoundingSet=(.+)$", unit)
    bounds = "-all," + ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in names.split())

    class AsUnit(Hayate):
        def command(self) -> list[str]:
            return ["/usr/bin/setpriv", f"--bounding-set={bounds}", "--no-new-privs", *super().command()]

    text = configuration(site, "worker").replace('name = "b"\n', 'name = "b"\nrequest_timeout = "3s"\nuser = "backup"\n')
    (site / "public/spin.php").write_text("<?php set_time_limit(0); for (;;) {}")
    with AsUnit(config=f'user = "{USER}"\nfront_user = "nobody"\n{text}') as server:
        assert bin(int(status_of(server.pid)["CapEff"], 16)).count("1") == len(names.split())
        assert server.control.stat().st_uid == 0 and server.control.stat().st_mode & 0o777 == 0o600
        for path in ("", "/b"):
            assert ask(server, "control", path, file=str(server.control)) == "refused"
        assert requests.get(f"{server.url}/b/spin.php", timeout=60).status_code == 504
        assert wait_until(lambda: server.status()["apps"][1]["restarts"] == {"request_timeout": 1})
        front = server.front
        os.kill(front, signal.SIGKILL)
        assert wait_until(lambda: server.run("status").returncode == 0 and server.front != front)
        assert server.reload().returncode == 0
        assert ask(server, "env", "/b") == SECRET


def test_a_worker_of_another_user_that_runs_too_long_is_killed(hayate_command, site) -> None:
    (site / "public/spin.php").write_text("<?php set_time_limit(0); for (;;) {}")
    text = configuration(site, "worker").replace('name = "b"\n', 'name = "b"\nrequest_timeout = "3s"\nuser = "backup"\n')
    with Hayate(config=f'user = "{USER}"\nfront_user = "nobody"\n{text}') as server:
        assert requests.get(f"{server.url}/b/spin.php", timeout=60).status_code == 504
        assert ask(server, "env", "/b") == SECRET
        assert wait_until(lambda: server.status()["apps"][1]["restarts"] == {"request_timeout": 1})


@pytest.mark.parametrize("leaves", ["", "setsid "])
def test_where_all_is_one_user_scripts_and_what_they_leave_behind_cannot_command_the_server(
    hayate_command, site, leaves
) -> None:
    """As a developer has it, or a container: not even root is left to tell them apart."""
    said = site / "said"
    said.unlink(missing_ok=True)
    script = site / "connect.php"
    script.write_text(
        "<?php usleep(300000); $_GET = ['do' => 'control', 'file' => $argv[1]]; ob_start(); "
        f"include '{site}/public/act.php'; file_put_contents('{said}', ob_get_clean());"
    )
    (site / "public/spawn.php").write_text(
        f"<?php exec('{leaves}{PHP} {script} ' . $_GET['file'] . ' >/dev/null 2>&1 &'); echo 'started';"
    )

    class AsUser(Hayate):
        def command(self) -> list[str]:
            user = pwd.getpwnam(USER)
            as_user = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            return ["/usr/bin/setpriv", *as_user, *super().command()]

    site.chmod(0o777)
    server = AsUser(config=configuration(site, "classic"))
    os.chown(server.dir, pwd.getpwnam(USER).pw_uid, -1)
    with server:
        assert ask(server, "control", file=str(server.control)) == "refused"
        assert requests.get(f"{server.url}/spawn.php", params={"file": server.control}, timeout=60).text == "started"
        assert wait_until(lambda: said.exists() and said.read_text() != "")
        assert said.read_text() == '"refused"'
        assert ask(server, "env", "/b") == SECRET


class WithoutOpenat2(Hayate):
    """As in containers whose seccomp profile does not know of it: EPERM."""

    def command(self) -> list[str]:
        load, equal, give = 0x20, 0x15, 0x06
        program = [(load, 0, 0, 0), (equal, 0, 1, 437), (give, 0, 0, 0x50000 | errno.EPERM), (give, 0, 0, 0x7FFF0000)]
        code = b"".join(struct.pack("HBBI", *step) for step in program)
        filtered = (
            "import ctypes, os, struct, sys\n"
            f"code = ctypes.create_string_buffer({code!r}, {len(code)})\n"
            f"program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', {len(program)}, ctypes.addressof(code)))\n"
            "assert ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0\n"
            "os.execv(sys.argv[1], sys.argv[1:])\n"
        )
        return [sys.executable, "-c", filtered, *super().command()]


@pytest.mark.parametrize("kind", [Hayate, WithoutOpenat2])
@pytest.mark.parametrize("link", ["/proc/self/fd/{}", "/proc/thread-self/fd/{}", "/proc/{pid}/fd/{}"])
def test_a_link_to_what_the_front_has_open_is_not_followed(hayate_command, site, link, kind) -> None:
    """Memory of other applications, with their visitors' requests in it, and logs."""
    logs = temporary_directory("isolation-log")
    shutil.chown(logs, "nobody")
    logs.chmod(0o700)
    text = f'front_user = "nobody"\naccess_log = "{logs}/access.log"\n{configuration(site, "classic")}'
    with kind(config=text, user=USER, access_log=None) as server:
        assert ask(server, "env", "/b") == SECRET
        assert wait_until(lambda: (logs / "access.log").stat().st_size > 0)
        front = server.front
        links, output = [], set()
        for number in os.listdir(f"/proc/{front}/fd"):
            path = site / "public" / f"link{number}.txt"
            path.unlink(missing_ok=True)
            path.symlink_to(link.format(number, pid=front))
            links.append(path)
            # Some are open for a moment only.
            with contextlib.suppress(FileNotFoundError):
                if kind is WithoutOpenat2 and os.readlink(f"/proc/{front}/fd/{number}") == str(server.dir / "hayate.log"):
                    # Then it is a link like any other, to what everybody may read.
                    output.add(path.name)
        assert len(links) > 10
        sent = {}
        for path in links:
            answer = requests.get(f"{server.url}/{path.name}", timeout=60)
            if path.name not in output:
                sent[path.name] = answer.status_code
            path.unlink()
        assert set(sent.values()) <= {403, 404}, sent
    shutil.rmtree(logs)
