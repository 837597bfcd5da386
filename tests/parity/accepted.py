"""Every difference from nginx + php-fpm that is accepted, with its reason.

An entry that matches nothing any more fails the test of its case, so this list is what differs today and no more. An
entry whose `case` is a pattern has to occur in one of the cases it covers, once all of them have run.
"""

from __future__ import annotations

from .compare import Accepted

ACCEPTED: list[Accepted] = [
    Accepted(
        "*",
        "header:server",
        "each server names itself, or does not",
        reference=r"nginx/[\d.]+",
    ),
    Accepted(
        "*",
        "server page",
        "each server has error pages of its own; Hayate's name neither a version nor a path",
    ),
]
