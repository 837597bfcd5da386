"""What a request is doing that takes long: the log says it, and nothing is interrupted by it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import threading
import time

import pytest
import requests

from lib.births import Births
from lib.process import open_files, stop_process, temporary_directory, wait_until
from lib.servers import GENERIC_WORKER, REWIND_WORKER, Hayate

SHOP = r"""<?php
function checkout(string $how) { return (new Shop)->buy($how); }
class Shop {
    public function buy(string $how) { return array_map(fn ($how) => self::pay($how), [$how])[0]; }
    public static function pay(string $how) {
        return match ($how) {
            'sleep' => sleep(2),
            'usleep' => usleep(2000000) ?? 0,
            'lock' => flock(fopen($_GET['file'], 'r'), LOCK_EX) ? 0 : 1,
            'included' => include __DIR__ . "/odd\n\x1e\x1f name.php",
        };
    }
}
$before = microtime(true);
$left = checkout($_GET['how']);
echo json_encode(['left' => $left, 'took' => microtime(true) - $before]);
"""
#: As PHP writes them of an exception, but that a worker script which includes the page is in them as well.
CALLS = r"""    #0 {root}/shop\.php\(\d+\): {function}\(\)
    #1 {root}/shop\.php\(4\): Shop::pay\(\)
    #2 \[internal function\]: Shop->{{closure[^}}]*}}\(\)
    #3 {root}/shop\.php\(4\): array_map\(\)
    #4 {root}/shop\.php\(2\): Shop->buy\(\)
    #5 {root}/shop\.php\(15\): checkout\(\)
(?:    #\d+ .*\n)*?    #\d+ {{main}}"""
#: All of PHP that changes the stack of calls, as fast as it can.
BUSY = r"""<?php
if (!class_exists('Odd')) { // Worker mode declares them once.
function deep(int $n) { return $n === 0 ? 0 : deep($n - 1) + 1; }
function ours() { yield from [1, 2, 3]; yield from (function () { yield deep(20); })(); }
class Odd { function __call($name, $of) { throw new LogicException($name); } static function __callStatic($name, $of) { return deep(3); } }
}
$until = microtime(true) + 0.02;
while (microtime(true) < $until) {
    foreach (ours() as $n);
    $fiber = new Fiber(function () { foreach (ours() as $n) { Fiber::suspend($n); } return deep(30); });
    for ($fiber->start(); !$fiber->isTerminated(); $fiber->resume());
    try { (new Odd)->none(Odd::other()); } catch (LogicException) {}
    usort($list, fn ($a, $b) => eval('return $a <=> $b;')) ?: 0;
    call_user_func_array(str_repeat(...), ['x', 1000]);
}
echo 'ok';
"""
BUSY = BUSY.replace("$until =", "$list = range(9, 1);\n$until =", 1)
WAYS = {
    "classic": {},
    "state kept": {"worker": GENERIC_WORKER, "args": ["--rewind", "off"]},
    "rewound": {"worker": REWIND_WORKER},
}


@pytest.fixture
def start(hayate_command, tmp_path):
    """start(way, flags) → a server with one worker, unless it says another number."""
    (tmp_path / "shop.php").write_text(SHOP)
    (tmp_path / "odd\n\x1e\x1f name.php").write_text("<?php return sleep(2);")
    (tmp_path / "busy.php").write_text(BUSY)
    (tmp_path / "deep.php").write_text("<?php function deep($n) { return $n === 0 ? sleep(1) : deep($n - 1); } echo deep(5000);")
    (tmp_path / "spin.php").write_text("<?php set_time_limit(0); while (true);")
    (tmp_path / "ok.php").write_text("<?php echo 'ok';")
    (tmp_path / "pid.php").write_text("<?php echo getmypid();")
    servers: list[Hayate] = []

    def run(way: str, *flags: str, workers: int = 1) -> Hayate:
        more = dict(WAYS[way])
        args = [*more.pop("args", []), *flags]
        servers.append(Hayate(tmp_path, workers=workers, args=args, **more).start())
        return servers[-1]

    yield run
    for server in servers:
        server.stop()


def get(server: Hayate, path: str) -> requests.Response:
    return requests.get(server.url + path, timeout=300)


def records(server: Hayate) -> list[str]:
    """Of slow requests in the log, each with its lines."""
    return re.findall(r"slow request: .*(?:\n    .*)*", server.log())


def told(server: Hayate, number: int = 1) -> list[str]:
    assert wait_until(lambda: len(records(server)) >= number, 60), server.log_tail()
    return records(server)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["sleep", "usleep"])
def test_the_log_has_the_calls_and_the_request_does_not_notice(start, tmp_path, way, how) -> None:
    server = start(way, "--slow-request", "300ms")
    answer = get(server, f"/shop.php?how={how}").json()
    assert answer["left"] == 0 and answer["took"] >= 1.99, "a signal would have cut it short"
    assert get(server, "/ok.php").text == "ok"
    (record,) = told(server)
    assert re.match(rf"slow request: GET /shop\.php\?how={how} has run for \d+\.\d s so far \(worker 0, process \d+\)\n", record)
    assert re.search(CALLS.format(root=re.escape(str(tmp_path)), function=how), record), record
    assert 'request="' in record
    app = server.status()["apps"][0]
    assert app["slow_requests"] == 1 and app["restarts"] == {}
    assert "slow requests: 1" in server.run("status").stdout


def test_who_waits_in_the_kernel_is_seen_as_well(start, tmp_path) -> None:
    server = start("rewound", "--slow-request", "300ms")
    with (tmp_path / "lock").open("w") as file, concurrent.futures.ThreadPoolExecutor() as pool:
        fcntl.flock(file, fcntl.LOCK_EX)
        answer = pool.submit(get, server, f"/shop.php?how=lock&file={tmp_path}/lock")
        (record,) = told(server)
        fcntl.flock(file, fcntl.LOCK_UN)
        assert answer.result().json()["left"] == 0
    assert "shop.php(9): flock()" in record


def test_so_is_one_that_was_stopped(start) -> None:
    server = start("classic", "--slow-request", "3s")
    pid = int(get(server, "/pid.php").text)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(get, server, "/shop.php?how=sleep")
        # In clock_nanosleep, by its numbers on x86-64 and aarch64: before it has taken the request there is none to be slow.
        assert wait_until(lambda: pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("230", "115"))
        stop_process(pid)
        (record,) = told(server)
        os.kill(pid, signal.SIGCONT)
        assert answer.result().status_code == 200
    assert "sleep()" in record and f"process {pid})" in record


@pytest.mark.parametrize("way", WAYS)
def test_before_request_timeout_ends_a_request_the_log_says_what_it_did(start, way) -> None:
    server = start(way, "--request-timeout", "10s")
    assert get(server, "/spin.php").status_code == 504
    (record,) = told(server)
    assert re.search(r"has run for 9\.\d s so far .*, in .*/spin\.php\(1\)\n", record) and "{main}" in record, record
    assert wait_until(lambda: server.status()["apps"][0]["restarts"] == {"request_timeout": 1}, 10), server.log()


def test_where_nothing_is_slow_nothing_is_said(start) -> None:
    server = start("rewound")
    assert get(server, "/shop.php?how=sleep").json()["left"] == 0
    assert records(server) == [] and server.status()["apps"][0]["slow_requests"] == 0


def test_a_request_in_a_fork_is_named_without_its_calls(start) -> None:
    server = start("rewound", "--rewind", "fork", "--slow-request", "300ms")
    assert get(server, "/shop.php?how=sleep").json()["left"] == 0
    (record,) = told(server)
    assert "what it is doing is not known where each request runs in a fork" in record


def test_names_are_text_and_a_deep_stack_ends(start, tmp_path) -> None:
    server = start("classic", "--slow-request", "300ms")
    assert get(server, "/shop.php?how=included").json()["left"] == 0
    (record,) = told(server)
    assert "include(" in record and "odd??? name.php" in record and "{main}" in record
    assert get(server, "/deep.php").text == "0"
    deep = told(server, 2)[1]
    assert "#63 " in deep and "#64 …" in deep and "#65 " not in deep


@pytest.mark.parametrize("way", WAYS)
def test_calls_that_change_while_they_are_read_do_no_harm(start, way) -> None:
    server = start(way, "--slow-request", "1ms", workers=4)
    zygote = server.status()["apps"][0]["zygote"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(15):
            assert [answer.text for answer in pool.map(lambda _: get(server, "/busy.php"), range(16))] == ["ok"] * 16
    app = server.status()["apps"][0]
    assert app["slow_requests"] > 10 and app["zygote"] == zygote and app["restarts"] == {}
    for record in records(server):
        assert re.match(r"slow request: GET /busy\.php has run for 0\.\d s so far \(worker \d, process \d+\)", record), record
        assert all(re.match(r"    #\d+ |    .* app=", line) for line in record.split("\n")[1:]), record


def test_descriptors_end_with_their_workers_and_no_worker_has_those_of_others(start) -> None:
    server = start("rewound", "--slow-request", "300ms", workers=3)

    def names(pid: int) -> list[str]:
        return sorted(name for name, _ in open_files(pid))

    def workers() -> list[int]:
        return [worker["pid"] for worker in server.status()["apps"][0]["workers"]]

    def memories(pid: int) -> int:
        return sum(bool(re.fullmatch(r"/proc/(\d+/)?(self/)?mem", name)) for name in names(pid))

    zygote = server.status()["apps"][0]["zygote"]
    try:
        names(zygote)
    except PermissionError:
        pytest.skip("only root looks into processes that are not dumpable")
    assert wait_until(lambda: memories(zygote) == 3), names(zygote)
    before = len(names(zygote))
    for _ in range(3):
        old = workers()
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: len(set(workers()) - set(old)) == 3, 60)
    assert wait_until(lambda: memories(zygote) == 3 and len(names(zygote)) == before), names(zygote)
    # A worker closes its own just after the zygote has it.
    assert wait_until(lambda: [memories(pid) for pid in workers()] == [0, 0, 0])
    assert get(server, "/shop.php?how=sleep").json()["left"] == 0
    assert "sleep()" in told(server)[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root traces what is not dumpable")
@pytest.mark.parametrize("way", ["classic", "rewound"])
def test_no_worker_has_descriptors_of_others_while_they_could_be_taken_from_it(hayate_command, way) -> None:
    """Each worker is dumpable for moments at its beginning: who runs as the same user can trace it then, and has what it has."""
    root = temporary_directory("births")
    (root / "ok.php").write_text("<?php echo 'ok';")
    more = dict(WAYS[way])
    args = more.pop("args", [])
    try:
        with Hayate(root, workers=3, user="www-data", args=args, **more) as server:
            workers = [worker["pid"] for worker in server.status()["apps"][0]["workers"]]

            def memories(pid: int) -> set[str]:
                found = set()
                for name in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(FileNotFoundError):
                        found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
                return {name for name in found if re.fullmatch(r"/proc/(\d+|self)/mem", name)}

            with Births(server.status()["apps"][0]["zygote"]) as births, contextlib.closing(births.calls()) as calls:
                os.kill(workers[0], signal.SIGKILL)
                at_birth: set[str] | None = None
                exposed: set[str] = set()
                for step, pid in enumerate(calls):
                    now = memories(pid)
                    at_birth = now if at_birth is None else at_birth
                    # The kernel gives root what belongs to a process that is not dumpable.
                    if os.stat(f"/proc/{pid}/fd").st_uid != 0:
                        exposed |= now
                    if exposed and not now:
                        break
                    assert step < 5000, (at_birth, exposed)
            assert at_birth is not None and len(at_birth) == 2, "those that are to be closed"
            assert len(exposed) == 1 and not exposed & at_birth, (at_birth, exposed)
            assert get(server, "/ok.php").text == "ok"
    finally:
        shutil.rmtree(root)


def test_all_of_many_are_told_before_they_are_killed(hayate_command, tmp_path) -> None:
    """More than one sweep tells; those that have run longest come first, so that short ones do not hide one that hangs."""
    (tmp_path / "hang.php").write_text("<?php sleep(30);")
    many = 150
    with Hayate(tmp_path, workers=many, args=["--request-timeout", "1s"]) as server, contextlib.ExitStack() as stack:
        visitors = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 60)) for _ in range(many)]
        for visitor in visitors:  # all at once, as far as that goes
            visitor.sendall(b"GET /hang.php HTTP/1.1\r\nHost: a\r\n\r\n")
        assert {visitor.recv(12) for visitor in visitors} == {b"HTTP/1.1 504"}
        assert server.status()["apps"][0]["slow_requests"] == many
        assert wait_until(lambda: len(records(server)) == many), len(records(server))


def test_one_is_told_before_it_is_killed_though_the_zygote_is_late(hayate_command, tmp_path) -> None:
    """As it is on a busy machine. The log is where somebody learns which request it was, so it is worth a moment."""
    (tmp_path / "hang.php").write_text("<?php sleep(30);")
    with Hayate(tmp_path, workers=1, args=["--request-timeout", "1s"]) as server:
        zygote = server.status()["apps"][0]["zygote"]
        with socket.create_connection(("127.0.0.1", server.port), 60) as visitor:
            stop_process(zygote)
            visitor.sendall(b"GET /hang.php HTTP/1.1\r\nHost: a\r\n\r\n")
            assert wait_until(lambda: server.status()["apps"][0]["slow_requests"] == 1)
            time.sleep(0.5)  # past the timeout
            os.kill(zygote, signal.SIGCONT)
            assert visitor.recv(12) == b"HTTP/1.1 504"
        (record,) = told(server)
        assert "GET /hang.php has run for" in record and "hang.php(1): sleep()" in record


def test_one_is_killed_though_the_zygote_tells_nothing(hayate_command, tmp_path) -> None:
    (tmp_path / "hang.php").write_text("<?php sleep(30);")
    with Hayate(tmp_path, workers=1, args=["--request-timeout", "500ms"]) as server:
        zygote = server.status()["apps"][0]["zygote"]
        stop_process(zygote)
        try:
            assert get(server, "/hang.php").status_code == 504
        finally:
            os.kill(zygote, signal.SIGCONT)


#: What the request does that runs beyond its limit, and what it had for others. `mode`: of Hayate's ways to serve it.
ENDED = {
    "sleep": "sleep(60);",
    "computation": "while (true);",
    "lock of APCu": "apcu_entry('slow', static fn () => sleep(60));",
    "fiber": "(new Fiber(static fn () => sleep(60)))->start();",
}


@pytest.mark.parametrize("kind", ENDED)
@pytest.mark.parametrize("way", ["classic", "rewound", "kept"])
def test_php_ends_a_request_beyond_its_limit_and_gives_back_what_it_holds(tmp_path, way, kind) -> None:
    """Found by attack on 2026-11-27: killed in apcu_entry(), it left the lock to nobody, and all that asked APCu waited until the next reload."""
    over = tmp_path / "over"
    work = f"register_shutdown_function(static fn () => file_put_contents('{over}', error_get_last()['message'] ?? '')); {ENDED[kind]}"
    (tmp_path / "slow.php").write_text(f"<?php {work}")
    (tmp_path / "asks.php").write_text("<?php echo json_encode(apcu_fetch('other'));")
    (tmp_path / "worker.php").write_text(
        "<?php while (hayate_handle_request(function () { include __DIR__.'/'.basename($_SERVER['REQUEST_URI']); })) {}"
    )
    args = ["--request-timeout", "1s", "--warmup", "off"] if way != "classic" else ["--request-timeout", "1s"]
    worker = None if way == "classic" else tmp_path / "worker.php"
    extra = ["--rewind", "off"] if way == "kept" else []
    with Hayate(tmp_path, worker=worker, workers=2, args=[*args, *extra, "--ini", "apc.enabled=1"]) as server:
        assert get(server, "/asks.php").text == "false"
        assert get(server, "/slow.php").status_code == 504
        assert wait_until(over.exists, 5), server.log()
        assert over.read_text() in ("Maximum execution time of 1 second exceeded", "Maximum execution time of 2 seconds exceeded")
        answers = [get(server, "/asks.php") for _ in range(4)]
        assert {(answer.status_code, answer.text) for answer in answers} == {(200, "false")}
        assert wait_until(lambda: server.status()["apps"][0]["restarts"] == {"request_timeout": 1}, 10), server.log()


def test_a_request_beyond_its_limit_that_does_not_hear_of_it_is_killed(tmp_path) -> None:
    (tmp_path / "deaf.php").write_text("<?php set_time_limit(0); try { while (true); } finally { while (true); }")
    with Hayate(tmp_path, workers=1, args=["--request-timeout", "1s"]) as server:
        assert get(server, "/deaf.php").status_code == 504
        assert wait_until(lambda: server.status()["apps"][0]["restarts"] == {"request_timeout": 1}, 10), server.log()


#: Says that it begins, at once, and that it has ended.
WAITS = """<?php
echo 'begin ' . $_GET['id'];
flush();
for ($end = hrtime(true) + $_GET['us'] * 1000; hrtime(true) < $end;) {
    usleep(1000);
}
echo ' end ' . $_GET['id'];
"""


@pytest.mark.parametrize("way", [[], ["--worker", "worker.php", "--rewind", "on"], ["--worker", "worker.php", "--rewind", "fork"]], ids=["classic", "rewound", "fork"])
def test_the_end_of_one_request_is_no_end_of_the_next(tmp_path, way) -> None:
    """Found by attack: what ends a request that has run for too long ended the one that its worker had begun since, as a whole answer."""
    tmp_path.chmod(0o755)
    (tmp_path / "index.php").write_text(WAITS)
    (tmp_path / "worker.php").write_text("<?php\n$handler = static function (): void { include __DIR__.'/index.php'; };\nwhile (hayate_handle_request($handler)) {\n}\n")
    until = time.monotonic() + 6
    wrong: list[object] = []

    def visit(number: int) -> None:
        chance, i = random.Random(number), 0
        while time.monotonic() < until:
            i += 1
            # Half of them end as their time does, the others long before.
            near = chance.random() < 0.5
            us = int(chance.uniform(985_000, 1_040_000) if near else chance.uniform(50_000, 300_000))
            try:
                answer = requests.get(server.url, params={"id": f"{number}-{i}", "us": us}, timeout=60)
            except requests.exceptions.ChunkedEncodingError:
                continue  # cut, as it may be whose time is over
            if answer.status_code != 504 and (answer.status_code, answer.text) != (200, f"begin {number}-{i} end {number}-{i}"):
                wrong.append((near, us, answer.status_code, answer.text[:100]))

    with Hayate(tmp_path, workers=24, args=[*way, "--request-timeout", "1s", "--ini", "implicit_flush=1"]) as server:
        threads = [threading.Thread(target=visit, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
