"""What a script does to other processes of its own user by their numbers, where all of the server is that user's: refused.

As a developer has it, or a container. The kernel lets a user's process set limits, priority and processors of any other of that user (the host
forbids it, `host/seccomp.c`), and look into those that can be traced (none of the server can).
"""

from __future__ import annotations

import concurrent.futures
import errno
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest
import requests

from lib.process import stop_process, temporary_directory, wait_until
from lib.servers import GENERIC_WORKER, Hayate

USER = "www-data"
PYTHON = "/usr/bin/python3"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server as another user")

#: Numbers of asm/unistd_64.h and asm/unistd_32.h. PID is the victim; the rest are numbers, or the place of a buffer that holds such bytes.
BY_USER = {
    "prlimit": (302, 340, ["PID", 7, [0, 0], 0]),
    "setpriority": (141, 97, [0, "PID", 19]),
    "setpriority of a group": (141, 97, [1, "PID", 19]),
    "setpriority of the user": (141, 97, [2, 0, 19]),
    "ioprio_set": (251, 289, [1, "PID", 3 << 13]),
    "sched_setparam": (142, 154, ["PID", [0]]),
    "sched_setscheduler": (144, 156, ["PID", 3, [0]]),
    "sched_setaffinity": (203, 241, ["PID", 8, [1]]),
    "sched_setattr": (314, 351, ["PID", [48 | 3 << 32, 0, 19, 0, 0, 0], 0]),
}
#: What the kernel allows for whom one may trace. kcmp and the two of NUMA are not in each kernel.
BY_TRACING = {
    "process_vm_readv": (310, 347, ["PID", ["BUFFER", 8], 1, [4096, 8], 1, 0]),
    "process_vm_writev": (311, 348, ["PID", ["BUFFER", 8], 1, [4096, 8], 1, 0]),
    "kcmp": (312, 349, ["PID", "PID", 2, 0, 0]),
    "move_pages": (279, 317, ["PID", 1, [4096], 0, [0], 0]),
    "migrate_pages": (256, 294, ["PID", 64, [1], [1]]),
    "ptrace": (101, 26, [0x4206, "PID", 0, 0]),
}
#: They need no right but the file's owner's.
FILES = ["oom_score_adj", "autogroup", "coredump_filter", "clear_refs", "timerslack_ns", "comm", "mem"]

FUNCTIONS = """<?php
$libc = FFI::cdef(
    'long syscall(long, long, long, long, long, long, long); int *__errno_location(void); long malloc(size_t); long memcpy(long, long *, size_t);'
);
$place = function (array $words) use (&$place, $libc) {
    $buffer = FFI::new('long[8]');
    foreach ($words as $i => $word) {
        $buffer[$i] = $word === 'BUFFER' ? $place([0]) : $word;
    }
    return $libc->memcpy($libc->malloc(64), FFI::addr($buffer[0]), 64);
};
$said = [];
foreach (json_decode($_REQUEST['calls'], true) as $name => [$number, , $arguments]) {
    $arguments = array_map(fn ($a) => is_array($a) ? $place($a) : ($a === 'PID' ? (int) $_REQUEST['pid'] : $a), $arguments);
    $failed = $libc->syscall($number, ...array_pad($arguments, 6, 0)) === -1;
    $said[$name] = $failed ? $libc->__errno_location()[0] : 0;
}
foreach (json_decode($_REQUEST['files'], true) as $file) {
    $said[$file] = ($open = @fopen("/proc/{$_REQUEST['pid']}/$file", 'r+')) !== false && @fwrite($open, '0') === 1;
}
echo json_encode($said);
"""

PROGRAM = """
import ctypes, json, mmap, os, signal, struct, sys
pid, calls, files, old = int(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4] == "32"
libc, keep = ctypes.CDLL(None, use_errno=True), []
MAP_32BIT = 0x40
low = mmap.mmap(-1, 65536, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
base, used = ctypes.addressof(ctypes.c_char.from_buffer(low)), 1024

def place(words):
    global used
    words = [place([0]) if word == "BUFFER" else word for word in words]
    at, used = used, used + 64
    low[at:at + 8 * len(words)] = struct.pack("%dQ" % len(words), *words)
    return base + at

def call(numbers, arguments):
    values = [place(a) if isinstance(a, list) else pid if a == "PID" else a for a in arguments] + [0] * (6 - len(arguments))
    if not old:
        done = libc.syscall(*(ctypes.c_long(value) for value in (numbers[0], *values)))
        return ctypes.get_errno() if done == -1 else 0
    # push rbx, rbp; eax, ebx, ecx, edx, esi, edi, ebp; int 0x80; pop; ret
    code = b"\\x53\\x55" + b"".join(
        bytes([0xB8 + register]) + struct.pack("<I", value & 0xFFFFFFFF)
        for register, value in zip((0, 3, 1, 2, 6, 7, 5), (numbers[1], *values))
    ) + b"\\xcd\\x80\\x5d\\x5b\\xc3"
    low[:len(code)] = code
    done = ctypes.CFUNCTYPE(ctypes.c_int)(base)()
    return -done if -4096 < done < 0 else 0

if old and os.fork() == 0:
    os._exit(0 if call((39, 20), []) == 0 else 1)
if old and os.wait()[1] != 0:
    print(json.dumps(None))  # a kernel without 32-bit programs
    sys.exit()
said = {name: call(numbers, arguments) for name, (*numbers, arguments) in calls.items()}
for file in files:
    try:
        with open(f"/proc/{pid}/{file}", "r+b", buffering=0) as open_file:
            said[file] = open_file.write(b"0") == 1
    except OSError:
        said[file] = False
print(json.dumps(said))
"""

RUN = """<?php
$arguments = array_map(escapeshellarg(...), [$_REQUEST['program'], $_REQUEST['pid'], $_REQUEST['calls'], $_REQUEST['files'], $_REQUEST['bits']]);
passthru($_REQUEST['python'] . ' ' . implode(' ', $arguments) . ' 2>&1');
"""

#: Leaves a command behind, and ends.
COMMAND = """
import os, pathlib, socket, sys, time
control, place = sys.argv[1], pathlib.Path(sys.argv[2])
(place / "ready").touch()
while not (place / "go").exists():
    time.sleep(0.005)
peer = socket.socket(socket.AF_UNIX)
peer.connect(control)
peer.sendall(b"POST /stop HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 0\\r\\n\\r\\n")
(place / "left").write_text(str(os.getpid()))
(place / "left").rename(place / "done")
"""

#: What a process does to itself. Each says whether it went well.
ITSELF = """<?php
$run = function (string $command) { exec("$command 2>&1", $said, $code); return $code === 0 ? true : implode(' ', $said); };
$libc = FFI::cdef('int getpriority(int, int); int setpriority(int, int, int); int sched_setaffinity(int, size_t, long *);
    int sched_setscheduler(int, int, long *); int prlimit(int, int, long *, long *);
    int sched_setparam(int, long *); unsigned long pthread_self(void); int pthread_setaffinity_np(unsigned long, size_t, long *);
    int pthread_setschedparam(unsigned long, int, long *); int pthread_setschedprio(unsigned long, int);');
$numbers = FFI::new('long[2]');
$numbers[0] = -1;
$parameter = FFI::new('long[1]');
$limits = FFI::new('long[2]');
$limits[0] = $limits[1] = 5000;
echo json_encode([
    'proc_nice' => proc_nice(1) && $libc->getpriority(0, 0) === 1,
    'setpriority' => $libc->setpriority(0, 0, 12) === 0 && $libc->getpriority(0, 0) === 12,
    'setpriority by its number' => $libc->setpriority(0, getmypid(), 13) === 0 && $libc->getpriority(0, getmypid()) === 13,
    'sched_setscheduler by its number' => $libc->sched_setscheduler(getmypid(), 3, FFI::addr($parameter[0])) === 0,
    'sched_setaffinity by its number' => $libc->sched_setaffinity(getmypid(), 8, FFI::addr($numbers[0])) === 0,
    'sched_setparam by its number' => $libc->sched_setparam(getmypid(), FFI::addr($parameter[0])) === 0,
    'pthread_setaffinity_np by its number' => $libc->pthread_setaffinity_np($libc->pthread_self(), 8, FFI::addr($numbers[0])) === 0,
    'pthread_setschedparam by its number' => $libc->pthread_setschedparam($libc->pthread_self(), 3, FFI::addr($parameter[0])) === 0,
    'pthread_setschedprio by its number' => $libc->pthread_setschedprio($libc->pthread_self(), 0) === 0,
    'prlimit by its number' => $libc->prlimit(getmypid(), 7, FFI::addr($limits[0]), null) === 0,
    'others are read' => $libc->prlimit((int) $_REQUEST['pid'], 7, null, FFI::addr($limits[0])) === 0
        && $limits[0] !== 5000 && $libc->getpriority(0, (int) $_REQUEST['pid']) === 0,
    'nice' => $run('nice -n 19 true'),
    'taskset' => $run('taskset 1 true') === true ? $run('taskset -p $$') : 'refused',
    'chrt' => $run('chrt --batch 0 true'),
    'ionice' => $run('ionice -c 3 true'),
    'prlimit' => $run('prlimit --nofile=100 true'),
    'ulimit' => $run('ulimit -n 90 && test "$(ulimit -n)" = 90'),
]);
"""


LEAVE = """<?php
$arguments = array_map(escapeshellarg(...), [$_REQUEST['program'], $_REQUEST['control'], $_REQUEST['place']]);
passthru($_REQUEST['python'] . ' ' . implode(' ', $arguments) . ' 2>&1');
echo json_encode('over');
"""


class AsUser(Hayate):
    """The whole server is the user's."""

    def command(self) -> list[str]:
        user = pwd.getpwnam(USER)
        return ["/usr/bin/setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *super().command()]


@pytest.fixture(scope="module")
def site() -> Iterator[pathlib.Path]:
    directory = temporary_directory("one-user")
    (directory / "public").mkdir()
    for name, text in {"functions": FUNCTIONS, "run": RUN, "itself": ITSELF}.items():
        (directory / f"public/{name}.php").write_text(text)
    (directory / "attack.py").write_text(PROGRAM)
    (directory / "command.py").write_text(COMMAND)
    (directory / "public/command.php").write_text(LEAVE)
    shutil.copyfile(GENERIC_WORKER, directory / "worker.php")
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module", params=["classic", "worker"])
def server(request, hayate_command, site, usual_priority) -> Iterator[Hayate]:
    how = f'worker = "{site}/worker.php"\n' if request.param == "worker" else ""
    apps = ""
    for name, path in (("a", "/"), ("b", "/b")):
        apps += f'[[app]]\nname = "{name}"\npath = "{path}"\nroot = "{site}"\ndocument_root = "public"\n'
        apps += f'workers = 1\nini = {{ "ffi.enable" = "1" }}\n{how}'
    server = AsUser(config=apps)
    os.chown(server.dir, pwd.getpwnam(USER).pw_uid, -1)
    with server:
        yield server


def processes(server: Hayate) -> dict[str, int]:
    a, b = server.status()["apps"]
    worker = b["workers"][0]["pid"]
    return {"master": server.pid, "front": server.front, "its zygote": a["zygote"], "another's zygote": b["zygote"], "another's worker": worker}


def ask(server: Hayate, page: str, **data: object) -> object:
    answer = requests.post(f"{server.url}/{page}.php", data=data, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def state(pid: int) -> tuple[str, str, str]:
    """Limits, priority, policy, processors."""
    proc = pathlib.Path(f"/proc/{pid}")
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    allowed = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("Cpus_allowed:"))
    return (proc / "limits").read_text(), f"{fields[15:17]} {fields[37:39]}", allowed


def only_refused(said: dict[str, object], victim: str) -> None:
    """As far as the kernel has the call."""
    wrong = {name: what for name, what in said.items() if what is True or what not in (False, errno.EPERM, errno.EACCES, errno.ENOSYS)}
    assert not wrong, (victim, wrong)
    # One that the kernel does not have is no proof; these, it has.
    assert all(said[name] == errno.EPERM for name in BY_USER), (victim, said)


@pytest.mark.parametrize("bits", ["64", "32"])
def test_the_attack_works_where_nothing_forbids_it(site, bits) -> None:
    victim = subprocess.Popen(["/usr/bin/setsid", "sleep", "300"], user=USER)
    try:
        calls = {name: call for name, call in BY_USER.items() if name != "setpriority of the user"}
        command = [PYTHON, site / "attack.py", str(victim.pid), json.dumps(calls), json.dumps(FILES[:1]), bits]
        said = json.loads(subprocess.run(command, user=USER, capture_output=True, check=True, timeout=60).stdout)
        if said is None:
            pytest.skip("this kernel runs no 32-bit programs")
        # Its group may not be its own yet.
        assert said.pop("setpriority of a group") in (0, errno.ESRCH)
        assert said == {name: 0 for name in calls if name != "setpriority of a group"} | {FILES[0]: True}
    finally:
        victim.kill()
        victim.wait()


def test_scripts_change_and_read_no_process_but_their_own(server) -> None:
    for victim, pid in processes(server).items():
        before = state(pid)
        said = ask(server, "functions", pid=pid, calls=json.dumps(BY_USER | BY_TRACING), files=json.dumps(FILES))
        only_refused(said, victim)
        assert state(pid) == before, victim


@pytest.mark.parametrize("bits", ["64", "32"])
def test_programs_that_scripts_start_neither(server, site, bits) -> None:
    for victim, pid in processes(server).items():
        before = state(pid)
        # Those by tracing are no business of a number, and differ in what they point to.
        calls = json.dumps(BY_USER | BY_TRACING if bits == "64" else BY_USER)
        files = json.dumps(FILES)
        said = ask(server, "run", program=site / "attack.py", python=PYTHON, pid=pid, calls=calls, files=files, bits=bits)
        if said is None:
            pytest.skip("this kernel runs no 32-bit programs")
        only_refused(said, victim)
        assert state(pid) == before, victim


def test_what_a_process_does_to_itself_goes_on(server) -> None:
    said = ask(server, "itself", pid=server.front)
    if server.status()["apps"][0]["mode"] == "classic":
        # There libraries of extensions do not find the host's versions of these functions.
        said = {name: what for name, what in said.items() if "by its number" not in name}
    assert said == {name: True for name in said}


def test_a_kernel_that_has_no_such_filter_is_named(hayate_command, site) -> None:
    """As where a container's profile forbids it: the server serves, and says what that means."""
    forbid = site / "forbid.py"
    forbid.write_text(FORBID)

    class Forbidden(Hayate):
        def command(self) -> list[str]:
            return [PYTHON, str(forbid), *super().command()]

    with Forbidden(config=f'[[app]]\nname = "a"\nroot = "{site}"\ndocument_root = "public"\nworkers = 1\n', user=USER) as server:
        assert "seccomp refuses" in server.status()["apps"][0]["boot_remark"]
        assert "seccomp refuses" in server.log()
        assert requests.get(f"{server.url}/run.php", timeout=30).status_code == 200


#: seccomp(2) gives EPERM from here on.
FORBID = """
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 317), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
for call in [(38, 1, 0, 0, 0), (22, 2, ctypes.addressof(program), 0, 0)]:
    if libc.prctl(*(ctypes.c_ulong(argument) for argument in call)) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
os.execv(sys.argv[1], sys.argv[1:])
"""


LAST_PID = pathlib.Path("/proc/sys/kernel/ns_last_pid")


def stranger(number: int) -> subprocess.Popen:
    """A process of the user's, not below the server, that has this number."""
    for _ in range(200):
        LAST_PID.write_text(str(number - 1))
        process = subprocess.Popen(["/usr/bin/setsid", "sleep", "300"], user=USER)
        if process.pid == number:
            return process
        process.kill()
        process.wait()
    pytest.xfail("others take the number, each of 200 times")


@pytest.mark.alone  # other tests' processes would take the number
@pytest.mark.xfail(not os.access(LAST_PID, os.W_OK), reason="nobody may choose numbers of processes here", run=False)
def test_a_command_of_a_process_that_has_ended_is_not_its_successors(server, tmp_path) -> None:
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and parent != pathlib.Path("/") and "pytest" in parent.name:
            parent.chmod(0o755)
    front = server.front
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        site = pathlib.Path(server.status()["apps"][0]["document_root"]).parent
        asked = pool.submit(ask, server, "command", program=site / "command.py", python=PYTHON, control=server.control, place=tmp_path)
        assert wait_until(lambda: (tmp_path / "ready").exists() or asked.done(), 60)
        # As a front that is busy with something else: the connection waits.
        stop_process(front)
        try:
            (tmp_path / "go").touch()
            assert wait_until(lambda: (tmp_path / "done").exists(), 4)
            number = int((tmp_path / "done").read_text())
            assert wait_until(lambda: not pathlib.Path(f"/proc/{number}").exists(), 4)
            other = stranger(number)
        finally:
            os.kill(front, signal.SIGCONT)
        try:
            assert asked.result(60) == "over"
            assert server.status()["state"] == "serving"
            assert server.front == front
        finally:
            other.kill()
            other.wait()
