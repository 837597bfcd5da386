"""A front controller that is run once, up to run(): what it may look at before, and what leads to classic mode. Slim 3 stands for all of them."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from apps.browser import Browser
from apps.sites import USER, Site, change, recognised, server, slim
from lib.process import ServerError, temporary_directory, wait_until
from lib.servers import PHP_VERSION, Hayate


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """The Slim application, to be changed; in a directory of that name below its own where a test asks for one."""
    directory = temporary_directory("apps")
    try:
        inner = directory / getattr(request, "param", "")
        inner.mkdir(parents=True, exist_ok=True)
        yield slim(inner)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


SETTINGS = """<?php
$secure = $_SERVER['HTTPS'] ?? 'off';
"""
FUNCTION = """<?php
return function (Slim\\App $app): void { $app->lang = $_COOKIE['lang'] ?? 'en'; };
"""
CLASS = """
require __DIR__.'/library.php';
class Settings { public function check(): void {} public function base(): string { return $_SERVER['REQUEST_URI'] ?? 'none'; } }
"""
TURNED_AWAY = "function away(): bool { return ($_SERVER['REMOTE_ADDR'] ?? '') === '192.0.2.1'; }"
TENANT = "function tenant(): string { return '/'.(strlen($_SERVER['REMOTE_ADDR'] ?? '') > 99 ? 'b' : ''); }"
GATE = "class Gate { public function check(): void { if (($_SERVER['REMOTE_ADDR'] ?? '') === '192.0.2.1') { throw new Exception('blocked'); } } }"
GUARD = """<?php
if (!is_file(__DIR__.'/closed')) { return; }
$closed = true;
exit('closed');
"""
LIBRARY = """<?php
namespace Carbon { class Carbon { public static function now(): int { return 1; } } }
namespace Library { function ask(string $of): mixed { return getenv($of); } }
namespace Ramsey\\Uuid { class Uuid { public static function uuid4(): string { return 'a'; } } }
namespace Symfony\\Component\\Uid { class Ulid {} class Uuid { public static function v7(): string { return 'a'; } } }
"""


@pytest.mark.parametrize(
    ("before", "says"),
    [
        pytest.param("session_start();", "session_start", id="session"),
        pytest.param("$lang = $_COOKIE['lang'] ?? 'en';", r"\$_COOKIE", id="cookie"),
        pytest.param("$nonce = bin2hex(random_bytes(8));", "random_bytes", id="nonce"),
        pytest.param("define('START', microtime(true));", "microtime", id="clock"),
        pytest.param("$now = new \\DateTimeImmutable();", "DateTimeImmutable", id="date"),
        pytest.param("$now = strtotime('now');", "strtotime", id="clock as text"),
        pytest.param("$now = date_create();", "date_create", id="date by function"),
        pytest.param("$now = Carbon\\Carbon::now();", "now", id="date of a library"),
        pytest.param("$id = Ramsey\\Uuid\\Uuid::uuid4();", "uuid4", id="uuid"),
        pytest.param("$id = Symfony\\Component\\Uid\\Uuid::v7();", "v7", id="uuid of Symfony"),
        pytest.param("$id = new Symfony\\Component\\Uid\\Ulid();", "Ulid", id="object that draws"),
        pytest.param("$id = (new \\Random\\Randomizer())->getInt(1, 9);", "Randomizer", id="randomizer"),
        pytest.param("$banners = [1, 2]; shuffle($banners);", "shuffle", id="shuffle"),
        pytest.param("$banner = array_rand([1, 2]);", "array_rand", id="array_rand"),
        pytest.param("$word = str_shuffle('abc');", "str_shuffle", id="str_shuffle"),
        pytest.param("$said = ob_get_level();", "ob_get_level", id="output"),
        pytest.param("$said = OB_GET_LEVEL();", "OB_GET_LEVEL", id="output in capitals"),
        pytest.param("@session_regenerate_id();", "session_regenerate_id", id="session's id"),
        pytest.param("header_register_callback(fn () => null);", "header_register_callback", id="callback"),
        pytest.param("$lang = $GLOBALS['_GET']['lang'] ?? 'en';", r"\$_GET", id="global"),
        pytest.param("$none = null; $none?->capture();", "capture", id="nullsafe"),
        pytest.param("$input = file_get_contents('php://input');", "php://input", id="body"),
        pytest.param("$base = (function () { return $_SERVER['SCRIPT_NAME']; })();", "SCRIPT_NAME", id="closure"),
        pytest.param("require __DIR__.'/../settings.php';", "looks at the request", id="in a file"),
        pytest.param("(require __DIR__.'/../function.php')(new Slim\\App());", r"\$_COOKIE", id="in a function"),
        pytest.param("if (isset($_COOKIE['closed'])) { exit; }", r"\$_COOKIE", id="exit for some"),
        pytest.param("if (!defined('OPEN')) { if (true) { $lang = $_GET['lang'] ?? 1; } else { exit; } }", r"\$_GET", id="exit elsewhere"),
        pytest.param(f"{TURNED_AWAY} if (away()) {{ http_response_code(403); exit('no'); }}", "http_response_code", id="exit for an address"),
        pytest.param(f"{TURNED_AWAY} $away = away(); if ($away) exit;", "exit", id="exit by a variable"),
        pytest.param(f"{TURNED_AWAY} !away() or exit('no');", "exit", id="exit as an alternative"),
        pytest.param(f"{TURNED_AWAY} if (!away()) {{ $in = true; }} else {{ exit; }}", "exit", id="exit else"),
        pytest.param("if (file_exists(__DIR__.'/../closed')) { header('Retry-After: 60'); exit('closed'); }", "header", id="closed for a while"),
        pytest.param(f"{TURNED_AWAY} away() ? exit : 0;", "exit", id="exit in an expression"),
        pytest.param("if (is_file(__DIR__.'/../closed')) { exit('closed'); }", "exit", id="closed without a word"),
        pytest.param("if (!(!is_file(__DIR__.'/../closed'))) { exit('closed'); }", "exit", id="closed, negated twice"),
        pytest.param("if (PHP_SAPI !== 'cli') { $lang = $_GET['lang'] ?? 1; }", r"\$_GET", id="not in a console"),
        pytest.param("$base = (new Settings())->base();", "depends on the request", id="in a class of a library"),
        pytest.param("if (is_file(__DIR__.'/../closed')) { readfile(__FILE__); return; }", "readfile", id="closed, by return"),
        pytest.param("if (is_file(__DIR__.'/../closed')) { return; }", "comes to the request only", id="return"),
        pytest.param("if (is_file(__DIR__.'/../closed')): return; endif;", "comes to the request only", id="return by endif"),
        pytest.param("while (is_file(__DIR__.'/../closed')) { return; }", "comes to the request only", id="return in a loop"),
        pytest.param("if (is_file(__DIR__.'/../closed')) { goto end; }\nend:", "comes to the request only", id="goto"),
        pytest.param("if (is_file(__DIR__.'/../closed')) { throw new Exception('closed'); }", "throw", id="throw"),
        pytest.param("require __DIR__.'/../text.php';", "echo", id="text"),
        pytest.param("if (is_file(__DIR__.'/../closed')) { require __DIR__.'/../closed'; }", "include", id="a file that answers"),
        pytest.param("is_file(__DIR__.'/../closed') and require __DIR__.'/../closed';", "include", id="a file that answers, by and"),
        pytest.param("require __DIR__.'/../guard.php';", "guard.php:4 .*exit", id="exit after an early return"),
        pytest.param(f"{TENANT} if (!is_dir(__DIR__.tenant())) {{ exit('no such tenant'); }}", r"exit|REMOTE_ADDR", id="what is asked for"),
        pytest.param("$closed = is_file(__DIR__.'/../closed'); if ($closed) { return; }", "comes to the request only", id="by a variable"),
        pytest.param("define('CLOSED', is_file(__DIR__.'/../closed')); if (CLOSED) { return; }", "comes to the request", id="by a constant"),
        pytest.param("try { (new Settings())->check(); } catch (Exception $e) { exit('blocked'); }", "exit", id="exit in catch"),
        pytest.param("try { (new Settings())->check(); } catch (Exception $e) { echo 'blocked'; }", "echo", id="echo in catch"),
        pytest.param(f"{TURNED_AWAY} putenv('KEY=k'); $key = getenv('KEY'); $key = away(); if ($key) {{ exit('no'); }}", "exit", id="exit by a variable that was the environment's"),
        pytest.param("function away(&$key) {} putenv('KEY=k'); $key = getenv('KEY'); away($key); if (!$key) { exit('no'); }", "exit", id="exit by a variable that was changed"),
        pytest.param("putenv('KEY=k'); $key = getenv('KEY'); if (is_file(__DIR__.'/../closed')) { $key = ''; } if (!$key) { exit('no'); }", "exit", id="exit by a variable that is changed for a while"),
        pytest.param("$none = null; $none?->get('request', null);", "get", id="container, with an argument more"),
        pytest.param(f"{GATE} (new Gate())->check();", r"REMOTE_ADDR", id="in a method"),
        pytest.param(f"{GATE} array_map([new Gate(), 'check'], [1]);", r"REMOTE_ADDR", id="in a method, called by PHP"),
        pytest.param(f"{GATE} class Door extends Gate {{}} (new Door())->check();", r"REMOTE_ADDR", id="in a method of a parent"),
        pytest.param("function locale(): string { return $_GET['lang'] ?? 'en'; } $lang = locale();", r"\$_GET", id="in a function"),
        pytest.param("function leave(): void { if (is_file('closed')) { exit; } } leave();", "exit", id="exit in a function"),
        pytest.param("call_user_func(function () { $GLOBALS['lang'] = $_COOKIE['lang'] ?? 'en'; });", r"\$_COOKIE", id="closure for PHP"),
        pytest.param("$f = function () { return $_COOKIE['lang'] ?? 'en'; }; $lang = $f();", r"\$_COOKIE", id="closure in a variable"),
        pytest.param("$f = array_map(fn ($k) => $_GET[$k] ?? 'en', ['lang']);", r"\$_GET", id="arrow function"),
        pytest.param("$admin = ($_SERVER['SSL_CLIENT_VERIFY'] ?? '') === 'SUCCESS';", "SSL_CLIENT_VERIFY", id="certificate"),
        pytest.param("function ask(string $of): mixed { return getenv($of); } ask(implode('_', ['HTTP', 'HOST']));", "variable HTTP_HOST", id="environment by a name"),
        pytest.param(
            "for ($i = 0; $i < 99; $i++) { Library\\ask('HTTP_X'); } function ask(string $of): mixed { return getenv($of); } ask(implode('_', ['HTTP', 'HOST']));",
            "variable HTTP_HOST",
            id="environment after a library",
        ),
        pytest.param("function env(string $of): mixed { return getenv($of); } env(implode('_', ['SSL', 'CIPHER']));", "variable SSL_CIPHER", id="environment by env()"),
        pytest.param("function env($name) { return $_SERVER[$name] ?? null; } $host = env('HTTP_HOST');", "HTTP_HOST", id="own env()"),
        pytest.param("function any($name) { return $_SERVER[$name] ?? null; } $host = any('HTTP_HOST');", r"\$_SERVER", id="any of them"),
        pytest.param("require __DIR__.'/../linked/settings.php';", "looks at the request", id="in a file that is linked"),
    ],
)
def test_what_looks_at_the_request_before_run_is_served_in_classic_mode(site: Site, before: str, says: str) -> None:
    index = site.docroot / "index.php"
    change(index, "$counter =", f"{before}\n$counter =")
    change(
        index,
        "function (Request $request, Response $response): Response {\n    $response->getBody()->write('<a",
        "function (Request $request, Response $response) use (&$base): Response {\n"
        "    $response->getBody()->write($base.'<a",
    )
    (site.root / "settings.php").write_text(SETTINGS)
    (site.root / "function.php").write_text(FUNCTION)
    (site.root / "guard.php").write_text(GUARD)
    (site.root / "text.php").write_text("<?php if (is_file(__DIR__.'/closed')) { ?>closed<?php }")
    elsewhere = site.root.with_name(f"{site.root.name}-shared")
    elsewhere.mkdir()
    (elsewhere / "settings.php").write_text(SETTINGS)
    (site.root / "linked").symlink_to(elsewhere)
    autoload = site.root / "vendor/autoload.php"
    autoload.write_text(autoload.read_text() + CLASS)
    autoload.with_name("library.php").write_text(LIBRARY)
    # Also where no warm-up requests are wanted.
    for args in ((), ("--warmup", "off")):
        mode, log = recognised(site, *args)
        assert mode == "classic", log
        assert re.search(says, log), log


WANTS = "function host(): string { return $_SERVER['HTTP_HOST']; }\n$host = host();\n"


def test_a_front_controller_that_does_not_boot_without_a_request_is_served_in_classic_mode(site: Site) -> None:
    """It answers there, so it is no broken release."""
    index = site.docroot / "index.php"
    with Hayate(site.root, workers=1, ini=site.ini, user=USER) as server:
        assert server.status()["apps"][0]["mode"] == "worker"
        change(index, "$counter =", f"{WANTS}$counter =")
        assert server.run("reload").returncode == 0
        assert Browser(server.url).get("/people/ada").text == "ada at /people/ada?"
        assert server.status()["apps"][0]["mode"] == "classic"
    with Hayate(site.root, workers=1, ini=site.ini, user=USER) as server:
        for _ in range(2):
            assert Browser(server.url).get("/people/ada").text == "ada at /people/ada?"
            (app,) = server.status()["apps"]
            assert (app["mode"], app["fallback"]["to"]) == ("classic", "classic")
            assert "before there is a request" in app["fallback"]["why"] and "host()" in app["fallback"]["why"]
            assert server.run("reload").returncode == 0
        done = server.run("upgrade")
        assert done.returncode == 0, done.stderr
        assert Browser(server.url).get("/people/ada").text == "ada at /people/ada?"


BROKEN = {
    "exception": "throw new Exception('the release is broken');\n",
    "syntax": "$a = ;\n",
    "missing class": "new Missing\\Thing();\n",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_release_is_no_release_that_wants_a_request(site: Site, kind: str) -> None:
    """It is refused by a reload and an upgrade, also where the application is in classic mode for something else; and it starts nothing."""
    index = site.docroot / "index.php"
    right = index.read_text()
    site.ini["display_errors"] = "1"  # PHP answers with 200 then
    for good in (right, right.replace("$counter =", "$lang = $_COOKIE['lang'] ?? 'en';\n$counter =")):
        index.write_text(good)
        with Hayate(site.root, workers=1, ini=site.ini, user=USER) as server:
            mode = server.status()["apps"][0]["mode"]
            assert mode == ("worker" if good == right else "classic")
            change(index, "$counter =", f"{BROKEN[kind]}$counter =")
            for command in ("reload", "upgrade"):
                refused = server.run(command)
                assert (refused.returncode, "did not boot" in refused.stderr) == (1, True), refused.stderr
                assert f"{index}:" in refused.stderr, refused.stderr
            index.write_text(good)
            assert Browser(server.url).get("/people/ada").text == "ada at /people/ada?"
            assert server.status()["apps"][0]["mode"] == mode
    index.write_text(right.replace("$counter =", f"{BROKEN[kind]}$counter ="))
    with pytest.raises(ServerError, match="did not boot"), Hayate(site.root, workers=1, ini=site.ini, user=USER):
        pass


def test_a_library_that_does_not_boot_without_a_request(site: Site) -> None:
    """Its code is not looked into; what PHP says that it misses tells."""
    autoload = site.root / "vendor/autoload.php"
    autoload.write_text(autoload.read_text() + "\nclass Host { public function __construct(public string $name) {} public static function get(): self { return new self($_SERVER['HTTP_HOST']); } }")
    change(site.docroot / "index.php", "$counter =", "$host = Host::get();\n$counter =")
    mode, log = recognised(site)
    assert mode == "classic" and 'misses what a request has (Undefined array key "HTTP_HOST")' in log, log


NEVER_HERE = """
if (PHP_SAPI === 'cli-server' && is_file(__DIR__.parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH))) {
    return false;
}
if (php_sapi_name() == 'cli') {
    $_SERVER['REQUEST_URI'] = '/';
}
if (version_compare(PHP_VERSION, '7.0', '<')) {
    header('HTTP/1.1 503 Service Unavailable.', true, 503);
    echo 'This version of PHP is too old: ', PHP_VERSION;
    exit(1);
}
if (!extension_loaded('json') || PHP_VERSION_ID < 70000) exit(1);
if (!is_file(__DIR__.'/../vendor/autoload.php')) {
    http_response_code(500);
    die('Run composer install');
}
defined('PHP_VERSION') or exit;
file_exists(__FILE__) || die('gone');
try {
    $settings = json_decode('{}', flags: JSON_THROW_ON_ERROR);
} catch (JsonException $wrong) {
    $settings = [];
}
"""
HARMLESS = """
define('ROOT', dirname(__DIR__));
$least = '7.0';
if (version_compare(PHP_VERSION, $least, '<')) {
    exit('too old');
}
if (file_exists(ROOT.'/vendor/autoload.php')) {
    require_once ROOT.'/vendor/autoload.php';
}
if (is_file($local = ROOT.'/local.php')) {
    $settings = require $local;
}
$_ENV['SHOP'] ?? $none = true;
$_ENV['KEY'] = 'k';
putenv('KEY=k');
if (!isset($_ENV['KEY']) || empty($_ENV['KEY']) || !getenv('KEY') || getenv('KEY') === false || null === $_ENV['KEY']) {
    throw new RuntimeException('KEY is missing');
}
$key = getenv('KEY');
$other = $_ENV['KEY'];
if ($key === false || !$other) {
    throw new RuntimeException('KEY is missing');
}
if (empty($key)) {
    exit('KEY is empty');
}
if (!$key = getenv('KEY')) {
    exit('KEY is missing');
}
$key = getenv('KEY') ?: throw new RuntimeException('KEY is missing');
$config = ['components' => ['request' => ['key' => $key]]];
$config['components']['request']['key'] = $key;
class Router { public function get(string $path, mixed ...$handler): void {} }
(new Router())->get('request', 'Shop::request');
(new Router())->get('request', fn () => 'a request');
if (!class_exists(Slim\\App::class)) {
    throw new RuntimeException('Run composer install');
}
if ($debug = getenv('DEBUG')) {
    ini_set('display_errors', '1');
}
foreach (['a', 'b'] as $name) {
    if ($name === 'a') { continue; }
    $names[] = $name;
}
$_SERVER += $_ENV;
function env(string $name, ?string $else = null): ?string { return $_ENV[$name] ?? $_SERVER[$name] ?? $else; }
$shop = env('SHOP', 'none');
function visitor(): string { return $_SERVER['REMOTE_ADDR']; }
class Page { public function show(): void { header('X-Page: 1'); echo visitor(); exit; } }
$show = fn () => (new Page())->show();
set_error_handler(function () { if (isset($_GET['debug'])) { exit; } return false; });
if (PHP_SAPI !== 'cli') {
    $web = true;
}
$name = strtoupper(...);
class Configure { public static function load(string $name): void {} }
try {
    Configure::load('app');
    Configure::load('app_local');
} catch (Exception $e) {
    exit($e->getMessage()."\\n");
}
"""


@pytest.mark.parametrize("harmless", [pytest.param(NEVER_HERE, id="never here"), pytest.param(HARMLESS, id="settled, or later")])
def test_what_only_runs_elsewhere_or_ends_the_boot_may_look_at_the_request(site: Site, harmless: str) -> None:
    change(site.docroot / "index.php", "$counter =", f"{harmless}$counter =")
    mode, log = recognised(site)
    assert mode == "worker", log


def handled_by(site: Site, statements: str) -> tuple[str, str]:
    """How it is served where a class of the project's own leads to Slim's run(): RUN in these statements of its method."""
    (site.root / "main.php").write_text(
        "<?php\nclass Main\n{\n    public function __construct(private Slim\\App $app) {}\n"
        "    public function run(): void\n    {\n"
        f"{statements.replace('RUN', '$this->app->run();')}\n    }}\n}}\n"
    )
    change(site.docroot / "index.php", "$app->run();", "require __DIR__.'/../main.php';\n$app = new Main($app);\n$app->run();")
    return recognised(site)


@pytest.mark.parametrize(
    "statements",
    [
        "if (PHP_SAPI === 'cli') { return; }\ntry {\nRUN\n} finally { gc_collect_cycles(); }",
        "if (PHP_SAPI !== 'cli') {\nRUN\n} else { exit(1); }",
        "if (!extension_loaded('json')) { throw new Exception('json is missing'); }\nRUN",
        "foreach ([1, 2] as $one) { if ($one === 1) { continue; } $last = $one; }\nRUN",
        "(function () {\nRUN\n})();",
    ],
)
def test_a_request_that_is_handled_in_any_case(site: Site, statements: str) -> None:
    mode, log = handled_by(site, statements)
    assert mode == "worker", log


@pytest.mark.parametrize(
    "statements",
    [
        "if (!is_file(__DIR__.'/closed')) {\nRUN\n}",
        "if (is_file(__DIR__.'/closed')) { return; }\nRUN",
        "if (is_file(__DIR__.'/closed')) { echo 'closed'; }\nelse {\nRUN\n}",
        "$closed = is_file(__DIR__.'/closed');\nswitch ($closed) {\ncase false:\nRUN\n}",
        "try { throw new Exception(); } catch (Exception $open) {\nRUN\n}",
        "$main = function (): void { if (is_file(__DIR__.'/closed')) { return; }\nRUN\n};\n$main();",
        "array_map(function () {\nif (!is_file(__DIR__.'/closed')) {\nRUN\n}\n}, [1]);",
        "foreach (array_filter([__DIR__.'/closed'], 'is_file') ?: [1] as $one) {\nRUN\n}",
    ],
)
def test_a_request_that_is_handled_only_where_something_is_so(site: Site, statements: str) -> None:
    mode, log = handled_by(site, statements)
    assert mode == "classic", log
    assert re.search(r"main\.php:\d+ comes to the request only where", log), log


@pytest.mark.parametrize("site", ["vendor/shop"], indirect=True)
def test_a_project_below_a_directory_called_vendor_is_looked_at(site: Site) -> None:
    change(site.docroot / "index.php", "$counter =", "$lang = $_COOKIE['lang'] ?? 'en';\n$counter =")
    mode, log = recognised(site)
    assert (mode, "$_COOKIE" in log) == ("classic", True), log


def test_without_a_page_to_compare_it_is_served_in_classic_mode(site: Site) -> None:
    change(site.docroot / "index.php", "$app->get('/',", "$app->get('/start',")
    mode, log = recognised(site)
    assert (mode, 'warmup = ["/page"]' in log) == ("classic", True), log
    assert recognised(site, "--warmup", "/start")[0] == "worker"


def test_a_redirection_is_no_page(site: Site) -> None:
    redirects = "$app->get('/', fn (Request $request, Response $response): Response => $response->withStatus(302)->withHeader('Location', '/start'));\n"
    change(site.docroot / "index.php", "$app->get('/',", f"{redirects}$app->get('/start',")
    mode, log = recognised(site)
    assert (mode, 'warmup = ["/page"]' in log) == ("classic", True), log
    assert recognised(site, "--warmup", "/start")[0] == "worker"


def test_a_class_of_the_project_that_overrides_run(site: Site) -> None:
    autoload = site.root / "vendor/autoload.php"
    autoload.write_text(
        autoload.read_text()
        + """
class Shop extends Slim\\App
{
    public function run($silent = false)
    {
        $this->add(fn ($request, $response, $next) => $next($request, $response)->withAddedHeader('X-Shop', 'open'));

        return parent::run($silent);
    }
}
"""
    )
    change(site.docroot / "index.php", "new Slim\\App(", "new Shop(")
    with Hayate(site.root, workers=1, ini=site.ini, user=USER) as server:
        browser = Browser(server.url)
        for _ in range(3):
            page = browser.get("/people/ada").response
            assert (page.text, page.raw.headers.getlist("X-Shop")) == ("ada at /people/ada?", ["open"])
        assert server.status()["apps"][0]["mode"] == "worker"


def test_opcache_has_the_code_of_others_before_the_boot_and_none_of_the_projects_own(site: Site) -> None:
    """What it has nobody would look into (host/prime.c)."""
    said = site.root / "var/said"
    (site.root / "src.php").write_text("<?php $own = true;")
    cached = "array_map(fn ($file) => opcache_is_script_cached($file), [{}])".format(
        ", ".join(f"'{path}'" for path in ("/usr/share/php/Slim/App.php", site.docroot / "index.php", site.root / "src.php"))
    )
    change(site.docroot / "index.php", "$counter =", f"file_put_contents('{said}', json_encode({cached}).\"\\n\", FILE_APPEND);\nrequire __DIR__.'/../src.php';\n$counter =")
    mode, log = recognised(site)
    assert mode == "worker", log
    assert "[true,false,false]\n" in said.read_text().splitlines(keepends=True)


DISPATCHER = """
class Box {
    public array $makers = [];
    public function __call(string $name, array $of): mixed { return ($this->makers[$name])(...$of); }
    public function get(string $name): mixed { return $this->makers[$name](); }
}
"""


@pytest.mark.parametrize(
    ("before", "looks"),
    [
        pytest.param("$box = new Box(); $box->makers['lang'] = fn () => $_COOKIE['lang'] ?? 'en'; $lang = $box->get('lang');", r"$_COOKIE", id="container"),
        pytest.param("$box = new Box(); $box->makers['lang'] = function () { return $_COOKIE['lang'] ?? 'en'; }; $box->lang();", r"$_COOKIE", id="by a name that is none"),
        pytest.param("$f = ['inside' => fn () => !isset($_SERVER['HTTP_X_FORWARDED_FOR'])]; $inside = $f['inside']();", "HTTP_X_FORWARDED_FOR", id="in an array"),
        pytest.param("$f = fn () => $_GET['a'] ?? 1; (clone $f)->__invoke();", "$_GET", id="invoked"),
        pytest.param("spl_autoload_register(function ($class) { $lang = $_COOKIE['lang'] ?? 'en'; }); class_exists('Nowhere');", "$_COOKIE", id="autoloader"),
        pytest.param("iterator_count(new CallbackFilterIterator(new ArrayIterator([1]), fn () => $_GET['a'] ?? true));", "$_GET", id="filter"),
        pytest.param("$app->group('/admin', function () use ($app) { if (($_SERVER['REMOTE_ADDR'] ?? '127.0.0.1') === '127.0.0.1') { $app->get('/panel', fn () => 'PANEL'); } });", "REMOTE_ADDR", id="group of routes"),
        pytest.param("trait Lang { public function boot(): void { $lang = $_COOKIE['lang'] ?? 'en'; } } class Site { use Lang { boot as bootLang; } } (new Site())->bootLang();", "$_COOKIE", id="alias of a trait"),
        pytest.param("$has = filter_has_var(INPUT_GET, 'lang');", "filter_has_var", id="whether there is one"),
        pytest.param("$all = getenv();", "all of it", id="whole environment"),
        pytest.param("$closed = false; include __DIR__.'/../closes.php'; if ($closed) { exit('closed'); }", "exit", id="variable set by a file"),
        pytest.param("$closed = false; [$closed] = [is_file('closed')]; if ($closed) { exit('closed'); }", "exit", id="variable of a list"),
        pytest.param("$closed = false; $other = &$closed; $other = is_file('closed'); if ($closed) { exit('closed'); }", "exit", id="variable by another name"),
        pytest.param("$closed = 0; preg_match('/a/', 'b', $closed); if ($closed) { exit('closed'); }", "exit", id="variable that a function sets"),
        pytest.param("$closed = false; foreach ([is_file('closed')] as $closed) { } if ($closed) { exit('closed'); }", "exit", id="variable of a loop"),
        pytest.param("$closed = false; $GLOBALS['closed'] = is_file('closed'); if ($closed) { exit('closed'); }", "exit", id="variable by $GLOBALS"),
        pytest.param("$closed = ''; $GLOBALS['closed'] .= is_file('closed'); if ($closed) { exit('closed'); }", "exit", id="variable appended to by $GLOBALS"),
        pytest.param("$closed = null; $GLOBALS['closed'] ??= is_file('closed'); if ($closed) { exit('closed'); }", "exit", id="variable set by $GLOBALS if it is null"),
        pytest.param("$closed = 0; is_file('closed') && ++$GLOBALS['closed']; if ($closed) { exit('closed'); }", "exit", id="variable counted by $GLOBALS"),
        pytest.param("$closed = false; extract(['closed' => is_file('closed')]); if ($closed) { exit('closed'); }", "exit", id="extracted variable"),
        pytest.param("$closed = 0; is_file('closed') && $closed++; if ($closed) { exit('closed'); }", "exit", id="variable that is counted"),
        pytest.param("$closed = false; (function () use (&$closed) { $closed = is_file('closed'); })(); if ($closed) { exit('closed'); }", "exit", id="variable that a closure uses"),
    ],
)  # fmt: skip
def test_what_others_call_before_run_and_what_is_changed_unseen(site: Site, before: str, looks: str) -> None:
    """Faults found by attack on 2026-11-27: a decision that one visitor should have was made once, for all."""
    (site.root / "closes.php").write_text("<?php $closed = is_file('closed');")
    anchor = "$app->get('/', f" if "$app" in before else "$counter ="
    change(site.docroot / "index.php", anchor, f"{DISPATCHER}{before}\n{anchor}")
    mode, log = recognised(site)
    assert mode == "classic" and looks in log, log


def test_a_closure_that_says_that_it_runs_goes_on_as_it_was(site: Site) -> None:
    """Requests call what the boot kept."""
    change(
        site.docroot / "index.php",
        "$app->get('/', f",
        "$by_name = fn (string $name): string => $name.' by '.($_GET['by'] ?? 'nobody');\n"
        "$all = function (int ...$n) { foreach ($n as $one) { yield $one => $_GET['by'] ?? 'nobody'; } };\n"
        "$app->get('/said/{name}', function ($request, $response, array $of) use ($by_name, $all) {\n"
        "    return $response->write($by_name($of['name']).' '.json_encode(iterator_to_array($all(1, 2))));\n});\n$app->get('/', f",
    )
    with Hayate(site.root, workers=1, ini=site.ini, user=USER) as server:
        for by in ("ada", "grace"):
            assert Browser(server.url).get(f"/said/x?by={by}").text == f'x by {by} {{"1":"{by}","2":"{by}"}}'
        assert server.status()["apps"][0]["mode"] == "worker"


@pytest.mark.parametrize("ini", [{"opcache.enable": "0"}, {"opcache.file_cache_only": "1", "opcache.file_cache": "DIRECTORY"}], ids=["off", "in files only"])
def test_it_is_recognised_without_opcache(site: Site, tmp_path: pathlib.Path, ini: dict[str, str]) -> None:
    """Fault found by attack on 2026-11-27: the host ended with a segmentation fault."""
    tmp_path.chmod(0o777)
    with Hayate(site.root, workers=1, ini={**site.ini, **{key: value.replace("DIRECTORY", str(tmp_path)) for key, value in ini.items()}}, user=USER) as server:
        assert Browser(server.url).get("/people/ada").text == "ada at /people/ada?"
        assert server.status()["apps"][0]["mode"] == "worker"


def test_what_opcache_keeps_in_files_is_looked_at_and_of_use_to_others(site: Site, tmp_path: pathlib.Path) -> None:
    """Fault found by attack on 2026-11-27: a second start found nothing to look into, and other programs a function that they do not have."""
    tmp_path.chmod(0o777)
    (site.root / "by.php").write_text("<?php return ['by' => function () { return $_GET['by'] ?? 'nobody'; }];")
    change(site.docroot / "index.php", "$app->get('/', f", "$made = require __DIR__.'/../by.php';\n$by = $made['by']();\n$app->get('/', f")
    for path in (site.root / "by.php", site.docroot / "index.php"):
        os.utime(path, (time.time() - 60, time.time() - 60))
    cache = {"opcache.file_cache": str(tmp_path), "opcache.enable_cli": "1"}
    for _ in range(2):
        with Hayate(site.root, workers=1, ini={**site.ini, **cache}, user=USER) as server:
            assert Browser(server.url).get("/people/ada").status == 200
            (app,) = server.status()["apps"]
            assert app["mode"] == "classic" and "looks at the request" in app["fallback"]["why"]
    settings = [word for key, value in {**cache, "opcache.file_cache_only": "1"}.items() for word in ("-d", f"{key}={value}")]
    ended = subprocess.run([f"php{PHP_VERSION}", *settings, "-r", f"echo (require '{site.root}/by.php')['by']();"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "nobody"), ended


def test_a_reload_to_what_runs_in_classic_mode_costs_no_request(site: Site) -> None:
    """Fault found by attack on 2026-11-27: what had proved unfit was sent requests for a moment."""
    statuses: list[int] = []
    ended = threading.Event()

    def visit(url: str) -> None:
        with requests.Session() as session:
            while not ended.is_set():
                statuses.append(session.get(f"{url}/people/ada").status_code)

    with Hayate(site.root, workers=2, ini=site.ini, user=USER) as server, concurrent.futures.ThreadPoolExecutor(6) as visitors:
        assert server.status()["apps"][0]["mode"] == "worker"
        try:
            visits = [visitors.submit(visit, server.url) for _ in range(6)]
            change(site.docroot / "index.php", "$app->get('/', f", "$by = $_GET['by'] ?? 'nobody';\n$app->get('/', f")
            for _ in range(4):
                assert server.reload().returncode == 0
                assert server.status()["apps"][0]["mode"] == "classic"
                before = len(statuses)
                assert wait_until(lambda before=before: len(statuses) > before + 10)
        finally:
            ended.set()
        for done in visits:
            done.result()
    assert set(statuses) == {200}


def test_a_file_that_php_includes_before_each_request(site: Site) -> None:
    wall = site.root / "vendor/wall.php"
    wall.write_text("<?php if (($_GET['key'] ?? '') !== 'open') { http_response_code(403); exit('closed'); }")
    with Hayate(site.root, workers=1, ini={**site.ini, "auto_prepend_file": str(wall)}, user=USER) as server:
        assert Browser(server.url).get("/people/ada").text == "closed"
        assert Browser(server.url).get("/people/ada?key=open").text == "ada at /people/ada?key=open"
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and "auto_prepend_file" in app["fallback"]["why"]


@pytest.mark.parametrize("name", [".user.ini", "shop.ini"])
def test_a_file_of_settings_beside_the_front_controller(site: Site, name: str) -> None:
    """By whatever name PHP reads it: it may have a file included before each request."""
    (site.docroot / name).write_text("auto_prepend_file = wall.php\n")
    (site.docroot / "wall.php").write_text("<?php if (($_GET['key'] ?? '') !== 'open') { exit('closed'); }")
    with Hayate(site.root, workers=1, ini={**site.ini, "user_ini.filename": name}, user=USER) as server:
        assert Browser(server.url).get("/people/ada").text == "closed"
        assert Browser(server.url).get("/people/ada?key=open").text == "ada at /people/ada?key=open"
        app = server.status()["apps"][0]
        assert app["mode"] == "classic" and (name == ".user.ini" or "user_ini.filename" in app["fallback"]["why"])
    with Hayate(site.root, workers=1, ini={**site.ini, "user_ini.filename": "other.ini"}, user=USER) as server:
        assert Browser(server.url).get("/people/ada").text == "ada at /people/ada?"
        assert name == ".user.ini" or server.status()["apps"][0]["mode"] == "worker"
