"""Development mode: errors, and where the time of a request goes, are told to the browser. Errors are in the log, whole."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import requests

from lib.process import wait_until
from lib.servers import Hayate

WORKER = """<?php
while (hayate_handle_request(function () {
    if (isset($_GET['own'])) { header('Server-Timing: db;dur=1'); }
    usleep(20000);
    echo 'x';
})) {
}
"""


def timing(server: Hayate, path: str = "/") -> dict[str, float]:
    header = requests.get(server.url + path, timeout=60).headers.get("Server-Timing", "")
    return {name: float(value) for name, value in re.findall(r"(\w+);dur=([\d.]+)", header)}


@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_server_timing(tmp_path, mode) -> None:
    (tmp_path / "index.php").write_text("<?php usleep(20000); echo 'x';")
    (tmp_path / "worker.php").write_text(WORKER)
    worker = {"worker": tmp_path / "worker.php"} if mode == "worker" else {}
    with Hayate(tmp_path, workers=1, args=["--dev", "--warmup", "off"] if worker else ["--dev"], **worker) as server:
        first, second = timing(server), timing(server)
        assert set(first) == {"queue", "php"} and first["php"] >= 20
        assert set(second) == ({"queue", "php", "rewind"} if worker else {"queue", "php"})
        assert second.get("rewind", 1) > 0
        if worker:
            assert timing(server, "/?own=1")["db"] == 1, "beside the application's own"
    with Hayate(tmp_path, workers=1, **worker) as server:
        assert timing(server) == {}


INI = {"xdebug.mode": "off"}
#: What the front controller or the handler runs, and what the browser and the log have to say.
FAULTS = {
    "exception": ("throw new LogicException('not <b>that</b> way');", "Uncaught LogicException: not"),
    "fatal": ("function_that_is_missing();", "Call to undefined function function_that_is_missing()"),
    "parse": ("include __DIR__.'/broken.inc';", "syntax error, unexpected"),
    "warning": ("echo $undefined, 'and on';", "Undefined variable $undefined"),
    "deprecated": ("strlen(null); echo 'and on';", "Passing null to parameter"),
}
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def faulty(directory: pathlib.Path) -> pathlib.Path:
    # By its name index.php is a front controller.
    directory = directory / "public"
    directory.mkdir()
    (directory / "broken.inc").write_text("<?php $a = ;\n")
    cases = "".join(f"case '/{name}': {code} break;\n" for name, (code, _) in FAULTS.items())
    own = "case '/own': set_exception_handler(fn ($e) => print('own page')); throw new LogicException('x');\n"
    quiet = "case '/quiet': ini_set('display_errors', '0'); throw new LogicException('quietly');\n"
    text = f"switch (strtok($_SERVER['REQUEST_URI'], '?')) {{\n{cases}{own}{quiet}}}\n"
    (directory / "index.php").write_text(f"<?php\n{text}")
    (directory / "worker.php").write_text(f"<?php\nwhile (hayate_handle_request(function () {{ {text} }})) {{}}\n")
    return directory


@pytest.mark.parametrize("mode", ["classic", "on", "fork", "off"])
def test_errors_are_in_the_browser_and_in_the_log(tmp_path, mode) -> None:
    """D19: --dev showed a blank page for uncaught exceptions, fatal and parse errors of plain PHP."""
    root = faulty(tmp_path)
    flags = {"args": ["--dev"]} if mode == "classic" else {"worker": root / "worker.php", "args": ["--dev", "--rewind", mode]}
    with Hayate(root, workers=1, ini=INI, **flags) as server:
        for name, (_, message) in FAULTS.items():
            page = requests.get(f"{server.url}/{name}", headers=BROWSER, timeout=60)
            plain = requests.get(f"{server.url}/{name}", timeout=60)
            harmless = name in ("warning", "deprecated")
            assert page.status_code == plain.status_code == (200 if harmless else 500), name
            assert message in page.text and "<b>" in page.text, page.text
            assert message in plain.text and "<br" not in plain.text, plain.text
            assert "not <b>that" not in page.text, "as text, not as HTML"
            assert not harmless or page.text.endswith("and on")
            assert wait_until(lambda text=message: server.log().count(text) >= 2), server.log()
            assert server.log().count(message) == 2, server.log()
        quiet = requests.get(server.url + "/quiet", headers=BROWSER, timeout=60)
        assert (quiet.status_code, quiet.text) == (500, "")
        assert server.logged("Uncaught LogicException: quietly")
        assert requests.get(server.url + "/own", headers=BROWSER, timeout=60).text == "own page"
    with Hayate(root, workers=1, ini={**INI, "display_errors": "0"}, **flags) as server:
        page = requests.get(server.url + "/exception", headers=BROWSER, timeout=60)
        assert (page.status_code, page.text) == (500, ""), "a setting of the application's own holds"


def test_without_development_nothing_is_shown(tmp_path) -> None:
    with Hayate(faulty(tmp_path), workers=1, ini=INI) as server:
        page = requests.get(server.url + "/exception", headers=BROWSER, timeout=60)
        assert (page.status_code, page.text) == (500, "")


TRACE = """<?php
function deeper($n, $what) { if ($n) { deeper($n - 1, $what); } throw new LogicException($what); }
error_log("of one\\nand another line");
deeper((int) $_GET['deep'], 'the reason');
"""


@pytest.mark.parametrize("format", ["compact", "json"])
def test_a_stack_trace_is_part_of_its_error(tmp_path, format) -> None:
    """D19: at log_level = "warn" stack traces were lost, for their lines were records of their own, and of level INFO."""
    (tmp_path / "index.php").write_text(TRACE)
    args = ["--log-level", "error", "--log-format", format]
    with Hayate(tmp_path, workers=1, ini={**INI, "zend.exception_ignore_args": "1"}, args=args) as server:
        for deep in (3, 400):
            assert requests.get(f"{server.url}/?deep={deep}", timeout=60).status_code == 500
        assert wait_until(lambda: server.log().count("thrown in") == 2), server.log()
        assert server.logged("#400 ") and server.logged("#2 ") and "and another line" not in server.log()
        records = [line for line in server.log().splitlines() if "Uncaught LogicException" in line]
        assert len(records) == 2
        if format == "json":
            for record in map(json.loads, records):
                assert record["level"] == "ERROR" and record["message"].endswith("on line 2")
                assert len(record["message"].splitlines()) in (3 + 5, 3 + 402), record["message"]


def test_lines_of_one_error_log_call_are_one_record(tmp_path) -> None:
    (tmp_path / "index.php").write_text("<?php error_log(\"first\\nsecond\\n\\nlast\"); error_log(\"\\x1eforged\\x1fPHP Fatal error:\");")
    with Hayate(tmp_path, workers=1, ini=INI, args=["--log-format", "json"]) as server:
        requests.get(server.url, timeout=60)
        assert server.logged("forged")
        records = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
        told = [(record["message"], record["request"]) for record in records if record["target"] == "php" and "request" in record]
        assert [text for text, _ in told] == ["first\nsecond\n\nlast", "?forged?PHP Fatal error:"]
        assert told[0][1] == told[1][1] != "forged"


def test_what_a_script_logs_does_not_pass_for_a_line_of_the_servers(tmp_path) -> None:
    (tmp_path / "index.php").write_text("<?php error_log(\"first\\n2026-11-22T00:00:00.000000Z ERROR hayate::master: forged\\n\\rforged\");")
    with Hayate(tmp_path, workers=1, ini=INI) as server:
        requests.get(server.url, timeout=60)
        assert wait_until(lambda: server.log().count("forged") == 2)
        lines = [line for line in server.log().splitlines() if "forged" in line]
        assert len(lines) == 2 and all(line.startswith("    ") for line in lines), lines
