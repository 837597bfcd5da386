"""Rules of a site: each condition and each action, their order, and ways past them beside nginx with the same rules."""

from __future__ import annotations

import base64
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
import requests

from lib import over, site
from lib.client import Response, encode, exchange
from lib.process import temporary_directory, wait_until
from lib.servers import PHP, PHP_VERSION, Hayate, NginxFpm, hayate_binary, running

SHOW = """<?php header('Content-Type: text/plain'); header('X-Powered-By: test'); header('Cache-Control: private');
header('Expires: 0');
echo $_SERVER['SCRIPT_NAME'], '|', $_SERVER['PATH_INFO'] ?? '', '|', $_SERVER['QUERY_STRING'], '|',
    $_SERVER['REQUEST_URI'], '|', $_SERVER['REMOTE_USER'] ?? '', '|', strlen(file_get_contents('php://input'));"""
PASSWORD = "correct: horse"


def hashed(password: str) -> str:
    """As `htpasswd -B` makes it, quickly."""
    code = "echo password_hash($argv[1], PASSWORD_BCRYPT, ['cost' => 4]);"
    return subprocess.run([PHP, "-r", code, "--", password], check=True, capture_output=True, text=True).stdout


def basic(name: str, password: str) -> tuple[str, str]:
    return "Authorization", "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def ask(server, target: str | bytes, *headers: tuple[str, str], method: str = "GET", body: bytes = b"") -> Response:
    fields = [("Host", "a.test"), ("Connection", "close"), *headers]
    if body:
        fields.append(("Content-Length", str(len(body))))
    answer = exchange(("127.0.0.1", server.port), encode(method, target, fields, body))
    assert answer is not None
    return answer


def write(root: pathlib.Path, files: dict[str, str]) -> pathlib.Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


RULES = """
[[app.rule]]
headers = {{ set = {{ X-Frame-Options = "DENY" }}, add = {{ X-Rule = "one" }}, remove = ["X-Powered-By"] }}

[[app.rule]]
path = "/old"
regex = "^/old/(?<rest>.*)$"
redirect = "/new/$rest"
status = 301

[[app.rule]]
regex = "^/to-other"
redirect = "https://other.test$path?"

[[app.rule]]
path = "/said"
respond = "said: {{\\"a\\": 1}}\\n"

[[app.rule]]
path = ["/empty", "/sub/empty.php"]
respond = ""
status = 204

[[app.rule]]
path = "/typed"
respond = "[]"
status = 404
headers = {{ set = {{ Content-Type = "application/json" }} }}

[[app.rule]]
path = ["/closed.php", "/closed/index.php"]
respond = "closed"
status = 403

[[app.rule]]
path = "/for-us"
allow = ["192.0.2.0/24"]
respond = "for us"

[[app.rule]]
path = "/page"
regex = "^/page/(.+)$"
rewrite = "/show.php?page=$1"

[[app.rule]]
path = "/chain"
rewrite = "/denied/chain"

[[app.rule]]
path = ["/denied", "/gone"]
deny = 410

[[app.rule]]
glob = "/**/*.{{css,js}}"
cache_control = "public, max-age=3600"

[[app.rule]]
path = "/open"
stop = true

[[app.rule]]
path = ["/staff", "/open"]
basic_auth = {{ users = "users", realm = "Staff" }}

[[app.rule]]
path = "/show.php"
method = "DELETE"
deny = 405

[[app.rule]]
header = {{ user-agent = "(?i)badbot" }}
deny = 403

[[app.rule]]
path = "/nobody"
allow = ["192.0.2.0/24"]

[[app.rule]]
path = "/us"
allow = ["127.0.0.0/8", "::1"]

[[app.rule]]
address = "203.0.113.7"
deny = 451

[[app.rule]]
path = "/assets"
alias = "assets"

[[app.rule]]
path = "/small.php"
max_body = 10

[[app.rule]]
path = "/large.php"
max_body = "1M"

[[app.rule]]
path = "/slow.php"
timeout = "60s"

[[app.rule]]
path = "/quick.php"
timeout = "500ms"

[[app.rule]]
path = "/often"
rate = {{ requests = 2, per = "1h", burst = 3 }}

[[app.rule]]
path = "/once"
rate = {{ requests = 1, per = "1h", burst = 0 }}

[[app.rule]]
path = "/keyed"
rate = {{ requests = 1, per = "1h", burst = 0, by = "header:X-Key" }}
"""


@pytest.fixture(scope="module")
def server(hayate_command, tmp_path_factory) -> Iterator[Hayate]:
    base = tmp_path_factory.mktemp("rules")
    base.chmod(0o755)
    root = write(
        base / "site",
        {
            "show.php": SHOW,
            "small.php": SHOW,
            "closed.php": SHOW,
            "closed/index.php": SHOW,
            "large.php": SHOW,
            "slow.php": "<?php usleep(8000000); echo 'slow';",
            "quick.php": "<?php usleep(4000000); echo 'quick';",
            "a.css": "a{}",
            "staff/index.php": SHOW,
            "open/a.txt": "open",
            "often/a.txt": "often",
            "keyed/a.txt": "keyed",
            "once/a.txt": "once",
            "nobody/a.txt": "x",
            "us/a.txt": "us",
            "assets/in-root.txt": "of the root",
        },
    )
    write(base / "assets", {"logo.svg": "<svg/>", "d/index.html": "index", "run.php": "<?php echo 'ran';", ".env": "x", "a.bak": "x"})
    (base / "users").write_text(f"# staff\nanna:{hashed(PASSWORD)}:since May: third floor\nanna:{hashed('another')}\n")
    config = base / "hayate.toml"
    config.write_text(
        'trusted_proxies = ["127.0.0.9"]\nhttp2_prior_knowledge = true\n[limits]\nbody_size = "100K"\n'
        f'[[app]]\nname = "rules"\nroot = "{root}"\nrequest_timeout = "6s"\n' + RULES.format()
    )
    with Hayate(config=config, workers=2) as hayate:
        yield hayate


def test_redirects(server) -> None:
    answer = ask(server, "/old/a%20b/c?x=1")
    assert (answer.status, answer.header("location")) == (301, "/new/a%20b/c?x=1")
    answer = ask(server, "/to-other/%C3%A9?x=1")
    assert (answer.status, answer.header("location")) == (302, "https://other.test/to-other/%C3%A9")
    assert ask(server, "/older/x").status == 404
    for evil in ["/old//evil.test", "/old/%5Cevil.test", "/old/%0d%0aSet-Cookie:%20a=b"]:
        location = ask(server, evil).header("location")
        assert location is not None and location.startswith("/new/") and "\\" not in location


def test_answers_of_their_own(server) -> None:
    text = b'said: {"a": 1}\n'
    for method, body in [("GET", b""), ("POST", b"x" * 100_000), ("HEAD", b"")]:
        answer = ask(server, "/said/x?y", method=method, body=body)
        assert (answer.status, answer.header("content-type"), answer.header("content-length")) == (200, "text/plain; charset=utf-8", str(len(text)))
        assert answer.body == (b"" if method == "HEAD" else text) and answer.values("x-rule") == ["one"]
    for target in ["/empty", "/sub/empty.php"]:
        answer = ask(server, target)
        assert (answer.status, answer.body, answer.header("content-type"), answer.header("content-length")) == (204, b"", None, None)
    answer = ask(server, "/typed")
    assert (answer.status, answer.values("content-type"), answer.body) == (404, ["application/json"], b"[]")
    assert ask(server, "/for-us").status == 403
    # One that refuses holds for every way to a script, as deny does.
    for target in ["/closed.php", "/closed.php/x", "/closed.php/x/y.php?z", "/closed", "/closed/", "/closed/index.php", "/closed/index.php/x", "/x/../closed.php"]:
        answer = ask(server, target)
        assert answer.status == (400 if ".." in target else 301 if target == "/closed" else 403), target


def test_rewrites_keep_what_was_asked_for(server) -> None:
    answer = ask(server, "/page/a&b%20c?x=1")
    assert answer.body.decode().split("|")[:4] == ["/show.php", "", "page=a%26b%20c&x=1", "/page/a&b%20c?x=1"]
    # Rules that follow see the new path.
    assert ask(server, "/chain/x").status == 410


def test_headers_are_those_of_all_answers(server) -> None:
    for target, status in [("/show.php", 200), ("/a.css", 200), ("/nothing", 404), ("/denied", 410), ("/old/x", 301)]:
        answer = ask(server, target)
        assert (answer.status, answer.header("x-frame-options"), answer.values("x-rule")) == (status, "DENY", ["one"])
        assert answer.values("x-powered-by") == []


def test_cache_control_replaces_what_the_answer_says(server) -> None:
    assert ask(server, "/a.css").header("cache-control") == "public, max-age=3600"
    assert ask(server, "/no.css").header("cache-control") is None, "an error is not kept"
    answer = ask(server, "/show.php")
    assert (answer.header("cache-control"), answer.header("expires")) == ("private", "0")
    # A page of the application, though its path looks like a file's: no cache may keep it for others.
    answer = ask(server, "/show.php/x.css")
    assert (answer.status, answer.values("cache-control")) == (200, ["private"])


def test_methods_headers_and_addresses(server) -> None:
    assert ask(server, "/show.php", method="DELETE").status == 405
    assert ask(server, "/show.php", method="POST").status == 200
    assert ask(server, "/show.php", ("User-Agent", "x BADbot/1")).status == 403
    assert ask(server, "/show.php", ("User-Agent", "good")).status == 200
    assert ask(server, "/nobody/a.txt").status == 403
    assert ask(server, "/us/a.txt").body == b"us"
    # Nobody becomes another by saying so.
    assert ask(server, "/nobody/a.txt", ("X-Forwarded-For", "192.0.2.1")).status == 403
    assert ask(server, "/show.php", ("X-Forwarded-For", "203.0.113.7")).status == 200


def test_passwords(server) -> None:
    for headers in [(), (basic("anna", "wrong"),), (basic("nobody", PASSWORD),), (("Authorization", "Basic x"),)]:
        answer = ask(server, "/staff/", *headers)
        assert answer.status == 401
        assert answer.header("www-authenticate") == 'Basic realm="Staff", charset="UTF-8"'
    for _ in range(2):
        answer = ask(server, "/staff/", basic("anna", PASSWORD))
        assert answer.status == 200 and answer.body.decode().split("|")[4] == "anna"
    assert ask(server, "/staff/", basic("anna", PASSWORD + "x")).status == 401
    assert ask(server, "/open/a.txt").body == b"open", "no rule after stop"


def test_a_flood_of_wrong_passwords_holds_nobody_up(server) -> None:
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        flood = [pool.submit(ask, server, "/staff/", basic("anna", f"wrong{n}")) for n in range(200)]
        for _ in range(20):
            assert ask(server, "/a.css").status == 200
        assert ask(server, "/staff/", basic("anna", PASSWORD)).status in (200, 503)
        statuses = {one.result().status for one in flood}
    assert statuses <= {401, 503} and 401 in statuses
    # Whoever is refused for that is no fault of the server's, and fills no log.
    assert " ERROR " not in server.log()
    assert sum("passwords wait" in line for line in server.log().splitlines()) <= 1


def test_an_alias_is_of_files_only(server) -> None:
    assert ask(server, "/assets/logo.svg").body == b"<svg/>"
    assert ask(server, "/assets/d/").body == b"index"
    answer = ask(server, "/assets/d")
    assert (answer.status, answer.header("location")) == (301, "/assets/d/")
    for closed in ["/assets/run.php", "/assets/run.php/x", "/assets/.env", "/assets/a.bak", "/assets/in-root.txt", "/assets/no"]:
        answer = ask(server, closed)
        assert answer.status == 404 and b"<?php" not in answer.body, closed
    assert ask(server, "/assets/../users").status == 400
    assert ask(server, "/assets/..%2fusers").status == 400


def test_bodies_and_times_of_their_own(server) -> None:
    assert ask(server, "/small.php", method="POST", body=b"x" * 11).status == 413
    assert ask(server, "/small.php", method="POST", body=b"x" * 10).body.endswith(b"|10")
    assert ask(server, "/small.php/more", method="POST", body=b"x" * 11).status == 413
    assert ask(server, "/large.php", method="POST", body=b"x" * 500_000).body.endswith(b"|500000")
    assert ask(server, "/show.php", method="POST", body=b"x" * 500_000).status == 413
    assert ask(server, "/slow.php").body == b"slow", "longer than request_timeout"
    assert ask(server, "/quick.php").status == 504, "it sleeps for less than request_timeout"


def test_rates_are_counted_exactly_when_time_stands_still(server) -> None:
    # One, a burst of three, and one more every half an hour: also from many connections at once.
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: ask(server, "/often/a.txt"), range(60)))
    assert sorted(answer.status for answer in answers) == [200] * 4 + [429] * 56
    refused = next(answer for answer in answers if answer.status == 429)
    assert 1 <= int(refused.header("retry-after") or 0) <= 1800
    # Other spellings of the path are the same rule's.
    assert ask(server, "//often/%61.txt").status == 429
    assert [ask(server, "/keyed/a.txt", ("X-Key", key)).status for key in "abab"] == [200, 200, 429, 429]


def test_over_http2_as_over_http1(server) -> None:
    def curl(target: str, *args: str) -> str:
        command = ["curl", "-sS", "--max-time", "60", over.curl_http2(), "-i", *args, server.url + target]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert curl("/denied/x").startswith("HTTP/2 410")
    assert "location: /new/x" in curl("/old/x")
    assert curl("/staff/").startswith("HTTP/2 401")
    assert curl("/staff/", "-u", f"anna:{PASSWORD}").startswith("HTTP/2 200")
    assert [curl("/once/a.txt").split(" ")[1] for _ in range(2)] == ["200", "429"]
    assert curl("/assets/logo.svg").endswith("<svg/>")


NGINX = r"""
location ^~ /uploads/ {{ location ~ \.php(/|$) {{ deny all; }} }}
location = /secret.txt {{ deny all; }}
location = /tool.php {{ deny all; }}
location ^~ /private/ {{ deny all; }}
"""
SAME = r"""
[[app.rule]]
path = "/uploads"
regex = "\\.php$"
deny = 403
[[app.rule]]
glob = ["/secret.txt", "/tool.php"]
deny = 403
[[app.rule]]
path = "/private"
deny = 403
"""
#: Targets, and how Hayate answers where that is not 403; nginx must not show the secret either, unless the last says so.
PAST: list[tuple[str, int, bool]] = [
    ("/uploads/evil.php", 403, False),
    ("/uploads/evil.php/x", 403, False),
    ("/uploads/evil.php/x.css", 403, False),
    ("/uploads/evil.php/.php/x", 403, False),
    ("/uploads/evil%2ephp", 403, False),
    ("/uploads/%65vil.php", 403, False),
    ("/uploads//evil.php", 403, False),
    ("//uploads/evil.php", 403, False),
    ("/uploads%2fevil.php", 403, False),
    ("/uploads/evil.php?x=.css", 403, False),
    ("/uploads/evil.php%00.css", 400, False),
    ("/uploads/evil.php%20", 404, False),
    ("/uploads/evil.php.", 404, False),
    ("/uploads/evil.php;x", 404, False),
    ("/uploads/evil.PHP", 404, False),
    ("/UPLOADS/evil.php", 404, False),
    ("/uploads/./evil.php", 400, False),
    ("/uploads/../uploads/evil.php", 400, False),
    ("/x/%2e%2e/uploads/evil.php", 400, False),
    ("/x/..%2fuploads/evil.php", 400, False),
    # The directory's index runs as well. nginx asks its locations again.
    ("/uploads/sub/", 403, False),
    ("/uploads/sub/index.php", 403, False),
    ("/secret.txt", 403, False),
    ("//secret.txt", 403, False),
    ("/secret%2etxt", 403, False),
    ("/./secret.txt", 400, False),
    ("/secret.txt/", 404, False),
    ("/secret.txt;a", 404, False),
    ("/secret.txt%00", 400, False),
    ("/secret.txt#x", 403, False),
    ("http://a.test/secret.txt", 403, False),
    ("/tool.php", 403, False),
    # With nginx an exact location lets the script run once a path follows its name.
    ("/tool.php/x", 403, True),
    ("/tool.php/", 403, True),
    ("/private/a.txt", 403, False),
    ("/private", 403, False),
    ("/private//a.txt", 403, False),
    ("/%70rivate/a.txt", 403, False),
    ("/private%2fa.txt", 403, False),
    ("/ok/../private/a.txt", 400, False),
    ("/private/%2e/a.txt", 400, False),
    # What the front controller would take for the same page; nginx does not look at it.
    ("/index.php/private/a", 403, False),
    ("/index.php//private/a", 403, False),
    ("/privatea", 200, False),
]


@pytest.fixture(scope="module")
def beside(hayate_command, tmp_path_factory) -> Iterator[tuple[NginxFpm, Hayate]]:
    base = tmp_path_factory.mktemp("beside")
    base.chmod(0o755)
    files = {
        "index.php": "<?php echo 'front';",
        "secret.txt": "SECRET",
        "tool.php": "<?php echo 'SECRET';",
        "uploads/evil.php": "<?php echo 'SECRET';",
        "uploads/sub/index.php": "<?php echo 'SECRET';",
        "private/a.txt": "SECRET",
    }
    root = write(base / "site", files)
    nginx = NginxFpm(root, front_controller="/index.php", extra=NGINX.format())
    config = f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n{SAME}'
    with running(nginx, Hayate(config=config, workers=1)) as both:
        yield both


@pytest.mark.parametrize(("target", "status", "nginx_shows"), PAST, ids=[target for target, *_ in PAST])
def test_no_spelling_goes_past_a_rule(beside, target: str, status: int, nginx_shows: bool) -> None:
    nginx, hayate = (ask(server, target) for server in beside)
    assert b"SECRET" not in hayate.body
    assert (b"SECRET" in nginx.body) == nginx_shows, f"nginx: {nginx.status}"
    if hayate.status != status:
        # A path that is no file is the front controller's.
        assert status == 404 and hayate.body == b"front", f"{hayate.status}, not {status}"


def test_a_target_that_names_a_host_goes_past_no_rule(hayate_command, tmp_path) -> None:
    """parse_url() takes what follows two slashes for a host, and many an application reads its path by it."""
    script = "<?php echo parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) === '/secret' ? 'SECRET' : 'open';"
    root = write(tmp_path / "site", {"index.php": script, "free/a.txt": "free"})
    config = (
        f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n[[app.rule]]\npath = "/free"\nstop = true\n'
        '[[app.rule]]\nregex = "^/old/(.*)$"\nrewrite = "/$1"\n[[app.rule]]\npath = "/secret"\ndeny = 403\n'
    )
    with Hayate(config=config, workers=1) as hayate:
        for target in ("/secret", "//secret", "//x/secret", "//x:80/secret?a=b", "//u:p@x/secret", "//free/secret", "//old/secret"):
            answer = ask(hayate, target)
            assert answer.status == 403 and b"SECRET" not in answer.body, target
        for target in ("/", "//x", "//x/open", "/x//secret", "//free/a.txt"):
            answer = ask(hayate, target)
            assert answer.status == 200 and answer.body in (b"open", b"free"), target


HIDDEN = ["dump.sql", "dump.sql.gz", "x.bak.zip", "a.inc.gz", "db.sqlite.gz", "debug.log.1", "staff.htpasswd", "a.txt~", "a.bak", "composer.json", "x/composer.lock", "a.inc", ".env", ".git/config",
          "vendor/composer/installed.json", "a.html.swp", "old.bak/a.txt"]
SENT = ["vendor/pack/app.css", "vendor/pack/app.js", ".well-known/security.txt", "a.txt"]


def test_files_that_are_not_for_visitors(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {name: "content" for name in HIDDEN + SENT} | {"vendor/pack/eval.php": "<?php echo 'ran';"})
    with Hayate(root, workers=1) as hayate:
        for name in HIDDEN + ["vendor/pack/eval.php", "vendor/pack/eval.php/x"]:
            assert ask(hayate, "/" + name).status == 404, name
        for name in SENT:
            assert ask(hayate, "/" + name).body == b"content", name
    config = f'[[app]]\nroot = "{root}"\nhidden_files = ["*.txt"]\n'
    with Hayate(config=config, workers=1) as hayate:
        assert ask(hayate, "/dump.sql").body == b"content"
        assert ask(hayate, "/vendor/pack/eval.php").body == b"ran"
        for name in ["a.txt", ".env", "a.inc", ".well-known/security.txt"]:
            assert ask(hayate, "/" + name).status == 404, name


#: How many hand-written front controllers find their page.
ROUTER = """<?php
$path = parse_url(str_replace('/index.php', '', $_SERVER['REQUEST_URI']), PHP_URL_PATH);
echo $path === '/secret' ? 'SECRET' : 'open';
"""
#: What parse_url() takes for the page /secret of a host.
HOSTS = ["//x/secret", "//x:80/secret", "//a@x/secret", "//x%2fy/secret", "/index.php//x/secret", "//x/secret?a"]


def test_no_host_in_a_path_goes_past_a_rule(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"index.php": ROUTER, "a.txt": "a"})
    rules = '[[app.rule]]\npath = "/x"\nstop = true\n[[app.rule]]\npath = "/secret"\ndeny = 403\n'
    app = f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n'
    with running(Hayate(config=app + rules, workers=1), Hayate(config=app, workers=1)) as (hayate, without):
        for target in ["/secret", *HOSTS]:
            assert ask(without, target).body == b"SECRET", f"{target} says nothing"
            assert ask(hayate, target).status == 403, target
        for target in ["//x/open", "//a.txt", "///x/secret", "/x//y/secret"]:
            assert ask(hayate, target).status == 200, target


#: As Symfony's and Yii's requests find their page: what follows the script's name, with a slash or without.
GLUED = """<?php
$path = strtok($_SERVER['REQUEST_URI'], '?');
$script = $_SERVER['SCRIPT_NAME'];
if (str_starts_with(rawurldecode($path), $script)) {
    $path = '/'.ltrim(substr(rawurldecode($path), strlen($script)), '/');
}
echo $path === '/secret' ? 'SECRET' : 'open';
"""


@pytest.mark.parametrize("way", ["rule", "deny"])
@pytest.mark.parametrize(("router", "targets"), [(ROUTER, HOSTS), (GLUED, ["/index.php/secret", "/index.phpsecret", "/%69ndex.phpsecret", "/index.phpsecret?a"])])
def test_no_way_to_write_a_page_goes_past_what_closes_it(hayate_command, tmp_path, way, router, targets) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"index.php": router, "a.txt": "a"})
    app = f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n'
    closed, status = ('[[app.rule]]\npath = "/secret"\ndeny = 403\n', 403) if way == "rule" else ('deny = ["/secret"]\n', 404)
    with running(Hayate(config=app + closed, workers=1), Hayate(config=app, workers=1)) as (hayate, without):
        for target in ["/secret", *targets]:
            assert ask(without, target).body == b"SECRET", f"{target} says nothing"
            assert ask(hayate, target).status == status, target
        for target in ["/", "/index.php", "/index.php/open", "/a.txt", "/secrets", "/index.phpopen"]:
            assert ask(hayate, target).status == 200, target


def test_rules_look_at_the_host_that_scripts_are_told(hayate_command, tmp_path) -> None:
    """RFC 9112, 3.2.2: the host of an absolute target counts, and Host is to be ignored."""
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"index.php": "<?php echo $_SERVER['HTTP_HOST'];"})
    # Hosts have no case.
    rule = '[[app.rule]]\nheader = { host = "^Internal" }\ndeny = 403\n'
    with Hayate(config=f'[[app]]\nroot = "{root}"\n{rule}', workers=1) as hayate:
        for target, host, status in [("/", "internal", 403), ("/", "INTERNAL:80", 403), ("/", "other", 200), ("http://internal/", "other", 403), ("http://other/", "internal", 200)]:
            answer = exchange(("127.0.0.1", hayate.port), encode("GET", target, [("Host", host), ("Connection", "close")], b""))
            assert answer is not None
            assert (answer.status, answer.body if status == 200 else b"other") == (status, b"other"), (target, host)


def test_who_cannot_be_told_apart_is_counted_all_the_same(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"by-address/a.txt": "a", "by-key/a.txt": "a"})
    rate = 'rate = { requests = 1, per = "1h", burst = 1, by = "%s" }\n'
    config = (
        f'trusted_proxies = ["127.0.0.1"]\n[[app]]\nroot = "{root}"\n'
        f'[[app.rule]]\npath = "/by-address"\n{rate % "address"}[[app.rule]]\npath = "/by-key"\n{rate % "header:X-Key"}'
    )
    with Hayate(config=config, workers=1) as hayate:

        def statuses(target: str, *headers: tuple[str, str]) -> list[int]:
            return [ask(hayate, target, *headers).status for _ in range(3)]

        said = "X-Forwarded-For"
        assert statuses("/by-address/a.txt", (said, "192.0.2.1")) == [200, 200, 429]
        # Of whom the proxy says nothing that can be read, it counts itself.
        assert statuses("/by-address/a.txt", (said, "unknown")) == [200, 200, 429]
        assert statuses("/by-address/a.txt") == [429] * 3
        # Who floods without a key takes nothing from others without one.
        assert statuses("/by-key/a.txt", (said, "192.0.2.1")) == [200, 200, 429]
        assert statuses("/by-key/a.txt", (said, "192.0.2.2"), ("X-Key", "")) == [200, 200, 429]
        assert statuses("/by-key/a.txt", (said, "192.0.2.1"), ("X-Key", "one")) == [200, 200, 429]


def test_rates_by_path_and_of_all_together(hayate_command, tmp_path) -> None:
    """Each of 24 requests at one time comes from a visitor of its own, so that a count by address would refuse none."""
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {f"{by}/{name}.txt": name for by in ("path", "all") for name in "abc"})
    rules = "".join(
        f'[[app.rule]]\npath = "/{by}"\nrate = {{ requests = 1, per = "1h", burst = 2, by = "{by}" }}\n' for by in ("path", "all")
    )  # fmt: skip
    config = f'trusted_proxies = ["127.0.0.1"]\n[[app]]\nroot = "{root}"\n{rules}'
    with Hayate(config=config, workers=1) as hayate, concurrent.futures.ThreadPoolExecutor(8) as pool:

        def statuses(by: str) -> dict[str, list[int]]:
            names = list("abc" * 8)
            asked = pool.map(lambda i: ask(hayate, f"/{by}/{names[i]}.txt", ("X-Forwarded-For", f"192.0.2.{i}")).status, range(24))
            got: dict[str, list[int]] = {name: [] for name in "abc"}
            for name, status in zip(names, asked):
                got[name].append(status)
            return {name: sorted(found) for name, found in got.items()}

        assert statuses("path") == {name: [200] * 3 + [429] * 5 for name in "abc"}
        # Other spellings of a path are that path.
        assert ask(hayate, "//path/%61.txt", ("X-Forwarded-For", "192.0.2.200")).status == 429
        together = statuses("all")
        assert sorted(sum(together.values(), [])) == [200] * 3 + [429] * 21, together


CONTROLLER = """
[[app.rule]]
path = "/free"
stop = true

[[app.rule]]
path = "/index.php"
{}

[[app.rule]]
path = "/index.php"
redirect = "/"
"""


def test_a_rule_on_the_front_controller_holds_for_what_falls_through_to_it(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"index.php": "<?php usleep(1500000 * isset($_GET['slow'])); echo 'front';", "a.txt": "a", "b.php": "b"})
    (tmp_path / "users").write_text(f"anna:{hashed(PASSWORD)}\n")
    rule = f'basic_auth = {{ users = "{tmp_path}/users" }}\nrate = {{ requests = 1, per = "1h", burst = 8 }}\nmax_body = 10\ntimeout = "500ms"\n'
    config = f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n{CONTROLLER}'
    nginx = NginxFpm(root, front_controller="/index.php", extra="location = /index.php { deny all; }")
    with running(
        nginx, Hayate(config=config.format("deny = 403"), workers=1), Hayate(config=config.format(rule), workers=1)
    ) as (nginx, closed, hayate):
        for target, status in [("/index.php", 403), ("/orders/7", 403), ("/", 403), ("/index.php/x", 403), ("/a.txt", 200), ("/b.php", 200)]:
            assert ask(closed, target).status == status, target
            if target != "/index.php/x":
                assert ask(nginx, target).status == status, target
        assert ask(closed, "/free/x").body == b"front", "no rule after stop"
        good = basic("anna", PASSWORD)
        assert ask(hayate, "/orders/7").status == 401
        assert ask(hayate, "/orders/7", basic("anna", "wrong")).status == 401
        assert ask(hayate, "/orders/7", good).body == b"front"
        assert ask(hayate, "/index.php", good).status == 302, "what changes an answer is for what was asked for"
        assert ask(hayate, "/orders/7", good, method="POST", body=b"x" * 11).status == 413
        assert ask(hayate, "/orders/7?slow", good).status == 504
        # Nine in all, each counted once.
        assert [ask(hayate, "/orders/7", good).status for _ in range(4)] == [200, 200, 200, 429]
        assert ask(hayate, "/a.txt").body == b"a" and ask(hayate, "/b.php").body == b"b"


def staff(root: pathlib.Path, files: pathlib.Path) -> str:
    """A configuration that sends what lies in `files`, and asks for the passwords of a file that lies there as well."""
    return f"""[[app]]
root = "{root}"
[[app.rule]]
path = "/files"
alias = "{files}"
[[app.rule]]
path = "/staff"
basic_auth = {{ users = "{files}/users.txt" }}
"""


def test_what_takes_the_place_of_a_users_file_is_not_sent(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"a.txt": "a"})
    files = write(tmp_path / "files", {"users.txt": f"anna:{hashed(PASSWORD)}\n", "other/users.txt": "another", "b.txt": "b"})
    (files / "link").symlink_to(files)
    with Hayate(config=staff(root, files), workers=1) as hayate:
        assert ask(hayate, "/files/users.txt").status == 404
        (files / "new").write_text(f"anna:{hashed('new')}\nbert:{hashed('new')}\n")
        (files / "new").rename(files / "users.txt")
        for target in ("/files/users.txt", "/files/link/users.txt", "/files/link/link/users.txt"):
            answer = ask(hayate, target)
            assert answer.status == 404 and b"anna" not in answer.body, target
        assert ask(hayate, "/files/other/users.txt").body == b"another", "only called so"
        # By a link of another name, also to what is packed.
        (files / "notes.txt").symlink_to("users.txt")
        (files / "b.txt.gz").symlink_to("users.txt")
        assert ask(hayate, "/files/notes.txt").status == 404
        packed = ask(hayate, "/files/b.txt", ("Accept-Encoding", "gzip"))
        assert packed.status == 404 and b"anna" not in packed.body
        assert ask(hayate, "/files/b.txt").body == b"b"
        # What is private is not sent packed either.
        (files / "users.txt.gz").write_bytes(b"packed")
        assert ask(hayate, "/files/users.txt", ("Accept-Encoding", "gzip")).status == 404


def test_what_was_harmless_in_the_same_second_is_not_sent_when_it_is_private(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"a.txt": "a"})
    files = write(tmp_path / "files", {"users.txt": f"anna:{hashed(PASSWORD)}\n", "b.txt": "b"})
    with Hayate(config=staff(root, files), workers=1) as hayate:
        (files / "notes.txt").symlink_to("users.txt")
        # So that no other file gets its inode, which is private as well.
        (files / "kept").hardlink_to(files / "users.txt")
        for _ in range(10):
            # One name leads to another file.
            (files / "link.txt").symlink_to("b.txt")
            (files / "new").write_text("bert:secret\n")
            assert ask(hayate, "/files/link.txt").body == b"b"
            assert ask(hayate, "/files/new").status == 200
            # And one file gets a name that is private.
            (files / "new").rename(files / "users.txt")
            (files / "again").symlink_to("users.txt")
            (files / "again").rename(files / "link.txt")
            assert [ask(hayate, f"/files/{name}.txt").status for name in ("link", "notes")] == [404, 404]
            (files / "link.txt").unlink()


def test_a_site_below_a_path(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"show.php": SHOW, "a/b.txt": "b"})
    files = write(tmp_path / "files", {"c.txt": "c"})
    config = f"""[[app]]
root = "{root}"
path = "/blog"
[[app.rule]]
regex = "^/p/(.*)$"
rewrite = "/show.php?p=$1"
[[app.rule]]
path = "/old"
redirect = "/new"
[[app.rule]]
path = "/away"
redirect = "https://b.test$path"
[[app.rule]]
path = "/a"
deny = 403
[[app.rule]]
path = "/files"
alias = "{files}"
"""
    with Hayate(config=config, workers=1) as hayate:
        assert ask(hayate, "/blog/p/x").body.startswith(b"/blog/show.php||p=x|/blog/p/x|")
        assert ask(hayate, "/blog/old").header("location") == "/blog/new"
        assert ask(hayate, "/blog/away").header("location") == "https://b.test/blog/away"
        assert ask(hayate, "/blog/a/b.txt").status == 403
        assert ask(hayate, "/blog/files/c.txt").body == b"c"
        assert ask(hayate, "/a/b.txt").status == 404


@pytest.mark.plain("it writes its configuration anew")
def test_a_reload_changes_rules_and_drops_no_request(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"a.txt": "a", "r.txt": "r", "show.php": SHOW})
    config = tmp_path / "hayate.toml"
    limit = '[[app.rule]]\npath = "/r.txt"\nrate = { requests = 1, per = "1h", burst = 1 }\n'
    first = f'[[app]]\nroot = "{root}"\n{limit}'
    config.write_text(first)
    with Hayate(config=config, workers=1) as hayate:
        assert [ask(hayate, "/r.txt").status for _ in range(3)] == [200, 200, 429]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            going = True

            def load() -> set[int]:
                seen = set()
                while going:
                    seen |= {ask(hayate, "/a.txt").status, ask(hayate, "/show.php").status}
                return seen

            load_one = pool.submit(load)
            try:
                config.write_text(first + '[[app.rule]]\npath = "/a.txt"\ndeny = 403\n')
                assert hayate.reload().returncode == 0
                assert wait_until(lambda: ask(hayate, "/a.txt").status == 403)
                # Who asked too often before the reload has still done so.
                assert ask(hayate, "/r.txt").status == 429
                config.write_text(first + '[[app.rule]]\npath = "/a.txt"\ndeny = 9\n')
                refused = hayate.reload()
                assert refused.returncode != 0 and "rule 2: deny: 9 refuses nothing" in refused.stderr + refused.stdout
                assert ask(hayate, "/a.txt").status == 403, "the old rules stay"
            finally:
                going = False
            assert load_one.result() <= {200, 403}


def test_check_names_line_rule_and_remedy(hayate_command, tmp_path) -> None:
    config = tmp_path / "hayate.toml"
    write(tmp_path, {"site/index.php": ""})
    config.write_text(f'[[app]]\nroot = "site"\nphp = "{PHP_VERSION}"\n[[app.rule]]\nregex = "(x"\ndeny = 403\n')
    done = subprocess.run([hayate_binary(), "check", "--config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.search(r"hayate\.toml:5: rule 1: regex: '\(x': it is no regular expression: unclosed group", done.stderr)


@pytest.mark.plain("it says itself where it listens")
@pytest.mark.parametrize(
    ("trusted", "by", "warns"), [("", "", True), ("", 'by = "header:x-key"', True), ("", 'by = "path"', False), ('"unix"', "", False)]
)
def test_a_rate_whose_visitors_nobody_names_is_said_to_count_them_as_one(hayate_command, tmp_path, trusted, by, warns) -> None:
    root = site.make(tmp_path)
    config = (
        f'trusted_proxies = [{trusted}]\n[[app]]\nroot = "{root}"\nworkers = 1\n'
        f'[[app.rule]]\npath = "/ok.php"\nrate = {{ requests = 1000, per = "1s"{", " if by else ""}{by} }}\n'
    )
    words = 'trusted_proxies = ["unix"]'
    directory = temporary_directory("rates")
    listen = ["--listen", f"unix:{directory}/http.sock"]
    try:
        with Hayate(config=config, args=listen) as server:
            assert requests.get(f"{server.url}/ok.php?x", timeout=60).text == "ok x"
            assert (words in server.log()) == warns
            checked = subprocess.run(
                [hayate_binary(), "check", "--config", server._config, *listen], capture_output=True, text=True, timeout=60, check=False
            )
            assert (words in checked.stdout) == warns, checked
        with Hayate(config=config) as server:
            assert words not in server.log(), "it listens on no unix socket"
    finally:
        shutil.rmtree(directory)
