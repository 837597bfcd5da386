"""How a request ends: shutdown, exit, aborts, limits; and how the next one starts."""

from __future__ import annotations

from parity.dsl import Case, get, head, post

EXITS = (
    "plain",
    "status",
    "zero",
    "string",
    "number",
    "empty",
    "closure",
    "include",
    "eval",
    "string_cast",
    "generator",
    "sort",
    "handler",
    "exception_handler",
    "autoload",
    "output",
    "finally",
    "destructor",
    "nested",
    "code",
    "location",
    "fiber",
    "none",
)

CASES = [
    Case(
        "finish",
        # The script waits for the request that reads.
        get("", within=20),
        get("?read"),
        post("?session", form="a=1", within=20),
        get("?read"),
        head("", within=20),
        get("?read"),
        normalise=[(rb"PHPSESSID=[^;]*", b"PHPSESSID=<id>")],
        doc="fastcgi_finish_request()",
    ),
    Case(
        "finish_deep",
        get("", logged="parity: after finish"),
        get("?exit", logged="parity: shutdown after finish"),
        doc="buffers and failures at fastcgi_finish_request()",
    ),
    Case(
        "shutdown",
        get(),
        get("?exit"),
        get("?end=exit"),
        get("?end=throw"),
        get("?end=error"),
        get("?end=exit&exit"),
        get("?end=throw&exit"),
        doc="shutdown functions",
    ),
    Case("exit", *[get(f"?how={how}") for how in EXITS], doc="exit, wherever it is called"),
    Case(
        "destructors",
        doc="destructors at the end of the script",
        classic_only="the variables of an included script die with the including function, before shutdown functions",
    ),
    Case(
        "abort",
        get("", abort_after=200, label="abort"),
        get("?read", label="what happened"),
        get("?ignore", abort_after=200, label="abort ignored"),
        get("?read", label="what happened then"),
        doc="the client goes away",
    ),
    Case("connection", doc="connection_status() and ignore_user_abort()"),
    Case("timeout", get("", logged="Maximum execution time"), get("?sleep"), doc="max_execution_time"),
    Case("memory", get("", logged="Allowed memory size"), get("?string"), get(), doc="memory_limit"),
    Case(
        "state",
        get(),
        get(),
        get(),
        doc="nothing is left of the request before",
        classic_only="worker mode keeps the state of the process",
    ),
    Case("ticks", doc="tick functions"),
    Case("gc", doc="the cycle collector"),
    Case("child", doc="child processes"),
    Case("descriptors", doc="descriptors that children inherit"),
]
