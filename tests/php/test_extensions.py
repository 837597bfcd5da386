"""OPcache, preloading, the JIT, APCu and Xdebug under a SAPI that none of them knows by name."""

from __future__ import annotations

import base64
import os
import pathlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from lib import php_extensions
from lib.process import PATIENCE
from lib.servers import GENERIC_WORKER, Hayate

from . import debugger

SCRIPT = """<?php
header('Content-Type: application/json');
$status = opcache_get_status(false);
apcu_add('visits', 0);
echo json_encode([
    'opcache' => $status['opcache_enabled'],
    'jit' => $status['jit']['on'] ?? false,
    'hits' => $status['opcache_statistics']['hits'],
    'preloaded' => function_exists('preloaded_by_hayate') ? preloaded_by_hayate() : null,
    'visits' => apcu_inc('visits'),
    'xdebug' => extension_loaded('xdebug'),
    'pid' => getmypid(),
]);
"""


@pytest.fixture(params=["classic", "worker"])
def serve(request, hayate_command, tmp_path):
    (tmp_path / "index.php").write_text(SCRIPT)
    (tmp_path / "preload.php").write_text("<?php function preloaded_by_hayate(): string { return 'yes'; }")
    # OPcache leaves files alone that were written within the last two seconds (opcache.file_update_protection).
    for file in tmp_path.iterdir():
        os.utime(file, (0, 1_000_000_000))
    tmp_path.chmod(0o755)
    servers = []

    def start(**ini) -> Hayate:
        worker = GENERIC_WORKER if request.param == "worker" else None
        server = Hayate(tmp_path, worker=worker, workers=2, ini=ini)
        servers.append(server.start())
        return server

    yield start
    for server in servers:
        server.stop()


def ask(server: Hayate, times: int = 1) -> list[dict]:
    return [requests.get(server.url + "/index.php", timeout=60).json() for _ in range(times)]


def test_opcache_and_apcu_are_on_and_shared_by_all_workers(serve) -> None:
    server = serve()
    answers = ask(server, 12)
    assert all(answer["opcache"] for answer in answers)
    # One counter for all processes, and what shared memory holds is not rewound: each visit is counted once, warm-up requests too.
    first = answers[0]["visits"]
    assert [answer["visits"] for answer in answers] == list(range(first, first + 12))
    assert answers[-1]["hits"] > answers[0]["hits"]


def test_the_jit(serve) -> None:
    server = serve(**{"opcache.jit_buffer_size": "16M", "opcache.jit": "tracing"})
    assert all(answer["jit"] for answer in ask(server, 3))


def test_preloading(serve, tmp_path) -> None:
    settings = {"opcache.preload": str(tmp_path / "preload.php"), "opcache.preload_user": "root"}
    assert ask(serve(**settings))[0]["preloaded"] == "yes"


def test_xdebug_loads(serve) -> None:
    if not php_extensions.is_there("xdebug") and not php_extensions.of_the_release():
        pytest.skip("there is no Xdebug for this PHP yet")
    server = serve(**{"zend_extension": "xdebug.so", "xdebug.mode": "develop"})
    assert ask(server)[0]["xdebug"]
    assert "error" not in server.log().lower()


STEPS = """<?php
function double(int $n): int
{
    $twice = $n * 2;
    return $twice;
}
$n = (int) $_GET['n'];
$doubled = double($n);
echo "doubled: $doubled";
"""
#: The same in a worker: what Xdebug is told at the start of a script holds for its boot, so each request asks for its session.
WORKER_STEPS = STEPS.replace("$n = (int)", "while (hayate_handle_request(function (): void {\nxdebug_connect_to_client();\n$n = (int)") + "})) {}\n"


@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_a_debugger_steps_through_a_request(mode: str, tmp_path: pathlib.Path) -> None:
    """Breaks at a line, looks at variables, steps, and lets it run to its end: twice, with other values."""
    if not php_extensions.is_there("xdebug"):
        pytest.skip("there is no Xdebug for this PHP yet")
    tmp_path.chmod(0o755)
    script = tmp_path / ("worker.php" if mode == "worker" else "index.php")
    script.write_text(WORKER_STEPS if mode == "worker" else STEPS)
    stop = 1 + script.read_text().splitlines().index("    $twice = $n * 2;")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30 * PATIENCE)
        ini = {"xdebug.mode": "debug", "xdebug.client_host": "127.0.0.1", "xdebug.client_port": listener.getsockname()[1]}
        ini["xdebug.start_with_request"] = "yes" if mode == "classic" else "trigger"
        ini |= {} if "xdebug" in php_extensions.loaded() else {"zend_extension": "xdebug.so"}
        worker = {"worker": script, "args": ["--warmup", "off"]} if mode == "worker" else {}
        with Hayate(tmp_path, workers=1, ini=ini, **worker) as server, ThreadPoolExecutor(1) as pool:
            for n in (4, 21):
                answer = pool.submit(requests.get, f"{server.url}/?n={n}", timeout=60 * PATIENCE)
                with debugger.Session(listener.accept()[0]) as session:
                    assert session.script == f"file://{script}"
                    session.say("breakpoint_set", f"-t line -f file://{script} -n {stop}")
                    assert session.go("run") == ("break", stop)
                    assert session.value("$n") == str(n)
                    assert session.go("step_over") == ("break", stop + 1)
                    assert session.value("$twice") == str(2 * n)
                    assert session.go("step_out")[0] == "break"
                    assert session.say("eval", "-- " + base64.b64encode(b"$n + 1").decode()).find("{*}property").text == str(n + 1)
                    assert not answer.done()
                    assert session.finish() == ("stopping" if mode == "classic" else "")
                assert answer.result().text == f"doubled: {2 * n}", server.log()
            (app,) = server.status()["apps"]
            assert (app["mode"], app["restarts"], app["fallback"]) == (mode, {}, None), server.log()


HEADERS = """<?php
while (hayate_handle_request(function (): void {
    header('X-First: one', false);
    header('X-Second: two');
    echo json_encode(xdebug_get_headers());
})) {}
"""


@pytest.mark.parametrize("rewind", ["off", "on", "fork"])
def test_xdebug_keeps_no_headers_of_other_requests(rewind: str, tmp_path: pathlib.Path) -> None:
    """It keeps a list of its own, and looks through all of it for each header that takes another's place."""
    if not php_extensions.is_there("xdebug"):
        pytest.skip("there is no Xdebug for this PHP yet")
    tmp_path.chmod(0o755)
    (tmp_path / "worker.php").write_text(HEADERS)
    ini = {"xdebug.mode": "develop"} | ({} if "xdebug" in php_extensions.loaded() else {"zend_extension": "xdebug.so"})
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, ini=ini, args=["--rewind", rewind]) as server:
        answers = [requests.get(server.url, timeout=60).json() for _ in range(5)]
    own = [header for header in answers[0] if header.startswith("X-")]
    assert own == ["X-First: one", "X-Second: two"]
    assert answers == [answers[0]] * 5
