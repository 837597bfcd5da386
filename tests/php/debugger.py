"""The other end of Xdebug: a debugger of one session, as far as tests need it (DBGp, https://xdebug.org/docs/dbgp)."""

from __future__ import annotations

import base64
import socket
import xml.etree.ElementTree as ElementTree

from lib.process import PATIENCE

SPACE = "{urn:debugger_protocol_v1}"


class Session:
    """One connection of Xdebug's. `script` is what it says it begins with."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(30 * PATIENCE)
        self._file = connection.makefile("rwb")
        self._connection = connection
        self._number = 0
        init = self._receive()
        assert init.tag == f"{SPACE}init", init.tag
        self.script = init.get("fileuri", "")

    def _receive(self) -> ElementTree.Element:
        length = b""
        while (byte := self._file.read(1)) != b"\0":
            if not byte:
                raise EOFError("Xdebug has gone")
            length += byte
        packet = self._file.read(int(length) + 1)
        return ElementTree.fromstring(packet[:-1])

    def say(self, command: str, arguments: str = "") -> ElementTree.Element:
        """Sends a command and returns its response; errors are failures."""
        self._number += 1
        self._file.write(f"{command} -i {self._number} {arguments}".rstrip().encode() + b"\0")
        self._file.flush()
        while True:
            answer = self._receive()
            if answer.get("transaction_id") == str(self._number):
                assert answer.find(f"{SPACE}error") is None, ElementTree.tostring(answer)
                return answer

    def go(self, command: str) -> tuple[str, int | None]:
        """`run`, `step_over` and the like: the status, and in which line it has stopped."""
        answer = self.say(command)
        message = answer.find("{*}message")
        return answer.get("status", ""), int(message.get("lineno", "0")) if message is not None else None

    def finish(self) -> str:
        """Lets it run to its end: "stopping" where the script ends, "" where the connection ends with the request."""
        try:
            return self.go("run")[0]
        except EOFError:
            return ""

    def value(self, name: str) -> str:
        """Of a variable where it has stopped, as text."""
        (found,) = self.say("property_get", f"-n {name}").findall(f"{SPACE}property")
        text = found.text or ""
        return base64.b64decode(text).decode() if found.get("encoding") == "base64" else text

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._connection.close()
