"""Scripts behind a handler that answers nothing (docs/rewind.md, "in global scope"): what strikes there ends as under php-fpm."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import requests

from lib.process import running, temporary_directory, wait_until
from lib.servers import Hayate, NginxFpm, Server

SITE = {
    "worker.php": "<?php while (hayate_handle_request(function () {})) { include $_SERVER['SCRIPT_FILENAME']; }",
    "plain.php": "<?php echo 'plain';",
    # Memory runs out, and there are functions for the end.
    "full.php": r"""<?php
        session_id('behind' . $_GET['n']);
        session_start();
        ini_set('memory_limit', '6M');
        register_shutdown_function(function (): void {
            $_SESSION['handled'] = true;
            file_put_contents($_GET['note'], 'handled');
            echo 'sorry';
        });
        $all = [];
        while (true) {
            $all[] = str_repeat('x', 5000);
        }
        """,
    "session.php": "<?php session_id('behind' . $_GET['n']); session_start(); echo json_encode($_SESSION);",
    # Runs when the request's streams are closed, and takes what it can get.
    "greedy.php": r"""<?php
        ini_set('memory_limit', '16M');
        class Greedy extends php_user_filter
        {
            public function onClose(): void
            {
                file_put_contents($_GET['note'], 'begun');
                $all = [];
                for ($n = 0; $n < 100; $n++) {
                    $all[] = str_repeat('x', 1 << 20);
                }
                file_put_contents($_GET['note'], 'has all');
            }
        }
        stream_filter_register('greedy', 'Greedy');
        $GLOBALS['kept'] = fopen('php://memory', 'w');
        stream_filter_append($GLOBALS['kept'], 'greedy');
        echo 'answered';
        """,
}


@pytest.fixture(scope="module", params=["on", "fork"])
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[NginxFpm, Hayate]]:
    directory = temporary_directory("behind")
    directory.chmod(0o777)
    for name, text in SITE.items():
        (directory / name).write_text(text)
    ini = {"session.save_path": str(directory), "session.use_strict_mode": "0"}
    args = ["--rewind", request.param, "--warmup", "/plain.php"]
    with running(
        NginxFpm(directory, ini=ini), Hayate(directory, worker=directory / "worker.php", workers=1, ini=ini, args=args)
    ) as both:
        yield both


def noted(server: Server, script: str, directory: pathlib.Path, note: str) -> tuple[int, str, str]:
    """The answer, and what the script has left in a file, which may come a moment later."""
    file = directory / f"{server.name}-{script}"
    file.unlink(missing_ok=True)
    answer = requests.get(f"{server.url}/{script}", params={"note": str(file), "n": server.name}, timeout=30)
    wait_until(lambda: file.exists() and file.read_text() == note, timeout=5)
    return answer.status_code, answer.text, file.read_text() if file.exists() else "nothing"


def ends_alike(servers: tuple[NginxFpm, Hayate], script: str, directory: pathlib.Path, right: tuple[int, str, str]) -> None:
    directory.chmod(0o777)
    directory.parent.chmod(0o755)
    reference, hayate = servers
    assert noted(reference, script, directory, right[2]) == right
    for _ in range(2):
        assert noted(hayate, script, directory, right[2]) == right


def test_functions_for_the_end_run_where_memory_ran_out(servers, tmp_path) -> None:
    ends_alike(servers, "full.php", tmp_path, (500, "sorry", "handled"))
    sessions = [requests.get(f"{server.url}/session.php", params={"n": server.name}, timeout=30).text for server in servers]
    assert sessions == ['{"handled":true}'] * 2


def test_what_runs_when_streams_are_closed_has_a_limit_of_memory(servers, tmp_path) -> None:
    ends_alike(servers, "greedy.php", tmp_path, (200, "answered", "begun"))
    assert requests.get(f"{servers[1].url}/plain.php", timeout=30).text == "plain"


@pytest.mark.parametrize("rewind", ["on", "fork", "off"])
def test_code_behind_a_handler_may_begin_a_buffer(tmp_path, rewind: str) -> None:
    """With state kept the worker crashed after each such request."""
    (tmp_path / "worker.php").write_text(
        "<?php while (hayate_handle_request(function () { echo getmypid(); })) { ob_start(); echo 'x'; ob_start(); echo ob_get_clean(); ob_end_clean(); }"
    )
    args = ["--rewind", rewind, "--warmup", "off"]
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, args=args) as server:
        pids = [requests.get(server.url, timeout=30).text for _ in range(4)]
        assert all(pid.isdigit() for pid in pids) and (rewind == "fork" or len(set(pids)) == 1), pids
        assert server.status()["apps"][0]["restarts"] == {}
