"""`error_pages`: a site's own pages for the errors that Hayate answers with, beside nginx's `error_page`."""

from __future__ import annotations

import subprocess

import pytest

from lib.servers import Hayate, hayate_binary

from .test_rules import ask, write

FILES = {
    "404.html": "<h1>Nothing here, by us</h1>",
    "errors/busy.html": "<h1>Back soon</h1>" + " " * 3000,
    "errors/refused.json": '{"error": "refused"}',
    "large.html": "x" * 70_000,
    "index.html": "front page",
    "below/file.txt": "text",
    "script.php": "<?php http_response_code(404); echo 'the script says so';",
    "dies.php": "<?php exec('kill -9 '.getmypid()); sleep(10);",
    "broken.php": "<?php http_response_code(500); exit;",
}
CONFIG = """
[limits]
body_size = "100"
[[app]]
root = "{root}"
{more}
deny = ["/errors"]
error_pages = {{ 404 = "/404.html", 403 = "errors/refused.json", 410 = "large.html", 413 = "gone.html", 405 = "/404.html", 5xx = "/errors/busy.html" }}
[[app.rule]]
path = "/closed"
deny = 403
[[app.rule]]
path = "/teapot"
deny = 418
[[app.rule]]
path = "/gone"
deny = 410
[[app.rule]]
path = "/said"
respond = "a rule says so"
status = 404
[[app.rule]]
path = "/secret"
deny = 503
"""


def check(config) -> subprocess.CompletedProcess[str]:
    return subprocess.run([hayate_binary(), "check", "--config", config], capture_output=True, text=True, timeout=60)


@pytest.fixture(params=["php", "static"])
def server(request, hayate_command, tmp_path):
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", FILES)
    config = tmp_path / "hayate.toml"
    config.write_text(CONFIG.format(root=root, more='php = "off"' if request.param == "static" else ""))
    with Hayate(config=config, user="www-data", **({} if request.param == "static" else {"workers": 1})) as hayate:
        hayate.is_static, hayate.root = request.param == "static", root
        yield hayate


def test_an_error_of_hayates_own_has_the_sites_page(server) -> None:
    for target in ("/nothing", "/below/nothing?x", "/errors/busy.html", "/.env", "//nothing"):
        answer = ask(server, target)
        assert (answer.status, answer.body.decode()) == (404, FILES["404.html"]), target
        assert dict(answer.headers)["Content-Type"] == "text/html"
    refused = ask(server, "/closed/x")
    assert (refused.status, refused.body.decode()) == (403, FILES["errors/refused.json"])
    assert dict(refused.headers)["Content-Type"] == "application/json"
    busy = ask(server, "/secret")
    assert (busy.status, busy.body.decode()) == (503, FILES["errors/busy.html"])
    # It is no answer to what was asked for: neither part of it nor "you have it already".
    for headers in ([("Range", "bytes=0-3")], [("If-None-Match", "*")], [("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT")]):
        answer = ask(server, "/nothing", *headers)
        assert (answer.status, answer.body.decode()) == (404, FILES["404.html"]), headers
        assert not {"ETag", "Last-Modified", "Accept-Ranges", "Content-Range"} & dict(answer.headers).keys()
    head = ask(server, "/nothing", method="HEAD")
    assert (head.status, head.body, dict(head.headers)["Content-Length"]) == (404, b"", str(len(FILES["404.html"])))
    other = ask(server, "/below/file.txt", method="DELETE")
    assert (other.status, dict(other.headers)["Allow"], other.body.decode()) == (405, "GET, HEAD", FILES["404.html"])
    packed = ask(server, "/secret", ("Accept-Encoding", "gzip"))
    assert (packed.status, dict(packed.headers)["Content-Encoding"]) == (503, "gzip") and len(packed.body) < 200


def test_what_has_no_page_has_hayates(server) -> None:
    assert b"418" in ask(server, "/teapot").body
    # Larger than a page may be, and not there.
    assert b"gone for good" in ask(server, "/gone").body
    said = ask(server, "/said")
    assert (said.status, said.body) == (404, b"a rule says so")
    assert ask(server, "/404.html").status == 200
    (server.root / "404.html").unlink()
    assert b"There is nothing here" in ask(server, "/nothing").body
    (server.root / "404.html").write_text("new")
    assert ask(server, "/nothing").body == b"new"
    # Neither what is not there nor what others may not read.
    (server.root / "404.html").unlink()
    (server.root / "404.html").symlink_to("/etc/shadow")
    assert b"There is nothing here" in ask(server, "/nothing").body
    # Each says why by itself.
    assert all(f"error_pages: /{name}.html below" in server.log() for name in ("large", "404"))
    for where in (server.log(), check(server._config).stdout):
        assert "gone.html: No such file" in where and "large.html: expected 65536 bytes at most, found 70000" in where, where


def test_what_a_script_answers_is_the_scripts(server) -> None:
    if server.is_static:
        assert ask(server, "/script.php").body.decode() == FILES["404.html"]
        return
    answer = ask(server, "/script.php")
    assert (answer.status, answer.body) == (404, b"the script says so")
    broken = ask(server, "/broken.php")
    assert (broken.status, broken.body) == (500, b"")
    died = ask(server, "/dies.php")
    assert (died.status, died.body.decode()) == (502, FILES["errors/busy.html"])
    assert ask(server, "/script.php", method="POST", body=b"x" * 200).status == 413
    assert ask(server, "/nothing.php").body.decode() == FILES["404.html"]


@pytest.mark.parametrize(
    ("pages", "said"),
    [
        ('399 = "/a.html"', "'399' is no status of an error; write 400 to 599, 4xx or 5xx"),
        ('"04" = "/a.html"', "'04' is no status"),
        ('404 = "/a.php"', "'/a.php' is no page: expected a file below the document root, no dotfile and no script, such as /404.html"),
        ('404 = "/../a.html"', "is no page"),
        ('404 = "/a//b.html"', "is no page"),
        ('404 = "/"', "is no page"),
        ('5xx = ".env"', "is no page"),
    ],
)
def test_what_is_no_page_is_refused(hayate_command, tmp_path, pages, said) -> None:
    root = write(tmp_path / "site", {"index.html": ""})
    config = tmp_path / "hayate.toml"
    config.write_text(f'[[app]]\nroot = "{root}"\nphp = "off"\nerror_pages = {{ {pages} }}\n')
    done = check(config)
    assert done.returncode != 0 and "hayate.toml:4: error_pages: '" in done.stderr and said in done.stderr, done.stderr
