"""The matrix of misbehaviour: its application, the servers that run it, and one request of a kind.

`matrix/` holds the application in PHP: what it boots, what each request looks at before all else (the fingerprint), and
the kinds. php-fpm, which boots it for every request, says what the right answers are.
"""

from __future__ import annotations

import collections
import dataclasses
import http.server
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
import zlib
from collections.abc import Sequence

from lib import php_extensions
from lib.client import Response, encode, exchange
from lib.process import temporary_directory, wait_until
from lib.servers import ROOT, Hayate, NginxFpm

from . import modes

HERE = pathlib.Path(__file__).parent
USER = "www-data" if ROOT else None
#: When every file of the site was last modified: OPcache takes no file that is younger than two seconds.
MODIFIED = 1_700_000_000
INI = {
    "memory_limit": "64M",
    "display_errors": "0",
    "log_errors": "1",
    "max_execution_time": "30",
    "date.timezone": "UTC",
    "ffi.enable": "1",
    "apc.shm_size": "16M",
    "session.save_handler": "files",
    "sendmail_path": "/bin/false",
    "zlib.output_compression": "0",
}
#: Machine code from the second time that something runs. Xdebug, where it is loaded, would turn it off.
JIT = {"opcache.jit": "tracing", "opcache.jit_buffer_size": "64M", "xdebug.mode": "off"} | {
    f"opcache.jit_hot_{what}": "2" for what in ("func", "loop", "return", "side_exit")
}
#: With what settings the kinds are played.
ENGINES = {"interpreted": {}, "jit": JIT}
#: Kinds by theme, as the files name them.
KINDS: list[str] = [
    name
    for file in sorted((HERE / "matrix/kinds").glob("*.php"))
    for name in re.findall(r"(?m)^    '(\w+)' => static function", file.read_text())
]
#: Kinds whose request has a body: what PHP does with that comes before the fingerprint is taken.
WITH_BODY = ("large_upload", "upload_moved", "body_unread", "body_half_read")
#: Kinds whose client does not wait for the answer's end.
LEAVING = ("client_leaves", "client_leaves_ignored")
#: Kinds that take a second of processor time; each of the others takes milliseconds.
SLOW = ("timeout", "timeout_in_shutdown", "stack_overflow")
#: Kinds that end a php-fpm child later, after so many seconds: there nothing takes an alarm back.
LATE = {"ffi_timer": 3}
#: Kinds after which the worker is replaced, and as what that is counted in `hayate status`.
RETIRING = {
    "segfault": "signal_11",
    "stack_overflow": "signal_11",
    "abort": "signal_6",
    "kill_itself": "signal_9",
    "ffi_maps_over_boot_memory": "rewind_mappings",
    "ffi_protects_boot_memory": "rewind_mappings",
    "ffi_thread": "rewind_threads",
    "process_left_running": "rewind_child",
    "process_unread": "rewind_child",
    "priority": "rewind_process",
    "limits": "rewind_process",
    "process_group": "rewind_process",
}
#: Kinds whose answer differs from php-fpm's: status, body, witnesses.
DIFFERENT = {
    # Memory of the boot is not unmapped before the request's end; php-fpm crashes.
    "ffi_unmaps_the_boot": (200, b"0", "sd"),
}
#: What differs from process to process and says nothing about the request.
IGNORED_HEADERS = {"date", "server", "connection", "transfer-encoding", "content-length", "keep-alive", "x-fingerprint",
                   "x-memory", "x-pid", "x-request-id"}  # fmt: skip
BODY = b"0123456789abcdef" * 20_000
BOUNDARY = "hayate-matrix-boundary"


def _multipart() -> bytes:
    parts = [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="text"\r\n\r\n{"t" * 1000}\r\n'.encode()]
    for n in (1, 2):
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="f{n}"; filename="{n}.txt"\r\n\r\n'
        parts.append(head.encode() + BODY[: n * 100_000] + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


FORM = _multipart()


class Pong:
    """An HTTP server in this process that answers "pong" to anything; a context manager that gives its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802 (the library's name)
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"pong")

        def log_message(self, *arguments: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128

        def handle_error(self, *arguments: object) -> None:
            """Clients here leave when they like."""

    def __enter__(self) -> str:
        self._server = self.Server(("127.0.0.1", 0), self.Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class MatrixSite:
    """The application's files, and for each server a directory that its requests may write to."""

    def __init__(self) -> None:
        self.dir = temporary_directory("matrix")
        self.docroot = self.dir / "site"
        shutil.copytree(HERE / "matrix", self.docroot)
        for path in [self.docroot, *self.docroot.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.utime(path, (MODIFIED, MODIFIED))

    def scratch(self, name: str) -> pathlib.Path:
        """A directory for MATRIX_DIR."""
        path = self.dir / name
        for directory in (path, path / "fingerprints", path / "sessions", path / "tmp"):
            directory.mkdir()
            directory.chmod(0o777)
        return path

    @staticmethod
    def ini(scratch: pathlib.Path) -> dict[str, str]:
        tmp = str(scratch / "tmp")
        return INI | php_extensions.ini("gd") | {"session.save_path": str(scratch / "sessions"), "sys_temp_dir": tmp, "upload_tmp_dir": tmp}

    def reference(self, pong: str) -> Player:
        """nginx + php-fpm, which boots the application for each request; `pong` is what MATRIX_HTTP is to be."""
        scratch = self.scratch("reference")
        server = NginxFpm(
            self.docroot,
            ini={**self.ini(scratch), **modes.ONCE},
            fpm={"env[MATRIX_DIR]": f'"{scratch}"', "env[MATRIX_HTTP]": f'"{pong}"'},
            index="worker.php",
            workers=1,
        )
        return Player(server, scratch)

    def hayate(self, name: str, pong: str, *, workers: int = 1, args: Sequence[str] = (), ini: dict[str, str] | None = None) -> Player:
        """Hayate in worker mode; `name` is that of its directory, `ini` what it has besides."""
        scratch = self.scratch(name)
        env = ("--env", f"MATRIX_DIR={scratch}", "--env", f"MATRIX_HTTP={pong}", "--warmup", "off")
        server = Hayate(
            self.docroot,
            worker=self.docroot / "worker.php",
            workers=workers,
            ini=self.ini(scratch) | (ini or {}),
            user=USER,
            args=(*env, *args),
        )
        return Player(server, scratch)

    def remove(self) -> None:
        for scratch in self.dir.iterdir():
            # The one of Boot::$semaphore.
            key = hex(zlib.crc32(str(scratch).encode()) & 0x7FFFFFFF)
            subprocess.run(["ipcrm", "-S", key], check=False, capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)


#: An answer as far as it has to be the same everywhere: status, headers, body, whether it was whole.
Answer = tuple[int, tuple[tuple[str, str], ...], bytes, bool]


@dataclasses.dataclass(frozen=True)
class Played:
    """What came of one request. `answer` is None when the client left before its end."""

    id: str
    answer: Answer | None
    fingerprint: str | None
    pid: str | None
    memory: str | None


def request(kind: str, number: str) -> bytes:
    """The request of a kind, for a connection of its own."""
    headers = [("Host", "localhost"), ("Connection", "close"), ("Cookie", "visitor=" + number)]
    method, body = "GET", b""
    if kind in ("large_upload", "upload_moved"):
        method, body = "POST", FORM
        headers.append(("Content-Type", f"multipart/form-data; boundary={BOUNDARY}"))
    elif kind in WITH_BODY:
        method, body = "POST", BODY
        headers.append(("Content-Type", "application/octet-stream"))
    elif kind == "gzip_handler":
        headers.append(("Accept-Encoding", "gzip"))
    if body:
        headers.append(("Content-Length", str(len(body))))
    return encode(method, f"/?kind={kind}&id={number}", headers, body)


def comparable(response: Response) -> Answer:
    """The answer without what is a server's own or random."""
    headers = []
    for key, value in response.headers:
        # The reference does not compress, and so does not say that it would.
        if key.lower() not in IGNORED_HEADERS and (key.lower(), value) != ("vary", "Accept-Encoding"):
            headers.append((key.lower(), re.sub(r"(PHPSESSID|ANOTHER)=\w{20,}", r"\1=ID", value)))
    whole = response.complete and not response.rest
    if response.status == 502:
        return 502, (), b"", whole
    return response.status, tuple(sorted(headers)), response.body, whole


class Player:
    """A server of the matrix and its directory; a context manager like the server itself."""

    def __init__(self, server: NginxFpm | Hayate, scratch: pathlib.Path) -> None:
        self.server = server
        self.scratch = scratch
        self._numbers = itertools.count(1)

    def __enter__(self) -> Player:
        self.server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.__exit__(*exc)

    def new_id(self) -> str:
        """A number for a request; all have the same length, so that requests of a kind take the same memory."""
        return f"{next(self._numbers):08}"

    def play(self, kind: str, number: str | None = None, timeout: float = 60) -> Played:
        """One request of a kind."""
        number = number or self.new_id()
        address = ("127.0.0.1", self.server.port)
        abort_after = 1000 if kind in LEAVING else None
        response = exchange(address, request(kind, number), timeout=timeout, abort_after=abort_after)
        if response is None:
            return Played(number, None, None, None, None)
        header = response.header
        found = header("x-fingerprint"), header("x-pid"), header("x-memory")
        return Played(number, comparable(response), *found)

    def machine_code(self) -> bool:
        """Has the JIT compiled anything?"""
        response = exchange(("127.0.0.1", self.server.port), encode("GET", "/?jit", [("Host", "localhost"), ("Connection", "close")]))
        assert response is not None
        jit = json.loads(response.body)
        return jit["on"] and jit["buffer_free"] < jit["buffer_size"]

    def witnesses(self) -> dict[str, collections.Counter[str]]:
        """For each request's number, how often which of its witnesses wrote."""
        seen: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        file = self.scratch / "witness"
        for line in file.read_text().splitlines() if file.exists() else []:
            what, _, number = line.partition(" ")
            seen[number][what] += 1
        return seen

    def facts(self, fingerprint: str) -> dict:
        """The text behind a fingerprint."""
        return json.loads((self.scratch / "fingerprints" / fingerprint).read_text())

    def difference(self, one: str, other: str) -> dict[str, tuple]:
        """The facts in which two fingerprints differ."""
        a, b = self.facts(one), self.facts(other)
        return {key: (a.get(key), b.get(key)) for key in {*a, *b} if a.get(key) != b.get(key)}

    def witnesses_of(self, number: str, expected: collections.Counter[str]) -> collections.Counter[str]:
        """The witnesses of one request, once they are as expected."""
        wait_until(lambda: self.witnesses()[number] == expected)
        return self.witnesses()[number]


class Reference:
    """What php-fpm makes of each kind, asked once."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self._known: dict[str, tuple[Answer | None, collections.Counter[str]]] = {}
        self._plain = self.of("plain")

    def of(self, kind: str) -> tuple[Answer | None, collections.Counter[str]]:
        """The answer and the witnesses that Hayate has to give."""
        if kind not in self._known:
            played = self.player.play(kind)
            if kind in LATE:
                time.sleep(LATE[kind])
            # php-fpm's only child writes them before it takes the next request.
            after = self.player.play("plain")
            assert after.answer is not None and after.answer[0] == 200
            answer, witnesses = played.answer, self.player.witnesses()[played.id]
            if kind in DIFFERENT:
                status, body, wrote = DIFFERENT[kind]
                theirs, ours = (answer[0], answer[2], witnesses), (status, body, collections.Counter(wrote))
                assert theirs != ours, f"{kind} differs no more"
                answer, witnesses = (status, self._plain[0][1], body, True), ours[2]
            self._known[kind] = answer, witnesses
        return self._known[kind]
