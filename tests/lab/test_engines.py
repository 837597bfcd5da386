"""The engines and workloads of the lab: all are there, and those that need no more than Debian answer rightly."""

from __future__ import annotations

import json
import pathlib
import re
import struct
import subprocess
import zlib

from laboratory import REPOSITORY, SHORT, Laboratory

from lib.servers import PHP

#: What Debian suffices for, with each way to get at an application: a script for each request, a worker, a handler.
DEBIAN = ["php-fpm", "apache-mod-php", "php-s", "hayate-classic", "hayate-worker", "hayate-rewind", "hayate-recognised",
          "fast-processor", "sockets-select", "sockets-prefork"]
EXPECTED = {
    *DEBIAN, "amp", "fast-processor-alone", "frankenphp-classic", "frankenphp-worker", "go-net-http",
    "hayate-classic-tls", "hayate-rewind-tls", "hayate-worker-tls", "php-fpm-tls",
    "nginx-return-200", "nginx-return-200-tls", "nginx-static", "nginx-unit", "node", "node-cluster", "octane-swoole", "openswoole-base",
    "openswoole-process", "php-fpm-80", "php-pm", "react", "react-reboot", "revolt", "roadrunner", "roadrunner-reboot",
    "sockets-blocking", "sockets-nonblocking", "swoole-base", "swoole-process",
}


def check(lab: Laboratory, engines: list[str], workloads: list[str]) -> None:
    """Starts each engine on each workload and has its answers checked."""
    output = lab.run("engines", "--try", *engines, "-w", ",".join(workloads), "--workers", "2", "--json")
    rows = json.JSONDecoder().raw_decode(output)[0]
    for row in rows:
        assert all(one["ok"] for one in row["tried"]), row
    tried = {(row["name"], one["workload"]) for row in rows for one in row["tried"]}
    assert tried == {(engine, workload) for engine in engines for workload in workloads}


def test_every_engine_is_described(lab: Laboratory) -> None:
    engines = {engine["name"]: engine for engine in json.loads(lab.run("engines", "--json"))}
    assert set(engines) == EXPECTED
    for engine in engines.values():
        assert engine["title"] and engine["about"] and engine["install"] and engine["workloads"], engine
    documented = (REPOSITORY / "docs" / "engines.md").read_text()
    assert not [name for name in EXPECTED if f"`{name}`" not in documented]
    # Apache is not among the packages that the tests install.
    assert {name for name in DEBIAN if not engines[name]["ready"]} <= {"apache-mod-php"}


def test_engines_answer_rightly(lab: Laboratory) -> None:
    rows = json.loads(lab.run("engines", *DEBIAN, "--json"))
    check(lab, [row["name"] for row in rows if row["ready"] and "status" in row["workloads"]], ["status", "info"])


def test_workloads_answer_rightly(lab: Laboratory) -> None:
    workloads = ["users", "users-sqlite-eloquent", "includes-methods-10000", "blog-sqlite"]
    check(lab, ["php-fpm", "hayate-rewind"], workloads)


def test_worker_scripts_let_go_of_the_database_after_warm_up(lab: Laboratory) -> None:
    """Else Hayate boots again without warm-up requests, and each request is the first that needs anything."""
    lab.engine("careful", """
base = "hayate-rewind"
[[proof]]
title = "the snapshot holds what warm-up requests prepared"
command = ["{{ hayate }}", "status", "--json", "--control", "{{ dir }}/control.sock"]
pattern = '"cold_boot": null'
""")
    lab.run("run", "users", "users-laravel", "-e", "careful", "-r", "1", "-c", "2", "-d", "300ms", *SHORT)


def test_projects_need_no_worker_script(lab: Laboratory) -> None:
    check(lab, ["hayate-recognised", "hayate-worker"], ["info", "page", "status-laravel"])


def test_names_of_the_teaching_servers_are_not_those_of_laravel(lab: Laboratory) -> None:
    """Its error page calls a global function response(); one of the checks asks for such a page."""
    check(lab, ["sockets-prefork"], ["status-laravel"])


def test_each_connection_is_a_visitor(lab: Laboratory) -> None:
    """The page of the workload counts visits in a session: with cookies there are as many sessions as connections."""
    workload = lab.data / "workloads" / "page" / "workload.toml"
    sessions = lab.data / "sessions"
    sessions.mkdir(mode=0o777)
    sessions.chmod(0o777)
    workload.write_text(workload.read_text().replace("{{ data }}/page/var/sessions\"\n\n", f"{sessions}\"\n\n"))
    lab.run("run", "page", "-e", "hayate-recognised", "-r", "1", "-c", "3", "--requests", "90", "--warm-up", "0s",
            "--workers", "2", "--json", "results.json")
    (measurement,) = lab.results()["parts"][0]["subjects"][0]["measurements"]
    assert measurement["load"]["total"]["ok"] == 90
    counts = [re.search(r'"visits";i:(\d+)', file.read_text()) for file in sessions.iterdir()]
    # Checks and warm-up requests make sessions as well, for a visit each.
    often = [int(count[1]) for count in counts if count and count[1] != "1"]
    assert len(often) == 3 and sum(often) == 90


class RoadRunner:
    """RoadRunner's side of its worker protocol, over the pipes of a worker process."""

    PROTOBUF, CONTROL = 0x80, 0x01

    def __init__(self, handler: pathlib.Path, *arguments: str) -> None:
        worker = REPOSITORY / "lab" / "engines" / "adapters" / "roadrunner" / "worker.php"
        command = [PHP, "-n", worker, handler, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, flags: int, payload: bytes, *options: int) -> None:
        head = struct.pack("<BBI", 1 << 4 | 3 + len(options), flags, len(payload))
        head += struct.pack("<IBB", zlib.crc32(head), 0, 0)
        assert self.process.stdin
        self.process.stdin.write(head + struct.pack(f"<{len(options)}I", *options) + payload)
        self.process.stdin.flush()

    def receive(self) -> tuple[int, bytes, bytes]:
        """Flags, context and body of the next frame."""
        assert self.process.stdout
        head = self.process.stdout.read(12)
        words, flags, length, checksum = struct.unpack("<BBII", head[:10])
        assert words >> 4 == 1 and checksum == zlib.crc32(head[:6])
        options = struct.unpack(f"<{(words & 15) - 3}I", self.process.stdout.read(4 * ((words & 15) - 3)))
        payload = self.process.stdout.read(length)
        split = options[0] if options else 0
        return flags, payload[:split], payload[split:]


def field(number: int, value: bytes) -> bytes:
    """A field of a Protocol Buffers message; values here are shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


def test_the_roadrunner_worker_speaks_its_protocol(tmp_path: pathlib.Path) -> None:
    handler = tmp_path / "handler.php"
    handler.write_text("""<?php
        $boots = 0;
        return static function () use (&$boots) {
            ++$boots;
            return static fn (string $target): array => match ($target) {
                '/broken' => throw new Exception('broken'),
                default => [201, ['X-Boots' => (string) $boots], $target],
            };
        };""")
    for arguments, boots in (((), (b"1", b"1")), (("reboot",), (b"1", b"2"))):
        server = RoadRunner(handler, *arguments)
        server.send(RoadRunner.CONTROL, b'{"pid":0}')
        flags, _, body = server.receive()
        assert flags == RoadRunner.CONTROL and json.loads(body) == {"pid": server.process.pid}
        for count in boots:
            # The method, the URI, a header (an entry of a map), the query.
            request = field(3, b"GET") + field(4, b"http://localhost/a%20b?x=1")
            request += field(5, field(1, b"Accept") + field(2, field(1, b"*/*"))) + field(7, b"x=1")
            server.send(RoadRunner.PROTOBUF, request + b"ignored", len(request))
            flags, context, body = server.receive()
            assert flags == RoadRunner.PROTOBUF and body == b"/a%20b?x=1"
            assert context == b"\x08\xc9\x01" + field(2, field(1, b"X-Boots") + field(2, field(1, count)))
        request = field(4, b"http://localhost/broken")
        server.send(RoadRunner.PROTOBUF, request, len(request))
        flags, _, body = server.receive()
        assert flags == 0x40 and b"broken" in body
        server.send(RoadRunner.CONTROL, b'{"stop":true}')
        assert server.process.wait(10) == 0
