"""Raw requests that two servers may understand differently: what request smuggling is made of.

`CASES` maps a name to the bytes of one or more requests. None of them asks for the end of the connection unless that is its point: who plays
them sends a plain request behind, and sees by its answer whether the server found the end of the message where the sender had put it.
"""

from __future__ import annotations

from collections.abc import Iterable

CASES: dict[str, bytes] = {}

HELLO = b"hello"
CHUNKED_HELLO = b"5\r\nhello\r\n0\r\n\r\n"
#: A whole request, to be hidden in the body of another.
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"


def case(theme: str, what: str | bytes, data: bytes) -> None:
    """Takes up one; two with one name would hide each other."""
    name = f"{theme}: {what if isinstance(what, str) else printable(what)}"
    assert name not in CASES, name
    CASES[name] = data


def printable(data: bytes) -> str:
    """Bytes as a Python literal without its quotes; long ones shortened."""
    text = repr(data)[2:-1]
    return text if len(text) < 60 else f"{text[:40]}... of {len(data)} bytes"


def request(
    *lines: bytes, body: bytes = b"", method: bytes = b"POST", target: bytes = b"/x", version: bytes = b"HTTP/1.1", host: bool = True
) -> bytes:
    """A request with these header lines."""
    head = [method + b" " + target + b" " + version, *([b"Host: a"] if host else []), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def each(theme: str, values: Iterable[bytes], make) -> None:
    """One case for each value."""
    for value in values:
        case(theme, value, make(value))


def lengths() -> None:
    """Content-Length: its value, its name, several of them, on methods that have no body."""
    values = [
        b"5", b"05", b"0000000000000000000000005", b" 5", b"5 ", b"\t5\t", b"+5", b"-5", b"0x5", b"5.0", b"5e0", b"5,5", b"5, 5", b"5,6",
        b"6, 5", b",5", b"5,", b"5;", b"5 5", b"", b" ", b"five", b"99999999999999999999", b"18446744073709551616",
        b"18446744073709551621", b"9223372036854775808", b"4294967301", b"\xd9\xa5", b"5\x0b", b"\x0c5", b"5\x00", b"_5", b'"5"', b"5\xa0", b"-0", b"00",
    ]  # fmt: skip
    each("length", values, lambda value: request(b"Content-Length: " + value, body=HELLO))
    names = [
        b"content-length", b"CONTENT-LENGTH", b"Content-Length ", b"Content-Length\t", b"Content_Length", b"Content Length", b" Content-Length",
        b"Content-Length\x0b", b"\x00Content-Length", b"Content-Length\x00", b"Content\xadLength", b"X-Content-Length", b"Content-Length:",
    ]  # fmt: skip
    each("length name", names, lambda name: request(name + b": 5", body=HELLO))
    several = [
        (b"5", b"5"), (b"5", b"6"), (b"6", b"5"), (b"5", b"0"), (b"0", b"5"), (b"5", b""), (b"", b"5"), (b"5", b"05"), (b"5", b"x"), (b"x", b"5"),
    ]  # fmt: skip
    for first, second in several:
        both = (b"Content-Length: " + first, b"content-length: " + second)
        case("two lengths", first + b" and " + second, request(*both, body=HELLO))
    case("length", "three that agree", request(*[b"Content-Length: 5"] * 3, body=HELLO))
    case("length", "two that differ, far apart", request(b"Content-Length: 5", *[b"X-%d: y" % i for i in range(20)], b"Content-Length: 6", body=HELLO))
    for method in (b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"PUT", b"PATCH", b"PROPFIND", b"FOO"):
        case("length and method", method, request(b"Content-Length: 5", body=HELLO, method=method))
        case("chunked and method", method, request(b"Transfer-Encoding: chunked", body=CHUNKED_HELLO, method=method))
    case("length", "shorter than the body", request(b"Content-Length: 3", body=HELLO))
    case("length", "longer than the body", request(b"Content-Length: 20", body=HELLO))
    case("length", "longer than all that comes", request(b"Content-Length: 2000", body=HELLO))
    case("length", "0 before a hidden request", request(b"Content-Length: 0", body=HIDDEN))
    case("length", "none before a hidden request", request(body=HIDDEN))
    case("length", "of a hidden request", request(b"Content-Length: %d" % len(HIDDEN), body=HIDDEN))
    case("length", "of GET with a hidden request", request(b"Content-Length: %d" % len(HIDDEN), body=HIDDEN, method=b"GET"))
    case("length", "in HTTP/1.0", request(b"Content-Length: 5", b"Connection: keep-alive", body=HELLO, version=b"HTTP/1.0"))
    case("length", "two in HTTP/1.0", request(b"Content-Length: 5", b"Content-Length: 6", b"Connection: keep-alive", body=HELLO, version=b"HTTP/1.0"))


def codings() -> None:
    """Transfer-Encoding: its value, its name, several of them, beside a length."""
    values = [
        b"chunked", b"Chunked", b"CHUNKED", b"cHuNkEd", b" chunked", b"chunked ", b"\tchunked", b"chunked\t", b"\x0bchunked", b"chunked\x0b",
        b"\x0cchunked", b"chunked\x0c", b"chunked\x00", b"\x00chunked", b"xchunked", b"chunkedx", b"chunk", b"identity", b"gzip", b"deflate",
        b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"chunked, identity", b"identity, chunked", b"x, chunked", b"chunked;q=1", b"chunked; a=b",
        b'"chunked"', b"'chunked'", b"chunked,", b",chunked", b"chunked,,", b", ,chunked", b"", b" ", b",", b"trailers", b"chunked\x7f", b"chunked\xa0",
        b"\xa0chunked", b"chunked\xff", b"chunked chunked", b"chunked identity", b"\r\n chunked", b"\r\n\tchunked", b"chunked\r\n ", b"gzip\r\n , chunked",
        b"chunked\r", b"\rchunked", b"chunked\r\n\x0b", b"chu\nnked", b"chunked\x01",
    ]  # fmt: skip
    each("coding", values, lambda value: request(b"Transfer-Encoding: " + value, body=CHUNKED_HELLO))
    beside = [
        b"chunked", b"Chunked", b" chunked", b"chunked ", b"\x0bchunked", b"xchunked", b"identity", b"gzip, chunked", b"chunked, identity",
        b"identity, chunked", b"chunked;q=1", b"", b"x", b"chunked,", b"\r\n chunked",
    ]  # fmt: skip
    length = b"Content-Length: %d" % len(CHUNKED_HELLO)
    each("coding, then a length", beside, lambda value: request(b"Transfer-Encoding: " + value, length, body=CHUNKED_HELLO))
    each("length, then a coding", beside, lambda value: request(length, b"Transfer-Encoding: " + value, body=CHUNKED_HELLO))
    names = [
        b"transfer-encoding", b"TRANSFER-ENCODING", b"Transfer-Encoding ", b"Transfer-Encoding\t", b" Transfer-Encoding", b"\tTransfer-Encoding",
        b"Transfer_Encoding", b"Transfer Encoding", b"Transfer-Encoding\x00", b"\x00Transfer-Encoding", b"Transfer-Encoding\x0b", b"Transfer\xadEncoding",
        b"TE", b"X-Transfer-Encoding", b"Transfer-Encoding:", b"Content-Encoding", b"X: y\nTransfer-Encoding", b"X: y\rTransfer-Encoding", b"\x0bTransfer-Encoding",
        b"Transfer-Encod\xcc\x87ing",
    ]  # fmt: skip
    each("coding name", names, lambda name: request(name + b": chunked", length, body=CHUNKED_HELLO))
    for first, second in [(b"chunked", b"chunked"), (b"chunked", b"identity"), (b"identity", b"chunked"), (b"chunked", b"gzip"), (b"gzip", b"chunked"),
                          (b"chunked", b"x"), (b"x", b"chunked"), (b"chunked", b""), (b"", b"chunked")]:  # fmt: skip
        both = (b"Transfer-Encoding: " + first, b"Transfer-Encoding: " + second)
        case("two codings", first + b" and " + second, request(*both, body=CHUNKED_HELLO))
    for value in (b"chunked", b"identity", b"gzip, chunked", b"x"):
        case("coding in HTTP/1.0", value, request(b"Transfer-Encoding: " + value, b"Connection: keep-alive", body=CHUNKED_HELLO, version=b"HTTP/1.0"))
        lines = (b"Transfer-Encoding: " + value, length, b"Connection: keep-alive")
        case("coding and length in HTTP/1.0", value, request(*lines, body=CHUNKED_HELLO, version=b"HTTP/1.0"))


def chunks() -> None:
    """The chunked coding itself."""
    chunked = b"Transfer-Encoding: chunked"
    sizes = [
        b"5", b"05", b"00000000000000000005", b"5 ", b"5\t", b" 5", b"\t5", b"5  ", b"+5", b"-5", b"0x5", b"0X5", b"x5", b"5h", b"5.", b"5,", b"5 5", b"5_",
        b"5;a", b"5;a=b", b'5;a="b"', b'5;a="b;c"', b'5;a="b\r\nc"', b"5 ;a", b"5; a", b"5\t;a", b"5;", b"5;;", b"5;=", b"5;a=", b"5;\x00", b"5;a\x01", b"5;\xff",
        b"5;a\nb", b"5;a\rb", b"5;\n", b"5\x00", b"5\x0b", b"5\x0c", b"5\x85", b"5\r", b"5\n", b"5\n\r", b"\r\n5", b"\n5", b"", b" ", b"g", b";a",
        b"\xef\xbc\x95", b"fffffffffffffffff", b"10000000000000005", b"8000000000000005", b"100000005", b"ffffffffffffffff", b"7fffffffffffffff",
        b"5;" + b"a" * 500, b"5;" + b"a" * 20000,
    ]  # fmt: skip
    each("chunk size", sizes, lambda size: request(chunked, body=size + b"\r\nhello\r\n0\r\n\r\n"))
    case("chunk size", "bare LF behind it", request(chunked, body=b"5\nhello\r\n0\r\n\r\n"))
    case("chunk size", "bare CR behind it", request(chunked, body=b"5\rhello\r\n0\r\n\r\n"))
    case("chunk size", "nothing behind it", request(chunked, body=b"5hello\r\n0\r\n\r\n"))
    case("chunk size", "upper case", request(chunked, body=b"A\r\nhellohello\r\n0\r\n\r\n"))
    case("chunk size", "lower case", request(chunked, body=b"a\r\nhellohello\r\n0\r\n\r\n"))
    ends = {
        "nothing": b"", "a bare LF": b"\n", "a bare CR": b"\r", "LF CR": b"\n\r", "two line ends": b"\r\n\r\n", "a space": b" \r\n", "two bytes too many": b"XX\r\n",
        "two other bytes": b"XX", "CR CR LF": b"\r\r\n", "a NUL": b"\0\r\n",
    }  # fmt: skip
    for what, end in ends.items():
        case("chunk ends with", what, request(chunked, body=b"5\r\nhello" + end + b"0\r\n\r\n"))
    case("chunk", "shorter than said", request(chunked, body=b"7\r\nhello\r\n0\r\n\r\n"))
    case("chunk", "one byte shorter than said", request(chunked, body=b"6\r\nhello\r\n0\r\n\r\n"))
    case("chunk", "longer than said", request(chunked, body=b"4\r\nhello\r\n0\r\n\r\n"))
    case("chunk", "many small ones", request(chunked, body=b"1\r\nh\r\n" * 50 + b"0\r\n\r\n"))
    case("chunk", "none at all", request(chunked, body=b""))
    case("chunk", "a body that is not chunked", request(chunked, body=HELLO))
    lasts = {
        "0": b"0\r\n\r\n", "00": b"00\r\n\r\n", "many zeros": b"0" * 30 + b"\r\n\r\n", "-0": b"-0\r\n\r\n", "+0": b"+0\r\n\r\n", "0x0": b"0x0\r\n\r\n",
        "bare LFs": b"0\n\n", "bare LF at last": b"0\r\n\n", "bare LF at first": b"0\n\r\n", "a bare CR": b"0\r\r\n", "CRs": b"0\r\r", "an extension": b"0;a=b\r\n\r\n",
        "a space": b"0 \r\n\r\n", "no last line end": b"0\r\n", "no line end": b"0", "NUL": b"0\0\r\n\r\n", "a hidden request for a trailer": b"0\r\n" + HIDDEN,
        "a hidden request in an extension": b"0;\n" + HIDDEN,
    }  # fmt: skip
    for what, last in lasts.items():
        case("last chunk", what, request(chunked, body=b"5\r\nhello\r\n" + last))
    trailers = {
        "a plain one": b"X: y", "bare LF": b"X: y\nZ: w", "a bare LF at its end": b"X: y\n\r\n", "folded": b"X: y\r\n z", "NUL": b"X: y\0", "no colon": b"nonsense",
        "empty name": b": y", "space before the colon": b"X : y", "Content-Length": b"Content-Length: 5", "Transfer-Encoding": b"Transfer-Encoding: chunked",
        "Host": b"Host: b", "bare CR": b"X: y\rz", "a space at first": b" X: y", "a request line": b"GET /hidden HTTP/1.1", "long": b"X: " + b"y" * 20000,
        "many": b"\r\n".join(b"X-%d: y" % i for i in range(100)), "a name with NUL": b"X\0: y", "a byte beyond ASCII": b"X: \xff",
    }  # fmt: skip
    for what, trailer in trailers.items():
        case("trailer", what, request(chunked, body=b"5\r\nhello\r\n0\r\n" + trailer + b"\r\n\r\n"))


def line_ends() -> None:
    """Line ends, folding, NUL and other controls, at each place."""
    places = {
        "after the request line": b"GET /x HTTP/1.1%sHost: a\r\nX: y\r\n\r\n",
        "after a header": b"GET /x HTTP/1.1\r\nHost: a%sX: y\r\n\r\n",
        "after the last header": b"GET /x HTTP/1.1\r\nHost: a\r\nX: y%s\r\n",
        "at the end of the head": b"GET /x HTTP/1.1\r\nHost: a\r\nX: y\r\n%s",
        "in a value": b"GET /x HTTP/1.1\r\nHost: a\r\nX: y%sz\r\n\r\n",
        "in a name": b"GET /x HTTP/1.1\r\nHost: a\r\nX%sY: z\r\n\r\n",
        "in the target": b"GET /x%sy HTTP/1.1\r\nHost: a\r\n\r\n",
        "in the method": b"GE%sT /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "in the version": b"GET /x HTTP/1%s.1\r\nHost: a\r\n\r\n",
        "before the request": b"%sGET /x HTTP/1.1\r\nHost: a\r\n\r\n",
    }
    ends = {"LF": b"\n", "CR": b"\r", "CR CR LF": b"\r\r\n", "LF CR": b"\n\r", "NUL": b"\0", "VT": b"\x0b", "FF": b"\x0c"}
    for place, form in places.items():
        for what, end in ends.items():
            case(f"{what} {place}", "", form.replace(b"%s", end))
    case("before the request", "a line end", b"\r\n" + HIDDEN)
    case("before the request", "two line ends", b"\r\n\r\n" + HIDDEN)
    case("before the request", "ten line ends", b"\r\n" * 10 + HIDDEN)
    case("before the request", "two LF", b"\n\n" + HIDDEN)
    case("before the request", "a space", b" " + HIDDEN)
    case("before the request", "a tab", b"\t" + HIDDEN)
    case("before the request", "a line of spaces", b"  \r\n" + HIDDEN)
    case("before the request", "a byte order mark", b"\xef\xbb\xbf" + HIDDEN)
    for what, byte in {"SOH": b"\x01", "DEL": b"\x7f", "80": b"\x80", "FF byte": b"\xff", "tab": b"\t", "ESC": b"\x1b", "no-break space": b"\xa0"}.items():
        case(f"{what} in a value", "", request(b"X: y" + byte + b"z", method=b"GET"))
        case(f"{what} in a name", "", request(b"X" + byte + b"Y: z", method=b"GET"))
        case(f"{what} in the target", "", request(method=b"GET", target=b"/x" + byte + b"y"))
    folds = {
        "with a space": b"X: y\r\n z", "with a tab": b"X: y\r\n\tz", "twice": b"X: y\r\n z\r\n w", "with nothing on the next line": b"X: y\r\n ", "a line of spaces": b"   ",
        "of an empty value": b"X:\r\n y", "of a length": b"Content-Length:\r\n 5", "of a length in the middle": b"Content-Length: 1\r\n 5", "by a bare LF": b"X: y\n z",
        "with a header within": b"X: y\r\n Content-Length: 5", "with VT": b"X: y\r\n\x0bz",
    }  # fmt: skip
    for what, fold in folds.items():
        case("folded", what, request(fold, body=HELLO if b"Length" in fold else b""))
    case("folded", "the first header", b"GET /x HTTP/1.1\r\n Host: a\r\n\r\n")
    case("folded", "the first header, Host behind it", b"GET /x HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n")
    case("folded", "Host", b"GET /x HTTP/1.1\r\nHost: a\r\n b\r\n\r\n")
    case("folded", "the request line", b"GET /x\r\n HTTP/1.1\r\nHost: a\r\n\r\n")


def request_lines() -> None:
    """Methods, white space, versions."""
    methods = [
        b"get", b"GeT", b"G ET", b"", b"GET:", b"(GET)", b"GET,POST", b"G\xc9T", b"1", b"_", b"M-SEARCH", b"BREW", b"PRI", b"GET/", b"GET\xa0", b'"GET"', b"A" * 100,
        b"A" * 10000, b"GET\tGET", b"!#$%&'*+-.^_`|~",
    ]  # fmt: skip
    each("method", methods, lambda method: request(method=method))
    case("method", "CONNECT with an authority", request(method=b"CONNECT", target=b"a:80"))
    case("method", "CONNECT with a path", request(method=b"CONNECT"))
    case("method", "TRACE", request(method=b"TRACE"))
    case("method", "TRACE with a body", request(b"Content-Length: 5", method=b"TRACE", body=HELLO))
    case("method", "OPTIONS *", request(method=b"OPTIONS", target=b"*"))
    case("method", "GET *", request(method=b"GET", target=b"*"))
    case("method", "HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    versions = [
        b"http/1.1", b"Http/1.1", b"HTTP/1.2", b"HTTP/1.9", b"HTTP/1.10", b"HTTP/1.01", b"HTTP/01.1", b"HTTP/1", b"HTTP/1.", b"HTTP/.1", b"HTTP/2.0", b"HTTP/2", b"HTTP/3.0",
        b"HTTP/0.9", b"HTTP/9.9", b"HTTP /1.1", b"HTTP/ 1.1", b"HTTP/1.1 ", b"HTTP/1.1\t", b" HTTP/1.1", b"\tHTTP/1.1", b"HTTPS/1.1", b"HTP/1.1", b"HTTP/1.1 x", b"HTTP/1,1",
        b"HTTP/+1.1", b"HTTP/1.-1", b"HTTP/1.1.1", b"HTTP-1.1", b"HTTP/1.1\x00", b"HTTP/\xb9.1", b"ICY/1.1", b"RTSP/1.0", b"HTTP/11", b"HTTP/1.1HTTP/1.1",
    ]  # fmt: skip
    each("version", versions, lambda version: request(method=b"GET", version=version))
    lines = [
        b"GET /x", b"GET", b"GET /x ", b"GET  /x HTTP/1.1", b"GET\t/x HTTP/1.1", b"GET /x\tHTTP/1.1", b"GET\x0b/x HTTP/1.1", b"GET /x\x0bHTTP/1.1", b"GET /x y HTTP/1.1",
        b"GET HTTP/1.1", b"GET /xHTTP/1.1", b"/x HTTP/1.1", b"HTTP/1.1 200 OK", b"GET\xa0/x\xa0HTTP/1.1", b"GET /x HTTP/1.1 HTTP/1.0", b"GET\x00/x HTTP/1.1", b":",
        b"Host: a", b"{}", b"GET /x HTTP/1.1;", b"GET 'x' HTTP/1.1",
    ]  # fmt: skip
    each("request line", lines, lambda line: line + b"\r\nHost: a\r\n\r\n")


def targets() -> None:
    """Absolute form, and what a path may be made of."""
    absolute = [
        b"http://a/x", b"http://b/x", b"https://a/x", b"http://a", b"http://a?x", b"http://a#x", b"http://a:80/x", b"http://a:99999/x", b"http://a:/x", b"http://user@a/x",
        b"http://a@b/x", b"http:///x", b"http:/x", b"http:x", b"//a/x", b"ftp://a/x", b"HTTP://a/x", b"Http://A/x", b"http://a\\b/x", b"http://[::1]/x", b"http://[::1/x",
        b"http://a%00/x", b"http://a,b/x", b"http://\xff/x", b"://a/x", b"1http://a/x", b"http://a/../x", b"http://a/x y", b"javascript:x", b"http://a:x/x",
    ]  # fmt: skip
    each("absolute form", absolute, lambda target: request(method=b"GET", target=target))
    each("absolute form without Host", [b"http://a/x", b"http://b/x", b"http:///x"], lambda t: request(method=b"GET", target=t, host=False))
    each("absolute form with an empty Host", [b"http://a/x"], lambda t: request(b"Host:", method=b"GET", target=t, host=False))
    each("absolute form with two Hosts", [b"http://a/x"], lambda t: request(b"Host: a", method=b"GET", target=t))
    others = [
        b"a/x", b"x", b"?x", b"#x", b"/x#y", b"/x?y#z", b"/x%", b"/x%0", b"/x%zz", b"/x%00", b"/x%0d%0aHost:%20b", b"/x%20y", b"/\xc3\xa9", b"/x\\y", b"\\x", b"/x|y",
        b"/x<y>", b'/x"y', b"/x{y}", b"/x^y`z", b"/../x", b"/%2e%2e/x", b"/x/../../y", b"/x/%2e%2e%2f%2e%2e/y", b"/x//y", b"//", b"/./x", b"/;x", b"/x;y=z", b"/x?a=%00",
        b"/x?\x80", b"/x??", b"/x&y", b"/" + b"x" * 4000, b"/" + b"x" * 40000, b"*/x", b"**", b"/x%2fy", b"/x%5cy", b"/x?a b",
    ]  # fmt: skip
    each("target", others, lambda target: request(method=b"GET", target=target))


def hosts() -> None:
    """Host: none, several, and what it may be made of."""
    values = [
        b"", b" ", b"a, b", b"a b", b"a/", b"a/b", b"a?b", b"a#b", b"user@a", b"@", b"a:", b"a:80", b"a:0", b"a:99999", b"a:x", b"a:80:80", b"a:-1", b"a:+80", b":80", b"[::1]",
        b"[::1]:80", b"[::1", b"::1", b"[a]", b"a\x00", b"\x00", b"\ta", b"a\\b", b"\xc3\xa9", b"a%00", b"a%20b", b"a..b", b".", b"..", b"-a", b"_a", b"A", b"a.", b"a,",
        b"a;b", b"a|b", b"a<b", b'"a"', b"a'", b"http://a", b"*", b"*.a", b"1.2.3.4", b"1.2.3.4.", b"999.1.1.1", b"a" * 255, b"a" * 300, b"a" * 9000, b"a!b$c", b"a\x7f",
    ]  # fmt: skip
    each("host", values, lambda value: request(b"Host: " + value, method=b"GET", host=False))
    case("host", "none", request(method=b"GET", host=False))
    case("host", "none in HTTP/1.0", request(method=b"GET", host=False, version=b"HTTP/1.0"))
    case("host", "two that agree", request(b"Host: a", method=b"GET"))
    case("host", "two that differ", request(b"Host: b", method=b"GET"))
    case("host", "two, one empty", request(b"Host:", method=b"GET"))
    case("host", "two in HTTP/1.0", request(b"Host: b", method=b"GET", version=b"HTTP/1.0"))
    names = [b"HOST", b"host", b"Host ", b"Host\t", b" Host", b"Host\x00", b"X-Host", b"Host:"]
    each("host name", names, lambda name: request(name + b": a", method=b"GET", host=False))
    each("second host name", names, lambda name: request(name + b": b", method=b"GET"))


def headers() -> None:
    """Names and values in general, and their number."""
    bad = b'()<>@,;\\"/[]?={} '
    for byte in bad:
        case("name with", bytes([byte]), request(b"X" + bytes([byte]) + b"Y: z", method=b"GET"))
    lines = [
        b": y", b":", b"nonsense", b"X", b"X y", b" ", b"X:", b"X:y", b"X:  y  ", b"X:\ty\t", b"X::y", b"X: y: z", b'X: "', b"\xc3\xa9: y", b"X_Y: z", b"_: z", b"X.Y: z",
        b"!#$%&'*+-.^_`|~: y", b"Proxy: b", b"GET /hidden HTTP/1.1", b"X: \xc3\xa9", b"X : y", b"X\t: y",
    ]  # fmt: skip
    each("header", lines, lambda line: request(line, method=b"GET"))
    case("header", "name of 200 letters", request(b"X" * 200 + b": y", method=b"GET"))
    case("header", "value of 4,000 letters", request(b"X: " + b"y" * 4000, method=b"GET"))
    case("header", "value of 200,000 letters", request(b"X: " + b"y" * 200000, method=b"GET"))
    case("header", "90 of them", request(*[b"X-%d: y" % i for i in range(90)], method=b"GET"))
    case("header", "2,000 of them", request(*[b"X-%d: y" % i for i in range(2000)], method=b"GET"))
    case("header", "none", b"GET /x HTTP/1.1\r\n\r\n")
    case("header", "none in HTTP/1.0", b"GET /x HTTP/1.0\r\n\r\n")


def connections() -> None:
    """What a client says about the connection."""
    values = [
        b"close", b"keep-alive", b"close, keep-alive", b"keep-alive, close", b"CLOSE", b"x", b"", b"Content-Length", b"Transfer-Encoding", b"Host", b"close close", b"closex",
        b"\tclose\t", b"upgrade", b",close", b"close;q=1",
    ]  # fmt: skip
    each("connection", values, lambda value: request(b"Connection: " + value, method=b"GET"))
    each("connection in HTTP/1.0", [b"keep-alive", b"close", b"x", b"Keep-Alive, x"], lambda v: request(b"Connection: " + v, method=b"GET", version=b"HTTP/1.0"))
    case("connection", "none in HTTP/1.0", request(method=b"GET", version=b"HTTP/1.0"))
    case("connection", "two that differ", request(b"Connection: keep-alive", b"Connection: close", method=b"GET"))
    case("connection", "names Content-Length, with a body", request(b"Connection: Content-Length", b"Content-Length: 5", body=HELLO))
    case("connection", "names Transfer-Encoding, with a body", request(b"Connection: Transfer-Encoding", b"Transfer-Encoding: chunked", body=CHUNKED_HELLO))
    case("connection", "Proxy-Connection: close", request(b"Proxy-Connection: close", method=b"GET"))
    for protocol in (b"h2c", b"websocket", b"TLS/1.0", b"HTTP/2.0", b"x"):
        case("upgrade to", protocol, request(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: " + protocol, b"HTTP2-Settings: AAMAAABkAAQAAP__", method=b"GET"))
    case("upgrade to", "h2c with a body", request(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk", b"Content-Length: 5", body=HELLO))
    for value in (b"100-continue", b"100-Continue", b"200-ok", b"", b"100-continue, x", b"x"):
        case("expect", value, request(b"Expect: " + value, b"Content-Length: 5", body=HELLO))
    case("expect", "without a body", request(b"Expect: 100-continue", method=b"GET"))
    case("expect", "with chunks", request(b"Expect: 100-continue", b"Transfer-Encoding: chunked", body=CHUNKED_HELLO))
    case("expect", "in HTTP/1.0", request(b"Expect: 100-continue", b"Content-Length: 5", b"Connection: keep-alive", body=HELLO, version=b"HTTP/1.0"))


def pipelines() -> None:
    """Several requests, and what only looks like one."""
    get = request(method=b"GET", target=b"/one")
    chunked, length = b"Transfer-Encoding: chunked", b"Content-Length: %d"
    case("pipeline", "two", get + HIDDEN)
    case("pipeline", "five", get * 5)
    case("pipeline", "HEAD, then GET", request(method=b"HEAD") + HIDDEN)
    case("pipeline", "a length, then GET", request(length % 5, body=HELLO) + HIDDEN)
    case("pipeline", "chunks, then GET", request(chunked, body=CHUNKED_HELLO) + HIDDEN)
    case("pipeline", "line ends between", get + b"\r\n\r\n" + HIDDEN)
    case("pipeline", "a bare LF between", get + b"\n" + HIDDEN)
    case("pipeline", "a NUL between", get + b"\0" + HIDDEN)
    case("pipeline", "close, then GET", request(b"Connection: close", method=b"GET") + HIDDEN)
    case("pipeline", "HTTP/1.0, then GET", request(method=b"GET", version=b"HTTP/1.0") + HIDDEN)
    case("pipeline", "GET, then what is none", get + b"nonsense\r\n\r\n" + HIDDEN)
    case("pipeline", "GET, then two lengths", get + request(length % 5, length % 6, body=HELLO))
    case("pipeline", "GET, then bare LF", get + b"GET /x HTTP/1.1\nHost: a\n\n")
    case("CL.TE", "a request behind the last chunk", request(length % (5 + len(HIDDEN)), chunked, body=b"0\r\n\r\n" + HIDDEN))
    case("CL.TE", "a prefix", request(length % 6, chunked, body=b"0\r\n\r\nG"))
    case("TE.CL", "a request in a chunk", request(chunked, length % 4, body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)))
    case("TE.TE", "obscured by case and a name", request(chunked, b"Transfer-encoding: cow", length % 4, body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)))
    case("TE.TE", "obscured by a space", request(b"Transfer-Encoding : chunked", length % 4, body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)))
    case("TE.0", "OPTIONS", request(chunked, method=b"OPTIONS", body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)))
    case("CL.0", "a file", request(length % len(HIDDEN), target=b"/plain.txt", body=HIDDEN))
    case("CL.0", "a file by GET", request(length % len(HIDDEN), target=b"/plain.txt", body=HIDDEN, method=b"GET"))
    case("TE.0", "a file", request(chunked, target=b"/plain.txt", body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)))
    case("CL.0", "what is not there", request(length % len(HIDDEN), target=b"/.nothing", body=HIDDEN))
    case("0.CL", "a length behind a space", request(b"Content-Length : %d" % len(HIDDEN), body=HIDDEN))
    case("0.CL", "a length with a plus", request(b"Content-Length: +%d" % len(HIDDEN), body=HIDDEN))
    case("0.CL", "expect", request(b"Expect: 100-continue", length % len(HIDDEN), body=HIDDEN))
    case("extension", "ended by LF, hides a chunk", request(chunked, body=b"2;\nxx\r\n4\r\n0\r\n\r\n\r\n0\r\n\r\n" + HIDDEN))
    case("extension", "ended by CR, hides a request", request(chunked, body=b"5;a\rhello\r\n0\r\n\r\n" + HIDDEN))
    case("extension", "quoted line end", request(chunked, body=b'5;a="\r\n"\r\nhello\r\n0\r\n\r\n' + HIDDEN))
    case("spill", "two bytes behind a chunk", request(chunked, body=b"5\r\nhelloXX2\r\nxx\r\n0\r\n\r\n" + HIDDEN))
    case("response", "split in a value", request(b"X: y\r\n\r\n" + HIDDEN, method=b"GET"))
    case("incomplete", "a head without its end", b"GET /x HTTP/1.1\r\nHost: a\r\n")
    case("incomplete", "a header without its value", b"GET /x HTTP/1.1\r\nHost: a\r\nX: ")
    case("incomplete", "a request line", b"GET /x")
    case("other protocol", "TLS", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\r\n\r\n")
    case("other protocol", "SSH", b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    case("other protocol", "SMTP", b"EHLO a\r\n\r\n")
    case("other protocol", "a PROXY header", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + HIDDEN)
    case("other protocol", "nothing but line ends", b"\r\n\r\n\r\n\r\n")
    case("other protocol", "FastCGI", b"\x01\x01\x00\x01\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\r\n\r\n")


for theme in (lengths, codings, chunks, line_ends, request_lines, targets, hosts, headers, connections, pipelines):
    theme()
