"""An application that logs without end: it waits, its lines are dropped and counted, and nobody else's are."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from lib.process import temporary_directory, wait_until
from lib.servers import ROOT, Hayate, free_port

#: For so many seconds.
SECONDS = 4
LOUD = f"""<?php
$until = microtime(true) + {SECONDS};
for ($n = 0; microtime(true) < $until; $n++) {{
    error_log('loud ' . str_repeat('x', 8000));
}}
echo $n;
"""
QUIET = "<?php error_log('quiet ' . $_GET['n']); echo 'fine';"


@pytest.fixture
def server() -> Iterator[Hayate]:
    directory = temporary_directory("flood")
    directory.chmod(0o755)
    apps = []
    for name, script in (("loud", LOUD), ("quiet", QUIET)):
        (directory / name).mkdir()
        (directory / name / "index.php").write_text(script)
        apps.append(
            f'[[app]]\nname = "{name}"\nroot = "{directory / name}"\ndocument_root = "."\npath = "/{name}"\n'
            'mode = "classic"\nworkers = 2\n'
        )
    metrics = f"127.0.0.1:{free_port()}"
    user = "www-data" if ROOT else None
    with Hayate(None, config="\n".join(apps), user=user, ini={"log_errors": "1"}, args=["--metrics", metrics]) as hayate:
        hayate.metrics = metrics
        yield hayate
    shutil.rmtree(directory, ignore_errors=True)


def dropped(server: Hayate) -> dict[str, int]:
    return {app["name"]: app["log_dropped"] for app in server.status()["apps"]}


def test_who_logs_without_end_harms_nobody(server: Hayate) -> None:
    written: list[int] = []

    def flood() -> None:
        written.append(int(requests.get(f"{server.url}/loud/index.php", timeout=60).text))

    floods = [threading.Thread(target=flood) for _ in range(2)]
    for thread in floods:
        thread.start()
    asked, begun = 0, time.monotonic()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        assert requests.get(f"{server.url}/quiet/index.php?n={asked}", timeout=60).text == "fine"
        asked += 1
        time.sleep(0.02)
    for thread in floods:
        thread.join(120)
    # The end: the last line is logged again, and says how many were not.
    assert server.logged("quiet ", asked)
    total = sum(written)
    assert wait_until(lambda: server.log().count("loud xxx") + dropped(server)["loud"] >= total, interval=0.2), "every line is logged or counted"
    took = time.monotonic() - begun
    assert server.logged("lines of this application's log were dropped")
    log = server.log()
    assert [int(n) for n in re.findall(r"quiet (\d+)\b", log)] == list(range(asked)), "each line of the quiet one's, once"
    logged = log.count("loud xxx")
    assert logged + dropped(server)["loud"] == total, "no line is counted twice"
    assert dropped(server)["loud"] > 0 and dropped(server)["quiet"] == 0
    # A megabyte a second and four at once.
    assert logged * 8000 <= (4 + took) * (1 << 20), f"{logged} lines of {total} in {took:.1f} s"
    text = requests.get(f"http://{server.metrics}/metrics", timeout=60).text
    metric = re.search(r'(?m)^hayate_log_dropped_total\{app="loud"\} (\d+)$', text)
    assert metric is not None and int(metric[1]) == dropped(server)["loud"]
