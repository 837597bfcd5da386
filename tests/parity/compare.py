"""Compares two answers, and holds the differences found against the accepted ones.

What is compared: status, reason phrase, every header (names case-insensitively, repeated headers in their order) and
the body to the byte. What is not, and why:

- `Date` says when, not what: it only has to come as often as in the reference.
- Framing belongs to the server: a body whose length the script did not state may come chunked or with a
  Content-Length. A stated Content-Length is compared as part "header:content-length".
- `Connection` and `Keep-Alive` belong to the connection, and every request asks for it to be closed.
- Where the status differs, that is the difference: the rest of such an answer is another story.
- A page that nginx made itself (404, 405, a redirect) is the server's: its body, type and length count as one
  difference, part "server page". Hayate's page may name neither a version nor a path, else part "server page leaks".
- Whether the message was complete, and that no byte follows it, is compared as part "framing".
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from collections.abc import Iterable, Sequence

from lib.client import Response
from lib.over import H2, PLAIN, TLS

from .dsl import Replacement, Request

CONNECTION_HEADERS = {"connection", "keep-alive", "date", "transfer-encoding"}

#: An answer that streams sends its first body byte at least this many seconds before its last.
STREAMING_GAP = 0.4


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing that differs; for bodies, one line. None means absent."""

    part: str
    reference: str | None
    hayate: str | None
    #: For the reader of a report only.
    note: str = dataclasses.field(default="", compare=False)

    def __str__(self) -> str:
        note = f"\n      {self.note}" if self.note else ""
        return f"{self.part}\n      expected {self.reference!r}\n      got      {self.hayate!r}{note}"


@dataclasses.dataclass(frozen=True)
class Accepted:
    """A difference that is right, or at least known and wanted.

    `case`, `part` and `request` are shell patterns for a case's id, a difference's part and a request's label. Parts:
    "status" (code and reason phrase, when the code differs), "reason", "header:<name>", "body", "framing",
    "streaming", "server page" and "server page leaks". `reference` and `hayate` are regular expressions which the two
    values have to match in full; None accepts any value.
    """

    case: str
    part: str
    reason: str
    request: str = "*"
    reference: str | None = None
    hayate: str | None = None
    modes: Sequence[str] = ("classic", "worker", "rewind")
    #: What the requests went over, of `lib.over`.
    over: Sequence[str] = (PLAIN, TLS, H2)
    #: Whether it is one with the nginx and the PHP that are tested.
    here: bool = True

    def covers(self, request: Request, difference: Difference) -> bool:
        """Whether this entry accepts `difference` (the case and the mode having been looked at already)."""
        return (
            shell_match(request.label, self.request)
            and shell_match(difference.part, self.part)
            and _matches(self.reference, difference.reference)
            and _matches(self.hayate, difference.hayate)
        )


def shell_match(text: str, pattern: str) -> bool:
    """fnmatch with `*` as the only special character: labels are full of ? and [."""
    return re.fullmatch(".*".join(re.escape(piece) for piece in pattern.split("*")), text, re.DOTALL) is not None


def _matches(pattern: str | None, value: str | None) -> bool:
    return pattern is None or (value is not None and re.fullmatch(pattern, value, re.DOTALL) is not None)


def normalised(data: bytes, replacements: Iterable[Replacement]) -> bytes:
    """`data` with all that varies from run to run replaced."""
    for pattern, replacement in replacements:
        data = re.sub(pattern, replacement, data)
    return data


def headers_by_name(response: Response, replacements: Sequence[Replacement]) -> dict[str, list[str]]:
    """Header values by lower-case name, those of the connection left out."""
    result: dict[str, list[str]] = {}
    for name, value in response.headers:
        if name.lower() not in CONNECTION_HEADERS:
            value = normalised(value.encode("latin-1"), replacements).decode("latin-1")
            result.setdefault(name.lower(), []).append(value)
    return result


def _body_differences(reference: bytes, hayate: bytes) -> list[Difference]:
    if reference == hayate:
        return []
    if max(len(reference), len(hayate)) > 200_000:
        return [Difference("body", f"{len(reference)} bytes", f"{len(hayate)} bytes, not the same")]
    left, right = (body.decode("utf-8", "backslashreplace").split("\n") for body in (reference, hayate))
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    found = []
    for tag, left_from, left_to, right_from, right_to in matcher.get_opcodes():
        if tag != "equal":
            pairs = itertools.zip_longest(left[left_from:left_to], right[right_from:right_to])
            found += [Difference("body", one, other) for one, other in pairs]
    return found


def _length_was_stated(reference: Response) -> bool:
    """nginx never adds a Content-Length to what php-fpm sent, so one in the reference came from the script."""
    return bool(reference.values("content-length"))


def _is_page_of_nginx(reference: Response) -> bool:
    """Pages of nginx state no character set, and a length; PHP's answers state a character set and no length."""
    return (
        reference.status >= 300 and reference.values("content-type") == ["text/html"] and _length_was_stated(reference)
    )


def _page_differences(reference: Response, hayate: Response) -> list[Difference]:
    if (reference.body, reference.values("content-type")) == (hayate.body, hayate.values("content-type")):
        return []
    return [Difference("server page", "nginx's own", "another"), *_leaks(hayate)]


def _leaks(hayate: Response) -> list[Difference]:
    """What an error page of Hayate's own gives away; answers of scripts may say what they like."""
    if hayate.status < 400:
        return []
    leak = re.search(rb"nginx|(?:hayate|php|libphp)[ /-]?v?\d|/(?:tmp|usr|var|home)/", hayate.body, re.IGNORECASE)
    return [] if leak is None else [Difference("server page leaks", None, leak.group().decode("latin-1"))]


def compare(
    request: Request, reference: Response, hayate: Response, replacements: Sequence[Replacement]
) -> list[Difference]:
    """All differences between two answers to the same request."""
    if reference.status != hayate.status:
        lines = [f"{response.status} {response.reason}" for response in (reference, hayate)]
        return [Difference("status", *lines, note=f"with the body {hayate.body[:300]!r}"), *_leaks(hayate)]
    found = []
    if reference.reason != hayate.reason:
        found.append(Difference("reason", reference.reason, hayate.reason))
    if len(reference.values("date")) != len(hayate.values("date")):
        found.append(Difference("header:date", str(reference.values("date")), str(hayate.values("date"))))
    left, right = headers_by_name(reference, replacements), headers_by_name(hayate, replacements)
    own_page = _is_page_of_nginx(reference)
    if own_page:
        found += _page_differences(reference, hayate)
        for headers in (left, right):
            headers.pop("content-type", None)
            headers.pop("content-length", None)
    elif not _length_was_stated(reference):
        right.pop("content-length", None)
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            values = [None if side.get(name) is None else "\n".join(side[name]) for side in (left, right)]
            found.append(Difference(f"header:{name}", *values))
    if not own_page:
        found += _body_differences(*(normalised(response.body, replacements) for response in (reference, hayate)))
    ends = [
        ("complete" if response.complete else "incomplete") + (f", then {response.rest!r}" if response.rest else "")
        for response in (reference, hayate)
    ]
    if ends[0] != ends[1]:
        found.append(Difference("framing", *ends))
    if request.streams:
        ways = ["streamed" if streamed(response) else "in one piece" for response in (reference, hayate)]
        if ways[0] != ways[1]:
            found.append(Difference("streaming", *ways))
    return found


def streamed(response: Response) -> bool:
    """Whether the body's first byte came well before its last."""
    return response.complete_at - response.first_body_byte > STREAMING_GAP
