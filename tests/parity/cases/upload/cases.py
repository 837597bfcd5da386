"""File uploads: $_FILES and its errors, move_uploaded_file(), and what is left afterwards."""

from __future__ import annotations

from parity.dsl import BOUNDARY, UPLOAD_NAME, Case, field, file, get, part, post

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + bytes(range(256))
END = f"--{BOUNDARY}--\r\n".encode()
TYPE = f"multipart/form-data; boundary={BOUNDARY}"


def broken(body: bytes, label: str, type: str = TYPE, **how):
    return post("", body=body, type=type, label=label, **how)


CASES = [
    Case(
        "files",
        post("", parts=[file("f", "a.txt", "hello")], label="one"),
        post("", parts=[file("f", "a.png", PNG, "image/png")], label="binary"),
        post("", parts=[file("f", "a.txt", "one"), file("g", "b.txt", "two")], label="two names"),
        post("", parts=[file("f", "a.txt", "one"), file("f", "b.txt", "two")], label="the same name twice"),
        post("", parts=[file("f[]", "a.txt", "one"), file("f[]", "b.txt", "two")], label="an array"),
        post("", parts=[file("f[a][b]", "a.txt", "one"), file("f[a][c]", "b.txt", "two")], label="nested"),
        post("", parts=[file("f[x]", "a.txt", "one"), file("f[]", "b.txt", "two")], label="mixed keys"),
        post("", parts=[file("f", "", "", "application/octet-stream")], label="no file"),
        post("", parts=[file("f[]", "", ""), file("f[]", "b.txt", "two")], label="no file in an array"),
        post("", parts=[file("f", "empty.txt", "")], label="an empty file"),
        post("", parts=[field("before", "1"), file("f", "a.txt", "x"), field("after", "2")], label="fields around"),
        post("", parts=[field("a[]", "1"), field("a[]", "2"), field("b[c]", "3")], label="only fields"),
        post("", parts=[file("f", "dir/sub/a.txt", "x")], label="a path"),
        post("", parts=[file("f", "C:\\\\dir\\\\a.txt", "x")], label="a Windows path"),
        post("", parts=[file("f", "../../etc/passwd", "x")], label="a path upwards"),
        post("", parts=[file("f", 'quo\\"te.txt', "x")], label="a quote"),
        post("", parts=[file("f", "é ü 中.txt", "x")], label="UTF-8"),
        post("", parts=[file("f", "%41%2e.txt", "x")], label="percent signs"),
        post("", parts=[file("f", "nul\0.php", "x")], label="NUL"),
        post("", parts=[file("f", ".htaccess", "x")], label="a dotfile"),
        post("", parts=[file("f", "n" * 300, "x")], label="300 characters"),
        post("", parts=[file("f", "a.txt", "x", None)], label="no type"),
        post("", parts=[file("f", "a.txt", "x", "text/plain; charset=utf-8")], label="a type with parameters"),
        post("", parts=[part("name=f; filename=plain.txt", "x")], label="without quotes"),
        post("", parts=[part("name='f'; filename='single.txt'", "x")], label="single quotes"),
        post("", parts=[part('filename="a.txt"; name="f"', "x")], label="filename first"),
        post("", parts=[part("name=\"f\"; filename*=UTF-8''na%C3%AFve.txt", "x")], label="filename*"),
        post(
            "",
            parts=[part('name="f"; filename="a.txt"; filename*=UTF-8\'\'b.txt', "x")],
            label="filename and filename*",
        ),
        post("", parts=[part('name="f"', "x", None, "Content-Transfer-Encoding: base64")], label="transfer encoding"),
        post("", parts=[part('filename="a.txt"', "x")], label="no name"),
        post("", parts=[part('name=""', "x")], label="an empty name"),
        post("", parts=[part('name="a.b c[d e]"', "x")], label="dots and spaces"),
        post("", parts=[file("f.g h", "a.txt", "x")], label="a file with dots and spaces"),
        post("", parts=[file("f[", "a.txt", "x")], label="an open bracket"),
        post("", parts=[field("a", b"\r\n--x\r\n--\r\n")], label="what looks like a boundary"),
        post("", parts=[file("f", "a.txt", "x" * 5000 + "\r\n")], label="5000 bytes and a line end"),
        post("", parts=[field("MAX_FILE_SIZE", "10"), file("f", "a.txt", "x" * 11)], label="MAX_FILE_SIZE exceeded"),
        post("", parts=[field("MAX_FILE_SIZE", "10"), file("f", "a.txt", "x" * 10)], label="MAX_FILE_SIZE kept"),
        post("", parts=[file("f", "a.txt", "x" * 11), field("MAX_FILE_SIZE", "10")], label="MAX_FILE_SIZE too late"),
        post("", parts=[], label="no parts"),
        post("", parts=[file("f", "a.bin", bytes(range(256)) * 20000)], label="a file of 5 MB", wait=0),
        post("", parts=[file(f"f{number}", "a", "x") for number in range(22)], label="22 of 20 files"),
        normalise=[UPLOAD_NAME],
        doc="$_FILES",
    ),
    Case(
        "files",
        broken(b"", "empty body"),
        broken(b"garbage", "no boundary in the body"),
        broken(field("a", "1")[:-2], "field cut off"),
        broken(file("f", "a.txt", "cut off here")[:-8], "file cut off"),
        broken(field("a", "1"), "no end"),
        broken(field("a", "1") + END + b"epilogue", "an epilogue"),
        broken(b"preamble\r\n" + field("a", "1") + END, "a preamble"),
        broken((field("a", "1") + END).replace(b"\r\n", b"\n"), "line feeds only"),
        broken(field("a", "1") + END, "no boundary in the type", "multipart/form-data"),
        broken(field("a", "1") + END, "an empty boundary", "multipart/form-data; boundary="),
        broken(field("a", "1") + END, "a quoted boundary", f'multipart/form-data; boundary="{BOUNDARY}"'),
        broken(field("a", "1") + END, "an open quote", f'multipart/form-data; boundary="{BOUNDARY}'),
        broken(
            field("a", "1") + END, "more parameters", f"multipart/form-data; charset=utf-8; boundary={BOUNDARY}; x=y"
        ),
        broken(field("a", "1") + END, "another boundary", "multipart/form-data; boundary=other"),
        broken(field("a", "1") + END, "in capitals", f"MULTIPART/FORM-DATA; BOUNDARY={BOUNDARY}"),
        broken(field("a", "1") + END, "another multipart type", f"multipart/mixed; boundary={BOUNDARY}"),
        broken(f"--{BOUNDARY}\r\n\r\nno header\r\n".encode() + END, "a part without headers"),
        broken(
            f'--{BOUNDARY}\r\nContent-Disposition: attachment; name="a"\r\n\r\nx\r\n'.encode() + END, "an attachment"
        ),
        broken(
            f'--{BOUNDARY}\r\nX-Fold: a\r\n b\r\nContent-Disposition: form-data;\r\n name="a"\r\n\r\nx\r\n'.encode()
            + END,
            "folded headers",
        ),
        broken(field("a", "1") + END, "a boundary of 6000 bytes", "multipart/form-data; boundary=" + "b" * 6000),
        name="malformed",
        normalise=[UPLOAD_NAME],
        doc="forms that are not quite multipart",
    ),
    Case(
        "move", post("", parts=[file("f", "a.txt", "moved content")]), doc="is_uploaded_file() and move_uploaded_file()"
    ),
    Case(
        "leftover",
        *[
            made
            for end in ("", "?end=exit", "?end=error", "?end=throw")
            for made in (post(end, parts=[file("f", "a.txt", "x")]), get("", label=f"after {end}"))
        ],
        doc="temporary files are removed",
    ),
    Case("off", post("", parts=[field("a", "1"), file("f", "a.txt", "x")]), profile="hardened", doc="file_uploads off"),
]
