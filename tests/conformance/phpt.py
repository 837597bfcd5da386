"""A .phpt file: its sections, the request it asks for, and whether an output is the one it expects.

Promises to read a file and to judge an output as php-src's own run-tests.php does, byte for byte; what this engine
cannot run through a web server is named by `unsupported`, never guessed at. Knows nothing of servers.
"""

from __future__ import annotations

import gzip
import pathlib
import re
import tempfile
import zlib
from dataclasses import dataclass, field

SECTIONS = frozenset(
    """TEST EXPECT EXPECTF EXPECTREGEX EXPECTREGEX_EXTERNAL EXPECT_EXTERNAL EXPECTF_EXTERNAL EXPECTHEADERS
    POST POST_RAW GZIP_POST DEFLATE_POST PUT GET COOKIE ARGS FILE FILEEOF FILE_EXTERNAL REDIRECTTEST CAPTURE_STDIO
    STDIN CGI PHPDBG INI ENV EXTENSIONS SKIPIF XFAIL XLEAK CLEAN CREDITS DESCRIPTION CONFLICTS WHITESPACE_SENSITIVE
    FLAKY""".split()
)

#: Sections that ask for a command line or a terminal: no web server can give them.
COMMAND_LINE_SECTIONS = ("ARGS", "STDIN", "CAPTURE_STDIO", "PHPDBG", "REDIRECTTEST")

#: run-tests.php repeats a failed test that calls one of these once: it measures time or another moving thing.
FLAKY_CALL = re.compile(rb"\b(disk_free_space|hrtime|microtime|sleep|usleep)\(", re.IGNORECASE)
FLAKY_OUTPUT = re.compile(
    rb"\b(404: page not found|address already in use|connection refused|deadlock|mailbox already exists|timed out)\b",
    re.IGNORECASE,
)

EXPECTF_CODES = {
    b"%e": rb"/",
    b"%s": rb"[^\r\n]+",
    b"%S": rb"[^\r\n]*",
    b"%a": rb".+",
    b"%A": rb".*",
    b"%w": rb"\s*",
    b"%i": rb"[+-]?\d+",
    b"%d": rb"\d+",
    b"%x": rb"[0-9a-fA-F]+",
    b"%f": rb"[+-]?(?:\d+|(?=\.\d))(?:\.\d+)?(?:[Ee][+-]?\d+)?",
    b"%c": rb".",
    b"%0": rb"\x00",
}

#: What PHP's trim() removes.
WHITE = b" \t\n\r\0\x0b"


class BrokenTest(ValueError):
    """The file is not a valid .phpt; the text says why."""


def expectf_pattern(expected: bytes) -> bytes:
    """The regular expression an --EXPECTF-- text stands for: literal text, %-codes, and %r...%r as it is."""
    parts = expected.split(b"%r")
    if len(parts) % 2 == 0:
        # An opening %r without its end is literal text.
        last = parts.pop()
        parts[-1] += b"%r" + last
    pattern = b"".join(re.escape(part) if i % 2 == 0 else b"(" + part + b")" for i, part in enumerate(parts))
    return re.sub(rb"%[esSaAwidxfc0]", lambda code: EXPECTF_CODES[code[0]], pattern)


@dataclass(frozen=True)
class Request:
    """What the client sends. `headers` are (name, value); the query is as it stands in the request line."""

    method: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass
class Response:
    """What came back. `broken` says why an answer is missing or incomplete ("" when it is whole)."""

    status: int
    reason: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    broken: str = ""

    def header(self, name: str) -> str | None:
        """The last value of a header; `Status` is the status line, as CGI spells it."""
        if name.lower() == "status":
            return f"{self.status} {self.reason}".strip()
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        return values[-1] if values else None


class Phpt:
    """One .phpt file. `name` is its path below the root of the php-src tree."""

    def __init__(self, root: pathlib.Path, name: str) -> None:
        self.name = name
        self.path = root / name
        self.sections = self._read()
        self._resolve()

    def _read(self) -> dict[str, bytes]:
        # Lines end at LF alone, as PHP's fgets() has it; splitlines() would also break at a lone CR.
        lines = re.findall(rb"[^\n]*\n|[^\n]+\Z", self.path.read_bytes())
        if not lines or not lines[0].startswith(b"--TEST--"):
            raise BrokenTest("does not start with --TEST--")
        sections = {"TEST": b""}
        current, is_file, done = "TEST", False, False
        for line in lines[1:]:
            if head := re.match(rb"--([_A-Z]+)--", line):
                current = head[1].decode()
                if sections.get(current):
                    raise BrokenTest(f"section {current} stands twice")
                if current not in SECTIONS:
                    raise BrokenTest(f"unknown section {current}")
                sections[current] = b""
                is_file, done = current in ("FILE", "FILEEOF", "FILE_EXTERNAL"), False
                continue
            if not done:
                sections[current] += line
            if is_file and re.match(rb"===DONE===\s*$", line):
                done = True
        return sections

    def _resolve(self) -> None:
        sections = self.sections
        if "REDIRECTTEST" in sections:
            return
        if "FILEEOF" in sections:
            sections["FILE"] = sections.pop("FILEEOF").rstrip(b"\r\n")
        for key in ("FILE", "EXPECT", "EXPECTF", "EXPECTREGEX"):
            if (external := sections.get(key + "_EXTERNAL")) is not None:
                path = self.path.parent / external.replace(b"..", b"").strip(WHITE).decode()
                if not path.exists():
                    raise BrokenTest(f"{path.name} of {key}_EXTERNAL does not exist")
                sections[key] = path.read_bytes()
        if "FILE" not in sections and "PHPDBG" not in sections:
            raise BrokenTest("no section FILE")
        if sum(key in sections for key in ("EXPECT", "EXPECTF", "EXPECTREGEX")) != 1:
            raise BrokenTest("needs exactly one of EXPECT, EXPECTF, EXPECTREGEX")

    def text(self, section: str) -> str:
        """A section as text, "" when there is none; bytes beyond ASCII survive a round trip."""
        return self.sections.get(section, b"").decode("utf-8", "surrogateescape")

    def unsupported(self) -> str:
        """Why no web server can run this test, "" when one can."""
        for section in COMMAND_LINE_SECTIONS:
            if section in self.sections:
                return f"needs --{section}--"
        return ""

    def settings(self, section: str) -> list[tuple[str, str]]:
        """The `name=value` lines of INI or ENV; {PWD} is written {TREE}/directory, for the copy the test runs in."""
        here = "{TREE}/" + str(pathlib.PurePosixPath(self.name).parent)
        found = []
        for line in re.split(r"[\r\n]+", self.text(section).replace("{PWD}", here)):
            key, equals, value = line.partition("=")
            if equals and key.strip():
                found.append((key.strip(), value.strip()))
        return found

    def ini(self) -> dict[str, str]:
        """The test's own ini settings."""
        ini = {}
        for key, value in self.settings("INI"):
            value = re.sub(r"\{MAIL:(\S+)\}", r"tee \1 >/dev/null", value.replace("{TMP}", tempfile.gettempdir()))
            ini[key] = value
        return ini

    def env(self) -> dict[str, str]:
        """Environment variables of the server process; those that stand for request headers are in `request()`."""
        return {key: value for key, value in self.settings("ENV") if not key.startswith("HTTP_")}

    def request(self) -> Request:
        """The request this test is run by."""
        headers = [
            (key[len("HTTP_") :].replace("_", "-").title(), value)
            for key, value in self.settings("ENV")
            if key.startswith("HTTP_")
        ]
        if cookie := self.text("COOKIE").strip():
            # The file may spread it over lines, which no header can; PHP skips white space before a name.
            headers.append(("Cookie", re.sub(r"[\r\n]+", " ", cookie)))
        method, content_type, body = self._content()
        if method != "GET":
            headers.append(("Content-Length", str(len(body))))
        if content_type:
            headers.append(("Content-Type", content_type))
        if "GZIP_POST" in self.sections:
            headers.append(("Content-Encoding", "gzip"))
        if "DEFLATE_POST" in self.sections:
            headers.append(("Content-Encoding", "deflate"))
        query = self.sections.get("GET", b"").strip(WHITE)
        # As a browser sends it, for every backend alike: some of these may not stand in a request line.
        query = re.sub(rb"""[^\x21-\x7e]|["#<>']""", lambda byte: b"%%%02X" % byte[0][0], query)
        return Request(method, query.decode(), tuple(headers), body)

    def _content(self) -> tuple[str, str, bytes]:
        form = "application/x-www-form-urlencoded"
        sections = {key: value.strip(WHITE) for key, value in self.sections.items()}
        for section, method in (("POST_RAW", "POST"), ("PUT", "PUT")):
            if raw := sections.get(section):
                content_type, lines = "", []
                for line in raw.split(b"\n"):
                    found = re.match(rb"Content-Type:(.*)", line, re.IGNORECASE)
                    if found and not content_type:
                        content_type = found[1].replace(b"\r", b"").strip(WHITE).decode("latin-1")
                    else:
                        lines.append(line)
                return method, content_type, b"\n".join(lines)
        if post := sections.get("POST"):
            return "POST", form, post
        if post := sections.get("GZIP_POST"):
            return "POST", form, gzip.compress(post, 9)
        if post := sections.get("DEFLATE_POST"):
            return "POST", form, zlib.compress(post, 9)
        return "GET", "", b""

    def is_flaky(self, output: bytes) -> bool:
        """Whether run-tests.php would give a failed run a second chance."""
        return (
            "FLAKY" in self.sections
            or b"SKIP_PERF_SENSITIVE" in self.sections.get("SKIPIF", b"")
            or FLAKY_CALL.search(self.sections.get("FILE", b"")) is not None
            or FLAKY_OUTPUT.search(output) is not None
        )

    def expected(self) -> bytes:
        """The expected output as it stands in the file."""
        for section in ("EXPECT", "EXPECTF", "EXPECTREGEX"):
            if section in self.sections:
                return self.sections[section].strip(WHITE).replace(b"\r\n", b"\n")
        return b""

    def complaint(self, response: Response) -> str:
        """Why this response is not the expected one; "" when it is."""
        if wrong := self._wrong_header(response):
            return wrong
        output = response.body.strip(WHITE).replace(b"\r\n", b"\n")
        if not self._matches(output):
            return "output differs"
        return response.broken

    def _matches(self, output: bytes) -> bool:
        expected = self.expected()
        if "EXPECT" in self.sections:
            return output == expected
        pattern = expectf_pattern(expected) if "EXPECTF" in self.sections else expected
        try:
            return re.match(b"^" + pattern + b"$", output, re.DOTALL) is not None
        except re.error as error:
            raise BrokenTest(f"its pattern is not one of Python's: {error}") from None

    def _wrong_header(self, response: Response) -> str:
        for line in re.split(r"[\r\n]+", self.text("EXPECTHEADERS")):
            name, colon, value = line.partition(":")
            if not colon:
                continue
            name, value = name.strip(), value.strip()
            if (got := response.header(name)) != value:
                return f"header {name} is {got!r}, not {value!r}"
        return ""

