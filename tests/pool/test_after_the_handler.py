"""What follows hayate_handle_request() in the loop: no visitor waits for it, and nobody sees what it prints (D20)."""

from __future__ import annotations

import pathlib
import threading

import pytest
import requests

from lib.process import wait_until
from lib.servers import Hayate

MODES = ["on", "fork", "off"]
#: What a handler does before it returns; the answer begins with "page" then.
HANDLERS = {
    "prints": "echo 'page';",
    "buffers": "ob_start(); echo 'pa'; ob_start(); echo 'ge';",
    "flushes": "echo 'page'; flush();",
    "exits": "echo 'page'; exit;",
    "throws": "header('X-Body: page'); throw new Exception('for the log');",
    "redirects": "header('Location: /elsewhere'); header('X-Body: page');",
    "says nothing but a status": "http_response_code(204); header('X-Body: page');",
    "finishes": "echo 'page'; fastcgi_finish_request();",
}
#: Waits until the test has its answer, so that no clock decides.
WAITS = """
    file_put_contents(__DIR__.'/begun', 'x');
    for ($i = 0; !is_file(__DIR__.'/go') && $i < 24000; $i++) { usleep(5000); clearstatcache(); }
    file_put_contents(__DIR__.'/seen', json_encode([$i < 24000, $_GET, headers_sent(), $object->alive ?? null]));
    echo 'after the handler';
    header('X-After: yes');
"""
#: What PHP makes of the loop.
COMPILED = {
    "plain": {"opcache.enable": 0},
    "optimised": {"opcache.enable": 1, "opcache.jit_buffer_size": 0},
    "machine code": {"opcache.enable": 1, "opcache.jit": "function", "opcache.jit_buffer_size": "16M"},
}
LOOPS = {
    "while": "while (hayate_handle_request($handler)) { AFTER }",
    "for": "for ($n = 0; $n < 1000; $n++) { $going = \\frankenphp_handle_request($handler); AFTER if (!$going) { break; } }",
    "do": "do { $going = hayate_handle_request($handler); AFTER } while ($going);",
}


def worker(directory: pathlib.Path, handler: str, loop: str, boot: str = "") -> pathlib.Path:
    directory.chmod(0o777)
    script = directory / "worker.php"
    script.write_text(f"<?php\n{boot}\n$handler = function () use (&$object) {{ {handler} }};\n{loop}\n")
    return script


def start(script: pathlib.Path, mode: str, workers: int = 1) -> Hayate:
    args = ["--rewind", mode, *([] if mode == "off" else ["--warmup", "off"])]
    return Hayate(script.parent, worker=script, workers=workers, ini={"display_errors": "0"}, args=args)


def body(answer: requests.Response) -> str:
    return answer.headers.get("X-Body", answer.text)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_visitor_does_not_wait_for_what_follows_the_handler(tmp_path, loop, mode) -> None:
    boot = "class Thing { public $alive = true; function __destruct() { $this->alive = false; } }"
    handler = "$object = new Thing(); register_shutdown_function(function () { echo ', shutdown'; }); echo 'page';"
    with start(worker(tmp_path, handler, LOOPS[loop].replace("AFTER", WAITS), boot), mode) as server:
        answer = requests.get(server.url + "/?a=b", timeout=60)
        assert answer.text == "page, shutdown" and "X-After" not in answer.headers
        assert wait_until((tmp_path / "begun").exists) and not (tmp_path / "seen").exists(), "it still waits"
        (tmp_path / "go").touch()
        seen = '[true,{"a":"b"},true,true]' if mode != "off" else None
        assert wait_until((tmp_path / "seen").exists)
        assert seen is None or wait_until(lambda: (tmp_path / "seen").read_text() == seen), (tmp_path / "seen").read_text()
        assert requests.get(server.url + "/?a=b", timeout=60).text == "page, shutdown"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", HANDLERS)
def test_an_answer_is_whole_however_the_handler_ends(tmp_path, how, mode) -> None:
    with start(worker(tmp_path, HANDLERS[how], LOOPS["while"].replace("AFTER", WAITS)), mode) as server:
        for _ in range(2):
            answer = requests.get(server.url, timeout=60, allow_redirects=False)
            assert body(answer) == "page" and "after" not in answer.text and "X-After" not in answer.headers
            assert answer.status_code == {"throws": 500, "redirects": 302, "says nothing but a status": 204}.get(how, 200)
            (tmp_path / "go").touch()
        assert server.status()["apps"][0]["restarts"] == {}


@pytest.mark.parametrize("mode", MODES)
def test_the_same_visitors_next_request_does_not_wait_for_the_session(tmp_path, mode) -> None:
    handler = "session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo $_SESSION['n'];"
    with start(worker(tmp_path, handler, LOOPS["while"].replace("AFTER", WAITS)), mode, workers=2) as server:
        session = requests.Session()
        assert [session.get(server.url, timeout=60).text for _ in range(2)] == ["1", "2"]
        (tmp_path / "go").touch()


@pytest.mark.parametrize("mode", ["on", "fork"])
@pytest.mark.parametrize(
    "loop",
    [
        "while (hayate_handle_request($handler)) {}",
        "while (true) { if (!hayate_handle_request($handler)) { break; } }",
        "do { $going = hayate_handle_request($handler); } while ($going);",
        "while (hayate_handle_request(static function () use ($handler) { $handler(); })) { /* nothing */ }",
        "(function () use ($handler) { while (\\frankenphp_handle_request($handler)); })();",
    ],
)
@pytest.mark.parametrize("code", COMPILED)
def test_where_nothing_follows_destructors_belong_to_the_answer(tmp_path, loop, mode, code) -> None:
    """As under php-fpm: shutdown functions, then destructors, then the end of the output."""
    boot = "class Page { static $kept; function __destruct() { echo ', footer'; } }"
    handler = "Page::$kept = new Page(); register_shutdown_function(function () { echo ', shutdown'; }); echo 'page';"
    script = worker(tmp_path, handler, loop, boot)
    args = ["--rewind", mode, "--warmup", "off"]
    with Hayate(tmp_path, worker=script, workers=1, ini={"opcache.file_update_protection": 0, **COMPILED[code]}, args=args) as server:
        assert [requests.get(server.url, timeout=60).text for _ in range(2)] == ["page, shutdown, footer"] * 2


@pytest.mark.parametrize("mode", ["on", "fork"])
def test_a_handler_that_answers_nothing_leaves_the_answer_to_what_follows(tmp_path, mode) -> None:
    """Scripts that have to run in global scope run there: a function's variables would not be global."""
    (tmp_path / "page.php").write_text("<?php $title = 'global'; (function () { echo $GLOBALS['title'], ' ', $_GET['a']; })();")
    loop = "while (hayate_handle_request($handler)) { include __DIR__.'/page.php'; }"
    with start(worker(tmp_path, "", loop), mode) as server:
        assert [requests.get(f"{server.url}/?a={n}", timeout=60).text for n in range(3)] == ["global 0", "global 1", "global 2"]


def test_what_follows_holds_its_worker_and_no_other(tmp_path) -> None:
    with start(worker(tmp_path, "echo getmypid();", LOOPS["while"].replace("AFTER", WAITS)), "on", workers=2) as server:
        answers: list[str] = [requests.get(server.url, timeout=60).text for _ in range(2)]
        assert len(set(answers)) == 2, "both are busy with what follows"
        third = threading.Thread(target=lambda: answers.append(requests.get(server.url, timeout=60).text))
        third.start()
        (tmp_path / "go").touch()
        third.join(20)
        assert len(answers) == 3 and answers[2] in answers[:2]
