"""Symfony, Debian's (5.4 or newer): kernel, forms with CSRF, sessions, security, Twig, uploads, every kind of response, kernel.terminate."""

from __future__ import annotations

import pathlib
import re
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from lib.process import temporary_directory, wait_until
from lib.servers import REPOSITORY, Hayate
from protocol.h2 import DATA, END_STREAM, HEADERS, Raw

from .browser import Browser, Page
from .conftest import MORE, REFERENCE, Served, serving
from .sites import USER, Site, symfony

NOTES = "//ul[@id='notes']/li"


@pytest.fixture(scope="module", params=[REFERENCE, "classic", "worker", "rewind", *MORE])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param, symfony) as served:
        yield served


def log_in(browser: Browser, name: str, password: str) -> Page:
    return browser.get("/login").submit({"_username": name, "_password": password})


def write(browser: Browser, text: str) -> Page:
    return browser.get("/write").submit({"note[text]": text})


def test_json(browser: Browser) -> None:
    page = browser.get("/json")
    assert (page.status, page.text) == (200, '{"status":"OK"}')
    assert page.response.headers["Content-Type"] == "application/json"
    assert not page.response.cookies, "a stateless route starts no session"


def test_page(browser: Browser) -> None:
    page = browser.get("/winds")
    assert page.one("//title") == "Winds - Pinboard"
    assert page.all("//tr[@class='odd']/td[2]")[:3] == ["Calm", "Light Breeze", "Moderate Breeze"]
    assert page.all("//tr[last()]/td") == ["12", "Hurricane", "34.8 m/s"]
    assert page.follow("//p/a").one("//h1") == "Pinboard"
    assert not page.response.cookies, "nothing needs a session"


def test_request_arrives_as_sent(browser: Browser) -> None:
    page = browser.request(
        "PUT", "/echo?a[b]=1&c=%20%C3%A9", json={"x": [1, "ä"]}, headers={"X-Test": "seen", "Cookie": "k=v"}
    )
    assert page.response.json() == {
        "method": "PUT",
        "query": {"a": {"b": "1"}, "c": " é"},
        "body": {"x": [1, "ä"]},
        "cookies": {"k": "v"},
        "header": "seen",
        "uri": f"{browser.base}/echo?a%5Bb%5D=1&c=%20%C3%A9",
    }
    assert page.response.raw.headers.getlist("Set-Cookie") == [
        "one=1; path=/; httponly; samesite=lax",
        "two=a%20b; path=/; httponly; samesite=lax",
    ]


def test_redirect(browser: Browser) -> None:
    page = browser.get("/leave", redirects=False)
    assert (page.status, page.response.headers["Location"]) == (303, "/json")
    assert browser.get("/leave").path == "/json"


def test_routing_errors(browser: Browser) -> None:
    page = browser.get("/no/such/page")
    assert (page.status, page.one("//h1[@id='error']")) == (404, "404 Not Found")
    page = browser.post("/json")
    assert (page.status, page.response.headers["Allow"]) == (405, "GET")


def test_static_file(browser: Browser) -> None:
    page = browser.get("/style.css")
    assert (page.status, page.response.headers["Content-Type"].split(";")[0]) == (200, "text/css")


def test_session_counts_visits(url: str, browser: Browser) -> None:
    assert [browser.get("/").one("//*[@id='visits']") for _ in range(3)] == ["1", "2", "3"]
    assert Browser(url).get("/").one("//*[@id='visits']") == "1"


def test_form(browser: Browser) -> None:
    page = write(browser, "Ärger & <b>Freude</b>")
    assert page.path == "/"
    assert page.one("//p[@class='flash']") == "Note kept."
    assert page.all(NOTES) == ["Ärger & <b>Freude</b>"]
    assert browser.get("/").all("//p[@class='flash']") == [], "a flash message shows once"


def test_form_refuses_what_is_not_valid(browser: Browser) -> None:
    page = write(browser, "")
    assert page.status == 422
    assert "This value should not be blank." in page.text
    page = write(browser, "x" * 201)
    assert (page.status, page.tree.xpath("string(//textarea)").strip()) == (422, "x" * 201)
    assert browser.get("/").all(NOTES) == []


def test_form_refuses_a_wrong_csrf_token(url: str, browser: Browser) -> None:
    page = browser.get("/write").submit({"note[text]": "forged", "note[_token]": "x"})
    assert page.status == 422
    assert "The CSRF token is invalid" in page.text
    # A token is another visitor's as well, if it is not mine.
    other = Browser(url).get("/write").tree.xpath("//input[@name='note[_token]']/@value")[0]
    assert browser.get("/write").submit({"note[text]": "forged", "note[_token]": other}).status == 422
    assert browser.get("/").submit({"_token": "x"}, form="//form[@id='clear']").status == 403
    assert browser.get("/").submit(form="//form[@id='clear']").path == "/"


def test_login_and_logout(browser: Browser) -> None:
    page = browser.get("/account")
    assert page.path == "/login", "a page that needs a login leads to the form"
    page = log_in(browser, "grace", "wrong")
    assert page.one("//p[@class='error']") == "Invalid credentials."
    before = browser.cookie("PHPSESSID")
    page = page.submit({"_username": "grace", "_password": "compiler"})
    assert (page.path, page.one("//h1")) == ("/account", "Account of grace")
    assert browser.cookie("PHPSESSID") != before, "a login changes the session's id"
    assert browser.get("/admin").status == 403
    page = page.follow("//a[@id='logout']")
    assert page.path == "/"
    assert page.all("//*[@id='user']") == []
    assert browser.get("/account").path == "/login"


def test_login_needs_a_csrf_token(browser: Browser) -> None:
    page = browser.get("/login").submit({"_username": "grace", "_password": "compiler", "_csrf_token": "x"})
    assert (page.path, page.one("//p[@class='error']")) == ("/login", "Invalid CSRF token.")


def test_roles(browser: Browser) -> None:
    log_in(browser, "ada", "analytical")
    assert browser.get("/admin").response.json() == {"secret": "for ada"}


def test_upload_and_binary_file_response(browser: Browser) -> None:
    content = bytes(range(256)) * 4000  # one megabyte
    page = browser.get("/upload").submit(files={"upload[file]": ("größe.bin", content, "application/octet-stream")})
    assert page.path.startswith("/files/")
    assert page.response.content == content
    assert page.response.headers["Content-Length"] == str(len(content))

    page = browser.get(page.path, headers={"Range": "bytes=255-258"})
    assert (page.status, page.response.content) == (206, b"\xff\x00\x01\x02")
    assert page.response.headers["Content-Range"] == f"bytes 255-258/{len(content)}"
    assert browser.get(page.path, headers={"If-None-Match": page.response.headers["ETag"]}).status == 304
    page = browser.get(page.path + "?download")
    names = "filename=size.bin; filename*=utf-8''gr%C3%B6%C3%9Fe.bin"
    assert page.response.headers["Content-Disposition"] == f"attachment; {names}"
    assert browser.request("HEAD", page.path).response.headers["Content-Length"] == str(len(content))


def test_upload_that_is_too_large(browser: Browser) -> None:
    # Above PHP's upload_max_filesize of 2 MB, below its post_max_size.
    big = ("big.bin", b"x" * 3_000_000, "application/octet-stream")
    page = browser.get("/upload").submit(files={"upload[file]": big})
    assert page.status == 422
    assert page.one("//li") == "The file is too large. Allowed maximum size is 2097152 bytes."


def test_streamed_response(served: Served, browser: Browser) -> None:
    """The first line is here before the second is written."""
    response = browser.get("/stream/two", stream=True).response
    assert response.status_code == 200
    lines = response.iter_lines()
    assert next(lines) == b"first"
    (served.site.var / "go-two").touch()
    assert list(lines) == [b"second"]


def test_a_visitor_who_leaves(served: Served, browser: Browser) -> None:
    """PHP notices when it writes, and ends the script; nobody else is to notice."""
    log_in(browser, "grace", "compiler")
    # PHP ends such a script by a bail-out, which worker mode answers with a new worker.
    served.may_restart += 4
    for number in range(4):
        response = browser.get(f"/stream/gone{number}", stream=True).response
        assert next(response.iter_lines()) == b"first"
        response.close()
        (served.site.var / f"go-gone{number}").touch()
        assert browser.get("/account").one("//h1") == "Account of grace"


def test_exception_is_a_500_and_the_log_says_why(served: Served, browser: Browser) -> None:
    page = browser.get("/broken")
    assert (page.status, page.one("//h1[@id='error']")) == (500, "500 Internal Server Error")
    assert "on purpose" not in page.text
    assert served.server.logged("broken on purpose")
    assert browser.get("/json").status == 200


def test_exit_ends_the_request_only(browser: Browser) -> None:
    log_in(browser, "grace", "compiler")
    for _ in range(3):
        page = browser.get("/exit")
        assert (page.status, page.text) == (200, "gone")
        assert page.response.headers["Content-Type"] == "text/plain;charset=UTF-8"
        assert browser.get("/account").one("//h1") == "Account of grace"


def test_terminate_runs_after_the_answer(served: Served, browser: Browser) -> None:
    var = served.site.var
    assert browser.get("/later/one").text == "later"
    assert not (var / "done-one").exists(), "the answer waited for kernel.terminate"
    (var / "go-one").touch()
    assert wait_until((var / "done-one").exists, timeout=60)


def test_services_are_fresh_for_each_request(browser: Browser) -> None:
    """Trail collects steps; without a reset a worker's second request would find the first one's."""
    assert [browser.get(f"/trail/{step}").response.json() for step in "abcd"] == [["a"], ["b"], ["c"], ["d"]]


def test_worker_script_of_the_docs() -> None:
    """The one that docs/symfony.md shows, with its state kept and rewound."""
    code = re.findall(r"```php\n(.*?)```", (REPOSITORY / "docs/symfony.md").read_text(), re.DOTALL)
    directory = temporary_directory("apps")
    try:
        site = symfony(directory)
        (site.root / "public/documented.php").write_text(code[0])
        for rewind in ("on", "off"):
            more = {"workers": 1, "ini": site.ini, "user": USER, "args": ["--env", "APP_SECRET=x", "--rewind", rewind]}
            with Hayate(site.root, worker="public/documented.php", **more) as server:
                browser = Browser(server.url)
                assert [browser.get("/").one("//*[@id='visits']") for _ in range(3)] == ["1", "2", "3"]
                assert log_in(browser, "ada", "analytical").one("//h1") == "Account of ada"
                assert [browser.get(f"/trail/{step}").response.json() for step in "ab"] == [["a"], ["b"]]
                assert server.status()["apps"][0]["restarts"] == {}
    finally:
        shutil.rmtree(directory)


# Debian 12's Symfony, 5.4, has no early hints: there the answer comes without any.
HAS_HINTS = "function sendEarlyHints(" in pathlib.Path("/usr/share/php/Symfony/Bundle/FrameworkBundle/Controller/AbstractController.php").read_text()
HINTS = '</style.css>; rel="preload"; as="style",<https://fonts.example>; rel="preconnect"'
MODES = {
    "classic": 'mode = "classic"',
    "worker": 'worker = "public/worker.php"\nrewind = "off"',
    "rewind": 'mode = "worker"\nrewind = "on"\nrewind_verify = 1',
}


@pytest.fixture(scope="module")
def hinting() -> Iterator[Site]:
    directory = temporary_directory("apps")
    yield symfony(directory)
    shutil.rmtree(directory)


@pytest.mark.parametrize("mode", MODES)
def test_early_hints_of_a_controller(mode, hinting: Site) -> None:
    """`AbstractController::sendEarlyHints()`: the hints come while the page is not made yet, by HTTP/2 and 1.1, again and again."""
    config = f'http2_prior_knowledge = true\nearly_hints_http1 = true\n[[app]]\nroot = "{hinting.root}"\nworkers = 1\n{MODES[mode]}\n'
    environment = [f"--env={name}={value}" for name, value in hinting.env.items()]
    with Hayate(config=config, ini=hinting.ini, user=USER, args=environment) as server:
        for turn in "ab":
            for ask in (hinted_by_http2, hinted_by_http1):
                interim, status, links, page = ask(server, hinting.var, f"{mode}_{ask.__name__}_{turn}")
                assert interim == ([(103, [HINTS])] if HAS_HINTS else [])
                # What was sent early stands in the answer as well, once.
                assert (status, links) == (200, [HINTS] if HAS_HINTS else [])
                assert "<h1>Winds</h1>" in page
        assert server.status()["apps"][0]["restarts"] == {}


def hinted_by_http2(server: Hayate, var: pathlib.Path, name: str) -> tuple[list, int, list[str], str]:
    """The hints, then with leave to go on the answer: its status, its links, its body."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        raw = Raw(sock)
        raw.request(1, f"/hints/{name}")
        heads, body, flags = [], b"", 0
        if not HAS_HINTS:
            (var / f"go-{name}").touch()
        while not flags & END_STREAM:
            kind, flags, _, payload = raw.until(lambda kind, flags, stream, payload: kind in (HEADERS, DATA) and stream == 1)
            if kind == DATA:
                body += payload
                continue
            fields = raw.decoder.decode(payload)
            heads.append((int(dict(fields)[":status"]), [value for name, value in fields if name == "link"]))
            (var / f"go-{name}").touch()
        return heads[:-1], *heads[-1], body.decode()


def hinted_by_http1(server: Hayate, var: pathlib.Path, name: str) -> tuple[list, int, list[str], str]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        sock.sendall(f"GET /hints/{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while HAS_HINTS and b"\r\n\r\n" not in received:
            received += sock.recv(65536)
        (var / f"go-{name}").touch()
        while more := sock.recv(65536):
            received += more
    heads = []
    while not heads or heads[-1][0] < 200:
        head, _, received = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        heads.append((int(first.split()[1]), [line.partition(":")[2].strip() for line in lines if line.lower().startswith("link:")]))
    return heads[:-1], *heads[-1], received.decode()


def test_two_users_interleaved(url: str) -> None:
    """One after the other and all at once: no visitor ever sees anything of another's."""
    people = {"ada": "analytical", "grace": "compiler", None: None}
    browsers = {name: Browser(url) for name in people}
    for name, password in people.items():
        if name is not None:
            log_in(browsers[name], name, password)
    kept: dict[str | None, list[str]] = {name: [] for name in people}

    def step(name: str | None, number: int) -> None:
        browser, note = browsers[name], f"{name} {number}"
        page = write(browser, note)
        kept[name].append(note)
        assert page.all(NOTES) == kept[name]
        assert page.all("//*[@id='user']") == ([name] if name else [])
        account = browser.get("/account")
        assert account.one("//h1") == f"Account of {name}" if name else account.path == "/login"

    for number in range(5):
        for name in people:
            step(name, number)

    def visit(name: str | None) -> None:
        for number in range(5, 15):
            step(name, number)

    with ThreadPoolExecutor(len(people)) as pool:
        list(pool.map(visit, people))
    assert {name: len(notes) for name, notes in kept.items()} == {"ada": 15, "grace": 15, None: 15}
