"""Loops that do nothing but call hayate_handle_request() again, in each form: the request's end belongs to the answer, as under php-fpm."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from lib.process import temporary_directory
from lib.servers import Hayate, NginxFpm, Server

from . import modes

#: What the handler changes is looked at by a destructor, which writes to the session and to the answer.
SCRIPT = """<?php
class Flash
{
    public array $messages = [];
    public function __destruct()
    {
        if (session_status() === PHP_SESSION_ACTIVE) {
            $_SESSION['flash'] = $this->messages;
        }
        echo '[the end]';
    }
}
class App
{
    public static App $only;
    public $handler;
    public function __construct(public Flash $flash)
    {
        self::$only = $this;
        $this->handler = $this->handle(...);
    }
    public static function one(): void { self::$only->handle(); }
    public function __invoke(): void { $this->handle(); }
    public function handle(): void
    {
        session_id('calls' . getenv('MODE'));
        session_start();
        echo json_encode($_SESSION);
        $_SESSION = [];
        if ($_GET['do'] === 'set') {
            $this->flash->messages[] = 'saved';
        }
    }
    public function loop(): void { while (hayate_handle_request($this->handler)) {} }
    public function loopOfArray(): void { while (hayate_handle_request([$this, 'handle'])) {} }
    public function loopOfMethod(): void { while (hayate_handle_request($this->handle(...))) {} }
    public function loopOfStatic(): void { while (hayate_handle_request(static::one(...))) {} }
}
function handle(): void { App::one(); }
$app = new App(new Flash());
$most = 500;
"""
NOTHING = {
    "method": "while (hayate_handle_request($app->handle(...))) {}",
    "object": "while (hayate_handle_request($app(...))) {}",
    "static method": "while (hayate_handle_request(App::one(...))) {}",
    "function": "while (hayate_handle_request(handle(...))) {}",
    "array": "while (hayate_handle_request([$app, 'handle'])) {}",
    "property": "while (hayate_handle_request($app->handler)) {}",
    "of a property": "$all = new stdClass(); class All { public $app; } $all = new All(); $all->app = $app; while (hayate_handle_request($all->app->handle(...))) {}",
    "own property": "$app->loop();",
    "own array": "$app->loopOfArray();",
    "own method": "$app->loopOfMethod();",
    "own static method": "$app->loopOfStatic();",
    "variable": "while (hayate_handle_request($app)) {}",
    "closure": "while (hayate_handle_request(function () use ($app) { $app->handle(); })) {}",
    "identical": "while (hayate_handle_request($app->handle(...)) === true) {}",
    "not identical": "while (false !== hayate_handle_request($app)) {}",
    "returns": "while (true) { $more = hayate_handle_request($app); if ($more === false) { return; } }",
    "breaks": "while (true) { if (!hayate_handle_request($app)) { break; } }",
    "counter before": "$n = 0; while (hayate_handle_request($app) && ++$n < 500) {}",
    "counter behind": "$n = 0; while (hayate_handle_request($app->handle(...)) && $n++ <= $most) {}",
    "do": "$n = 0; do { $more = hayate_handle_request($app); } while ($more && ++$n < $most);",
    "for": "for ($i = 0; hayate_handle_request($app); $i++) {}",
    "at most": "for ($n = 0; !$most || $n < $most; ++$n) { if (!hayate_handle_request($app)) { break; } }",
    "call_user_func": "while (call_user_func('hayate_handle_request', $app)) {}",
}
#: Here code of the application runs, or may run, between.
SOMETHING = {
    "call": "while (hayate_handle_request($app)) { strlen('behind'); clearstatcache(); }",
    "getter": "class Gets { public function __construct(public $app) {} public function __get($n) { echo 'behind'; return $this->app; } }"
    " $gets = new Gets($app); while (hayate_handle_request($gets->it)) {}",
    "undefined": "set_error_handler(function () { echo 'behind'; return true; });"
    " while (hayate_handle_request(function () use ($app, $nothing) { $app->handle(); })) {}",
    "key": "error_reporting(E_ALL); set_error_handler(function () { echo 'behind'; return true; }); $one = 1.5;"
    " while (hayate_handle_request([0 => $app, $one => 'handle'])) {}",
    "trait": "trait Does { public static function it() { App::one(); } } error_reporting(E_ALL);"
    " set_error_handler(function () { echo 'behind'; return true; }); while (hayate_handle_request(Does::it(...))) {}",
    "another's property": "class Has { private $h; public function __construct(public $app) { unset($this->h); } public function __get($n)"
    " { echo 'behind'; return $this->app; } public function loop() { while (hayate_handle_request($this->h)) {} } }"
    " class Also extends Has { public $h; } $also = new Also($app); $also->h = $app; $also->loop();",
    "last": "$n = 0; while (hayate_handle_request($app) && ++$n < 1) {} echo 'behind';",
    "destroyed": "class Ends { public function __destruct() { echo 'behind'; } } $more = new Ends(); while ($more = hayate_handle_request($app)) {}",
}
ASKED = ["set", "get", "get", "set", "get"]
ENDS = [answer + "[the end]" for answer in ("[]", '{"flash":["saved"]}', '{"flash":[]}', '{"flash":[]}', '{"flash":["saved"]}')]


def answers(mode: str, loop: str, ini: dict[str, str] = {}) -> list[str]:
    root = temporary_directory("calls-again")
    root.chmod(0o777)
    (root / "worker.php").write_text(SCRIPT + loop)
    ini = {**modes.INI, "session.save_path": str(root), "session.use_strict_mode": "0", "session.use_cookies": "0", **ini}
    try:
        if mode == "php-fpm":
            fpm = {"env[MODE]": "fpm"}
            server: Server = NginxFpm(root, index="worker.php", ini={**ini, **modes.ONCE}, workers=1, fpm=fpm)
        else:
            args = ["--env", f"MODE={mode}", "--rewind", mode, "--rewind-verify", "1", "--warmup", "off"]
            server = Hayate(root, worker=root / "worker.php", workers=1, ini=ini, args=args)
        with server:
            return [modes.get(server, f"do={what}") for what in ASKED]
    finally:
        shutil.rmtree(root)


def test_as_under_php_fpm() -> None:
    assert answers("php-fpm", NOTHING["method"]) == ENDS


@pytest.mark.parametrize("loop", NOTHING)
def test_the_end_of_the_request_belongs_to_the_answer(loop: str) -> None:
    assert answers("on", NOTHING[loop]) == ENDS


@pytest.mark.parametrize("loop", ["method", "array", "own property", "counter before", "at most"])
def test_the_same_of_forks_and_of_code_that_nobody_has_made_better(loop: str) -> None:
    assert answers("fork", NOTHING[loop]) == ENDS
    assert answers("on", NOTHING[loop], {"opcache.enable": "0"}) == ENDS


@pytest.mark.parametrize("loop", SOMETHING)
def test_code_that_runs_between_is_behind_the_answer(loop: str) -> None:
    for answer in answers("on", SOMETHING[loop]):
        assert "behind" not in answer and "[the end]" not in answer
