"""Hayate as a service, looked at from within a machine that runs systemd: started by `run` as root, which reads what it prints.

Each test is a function; they run in order, for the later ones need what the first have set up.
"""

from __future__ import annotations

import glob
import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

PHP = os.environ.get("PHP", "8.2")
#: How many times longer all takes where the processor is emulated.
PATIENCE = int(os.environ.get("PATIENCE", "1"))
CONFIGURATION = pathlib.Path("/etc/hayate/hayate.toml")
ONE, TWO = 8080, 8081
#: What was there before the packages, and what is to be done after the next start of the machine.
BEFORE, AGAIN = pathlib.Path("/test/before"), pathlib.Path("/test/again")
TEXT = f"""
listen = ["127.0.0.1:{ONE}", "127.0.0.1:{TWO}", ":80"]
access_log = "/var/log/hayate/access.log"
user = "www-data"

[[app]]
name = "one"
root = "/srv/one"
hosts = ["one.test"]
worker = "/srv/one/worker.php"
workers = "2"
request_timeout = "1h"
boot_timeout = "1h"

[[app]]
name = "two"
root = "/srv/two"
user = "shop"
workers = "2"
request_timeout = "3s"
boot_timeout = "1h"
"""
WORKER = """<?php
do {
    $more = hayate_handle_request(function () {
        if (isset($_GET['probe'])) { passthru('python3 /test/probe.py'); return; }
        if (isset($_GET['has'])) { echo 'has=', extension_loaded($_GET['has']), ' '; }
        if (isset($_GET['log'])) { error_log($_GET['log']); }
        if (isset($_GET['eat'])) { ini_set('memory_limit', -1); for (;;) { $eaten[] = str_repeat('x', 1 << 20); } }
        $GLOBALS['seen'] = ($GLOBALS['seen'] ?? 0) + 1;
        echo "one ", $GLOBALS['seen'], " ", posix_getpwuid(posix_geteuid())['name'], " ", getmypid();
    });
} while ($more);
"""
INDEX = """<?php
if (isset($_GET['has'])) { echo 'has=', extension_loaded($_GET['has']), ' '; }
if (isset($_GET['sleep'])) { sleep((int) $_GET['sleep']); }
echo "two ", posix_getpwuid(posix_geteuid())['name'], " ", getmypid();
"""


def run(*command: str, fails: bool = False, timeout: float = 180) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout * PATIENCE)
    assert (done.returncode != 0) == fails, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def wait(condition, seconds: float = 30) -> bool:
    end = time.monotonic() + seconds * PATIENCE
    while time.monotonic() < end:
        try:
            if condition():
                return True
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.1)
    return False


def get(path: str, host: str = "one.test", timeout: float = 40, port: int = ONE) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout * PATIENCE)
    try:
        connection.request("GET", path, headers={"Host": host, "Connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def shown(name: str) -> str:
    return run("systemctl", "show", "-P", name, "hayate").strip()


def main_process() -> int:
    return int(shown("MainPID"))


def processes() -> dict[int, list[str]]:
    """The service's processes: arguments by number."""
    group = pathlib.Path("/sys/fs/cgroup" + shown("ControlGroup"))
    found = {}
    for number in (group / "cgroup.procs").read_text().split():
        try:
            found[int(number)] = pathlib.Path(f"/proc/{number}/cmdline").read_text().split("\0")
        except OSError:
            pass
    return found


def fronts() -> list[int]:
    """Two of them for a moment, after an upgrade."""
    return [pid for pid, arguments in processes().items() if arguments[1:2] == ["front"]]


def front() -> int:
    return next(iter(fronts()), 0)


def status_of(pid: int, key: str) -> str:
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return re.search(rf"^{key}:\s*(.*)$", text, re.M)[1]


def journal() -> str:
    return run("journalctl", "-u", "hayate", "-o", "cat", "--no-pager")


class Load:
    """Visitors with a connection for each request, while something happens."""

    def __init__(self, port: int = ONE) -> None:
        self.answered, self.failed, self.stop, self.port = 0, [], threading.Event(), port

    def visit(self, host: str) -> None:
        while not self.stop.is_set():
            try:
                status, text = get("/", host, timeout=60, port=self.port)
                assert status == 200, f"{status} {text}"
                self.answered += 1
            except Exception as error:
                self.failed.append(f"{host}: {error!r}")
            # An emulated processor is left to what is tested.
            time.sleep(0.1 * (PATIENCE - 1))

    def __enter__(self) -> Load:
        self.threads = [threading.Thread(target=self.visit, args=(host,)) for host in ("one.test", "two.test", "one.test")]
        for thread in self.threads:
            thread.start()
        self.more(6)
        return self

    def more(self, answers: int) -> None:
        """Until so many more are answered."""
        before = self.answered
        assert wait(lambda: self.answered >= before + answers or self.failed), (self.answered, self.failed[:3])

    def __exit__(self, *_) -> None:
        self.more(6)
        self.stop.set()
        for thread in self.threads:
            thread.join()


def files() -> set[str]:
    """What lies where packages and services leave things."""
    found = set()
    for top in ("/etc", "/usr", "/var", "/run", "/srv"):
        for place, directories, names in os.walk(top):
            found.update(os.path.join(place, name) for name in directories + names)
    return found


def install() -> None:
    BEFORE.write_text(json.dumps(sorted(files())))
    if PATIENCE > 1:
        drop_in = pathlib.Path("/etc/systemd/system/hayate.service.d/slow.conf")
        drop_in.parent.mkdir()
        drop_in.write_text("[Service]\nTimeoutStartSec=1h\nTimeoutStopSec=1h\n")
    run("useradd", "--system", "--create-home", "shop")
    run("apt-get", "install", "-y", "--no-install-recommends", *glob.glob("/test/first/*.deb"))
    log = os.stat("/var/log/hayate")
    assert (pwd.getpwuid(log.st_uid).pw_name, oct(log.st_mode & 0o7777)) == ("hayate", "0o750"), log
    assert run("systemctl", "is-enabled", "hayate", fails=True).strip() == "disabled"
    assert run("systemctl", "is-active", "hayate", fails=True).strip() == "inactive"
    assert "/usr/share/man/man1/hayate.1.gz" in run("man", "-w", "hayate")
    assert "/usr/share/man/man1/hayate-lab-load.1.gz" in run("man", "-w", "hayate-lab-load")
    assert str(CONFIGURATION) in run("dpkg-query", "-W", "-f", "${Conffiles}", "hayate")
    configuration = CONFIGURATION.stat()
    assert (configuration.st_uid, oct(configuration.st_mode & 0o7777)) == (0, "0o640"), "passwords may be written into it"


def start() -> None:
    for name, files in {"one": {"worker.php": WORKER, "index.php": "<?php echo 'never';"}, "two": {"index.php": INDEX, "a.txt": "text"}}.items():
        directory = pathlib.Path("/srv") / name
        directory.mkdir(exist_ok=True)
        for file, text in files.items():
            (directory / file).write_text(text)
    CONFIGURATION.write_text(TEXT)
    run("hayate", "check", "--config", str(CONFIGURATION))
    run("systemctl", "enable", "--now", "hayate")
    assert shown("ActiveState") == "active"
    answers = [get("/")[1] for _ in range(6)]
    # Warm-up requests have counted, and none since.
    assert len({answer.split()[1] for answer in answers}) == 1 and " www-data " in answers[0], answers
    assert get("/", "two.test")[1].startswith("two shop ")
    assert get("/a.txt", "two.test") == (200, "text")
    assert get("/", port=80)[0] == 200


def the_lab_loads_the_service() -> None:
    """As its package installs it, without what it recommends."""
    said = run("hayate-lab", "load", f"http://127.0.0.1:{ONE}/", "--header", "Host: one.test", "--requests", "200", "--connections", "2", "--expect-body", "one ", "--json")
    assert json.loads(said)["total"]["ok"] == 200, said
    assert "hayate" in run("hayate-lab", "engines")


def users_and_privileges() -> None:
    users = {}
    for pid, arguments in processes().items():
        user = pwd.getpwuid(int(status_of(pid, "Uid").split()[0])).pw_name
        users.setdefault(user, []).append(arguments[:2])
        assert status_of(pid, "NoNewPrivs") == "1" and status_of(pid, "Seccomp") == "2", arguments
        if pid != main_process():
            assert int(status_of(pid, "CapEff"), 16) == 0 == int(status_of(pid, "CapPrm"), 16), arguments
    assert set(users) == {"root", "hayate", "www-data", "shop"} and len(users["root"]) == len(users["hayate"]) == 1, users
    # Nor does the unit refuse what the server restricts itself with.
    said = journal()
    assert "denied" not in said and "refuses" not in said, said
    manager = run("journalctl", "-b", "_PID=1", "-o", "cat", "--no-pager")
    assert "hayate.service:" not in "".join(line for line in manager.splitlines() if "ignoring" in line.lower()), manager
    print("   ", run("systemd-analyze", "security", "hayate").strip().splitlines()[-1])
    apps = json.loads(run("hayate", "status", "--json"))["apps"]
    print("   ", os.uname().release, {app["name"]: app["rewind"] and app["rewind"].get("tracking") for app in apps})


def each_restriction_of_the_unit_is_in_force() -> None:
    """What the application's user may do outside of the service, a script started inside may not; capabilities and limits as the unit says."""
    shutil.copy("/usr/bin/id", "/srv/setuid-id")
    os.chmod("/srv/setuid-id", 0o4755)
    pathlib.Path("/tmp/witness").touch()
    outside = json.loads(run("setpriv", "--reuid", "www-data", "--regid", "www-data", "--clear-groups", "python3", "/test/probe.py"))
    inside = json.loads(get("/?probe", timeout=60)[1])
    same = [name for name in outside if outside[name] == inside[name]]
    print("   ", ", ".join(f"{name} {inside[name]}" if len(inside[name]) < 9 else name for name in inside))
    # A container has no devices, and of the kernel's own files some are closed already.
    closed = [name for name in same if outside[name] != "yes" and not os.environ.get("VM")]
    if closed:
        print("    (closed for all of the container:", ", ".join(closed) + ")")
    assert set(same) == set(closed), {name: outside[name] for name in same}
    known = {"SETUID": 7, "SETGID": 6, "KILL": 5, "NET_BIND_SERVICE": 10, "DAC_READ_SEARCH": 2}
    most = sum(1 << bit for bit in known.values())
    assert int(status_of(main_process(), "CapEff"), 16) == most
    assert {int(status_of(pid, "CapBnd"), 16) for pid in processes()} == {most}
    limits = pathlib.Path(f"/proc/{main_process()}/limits").read_text()
    # A container may have less to give; the master takes what the applications need.
    assert re.search(r"^Max open files +65536 +65536 ", limits, re.M) or not os.environ.get("VM"), limits
    assert shown("RestrictRealtime") == "yes" and shown("ProtectClock") == "yes"
    control, state = os.stat("/run/hayate/control.sock"), os.stat("/var/lib/hayate")
    assert (control.st_uid, control.st_mode & 0o777, state.st_uid) == (0, 0o600, 0), (control, state)
    os.unlink("/srv/setuid-id")
    os.unlink("/tmp/witness")


def the_journal_has_what_scripts_log() -> None:
    get("/?log=first-witness")
    assert wait(lambda: "first-witness" in journal())
    # The journal's own restart loses nobody's standard error.
    run("systemctl", "restart", "systemd-journald")
    get("/?log=second-witness")
    assert wait(lambda: "second-witness" in journal())
    lines = [line for line in journal().splitlines() if "-witness" in line]
    assert len(lines) == 2 and all("one" in line for line in lines), lines


def a_worker_that_takes_all_memory() -> None:
    """MemoryMax from a drop-in: the kernel ends the worker, the service goes on."""
    group = pathlib.Path("/sys/fs/cgroup" + shown("ControlGroup"))
    if not (group / "memory.max").exists():
        print("    (no controller of memory here: only with VM=1)")
        return
    before, ended = front(), (group / "memory.events").read_text()
    most = int((group / "memory.current").read_text()) + (100 << 20)
    run("systemctl", "set-property", "--runtime", "hayate", f"MemoryMax={most}", "MemorySwapMax=0")
    try:
        assert get("/?eat")[0] in (500, 502)
        assert (group / "memory.events").read_text() != ended
        assert get("/")[0] == get("/", "two.test")[0] == 200
        assert (shown("ActiveState"), shown("NRestarts"), front()) == ("active", "0", before)
    finally:
        run("systemctl", "set-property", "--runtime", "hayate", "MemoryMax=infinity", "MemorySwapMax=infinity")


def reload() -> None:
    before, front_before = get("/")[1].split()[-1], front()
    with Load() as load:
        run("systemctl", "reload", "hayate")
    assert load.failed == [] and load.answered >= 12, (load.answered, load.failed[:3])
    assert front() == front_before and get("/")[1].split()[-1] != before
    CONFIGURATION.write_text(TEXT + "nonsense = 1\n")
    run("systemctl", "reload", "hayate", fails=True)
    assert shown("ActiveState") == "active" and get("/")[0] == 200
    CONFIGURATION.write_text(TEXT)
    run("systemctl", "reload", "hayate")
    print(f"    {load.answered} requests")


def reload_by_new_packages_of_php() -> None:
    """An extension that comes, PHP itself, which security repairs replace, and the extension that goes: by dpkg, as apt has it do."""
    (extension,), (library,) = glob.glob(f"/test/php/php{PHP}-gmp_*.deb"), glob.glob(f"/test/php/libphp{PHP}-embed_*.deb")
    master, served_by = main_process(), front()
    for command, has in ((["-i", extension], "1"), (["-i", library], "1"), (["-P", f"php{PHP}-gmp"], "")):
        before = get("/")[1].split()[-1], get("/", "two.test")[1].split()[-1]
        with Load() as load:
            run("dpkg", *command)
        assert load.failed == [] and load.answered >= 12, (command, load.answered, load.failed[:3])
        after = get("/")[1].split()[-1], get("/", "two.test")[1].split()[-1]
        assert after[0] != before[0] and after[1] != before[1], (command, "apt would have left the old PHP running")
        assert get("/?has=gmp")[1].split()[0] == get("/?has=gmp", "two.test")[1].split()[0] == f"has={has}", command
        assert (main_process(), front()) == (master, served_by), "a reload is enough"


def upgrade() -> None:
    master, before = main_process(), front()
    with Load() as load:
        run("apt-get", "install", "-y", "--no-install-recommends", *glob.glob("/test/second/*.deb"))
    assert load.failed == [] and load.answered >= 12, (load.answered, load.failed[:3])
    assert main_process() == master and wait(lambda: len(fronts()) == 1 and front() != before) and shown("NRestarts") == "0"
    assert os.readlink(f"/proc/{master}/exe") == "/usr/bin/hayate", "the program that is installed"
    assert get("/")[0] == get("/", "two.test")[0] == 200
    assert "+next" in run("dpkg-query", "-W", "hayate")
    print(f"    {load.answered} requests")


def upgrade_by_the_command() -> None:
    master, before = main_process(), front()
    with Load() as load:
        run("hayate", "upgrade")
    assert load.failed == [] and load.answered >= 12, (load.answered, load.failed[:3])
    assert main_process() == master and wait(lambda: len(fronts()) == 1 and front() != before) and shown("NRestarts") == "0"


def zygotes_that_crash() -> None:
    master = main_process()

    def zygotes_now() -> list[int]:
        return [pid for pid, arguments in processes().items() if status_of(pid, "PPid") == str(master) and "hayate-php" in arguments[0]]

    # Those of before an upgrade end by themselves.
    assert wait(lambda: len(zygotes_now()) == 2), processes()
    zygotes = zygotes_now()
    for pid in zygotes:
        os.kill(pid, signal.SIGKILL)
    assert wait(lambda: get("/")[0] == get("/", "two.test")[0] == 200 and not set(zygotes) & set(processes()))
    assert (main_process(), shown("NRestarts")) == (master, "0")


def a_front_that_crashes() -> None:
    for _ in range(2):
        before = front()
        os.kill(before, signal.SIGKILL)
        assert get("/")[0] == 200 and front() != before
    assert shown("NRestarts") == "0"


def a_front_that_is_stopped() -> None:
    before = front()
    os.kill(before, signal.SIGSTOP)
    # All of its threads: one that runs on for a moment would take the request, which ends with the front.
    assert wait(lambda: all(" T " in (task / "stat").read_text() for task in pathlib.Path(f"/proc/{before}/task").iterdir()))
    assert get("/")[0] == 200 and front() != before


def a_front_that_is_stuck() -> None:
    """Frozen alone, which for the master looks like one that waits for something for ever."""
    assert get("/")[0] == 200, "one that starts has more time"
    before, group = front(), pathlib.Path("/sys/fs/cgroup/stuck")
    group.mkdir()
    (group / "cgroup.procs").write_text(str(before))
    (group / "cgroup.freeze").write_text("1")
    assert wait(lambda: "frozen 1" in (group / "cgroup.events").read_text())
    assert get("/", timeout=90)[0] == 200 and front() != before
    assert wait(lambda: (group / "cgroup.procs").read_text() == "")
    group.rmdir()
    assert "gives no sign of life" in journal()


def a_service_that_was_frozen() -> None:
    before = front()
    run("systemctl", "freeze", "hayate")
    time.sleep(35)
    run("systemctl", "thaw", "hayate")
    assert get("/")[0] == 200
    time.sleep(3)
    assert front() == before and get("/")[0] == 200


def a_clock_that_jumps() -> None:
    if not os.environ.get("VM"):
        print("    (the clock is the machine's: only with VM=1)")
        return
    before = front()
    for jump in ("+3 days", "-4 days", "+1 day"):
        run("date", "-s", jump)
        assert get("/")[0] == get("/", "two.test")[0] == get("/a.txt", "two.test")[0] == 200
    assert front() == before


def a_master_that_crashes() -> None:
    before = processes()
    os.kill(main_process(), signal.SIGKILL)
    assert wait(lambda: shown("ActiveState") == "active" and main_process() not in before and get("/")[0] == 200), journal()
    assert not set(before) & set(processes()), "nothing outlives the server"


def time_limits_where_proc_hides_others() -> None:
    run("mount", "-o", "remount,hidepid=2", "/proc")
    try:
        run("systemctl", "restart", "hayate")
        start = time.monotonic()
        status, _ = get("/?sleep=25", "two.test")
        assert status == 504 and time.monotonic() - start < 15 * PATIENCE, (status, time.monotonic() - start, journal())
        assert wait(lambda: get("/", "two.test")[0] == 200)
        for _ in range(20):
            assert get("/")[0] == 200
        run("systemctl", "reload", "hayate")
        assert get("/")[0] == 200
        with Load() as load:
            time.sleep(1)
        assert load.failed == [], load.failed[:3]
    finally:
        run("mount", "-o", "remount,hidepid=0", "/proc")
        run("systemctl", "restart", "hayate")


def a_user_that_is_gone() -> None:
    run("systemctl", "stop", "hayate")
    run("systemctl", "start", "hayate")
    passwd = pathlib.Path("/etc/passwd").read_text()
    try:
        pathlib.Path("/etc/passwd").write_text(re.sub(r"^shop:.*\n", "", passwd, flags=re.M))
        run("systemctl", "reload", "hayate", fails=True)
        assert "shop" in journal()
        # What runs goes on, its processes are replaced as ever.
        assert get("/a.txt", "two.test")[0] == 200 and get("/")[0] == 200
        os.kill(front(), signal.SIGKILL)
        assert get("/")[0] == 200 and wait(lambda: get("/a.txt", "two.test")[0] == 200)
    finally:
        pathlib.Path("/etc/passwd").write_text(passwd)
    run("systemctl", "reload", "hayate")
    assert get("/", "two.test")[1].startswith("two shop")


def logs_that_are_rotated() -> None:
    log = pathlib.Path("/var/log/hayate/access.log")
    get("/before")
    assert wait(lambda: "/before" in log.read_text())
    run("logrotate", "-f", "/etc/logrotate.d/hayate")
    assert wait(log.exists)
    get("/after")
    assert wait(lambda: "/after" in log.read_text())
    assert "/after" not in (log.parent / "access.log.1").read_text()
    assert log.owner() == "hayate"


def a_restart_keeps_what_is_served() -> None:
    answers = []
    thread = threading.Thread(target=lambda: answers.append(get("/?sleep=2", "two.test")))
    thread.start()
    time.sleep(0.7)
    run("systemctl", "restart", "hayate")
    thread.join()
    assert answers[0][0] == 200, answers
    assert get("/")[0] == 200


def a_wrong_configuration_is_not_tried_for_ever() -> None:
    run("systemctl", "stop", "hayate")
    CONFIGURATION.write_text("listen = 7\n")
    try:
        run("systemctl", "start", "hayate", fails=True)
        time.sleep(4)
        assert shown("ActiveState") == "failed" and shown("NRestarts") == "0", shown("ActiveState")
    finally:
        CONFIGURATION.write_text(TEXT)
    run("systemctl", "start", "hayate")


def sockets_of_systemds() -> None:
    """The unit and the addresses of docs/deployment.md: the first visitor starts the service, a restart refuses nobody."""
    unit, listen = (pathlib.Path("/test") / name for name in ("hayate.socket", "listen.toml"))
    run("systemctl", "stop", "hayate")
    place = pathlib.Path("/etc/systemd/system/hayate.socket")
    place.write_text(unit.read_text())
    CONFIGURATION.write_text(re.sub(r"^listen = .*", listen.read_text().strip(), TEXT, flags=re.M))
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--now", "hayate.socket")
    try:
        assert shown("ActiveState") == "inactive"
        assert get("/", port=80)[0] == 200
        # It serves before systemd has heard of it.
        assert wait(lambda: shown("ActiveState") == "active")
        master = main_process()
        with Load(80) as load:
            run("systemctl", "restart", "hayate")
        # One that the old front has accepted, and that has said nothing yet, may be reset.
        assert not [why for why in load.failed if "Refused" in why], load.failed[:3]
        assert main_process() != master
        with Load(80) as load:
            run("hayate", "upgrade")
            run("systemctl", "reload", "hayate")
        assert load.failed == [], load.failed[:3]
        held = run("ss", "-Hltn", "sport", "=", ":80").strip().splitlines()
        assert len(held) == 2, held
        print(f"    {load.answered} requests")
    finally:
        run("systemctl", "disable", "--now", "hayate.socket")
        place.unlink()
        run("systemctl", "daemon-reload")
        CONFIGURATION.write_text(TEXT)
        run("systemctl", "restart", "hayate")
    assert get("/", port=80)[0] == get("/")[0] == 200


def the_machine_starts_again() -> None:
    """What is left of the tests is done after that."""
    AGAIN.write_text(json.dumps(FAILED))
    print("starts again")
    os.sync()
    run("systemctl", "--no-block", "reboot")
    while True:
        signal.pause()


def it_serves_after_the_start_of_the_machine() -> None:
    assert shown("ActiveState") == "active" and shown("NRestarts") == "0"
    assert get("/")[0] == get("/", "two.test")[0] == get("/", port=80)[0] == 200


def removal() -> None:
    before = processes()
    run("apt-get", "remove", "-y", "hayate", f"hayate-php{PHP}", "hayate-lab")
    assert not any(os.path.exists(f"/proc/{pid}") for pid in before)
    assert CONFIGURATION.read_text() == TEXT and os.path.isdir("/var/log/hayate")
    run("apt-get", "install", "-y", "--no-install-recommends", *glob.glob("/test/second/*.deb"))
    run("systemctl", "start", "hayate")
    assert get("/")[0] == 200
    run("apt-get", "purge", "-y", "hayate", f"hayate-php{PHP}", "hayate-lab")
    left = sorted(files() - set(json.loads(BEFORE.read_text())))
    # A user stays, as Debian's policy has it: files may be its.
    assert pwd.getpwnam("hayate").pw_shell == "/usr/sbin/nologin"
    ours = [path for path in left if "hayate" in path and "/hayate.service.d" not in path and not path.startswith(("/var/lib/dpkg/", "/var/cache/apt/"))]
    assert ours == [], ours
    assert "hayate" not in run("systemctl", "list-unit-files")
    # The system's own: its journal, lists of packages, what runs by itself.
    own = ("/run/", "/var/log/", "/var/cache/", "/var/lib/apt/", "/var/lib/dpkg/", "/var/lib/systemd/", "/var/lib/logrotate", "/var/tmp/systemd-private", "/srv/", "/home")
    print("    else left:", [path for path in left if not path.startswith(own)])


TESTS = [
    install,
    start,
    the_lab_loads_the_service,
    users_and_privileges,
    each_restriction_of_the_unit_is_in_force,
    the_journal_has_what_scripts_log,
    a_worker_that_takes_all_memory,
    reload,
    reload_by_new_packages_of_php,
    upgrade,
    upgrade_by_the_command,
    zygotes_that_crash,
    a_front_that_crashes,
    a_front_that_is_stopped,
    a_front_that_is_stuck,
    a_service_that_was_frozen,
    a_clock_that_jumps,
    a_master_that_crashes,
    time_limits_where_proc_hides_others,
    a_user_that_is_gone,
    logs_that_are_rotated,
    a_restart_keeps_what_is_served,
    a_wrong_configuration_is_not_tried_for_ever,
    sockets_of_systemds,
    the_machine_starts_again,
    it_serves_after_the_start_of_the_machine,
    removal,
]
FAILED: list[str] = []


def main() -> None:
    only = [name for name in os.environ.get("ONLY", "").split(",") if name]
    tests = [test for test in TESTS if not only or test.__name__ in ["install", "start", *only]]
    if AGAIN.exists():
        FAILED.extend(json.loads(AGAIN.read_text()))
        AGAIN.unlink()
        tests = tests[tests.index(the_machine_starts_again) + 1 :]
        print("ok the_machine_starts_again")
    for test in tests:
        began = time.monotonic()
        try:
            test()
            print(f"ok {test.__name__} ({time.monotonic() - began:.1f} s)")
        except Exception:
            FAILED.append(test.__name__)
            print(f"FAILED {test.__name__}\n{traceback.format_exc()}\n{journal()[-3000:]}")
            if test in (install, start):
                break
    print("all passed" if not FAILED else f"failed: {', '.join(FAILED)}")
    sys.stdout.flush()
    os.sync()
    time.sleep(1)


main()
