"""A lock that the boot takes is held by one request at a time, as under php-fpm, where each boots and waits for it."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import subprocess
import time

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


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_boot_that_holds_a_semaphore_is_served_in_classic_mode(site, rewind) -> None:
    """Each boot takes it anew, also after somebody has removed the set."""
    modes.write(site, SEMAPHORE.replace("$unlock =", "$remove = static fn () => sem_remove($semaphore);\n$unlock ="))
    modes.front_controller(site)
    with modes.hayate(site, rewind, "shared") as server:
        assert "holds a System V semaphore" in modes.application(server)["fallback"]["why"]
        assert count(server, site) == 60
        assert count(server, site, "unlock=1") == 60
        modes.get(server, "remove=1")
        assert count(server, site) == 60


SETS_VALUE = """
$libc = FFI::cdef('int semget(int, int, int); int semctl(int, int, int, ...);');
$value = FFI::new('long');
$value->cdata = 1;
$libc->semctl($libc->semget((int) file_get_contents(__DIR__.'/key'), 0, 0), 0, 16, $value);
"""


@pytest.mark.parametrize("gives_up", ["sem_remove($semaphore);", "sem_release($semaphore); sem_remove($semaphore);", SETS_VALUE], ids=["removed", "released and removed", "set"])
@pytest.mark.parametrize("by", ["boot", "warm-up"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_semaphore_that_is_removed_or_set_is_held_no_more(site, rewind, by, gives_up) -> None:
    takes = "$semaphore = sem_get((int) file_get_contents(__DIR__.'/key')); sem_acquire($semaphore);" + gives_up
    boot, request = (takes, "") if by == "boot" else ("", f"if (isset($_SERVER['HAYATE_WARMUP'])) {{ {takes} }}")
    modes.write(site, f"{boot} while (hayate_handle_request(function () {{ {request} echo 'true'; }})) {{ }}")
    modes.front_controller(site)
    with modes.hayate(site, rewind, "shared", workers=2, warmup="/") as server:
        assert set(modes.many(server, 20)) == {"true"}
        application = modes.application(server)
        assert application["fallback"] is None and application["cold_boot"] is None, application
        assert application["restarts"] == {}


#: What gives up a lock of the boot without unlocking it; then the same request takes it anew, by a file of its own or a program's.
CLOSES = {
    "fclose()": "fclose($GLOBALS['l']);",
    "the last reference goes": "unset($GLOBALS['l']);",
    "a duplicate is closed, too": "$d = libc()->dup(fd()); fclose($GLOBALS['l']); libc()->close($d);",
}
CLOSING = r"""
function libc(): FFI {
    static $libc;
    return $libc ??= FFI::cdef('int dup(int); int close(int);');
}
function fd(): int {
    foreach (glob('/proc/self/fd/*') as $path) {
        if (@readlink($path) === realpath(__DIR__ . '/lock')) {
            return (int) basename($path);
        }
    }
}
$GLOBALS['l'] = fopen(__DIR__ . '/lock', MODE);
flock($GLOBALS['l'], LOCK_EX);
while (hayate_handle_request(function () {
    if (isset($_GET['looks'])) {
        exec('flock -n ' . escapeshellarg(__DIR__ . '/lock') . ' true', $lines, $code);
        exit((string) $code);
    }
    CLOSES
    $own = fopen(__DIR__ . '/lock', 'r');
    echo json_encode(flock($own, LOCK_EX | LOCK_NB));
    fclose($own);
    exec('flock -n ' . escapeshellarg(__DIR__ . '/lock') . ' true', $lines, $code);
    echo $code;
})) {
}
"""


@pytest.mark.parametrize("closes", CLOSES)
@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_lock_goes_with_the_file_that_a_request_closes(site, rewind, mode, closes) -> None:
    """And is there again in the next one."""
    modes.write(site, CLOSING.replace("MODE", f"'{mode}'").replace("CLOSES", CLOSES[closes]))
    with modes.php_fpm(site) as fpm:
        expected = [modes.get(fpm, query) for query in ("", "looks=1", "", "looks=1")]
    assert expected == ["true0", "1"] * 2
    with modes.hayate(site, rewind, "shared", workers=2) as server:
        for _ in range(3):
            assert [modes.get(server, query) for query in ("", "looks=1", "", "looks=1")] == expected
        assert modes.application(server)["fallback"] is None and modes.application(server)["restarts"] == {}
        assert wait_until(lambda: free(site))


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_program_that_inherits_a_lock_keeps_it(site, rewind, mode) -> None:
    """One such at a time: whoever starts it in the background counts on that."""
    job = "exec('cd ' . escapeshellarg(__DIR__) . '; while [ -e worker.php ] && [ ! -e over ]; do sleep 0.02; done > /dev/null 2>&1 &');"
    script = FLOCK.replace("$work = static function (Closure $own) {", "$work = static function (Closure $own) { if (isset($_GET['job'])) { %s }" % job)
    modes.write(site, script.replace("getenv('LOCK_MODE') ?: 'r'", f"'{mode}'"))
    site.chmod(0o777)

    def play(server) -> None:
        assert modes.get(server, "job=1") == "true"
        assert not free(site)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(modes.get, server)
            assert not concurrent.futures.wait([waits], timeout=0.5).done
            (site / "over").touch()
            assert waits.result() == "true"
        assert wait_until(lambda: free(site))
        assert count(server, site) == 60
        (site / "over").unlink()

    with modes.php_fpm(site) as fpm:
        play(fpm)
    with modes.hayate(site, rewind, "shared", workers=2) as server:
        play(server)
        assert modes.application(server)["fallback"] is None


#: What a child of the request inherits: a lock by a duplicate of the boot's descriptor, or by its own number (of the open file: F_OFD_SETLK).
INHERITED = r"""
function libc(): FFI {
    static $libc;
    return $libc ??= FFI::cdef('struct flock { short type, whence; long start, len; int pid; }; int dup(int), close(int), open(const char *, int, ...), flock(int, int), fcntl(int, int, ...);');
}
function fd(string $name): int {
    foreach (glob('/proc/self/fd/*') as $path) {
        if (@readlink($path) === realpath(__DIR__) . "/$name") {
            return (int) basename($path);
        }
    }
}
function ofd(int $type, int $fd): bool {
    $lock = libc()->new('struct flock');
    $lock->type = $type;
    return libc()->fcntl($fd, 37, FFI::addr($lock)) === 0;
}
$l = fopen(__DIR__ . '/lock', 'a');
while (hayate_handle_request(function () {
    if (isset($_GET['looks'])) {
        $own = libc()->open(__DIR__ . '/lock', 2);
        $free = libc()->flock($own, 6) === 0 && ofd(1, $own);
        libc()->close($own);
        exit(json_encode($free));
    }
    TAKES
    exec('cd ' . escapeshellarg(__DIR__) . '; while [ -e worker.php ] && [ ! -e over ]; do sleep 0.02; done > /dev/null 2>&1 &');
    AFTER
    echo json_encode($taken);
})) {
}
"""
TAKES = {
    "a duplicate": ("$n = libc()->dup(fd('lock')); $taken = libc()->flock($n, 6) === 0;", "libc()->close($n);"),
    "of the open file": ("$taken = ofd(1, fd('lock'));", ""),
    "of the open file, closed": ("$taken = ofd(1, fd('lock'));", "fclose($GLOBALS['l']);"),
    "of the open file, by a duplicate": ("$n = libc()->dup(fd('lock')); $taken = ofd(1, $n);", "libc()->close($n);"),
}


@pytest.mark.parametrize("takes", TAKES)
@modes.each_mode
def test_a_program_keeps_a_lock_however_it_was_taken(site, rewind, boot, takes) -> None:
    """As long as it runs; then the next request has it."""
    before, after = TAKES[takes]
    modes.write(site, INHERITED.replace("TAKES", before).replace("AFTER", after))
    site.chmod(0o777)

    def play(server) -> list[str]:
        seen = []
        for _ in range(2):
            seen += [modes.get(server), modes.get(server, "looks=1"), modes.get(server)]
            (site / "over").touch()
            assert wait_until(lambda: modes.get(server, "looks=1") == "true")
            (site / "over").unlink()
        return seen

    with modes.php_fpm(site, workers=2) as fpm:
        expected = play(fpm)
    assert expected == ["true", "false", "false"] * 2
    with modes.hayate(site, rewind, boot, workers=2) as server:
        assert play(server) == expected
        application = modes.application(server)
        assert application["fallback"] is None and application["restarts"] == {}, (application, server.log()[-2000:])


def test_a_pipe_with_a_name_that_is_locked_and_closed(site) -> None:
    """Nobody waits for who may write to it."""
    modes.write(
        site,
        r"""
$pipe = fopen(__DIR__ . '/pipe', 'r');
while (hayate_handle_request(function () {
    flock($GLOBALS['pipe'], LOCK_EX);
    fclose($GLOBALS['pipe']);
    echo 'true';
})) {
}
""",
    )
    os.mkfifo(site / "pipe")
    (site / "pipe").chmod(0o666)
    writer = os.open(site / "pipe", os.O_RDWR)
    with modes.hayate(site, "on", "private", workers=1) as server:
        os.close(writer)
        assert modes.requests.get(server.url, timeout=10).text == "true"


WARMED = r"""
$lock = LOCK;
while (hayate_handle_request(function () use ($lock) {
    exec('flock -n ' . escapeshellarg(__DIR__ . '/lock') . ' true', $lines, $code);
    if ($_SERVER['REQUEST_URI'] === '/other') {
        exit((string) $code);
    }
    TAKES
    $n = (int) file_get_contents(__DIR__.'/counter');
    usleep(3000);
    file_put_contents(__DIR__.'/counter', $n + 1);
    echo 'true';
})) {
}
"""


@pytest.mark.parametrize("paths", [(), ("/a", "/b", "/c")], ids=["one path", "one that is not compared"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_lock_that_a_warm_up_request_takes_ends_with_it(site, rewind, paths) -> None:
    modes.write(site, WARMED.replace("LOCK;", "fopen(__DIR__ . '/lock', 'r');", 1).replace("TAKES", "flock($lock, LOCK_EX);"))
    args = tuple(word for path in paths for word in ("--warmup", path))
    with modes.hayate(site, rewind, "shared", workers=2, warmup="/", args=args) as server:
        assert modes.application(server)["cold_boot"] is None, modes.application(server)
        assert modes.requests.get(server.url + "/other", timeout=60).text == "0", "nobody has it before a request takes it"
        assert count(server, site) == 60
        assert modes.application(server)["restarts"] == {} and wait_until(lambda: free(site))


BETWEEN = r"""
$lock = fopen(__DIR__ . '/lock', 'r');
while (hayate_handle_request(function () { echo 'true'; })) {
    if (flock($lock, LOCK_EX | LOCK_NB)) {
        file_put_contents(__DIR__ . '/runs', 'x', FILE_APPEND);
    }
}
"""


@pytest.mark.parametrize("boot", ["shared", "private"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_lock_that_the_loop_takes_is_the_requests(site, rewind, boot) -> None:
    """What follows an answer in the loop belongs to the request; with its end the lock is free."""
    site.chmod(0o777)
    modes.write(site, BETWEEN)
    with modes.hayate(site, rewind, boot, workers=2, warmup="/") as server:
        before = len((site / "runs").read_text())
        assert wait_until(lambda: free(site))
        for n in range(1, 6):
            assert modes.get(server) == "true"
            assert wait_until(lambda n=n: len((site / "runs").read_text()) == before + n and free(site))
        assert modes.application(server)["restarts"] == {} and modes.application(server)["fallback"] is None


ONCE = """
function lock() {
    static $lock;
    if ($lock === null) {
        $lock = fopen(__DIR__ . '/lock', 'r');
        flock($lock, LOCK_EX);
    }
}
while (hayate_handle_request(function () {
    lock();
    $n = (int) file_get_contents(__DIR__.'/counter');
    usleep(3000);
    file_put_contents(__DIR__.'/counter', $n + 1);
    echo 'true';
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_lock_that_is_taken_once_is_not_left_to_a_warm_up_request(site, rewind) -> None:
    modes.write(site, ONCE)
    with modes.hayate(site, rewind, "shared", workers=4, warmup="/") as server:
        assert count(server, site) == 60
        assert "locked a file, which it keeps open, and the next one did not" in modes.application(server)["cold_boot"]
        assert modes.application(server)["restarts"] == {} and wait_until(lambda: free(site))


WORKER_ONCE = """
$lock = fopen(__DIR__ . '/lock', 'r');
hayate_on_worker_start(function () use ($lock) { flock($lock, LOCK_EX); });
while (hayate_handle_request(function () {
    $n = (int) file_get_contents(__DIR__.'/counter');
    usleep(3000);
    file_put_contents(__DIR__.'/counter', $n + 1);
    echo 'true';
})) {
}
"""


def test_each_request_has_the_lock_that_its_worker_began_with(site) -> None:
    modes.write(site, WORKER_ONCE)
    with modes.hayate(site, "on", "shared", workers=4, args=("--connections", "warm")) as server:
        assert count(server, site) == 60
        assert modes.application(server)["restarts"] == {} and wait_until(lambda: free(site))


OF_A_CLASS = r"""
spl_autoload_register(function ($name) { require __DIR__ . "/$name.php"; });
while (hayate_handle_request(function () {
    static $kept;
    if (isset($_SERVER['HAYATE_WARMUP'])) {
        sem_acquire($kept = sem_get(ftok(__FILE__, 'h')));
    }
    exec('flock -n ' . escapeshellarg(__DIR__ . '/lock') . ' true', $lines, $before);
    echo class_exists('Locked');
    exec('flock -n ' . escapeshellarg(__DIR__ . '/lock') . ' true', $lines, $after);
    echo "$before$after";
})) {
}
"""


def test_a_lock_that_the_file_of_a_class_takes(site) -> None:
    """After warm-up requests that failed, their classes are loaded by name, but for one whose file does more: each request that loads it takes the lock."""
    site.chmod(0o777)
    code = "<?php class Locked { static $file; } Locked::$file = fopen(__DIR__ . '/lock', 'r'); flock(Locked::$file, LOCK_EX);"
    (site / "Locked.php").write_text(code)
    modes.write(site, OF_A_CLASS)
    with modes.hayate(site, "on", "shared", workers=2, warmup="/") as server:
        assert modes.application(server)["cold_boot"] is not None
        assert wait_until(lambda: free(site)), "nobody serves"
        # Another request may have it before.
        assert set(modes.many(server, 20)) <= {"101", "111"}
        assert wait_until(lambda: free(site))
        assert modes.application(server)["restarts"] == {}


def test_a_semaphore_that_a_warm_up_request_keeps_costs_the_warm_up(site) -> None:
    takes = "sem_acquire($lock);"
    modes.write(site, WARMED.replace("LOCK;", "sem_get((int) file_get_contents(__DIR__ . '/key'));", 1).replace("TAKES", takes))
    with modes.hayate(site, "on", "shared", workers=2, warmup="/", args=("--warmup", "/")) as server:
        assert count(server, site) == 60
        assert "a warm-up request holds a System V semaphore" in modes.application(server)["cold_boot"]


def test_two_shared_locks_on_one_file_are_two(site) -> None:
    """Who gives up one has the other."""
    modes.write(
        site,
        r"""
$a = fopen(__DIR__ . '/lock', 'r'); flock($a, LOCK_SH);
$b = fopen(__DIR__ . '/lock', 'r'); flock($b, LOCK_SH);
while (hayate_handle_request(function () use ($a, $b) {
    flock($_GET['gives'] === 'a' ? $a : $b, LOCK_UN);
    exec('flock -n ' . escapeshellarg(__DIR__ . '/lock') . ' true', $lines, $code);
    echo $code;
})) {
}
""",
    )
    with modes.hayate(site, "on", "shared", workers=1) as server:
        assert [modes.get(server, f"gives={which}") for which in "abab"] == ["1"] * 4
        assert wait_until(lambda: free(site))


def test_a_boot_that_is_declined_ends_under_its_locks(site) -> None:
    """What they guard its destructors write."""
    modes.write(
        site,
        r"""
$l = fopen(__DIR__ . '/lock', 'r'); flock($l, LOCK_EX);
$left = fopen(__DIR__ . '/counter', 'c');
class Looks { function __destruct() {
    exec('flock -n ' . escapeshellarg(__DIR__ . '/lock') . ' true', $lines, $code);
    file_put_contents(__DIR__ . '/saw', "$code\n", FILE_APPEND);
} }
$looks = new Looks();
while (hayate_handle_request(function () { echo 'true'; })) {
}
""",
    )
    modes.front_controller(site)
    site.chmod(0o777)
    with modes.hayate(site, "on", "shared", workers=1) as server:
        assert modes.get(server) == "true" and modes.application(server)["fallback"] is not None
        assert wait_until(lambda: (site / "saw").read_text() == "1\n1\n"), (site / "saw").read_text()


def test_a_warm_up_request_may_rotate_a_file_that_is_locked(site) -> None:
    modes.write(
        site,
        r"""
$spool = fopen(__DIR__ . '/spool', 'a'); flock($spool, LOCK_EX);
while (hayate_handle_request(function () use ($spool) {
    fwrite($spool, "line\n");
    rename(__DIR__ . '/spool', __DIR__ . '/of-' . uniqid());
    echo 'true';
})) {
}
""",
    )
    site.chmod(0o777)
    with modes.hayate(site, "on", "shared", workers=2, warmup="/") as server:
        assert [modes.get(server) for _ in range(20)] == ["true"] * 20
        assert modes.application(server)["cold_boot"] is None, modes.application(server)
        assert all(path.read_text() == "line\n" for path in site.glob("of-*"))


def test_what_each_worker_begins_with_keeps_no_lock(site) -> None:
    """The next worker would wait for it."""
    modes.write(
        site,
        r"""
$l = fopen(__DIR__ . '/lock', 'r');
hayate_on_worker_start(function () use ($l) { flock($l, LOCK_EX); });
while (hayate_handle_request(function () { echo 'true'; })) {
}
""",
    )
    with modes.hayate(site, "on", "shared", workers=2, args=("--connections", "warm")) as server:
        assert set(modes.many(server, 20)) == {"true"}
        assert wait_until(lambda: len(modes.application(server)["workers"]) == 2 and free(site))


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


def test_the_time_of_a_request_is_that_of_its_coming(site) -> None:
    """Not of when it had the lock."""
    script = "$l = fopen(__DIR__ . '/lock', 'r'); flock($l, LOCK_EX);\nwhile (hayate_handle_request(function () {\n"
    modes.write(site, script + "    echo microtime(true) - $_SERVER['REQUEST_TIME_FLOAT'];\n})) {\n}\n")
    with modes.hayate(site, "on", "shared", workers=1) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert float(modes.get(server)) < 1
        held = subprocess.Popen(["flock", str(site / "lock"), "sh", "-c", "echo locked; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert held.stdout.readline() == "locked\n"
        waits = pool.submit(modes.get, server)
        time.sleep(2)
        held.communicate("\n")
        assert float(waits.result()) > 1
