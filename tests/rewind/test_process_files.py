"""What a request tells the kernel of its process, by prctl() or by writing to /proc: the next request does not see it."""

from __future__ import annotations

import json

import pytest

from . import modes

SCRIPT = r"""
$libc = FFI::cdef('
    extern const unsigned char zend_tolower_map[256];
    int prctl(int, unsigned long, unsigned long, unsigned long, unsigned long);
    int open(const char *, int, ...); long write(int, const char *, size_t); int close(int);
    void *fopen(const char *, const char *); int fputs(const char *, void *); int fclose(void *);
    long pwrite(int, const char *, size_t, long);
    unsigned long pthread_self(); int pthread_setname_np(unsigned long, const char *);
');
$state = static function () use ($libc): array {
    $read = static fn (string $name) => trim((string) @file_get_contents("/proc/self/$name"));
    return [
        $read('comm'), $read('oom_score_adj'), $read('coredump_filter'), $libc->prctl(30, 0, 0, 0, 0),
        $libc->zend_tolower_map[65],
    ];
};
$name = $libc->new('char[8]');
FFI::memcpy($name, 'changed', 7);
$pointer = FFI::cast('uintptr_t', FFI::addr($name))->cdata;
$table = FFI::cast('uintptr_t', FFI::addr($libc->zend_tolower_map))->cdata;
$open = static function (string $path, string $text, int $at = 0) use ($libc) {
    $fd = $libc->open($path, 2);
    if ($fd >= 0) {
        $at ? $libc->pwrite($fd, $text, strlen($text), $at) : $libc->write($fd, $text, strlen($text));
        $libc->close($fd);
    }
};
$stdio = static function (string $path, string $text) use ($libc) {
    $file = $libc->fopen($path, 'w');
    if ($file !== null) {
        $libc->fputs($text, $file);
        $libc->fclose($file);
    }
};
while (hayate_handle_request(function () use ($libc, $state, $pointer, $table, $open, $stdio) {
    match ($_GET['do'] ?? '') {
        'prctl name' => $libc->prctl(15, $pointer, 0, 0, 0),
        'thread name' => $libc->pthread_setname_np($libc->pthread_self(), 'changed'),
        'prctl slack' => $libc->prctl(29, 123456, 0, 0, 0),
        'comm' => @file_put_contents('/proc/self/comm', 'changed'),
        'comm of the task' => @file_put_contents('/proc/self/task/'.getmypid().'/comm', 'changed'),
        'comm by a link' => @file_put_contents(__DIR__.'/link/comm', 'changed'),
        'slack file' => @file_put_contents('/proc/self/timerslack_ns', '77777'),
        'oom' => @file_put_contents('/proc/self/oom_score_adj', '500'),
        'coredump' => @file_put_contents('/proc/self/coredump_filter', '0x7f'),
        'open' => $open('/proc/thread-self/comm', 'changed'),
        'stdio' => $stdio('//proc/self/comm', 'changed'),
        'memory' => $open('/proc/self/mem', 'X', $table + 65),
        '' => null,
    };
    echo json_encode($state());
})) {
}
"""
PUT_BACK = ["prctl name", "thread name", "prctl slack"]
REPLACED = [
    "comm", "comm of the task", "comm by a link", "slack file", "oom", "coredump", "open", "stdio", "memory",
]  # fmt: skip


@pytest.mark.parametrize("user", [None, "www-data"])
@modes.each_mode
def test_what_a_request_tells_the_kernel_of_its_process_ends_with_it(directory, rewind, boot, user) -> None:
    """Root may write to all of these; workers of another user may write to few."""
    modes.write(directory, SCRIPT)
    (directory / "link").symlink_to("/proc/self")
    with modes.hayate(directory, rewind, boot, workers=1, user=user) as server:
        before = modes.get(server)
        seen = {}
        for do in PUT_BACK + REPLACED:
            seen[do] = json.loads(modes.get(server, f"do={do}"))
            assert modes.get(server) == before, do
            assert modes.get(server) == before, do
        restarts = modes.application(server)["restarts"]
    assert all(state != json.loads(before) for do, state in seen.items() if do in PUT_BACK), seen
    allowed = {"rewind_process"} if rewind == "on" else set()
    assert set(restarts) == allowed if user is None else set(restarts) <= allowed, restarts


@pytest.mark.parametrize("user", [None, "www-data"])
def test_a_log_that_is_a_file_of_proc_costs_no_worker(directory, user) -> None:
    """/proc/self/fd/2 and /dev/stderr name what is open, not a file of /proc."""
    modes.write(directory, "while (hayate_handle_request(function () {"
        "foreach (['/proc/self/fd/2', '/dev/stderr', 'php://stderr'] as $log) { @file_put_contents($log, \"line\\n\"); }"
        "echo 'done'; })) { }")  # fmt: skip
    with modes.hayate(directory, "on", "shared", workers=1, user=user) as server:
        assert {modes.get(server) for _ in range(10)} == {"done"}
        assert modes.application(server)["restarts"] == {}
        assert server.logged("line")
