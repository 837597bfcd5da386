"""Who asks, and for which host: what proxies and clients say about it, against nginx with its realip module where that applies."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from lib import client, over, site
from lib.process import temporary_directory
from lib.servers import Hayate, NginxFpm, hayate_binary

REALIP = "set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on;"


@pytest.fixture(scope="module")
def root() -> Iterator[pathlib.Path]:
    directory = temporary_directory("who")
    root = site.make(directory)
    script = "<?php header('Content-Type: application/json'); echo json_encode($_SERVER, JSON_INVALID_UTF8_SUBSTITUTE);"
    (root / "server.php").write_text(script)
    yield root
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def reference(root) -> Iterator[NginxFpm]:
    with NginxFpm(root, extra=REALIP) as server:
        yield server


#: A proxy at this machine's address, that is believed all that can be said.
TRUSTED = ["--trusted-proxies", "127.0.0.1", "--trusted-proxies", "10.0.0.0/8"]
HEADERS = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "Forwarded"]


@pytest.fixture(scope="module")
def proxied(hayate_command, root) -> Iterator[Hayate]:
    with Hayate(root, workers=1, args=[*TRUSTED, *(f"--trusted-headers={name}" for name in HEADERS)]) as server:
        yield server


def ask(server, headers=(), *, target: str = "/server.php", host: str = "a.test") -> tuple[int, dict]:
    sent = client.encode("GET", target, [("Host", host), ("Connection", "close"), *headers])
    answer = client.exchange(("127.0.0.1", server.port), sent)
    return answer.status, json.loads(answer.body) if answer.status == 200 else {}


CHAINS = {
    "one": [b"9.9.9.9"],
    "a byte that is not ASCII before it": [b"\xff, 9.9.9.9"],
    "such a byte after it": [b"9.9.9.9, \xff"],
    "such a byte before a trusted proxy": [b"8.8.8.8, \xff, 10.0.0.1"],
    "made up by the client": [b"1.1.1.1, 9.9.9.9"],
    "two proxies": [b"1.1.1.1, 9.9.9.9, 10.0.0.1"],
    "proxies only": [b"10.0.0.2, 10.0.0.1"],
    "no address": [b"1.1.1.1, unknown"],
    "no address behind a proxy": [b"1.1.1.1, unknown, 10.0.0.1"],
    "two lines": [b"1.1.1.1", b"9.9.9.9, 10.0.0.1"],
    "a bad line before": [b"\xfe\xff;;", b"9.9.9.9"],
    "a port": [b"9.9.9.9:4711"],
    "IPv6": [b"2001:db8::7"],
    "IPv6 in brackets with a port": [b"[2001:db8::7]:4711"],
    "without blanks": [b"1.1.1.1,9.9.9.9,10.0.0.1"],
    "empty elements": [b"1.1.1.1, 9.9.9.9,, 10.0.0.1"],
    "a quote that is left open": [b'"1.1.1.1, 9.9.9.9'],
    "four numbers too few": [b"1.1.1"],
    "none": [],
}


@pytest.mark.parametrize("case", CHAINS)
def test_b12_the_client_behind_proxies_is_who_nginx_says(case, reference, proxied) -> None:
    headers = [("X-Forwarded-For", value) for value in CHAINS[case]]
    (_, want), (_, got) = ask(reference, headers), ask(proxied, headers)
    assert got["REMOTE_ADDR"] == want["REMOTE_ADDR"]
    # The peer's own port is another one in each request.
    if got["REMOTE_ADDR"] != "127.0.0.1":
        assert got["REMOTE_PORT"] == want["REMOTE_PORT"]
    else:
        assert int(got["REMOTE_PORT"]) and int(want["REMOTE_PORT"])


def test_b12_one_bad_byte_does_not_drop_what_a_trusted_proxy_said(proxied) -> None:
    assert ask(proxied, [("X-Forwarded-For", b"\xff, 9.9.9.9")])[1]["REMOTE_ADDR"] == "9.9.9.9"
    bad = b'for=1.1.1.1;x="\xff, for="[2001:db8::7]:80";proto=https;host=shop.test'
    seen = ask(proxied, [("Forwarded", bad)])[1]
    assert (seen["REMOTE_ADDR"], seen["REMOTE_PORT"]) == ("2001:db8::7", "80")
    assert (seen["HTTPS"], seen["SERVER_NAME"]) == ("on", "shop.test")


def test_b12_lists_of_scheme_host_and_port_are_read_at_the_client(proxied) -> None:
    headers = [
        ("X-Forwarded-For", "1.1.1.1, 9.9.9.9, 10.0.0.1"),
        ("X-Forwarded-Proto", "http, https, http"),
        ("X-Forwarded-Host", "evil.test, shop.test, inner.test"),
        ("X-Forwarded-Port", "1, 8443, 80"),
    ]
    seen = ask(proxied, headers)[1]
    wanted = ("on", "https", "shop.test", "shop.test", "8443")
    assert tuple(seen[key] for key in ("HTTPS", "REQUEST_SCHEME", "SERVER_NAME", "HTTP_HOST", "SERVER_PORT")) == wanted


@pytest.fixture(scope="module")
def sites(hayate_command, root) -> Iterator[Hayate]:
    """One application for admin.test, one for all else."""
    text = "".join(f'[[app]]\nroot = "{root}"\nname = "{name}"\n{more}\n' for name, more in APPS.items())
    with Hayate(config=text, workers=1) as server:
        yield server


APPS = {
    "admin": 'hosts = ["admin.test", "[::1]"]\n[app.env]\nSITE = "admin"',
    "other": 'hosts = ["other.test"]\n[app.env]\nSITE = "other"',
}
#: What is asked for, and which application has to see which HTTP_HOST and SERVER_NAME; or the status of a refusal.
NAMES = {
    "plain": ("/server.php", "admin.test", ("admin", "admin.test", "admin.test")),
    "empty port": ("/server.php", "admin.test:", ("admin", "admin.test:", "admin.test")),
    "port": ("/server.php", "admin.test:81", ("admin", "admin.test:81", "admin.test")),
    "capitals": ("/server.php", "ADMIN.test", ("admin", "ADMIN.test", "admin.test")),
    "dot": ("/server.php", "admin.test.", ("admin", "admin.test.", "admin.test")),
    "literal": ("/server.php", "[::1]:81", ("admin", "[::1]:81", "[::1]")),
    "absolute": ("http://admin.test/server.php", "admin.test", ("admin", "admin.test", "admin.test")),
    "absolute wins": ("http://admin.test:81/server.php", "other.test", ("admin", "admin.test:81", "admin.test")),
    "absolute, empty port": ("http://admin.test:/server.php", "other.test", ("admin", "admin.test:", "admin.test")),
    "absolute, capitals": ("HTTP://ADMIN.test./server.php", "other.test", ("admin", "ADMIN.test.", "admin.test")),
    "user in the target": ("http://x@admin.test/server.php", "other.test", 400),
    "user and password in the target": ("http://user:pw@admin.test/server.php", "admin.test", 400),
    "user in Host": ("/server.php", "x@admin.test", 400),
    "password in Host": ("/server.php", "user:pw@admin.test", 400),
    "a word for a port": ("/server.php", "admin.test:x", 400),
    "a bare address of IPv6": ("/server.php", "::1", 400),
    "another scheme": ("ftp://admin.test/server.php", "admin.test", 400),
    "nobody's": ("/server.php", "nobody.test", 404),
}


@pytest.mark.parametrize("case", NAMES)
def test_b13_what_chooses_the_site_is_what_php_sees(case, sites) -> None:
    target, host, want = NAMES[case]
    status, seen = ask(sites, target=target, host=host)
    if want == 400:
        assert over.is_refused(status)
    elif isinstance(want, int):
        assert status == want
    else:
        assert status == 200
        # The application's name for itself stands in its environment; site.py's script shows $_SERVER.
        assert (seen["SITE"], seen["HTTP_HOST"], seen["SERVER_NAME"]) == want


def of_visitor() -> list[tuple[str, str]]:
    """What a visitor sends by a proxy that knows X-Forwarded-For and -Proto, and passes on all else; he wants to be at admin.test."""
    made_up = [("X-Forwarded-Host", "admin.test"), ("Forwarded", "for=127.0.0.1;proto=https;host=admin.test")]
    return [("X-Forwarded-For", "9.9.9.9"), ("X-Forwarded-Proto", "https"), *made_up]


def behind_proxy(root: pathlib.Path, names: list[str] | None) -> Hayate:
    key = "" if names is None else f"trusted_headers = {json.dumps(names)}\n"
    text = "".join(f'[[app]]\nroot = "{root}"\nname = "{name}"\n{more}\n' for name, more in APPS.items())
    return Hayate(config=f'trusted_proxies = "127.0.0.1"\n{key}{text}', workers=1)


#: What the operator has believed of such a proxy, and what PHP has to see of that request: site, HTTP_HOST, SERVER_NAME, REMOTE_ADDR, and
#: REQUEST_SCHEME, where that is not the connection's own.
BELIEVED = {
    "by default": (None, ("other", "other.test", "other.test", "9.9.9.9", "https")),
    "the host too": (["x-forwarded-for", "X-Forwarded-Host"], ("admin", "admin.test", "admin.test", "9.9.9.9", None)),
    "Forwarded alone": (["forwarded"], ("admin", "admin.test", "admin.test", "127.0.0.1", "https")),
    "Forwarded beside a chain": (["forwarded", "x-forwarded-for"], ("other", "other.test", "other.test", "9.9.9.9", None)),
    "nothing": ([], ("other", "other.test", "other.test", "127.0.0.1", None)),
}


@pytest.mark.parametrize("case", BELIEVED)
def test_b54_a_visitor_chooses_no_site_by_headers_that_a_trusted_proxy_passes_on(case, hayate_command, root) -> None:
    names, want = BELIEVED[case]
    with behind_proxy(root, names) as server:
        status, seen = ask(server, of_visitor(), host="other.test")
        assert status == 200
        assert tuple(seen[name] for name in ("SITE", "HTTP_HOST", "SERVER_NAME", "REMOTE_ADDR")) == want[:4]
        assert seen["REQUEST_SCHEME"] == (want[4] or ("https" if server.speaks_tls else "http"))
        assert seen["HTTP_X_FORWARDED_HOST"] == "admin.test", "applications may look at it, as behind any proxy"
        # A host that is none has nobody refused, and chooses nothing.
        assert ask(server, [("X-Forwarded-Host", "x@admin.test")], host="other.test")[1]["HTTP_HOST"] == "other.test"


@pytest.mark.parametrize(("names", "want"), [(None, "other"), (["x-forwarded-host"], "admin")])
def test_b54_a_host_that_is_believed_comes_before_that_of_the_target(names, want, hayate_command, root) -> None:
    with behind_proxy(root, names) as server:
        seen = ask(server, of_visitor(), target="http://other.test/server.php", host="nobody.test")[1]
        assert (seen["SITE"], seen["HTTP_HOST"], seen["SERVER_NAME"]) == (want, f"{want}.test", f"{want}.test")


def test_b54_a_header_that_cannot_be_believed_is_an_error(hayate_command, root, tmp_path) -> None:
    config = tmp_path / "hayate.toml"
    config.write_text(f'trusted_proxies = "127.0.0.1"\ntrusted_headers = ["x-forwarded-for", "x-real-ip"]\n[[app]]\nroot = "{root}"\n')
    command = [str(hayate_binary()), "check", "--config", str(config)]
    for flags, place in ([], f"{config}:2: trusted_headers: "), (["--trusted-headers", "x-real-ip"], "--trusted-headers: "):
        done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        names = "x-forwarded-for, x-forwarded-proto, x-forwarded-host, x-forwarded-port and forwarded"
        assert done.stderr == f"hayate: {place}expected some of {names}, found 'x-real-ip'\n"


REDIRECTS = {
    "/sub": "/sub/",
    "//sub": "/sub/",
    "/\\evil.test/..%2fsub": "/sub/",
    "/%5cevil.test/%2e%2e/sub": "/sub/",
    "//evil/..%2fsub": "/sub/",
    "/%2f%2fevil.test/..%2fsub?a=//b": "/sub/?a=//b",
    "/.//sub": "/sub/",
}


@pytest.mark.parametrize("target", REDIRECTS)
def test_b13_a_directory_redirect_leads_nowhere_else(target, proxied) -> None:
    sent = client.encode("GET", target, [("Host", "a.test"), ("Connection", "close")])
    answer = client.exchange(("127.0.0.1", proxied.port), sent)
    assert (answer.status, answer.header("Location")) == (301, REDIRECTS[target])


def test_header_names_with_dots_and_underscores_do_not_pass_for_others(reference, proxied) -> None:
    headers = [("X-Real", "1"), ("X_Real", "2"), ("X.Real", "3"), ("X.Only", "4"), ("Content_Length", "5")]
    for server in (reference, proxied):
        seen = ask(server, headers)[1]
        assert seen["HTTP_X_REAL"] == "1"
        assert not {name for name in seen if "ONLY" in name or name in ("HTTP_X.REAL", "HTTP_CONTENT_LENGTH")}


@pytest.mark.parametrize("path", ["/ok.php.php/a.jpg", "/a.php.txt/b.php", "/a.php.txt", "/plain.txt/x.php"])
def test_paths_that_were_executed_elsewhere(path, root, reference, proxied) -> None:
    """FrankenPHP's paths of 2026: only a file that itself ends in .php is run, with the path nginx and php-fpm give it."""
    (root / "ok.php.php").write_text("<?php echo json_encode([$_SERVER['SCRIPT_NAME'], $_SERVER['PATH_INFO'] ?? null]);")
    (root / "a.php.txt").write_text("<?php echo 'executed';")
    answers = []
    for server in (reference, proxied):
        sent = client.encode("GET", path, [("Host", "a.test"), ("Connection", "close")])
        answers.append(client.exchange(("127.0.0.1", server.port), sent))
    nginx, ours = answers
    assert b"executed" not in ours.body.replace(b"echo 'executed'", b"")
    # Source is never sent; nginx sends what does not end in .php.
    assert ours.status == (404 if path == "/a.php.txt" else nginx.status)
    if ours.status == 200:
        assert ours.body == nginx.body == b'["\\/ok.php.php","\\/a.jpg"]'
