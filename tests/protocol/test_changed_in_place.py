"""Files that are changed in place, without a reload: when that counts (docs/deployment.md, "Deploys without a pause")."""

from __future__ import annotations

import pathlib
import time

import pytest
import requests

from lib.process import wait_until
from lib.servers import Hayate


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("changed")
    root.chmod(0o755)
    (root / "index.php").write_text("<?php echo 'front controller';")
    (root / "a.php").write_text("<?php echo 'a';")
    return root


def test_a_script_that_is_deleted_is_gone_when_its_second_is_over(root: pathlib.Path) -> None:
    """Also where OPcache never looks again."""
    with Hayate(root, ini={"opcache.validate_timestamps": "0"}) as server:
        get = lambda path: requests.get(server.url + path, verify=False, timeout=60)  # noqa: E731
        assert get("/a.php").text == "a"
        (root / "a.php").unlink()
        time.sleep(1.2)
        answer = get("/a.php")
        assert (answer.status_code, "a" == answer.text) == (404, False)


def test_a_file_takes_the_front_controllers_place_when_its_second_is_over(root: pathlib.Path) -> None:
    with Hayate(root, args=["--front-controller", "index.php"]) as server:
        get = lambda path: requests.get(server.url + path, verify=False, timeout=60).text  # noqa: E731
        assert get("/a.txt") == get("/b.txt") == "front controller"
        (root / "a.txt").write_text("one")
        assert wait_until(lambda: get("/a.txt") == "one", timeout=3)
        # Between two files there is no delay.
        (root / "a.txt").write_text("another")
        assert get("/a.txt") == "another"
        (root / "a.txt").unlink()
        assert get("/a.txt") == "front controller"
