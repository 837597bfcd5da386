"""What takes the place of Apache's `!-f` and nginx's `try_files` (docs/rules.md, "Files that are there, and files that are not")."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import requests

from lib.servers import REPOSITORY, Hayate, NginxFpm

SHOW = """<?php header('Content-Type: application/json');
$of = array_intersect_key($_SERVER, array_flip(['QUERY_STRING', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'PHP_SELF', 'REQUEST_URI']));
echo json_encode([basename(__DIR__), $_GET, $of]);"""
PATHS = ["/a/b%20c?x=1", "/a.html", "/", "/file.txt", "/%C3%A9?url=mine"]


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("files") / "site"
    (root / "admin").mkdir(parents=True)
    for name in ("index.php", "admin/index.php"):
        (root / name).write_text(SHOW)
    for name in ("file.txt", "admin/style.css"):
        (root / name).write_text(name)
    for path in [root.parent, root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


def answers(url: str, root: pathlib.Path) -> list[object]:
    texts = [requests.get(url + path, verify=False, timeout=60).text for path in PATHS]
    return [json.loads(text) if text.startswith("[") else text for text in texts]


def test_the_guides_front_controller_is_try_files_with_a_query(root: pathlib.Path) -> None:
    guide = (REPOSITORY / "docs/rules.md").read_text()
    (script,) = re.findall(r"```php\n(<\?php // front\.php\n.*?)```", guide, re.DOTALL)
    (root / "front.php").write_text(script)
    with Hayate(root, args=["--front-controller", "front.php"]) as server:
        got = answers(server.url, root)
    assert got[0][1] == {"x": "1", "url": "a/b c"} and got[1][1] == {"url": "a.html"}
    assert got[3] == "file.txt"
    for _, _, of in (got[0], got[1]):
        assert of["SCRIPT_NAME"] == of["PHP_SELF"] == "/index.php" and of["SCRIPT_FILENAME"] == f"{root}/index.php"
    assert got[0][2]["REQUEST_URI"] == "/a/b%20c?x=1"
    (root / "front.php").unlink()
    nginx = NginxFpm(root)
    nginx._values["fallback"] = "/index.php?url=$uri&$query_string"
    with nginx:
        of_nginx = answers(nginx.url, root)
    # nginx' $uri begins with a slash, as Apache's $1 does not.
    assert of_nginx[1][1] == {"url": "/a.html"} and got[3] == of_nginx[3]


def test_a_second_front_controller_is_a_second_application(root: pathlib.Path) -> None:
    config = f"""
[[app]]
name = "site"
root = "{root}"
front_controller = "index.php"

[[app]]
name = "admin"
root = "{root}"
path = "/admin"
document_root = "admin"
front_controller = "index.php"
"""
    with Hayate(config=config) as server:
        get = lambda path: requests.get(server.url + path, verify=False, timeout=60)  # noqa: E731
        assert get("/nothing").json()[0] == "site"
        assert get("/admin/nothing").json()[0] == "admin" and get("/admin/nothing").json()[2]["SCRIPT_NAME"] == "/admin/index.php"
        assert get("/admin/style.css").text == "admin/style.css"
        assert get("/file.txt").text == "file.txt"
