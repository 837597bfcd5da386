"""libc by its name, as `FFI::cdef(…, 'libc.so.6')` asks for it: what a request does by that is taken back like all else.

Memory above all: what the boot has sealed, what the kernel throws away or empties with a fork. php-fpm, which boots for
each request, says what is right.
"""

from __future__ import annotations

import pathlib

import pytest

from lib.process import ServerError

from . import modes

BOOT = """
$libc = FFI::cdef('
    void *mmap(void *, size_t, int, int, int, long); int munmap(void *, size_t); int mprotect(void *, size_t, int);
    int pkey_mprotect(void *, size_t, int, int); void *mremap(void *, size_t, size_t, int, void *);
    int madvise(void *, size_t, int); int chdir(char *); int close(int); int setpriority(int, unsigned, int);
    long syscall(long, ...); void closefrom(int); void *sbrk(long); int timer_create(int, void *, void *);
    long sigset(int, long); int sigignore(int); long sysv_signal(int, long); long bsd_signal(int, long); unsigned ualarm(unsigned, unsigned);
', 'libc.so.6');
$page = 4096;
$memory = $libc->mmap(null, 2 * $page, 3, 0x22, -1, 0);
$numbers = FFI::cast('int *', $memory);
[$numbers[0], $numbers[1024]] = [7, 8];
$own = fopen(__DIR__ . '/own', 'a+');
"""
SEALED = "$libc->mprotect($memory, $page, 1);"
#: What the boot does besides, and each request.
KINDS = {
    "directory": ("", "echo getcwd() === __DIR__ ? 'at home' : getcwd(); $libc->chdir('/usr');"),
    "priority": ("", "echo explode(' ', file_get_contents('/proc/self/stat'))[18]; $libc->setpriority(0, 0, 5);"),
    "descriptor": (
        "",
        "echo var_export(@fwrite($own, 'x'), true);"
        "foreach (range(3, 60) as $n) { if (@readlink(\"/proc/self/fd/$n\") === __DIR__ . '/own') { $libc->close($n); } }",
    ),
    "sealed memory": (SEALED, "echo $numbers[0]; $libc->mprotect($memory, $page, 3); $numbers[0] = 9;"),
    "sealed memory with a key": (SEALED, "echo $numbers[0]; $libc->pkey_mprotect($memory, $page, 3, -1); $numbers[0] = 9;"),
    "sealed memory and more": (SEALED, "echo $numbers[0], $numbers[1024]; $libc->mprotect($memory, 2 * $page, 3); $numbers[0] = 9;"),
    "another mapping in its place": (
        "",
        "echo $numbers[0]; $other = $libc->mmap(null, $page, 3, 0x22, -1, 0); FFI::cast('int *', $other)[0] = 9;"
        "$libc->mremap($other, $page, $page, 3, $memory); echo $numbers[0];",
    ),
    "thrown away": ("", "echo $numbers[0], $libc->madvise($memory, $page, 24), $numbers[0];"),
    "unmapped by number": ("", "echo $numbers[0]; $libc->syscall(11, $memory, $page);"),
    "opened by number": (SEALED, "echo $numbers[0]; $libc->syscall(10, $memory, $page, 3); $numbers[0] = 9;"),
    "asked by number": ("", "echo $libc->syscall(39) === getmypid();"),
    "all descriptors": ("", "echo var_export(@fwrite($own, 'x'), true); $libc->closefrom(1000);"),
    "the rewinder's own": ("", "echo $numbers[0], getcwd(); $libc->closefrom(32); $numbers[0] = 9;"),
    "a lower break": ("", "echo $numbers[0]; $libc->sbrk(-4096); $libc->sbrk(4096);"),
    "a timer": ("", "echo $numbers[0]; $libc->timer_create(1, null, FFI::addr(FFI::new('void *')));"),
    **{
        f"a signal ignored by {call}": ("", f"echo (int) (hexdec(explode(\"\\t\", current(preg_grep('/^SigIgn/', file('/proc/self/status'))))[1]) & 2048); $libc->{call};")
        for call in ("sigset(12, 1)", "sigignore(12)", "sysv_signal(12, 1)", "bsd_signal(12, 1)")
    },
    "an alarm": ("", "echo $numbers[0]; usleep(400000); $libc->ualarm(300000, 0);"),
    "given back": ("", "echo $numbers[0], $libc->munmap($memory, $page);"),
}


def write(directory: pathlib.Path, boot: str, request: str) -> None:
    names = "$libc, $page, $memory, $numbers, $own"
    modes.write(directory, f"{BOOT} {boot}\nwhile (hayate_handle_request(function () {{ global {names}; {request} }})) {{}}\n")


@pytest.mark.parametrize("kind", KINDS)
def test_as_under_php_fpm(kind: str, directory: pathlib.Path) -> None:
    write(directory, *KINDS[kind])
    with modes.php_fpm(directory, workers=1) as reference:
        expected = modes.get(reference)
    with modes.hayate(directory, "on", "shared", workers=1) as server:
        assert [modes.get(server) for _ in range(3)] == [expected] * 3
        application = modes.application(server)
        assert application["fallback"] is None and set(application["restarts"]) <= {
            "rewind_mappings",
            "rewind_descriptors",
            "rewind_process",
        }


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_memory_that_a_fork_empties(rewind: str, directory: pathlib.Path) -> None:
    """By it libraries find that they were forked, and seed their generators: in each request, or all draw the same."""
    write(directory, "$libc->madvise($memory, $page, 18);", "echo $numbers[0]; $numbers[0] = 9;")
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert [modes.get(server) for _ in range(4)] == ["0"] * 4
        assert modes.application(server)["restarts"] == {}


@pytest.mark.parametrize("rewind", ["on", "off"])
def test_memory_that_a_fork_does_not_take_along(rewind: str, directory: pathlib.Path) -> None:
    """A worker that was forked would die of it: each boots by itself, and the log says why."""
    write(directory, "$libc->madvise($memory, $page, 10);", "echo $numbers[0]; $numbers[0] = 9;")
    with modes.hayate(directory, rewind, "shared", workers=2) as server:
        answers = [modes.get(server) for _ in range(6)]
        application = modes.application(server)
        assert application["restarts"] == {} and application["boot"] == "private"
        assert server.logged("MADV_DONTFORK")
    assert set(answers) <= ({"7"} if rewind == "on" else {"7", "9"}), answers


def test_memory_that_a_fork_for_each_request_would_not_take_along(directory: pathlib.Path) -> None:
    write(directory, "$libc->madvise($memory, $page, 10);", "echo $numbers[0];")
    with pytest.raises(ServerError, match="MADV_DONTFORK"), modes.hayate(directory, "fork", "shared", workers=1):
        pass
