"""Warm-up requests carry the site's own address, so that what an application keeps of its first request is right (D17)."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
import requests

from lib.servers import Hayate, hayate_binary

#: Notes what the warm-up requests see, and answers with what a visitor's request sees.
SEES = """<?php
while (hayate_handle_request(function () {
    if (isset($_SERVER['HAYATE_WARMUP'])) {
        file_put_contents(__DIR__.'/seen', json_encode($_SERVER)."\\n", FILE_APPEND);
    }
    header('Content-Type: application/json');
    echo json_encode($_SERVER);
})) {
}
"""
#: As many applications do: what the first request says is kept for all.
MEMOISES = """<?php
final class Site { public static ?string $base = null; }
while (hayate_handle_request(function () {
    $https = ($_SERVER['HTTPS'] ?? '') === 'on' ? 'https' : 'http';
    Site::$base ??= "$https://$_SERVER[HTTP_HOST]".rtrim(dirname($_SERVER['SCRIPT_NAME']), '/');
    echo '<link rel="canonical" href="', Site::$base, '/">';
})) {
}
"""
ADDRESS = [
    "HTTP_HOST", "SERVER_NAME", "SERVER_PORT", "REQUEST_SCHEME", "HTTPS", "REQUEST_URI", "QUERY_STRING", "SCRIPT_NAME",
    "SCRIPT_FILENAME", "DOCUMENT_URI", "DOCUMENT_ROOT", "PATH_INFO", "PHP_SELF", "REQUEST_METHOD", "SERVER_PROTOCOL",
]  # fmt: skip


def site(directory: pathlib.Path, worker: str, keys: str) -> str:
    """The configuration of an application with a front controller and a script of its own in a subdirectory."""
    (directory / "admin").mkdir(parents=True, exist_ok=True)
    # OPcache is given what answers in classic mode, before the boot: that notes nothing.
    for name in ("index.php", "admin/tool.php"):
        (directory / name).write_text("<?php echo 'in classic mode';")
    (directory / "worker.php").write_text(worker)
    directory.chmod(0o777)
    return f"""
        {keys.partition("|")[2]}
        [[app]]
        root = "{directory}"
        worker = "worker.php"
        workers = 1
        {keys.partition("|")[0]}
    """


def seen(directory: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "seen").read_text().splitlines()]


@pytest.mark.parametrize(
    ("keys", "prefix", "host"),
    [
        ('hosts = ["shop.test"]\npath = "/blog"', "/blog", "shop.test:PORT"),
        ('hosts = ["*.other.test", "Shop.test", "www.shop.test"]', "", "shop.test:PORT"),
        ('hosts = ["*.shop.test"]', "", "www.shop.test:PORT"),
        ('path = "/blog"', "/blog", "localhost:PORT"),
        ('hosts = ["shop.test"]\npath = "/blog"|trusted_proxies = "127.0.0.1"', "/blog", "shop.test"),
    ],
    ids=["host and path", "several hosts", "wildcard", "any host", "behind a proxy"],
)
def test_warm_up_requests_see_what_a_visitors_request_sees(tmp_path, keys, prefix, host) -> None:
    root = tmp_path / "site"
    paths = ["/", "/a%20page/?x=1", "/admin/tool.php/more?x", "/index.php"]
    own, _, top = keys.partition("|")
    config = site(root, SEES, f"{own}\nwarmup = {json.dumps(paths)}|{top}")
    with Hayate(config=config) as server:
        headers = {"Host": host.replace("PORT", str(server.port))}
        if "trusted" in config:
            headers |= {"X-Forwarded-Proto": "https", "X-Forwarded-Port": "443"}
        warmups = seen(root)
        assert len(warmups) == len(paths), "as configured, and no others"
        for path, warmup in zip(paths, warmups, strict=True):
            visitor = requests.get(f"{server.url}{prefix}{path}", headers=headers, timeout=60).json()
            assert {key: warmup.get(key) for key in ADDRESS} == {key: visitor.get(key) for key in ADDRESS}
        assert warmups[0]["REQUEST_URI"] == f"{prefix}/" and warmups[0]["SCRIPT_NAME"] == f"{prefix}/index.php"


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize("proxy", [False, True])
def test_a_base_url_that_an_application_keeps_is_right_for_every_visitor(tmp_path, rewind, proxy) -> None:
    keys = f'hosts = ["shop.test"]\npath = "/blog"\nrewind = "{rewind}"|' + ('trusted_proxies = "127.0.0.1"' if proxy else "")
    with Hayate(config=site(tmp_path / "site", MEMOISES, keys)) as server:
        host, scheme = ("shop.test", "https") if proxy else (f"shop.test:{server.port}", "http")
        page = requests.get(f"{server.url}/blog/any", headers={"Host": host, "X-Forwarded-Proto": scheme}, timeout=60).text
        assert page == f'<link rel="canonical" href="{scheme}://{host}/blog/">'


def test_explain_asks_at_the_sites_own_address(tmp_path) -> None:
    root = tmp_path / "site"
    config = tmp_path / "hayate.toml"
    worker = SEES.replace("isset($_SERVER['HAYATE_WARMUP'])", "str_contains($_SERVER['HTTP_USER_AGENT'], 'explain')")
    keys = 'hosts = ["shop.test"]\npath = "/blog"|listen = "127.0.0.1:8123"'
    config.write_text(site(root, worker, keys))
    command = [str(hayate_binary()), "explain", "--config", str(config), "--url", "/", "--url", "/some/page?x=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "/blog/some/page?x=1" in done.stdout
    told = {(each["HTTP_HOST"], each["REQUEST_URI"], each["SCRIPT_NAME"]) for each in seen(root)}
    assert told == {("shop.test:8123", uri, "/blog/index.php") for uri in ("/blog/", "/blog/some/page?x=1")}
