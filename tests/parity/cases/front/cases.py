"""A front controller: every path that is no file runs /index.php."""

from __future__ import annotations

from parity.dsl import Case, Replacement, field, file, get, head, post, request

REDIRECT_PORT: Replacement = (rb"http://parity\.test:\d+/", b"http://parity.test/")


def front(*requests, **how) -> Case:
    return Case("index", *requests, profile="front", **how)


CASES = [
    front(
        get("", at="/"),
        get("", at="/?q=1"),
        get("", at="/index.php"),
        get("", at="/index.php?q=1"),
        get("", at="/index.php/path/info?q=1"),
        name="root",
        doc="the front controller itself",
    ),
    front(
        get("", at="/blog"),
        get("", at="/blog/"),
        get("", at="/blog/2024/hello-world?page=2&sort[]=a"),
        get("", at="/caf%C3%A9/%E4%B8%AD"),
        get("", at="/with%20space/a%2Fb"),
        get("", at="/plus+sign"),
        get("", at="/percent%25"),
        get("", at="/question%3Fmark?x=%3F"),
        get("", at="/a//b///c"),
        get("", at="/a/../b"),
        get("", at="/a/./b"),
        get("", at="/file.html"),
        get("", at="/image.png"),
        get("", at="/feed.xml?x"),
        get("", at="/user@example.test"),
        get("", at="/a;b=c,d:e"),
        get("", at="/?"),
        get("", at="//double"),
        get("", at="/not-found"),
        get("", at="/" + "long/" * 300, label="a long path"),
        name="pretty",
        doc="paths that are no files",
    ),
    front(
        post("", at="/submit", form="a=1&b[]=2"),
        post("", at="/upload", parts=[field("a", "1"), file("f", "n.txt", "x")]),
        request("PUT", at="/resource/7", body="x", type="text/plain"),
        request("DELETE", at="/resource/7"),
        head("", at="/blog"),
        request("OPTIONS", at="/api"),
        name="methods",
        doc="methods",
    ),
    front(
        get("", at="/assets/app.txt"),
        get("", at="/assets/missing.txt"),
        get("", at="/other.php"),
        get("", at="/other.php/info"),
        get("", at="/other.php/.git/config"),
        name="files",
        doc="files win over the front controller",
    ),
    Case("other", get(), get("?q"), profile="front", doc="another script"),
    front(
        get("", at="/sub/"),
        get("", at="/sub"),
        get("", at="/sub/missing"),
        get("", at="/assets/"),
        get("", at="/assets"),
        name="directories",
        normalise=[REDIRECT_PORT],
        doc="directories",
    ),
    front(
        get("", at="/missing.php"),
        get("", at="/missing.php/info"),
        get("", at="/sub/missing.php"),
        name="missing_scripts",
        doc="scripts that are not there",
    ),
    front(get("", at="/.env"), get("", at="/.git/config"), name="dotfiles", doc="dotfiles"),
]
