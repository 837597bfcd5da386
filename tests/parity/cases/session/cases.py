"""Sessions: the files handler, cookies, cache headers, and handlers of the script's own."""

from __future__ import annotations

from parity.dsl import HTTP_DATE, SESSION_ID, UPLOAD_NAME, Case, field, file, get, post

#: The rules replace ids in cookies and bodies, and the dates that private_no_expire and public compute.
IDS = (SESSION_ID, (rb"Max-Age=\d+", b"Max-Age=<seconds>"))
DATES = (*IDS, (rb"(?!Thu, 19 Nov 1981)" + HTTP_DATE[0], HTTP_DATE[1]))

CASES = [
    Case(
        "counter",
        get(),
        get("", jar=True, label="second"),
        get("", jar=True, label="third"),
        get("", label="someone else"),
        get("", cookie="PHPSESSID=", label="an empty id"),
        normalise=IDS,
        doc="a session over several requests",
    ),
    Case(
        "regenerate",
        get(),
        get("", jar=True, label="second"),
        get("?delete", jar=True),
        get("", jar=True, label="last"),
        normalise=IDS,
        doc="session_regenerate_id()",
    ),
    Case(
        "destroy",
        get(),
        get("?unset", jar=True),
        get("", jar=True, label="after unset"),
        get("?destroy", jar=True),
        get("", jar=True, label="after destroy"),
        normalise=IDS,
        doc="session_destroy()",
    ),
    Case(
        "limiter",
        *[
            get(f"?limiter={limiter}")
            for limiter in ("nocache", "public", "private", "private_no_expire", "", "unknown")
        ],
        get("?limiter=nocache&own"),
        normalise=DATES,
        doc="session_cache_limiter()",
    ),
    Case(
        "cookie",
        *[get(f"?how={how}") for how in ("params", "name", "id", "none", "length", "options")],
        normalise=(*IDS, HTTP_DATE, (rb"PHPSESSID=[0-9a-f]{40}", b"PHPSESSID=<long id>")),
        doc="the session's cookie",
    ),
    Case(
        "strict",
        get("?strict=0", cookie="PHPSESSID=brought-by-the-client"),
        get("?strict=1", cookie="PHPSESSID=brought-by-the-client"),
        get("?strict=0", cookie="PHPSESSID=../../etc/passwd", label="a path as id"),
        get("?strict=0", cookie="PHPSESSID=%3Cscript%3E", label="a tag as id"),
        get("?strict=0", cookie="PHPSESSID=" + "x" * 300, label="a long id"),
        normalise=IDS,
        doc="ids that the client brings",
    ),
    Case(
        "closing",
        get("?do=set&value=one"),
        *[
            request
            for do in ("abort", "reset", "close", "reopen", "exit", "error", "timeout", "shutdown")
            for request in (get(f"?do={do}", jar=True), get("?read", jar=True, label=f"after {do}"))
        ],
        normalise=IDS,
        doc="when a session is written",
    ),
    Case(
        "handler",
        get("", cookie="PHPSESSID=unknown"),
        get("?change", cookie="PHPSESSID=created-by-the-handler"),
        get("", cookie="PHPSESSID=created-by-the-handler", label="unchanged"),
        doc="a session handler of the script's own",
    ),
    Case("gc", normalise=IDS, doc="session_gc() and session_create_id()"),
    Case("trans_sid", doc="session.use_trans_sid"),
    Case(
        "progress",
        get(),
        post(
            "",
            jar=True,
            parts=[
                field("PHP_SESSION_UPLOAD_PROGRESS", "parity"),
                field("a", "1"),
                file("f", "a.txt", "x" * 100_000),
                file("g", "b.txt", "y"),
            ],
            label="upload",
        ),
        get("", jar=True, label="after the upload"),
        normalise=(*IDS, UPLOAD_NAME),
        profile="display",
        doc="session.upload_progress",
    ),
    Case("headers_sent", doc="session_start() after output"),
    Case("settings", doc="settings of sessions"),
]
