"""max_execution_time in worker mode: one timer for many requests, and each request has its own limit all the same.

Times are processor time as the kernel counts it, so that a busy machine does not disturb them: but for its timers, which count whole ticks of
the clock for whoever runs at that moment, while getrusage() measures. Among many processes that want the processor somebody has used 3.5 s when
his timer of one second ends. So a request whose limit is to end it goes on until it is ended, and nothing is said of how soon that is.
"""

from __future__ import annotations

import pytest
import requests

from lib.process import wait_until
from lib.servers import Hayate

WORKER = r"""<?php
function used(): float { $u = getrusage(); return $u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec'] + ($u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec']) / 1e6; }
function libc(): FFI {
    return FFI::cdef('int sigprocmask(int, void *, void *); long syscall(long, ...); int sigignore(int); int sigaction(int, void *, void *);
        int setitimer(int, void *, void *);', 'libc.so.6');
}
/* A system call by an instruction in memory of one's own: no function of libc's is called for it. */
function code(): FFI\CData {
    // mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; mov r10, r8; syscall; ret
    $bytes = "\x48\x89\xf8\x48\x89\xf7\x48\x89\xd6\x48\x89\xca\x4d\x89\xc2\x0f\x05\xc3";
    // Anonymous memory (0x22) that can be read, written and run (7); from whoever has it: no library is named.
    static $code;
    $code ??= FFI::cdef('unsigned char *mmap(void *, size_t, int, int, int, long); typedef long (*call)(long, long, void *, void *, long);');
    $memory = $code->mmap(null, 4096, 7, 0x22, -1, 0);
    foreach (str_split($bytes) as $i => $byte) { $memory[$i] = ord($byte); }
    return $code->cast('call', $memory);
}
$handler = static function (): void {
    $from = used();
    $eight = isset($_GET['foreign']) ? FFI::new('long[32]') : null;
    match ($_GET['foreign'] ?? '') {
        '' => 0,
        // SIGPROF is 27, SIG_IGN 1
        'mask' => [$eight[0] = 1 << 26, libc()->sigprocmask(0, FFI::addr($eight), null)],
        'mask_by_number' => [$eight[0] = 1 << 26, libc()->syscall(14, 0, FFI::addr($eight), null, 8)],
        'handler' => [$eight[0] = 1, libc()->sigaction(27, FFI::addr($eight), null)],
        'handler_by_number' => [$eight[0] = 1, libc()->syscall(13, 27, FFI::addr($eight), null, 8)],
        'ignore' => libc()->sigignore(27),
        'timer' => libc()->setitimer(2, FFI::addr($eight), null),
        'timer_by_number' => libc()->syscall(38, 2, FFI::addr($eight), null),
        'mask_by_code' => [$eight[0] = 1 << 26, (code())(14, 0, FFI::addr($eight), null, 8)],
        'handler_by_code' => [$eight[0] = 1, (code())(13, 27, FFI::addr($eight), null, 8)],
        'timer_by_code' => (code())(38, 2, FFI::addr($eight), null, 0),
    };
    if (isset($_GET['limit'])) { set_time_limit((int) $_GET['limit']); }
    if (isset($_GET['ini'])) { ini_set('max_execution_time', $_GET['ini']); }
    register_shutdown_function(static function () use ($from): void {
        echo connection_status() & CONNECTION_TIMEOUT ? 'timed out ' : 'ended ', round(used() - $from, 3);
    });
    if (isset($_GET['internal'])) { hash_pbkdf2('sha512', 'x', 'y', 2000000000); }
    while (used() - $from < (float) $_GET['burn']) { /* busy */ }
};
while (hayate_handle_request($handler)) { /* until the server ends it */ }
"""


@pytest.fixture(params=["off", "on", "fork"])
def ask(request, hayate_command, tmp_path):
    root = tmp_path / "site"
    root.mkdir()
    (root / "worker.php").write_text(WORKER)
    (root / "index.php").write_text("<?php echo 'never';")
    for path in (tmp_path, root, *root.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    ini = {"max_execution_time": "1", "hard_timeout": "1", "display_errors": "0", "ffi.enable": "1"}
    # Among processes of a higher priority it may be minutes until a second of the processor's time has come together.
    args = ["--rewind", request.param, "--warmup", "off", "--front-controller", "index.php", "--request-timeout", "15m"]
    with Hayate(root, workers=1, worker=root / "worker.php", ini=ini, args=args) as server:

        def ask(query: str) -> tuple[int, str, float]:
            answer = requests.get(server.url + "/?" + query, timeout=900)
            said, _, used = answer.text.rpartition(" ")
            return (answer.status_code, said, float(used)) if answer.status_code != 502 else (502, "", 0.0)

        ask.server, ask.rewind = server, request.param
        yield ask


def test_a_request_ends_after_its_limit_and_not_before(ask) -> None:
    assert ask("burn=0.05")[1] == "ended"
    status, said, used = ask("burn=20")
    assert (status, said) == (500, "timed out") and used >= 0.5, used


def test_requests_do_not_add_up(ask) -> None:
    """Each of them takes a good part of the limit, all together more than it."""
    for _ in range(4):
        status, said, used = ask("burn=0.5")
        assert (status, said) == (200, "ended") and used >= 0.5


def test_a_limit_of_the_requests_own_is_its_own(ask) -> None:
    assert ask("limit=0&burn=1.2")[:2] == (200, "ended")
    status, said, used = ask("burn=20")
    assert (status, said) == (500, "timed out") and used >= 0.5, used
    assert ask("limit=3&burn=1.2")[:2] == (200, "ended")
    assert ask("ini=30&burn=1.2")[:2] == (200, "ended")
    assert ask("burn=20")[:2] == (500, "timed out")


def test_nobody_takes_the_limit_from_those_who_come_later(ask) -> None:
    """As under php-fpm, which sets timer, handler and mask for each request. FFI can change all three, seen and unseen."""
    by_libc = ["mask", "mask_by_number", "handler", "handler_by_number", "ignore", "timer", "timer_by_number"]
    unseen = ["mask_by_code", "handler_by_code", "timer_by_code"]
    # A forked process has nobody after it: one shows that. Where nothing is rewound, nobody looks at how it was changed.
    kinds = {"on": [*by_libc, *unseen], "off": unseen, "fork": ["timer_by_code"]}
    for what in kinds[ask.rewind]:
        assert ask(f"foreign={what}&burn=0")[:2] == (200, "ended"), what
        status, said, used = ask("burn=20")
        assert (status, said) == (500, "timed out") and used >= 0.5, (what, used)


def test_an_internal_function_is_ended_with_its_process(ask) -> None:
    """PHP's hard_timeout: the worker ends, its visitor hears of it, the next one is served."""
    assert ask("internal=1&burn=0")[0] == 502
    assert wait_until(lambda: ask("burn=0")[:2] == (200, "ended"))
    assert ask.server.logged("Maximum execution time of 1+1 seconds exceeded")
