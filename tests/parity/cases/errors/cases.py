"""Errors: what the client sees, what the log gets, which status it is."""

from __future__ import annotations

from parity.dsl import Case, Replacement, get, head, post

UNCAUGHT = (
    "exception",
    "error",
    "function",
    "method",
    "null",
    "type",
    "arguments",
    "division",
    "modulo",
    "match",
    "class",
    "constant",
    "require",
    "readonly",
    "user",
    "json",
    "html",
)
#: What stands below the script in a backtrace: {main} in classic mode, the worker's script and its loop in worker mode.
FRAMES: Replacement = (
    rb"(?:(?m:^)#\d+ [^\n]*(?:generic|rewind)_worker\.php[^\n]*\n(?:#\d+ [^\n]*\n)*?)?(?m:^)#\d+ \{main\}",
    b"<main>",
)
#: From 8.5 on a fatal error shows its backtrace: how deep memory lets it go varies with what is allocated already.
RECURSION: Replacement = (rb"(?m:^)(?:#\d+ [^\n]*overflow\.php[^\n]*\n)+", b"<frames>\n")
ANY_SIZE: Replacement = (rb"\(tried to allocate \d+ bytes\)", b"(tried to allocate N bytes)")

CASES = [
    Case(
        "uncaught",
        *[get(f"?what={what}", logged="PHP (Fatal error|Warning)|Stack trace") for what in UNCAUGHT],
        doc="uncaught errors, not shown: 500 and what was printed before",
    ),
    Case(
        "uncaught",
        *[get(f"?what={what}") for what in UNCAUGHT],
        head("?what=exception"),
        profile="display",
        name="uncaught_shown",
        normalise=[FRAMES],
        doc="uncaught errors, shown",
    ),
    Case(
        "uncaught",
        get("?what=exception"),
        get("?what=html"),
        get("?what=function"),
        profile="everything",
        name="uncaught_html",
        normalise=[FRAMES],
        doc="uncaught errors, shown as HTML",
    ),
    Case("warnings", get("", logged="Undefined variable \\$undefined"), doc="warnings, not shown"),
    Case("warnings", profile="display", name="warnings_shown", doc="warnings, shown"),
    Case("warnings", profile="everything", name="warnings_html", doc="warnings, shown as HTML"),
    Case(
        "handlers", get(), get("?status=503"), get("?rethrow"), get("?rethrow&status=400"), doc="handlers of the script"
    ),
    Case("parse", get("", logged="PHP Parse error"), head(), doc="a script that does not parse"),
    Case("parse", profile="display", name="parse_shown", doc="a script that does not parse, shown", normalise=[FRAMES]),
    Case("parse_included", get(), get("?catch"), doc="an include that does not parse"),
    Case(
        "compile",
        get("", logged="abstract"),
        get("?redeclare", logged="redeclare"),
        doc="errors at compile time",
        classic_only="functions declared by one request stay declared in a worker",
    ),
    Case(
        "after_output",
        *[get(f"?bytes={count}") for count in (10, 4000, 5000)],
        get("?bytes=10&flush"),
        get("?bytes=10&status=404"),
        get("?bytes=10&status=302"),
        doc="a fatal error after output",
    ),
    Case(
        "after_output",
        get("?bytes=10"),
        profile="display",
        name="after_output_shown",
        doc="a fatal error after output, shown",
        normalise=[FRAMES],
    ),
    Case(
        "in_shutdown",
        *[get(f"?where={where}") for where in ("shutdown", "fatal_shutdown", "callback", "header_callback", "session")],
        get("?where=shutdown", logged="in shutdown", label="logged"),
        doc="errors while the request ends",
    ),
    Case(
        "in_destructor",
        get("", logged="in a destructor"),
        doc="an exception in a destructor",
        classic_only="the variable dies with the including function in a worker",
    ),
    Case("last", get(), get(), doc="error_get_last()"),
    Case(
        "logged",
        get("", logged="parity: a warning logged"),
        get("?file"),
        get("?off"),
        post(form="a=1", logged="PHP Warning:  parity"),
        doc="where messages are logged",
    ),
    Case("overflow", get("", logged="Allowed memory size"), get(), doc="recursion without end"),
    Case(
        "overflow",
        profile="display",
        name="overflow_shown",
        normalise=[ANY_SIZE, FRAMES, RECURSION],
        doc="recursion without end, shown",
    ),
    Case("reporting", doc="how errors are reported"),
    Case("reporting", profile="display", name="reporting_shown", doc="how errors are reported to a developer"),
]
