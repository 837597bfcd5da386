"""Laravel 8.83: Eloquent on SQLite, Blade, sessions, login, CSRF, validation, uploads, pages, queue, transactions."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import pytest
from lib.process import wait_until

from .browser import Browser, Page
from .conftest import MORE, REFERENCE, Served, serving
from .pictures import png
from .sites import Site, laravel

NOTES = "//ul[@id='notes']/li/span[@class='text']"
PASSWORDS = {"ada": "analytical", "grace": "compiler"}


@pytest.fixture(scope="module", params=[REFERENCE, "classic", "worker", "rewind", *MORE])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param, laravel) as served:
        yield served


def log_in(browser: Browser, name: str, password: str | None = None) -> Page:
    fields = {"email": f"{name}@example.org", "password": password or PASSWORDS[name]}
    return browser.get("/login").submit(fields, form="//form[@id='log-in']")


def write(browser: Browser, text: str, title: str = "") -> Page:
    return browser.get("/notes/create").submit({"text": text, "title": title}, form="//form[@id='write']")


def test_json(browser: Browser) -> None:
    page = browser.get("/api/json")
    assert (page.status, page.text) == (200, '{"status":"OK"}')
    assert page.response.headers["Content-Type"] == "application/json"
    assert not page.response.cookies, "a route of the group api starts no session"


def test_request_arrives_as_sent(browser: Browser) -> None:
    page = browser.request(
        "PUT", "/api/echo?a[b]=1&c=%20%C3%A9", json={"x": [1, "ä", ""]}, headers={"X-Test": "seen", "Cookie": "k=v"}
    )
    assert page.response.json() == {
        "method": "PUT",
        "query": {"a": {"b": "1"}, "c": "é"},  # TrimStrings
        "body": {"x": [1, "ä", None]},  # ConvertEmptyStringsToNull
        "cookies": {"k": "v"},
        "header": "seen",
        "uri": f"{browser.base}/api/echo?a%5Bb%5D=1&c=%20%C3%A9",
        "home": browser.base,
        "timezone": "Asia/Tokyo",
    }
    assert page.response.raw.headers.getlist("Set-Cookie") == [
        "one=1; path=/; httponly; samesite=lax",
        "two=a%20b; path=/; httponly; samesite=lax",
    ]


def test_routing_errors(browser: Browser) -> None:
    page = browser.get("/no/such/page")
    assert (page.status, page.one("//title")) == (404, "Not Found")
    page = browser.get("/people/nobody")
    assert (page.status, page.one("//title")) == (404, "Not Found"), "route model binding finds nobody"
    page = browser.post("/api/json")
    assert (page.status, page.response.headers["Allow"]) == (405, "GET, HEAD")
    page = browser.get("/api/nothing", headers={"Accept": "application/json"})
    # Laravel 8 says nothing, Laravel 10 says what is missing.
    assert page.status == 404 and page.response.json()["message"] in ("", "The route api/nothing could not be found.")


def test_static_file(browser: Browser) -> None:
    page = browser.get(browser.get("/").link("//link[@rel='stylesheet']"))
    assert (page.status, page.response.headers["Content-Type"].split(";")[0]) == (200, "text/css")


def test_what_is_not_public(browser: Browser) -> None:
    for path in ("/.env", "/../.env", "/storage/../../.env", "/artisan", "/index.php/../../.env"):
        page = browser.get(path)
        assert page.status in (400, 403, 404)
        assert "APP_KEY" not in page.text


def test_session_counts_visits(url: str, browser: Browser) -> None:
    assert [browser.get("/").one("//*[@id='visits']") for _ in range(3)] == ["1", "2", "3"]
    assert Browser(url).get("/").one("//*[@id='visits']") == "1"


def test_form(browser: Browser) -> None:
    log_in(browser, "ada")
    page = write(browser, "Ärger & <b>Freude</b>", "  a title ")
    assert page.path == "/people/ada"
    assert page.one("//p[@class='status']") == "Note kept."
    assert page.all(NOTES)[-1] == "Ärger & <b>Freude</b>"
    assert page.all("//ul[@id='notes']/li/b")[-1] == "a title"
    assert browser.get(page.path).all("//p[@class='status']") == [], "a flash message shows once"
    page = write(browser, "no title")
    assert page.tree.xpath("//ul[@id='notes']/li[last()]/b") == []


def test_validation_brings_the_old_input_back(browser: Browser) -> None:
    log_in(browser, "ada")
    page = write(browser, "", "kept <title>")
    assert (page.status, page.path) == (200, "/notes/create")
    assert page.one("//p[@id='text-error']") == "Your text is missing."
    assert page.value("//input[@name='title']/@value") == "kept <title>"
    page = write(browser, "x" * 201)
    assert page.one("//p[@class='error']") == "Your text is longer than 200 letters."
    assert page.value("//input[@name='text']/@value") == "x" * 201
    page = browser.get("/notes/create")
    assert page.all("//p[@class='error']") == []
    assert page.tree.xpath("//form[@id='write']//input[@value!='' and @name!='_token']") == []


def test_validation_answers_json_to_who_asks_for_it(browser: Browser) -> None:
    token = browser.get("/login").value("//input[@name='_token']/@value")
    page = browser.post("/login", json={"email": "x"}, headers={"Accept": "application/json", "X-CSRF-TOKEN": token})
    assert page.status == 422
    assert page.response.json()["errors"] == {
        "email": ["Your email is no address."],
        "password": ["Your password is missing."],
    }


def test_forms_need_a_csrf_token(url: str, browser: Browser) -> None:
    fields = {"email": "ada@example.org", "password": PASSWORDS["ada"]}
    other = Browser(url).get("/login").value("//input[@name='_token']/@value")
    for token in ("x", other):
        page = browser.get("/login").submit({**fields, "_token": token}, form="//form[@id='log-in']")
        assert (page.status, page.one("//title")) == (419, "Page Expired")
    assert browser.post("/login", data=fields).status == 419
    # The cookie that scripts in the page send back as a header, encrypted.
    browser.get("/login")
    header = {"X-XSRF-TOKEN": unquote(browser.cookie("XSRF-TOKEN") or "")}
    assert browser.post("/login", data=fields, headers=header).path == "/account"


def test_login_and_logout(browser: Browser) -> None:
    page = browser.get("/account")
    assert page.path == "/login", "a page that needs a login leads to the form"
    page = log_in(browser, "grace", "wrong")
    assert page.one("//p[@class='error']") == "Nobody has this address and this password."
    assert page.value("//input[@name='email']/@value") == "grace@example.org"
    assert browser.get("/notes/create").path == "/login"
    before = browser.cookie("pinboard_session")
    page = log_in(browser, "grace")
    assert page.path == "/notes/create", "the login leads where the visitor wanted to go"
    assert browser.cookie("pinboard_session") != before
    assert browser.get("/account").one("//h1") == "Account of grace"
    page = browser.get("/account").submit(form="//form[@id='logout']")
    assert page.path == "/"
    assert page.all("//*[@id='user']") == []
    assert browser.get("/account").path == "/login"


def test_remember_me(browser: Browser) -> None:
    fields = {"email": "grace@example.org", "password": PASSWORDS["grace"], "remember": "1"}
    browser.get("/login").submit(fields, form="//form[@id='log-in']")
    browser.session.cookies.clear(domain="127.0.0.1", path="/", name="pinboard_session")
    assert browser.get("/account").one("//h1") == "Account of grace"
    log_in(browser, "grace")
    forged = Browser(browser.base)
    name = next(name for name in browser.session.cookies.keys() if name.startswith("remember_web_"))
    forged.session.cookies.set(name, (browser.cookie(name) or "")[:-8] + "AAAAAAA%3D", domain="127.0.0.1", path="/")
    assert forged.get("/account").path == "/login"


def test_policy(url: str, browser: Browser) -> None:
    log_in(browser, "ada")
    page = write(browser, "to be deleted")
    action = page.value("//ul[@id='notes']/li[last()]//form/@action")
    other = Browser(url)
    log_in(other, "grace")
    page = other.get("/people/ada")
    assert page.tree.xpath("//ul[@id='notes']//form") == [], "nobody else gets a button"
    token = page.value("//form[@id='logout']/input[@name='_token']/@value")
    assert other.post(action, data={"_method": "delete", "_token": token}).status == 403
    assert "to be deleted" in other.get("/people/ada").all(NOTES)
    page = browser.get("/people/ada").submit(form=f"//form[@action='{action}']")
    assert page.one("//p[@class='status']") == "Note deleted."
    assert "to be deleted" not in page.all(NOTES)


def test_queued_listener_of_a_model_event(browser: Browser) -> None:
    log_in(browser, "ada")
    assert write(browser, "four words it has").value("//ul[@id='notes']/li[last()]/@data-words") == "4"


def test_pages(browser: Browser) -> None:
    for _ in range(2):
        page = browser.get("/people/archive")
        assert page.all(NOTES) == [f"note {number}" for number in range(1, 11)]
        page = page.follow("//a[@rel='next']")
        assert (page.path, page.all(NOTES)) == ("/people/archive?page=2", [f"note {n}" for n in range(11, 21)])
        page = page.follow("//a[@rel='next']")
        assert page.all(NOTES) == [f"note {number}" for number in range(21, 26)]
        assert page.tree.xpath("//a[@rel='next']") == []
        assert browser.get("/people/archive?page=9").all(NOTES) == []


def test_upload_and_read_back(browser: Browser) -> None:
    log_in(browser, "ada")
    content = png(64, 48)
    page = browser.get("/pictures/create").submit(
        form="//form[@id='upload']", files={"picture": ("größe.png", content, "image/png")}
    )
    assert page.path.startswith("/pictures/")
    assert (page.response.content, page.response.headers["Content-Type"]) == (content, "image/png")
    assert page.response.headers["Content-Length"] == str(len(content))
    page = browser.get(page.path + "?download=1")
    names = "filename=grosse.png; filename*=utf-8''gr%C3%B6%C3%9Fe.png"
    assert page.response.headers["Content-Disposition"] == f"attachment; {names}"
    assert page.response.content == content
    # The link that `artisan storage:link` made leads out of the document root; the server sends the file itself.
    page = browser.get("/storage" + page.path.partition("?")[0])
    assert (page.status, page.response.content, page.response.headers["Content-Type"]) == (200, content, "image/png")
    assert "Set-Cookie" not in page.response.headers


def test_upload_refused(served: Served, browser: Browser) -> None:
    log_in(browser, "ada")

    def upload(content: bytes) -> Page:
        files = {"picture": ("p.png", content, "image/png")}
        return browser.get("/pictures/create").submit(form="//form[@id='upload']", files=files)

    assert upload(b"<?php phpinfo();").one("//p[@id='picture-error']") == "Your picture is no image."
    assert upload(png(65, 1)).one("//p[@id='picture-error']") == "Your picture is too wide."
    # Above PHP's upload_max_filesize of 2 MB, then above its post_max_size of 3 MB.
    assert upload(bytes(2_500_000)).one("//p[@id='picture-error']") == "Your picture did not arrive."
    served.may_complain.append("POST Content-Length of")
    assert upload(bytes(3_500_000)).status == 413


def test_streamed_response(served: Served, browser: Browser) -> None:
    """The first line is here before the second is written."""
    response = browser.get("/api/stream/lines", stream=True).response
    assert response.status_code == 200
    lines = response.iter_lines()
    assert next(lines) == b"first"
    (served.site.var / "go-lines").touch()
    assert list(lines) == [b"second"]


def test_work_after_the_answer(served: Served, browser: Browser) -> None:
    """Each job runs once; the application keeps them in a list that has to be emptied."""
    storage = served.site.var
    for name in ("one", "two", "three", "four"):
        assert browser.get(f"/api/later/{name}").text == "later"
        assert not (storage / f"done-{name}").exists(), "the answer waited for the job"
        (storage / f"go-{name}").touch()
        assert wait_until((storage / f"done-{name}").exists, timeout=60)
        assert browser.get("/api/json").status == 200
    # All workers have answered since; a job that ran again would have said so.
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: browser.get("/api/json"), range(8)))
    assert [(storage / f"done-{name}").read_text() for name in ("one", "two", "three", "four")] == ["."] * 4


def test_exception_is_a_500_and_the_log_says_why(served: Served, browser: Browser) -> None:
    page = browser.get("/api/broken")
    assert (page.status, page.one("//title")) == (500, "Server Error")
    assert "on purpose" not in page.text
    assert served.server.logged("broken on purpose")
    assert "broken on purpose" in (served.site.var / "logs/laravel.log").read_text()
    assert browser.get("/api/json").status == 200


def test_fatal_error(served: Served, browser: Browser) -> None:
    """Laravel's shutdown function makes a page of what no code can catch."""
    served.may_complain.append("Allowed memory size of")
    served.may_restart += 2
    log_in(browser, "grace")
    for _ in range(2):
        page = browser.get("/api/exhausted")
        assert (page.status, page.one("//title")) == (500, "Server Error")
        assert browser.get("/account").one("//h1") == "Account of grace"
    log = (served.site.var / "logs/laravel.log").read_text()
    assert log.count("production.ERROR: Allowed memory size of") == 2


def test_exit_ends_the_request_only(browser: Browser) -> None:
    log_in(browser, "grace")
    for _ in range(3):
        page = browser.get("/api/exit")
        assert (page.status, page.text) == (200, "gone")
        assert page.response.headers["Content-Type"] == "text/plain;charset=UTF-8"
        assert browser.get("/account").one("//h1") == "Account of grace"


def test_transaction_that_nobody_ends(browser: Browser) -> None:
    """A connection that is kept would keep the lock as well, and show what was never committed."""
    log_in(browser, "grace")
    for number in range(3):
        assert browser.get("/api/half-done").text == "half done"
        assert browser.get("/people/archive?page=3").all(NOTES)[-1] == "note 25"
        assert write(browser, f"not locked out {number}").all(NOTES)[-1] == f"not locked out {number}"


def test_settings_are_those_of_the_boot_for_each_request(browser: Browser) -> None:
    booted = {"greeting": "Welcome", "name": "Pinboard", "added": None, "bound": False}
    changed = {"greeting": "Willkommen", "name": "changed", "added": {"deep": True}, "bound": True}
    for _ in range(3):
        assert browser.get("/api/settings").response.json() == booted
        assert browser.get("/api/settings/de").response.json() == changed
    assert browser.get("/").tree.get("lang") == "en"


def test_singletons_are_fresh_for_each_request(browser: Browser) -> None:
    """Trail collects steps; kept, a worker's second request would find the first one's."""
    assert [browser.get(f"/api/trail/{step}").response.json() for step in "abcd"] == [["a"], ["b"], ["c"], ["d"]]


def test_static_properties(served: Served, browser: Browser) -> None:
    """What worker mode does not undo, and docs/laravel.md says so: a static property lives as long as its process."""
    seen: dict[int, list[int]] = {}
    for _ in range(8):
        answer = browser.get("/api/statics").response.json()
        seen.setdefault(answer["pid"], []).append(answer["calls"])
    for calls in seen.values():
        if served.mode == "worker":
            assert calls == list(range(calls[0], calls[0] + len(calls)))
        else:
            assert set(calls) == {1}


def test_maintenance_mode(served: Served, browser: Browser) -> None:
    served.site.run("artisan", "down", "--secret=opensesame", "--retry=7")
    try:
        page = browser.get("/")
        assert (page.status, page.one("//title")) == (503, "Service Unavailable")
        assert page.response.headers["Retry-After"] == "7"
        assert browser.get("/opensesame").one("//h1") == "Pinboard"
    finally:
        served.site.run("artisan", "up")
    assert browser.get("/").status == 200


def test_two_users_interleaved(url: str) -> None:
    """One after the other and all at once: no visitor ever sees anything of another's."""
    browsers = {name: Browser(url) for name in (*PASSWORDS, None)}
    for name in PASSWORDS:
        log_in(browsers[name], name)

    def step(name: str | None, number: int) -> None:
        browser = browsers[name]
        assert browser.get("/").all("//*[@id='user']") == ([name] if name else [])
        page = browser.get("/account")
        assert page.one("//h1") == f"Account of {name}" if name else page.path == "/login"
        if name:
            page = write(browser, f"{number} of {name}", name)
            page = page if not page.tree.xpath("//a[@rel='next']") else browser.get(f"{page.path}?page=99")
            assert page.one("//h1") == f"Notes of {name}"

    for number in range(5):
        for name in browsers:
            step(name, number)

    def visit(name: str | None) -> None:
        for number in range(5, 12):
            step(name, number)

    with ThreadPoolExecutor(len(browsers)) as pool:
        list(pool.map(visit, browsers))
    for name in PASSWORDS:
        page, kept = browsers[name].get(f"/people/{name}"), []
        while True:
            kept += [note for note in page.all(NOTES) if " of " in note]
            if not page.tree.xpath("//a[@rel='next']"):
                break
            page = page.follow("//a[@rel='next']")
        assert kept == [f"{number} of {name}" for number in range(12)]


def uncompiled(directory: pathlib.Path) -> Site:
    site = laravel(directory)
    site.run("artisan", "view:clear")
    assert not list((site.var / "framework/views").glob("*.php"))
    return site


@pytest.mark.parametrize("mode", [REFERENCE, "classic", "worker", "rewind", "fork"])
def test_views_are_compiled_when_a_visitor_asks_for_them(mode: str) -> None:
    """None is there beforehand, and they change in production, as where customers edit them."""
    with serving(mode, uncompiled) as served:
        browser, view = Browser(served.url), served.site.root / "resources/views/account.blade.php"
        as_it_was = view.read_text()
        log_in(browser, "ada")
        assert browser.get("/account").one("//h1") == "Account of ada"

        def becomes(text: str, heading: str, status: int = 200) -> None:
            view.write_text(text)
            # Blade compares whole seconds; OPcache looks at a file each other second.
            os.utime(view, (time.time() + 1, time.time() + 1))

            def seen() -> bool:
                page = browser.get("/account")
                return (page.status, heading in page.text) == (status, True)

            assert wait_until(seen, 30), (heading, browser.get("/account").text, served.server.log_tail())

        becomes(as_it_was.replace("Account of", "Storms of"), "Storms of ada")
        becomes("@php(throw new LogicException('thrown by a view'))", "Server Error", 500)
        becomes("@if (true) never closed", "Server Error", 500)
        becomes(as_it_was, "Account of ada")
        assert browser.get("/").one("//span[@id='visits']") == "1", "the session goes on"
