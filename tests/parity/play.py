"""Plays a case against a server: its requests in order, each on a connection of its own, with a cookie jar."""

from __future__ import annotations

import dataclasses
import re
import time

from lib import over
from lib.client import Response
from lib.over import NoForm, exchange
from lib.process import wait_until
from lib.servers import Hayate, NginxFpm

from .dsl import Case, Request


@dataclasses.dataclass
class Answer:
    """What one request of a case met with. `response` is None when the client went away on purpose."""

    request: Request
    response: Response | None
    faults: list[str]


def play(case: Case, server: NginxFpm | Hayate, prefix: str) -> list[Answer]:
    """Makes the case's requests and returns their answers, in order. Raises OSError when the server does not answer.

    Over HTTP/2 those that have no form in it are left out.
    """
    script = case.path(prefix)
    cookies: dict[str, str] = {}
    answers = []
    for request in case.requests:
        if request.wait:
            time.sleep(request.wait)
        log_before = len(server.log()) if request.logged else 0
        try:
            response = exchange(
                ("127.0.0.1", server.port), request.encode(script, cookies), abort_after=request.abort_after
            )
        except NoForm:
            continue
        except (OSError, ValueError) as error:
            raise AssertionError(
                f"{server.name}, {case.id}, {request.label}: {type(error).__name__}: {error}"
            ) from error
        faults = []
        if response is not None:
            # nginx resets streams of HTTP/2 for what it answers with bytes that are no answer over HTTP/1.1.
            if response.status == 0 and isinstance(server, NginxFpm) and over.protocol != over.H2:
                raise AssertionError(
                    f"the reference closed the connection without an answer: {case.id}, {request.label}"
                )
            _keep_cookies(response, cookies)
            if request.within is not None and response.complete_at > request.within:
                faults.append(f"answered after {response.complete_at:.2f} s, not within {request.within} s")
            if request.streams and response.status == 200 and not response.body:
                faults.append("an empty body cannot stream")
        if request.logged:
            faults += _log_faults(server, log_before, request.logged)
        answers.append(Answer(request, response, faults))
    return answers


def _log_faults(server: NginxFpm | Hayate, begin: int, pattern: str) -> list[str]:
    """Whether what the server logged since `begin` matches `pattern`; a log line may come a moment after the answer."""
    if wait_until(lambda: re.search(pattern, server.log()[begin:]) is not None):
        return []
    return [f"the log lacks {pattern!r}; it got: {server.log()[begin:]!r}"]


def _keep_cookies(response: Response, cookies: dict[str, str]) -> None:
    for value in response.values("set-cookie"):
        name, _, rest = value.partition("=")
        content = rest.split(";")[0]
        if content in ("", "deleted"):
            cookies.pop(name, None)
        else:
            cookies[name] = content
