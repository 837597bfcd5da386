"""What a script writes into the memory that it shares with the front harms its own application at most."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import random
import struct
import subprocess
import tempfile
import threading
import time

import pytest
import requests

from lib import site
from lib.process import wait_until
from lib.servers import REPOSITORY, Hayate

# Writes 8 bytes at places of the ring, as a bug in an extension would.
POKE = r"""<?php
foreach (file('/proc/self/maps') as $line) {
    if (str_contains($line, 'memfd:hayate ')) {
        [$from, $to] = array_map('hexdec', explode('-', strtok($line, ' ')));
        break;
    }
}
$address = FFI::new('uintptr_t');
foreach (explode(',', $_GET['at']) as $i => $at) {
    $address->cdata = $from + (int)$at % ($to - $from - 8);
    FFI::memcpy(FFI::cast('char *', $address), hex2bin(explode(',', $_GET['what'])[$i]), 8);
}
usleep((int)($_GET['stay'] ?? 0));
echo 'written';
"""
# Fills the eventfd by which workers wake the front, so that no write to it wakes anybody, and has further writes wait.
FILL = r"""<?php
foreach (scandir('/proc/self/fd') as $fd) {
    if (@readlink("/proc/self/fd/$fd") === 'anon_inode:[eventfd]') {
        break;
    }
}
$libc = FFI::cdef('ssize_t write(int, const void *, size_t); int fcntl(int, int, ...);', 'libc.so.6');
preg_match('/eventfd-count:\s*(\w+)/', file_get_contents("/proc/self/fdinfo/$fd"), $count);
$rest = FFI::new('uint64_t');
$rest->cdata = -2 - hexdec($count[1]);
$libc->write((int)$fd, FFI::addr($rest), 8);
$libc->fcntl((int)$fd, 4, 2);
echo preg_match('/eventfd-count:\s*f{15}e/', file_get_contents("/proc/self/fdinfo/$fd"));
"""
#: Where it hurts, as host/layout.h has it: the header's words, and behind it the cells.
PLACES = {
    "magic": "offsetof(struct hy_header, magic)",
    "slots": "offsetof(struct hy_header, slots)",
    "queue_offset": "offsetof(struct hy_header, queue_offset)",
    "queue_head": "offsetof(struct hy_header, queue_head)",
    "queue_tail": "offsetof(struct hy_header, queue_tail)",
    "sleepers": "offsetof(struct hy_header, sleepers)",
    "front_sleeping": "offsetof(struct hy_header, bells[0].sleeping)",
    "doorbells": "offsetof(struct hy_header, bells[0].doorbells)",
    "front_sleeping of the second thread": "offsetof(struct hy_header, bells[1].sleeping)",
    "first cell": "sizeof(struct hy_header)",
}
VALUES = [0, 1, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1]


@functools.cache
def offset(place: str) -> int:
    """Where in the memory one of PLACES is: the compiler says so."""
    program = f'#include <stdio.h>\n#include "layout.h"\nint main(void) {{ return !printf("%zu", (size_t)({PLACES[place]})); }}\n'
    with tempfile.TemporaryDirectory() as made:
        compiled = ["cc", "-x", "c", "-", "-include", "stddef.h", "-I", str(REPOSITORY / "host"), "-o", f"{made}/where"]
        subprocess.run(compiled, input=program.encode(), check=True)
        return int(subprocess.run([f"{made}/where"], capture_output=True, check=True).stdout)


@pytest.fixture(params=["classic", "worker"])
def server(request, hayate_command, tmp_path):
    root, other = site.make(tmp_path), site.make(tmp_path / "other")
    (root / "poke.php").write_text(POKE)
    (root / "fill.php").write_text(FILL)
    # One worker script for all paths: it includes what was asked for.
    (root / "worker.php").write_text("<?php while (hayate_handle_request(function () { include $_SERVER['SCRIPT_FILENAME']; })) { }\n")
    worker = 'worker = "worker.php"\nwarmup = []\n' if request.param == "worker" else ""
    config = f"""
drain_timeout = "5s"
[[app]]
{worker}name = "victim"
root = "{root}"
workers = "2"
ini = {{ "ffi.enable" = "1" }}
hosts = ["victim.test"]
request_timeout = "3s"
queue_timeout = "30s"
[[app]]
name = "other"
root = "{other}"
workers = "1"
hosts = ["other.test"]
"""
    with Hayate(config=config) as server:
        assert next(app for app in server.status()["apps"] if app["name"] == "victim")["mode"] == request.param
        yield server


def ask(server: Hayate, host: str, path: str, timeout: float = 60) -> requests.Response:
    return requests.get(server.url + path, headers={"Host": host}, timeout=timeout)


def poke(server: Hayate, writes: list[tuple[int, int]], stay: int = 0) -> int:
    """`stay`: so many microseconds the script runs on."""
    at = ",".join(str(place) for place, _ in writes)
    what = ",".join(struct.pack("=Q", value).hex() for _, value in writes)
    return ask(server, "victim.test", f"/poke.php?at={at}&what={what}&stay={stay}").status_code


class Watch(threading.Thread):
    """Asks the other application all the time; keeps what it did not answer, and how long the longest answer took."""

    def __init__(self, server: Hayate) -> None:
        super().__init__()
        self.server, self.over = server, threading.Event()
        self.failed: list[str] = []
        self.asked, self.longest = 0, 0.0

    def run(self) -> None:
        while not self.over.is_set():
            started = time.monotonic()
            try:
                answer = ask(self.server, "other.test", "/ok.php?x", 30)
                if (answer.status_code, answer.text) != (200, "ok x"):
                    self.failed.append(f"{answer.status_code} {answer.text[:80]}")
            except requests.RequestException as error:
                self.failed.append(repr(error))
            self.asked += 1
            self.longest = max(self.longest, time.monotonic() - started)

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()


def recovers(server: Hayate, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if ask(server, "victim.test", "/ok.php?y", 30).text == "ok y":
                return True
        except requests.RequestException:
            pass
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("place", PLACES)
def test_a9_5_a_stray_word_in_the_ring_costs_its_application_at_most(server, place) -> None:
    with Watch(server) as watch:
        for value in (0, 2**40, 2**64 - 1):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                others = [pool.submit(ask, server, "victim.test", "/sleep.php?ms=50") for _ in range(3)]
                poke(server, [(offset(place), value)])
                assert all(other.result().status_code in (200, 502, 503, 504) for other in others)
            if place == "queue_tail":
                # The front writes it anew for each request, so it was perhaps put right before anybody looked: now nobody asks until somebody has.
                poke(server, [(offset(place), value)], stay=500_000)
            assert recovers(server), server.log_tail()
    assert watch.failed == [] and watch.asked > 0
    if place in ("magic", "slots", "queue_offset", "queue_head", "queue_tail"):
        # Seen, and said: all its workers were ended and it booted with other memory.
        victim = next(app for app in server.status()["apps"] if app["name"] == "victim")
        assert victim["restarts"].get("memory", 0) >= 2, victim["restarts"]
        assert server.logged("cannot be trusted any more")
    assert server.process is not None and server.process.poll() is None


def test_a9_5_random_words_in_the_ring(server) -> None:
    seconds = float(os.environ.get("HAYATE_FUZZ_SECONDS", "4"))
    dice = random.Random(os.environ.get("HAYATE_FUZZ_SEED", "1"))
    end, rounds, codes = time.monotonic() + seconds, 0, []
    with Watch(server) as watch, concurrent.futures.ThreadPoolExecutor(3) as pool:
        while time.monotonic() < end:
            # Mostly where words are: the header, the cells, the workers, the first slots; now and then anywhere.
            writes = [
                (dice.choice([0, offset("first cell")]) + 8 * dice.randrange(dice.choice([96, 96, 400, 4000, 400000])), dice.choice([*VALUES, dice.randrange(2**64)]))
                for _ in range(dice.choice([1, 1, 2, 8]))
            ]
            others = [pool.submit(ask, server, "victim.test", "/ok.php?z") for _ in range(2)]
            codes.append(poke(server, writes))
            codes += [other.result().status_code for other in others]
            rounds += 1
        assert recovers(server), server.log_tail()
    assert set(codes) <= {200, 500, 502, 503, 504}, set(codes)
    assert watch.failed == [] and watch.asked > rounds // 10
    assert server.process is not None and server.process.poll() is None


def test_an_eventfd_that_is_full_and_blocks_stops_no_other_application(server) -> None:
    with Watch(server) as watch:
        filled = ask(server, "victim.test", "/fill.php").text
        asked = watch.asked
        time.sleep(2)
        assert wait_until(lambda: watch.asked > asked + 10), watch.asked
    assert filled == "1"
    assert watch.failed == [], watch.failed[:3]
    assert server.stop() == 0
