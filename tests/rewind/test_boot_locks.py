"""A lock that the boot takes is held by one request at a time, as under php-fpm, where each boots and waits for it."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from lib.process import wait_until

from . import modes

COUNT = r"""
$work = static function (Closure $own) {
    $n = (int) file_get_contents(__DIR__.'/counter');
    usleep(3000);
    $after = $own();
    file_put_contents(__DIR__.'/counter', $n + 1);
    echo json_encode($after);
    if (isset($_GET['unlock'])) {
        $GLOBALS['unlock']();
    }
    if (isset($_GET['fatal'])) {
        undefined_function();
    }
};
"""
FLOCK = (
    COUNT
    + r"""
$file = fopen(__DIR__.'/lock', getenv('LOCK_MODE') ?: 'r');
flock($file, LOCK_EX);
$unlock = static fn () => flock($file, LOCK_UN);
while (hayate_handle_request(fn () => $work(static fn () => flock($file, LOCK_EX | LOCK_NB)))) {
}
"""
)
SEMAPHORE = (
    COUNT
    + r"""
$semaphore = sem_get((int) file_get_contents(__DIR__.'/key'));
sem_acquire($semaphore);
$unlock = static fn () => sem_release($semaphore);
while (hayate_handle_request(fn () => $work(static fn () => !sem_acquire($semaphore, true)))) {
}
"""
)


@pytest.fixture
def site(directory: pathlib.Path):
    for name in ("lock", "counter"):
        (directory / name).write_text("0")
        (directory / name).chmod(0o666)
    key = 0x4D5C0000 | (hash(str(directory)) & 0xFFFF)
    (directory / "key").write_text(str(key))
    yield directory
    subprocess.run(["ipcrm", "-S", hex(key)], check=False, capture_output=True)


def count(server, directory: pathlib.Path, query: str = "") -> int:
    """How far 60 locked increments count."""
    (directory / "counter").write_text("0")
    assert set(modes.many(server, 60, query)) == {"true"}
    return int((directory / "counter").read_text())


def free(directory: pathlib.Path) -> bool:
    """Whether nobody holds the lock."""
    return subprocess.run(["flock", "-n", str(directory / "lock"), "true"], check=False).returncode == 0


@modes.each_mode
def test_a_file_lock_of_the_boot_is_held_by_one_request_at_a_time(site, rewind, boot) -> None:
    modes.write(site, FLOCK)
    with modes.hayate(site, rewind, boot) as server:
        assert count(server, site) == 60
        assert count(server, site, "unlock=1") == 60, "one that gives it up does so for itself"
        assert modes.application(server)["boot"] == boot and modes.application(server)["restarts"] == {}
        assert wait_until(lambda: free(site)), "between requests nobody has it"
        with subprocess.Popen(
            ["flock", str(site / "lock"), "sh", "-c", "echo locked; read x"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as other:  # fmt: skip
            assert other.stdout.readline() == "locked\n"
            with pytest.raises(modes.requests.Timeout):
                modes.requests.get(server.url, timeout=0.5)
            other.communicate("\n")
        assert modes.get(server) == "true"


@pytest.mark.parametrize("script", [FLOCK, SEMAPHORE], ids=["flock", "semaphore"])
def test_as_under_php_fpm(site, script) -> None:
    modes.write(site, script)
    with modes.php_fpm(site) as fpm:
        assert count(fpm, site) == 60
        assert count(fpm, site, "unlock=1") == 60
        assert wait_until(lambda: free(site))  # answered before it is given back


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_lock_on_a_file_that_is_written_to(site, rewind) -> None:
    """To append: it may be shared."""
    modes.write(site, FLOCK)
    with modes.hayate(site, rewind, "shared", args=("--env", "LOCK_MODE=a+")) as server:
        assert count(server, site) == 60
        assert count(server, site, "unlock=1") == 60
        assert modes.application(server)["restarts"] == {} and modes.application(server)["fallback"] is None
        assert wait_until(lambda: free(site))  # answered before it is given back


@modes.each_mode
def test_a_semaphore_of_the_boot_is_held_by_one_request_at_a_time(site, rewind, boot) -> None:
    modes.write(site, SEMAPHORE)
    with modes.hayate(site, rewind, boot) as server:
        assert count(server, site) == 60
        assert count(server, site, "unlock=1") == 60
        assert modes.application(server)["restarts"] == {}


def test_a_lock_is_given_back_by_a_request_that_dies(site) -> None:
    modes.write(site, FLOCK)
    with modes.hayate(site, "on", "shared") as server:
        for _ in range(5):
            modes.requests.get(server.url + "/?fatal=1", timeout=60)
        assert wait_until(lambda: free(site))  # answered before it is given back
        assert count(server, site) == 60


RECORD = r"""
$libc = FFI::cdef('
    struct flock { short type; short whence; long start; long len; int pid; };
    int open(const char *, int, ...);
    int fcntl(int, int, ...);
    int close(int); int lockf(int, int, long); long lseek(int, long, int);
');
$lock = static function (int $fd, int $type, int $start, int $len) use ($libc) {
    $lock = $libc->new('struct flock');
    [$lock->type, $lock->start, $lock->len] = [$type, $start, $len];
    return $libc->fcntl($fd, 6, FFI::addr($lock));
};
$fd = $libc->open(__DIR__.'/lock', 2);
$lock($fd, 0, 100, 10);
while (hayate_handle_request(function () use ($libc, $lock, $fd) {
    echo match ($_GET['do'] ?? '') {
        'elsewhere' => $lock($fd, 1, 200, 10),
        'lockf' => $libc->lseek($fd, 300, 0) === 300 ? $libc->lockf($fd, 2, 10) : 1,
        'upgrade' => $lock($fd, 1, 100, 10),
        'close another' => $libc->close($libc->open(__DIR__.'/lock', 2)),
        'unlock' => $lock($fd, 2, 100, 10),
        'unlock all' => $lock($fd, 2, 0, 0),
        default => 0,
    };
})) {
}
"""


def test_a_record_lock_of_the_boot_is_there_in_each_request(site) -> None:
    """As SQLite has them: who gives one up cannot be said to have had it all the time, and is replaced."""
    modes.write(site, RECORD)

    def locks() -> list[str]:
        found = pathlib.Path("/proc/locks").read_text().splitlines()
        inode = str((site / "lock").stat().st_ino)
        return [" ".join(line.split()[3:4] + line.split()[6:]) for line in found if f":{inode} " in line]

    with modes.hayate(site, "on", "private", workers=1) as server:
        for do in ("", "elsewhere", "upgrade", "lockf"):
            assert modes.get(server, f"do={do}") == "0"
            assert modes.get(server) == "0"
            assert locks() == ["READ 100 109"], do
        assert modes.application(server)["restarts"] == {}
        # The kernel takes a process' locks when it closes any descriptor of the file: somebody else may have had them since.
        for n, do in enumerate(("unlock", "unlock all", "close another"), 1):
            assert modes.get(server, f"do={do}") == "0"
            assert modes.get(server) == "0"
            assert wait_until(lambda: locks() == ["READ 100 109"]), do
            assert modes.application(server)["restarts"] == {"rewind_descriptors": n}


#: Locks whose numbers, and kinds, are in another order than that in which the boot takes them.
ORDERS = {
    "two files": ("$b = fopen(__DIR__ . '/b', 'a'); $a = fopen(__DIR__ . '/a', 'a');", "flock($a, LOCK_EX); usleep(20000); flock($b, LOCK_EX);"),
    "a semaphore and a file": (
        "$s = sem_get(ftok(__DIR__, 'h')); $b = fopen(__DIR__ . '/b', 'a');",
        "sem_acquire($s); usleep(20000); flock($b, LOCK_EX);",
    ),
    "one that is asked for twice": (
        "$a = fopen(__DIR__ . '/a', 'a'); $b = fopen(__DIR__ . '/b', 'a');",
        "flock($a, LOCK_EX); usleep(20000); flock($b, LOCK_EX); flock($a, LOCK_EX);",
    ),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_locks_are_taken_in_the_order_of_the_boot(rewind: str, order: str, directory: pathlib.Path) -> None:
    """Workers that boot, and requests of others, do not wait for each other for ever."""
    opens, takes = ORDERS[order]
    directory.chmod(0o777)
    modes.write(directory, f"{opens} {takes}\nwhile (hayate_handle_request(function () {{ usleep(1000); echo 1; }})) {{}}\n")
    with modes.hayate(directory, rewind, "private", workers=3, args=("--max-requests", "2")) as server:
        assert modes.many(server, 40, at_once=3) == ["1"] * 40
        assert modes.application(server)["fallback"] is None
