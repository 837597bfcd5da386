"""What libraries talk to, in the test's own process: HTTP, SMTP and UDP on loopback, each keeping what arrived."""

from __future__ import annotations

import http.server
import re
import socketserver
import threading
from collections import Counter
from urllib.parse import unquote_plus


class Sinks:
    """A context manager; `arrived` is what came, by name, each visitor counted."""

    def __init__(self) -> None:
        self.arrived: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()
        sinks = self

        class Http(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name, _, query = self.path.lstrip("/").partition("?")
                sinks.note(name, unquote_plus(query))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                pass

        class Smtp(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 sink\r\n")
                in_data = False
                while line := self.rfile.readline():
                    text = line.decode(errors="replace").rstrip("\r\n")
                    if in_data and text.startswith("Subject: "):
                        name, _, rest = text.removeprefix("Subject: ").partition(" ")
                        sinks.note(name, rest)
                    if in_data and text != ".":
                        continue
                    in_data = not in_data and text.upper() == "DATA"
                    self.wfile.write(b"354 go on\r\n" if in_data else b"250 ok\r\n")
                    if text.upper() == "QUIT":
                        return

        class Udp(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                if found := re.search(r"(\w+) (of .*)", self.request[0].decode(errors="replace")):
                    sinks.note(found[1], found[2])

        self._servers = {
            "HTTP": http.server.ThreadingHTTPServer(("127.0.0.1", 0), Http),
            "SMTP": socketserver.ThreadingTCPServer(("127.0.0.1", 0), Smtp),
            "UDP": socketserver.UDPServer(("127.0.0.1", 0), Udp),
        }
        for server in self._servers.values():
            server.daemon_threads = True
        #: Environment for the application: HTTP, SMTP, UDP are ports.
        self.env = {name: str(server.server_address[1]) for name, server in self._servers.items()}

    def note(self, name: str, text: str) -> None:
        if found := re.search(r"of (\w+)", text):
            with self._lock:
                self.arrived.setdefault(name, Counter())[found[1]] += 1

    def forget(self) -> None:
        with self._lock:
            self.arrived = {}

    def __enter__(self) -> Sinks:
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()
