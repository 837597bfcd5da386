"""Every difference from nginx + php-fpm that is accepted, with its reason.

An entry that matches nothing any more fails the test of its case, so this list is what differs today and no more.
An entry whose `case` is a pattern has to occur in every case it covers.
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
]
