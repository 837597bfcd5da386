"""Faults of the front that an attacker found, each under its name: one visitor, one file or one script ended the server for all."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
from collections.abc import Iterator

import pytest
import requests

from lib import site
from lib.servers import Hayate, hayate_binary


@pytest.fixture
def blog(hayate_command, tmp_path) -> Iterator[Hayate]:
    """An application below /blog that sends files by X-Accel-Redirect; `<root>-old` lies beside its root."""
    root = site.make(tmp_path)
    (root / "accel_any.php").write_text("<?php header('X-Accel-Redirect: ' . $_GET['to']);")
    (root / "send_any.php").write_text("<?php header('X-Sendfile: ' . $_GET['to']);")
    neighbour = root.with_name(root.name + "-old")
    neighbour.mkdir()
    (neighbour / "x.txt").write_text("of the neighbour")
    config = f'[[app]]\nroot = "{root}"\npath = "/blog"\nfront_controller = ""\nsendfile_roots = []\n'
    with Hayate(config=config, workers=1) as server:
        yield server


def redirected(server: Hayate, to: str, script: str = "accel_any.php") -> requests.Response:
    return requests.get(f"{server.url}/blog/{script}", params={"to": to}, timeout=10)


def test_x_accel_redirect_to_a_path_outside_of_the_applications_prefix(blog) -> None:
    assert redirected(blog, "/blog/plain.txt").text.startswith("plain text")
    for to in ("/a", "/", "/blo", "/blo/", "/blo/-old/x.txt", "/blogger", "/blog-old/x.txt", "a", "", "/blog/../a", "%", "//"):
        answer = redirected(blog, to)
        assert answer.status_code == 404 and "neighbour" not in answer.text, to
    assert "the script asked to send" in blog.log()


def test_x_sendfile_from_a_neighbour_of_the_root(blog) -> None:
    root = pathlib.Path(blog.status()["apps"][0]["document_root"])
    for to in (f"{root}-old/x.txt", f"{root}/../{root.name}-old/x.txt", "/etc/passwd", "x.txt", ""):
        answer = redirected(blog, to, "send_any.php")
        assert answer.status_code == 404 and "neighbour" not in answer.text, to
    assert redirected(blog, f"{root}/plain.txt", "send_any.php").text.startswith("plain text")


def test_a_prefix_is_not_one_of_its_neighbours(blog) -> None:
    for path in ("/blogger/ok.php", "/blog-old/x.txt", "/blo/g/ok.php"):
        assert requests.get(blog.url + path, timeout=10).status_code == 404, path


def test_a_file_whose_time_is_after_the_year_9999(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    far = pathlib.Path("/dev/shm") / f"hayate-{os.getpid()}-far.txt"
    try:
        for seconds in (253402300800, 2**40, -1, -(2**40)):
            far.write_text("from afar")
            subprocess.run(["touch", "-d", f"@{seconds}", far], check=True)
            if not (root / "far.txt").is_symlink():
                (root / "far.txt").symlink_to(far)
            with Hayate(root, workers=1) as server:
                answer = requests.get(server.url + "/far.txt", timeout=10)
                assert (answer.status_code, answer.text) == (200, "from afar")
                assert "Last-Modified" not in answer.headers
                assert requests.get(server.url + "/ok.php?on", timeout=10).text == "ok on"
    finally:
        far.unlink(missing_ok=True)


def test_header_count_has_a_range(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    config = tmp_path / "hayate.toml"
    for count, said in ((32769, "out of range"), (0, "out of range"), (10_000, "")):
        config.write_text(f'[limits]\nheader_count = {count}\nhead_size = "1M"\n[[app]]\nroot = "{root}"\n')
        done = subprocess.run(
            [hayate_binary(), "check", "--config", config], capture_output=True, text=True, timeout=60, check=False
        )
        assert (said in done.stdout + done.stderr) and (done.returncode == 0) == (not said), done
    with Hayate(config=config.read_text(), workers=1) as server:
        for count in (9_990, 10_001, 39_000):
            headers = "".join(f"a{i}: b\r\n" for i in range(count))
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as s:
                s.sendall(f"GET /plain.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n".encode())
                want = b"200" if count < 10_000 else b"431"
                assert s.recv(65536).startswith(b"HTTP/1.1 " + want), count
        assert requests.get(server.url + "/ok.php?on", timeout=10).text == "ok on"
