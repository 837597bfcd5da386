"""Worker scripts in the styles written for FrankenPHP run unchanged, with rewind (the default) and with state kept."""

from __future__ import annotations

import pathlib
import shutil
import time
from collections import Counter

import pytest
import requests

from lib.process import wait_until
from lib.servers import Hayate, NginxFpm

SCRIPTS = pathlib.Path(__file__).with_name("workers")
#: The scripts' own limit of requests, where they look for it.
LIMIT = ["--env", "MAX_REQUESTS=6", "--env", "FRANKENPHP_LOOP_MAX=6", "--env", "GIVEN=to the process"]
#: By default, `/` is requested three times.
WARMUP = 3


@pytest.fixture(params=["runtime", "octane", "plain"])
def script(request, tmp_path) -> pathlib.Path:
    """A worker script in a directory of its own, in which it notes what it has done."""
    directory = shutil.copytree(SCRIPTS, tmp_path / "workers")
    return directory / f"{request.param}.php"


def notes(script: pathlib.Path, *, until: str) -> Counter[str]:
    """What was noted, once the last note is there: the work after an answer."""
    file = script.with_name("notes")
    deadline = time.monotonic() + 60
    while True:
        lines = file.read_text().splitlines() if file.exists() else []
        if until in lines or time.monotonic() > deadline:
            return Counter(lines)
        time.sleep(0.02)


def test_each_request_meets_the_application_as_it_was(script) -> None:
    with Hayate(script.parent, worker=script, workers=1, args=LIMIT) as server:
        answers = [requests.get(f"{server.url}/?n={n}", timeout=60).json() for n in range(15)]
        assert [answer["query"] for answer in answers] == [{"n": str(n)} for n in range(15)]
        assert {answer["handled"] for answer in answers} == {WARMUP + 1}
        assert len({answer["pid"] for answer in answers}) == 1, "the script's own limit is rewound, too"
        assert answers[0]["method"] == "GET" and answers[0]["given"] == "to the process"
        if script.stem == "runtime":
            assert answers[0]["mode"] == "web=1&worker=1"
        assert requests.get(server.url + "/?fail=1", timeout=60).status_code == 500
        assert requests.get(server.url + "/?exit=1", timeout=60).text == "left"
        assert requests.get(server.url + "/?n=last", timeout=60).json()["handled"] == WARMUP + 1
        (app,) = server.status()["apps"]
        assert (app["restarts"], app["fallback"]) == ({}, None), server.log()
        done = notes(script, until="terminated last")
    if script.stem != "plain":  # that one asks for $_GET when the request is over
        assert [done[f"terminated {n}"] for n in range(15)] == [1] * 15


def test_with_state_kept_the_script_ends_at_its_own_limit(script) -> None:
    with Hayate(script.parent, worker=script, workers=1, args=[*LIMIT, "--rewind", "off"]) as server:
        answers = [requests.get(f"{server.url}/?n={n}", timeout=60).json() for n in range(12)]
        assert [answer["handled"] for answer in answers] == [*range(1, 7)] * 2
        pids = Counter(answer["pid"] for answer in answers)
        assert sorted(pids.values()) == [6, 6]
        assert set(server.status()["apps"][0]["restarts"]) == {"script_ended"}
        notes(script, until="terminated 11")
    if script.stem != "runtime":
        assert notes(script, until="shut down")["shut down"] >= 1


def test_a_limit_below_the_warm_up_costs_the_warm_up_only(script) -> None:
    flags = ["--env", "MAX_REQUESTS=2", "--env", "FRANKENPHP_LOOP_MAX=2"]
    with Hayate(script.parent, worker=script, workers=1, args=flags) as server:
        answers = [requests.get(f"{server.url}/?n={n}", timeout=60).json() for n in range(5)]
        assert {answer["handled"] for answer in answers} == {1} and len({answer["pid"] for answer in answers}) == 1
        (app,) = server.status()["apps"]
        assert app["cold_boot"] == "a warm-up request ended the worker script" and app["restarts"] == {}


@pytest.mark.parametrize("rewind", ["on", "off"])
def test_what_keeps_sessions_keeps_them_in_later_requests(tmp_path, rewind: str) -> None:
    """An object that the first request makes names the handler and the settings of sessions once, and stays."""
    directory = shutil.copytree(SCRIPTS, tmp_path / "workers")
    with Hayate(directory, worker=directory / "sessions.php", workers=1, args=["--rewind", rewind]) as server:
        visitor = requests.Session()
        for n in range(1, 5):
            answer = visitor.get(server.url, timeout=60)
            assert answer.text == f"VISITOR {n}", server.log()
            assert not {"Pragma", "Cache-Control", "Expires"} & answer.headers.keys()
        assert list(visitor.cookies.keys()) == ["VISITOR"]
        assert (directory / f"kept-{visitor.cookies['VISITOR']}").exists()
        # What lives as long as its request leaves nothing behind.
        assert requests.get(server.url + "/?apart", timeout=60).text == "APART"
        assert visitor.get(server.url, timeout=60).text == "VISITOR 5"
        assert visitor.get(server.url, timeout=60).headers["X-Path"] == "/"
        assert requests.get(server.url + "/?circle", timeout=60).text == "CIRCLE"
        assert visitor.get(server.url, timeout=60).text == "VISITOR 7"
        # Nor does what a request says of its own session, though it names the handler that stays.
        assert requests.get(server.url + "/?again", timeout=60).text == "AGAIN"
        assert requests.get(server.url + "/?settings", timeout=60).text == "VISITOR user 0"
        # The request that lets go of it ends as it began; the next one finds PHP's own.
        assert requests.get(server.url + "/?renewed", timeout=60).text == "VISITOR user"
        kept = "VISITOR user" if rewind == "on" else "PHPSESSID files"
        assert requests.get(server.url + "/?renewed", timeout=60).text == kept
        assert visitor.get(server.url, timeout=60).text == "VISITOR 8"
        (app,) = server.status()["apps"]
        assert (app["restarts"], app["fallback"], app["cold_boot"]) == ({}, None, None), server.log()


SESSIONS_OF_SOME = """<?php
class User {
    public function __construct(public string $name) {}
    public function __serialize(): array { return []; }
    public function __destruct() { echo ' bye'; }
}
while (hayate_handle_request(static function (): void {
    if (isset($_GET['login']) || isset($_SERVER['HAYATE_WARMUP'])) {
        session_start();
        $_SESSION['user'] = new User($_SERVER['HAYATE_WARMUP'] ?? $_GET['login']);
        if (isset($_GET['logout'])) {
            session_destroy();
        }
    }
    // A session is begun for those who have one, and what it says is asked of all.
    echo $_SESSION['user']->name ?? 'nobody', ' ', defined('SID') && SID !== '' ? 'id' : 'none';
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "off"])
def test_nobody_without_a_session_meets_that_of_another(tmp_path, rewind: str) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "worker.php").write_text(SESSIONS_OF_SOME)
    ini = {"session.use_only_cookies": "0", "session.save_path": "/tmp"}
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, ini=ini, args=["--rewind", rewind]) as server:
        assert requests.get(server.url, timeout=60).text == "nobody none"
        for query in ("login=Ada", "login=Grace&logout"):
            answer = requests.get(f"{server.url}/?{query}", timeout=60).text
            assert answer.startswith(query[6:].split("&")[0]) and answer.endswith(" bye"), answer
            assert requests.get(server.url, timeout=60).text == "nobody none"


@pytest.mark.parametrize("rewind", ["on", "off"])
def test_a_constant_of_the_application_that_is_called_sid_stays(tmp_path, rewind: str) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "worker.php").write_text("<?php define('SID', 'site'); while (hayate_handle_request(static function (): void { echo SID; })) {}")
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, args=["--rewind", rewind]) as server:
        assert [requests.get(server.url, timeout=60).text for _ in range(3)] == ["site"] * 3


@pytest.mark.parametrize("rewind", ["on", "off"])
def test_a_session_that_is_written_to_it_is_nothing_for_the_next(tmp_path, rewind: str) -> None:
    """session_start() writes to a constant of that name, whoever has defined it."""
    tmp_path.chmod(0o755)
    (tmp_path / "worker.php").write_text(
        "<?php define('SID', 'site'); while (hayate_handle_request(static function (): void { if (isset($_GET['begin'])) { session_start(); } echo SID; })) {}"
    )
    ini = {"session.use_only_cookies": "0", "session.save_path": "/tmp"}
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, ini=ini, args=["--rewind", rewind]) as server:
        for _ in range(2):
            assert requests.get(server.url + "/?begin", timeout=60).text.startswith("PHPSESSID=")
            assert requests.get(server.url, timeout=60).text == "site"


@pytest.mark.parametrize(("where", "as_what"), [("boot", "null"), ("boot", "7"), ("request", "''"), ("request", "'site=1'")])
def test_a_session_that_is_written_to_what_was_no_text_or_defined_by_a_request(tmp_path, where: str, as_what: str) -> None:
    """Its id is nothing for the next visitor; what a request defines as something else stays, as state is kept."""
    tmp_path.chmod(0o755)
    define = f"defined('SID') or define('SID', {as_what});"
    boot, request = (define, "") if where == "boot" else ("", define)
    (tmp_path / "worker.php").write_text(
        f"<?php {boot} while (hayate_handle_request(static function (): void {{ {request} if (isset($_GET['begin'])) {{ session_start(); }} echo json_encode(SID); }})) {{}}"
    )
    ini = {"session.use_only_cookies": "0", "session.save_path": "/tmp"}
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, ini=ini, args=["--rewind", "off"]) as server:
        first = requests.get(server.url, timeout=60).text
        assert first == as_what.replace("'", '"')
        for _ in range(2):
            assert requests.get(server.url + "/?begin", timeout=60).text.startswith('"PHPSESSID=')
            assert requests.get(server.url, timeout=60).text == (first if where == "boot" else '""')


def test_a_worker_whose_collector_a_fatal_error_has_stopped_is_replaced(tmp_path) -> None:
    """PHP catches what a shutdown function throws by itself, and collects no cycles from then on."""
    tmp_path.chmod(0o755)
    (tmp_path / "worker.php").write_text(
        "<?php while (hayate_handle_request(static function (): void {"
        "if (isset($_GET['throw'])) { register_shutdown_function(static function (): void { throw new Exception('at the end'); }); }"
        "$one = new stdClass(); $one->itself = $one; unset($one); echo gc_collect_cycles(); })) {}"
    )
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, args=["--rewind", "off"]) as server:
        assert requests.get(server.url, timeout=60).text == "1"
        assert requests.get(server.url + "/?throw", timeout=60).text.startswith("1")
        assert requests.get(server.url, timeout=60).text == "1"
        assert server.status()["apps"][0]["restarts"] == {"fatal": 1}


CAUGHT = """<?php
function caught(): void { opcache_compile_file(__DIR__.'/broken.php'); }
if (getenv('IN_BOOT')) {
    caught();
}
while (hayate_handle_request(static function (): void {
    $one = new stdClass(); $one->itself = $one; unset($one);
    echo 'collected ', gc_collect_cycles();
    if (isset($_GET['caught'])) { caught(); echo ' and went on'; }
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "off"])
@pytest.mark.parametrize("boot", [False, True])
def test_a_fatal_error_that_an_extension_catches_costs_no_worker(tmp_path, boot: bool, rewind: str) -> None:
    """OPcache ends the compilation of a file by it; the request goes on, though PHP collects no cycles until its end."""
    tmp_path.chmod(0o755)
    (tmp_path / "worker.php").write_text(CAUGHT)
    (tmp_path / "broken.php").write_text("<?php function twice() {} function twice() {}")
    args = ["--rewind", rewind, *(["--env", "IN_BOOT=1"] if boot else [])]
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, args=args) as server:
        requests.get(server.url, timeout=60)
        for _ in range(3):
            answer = requests.get(server.url + "/?caught", timeout=60)
            assert answer.text.startswith("collected ") and answer.text.endswith(" and went on"), answer.text
            if not boot or rewind == "off":
                assert requests.get(server.url, timeout=60).text == "collected 1"
        (app,) = server.status()["apps"]
        assert (app["restarts"], app["fallback"], app["cold_boot"]) == ({}, None, None), server.log()


COLLECTED = """<?php
final class Handler extends SessionHandler
{
    public function __serialize(): array { return []; }
}
final class Fails
{
    public ?Fails $itself = null;
    public function __destruct() { str_repeat('x', 1 << 40); }
}
while (hayate_handle_request(static function (): void {
    if (isset($_GET['fails'])) {
        $handler = new Handler();
        session_set_save_handler($handler, false);
        session_start();
        $_SESSION['handler'] = $handler;
        $one = new Fails();
        $one->itself = $one;
    }
    echo 'answered';
})) {
}
"""


def test_a_destructor_that_fails_while_handlers_of_sessions_are_collected(tmp_path) -> None:
    """It costs the worker, not the answer: what was asked of the collector is over before PHP unwinds."""
    tmp_path.chmod(0o755)
    (tmp_path / "worker.php").write_text(COLLECTED)
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, ini={"session.save_path": "/tmp"}, args=["--rewind", "off"]) as server:
        for n in range(1, 4):
            assert requests.get(server.url, timeout=60).text == "answered"
            answer = requests.get(server.url + "/?fails", timeout=60)
            assert answer.status_code == 200 and answer.text.startswith("answered"), (answer.status_code, answer.text)
            assert wait_until(lambda n=n: server.status()["apps"][0]["restarts"] == {"fatal": n}), server.status()["apps"][0]


def test_a_session_variable_that_the_boot_sets_is_there_for_each_request(tmp_path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "worker.php").write_text(
        "<?php $_SESSION = ['of' => 'the boot']; while (hayate_handle_request(static function (): void {"
        "echo $_SESSION['of']; $_SESSION['of'] = 'a request'; })) {}"
    )
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, args=["--rewind", "off"]) as server:
        assert [requests.get(server.url, timeout=60).text for _ in range(3)] == ["the boot"] * 3


def test_scripts_in_global_scope_run_in_the_loop_after_an_empty_handler(tmp_path) -> None:
    """As docs/applications.md advises for applications of many scripts; each request finds a fresh application."""
    tmp_path.chmod(0o755)
    site = tmp_path / "site"
    (site / "inc").mkdir(parents=True)
    (site / "inc/library.php").write_text("<?php class Library { static int $calls = 0; }")
    for name in ("edit", "index"):
        (site / f"{name}.php").write_text(
            "<?php require_once __DIR__.'/inc/library.php'; $title = basename(__FILE__);"
            "function show() { global $title; http_response_code(203); header('X-Title: '.$title); echo ++Library::$calls; }"
            "show(); ini_set('precision', 3); define('DONE', 1);"
        )
    (tmp_path / "worker.php").write_text(
        "<?php require __DIR__.'/site/inc/library.php';"
        "while (hayate_handle_request(static function (): void {})) { include $_SERVER['SCRIPT_FILENAME']; }"
    )
    config = f'[[app]]\nroot = "{site}"\nworker = "../worker.php"\nwarmup = []\nworkers = 1\n'
    with Hayate(config=config) as server:
        for _ in range(3):
            for path, name in (("/edit.php?a=b", "edit.php"), ("/", "index.php")):
                answer = requests.get(server.url + path, timeout=60)
                assert (answer.status_code, answer.headers["X-Title"], answer.text) == (203, name, "1")


#: What PHP says by itself before any script runs.
STARTED = {
    "a session": {"session.auto_start": "1", "output_buffering": "4096"},
    "a session, unbuffered": {"session.auto_start": "1", "output_buffering": "0"},
    "warnings": {"max_input_vars": "3", "post_max_size": "1K", "output_buffering": "4096"},
    "warnings, unbuffered": {"max_input_vars": "3", "post_max_size": "1K", "output_buffering": "0", "expose_php": "0"},
}


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize("ini", STARTED.values(), ids=STARTED)
def test_what_php_says_before_the_handler_is_no_answer_of_it(ini: dict[str, str], rewind: str, tmp_path) -> None:
    """The script behind an empty handler runs as under php-fpm; behind one that answers its own answer stays."""
    tmp_path.chmod(0o755)
    shown = {"display_errors": "1", "display_startup_errors": "1", "html_errors": "0", "session.save_path": "/tmp"}
    (tmp_path / "page.php").write_text("<?php echo session_status(), ' the page of ', count($_POST);")
    (tmp_path / "worker.php").write_text(
        "<?php while (hayate_handle_request(static function (): void {"
        "match ($_GET['handler'] ?? '') { 'prints' => print 'of the handler', 'header' => header('Cache-Control: no-store'),"
        "'status' => http_response_code(203),"
        "'hints' => hayate_early_hints('</a.css>; rel=preload'), default => 0 }; })) { include __DIR__ . '/page.php'; }"
    )
    flags = ["--rewind", rewind, "--warmup", "off", "--front-controller", ""]
    form_type = {"Content-Type": "application/x-www-form-urlencoded"}
    forms = ["", "a=1", "a=1&b=2&c=3&d=4&e=5", "a=" + "x" * 2000]
    with (
        NginxFpm(tmp_path, ini={**shown, **ini}) as reference,
        Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, ini={**shown, **ini}, args=flags) as server,
    ):
        for form in forms:
            expected, answer = (
                requests.post(f"{one.url}/page.php", data=form, headers=form_type, timeout=60) for one in (reference, server)
            )
            assert "the page of" in expected.text
            assert (answer.status_code, answer.text.strip()) == (expected.status_code, expected.text.strip()), form[:9]
            answer = requests.post(f"{server.url}/page.php?handler=hints", data=form, headers=form_type, timeout=60)
            assert (answer.status_code, answer.text.strip()) == (expected.status_code, expected.text.strip()), form[:9]
            said = expected.text[: expected.text.index("the page of") - 2]
            for handler, status, text in (("prints", 200, "of the handler"), ("header", 200, ""), ("status", 203, "")):
                if handler != "prints" and said and (ini["output_buffering"] == "0" or "POST Content-Length" in said):
                    continue  # the head is on its way: of a body's size PHP warns before there is a buffer
                answer = requests.post(f"{server.url}/page.php?handler={handler}", data=form, headers=form_type, timeout=60)
                assert (answer.status_code, answer.text) == (status, said + text), (handler, form[:9])


#: A front controller that serves as worker script as well, where there is a function for it.
FRONT = """<?php
header('X-Boot: '.count(headers_list()));
hayate_on_worker();
$handler = function () {
    register_shutdown_function(static function () { echo ' shut down ', http_response_code(); });
    $kept = new class { function __destruct() { echo ' destructed'; } };
    ob_start(fn ($text) => strtoupper($text));
    echo 'handled '.($_GET['n'] ?? '');
    WORK
};
$times = 0;
if (\\function_exists('NAME')) {
    try {
        while (NAME($handler)) {
            $times++;
        }
    } finally {
        $times === 1 || print 'thrown';
    }
} else {
    try {
        $handler();
        $times++;
    } finally {
        $times === 1 || print 'thrown';
    }
}
echo ' behind ', $times;
"""
#: What the handler does in the end.
ENDS = {
    "returns": "return false;",
    "exits": "exit(' left');",
    "throws": "throw new Exception('of the handler');",
    "fatal": "trigger_error('of the handler', E_USER_ERROR);",
    "out of memory": "str_repeat('x', 1 << 30);",
    "finished": "fastcgi_finish_request(); echo 'for nobody';",
    "status": "http_response_code(404); header('X-Boot: again');",
}


@pytest.mark.parametrize("name", ["hayate_handle_request", "frankenphp_handle_request"])
def test_in_classic_mode_the_handler_runs_for_the_request_that_is_there(tmp_path, name: str) -> None:
    """Each visitor got 500: the function was there, and threw. As under php-fpm, where it is not there."""
    tmp_path.chmod(0o755)
    before = "if (function_exists('hayate_on_worker_start')) { hayate_on_worker_start(function () { echo 'of a worker'; }); }"
    for end, work in ENDS.items():
        text = FRONT.replace("NAME", name).replace("WORK", work).replace("hayate_on_worker();", before)
        (tmp_path / f"{end.replace(' ', '-')}.php").write_text(text)
    ini = {"display_errors": "0", "memory_limit": "64M"}
    with NginxFpm(tmp_path, ini=ini) as reference, Hayate(tmp_path, workers=1, ini=ini, args=["--mode", "classic"]) as server:
        for n in range(3):
            for end in ENDS:
                expected, answer = (requests.get(f"{one.url}/{end.replace(' ', '-')}.php?n={n}", timeout=60) for one in (reference, server))
                seen, wanted = ((a.status_code, a.headers.get("X-Boot"), a.text) for a in (answer, expected))
                assert seen == wanted and (end == "out of memory" or f"HANDLED {n}" in answer.text), (end, server.log_tail())
        assert server.status()["apps"][0]["restarts"] == {}


def test_in_classic_mode_a_handler_does_not_call_it_again(tmp_path) -> None:
    (tmp_path / "index.php").write_text(
        "<?php $h = function () use (&$h) {"
        "foreach ([fn () => hayate_handle_request($h), fn () => hayate_on_worker_start(fn () => 1)] as $call) { try { $call(); } catch (Error $e) { echo $e->getMessage(), '; '; } } };"
        "var_export(hayate_handle_request($h)); var_export(hayate_handle_request($h));"
    )
    with Hayate(tmp_path, workers=1, args=["--mode", "classic"]) as server:
        for _ in range(2):
            assert requests.get(server.url, timeout=60).text == (
                "hayate_handle_request() must not be called while it handles a request; "
                "hayate_on_worker_start() must be called before the first hayate_handle_request(); truefalse"
            )
