"""Warm connections whose server refuses who comes, for a while: requests get its errors, and none of that outlasts the server's trouble."""

from __future__ import annotations

import contextlib
import socket
import time

import requests
from lib.process import temporary_directory, wait_until
from lib.servers import Hayate, Redis

from .matrix_site import USER

WORKER = r"""<?php
class Store {
    public ?Redis $redis = null;
    function open(): Redis {
        if (!$this->redis) { $redis = new Redis; $redis->connect('127.0.0.1', (int) getenv('PORT'), 3); $this->redis = $redis; }
        return $this->redis;
    }
}
$store = new Store;
// Connected, and then refused: the client stays, and no request opens one of its own.
hayate_on_worker_start(fn () => $store->open()->ping());
while (hayate_handle_request(function () use ($store) {
    try {
        echo 'ok ', $store->open()->incr('visits');
    } catch (RedisException $error) {
        http_response_code(500);
        echo $error->getMessage();
    }
})) { }
"""


def test_redis_that_wants_a_password_for_a_while(hayate_command) -> None:
    directory = temporary_directory("outage")
    (directory / "worker.php").write_text(WORKER)
    # Without it the server would have no classic mode to fall back to.
    (directory / "index.php").write_text("<?php echo 'classic';")
    with Redis() as redis, contextlib.closing(socket.create_connection(("127.0.0.1", redis.port))) as admin:

        def tell(*commands: str) -> None:
            for command in commands:
                admin.sendall(f"{command}\r\n".encode())
                assert not admin.recv(1000).startswith(b"-"), command

        config = f"""
            [[app]]
            root = "{directory}"
            worker = "worker.php"
            workers = 2
            rewind = "on"
            connections = "warm"
            warmup = []
            env = {{ PORT = "{redis.port}" }}
        """
        with Hayate(config=config, user=USER) as server:
            assert requests.get(server.url, timeout=60).text == "ok 1"
            tell("CONFIG SET requirepass secret", "CLIENT KILL TYPE normal SKIPME yes")
            refused = [requests.get(server.url, timeout=60) for _ in range(60)]
            assert all(answer.status_code == 500 and "NOAUTH" in answer.text for answer in refused[5:]), refused[-1].text
            tell('CONFIG SET requirepass ""')
            assert wait_until(lambda: requests.get(server.url, timeout=60).status_code == 200)
            for _ in range(30):
                answer = requests.get(server.url, timeout=60)
                assert answer.text.startswith("ok ") or answer.status_code == 500, answer.text
                time.sleep(0.05)
            (app,) = server.status()["apps"]
            assert app["fallback"] is None and app["restarts"]["rewind_connection"] > 8, app
