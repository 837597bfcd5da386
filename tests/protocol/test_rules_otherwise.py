"""Requests written so that a rule might not know them, or give them more than it means to; and what nginx's words become."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lib.client import Response, encode, exchange
from lib.servers import Hayate

from .test_rules import PASSWORD, ask, basic, hashed, write

#: What visitors do not get by its name.
HIDDEN = ("dump.sql", "backup/access.log", "x.bak")

RULES = """
[limits]
body_size = "1M"

[[app]]
root = "{root}"
hosts = ["www.test", "staging.test", "a.test"]
front_controller = "index.php"
request_timeout = "1s"
sendfile_roots = ["{files}"]

[[app.rule]]
header = {{ host = "^staging\\\\.test$" }}
deny = 403

[[app.rule]]
header = {{ host = "^www\\\\." }}
redirect = "https://a.test$request_uri"

[[app.rule]]
path = "/secret"
deny = 403

[[app.rule]]
path = "/protected"
deny = 404

[[app.rule]]
path = "/protected"
alias = "{files}"

[[app.rule]]
path = "/upload"
max_body = "2M"
timeout = "5s"

[[app.rule]]
path = "/small"
max_body = 10

[[app.rule]]
path = "/admin"
basic_auth = {{ users = "users" }}

[[app.rule]]
path = "/here"
allow = ["127.0.0.0/8"]

[[app.rule]]
glob = "/**/*.{{css,js}}"
cache_control = "public, max-age=60, s-maxage=600"

[[app.rule]]
regex = "^/f(.*)$"
rewrite = "/files/$1"
stop = true

[[app.rule]]
regex = "^/q/(.*)$"
rewrite = "/info.php?id=$1?"

[[app.rule]]
regex = "^/r/(.*)$"
redirect = "/new?id=$1?"
"""
INFO = "<?php usleep((int) ($_GET['us'] ?? 0)); echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['QUERY_STRING'], ' ', strlen(file_get_contents('php://input'));"
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def server(hayate_command, tmp_path_factory) -> Iterator[Hayate]:
    home = tmp_path_factory.mktemp("otherwise")
    home.chmod(0o755)
    files = write(home / "outside", {"a.pdf": "the pdf", "b.php": "<?php source", "b.php.bak": "<?php source", ".git/config": "closed", **dict.fromkeys(HIDDEN, "for who may")})
    root = write(
        home / "site",
        {
            "index.php": "<?php echo 'front ', $_SERVER['REQUEST_URI'];",
            "info.php": INFO,
            "admin/index.php": "<?php echo 'ADMIN';",
            "here/index.php": "<?php echo 'HERE';",
            "app.css": "css",
            "secret/x.txt": "SECRET",
            "files/x.txt": "a file",
            **dict.fromkeys(HIDDEN, "for who may"),
            "admin/app.css": "css",
            "here/app.css": "css",
            "send.php": "<?php header('X-Accel-Redirect: ' . $_GET['to']);",
        },
    )
    (home / "users").write_text(f"anna:{hashed(PASSWORD)}\n")
    (home / "hayate.toml").write_text(RULES.format(root=root, files=files))
    with Hayate(config=home / "hayate.toml", workers=2) as hayate:
        yield hayate


def to_host(server: Hayate, host: str, target: str = "/") -> Response:
    answer = exchange(("127.0.0.1", server.port), encode("GET", target, [("Host", host), ("Connection", "close")], b""))
    assert answer is not None
    return answer


@pytest.mark.parametrize("host", ["staging.test", "STAGING.test", "staging.test.", "staging.test:80", "staging.test:", "Staging.Test.:80"])
def test_a_host_has_one_reading(server, host: str) -> None:
    assert to_host(server, host).status == 403
    assert to_host(server, "a.test", f"http://{host}/").status == 403
    assert to_host(server, host.lower().replace("staging", "a")).status == 200


@pytest.mark.parametrize("host", ["www.test", "WWW.test:8080"])
def test_a_redirect_to_what_was_asked_for(server, host: str) -> None:
    for target in ("/x%2fy//z?b=%41&c", "/", "//evil.test/", "/a?"):
        answer = to_host(server, host, target)
        assert (answer.status, dict(answer.headers)["Location"]) == (302, f"https://a.test{target}")


def test_a_question_mark_at_the_end_drops_what_the_visitor_asked(server) -> None:
    assert ask(server, "/q/5?x=1").body == b"/info.php id=5 0"
    assert dict(ask(server, "/r/5?x=1").headers)["Location"] == "/new?id=5"


def test_no_group_leads_past_earlier_rules(server) -> None:
    assert ask(server, "/fx.txt").body == b"a file"
    assert ask(server, "/secret/x.txt").status == 403
    for target in ("/f../secret/x.txt", "/f%2e%2e/secret/x.txt", "/f..%2fsecret/x.txt", "/f./x.txt"):
        answer = ask(server, target)
        assert answer.status == 400 and b"SECRET" not in answer.body, target


def test_nobody_gets_the_limits_of_another_page(server) -> None:
    body = b"x" * (MEGABYTE + 1)
    assert ask(server, "/upload", method="POST", body=body).status == 200
    assert ask(server, "/info.php", method="POST", body=body).status == 413
    assert ask(server, "/info.php?us=1500000").status == 504
    assert ask(server, "/upload").status == 200
    for target in ("//info.php/upload", "//x/upload"):
        assert ask(server, target, method="POST", body=body).status == 413, target
    assert ask(server, "//info.php/upload?us=1500000").status == 504
    # Less, in whatever way it is written.
    for target in ("/small", "//info.php/small", "//x/small", "/index.php/small"):
        assert ask(server, target, method="POST", body=b"x" * 11).status == 413, target


def test_what_a_password_opens_is_for_no_shared_cache(server) -> None:
    def cached(target: str, *headers: tuple[str, str]) -> str | None:
        answer = ask(server, target, *headers)
        assert answer.status == 200, target
        return dict(answer.headers).get("Cache-Control")

    anna = basic("anna", PASSWORD)
    assert cached("/app.css") == "public, max-age=60, s-maxage=600"
    for target, headers in {"/admin/app.css": [anna], "/here/app.css": [], "/app.css": [anna]}.items():
        assert cached(target, *headers) == "private, max-age=60", target
    # Of a page of the application its scripts say who may keep it, whatever its path looks like.
    for target, headers in {"/account/x.css": [], "/info.php/x.css": [], "/admin/index.php/x.css": [anna]}.items():
        assert cached(target, *headers) is None, target


def test_a_script_sends_what_an_alias_has(server) -> None:
    assert ask(server, "/protected/a.pdf").status == 404
    assert ask(server, "/send.php?to=/protected/a.pdf").body == b"the pdf"
    assert ask(server, "/send.php?to=/secret/x.txt").body == b"SECRET"
    for target in ("/protected/b.php", "/protected/b.php.bak", "/protected/.git/config", "/protected/none", "/protected/../../site/app.css", "/info.php"):
        assert ask(server, f"/send.php?to={target}").status == 404, target


def test_a_script_sends_what_visitors_do_not_get_by_its_name(server) -> None:
    for name in HIDDEN:
        for target in (f"/protected/{name}", f"/{name}"):
            assert ask(server, target).status == 404, target
            assert ask(server, f"/send.php?to={target}").body == b"for who may", target


def test_dots_go_past_no_deny_of_an_application(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"index.php": "<?php echo $_SERVER['REQUEST_URI'];"})
    with Hayate(config=f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\ndeny = ["/admin"]\n', workers=1) as hayate:
        assert ask(hayate, "/admin/x").status == 404
        for target, status in {"/admin/x/../../y": 400, "/admin/%2e%2e/y": 400, "/x/%2e/y": 400, "/x/../admin": 404}.items():
            assert ask(hayate, target).status == status, target
        assert ask(hayate, "/open").body == b"/open"


def test_a_network_of_ipv4_is_one_however_it_is_written(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"index.php": "<?php echo 'open';"})
    rule = '[[app.rule]]\naddress = ["::ffff:127.0.0.0/104"]\ndeny = 403\n'
    with Hayate(config=f'[[app]]\nroot = "{root}"\n{rule}', workers=1) as hayate:
        assert ask(hayate, "/").status == 403

