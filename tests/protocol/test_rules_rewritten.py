"""What restricts a path restricts whoever comes to it by a `rewrite`, in whatever order the rules stand, as nginx chooses its location afterwards."""

from __future__ import annotations

import itertools

import pytest

from lib.servers import Hayate

from .test_rules import PASSWORD, ask, basic, hashed, write

#: As in a network of WordPress: each of its sites has the scripts of all below its name.
REWRITES = r"""
[[app.rule]]
regex = "^/(?:shop|x y)/(.*)$"
rewrite = "/$1"
"""
RESTRICTIONS = """
[[app.rule]]
path = "/xmlrpc.php"
deny = 403

[[app.rule]]
path = "/gone.php"
respond = "gone"
status = 410

[[app.rule]]
path = "/wp-login.php"
rate = { requests = 1, per = "1h", burst = 0 }

[[app.rule]]
path = "/wp-admin"
basic_auth = { users = "users" }

[[app.rule]]
path = "/elsewhere.php"
allow = ["203.0.113.0/24"]

[[app.rule]]
path = "/small.php"
max_body = 10
"""
SCRIPT = "<?php echo basename(__FILE__), ' of ', $_SERVER['REQUEST_URI'];"


@pytest.fixture(params=["restrictions first", "rewrites first", "between two rewrites"])
def server(request, hayate_command, tmp_path):
    tmp_path.chmod(0o755)
    names = ["xmlrpc.php", "gone.php", "wp-login.php", "wp-admin/index.php", "elsewhere.php", "small.php", "open.php", "index.php"]
    root = write(tmp_path / "site", dict.fromkeys(names, SCRIPT))
    (tmp_path / "users").write_text(f"anna:{hashed(PASSWORD)}\n")
    orders = {
        "restrictions first": RESTRICTIONS + REWRITES,
        "rewrites first": REWRITES + RESTRICTIONS,
        "between two rewrites": '[[app.rule]]\nregex = "^/twice/(.*)$"\nrewrite = "/$1"\n' + RESTRICTIONS + REWRITES,
    }
    config = tmp_path / "hayate.toml"
    config.write_text(f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n{orders[request.param]}')
    with Hayate(config=config, workers=1) as hayate:
        hayate.prefixes = ["", "/shop", "/x%20y"] + ["/twice/shop"] * ("two" in request.param)
        yield hayate


def test_a_rewrite_leads_past_no_restriction(server) -> None:
    for prefix in server.prefixes:
        assert ask(server, f"{prefix}/open.php").body.startswith(b"open.php of ")
        assert ask(server, f"{prefix}/xmlrpc.php").status == 403
        gone = ask(server, f"{prefix}/gone.php")
        assert (gone.status, gone.body) == (410, b"gone")
        assert ask(server, f"{prefix}/elsewhere.php").status == 403
        for path in (f"{prefix}/wp-admin/", f"{prefix}/wp-admin/index.php"):
            assert ask(server, path).status == 401, path
            assert ask(server, path, basic("anna", PASSWORD)).body.startswith(b"index.php of "), path


def test_requests_are_counted_once_however_they_come(server) -> None:
    ways = itertools.cycle(server.prefixes)
    statuses = [ask(server, f"{prefix}/wp-login.php").status for prefix, _ in zip(ways, range(4), strict=False)]
    assert statuses == [200, 429, 429, 429]


def test_a_body_may_be_as_long_as_at_the_path_itself(server) -> None:
    for prefix, (length, status) in itertools.product(server.prefixes, [(10, 200), (11, 413)]):
        assert ask(server, f"{prefix}/small.php", method="POST", body=b"x" * length).status == status, (prefix, length)


#: As MediaWiki's, which has no front controller: these scripts and no others, and pages that one of them answers.
SCRIPTS = r"""
[[app.rule]]
regex = "^/(index|api)\\.php(/|$)"
stop = true

[[app.rule]]
path = "/locked.php"
stop = true

[[app.rule]]
regex = "^/[^/]+\\.php(/|$)"
deny = 404

[[app.rule]]
regex = "^/wiki/(.*)$"
rewrite = "/index.php?title=$1"

[[app.rule]]
path = "/locked.php"
deny = 403
"""


def test_what_a_stop_has_let_through_is_let_through_where_a_rewrite_leads_too(hayate_command, tmp_path) -> None:
    """`//wiki/Page` may be a page `/Page` of a host `wiki`, which no `stop` is for: that keeps nobody from the script it is led to, and opens no other."""
    root = write(tmp_path / "site", dict.fromkeys(["index.php", "api.php", "other.php", "locked.php"], SCRIPT))
    config = tmp_path / "hayate.toml"
    config.write_text(f'[[app]]\nroot = "{root}"\nfront_controller = ""\n{SCRIPTS}')
    with Hayate(config=config, workers=1) as server:
        answers = {
            "/api.php": "api.php", "//a/api.php": 404, "//wiki/Page": "index.php",
            "/wiki//a/Page": "index.php", "//index.php/other.php": 404, 
            # As one slash too many may mean another page, for which the rules go on.
            "//api.php": 404, "//api.php/a": 404, "//index.php/Page": 404, "//locked.php": 404,
            "/other.php": 404, "//other.php": 404, "//wiki/other.php": 404, "//api.php/other.php": 404, "/api.php/../other.php": 400,
            "/locked.php": "locked.php", "//x/locked.php": 404, "/other.php//x/api.php": 404,
        }  # fmt: skip
        for path, want in answers.items():
            answer = ask(server, path)
            found = answer.body.split()[0].decode() if answer.status == 200 else answer.status
            assert found == want, (path, answer.status, answer.body[:100])


INDEXES = """
[[app.rule]]
path = "/assets"
alias = "assets"

[[app.rule]]
regex = "/(uploads|assets)/.*\\\\.(php|html)$"
deny = 403

[[app.rule]]
path = "/small/index.php"
max_body = 10
"""


def test_an_index_is_restricted_where_there_is_one(hayate_command, tmp_path) -> None:
    """As by nginx, which chooses its location again for the index that it finds: `/files/` of no directory is a page of the front controller's."""
    tmp_path.chmod(0o755)
    names = ["index.php", "uploads/a/index.php", "uploads/b/a.txt", "uploads/c/index.html", "small/index.php"]
    root = write(tmp_path / "site", dict.fromkeys(names, SCRIPT))
    write(tmp_path / "assets", {"a/index.html": "page", "b/a.txt": "text"})
    config = tmp_path / "hayate.toml"
    config.write_text(f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n{INDEXES}')
    with Hayate(config=config, workers=1) as server:
        answers = {
            "/uploads/a/": 403, "/uploads/b/": 200, "/uploads/c/": 403, "/uploads/nowhere/": 200, "/my/uploads/page/": 200, "/uploads/a/index.php": 403,
            "/uploads/a/index.php/": 403, "/assets/a/": 403, "/assets/b/": 404, "/": 200,
        }  # fmt: skip
        for path, want in answers.items():
            assert ask(server, path).status == want, path
        for path in ("/small/", "/small/index.php"):
            assert [ask(server, path, method="POST", body=b"x" * n).status for n in (10, 11)] == [200, 413], path


LED = """
[[app.rule]]
regex = "^/files/[^/]+\\\\.css$"
stop = true

[[app.rule]]
path = "/files"
allow = ["203.0.113.0/24"]
alias = "private"

[[app.rule]]
glob = "/s/*.txt"
stop = true

[[app.rule]]
path = "/s"
allow = ["203.0.113.0/24"]
respond = "SECRET"

[[app.rule]]
path = "/contact.php"
max_body = 10
timeout = "1s"
stop = true

[[app.rule]]
path = "/"
max_body = "1M"
timeout = "30s"
"""


def test_who_is_led_elsewhere_is_asked_first_and_nobody_has_more_by_another_spelling(hayate_command, tmp_path) -> None:
    """A `stop` has ended what was asked for, and another reading goes on: so does what the next rules lead to, with all that they ask for."""
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", {"index.php": SCRIPT, "contact.php": "<?php usleep((int) $_GET['us']); echo strlen(file_get_contents('php://input'));"})
    write(root, {"files/a.css": "public", "s/a.txt": "public"})
    write(tmp_path / "private", {"a.css": "SECRET"})
    config = tmp_path / "hayate.toml"
    config.write_text(f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n{LED}')
    with Hayate(config=config, workers=1) as server:
        for path in ("/files/a.css", "/s/a.txt"):
            assert ask(server, path).body == b"public"
        for path in ("//files/a.css", "/%2ffiles/a.css", "//x/files/a.css", "/files/b.css", "//s/a.txt", "//s/b.txt", "/index.php/s/a.txt", "/index.php/files/a.css"):
            assert b"SECRET" not in ask(server, path).body, path
        for path in ("/contact.php", "//contact.php", "/contact.php/x"):
            statuses = [ask(server, path + "?us=0", method="POST", body=b"x" * n).status for n in (10, 11)]
            assert statuses == [200, 413], (path, statuses)
        assert ask(server, "//contact.php?us=2500000").status == 504


APART = """
[[app.rule]]
regex = "^/files/[^/]+\\\\.css$"
stop = true

[[app.rule]]
path = "/files"
allow = ["203.0.113.0/24"]

[[app.rule]]
path = "/files"
alias = "private"

[[app.rule]]
path = "/contact"
max_body = 10
stop = true

[[app.rule]]
path = "/contact"
rewrite = "/big.php"

[[app.rule]]
path = ["/big.php", "/index.php"]
max_body = "1M"

[[app.rule]]
path = ["/login", "/login.php"]
rate = { requests = 1, per = "1h", burst = 2, by = "path" }

[[app.rule]]
path = "/closed"
deny = 403
"""


def test_rules_that_stand_apart_hold_for_another_spelling_as_well(hayate_command, tmp_path) -> None:
    tmp_path.chmod(0o755)
    root = write(tmp_path / "site", dict.fromkeys(["index.php", "big.php", "login.php"], SCRIPT))
    write(root, {"files/a.css": "public"})
    write(tmp_path / "private", {"a.css": "SECRET"})
    config = tmp_path / "hayate.toml"
    config.write_text(f'[[app]]\nroot = "{root}"\nfront_controller = "index.php"\n{APART}')
    with Hayate(config=config, workers=1) as server:
        assert ask(server, "/files/a.css").body == b"public"
        for path in ("//files/a.css", "/%2ffiles/a.css", "//x/files/a.css", "/index.php/files/a.css"):
            assert b"SECRET" not in ask(server, path).body, path
        for path in ("/contact", "//contact", "//x/contact", "/index.php/contact", "/index.php//contact", "/index.phpcontact"):
            assert ask(server, path, method="POST", body=b"x" * 11).status == 413, path
        for path in ("/closed", "//q/closed", "/index.phpclosed", "//q/index.phpclosed", "//q/index%2ephpclosed", "//q/index.php/closed"):
            assert ask(server, path).status == 403, path
        for ways in (["/login", "//x/login", "/index.php/login", "/index.phplogin"], ["/login.php", "//login.php/1", "//login.php/2", "/login.php/3"]):
            assert [ask(server, path).status for path in ways] == [200, 200, 200, 429], ways
