"""What the client sends: $_GET, $_POST, $_COOKIE and php://input."""

from __future__ import annotations

import hashlib

from parity.dsl import Case, field, file, get, post, raw, request

#: 5 MB that do not compress and hold every byte.
LARGE = b"".join(hashlib.sha512(b"parity%d" % number).digest() for number in range(5 * 1024 * 1024 // 64))
EVERY_BYTE = bytes(range(256))

FORMS = [
    "a=1&b=2",
    "a=1&a=2",
    "a[]=1&a[]=2&a[5]=3&a[]=4",
    "a[x][y][]=1&a[x][y][]=2&a[x][z]=3",
    "a[=1&b]=2&c[d=3&e]f[=4",
    "a[][b]=1&a[][b]=2",
    "a b=1&a.b=2&a+b=3&.a=4& a=5",
    "a[b.c]=1&a[b c]=2&a.b[c]=3",
    "=1&&=&a",
    "a==b&c=d=e",
    "a=%41%20%2B+&%62=c",
    "a=%&b=%4&c=%4g&d=%zz",
    "a=%00&b%00c=d&e=x%00y",
    "a=%C3%A9&b=%E9&c=%F0%9F%98%80",
    "a[0x1]=1&a[01]=2&a[-1]=3&a[1.5]=4&a[ 1]=5",
    "a=1&a[b]=2&c[b]=1&c=2",
    "GLOBALS=1&_SERVER[x]=1&this=2",
    "a[b][c][d][e][f][g][h][i][j][k]=deep",
]

CASES = [
    Case("get", *[get("?" + form.replace(" ", "%20")) for form in FORMS], doc="$_GET: arrays, duplicates, odd names"),
    Case(
        "post",
        *[post("", form=form, label=f"POST {form}") for form in FORMS],
        post("", form="a=1", type="application/x-www-form-urlencoded; charset=ISO-8859-1"),
        post("", form="a=1", type="APPLICATION/X-WWW-FORM-URLENCODED", label="type in capitals"),
        post("", form="a=1", type="application/x-www-form-urlencoded;", label="type with a semicolon"),
        post("", form="a=1", type="application/x-www-form-urlencodedx", label="almost the type"),
        post("", form="a=1", type="text/plain", label="not a form"),
        post("", form="", label="empty form"),
        post("", body="a=1", label="no type"),
        post("", form="a=1\r\n", label="line end after the form"),
        post("", form="&".join(f"k{number}={number}" for number in range(900)), label="900 fields"),
        post("", chunks=[b"a=1&", b"b=2"], type="application/x-www-form-urlencoded", label="chunked form"),
        request("PUT", "", form="a=1"),
        doc="$_POST from urlencoded forms",
    ),
    Case(
        "cookies",
        get(),
        get("", cookie="a=1; b=2"),
        get("", cookie="a=1;b=2;;c=3;"),
        get("", cookie="a=1; a=2"),
        get("", cookie="a=%20x%2B+y"),
        get("", cookie="a[b]=1; a[c]=2; d.e=3; f g=4"),
        get("", cookie="novalue; =noname; a="),
        get("", cookie="q=\"quoted\"; r='single'"),
        get("", cookie="a=b=c; d=e,f; g=h:i"),
        get("", cookie=" lead=1 ; trail=2 "),
        get("", cookie="__Host-a=1; __Secure-b=2; __Host%2Dc=3"),
        get("", cookie="u=caf%C3%A9; v=%E9; w=%00x"),
        get("", headers=[("Cookie", "a=1"), ("Cookie", "b=2")], label="two Cookie headers"),
        get("", cookie="long=" + "x" * 4000, label="4000 bytes"),
        doc="$_COOKIE",
    ),
    Case(
        "input",
        *[
            request(method, "", body="raw body of bytes", type="text/plain")
            for method in ("POST", "PUT", "PATCH", "DELETE", "GET")
        ],
        post("", form="a=1&b=2"),
        post("", parts=[field("a", "1")], label="multipart leaves it empty"),
        post("", chunks=[b"in ", b"three ", b"chunks"], type="text/plain", label="chunked"),
        post("", body=b"line one\nline two\n\0binary\xff", type="application/octet-stream", label="binary"),
        post("", body="", type="text/plain", label="empty"),
        get(),
        doc="php://input, again and again, seekable",
    ),
    Case(
        "lines",
        post("", body=b"some line of text\n" * 20000, type="text/plain", label="20000 lines"),
        doc="php://input line by line",
    ),
    Case(
        "large",
        post("", body=LARGE, type="application/octet-stream", label="5 MB"),
        post(
            "",
            chunks=[LARGE[at : at + 70000] for at in range(0, len(LARGE), 70000)],
            type="application/octet-stream",
            label="5 MB chunked",
        ),
        post("", body=b"a=" + b"x" * 3_000_000 + b"&b=1", type="application/x-www-form-urlencoded", label="3 MB form"),
        doc="large bodies",
    ),
    Case(
        "echo",
        post("", body=EVERY_BYTE * 64, type="application/octet-stream", label="every byte"),
        post("", body=LARGE[:1_500_000], type="image/png", label="1.5 MB there and back"),
        post("", body="<p>é</p>", type="text/html"),
        doc="bytes there and back",
    ),
    Case(
        "api",
        post("", json={"id": 7, "name": "é"}),
        post("", body="{bad", type="application/json"),
        doc="a JSON endpoint",
    ),
    Case(
        "partial_read",
        post("", body=LARGE[:300_000], type="application/octet-stream", label="reads nothing of 300 kB"),
        post(
            "?read=5", body=b"hello" + LARGE[:300_000], type="application/octet-stream", label="reads 5 bytes of 300 kB"
        ),
        doc="a body the script does not read",
    ),
    Case(
        "limits",
        get(
            "?" + "&".join(f"k{number}=1" for number in range(12)),
            label="12 of 10 variables",
            logged="Input variables exceeded 10",
        ),
        post("", form="&".join(f"k{number}=1" for number in range(12)), label="POST 12 of 10 variables"),
        get("", cookie="; ".join(f"k{number}=1" for number in range(12)), label="12 of 10 cookies"),
        get("?a[b][c][d][e]=1&f=2"),
        post("", form="a=" + "x" * 9000, label="form of 9000 bytes", logged="exceeds the limit"),
        post("", body="x" * 9000, type="application/json", label="JSON of 9000 bytes"),
        post("", parts=[field("a", "x" * 9000)], label="multipart of 9000 bytes"),
        post("", parts=[field(f"k{number}", "1") for number in range(9)], label="9 of 8 parts"),
        post("", parts=[file(f"f{number}", "n", "x") for number in range(4)], label="4 of 3 files"),
        post("", parts=[file("f", "n", "x" * 2000)], label="a file too large"),
        post("", chunks=[b"x" * 5000, b"y" * 5000], type="text/plain", label="chunked and too large"),
        profile="limits",
        doc="max_input_vars, max_input_nesting_level, post_max_size and their like",
    ),
    Case(
        "unparsed",
        post("", form="a=1"),
        post("", parts=[field("a", "1"), file("f", "n.txt", "content")]),
        post("", body="raw", type="text/plain"),
        profile="unparsed",
        doc="enable_post_data_reading off",
    ),
    Case("mbstring", doc="encodings of input and output"),
    Case(
        "get.php",
        raw(b"GET /input/get.php?a=1 HTTP/1.0\r\n\r\n", "HTTP/1.0 without any header"),
        name="http10",
        doc="the smallest request",
    ),
]
