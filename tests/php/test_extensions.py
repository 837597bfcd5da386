"""OPcache, preloading, the JIT, APCu and Xdebug under a SAPI that none of them knows by name."""

from __future__ import annotations

import os

import pytest
import requests

from lib.servers import GENERIC_WORKER, Hayate
from rewind import php_extensions

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
