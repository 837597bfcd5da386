"""The body: buffers, flushing, compression, and the ways to print."""

from __future__ import annotations

from parity.dsl import Case, get, head, post, request

GZIP = [("Accept-Encoding", "gzip, deflate")]
DEFLATE = [("Accept-Encoding", "deflate")]

CASES = [
    Case("buffering", doc="ob_start() and its kin"),
    Case("buffering", profile="display", name="buffering_off", doc="output_buffering off"),
    Case("status", doc="the buffer that output_buffering makes"),
    Case("callback", get(), get("?exit"), doc="output callbacks"),
    Case(
        "stream",
        get("", streams=True),
        get("?implicit", streams=True),
        get("", version="HTTP/1.0", streams=True, label="HTTP/1.0"),
        head("", within=1),
        doc="flush() reaches the client at once",
    ),
    Case(
        "stream",
        get("", streams=True),
        profile="display",
        name="stream_unbuffered",
        doc="flush() without output_buffering",
    ),
    Case("chunks", get(), get("", version="HTTP/1.0", label="HTTP/1.0"), doc="twenty flushes"),
    Case("events", get("", streams=True), doc="server-sent events"),
    Case(
        "compressed",
        get(),
        get("", headers=GZIP, label="gzip"),
        get("", headers=DEFLATE, label="deflate"),
        get("", headers=[("Accept-Encoding", "br")], label="br"),
        head("", headers=GZIP, label="HEAD gzip"),
        doc="zlib.output_compression by ini_set()",
    ),
    Case(
        "functions",
        get("", headers=GZIP, label="gzip"),
        get(),
        profile="everything",
        name="compressed_always",
        doc="zlib.output_compression in php.ini",
    ),
    Case("gzhandler", get(), get("", headers=GZIP, label="gzip"), doc="ob_gzhandler"),
    Case("functions", get(), post("", form="x=1"), head(), doc="the ways to print"),
    Case("files", doc="files to the output"),
    Case("large", get(), get("?length"), head("?length"), doc="5 MB out"),
    Case(
        "constants",
        get(),
        post("", body="the body is not on stdin", type="text/plain"),
        doc="constants, and none of the command line's",
    ),
    Case("paths", doc="which PHP this is"),
    Case(
        "stderr",
        get("", logged="a line of parity on stderr"),
        get("", logged="a line of parity through error_log"),
        get("", logged="in one message"),
        doc="messages reach the log",
    ),
    Case("html", doc="inline HTML"),
    Case("bom", doc="a byte order mark before the first tag"),
    Case("shebang", doc="a shebang line"),
    Case("plain_text", doc="a script without PHP"),
    Case("rewrite", get(), get("?reset"), doc="output_add_rewrite_var()"),
    Case("unicode", doc="bytes that are not UTF-8"),
    Case("flush_early", get("", logged="after the headers"), request("POST"), doc="an error after the headers"),
    Case("sleepy", doc="flush() without output"),
]
