"""The words case definitions are written in: requests, parts of forms, cases, and what may vary between two runs.

A case is one script and the requests made to it, in order. `cases/<theme>/cases.py` lists those of a theme beside its
scripts, for example

    Case("location", get(), get("?code=301"), doc="a Location header makes the status 302")

requests /<theme>/location.php and /<theme>/location.php?code=301.
"""

from __future__ import annotations

import dataclasses
import json as json_module
from collections.abc import Sequence
from typing import Any

from lib import client

#: Both servers believe to be this site. Its port is not theirs: a port in an answer came from the Host header.
HOST = "parity.test"
BOUNDARY = "----parity-boundary-7MA4YWxk"

Headers = Sequence[tuple[str, str | bytes]]
Replacement = tuple[bytes, bytes]

# What differs from run to run whatever the server: (regular expression, replacement), for bodies and header values.
SESSION_ID: Replacement = (rb"(?<![0-9a-z])[0-9a-v]{26,32}(?![0-9a-z])", b"<session id>")
#: PHP 8.5 draws more letters.
UPLOAD_NAME: Replacement = (rb"php(?:[0-9A-Za-z]{6}|[0-9A-Za-z]{19,22})(?![0-9A-Za-z])", b"<upload name>")
HTTP_DATE: Replacement = (rb"[A-Z][a-z]{2}, \d\d[ -][A-Z][a-z]{2}[ -]\d{4} \d\d:\d\d:\d\d GMT", b"<date>")
MAX_AGE: Replacement = (rb"Max-Age=\d+", b"Max-Age=<seconds>")
CLIENT_PORT: Replacement = (rb"(REMOTE_PORT\W+)\d+", rb"\1<client port>")
SERVER_PORT: Replacement = (rb"((?:SERVER_PORT|parity\.test)\W+)\d{4,5}", rb"\1<server port>")
TIMESTAMP: Replacement = (rb"\b1[78]\d{8}(\.\d+)?\b", b"<time>")


@dataclasses.dataclass(frozen=True)
class Request:
    """One request of a case; what it expects beyond being answered alike is in the last fields."""

    method: str
    where: str
    data: bytes | None
    headers: Headers
    body: bytes
    version: str
    host: str | None
    at: str | bytes | None
    wait: float
    abort_after: int | None
    #: The body is compared, and also that its first byte came well before its end.
    streams: bool
    #: The answer has to be complete within so many seconds.
    within: float | None
    #: A regular expression the server's log has to match after this request.
    logged: str | None
    #: Send the cookies that earlier answers of the case set.
    jar: bool
    label: str

    def target(self, script: str) -> str | bytes:
        """The request target, given the URL path of the case's script."""
        return self.at if self.at is not None else script + self.where

    def encode(self, script: str, cookies: dict[str, str]) -> bytes:
        """The bytes to send."""
        if self.data is not None:
            return self.data
        headers: list[tuple[str, str | bytes]] = []
        if self.host is not None:
            headers.append(("Host", self.host))
        headers.append(("Connection", "close"))
        if self.jar and cookies:
            headers.append(("Cookie", "; ".join(f"{name}={value}" for name, value in cookies.items())))
        headers += self.headers
        return client.encode(self.method, self.target(script), headers, self.body, self.version)


def request(
    method: str,
    where: str = "",
    *,
    headers: Headers = (),
    body: bytes | str | None = None,
    type: str | None = None,
    form: str | None = None,
    json: Any = None,
    parts: Sequence[bytes] | None = None,
    chunks: Sequence[bytes] | None = None,
    cookie: str | None = None,
    version: str = "HTTP/1.1",
    host: str | None = HOST,
    at: str | bytes | None = None,
    wait: float = 0.0,
    abort_after: int | None = None,
    streams: bool = False,
    within: float | None = None,
    logged: str | None = None,
    jar: bool = False,
    label: str | None = None,
) -> Request:
    """A request. `where` is appended to the script's path, `at` replaces it.

    One of `body` (with `type`), `form` (urlencoded text), `json`, `parts` (multipart) or `chunks` (chunked, with
    `type`) is its body. `wait` seconds pass before it is sent. `label` names it in reports and in accepted.py.
    """
    content = b""
    its_headers = list(headers)
    if form is not None:
        body, type = form, type or "application/x-www-form-urlencoded"
    elif json is not None:
        body, type = json_module.dumps(json), type or "application/json"
    elif parts is not None:
        body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
        type = type or f"multipart/form-data; boundary={BOUNDARY}"
    if type is not None:
        its_headers.append(("Content-Type", type))
    if cookie is not None:
        its_headers.append(("Cookie", cookie))
    if chunks is not None:
        its_headers.append(("Transfer-Encoding", "chunked"))
        content = client.chunked(chunks)
    elif body is not None:
        content = body.encode() if isinstance(body, str) else body
        its_headers.append(("Content-Length", str(len(content))))
    shown = at.decode("latin-1") if isinstance(at, bytes) else at
    return Request(
        method=method,
        where=where,
        data=None,
        headers=its_headers,
        body=content,
        version=version,
        host=host,
        at=at,
        wait=wait,
        abort_after=abort_after,
        streams=streams,
        within=within,
        logged=logged,
        jar=jar,
        label=label or f"{method} {shown if shown is not None else where}".strip(),
    )


def get(where: str = "", **how: Any) -> Request:
    return request("GET", where, **how)


def post(where: str = "", **how: Any) -> Request:
    return request("POST", where, **how)


def head(where: str = "", **how: Any) -> Request:
    return request("HEAD", where, **how)


def raw(data: bytes, label: str) -> Request:
    """A request given as the very bytes to send; it has to make the server close the connection."""
    return dataclasses.replace(request("RAW", label=label), data=data)


def part(disposition: str, content: bytes | str, type: str | None = None, *more: str) -> bytes:
    """One part of a multipart form; `disposition` is what follows "form-data; "."""
    lines = [f"--{BOUNDARY}", f"Content-Disposition: form-data; {disposition}"]
    if type is not None:
        lines.append(f"Content-Type: {type}")
    lines += more
    content = content.encode() if isinstance(content, str) else content
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content + b"\r\n"


def field(name: str, value: bytes | str) -> bytes:
    return part(f'name="{name}"', value)


def file(name: str, filename: str, content: bytes | str, type: str | None = "text/plain") -> bytes:
    return part(f'name="{name}"; filename="{filename}"', content, type)


class Case:
    """One script and the requests made to it.

    `script` is the file's name without .php, "name.ext" for another file, or ending in "/" for a directory.
    `profile` names the configuration in profiles.py. `normalise` are replacements for what varies from run to run.
    `classic_only` gives the reason why worker mode cannot or need not behave like php-fpm here.
    """

    def __init__(
        self,
        script: str,
        *requests: Request,
        doc: str,
        profile: str = "default",
        normalise: Sequence[Replacement] = (),
        classic_only: str | None = None,
        name: str | None = None,
    ) -> None:
        self.script = script
        self.requests = requests or (get(),)
        self.doc = doc
        self.profile = profile
        self.normalise = tuple(normalise)
        self.classic_only = classic_only
        self.name = name or script.removesuffix("/")
        self.theme = ""

    @property
    def id(self) -> str:
        return f"{self.theme}/{self.name}"

    def path(self, prefix: str) -> str:
        """The script's URL path; `prefix` is the theme's directory within the profile's document root."""
        suffix = "" if "." in self.script or self.script.endswith("/") else ".php"
        return f"{prefix}/{self.script}{suffix}"

    def __repr__(self) -> str:
        return self.id
