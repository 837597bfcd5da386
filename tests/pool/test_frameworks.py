"""Symfony and Laravel projects without a worker script: recognised, booted by Hayate's own, or left to classic mode."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable

import pytest
import requests

from lib.servers import Hayate, free_port, hayate_binary

from . import frameworks

PROJECTS: dict[str, Callable[[pathlib.Path], pathlib.Path]] = {
    "symfony with runtime": lambda directory: frameworks.symfony(directory, runtime=True),
    "symfony without runtime": lambda directory: frameworks.symfony(directory, runtime=False),
    "laravel": frameworks.laravel,
}


@pytest.fixture(params=PROJECTS)
def project(request, tmp_path) -> pathlib.Path:
    tmp_path.chmod(0o755)
    return PROJECTS[request.param](tmp_path)


def check(root: pathlib.Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [hayate_binary(), "check", root, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def get(server: Hayate, path: str, **more) -> requests.Response:
    return requests.get(server.url + path, timeout=60, **more)


def test_check_says_what_was_recognised_and_how_to_opt_out(project) -> None:
    done = check(project)
    assert done.returncode == 0, done.stderr
    assert "mode        worker, recognised" in done.stdout and "/boot/" in done.stdout
    # Debian 12 has Symfony 5.4 and Laravel 8, Debian 13 has 6.4 and 10.
    assert re.search(r"recognised (Symfony (5|6)\.4\.\d+|Laravel (8|10)\.\d+\.\d+)", done.stdout), done.stdout
    assert "composer.json requires" in done.stdout and "--mode classic" in done.stdout
    assert "rewind      on" in done.stdout and "warm-up     / / /" in done.stdout
    assert "as localhost: " in done.stdout and "`hosts`" in done.stdout
    assert "mode        classic" in check(project, "--mode", "classic").stdout


def test_boot_scripts_that_were_not_installed_are_missed(tmp_path) -> None:
    """The server looks for them where it lies itself, never in the source that it was built from."""
    tmp_path.chmod(0o755)
    project = frameworks.symfony(tmp_path, runtime=True)
    alone = tmp_path / "bin"
    alone.mkdir()
    for program in [hayate_binary(), *hayate_binary().parent.glob("hayate-php*")]:
        shutil.copy(program, alone)
    command = [alone / "hayate", "check", project, "--mode", "worker"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and f"is neither in {alone}/boot nor in" in done.stderr, done.stdout + done.stderr


def test_debug_mode_stays_classic(project) -> None:
    (project / ".env").write_text((project / ".env").read_text() + "APP_DEBUG=1\n")
    said = check(project).stdout
    assert "mode        classic" in said and "debug mode (APP_DEBUG is 1)" in said


def test_a_front_controller_of_its_own_kind_stays_classic(project) -> None:
    front = project / "public/index.php"
    front.write_text(front.read_text().replace("<?php", "<?php\nif ($_GET) { exit('own'); }\n", 1))
    said = check(project).stdout
    assert "mode        classic" in said and "its public/index.php" in said
    refused = check(project, "--mode", "worker")
    assert refused.returncode == 2 and "worker = " in refused.stderr


def test_a_composer_json_that_cannot_be_read_is_said(project) -> None:
    """And is no framework: by `hayate check`, in the log, after a reload; composer.lock costs the version."""
    composer, lock = project / "composer.json", project / "composer.lock"
    good = composer.read_text()
    lock.write_text("<<<<<<< HEAD")
    said = check(project).stdout
    assert "mode        worker, recognised" in said and f"warning     {lock} is no JSON: expected value at line 1" in said, said
    lock.unlink()
    composer.write_text(good.replace("{", "{,", 1))
    why = f"{composer} is no JSON: key must be a string at line 1 column 2"
    said = check(project).stdout
    assert "mode        classic" in said and f"warning     {why}" in said and "composer validate" in said, said
    with Hayate(project, workers=1) as server:
        assert server.logged(why) and server.status()["apps"][0]["mode"] == "classic"
        composer.write_text(good)
        assert server.reload().returncode == 0
        assert server.status()["apps"][0]["mode"] == "worker"
        composer.write_text(good.replace("{", "{;", 1))
        assert server.reload().returncode == 0
        assert server.log().count("composer.json is no JSON") == 2, server.log_tail()


def test_keeping_state_is_refused(project) -> None:
    done = check(project, "--mode", "worker", "--rewind", "off")
    assert done.returncode == 2 and "relies on rewinding" in done.stderr


@pytest.fixture(params=["classic", "booted"])
def served(request, project):
    """The project in classic mode; and without a flag, booted by Hayate's script and rewound. No worker is replaced."""
    flags = ["--mode", "classic"] if request.param == "classic" else []
    with Hayate(project, args=flags, workers=1) as server:
        yield server
        (app,) = server.status()["apps"]
        assert app["mode"] == ("classic" if flags else "worker") and app["fallback"] is None
        assert app["restarts"] == {} and app["boot"] == "shared", server.log_tail()


def test_answers_as_classic_mode_does(served) -> None:
    answers = [get(served, f"/?n={n}").json() for n in range(3)]
    assert len({answer["pid"] for answer in answers}) == 1
    for n, answer in enumerate(answers):
        assert answer["env"] in ("prod", "production") and not answer["debug"]
        assert answer["greeting"] == answer["in_server"] == "hello from .env"
        assert answer["project"] is False, "what Hayate tells its script is none of the application's business"
        assert answer["query"] == {"n": str(n)}
        assert (answer["static"], answer["property"]) == (1, 1), "as under php-fpm: no warm-up request has counted"
        assert answer["rows"] == 0 and answer.get("event", True), "a database that the warm-up has used, and a model"
        assert answer.get("first", str(n)) == str(n), "a service whose constructor looked for the request"
        assert answer["url"] == served.url + "/visit"
    tokens = {answer.get("token", n) for n, answer in enumerate(answers)}
    assert len(tokens) == 3, "each visitor has a token of its own"


def test_sessions_belong_to_their_visitor(served) -> None:
    visitor = requests.Session()
    assert [visitor.get(served.url + "/visit", timeout=60).text for _ in range(3)] == ["visit 1", "visit 2", "visit 3"]
    assert get(served, "/visit").text == "visit 1"


def test_exit_and_failures_end_the_request_only(served) -> None:
    left = get(served, "/exit")
    assert (left.status_code, left.text) == (200, "left early")
    failed = get(served, "/fail")
    assert failed.status_code == 500 and "a failure of the tests" not in failed.text
    assert served.logged("a failure of the tests")
    exhausted = get(served, "/exhaust")
    assert exhausted.status_code == 500 and "exhaust" not in exhausted.text
    if served.root.name == "laravel" or (served.root / "vendor/autoload_runtime.php").exists():
        assert "Server Error" in exhausted.text, "where the framework shows fatal errors"
    assert served.logged("Allowed memory size")
    assert get(served, "/nowhere").status_code == 404
    assert get(served, "/").json()["static"] == 1


def test_a_boot_that_fails_says_why(project) -> None:
    broken = project / ("config/app.php" if project.name == "laravel" else "config/services.php")
    text = broken.read_text()
    broken.write_text(text.replace("return", "throw new LogicException('misconfigured by the tests');\nreturn", 1))
    flags = ["--listen", f"127.0.0.1:{free_port()}", "--control", project / "control"]
    command = [hayate_binary(), "serve", project, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "did not boot" in done.stderr and "misconfigured by the tests" in done.stderr


def test_sessions_in_redis_leave_no_connection_in_the_snapshot(tmp_path, redis) -> None:
    tmp_path.chmod(0o755)
    root = frameworks.laravel(tmp_path)
    app, session, database = (root / f"config/{name}.php" for name in ("app", "session", "database"))
    provider = "Illuminate\\Redis\\RedisServiceProvider::class, Illuminate\\Cache\\CacheServiceProvider::class"
    app.write_text(app.read_text().replace("'providers' => [", f"'providers' => [{provider},"))
    session.write_text(session.read_text().replace("'file'", "'redis'", 1))
    address = f"['host' => '127.0.0.1', 'port' => {redis.port}]"
    connection = f"'redis' => ['client' => 'phpredis', 'default' => {address}],"
    database.write_text(database.read_text().replace("return [", f"return [{connection}"))
    stores = "['redis' => ['driver' => 'redis', 'connection' => 'default']]"
    cache = f"<?php return ['default' => 'redis', 'stores' => {stores}, 'prefix' => 'x'];"
    (root / "config/cache.php").write_text(cache)
    for connections, kept in (("request", 0), ("warm", 1)):
        with Hayate(root, workers=1, args=["--connections", connections]) as server:
            visitor = requests.Session()
            visits = [visitor.get(server.url + "/visit", timeout=60).text for _ in range(3)]
            assert visits == ["visit 1", "visit 2", "visit 3"]
            (app,) = server.status()["apps"]
            assert (app["boot"], app["cold_boot"], app["restarts"]) == ("shared", None, {}), server.log_tail()
            assert app["rewind"]["warm"] == (kept if app["rewind"]["tracking"] == "uffd" else 0)


#: What a provider's boot() of Laravel may hold, and what of it asks for the request.
IN_PROVIDERS = {
    "helper": ("config(['app.url' => request()->getSchemeAndHttpHost()]);", "request"),
    "argument": ("", "argument Illuminate"),
    "superglobal": ("if (($_SERVER['HTTPS'] ?? '') === 'on') { \\URL::forceScheme('https'); }", r"\$_SERVER HTTPS"),
    "container": ("$lang = $this->app['request']->cookie('lang');", "'request'"),
    "property": ("$lang = $this->app->request->cookie('lang');", "request"),
    "made": ("$lang = $this->app->make(\\Illuminate\\Http\\Request::class)->cookie('lang');", "make"),
    "facade": ("$lang = \\Illuminate\\Support\\Facades\\Request::cookie('lang');", "cookie"),
    "visitor": ("if (isset($_GET['as'])) { auth()->loginUsingId(1); }", r"\$_GET"),
    "session": ("$lang = session('lang');", "session"),
    "exit": ("if (is_file(base_path('closed'))) { exit('closed'); }", "exit"),
    "booted": ("$this->app->booted(fn () => config(['app.debug' => request()->ip() === '192.0.2.1']));", "request"),
    "singleton": ("$this->app->singleton('inside', fn ($app) => $app['request']->ip() === '192.0.2.1'); $this->app->make('inside');", "request"),
    "group": ("\\Illuminate\\Support\\Facades\\Route::group([], function () { if (isset($_COOKIE['beta'])) { throw new \\Exception('never'); } });", r"\$_COOKIE"),
    "cookie": ("$lang = \\Illuminate\\Support\\Facades\\Cookie::get('lang');", "Cookie"),
    "url": ("$home = url('/');", "url"),
    "alias": ("$host = \\App\\Asked::getHost();", r"getHost\(\)"),
    "callable": ("$host = call_user_func('request')->getHost();", r"getHost\(\)"),
    "address": ("$home = $this->app['url']->to('/');", r"getScheme\(\)"),
    "page": ("$this->app->register(\\Illuminate\\Pagination\\PaginationServiceProvider::class); $path = \\Illuminate\\Pagination\\Paginator::resolveCurrentPath();", r"url\(\)"),
    "body": ("$body = call_user_func('request')->getContent();", r"getContent\(\)"),
    "environment": ("foreach (['HTTP_HOST'] as $name) { $host = env($name); }", "environment variable HTTP_HOST"),
    "constant": ("$host = getenv(\\App\\Asked::NAME);", "environment variable HTTP_HOST"),
    "Env": ("$host = \\Illuminate\\Support\\Env::get('HTTP_HOST');", "environment variable HTTP_HOST"),
    "proxies": ("\\Illuminate\\Http\\Request::setTrustedProxies(['REMOTE_ADDR'], 1);", "REMOTE_ADDR"),
    "globals": ("foreach (['_SERVER'] as $name) { $host = $GLOBALS[$name]['HTTP_HOST'] ?? ''; }", "GLOBALS"),
    "abort": ("if (is_file(base_path('closed'))) { abort(503); }", "abort"),
    "abort_if": ("abort_if(is_file(base_path('closed')), 503);", "abort_if"),
}
HARMLESS = """
        $this->app->extend('translator', function ($t) { $t->setLocale(request('lang', 'en')); return $t; });
        $this->app->resolving('encrypter', fn () => config(['app.url' => request()->getHost()]));
        \\Illuminate\\Support\\Facades\\Request::macro('lang', fn () => request()->cookie('lang'));
        \\Illuminate\\Support\\Facades\\View::composer('*', function ($view) { $view->with('user', auth()->user()); });
        $this->app->bind('lang', fn ($app) => $app['request']->cookie('lang'));
        $this->app->rebinding('request', fn ($app, $request) => $request->getHost());
        \\Illuminate\\Support\\Facades\\URL::forceScheme('https');
        \\Illuminate\\Pagination\\Paginator::useBootstrap();
        $this->app->register(\\Illuminate\\Auth\\AuthServiceProvider::class);
        $this->app->register(\\Illuminate\\Pagination\\PaginationServiceProvider::class);
        \\Illuminate\\Support\\Facades\\Gate::define('edit', fn ($user) => request()->ip() === '192.0.2.1');
        \\Illuminate\\Support\\Facades\\Auth::viaRequest('token', fn ($request) => $request->bearerToken());
        \\Illuminate\\Http\\Request::setTrustedProxies(['192.0.2.1'], 1);
        foreach (['HTTPS_PROXY', 'SSL_CERT_FILE', 'NO_PROXY'] as $name) { $proxy = getenv($name); }
        foreach (['one', 'two'] as $name) { $GLOBALS[$name] = 1; }
        $drivers = array_map(fn ($one) => env('DB_'.$one), ['HOST', 'PORT']);
        if ($this->app->environment('local')) { throw new \\LogicException('not here'); }
        $year = date('Y');
        if (PHP_SAPI === 'cli') { exit(1); }
"""


@pytest.mark.parametrize("kind", IN_PROVIDERS)
def test_a_provider_that_asks_for_the_request_has_laravel_served_in_classic_mode(tmp_path, kind) -> None:
    """It boots once, without a request: what it found would hold for all visitors."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    statements, says = IN_PROVIDERS[kind]
    frameworks.provider(project, statements, "\\Illuminate\\Http\\Request $request" if kind == "argument" else "")
    asked = "<?php\nnamespace App;\nclass Asked extends \\Illuminate\\Support\\Facades\\Request { public const NAME = 'HTTP_HOST'; }\n"
    (project / "app/Asked.php").write_text(asked)
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and app["fallback"]["to"] == "classic", server.log()
        assert re.search(rf"AppServiceProvider.php:\d+ .*{says}", app["fallback"]["why"]), app["fallback"]["why"]
        assert "To avoid it: " in app["fallback"]["why"]


def test_a_provider_that_sets_up_what_asks_for_the_request_later_is_booted_once(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    frameworks.provider(project, HARMLESS)
    routes = project / "routes/web.php"
    routes.write_text(routes.read_text() + "\nif (is_file(__DIR__.'/more.php')) {\n    require __DIR__.'/more.php';\n}\n")
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        assert server.status()["apps"][0]["mode"] == "worker", server.log()


def test_a_package_that_asks_for_the_request_has_laravel_served_in_classic_mode(tmp_path) -> None:
    """What is looked into by names is the project's own code; a request notes whoever asks it."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    package = project / "vendor/acme/Tenants.php"
    package.parent.mkdir()
    package.write_text("<?php\nnamespace Acme;\nfinal class Tenants\n{\n    public static function host(): string\n    {\n        return request()->getHost();\n    }\n}\n")
    frameworks.provider(project, "require_once base_path('vendor/acme/Tenants.php'); $host = \\Acme\\Tenants::host();")
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        why = server.status()["apps"][0]["fallback"]["why"]
        assert re.search(r"vendor/acme/Tenants.php:7 looks at the request \(getHost\(\)\)", why), why


def test_code_that_the_boot_leaves_in_files_of_opcache_runs_elsewhere(tmp_path) -> None:
    """Functions of Hayate's own are not known there: in classic mode, php-fpm or a console."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    cache = tmp_path / "opcache"
    cache.mkdir()
    for mode in ("worker", "classic"):
        with Hayate(project, workers=1, args=["--ini", f"opcache.file_cache={cache}", *(["--mode", "classic"] if mode == "classic" else [])]) as server:
            assert get(server, "/visit").text == "visit 1", server.log()
            assert server.status()["apps"][0]["mode"] == mode, server.log()
    assert list(cache.rglob("*.bin"))


OF_A_VISITOR = [
    ("$_COOKIE['zone'] ?? 'UTC'", r"\$_COOKIE zone"),
    ("isset($_SERVER['HTTP_X_ZONE']) ? 1 : 0", r"\$_SERVER HTTP_X_ZONE"),
    ("$GLOBALS['_COOKIE']['zone'] ?? 'UTC'", r"\$_COOKIE zone"),
    *((f"$_SERVER['{key}'] ?? ''", rf"\$_SERVER {key}") for key in ("REQUEST_SCHEME", "SERVER_PORT", "REQUEST_METHOD", "CONTENT_TYPE", "QUERY_STRING", "PHP_SELF")),
    ("(function (string $name) { return $_SERVER[$name] ?? ''; })('HTTP_HOST')", r"\$_SERVER HTTP_HOST"),
    ("array_key_exists('HTTPS', $_SERVER)", r"\$_SERVER HTTPS"),
    ("(function () { ['HTTP_HOST' => $host] = $_SERVER; return $host; })()", r"\$_SERVER HTTP_HOST"),
    ("getallheaders()", r"getallheaders\(\)"),
    ("call_user_func('apache_'.'request_headers')", r"getallheaders\(\)"),
    ("filter_input(INPUT_COOKIE, 'zone')", r"filter_input\(\)"),
    ("file_get_contents('php://input')", "php://input"),
]


def with_zones(directory: pathlib.Path, framework: str, codes: list[str]) -> pathlib.Path:
    """A project whose package would read that, each in a function of its own: the first in zone(), on line 7."""
    directory.chmod(0o755)
    project = frameworks.laravel(directory) if framework == "laravel" else frameworks.symfony(directory, runtime=True)
    package = project / "vendor/acme/Zones.php"
    package.parent.mkdir()
    functions = "".join(f"    public static function zone{n or ''}()\n    {{\n        return {code};\n    }}\n" for n, code in enumerate(codes))
    package.write_text(f"<?php\nnamespace Acme;\nfinal class Zones\n{{\n{functions}}}\n")
    autoload = project / "vendor/autoload.php"
    autoload.write_text(autoload.read_text().replace("<?php", "<?php\nrequire_once __DIR__.'/acme/Zones.php';", 1))
    return project


@pytest.mark.parametrize("framework", ["laravel", "symfony"])
def test_a_package_that_could_read_what_a_visitor_sends_and_does_not_changes_nothing(tmp_path, framework) -> None:
    project = with_zones(tmp_path, framework, [code for code, _ in OF_A_VISITOR])
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        assert server.status()["apps"][0]["mode"] == "worker", server.log()


@pytest.mark.parametrize("framework", ["laravel", "symfony"])
@pytest.mark.parametrize(("code", "says"), OF_A_VISITOR)
def test_a_package_that_reads_what_a_visitor_sends_has_it_served_in_classic_mode(tmp_path, framework, code, says) -> None:
    project = with_zones(tmp_path, framework, [code])
    if framework == "laravel":
        frameworks.provider(project, "$zone = \\Acme\\Zones::zone();")
    else:
        in_kernel(project, "\\Acme\\Zones::zone();")
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and re.search(rf"vendor/acme/Zones.php:7 looks at the request \({says}\)", app["fallback"]["why"]), app["fallback"]


@pytest.mark.parametrize(
    ("code", "setting", "says"),
    [
        ("$_SERVER['argv'][0] ?? ''", "register_argc_argv", r"\$_SERVER argv"),
        ("$_ENV['HTTP_HOST'] ?? ''", "variables_order", r"\$_ENV HTTP_HOST"),
        ("array_filter($_ENV)", "variables_order", r"\$_ENV"),
    ],
)
def test_what_php_makes_of_a_request_where_its_settings_say_so(tmp_path, code, setting, says) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    frameworks.provider(project, f"$found = {code};")
    for value, mode in (("0", "worker"), ("1", "classic")) if setting == "register_argc_argv" else (("GPCS", "worker"), ("EGPCS", "classic")):
        with Hayate(project, workers=1, args=["--ini", f"{setting}={value}"]) as server:
            assert get(server, "/").status_code == 200
            (app,) = server.status()["apps"]
            assert app["mode"] == mode, server.log()
            assert mode == "worker" or re.search(rf"looks at the request \({says}\)", app["fallback"]["why"]), app["fallback"]


#: How the boot of a project fails for want of a request: what does it, and what the log says of it.
WANTS = {
    "own": ("$host = strtolower($_SERVER['HTTP_HOST']);", r"(AppServiceProvider|Kernel).php:\d+ looks at the request \(\$_SERVER HTTP_HOST\)"),
    "package": ("$host = \\Acme\\Host::get();", r"Host.php:7 looks at the request \(\$_SERVER HTTP_HOST\)"),
    "unseen": ("$host = \\Acme\\Host::by('HTTP_HOST');", r"\(Uncaught .*LogicException: no host in .*Host.php:12\): with one it does"),
    "environment": ("env('HTTP_HOST') ?? throw new \\LogicException('no host');", r"environment .*HTTP_HOST"),
    "exit": ("\\Acme\\Host::leave('HTTP_HOST');", "does not boot: with one it does"),
}
HOST = """<?php
namespace Acme;
final class Host
{
    public static function get(): string
    {
        return "{$_SERVER['HTTP_HOST']}" ?: throw new \\LogicException('no host');
    }
    public static function by(string $name): string
    {
        $all = $_SERVER;
        return $all[$name] ?? throw new \\LogicException('no host');
    }
    public static function leave(string $name): void
    {
        $all = $_SERVER;
        isset($all[$name]) || exit(1);
    }
}
"""


def in_kernel(project: pathlib.Path, statements: str) -> None:
    kernel = project / "src/Kernel.php"
    text = kernel.read_text()
    end = text.rindex("}")
    kernel.write_text(text[:end] + f"    public function boot(): void\n    {{\n        {statements}\n        parent::boot();\n    }}\n" + text[end:])


@pytest.mark.parametrize(("framework", "kind"), [(framework, kind) for framework in ("laravel", "symfony") for kind in WANTS if (framework, kind) != ("symfony", "environment")])
def test_a_project_that_does_not_boot_without_a_request_is_served_in_classic_mode(tmp_path, framework, kind) -> None:
    tmp_path.chmod(0o755)
    statements, says = WANTS[kind]
    project = frameworks.laravel(tmp_path) if framework == "laravel" else frameworks.symfony(tmp_path, runtime=True)
    package = project / "vendor/acme/Host.php"
    package.parent.mkdir()
    package.write_text(HOST)
    autoload = project / "vendor/autoload.php"
    autoload.write_text(autoload.read_text().replace("<?php", "<?php\nrequire_once __DIR__.'/acme/Host.php';", 1))
    with Hayate(project, workers=1) as server:
        assert server.status()["apps"][0]["mode"] == "worker", server.log()
        (frameworks.provider if framework == "laravel" else in_kernel)(project, statements)
        assert server.reload().returncode == 0
        assert get(server, "/").status_code == 200
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and "without a request the application does not boot" in app["fallback"]["why"], app
        assert re.search(says, app["fallback"]["why"]), app["fallback"]


def test_a_runtime_that_the_front_controller_of_symfony_names_is_served_in_classic_mode(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.symfony(tmp_path, runtime=True)
    (project / "src/Runtime.php").write_text("<?php\nnamespace App;\nfinal class Runtime extends \\Symfony\\Component\\Runtime\\SymfonyRuntime\n{\n}\n")
    front = project / "public/index.php"
    front.write_text(front.read_text().replace("<?php", "<?php\n$_SERVER['APP_RUNTIME'] = App\\Runtime::class;", 1))
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and "does not boot" in app["fallback"]["why"], server.log()


@pytest.mark.parametrize(
    "what",
    ["setLocale('de')", "setDefaultLocale('de')", "setMethod('GET')", "setUserResolver(fn () => 1)", "setJson(new \\Symfony\\Component\\HttpFoundation\\ParameterBag([]))", "tenant = 'x'"],
)
def test_what_a_package_sets_of_the_request_is_not_lost(tmp_path, what) -> None:
    """Each request is another one than that of the boot."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    package = project / "vendor/acme/Sets.php"
    package.parent.mkdir()
    package.write_text(f"<?php\nnamespace Acme;\nfinal class Sets\n{{\n    public static function all($app): void\n    {{\n        $app['request']->{what};\n    }}\n}}\n")
    frameworks.provider(project, "require_once base_path('vendor/acme/Sets.php'); \\Acme\\Sets::all($this->app);")
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic", server.log()
        assert f"Sets.php:7 looks at the request ({what.split('(')[0].split(' ')[0]}" in app["fallback"]["why"], app["fallback"]


@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_who_waits_for_a_new_request_of_laravel_hears_of_it_as_in_classic_mode(tmp_path, mode) -> None:
    """Once, behind the global middleware, which knows no visitor yet; what was made as it booted has the request from the beginning."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    statements = """
        \\Illuminate\\Support\\Facades\\URL::forceScheme('https');
        $this->app->rebinding('request', function ($app, $request): void {
            config(['app.heard' => [...config('app.heard', []), $request->headers->get('X-Seen')]]);
        });
        $this->app->make(\\Illuminate\\Contracts\\Http\\Kernel::class)->pushMiddleware(\\App\\Seen::class);
"""
    frameworks.provider(project, statements)
    (project / "app/Seen.php").write_text(
        "<?php\nnamespace App;\nfinal class Seen\n{\n    public function handle($request, $next)\n    {\n"
        "        $request->headers->set('X-Seen', url('/seen').' '.json_encode($request->user()));\n        return $next($request);\n    }\n}\n"
    )
    routes = project / "routes/web.php"
    routes.write_text(routes.read_text() + "\nRoute::get('/heard', fn () => config('app.heard'));\n")
    with Hayate(project, workers=1, args=["--mode", mode]) as server:
        for host in ("one.example", "two.example"):
            assert get(server, "/heard", headers={"Host": host}).json() == [f"https://{host}/seen null"]
        assert server.status()["apps"][0]["mode"] == mode, server.log()


def test_a_service_that_keeps_the_request_of_the_boot_has_laravel_served_in_classic_mode(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    (project / "app/Tenant.php").write_text("<?php\nnamespace App;\nuse Illuminate\\Http\\Request as Asked;\nfinal class Tenant\n{\n    public function __construct(public Asked $from)\n    {\n    }\n}\n")
    frameworks.provider(project, "$this->app->singleton(\\App\\Tenant::class); $this->app->make(\\App\\Tenant::class);")
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        why = server.status()["apps"][0]["fallback"]["why"]
        assert "App\\Tenant keeps the request" in why, why


def test_laravel_boots_without_a_request_after_a_warmup_request_too(tmp_path) -> None:
    """What a package takes out of all that PHP has nobody sees: then not what a warm-up request has, for all visitors."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    package = project / "vendor/acme/found.php"
    package.parent.mkdir()
    package.write_text("<?php\n$all = $_SERVER;\nreturn [$all['HTTP_HOST'] ?? null, count($_GET), count($_COOKIE)];\n")
    frameworks.provider(project, "config(['app.found' => require base_path('vendor/acme/found.php')]);")
    routes = project / "routes/web.php"
    routes.write_text(routes.read_text() + "\nRoute::get('/found', fn () => config('app.found'));\n")
    with Hayate(project, workers=1, args=["--warmup", "/?lang=de"]) as server:
        assert get(server, "/found").json() == [None, 0, 0]
        assert server.status()["apps"][0]["mode"] == "worker", server.log()


def test_what_laravel_makes_of_its_configuration_is_made_in_the_request(tmp_path) -> None:
    """A middleware may change the configuration before: for a tenant by his host, say."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    routes = project / "routes/web.php"
    changed = "['app.locale' => 'fr', 'app.asset_url' => 'https://cdn.example']"
    made = "[app('translator')->getLocale(), app('url')->asset('a.css')]"
    routes.write_text(routes.read_text() + f"\nRoute::get('/made', function () {{ config({changed}); return {made}; }});\n")
    with Hayate(project, workers=1) as server:
        for _ in range(2):
            assert get(server, "/made").json() == ["fr", "https://cdn.example/a.css"]
        assert server.status()["apps"][0]["mode"] == "worker", server.log()


def test_what_dotenv_says_of_a_request_is_not_the_visitors(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    env = project / ".env"
    env.write_text(env.read_text() + "\nHTTPS=on\nHTTP_X_TENANT=of-env\n")
    routes = project / "routes/web.php"
    said = "[request()->isSecure(), request()->header('x-tenant'), env('HTTPS'), getenv('HTTPS'), env('HTTP_X_TENANT'), getenv('HTTP_X_TENANT')]"
    routes.write_text(routes.read_text() + f"\nRoute::get('/said', fn () => {said});\n")
    answers = {}
    for mode in ("classic", "worker"):
        with Hayate(project, workers=1, args=["--mode", "classic"] if mode == "classic" else []) as server:
            sent = [None, {"X-Tenant": "sent"}, None]
            answers[mode] = [requests.get(server.url + "/said", headers=headers, timeout=60).json() for headers in sent]
            assert server.status()["apps"][0]["mode"] == mode, server.log()
    assert answers["worker"] == answers["classic"]
    assert answers["classic"][0] == [False, None, "on", "on", "of-env", "of-env"] and answers["classic"][1][1] == "sent"


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("routes/web.php", "Route::get('/', ", "header('Access-Control-Allow-Origin: *');\nRoute::get('/', ", "header"),
        ("config/app.php", "return [", "$host = $_SERVER['HTTP_HOST'] ?? 'none';\nreturn [", "HTTP_HOST"),
    ],
)
def test_a_file_of_laravel_that_asks_for_the_request_has_it_served_in_classic_mode(tmp_path, file, old, new, says) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    text = (project / file).read_text()
    assert old in text
    (project / file).write_text(text.replace(old, new, 1))
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and says in app["fallback"]["why"], server.log()


@pytest.mark.parametrize("runtime", [True, False])
def test_a_kernel_that_asks_for_the_request_has_symfony_served_in_classic_mode(tmp_path, runtime) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.symfony(tmp_path, runtime=runtime)
    kernel = project / "src/Kernel.php"
    text = kernel.read_text()
    end = text.rindex("}")
    boot = "    public function boot(): void\n    {\n        date_default_timezone_set($_COOKIE['zone'] ?? 'UTC');\n        parent::boot();\n    }\n"
    kernel.write_text(text[:end] + boot + text[end:])
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and re.search(r"Kernel.php:\d+ looks at the request \(\$_COOKIE\)", app["fallback"]["why"])


@pytest.mark.parametrize(
    ("before", "within"),
    [
        ("if (is_file(__DIR__.'/../closed')) {\n    readfile(__FILE__);\n    return;\n}\n", ""),
        ("if (is_file(__DIR__.'/../closed')) {\n    return fn () => 1;\n}\n", ""),
        ("", "if (is_file(__DIR__.'/../closed')) {\n        return new Symfony\\Component\\HttpFoundation\\Response('closed');\n    }\n    "),
    ],
)
def test_a_front_controller_of_symfony_that_answers_by_itself_for_a_while_is_served_in_classic_mode(tmp_path, before, within) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.symfony(tmp_path, runtime=True)
    front = project / "public/index.php"
    text = front.read_text()
    assert "require_once" in text and "return new Kernel" in text
    front.write_text(text.replace("require_once", f"{before}require_once", 1).replace("return new Kernel", f"{within}return new Kernel", 1))
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and re.search(r"public/index.php:\d+ answers, or turns", app["fallback"]["why"]), server.log()


def test_a_front_controller_of_symfony_may_set_up_what_development_needs(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.symfony(tmp_path, runtime=True)
    front = project / "public/index.php"
    debug = "if ($context['APP_DEBUG']) {\n        umask(0);\n    }\n    "
    front.write_text(front.read_text().replace("return new Kernel", f"{debug}return new Kernel", 1))
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        assert server.status()["apps"][0]["mode"] == "worker", server.log()


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("Kernel::$of = $context;\n    return new Kernel($context['APP_ENV'], false);", r"public/index.php:\d+ may ask for what a request brings \(\$context for more than a name"),
        ("return new Kernel($context['APP_ENV'], ($context[\"HTTPS\"] ?? '') === 'never');", r"depends on the request \(HTTP\)"),
    ],
)
def test_a_front_controller_of_symfony_runtime_that_looks_at_its_context_is_served_in_classic_mode(tmp_path, body, what) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.symfony(tmp_path, runtime=True)
    front, kernel = project / "public/index.php", project / "src/Kernel.php"
    front.write_text(re.sub(r"return new Kernel\(.*\);", lambda _: body, front.read_text()))
    text = kernel.read_text()
    end = text.rindex("}")
    kernel.write_text(f"{text[:end]}    public static array $of = [];\n{text[end:]}")
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        assert server.status()["apps"][0]["mode"] == "classic"
    said = check(project).stdout
    assert re.search(what, said), said


def test_env_is_read_where_the_front_controller_of_symfony_reads_it(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.symfony(tmp_path, runtime=False)
    front = project / "public/index.php"
    text = front.read_text()
    front.write_text(text.replace("require dirname", "// (new Dotenv())->bootEnv(): systemd has it\nrequire dirname", 1))
    controller = project / "src/Controller/HomeController.php"
    with (project / ".env").open("a") as file:
        file.write("\nNAMED=by-the-file\n")
    asked = controller.read_text()
    assert "'env' =>" in asked
    controller.write_text(asked.replace("'env' =>", "'named' => $_SERVER['NAMED'] ?? null, 'env' =>", 1))
    args = [f"--env={name}" for name in ("APP_ENV=prod", "APP_DEBUG=0", "APP_SECRET=of-the-tests", "GREETING=hello")]
    for wanted in ("by-the-file", None):
        with Hayate(project, workers=1, args=args) as server:
            assert get(server, "/").json()["named"] == wanted
            assert server.status()["apps"][0]["mode"] == "worker", server.log()
        front.write_text(front.read_text().replace("(new Dotenv())->bootEnv(dirname(__DIR__).'/.env');", ""))


@pytest.mark.parametrize(
    ("what", "says"),
    [("wrapper", "returns a .*, and what it asks as it boots is not known"), ("proxies", "trusted_proxies names REMOTE_ADDR")],
)
def test_a_kernel_that_does_not_begin_anew_has_symfony_served_in_classic_mode(tmp_path, what, says) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.symfony(tmp_path, runtime=True)
    front, kernel = project / "public/index.php", project / "src/Kernel.php"
    if what == "wrapper":
        text = re.sub(r"return (new Kernel\(.*\));", r"return new Wrapper(\1);", front.read_text())
        text = text.replace("return function", "require_once __DIR__.'/../wrapper.php';\nreturn function", 1)
        assert "Wrapper" in text and "wrapper.php" in text
        front.write_text(text)
        of = "Symfony\\Component\\HttpFoundation"
        (project / "wrapper.php").write_text(
            "<?php\nfinal class Wrapper implements Symfony\\Component\\HttpKernel\\HttpKernelInterface\n{\n"
            "    public function __construct(private App\\Kernel $kernel) {}\n"
            f"    public function handle({of}\\Request $request, int $type = self::MAIN_REQUEST, bool $catch = true): {of}\\Response\n"
            "    {\n        return $this->kernel->handle($request, $type, $catch);\n    }\n}\n"
        )
    else:
        text = kernel.read_text()
        end = text.rindex("}")
        build = (
            "    protected function build(\\Symfony\\Component\\DependencyInjection\\ContainerBuilder $container): void\n    {\n"
            "        $container->setParameter('kernel.trusted_proxies', '10.0.0.1,REMOTE_ADDR');\n"
            "        $container->setParameter('kernel.trusted_headers', 1);\n    }\n"
        )
        kernel.write_text(text[:end] + build + text[end:])
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and re.search(says, app["fallback"]["why"]), server.log()


#: What a warm-up request leaves in its process, and how another request finds it.
LEAVES = {
    "static property": ("\\App\\Left::$first ??= request()->header('x-a', 'nobody')", "\\App\\Left::$first ?? null"),
    "static variable": ("\\App\\Left::once()", "\\App\\Left::once()"),
    "list": ("\\App\\Left::$all[] = request()->url()", "\\App\\Left::$all"),
    "object": ("\\App\\Left::$of = request()", "get_debug_type(\\App\\Left::$of)"),
    "object that is changed": ("\\App\\Left::$bag['at'] = request()->url()", "(array) \\App\\Left::$bag"),
    "enum case": ("\\App\\Left::$case = \\App\\Side::Right", "\\App\\Left::$case->name"),
    "property that the boot has set": ("\\App\\Left::$set = 'changed'", "\\App\\Left::$set"),
    "constant": ("defined('LEFT_BEHIND') || define('LEFT_BEHIND', request()->header('x-a'))", "defined('LEFT_BEHIND') ? LEFT_BEHIND : null"),
    "default of a parameter": ("defined('LEFT_BEHIND') || define('LEFT_BEHIND', 7); \\App\\Left::given()", "defined('LEFT_BEHIND') || define('LEFT_BEHIND', 8) ? \\App\\Left::given() : null"),
    "class": ("class_exists('Chosen', false) || eval('class Chosen { const OF = \"the warm-up\"; }'); \\App\\Left::chosen()", "(class_exists('Chosen', false) || eval('class Chosen { const OF = \"the visitor\"; }')) ? \\App\\Left::chosen() : \\App\\Left::chosen()"),
    "another name of a class": ("class_alias(\\App\\Side::class, 'Current'); \\App\\Left::current()", "class_alias(\\App\\Left::class, 'Current') ? \\App\\Left::current() : null"),
    "file that is included once": ("require_once base_path('once.php')", "require_once base_path('once.php')"),
    "global": ("$GLOBALS['left'] = ($GLOBALS['left'] ?? 0) + 1", "$GLOBALS['left'] ?? null"),
    "locale": ("setlocale(LC_ALL, 'C.UTF-8')", "setlocale(LC_ALL, 0)"),
    "environment": ("putenv('LEFT=1')", "getenv('LEFT')"),
    "autoloader": ("spl_autoload_register(fn () => false)", "count(spl_autoload_functions())"),
    "switch of a package": ("\\Acme\\Wrap::$with ??= 'data'", "\\Acme\\Wrap::$with"),
    "list of a package": ("\\Acme\\Wrap::$all[] = request()->url()", "\\Acme\\Wrap::$all"),
    "trusted proxies": ("request()->setTrustedProxies(['REMOTE_ADDR'], 2)", "[request()->getHost(), request()->getTrustedProxies()]"),
    "errors of libxml": ("libxml_use_internal_errors(true)", "libxml_use_internal_errors()"),
    "last error of JSON": ("json_decode('{')", "json_last_error()"),
}


@pytest.mark.parametrize("kind", LEAVES)
def test_what_a_warmup_request_leaves_in_the_process_no_visitor_meets(tmp_path, kind) -> None:
    """Found by attack on 2026-11-27: what a page keeps for its own request was everybody's, where that page is warmed up."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    leaves, finds = LEAVES[kind]
    (project / "app/Left.php").write_text(
        "<?php\nnamespace App;\nfinal class Left\n{\n    public static ?string $first = null;\n    public static array $all = [];\n    public static ?object $of = null;\n"
        "    public static string $set = '';\n    public static ?\\ArrayObject $bag = null;\n    public static Side $case = Side::None;\n"
        "    public static function once() { static $once; return $once ??= request()->header('x-a', 'nobody'); }\n"
        "    public static function given($given = LEFT_BEHIND) { return $given; }\n    public static function chosen() { return \\Chosen::OF; }\n    public static function current() { return \\Current::class.' '.(new \\ReflectionClass(\\Current::class))->name.' '.(\\App\\Side::None instanceof \\Current ? 'is' : 'is not'); }\n}\n"
    )
    (project / "app/Side.php").write_text("<?php\nnamespace App;\nenum Side { case None; case Right; }\n")
    (project / "once.php").write_text("<?php\nreturn 'for the first time';\n")
    (project / "vendor/acme").mkdir()
    (project / "vendor/acme/Wrap.php").write_text(
        "<?php\nnamespace Acme;\nfinal class Wrap { public static ?string $with = null; public static array $all = []; }\n"
    )
    autoload = project / "vendor/autoload.php"
    autoload.write_text(autoload.read_text().replace("<?php", "<?php\nrequire_once __DIR__.'/acme/Wrap.php';", 1))
    frameworks.provider(project, "\\App\\Left::$set = 'by the boot'; \\App\\Left::$bag = new \\ArrayObject();")
    routes = project / "routes/web.php"
    routes.write_text(routes.read_text() + f"\nRoute::get('/leaves', function () {{ {leaves}; return 'left'; }});\nRoute::get('/finds', fn () => json_encode({finds}));\n")
    found = {}
    for mode in ("classic", "worker"):
        flags = ["--mode", "classic"] if mode == "classic" else ["--warmup", "/leaves", "--warmup", "/finds"]
        with Hayate(project, workers=1, args=flags) as server:
            headers = [{"X-A": name, "X-Forwarded-Host": f"{name}.example"} for name in ("ada", "grace")]
            found[mode] = [requests.get(server.url + "/finds", headers=one, timeout=60).text for one in headers]
            (app,) = server.status()["apps"]
            assert (app["mode"], app["cold_boot"]) == (mode, None), server.log()
    assert found["worker"] == found["classic"] and "Exception" not in found["classic"][0], found


@pytest.mark.parametrize("kind", ["file", "autoloader"])
def test_what_a_request_decides_as_a_class_is_loaded_is_decided_by_each(tmp_path, kind) -> None:
    """Found by attack on 2026-11-27: classes that a warm-up request had loaded were loaded by name for all visitors, whoever decides what they are."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    chosen = "($_COOKIE['theme'] ?? '') === 'red'"
    (project / "themes").mkdir()
    for theme in ("red", "plain"):
        (project / f"themes/{theme}.php").write_text(f"<?php\nnamespace Theme;\nfinal class Page {{ public const NAME = '{theme}'; }}\n")
    if kind == "file":
        (project / "app/Page.php").write_text(
            f"<?php\nnamespace App;\nif ({chosen}) {{\n    final class Page {{ public const NAME = 'red'; }}\n}} else {{\n    final class Page {{ public const NAME = 'plain'; }}\n}}\n"
        )
    else:
        (project / "app/Themes.php").write_text(
            "<?php\nnamespace App;\nfinal class Themes\n{\n    public static string $theme = 'plain';\n    public static function load(string $class): void\n    {\n"
            "        if ($class === 'Theme\\\\Page') {\n            require base_path('themes/'.self::$theme.'.php');\n        }\n    }\n}\n"
        )
        frameworks.provider(project, "spl_autoload_register([\\App\\Themes::class, 'load']);")
    name = {"file": "\\App\\Page::NAME", "autoloader": "\\Theme\\Page::NAME"}[kind]
    chooses = {"file": "", "autoloader": f"if ({chosen}) {{ \\App\\Themes::$theme = 'red'; }}"}[kind]
    routes = project / "routes/web.php"
    routes.write_text(routes.read_text() + f"\nRoute::get('/theme', function () {{ {chooses} return {name}; }});\n")
    with Hayate(project, workers=1, args=["--warmup", "/theme"]) as server:
        themes = [requests.get(server.url + "/theme", cookies=cookies, timeout=60).text for cookies in ({"theme": "red"}, {}, {"theme": "red"})]
        (app,) = server.status()["apps"]
        assert (app["mode"], app["cold_boot"]) == ("worker", None), server.log()
    assert themes == ["red", "plain", "red"]


@pytest.mark.parametrize("service", ["singleton", "extend", "resolving"])
def test_services_that_the_project_has_a_part_in_are_made_by_requests(tmp_path, service) -> None:
    """Found by attack on 2026-11-27: they were made in the boot, by a configuration that a middleware changes."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    (project / "app/Log.php").write_text(
        "<?php\nnamespace App;\nfinal class Log extends \\Illuminate\\Log\\LogManager\n{\n"
        "    public function __construct($app, public string $tenant) { parent::__construct($app); }\n}\n"
    )
    made = "new \\App\\Log($app, config('app.tenant', 'nobody'))"
    code = {
        "singleton": f"$this->app->singleton('log', fn ($app) => {made});",
        "extend": f"$this->app->extend('log', fn ($log, $app) => {made});",
        "resolving": "$this->app->resolving(\\Psr\\Log\\LoggerInterface::class, fn ($log) => $log->tenant = config('app.tenant', 'nobody'));",
    }[service]
    frameworks.provider(project, code)
    routes = project / "routes/web.php"
    routes.write_text(
        routes.read_text()
        + "\nRoute::get('/tenant', function () { config(['app.tenant' => request()->header('x-a')]); return app('log')->tenant; });\n"
    )
    with Hayate(project, workers=1) as server:
        tenants = [requests.get(server.url + "/tenant", headers={"X-A": name}, timeout=60).text for name in ("ada", "grace")]
        (app,) = server.status()["apps"]
        assert app["mode"] == "worker", server.log()
    assert tenants == ["ada", "grace"]


def test_an_own_handle_of_the_kernel_runs_for_each_request(tmp_path) -> None:
    """Found by attack on 2026-11-27: what it does before the application boots came after that."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    kernel = project / "app/Http/Kernel.php"
    text = kernel.read_text()
    end = text.rindex("}")
    kernel.write_text(text[:end] + "    public function handle($request)\n    {\n        return parent::handle($request);\n    }\n" + text[end:])
    with Hayate(project, workers=1) as server:
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and "Kernel::handle() runs before the application boots" in app["fallback"]["why"], server.log()


def test_variables_of_the_front_controller_are_global(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    routes = project / "routes/web.php"
    routes.write_text(
        routes.read_text()
        + "\nRoute::get('/globals', fn () => json_encode([get_debug_type($GLOBALS['app'] ?? null), get_debug_type($GLOBALS['kernel'] ?? null),"
        " get_debug_type($GLOBALS['request'] ?? null), microtime(true) - LARAVEL_START < 3]));\n"
    )
    found = {}
    for mode in ("classic", "worker"):
        with Hayate(project, workers=1, args=["--mode", mode]) as server:
            time.sleep(3.2)
            found[mode] = get(server, "/globals").json()
            assert server.status()["apps"][0]["mode"] == mode, server.log()
    assert found["worker"] == found["classic"] and found["classic"][3] is True, found


def test_the_log_names_files_that_the_application_reads_as_it_boots(tmp_path) -> None:
    """Settings that a provider reads stay as they were for all requests, which under php-fpm each would see change."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    settings = project / "storage/settings.json"
    settings.write_text('{"title": "first"}')
    provider = project / "app/Providers/AppServiceProvider.php"
    reads = "config(['app.title' => json_decode(file_get_contents(storage_path('settings.json')))->title]);"
    provider.write_text(provider.read_text().replace("    public function register", f"    public function boot(): void\n    {{\n        {reads}\n    }}\n\n    public function register"))
    (project / "routes/web.php").write_text((project / "routes/web.php").read_text() + "\nRoute::get('/title', fn () => config('app.title'));\n")
    with Hayate(project, workers=2) as server:
        assert get(server, "/title").text == "first"
        settings.write_text('{"title": "second"}')
        assert get(server, "/title").text == "first"
        assert server.reload().returncode == 0
        assert get(server, "/title").text == "second"
        told = [line for line in server.log().splitlines() if "The boot read files" in line]
        # Once for each boot that visitors are served from.
        assert len(told) == 2 and f"{settings} at {provider}:" in told[0] and ".env" not in told[0], server.log()


def test_functions_that_are_disabled_are_there_for_boot_scripts_alone(tmp_path) -> None:
    """Lists of functions to disable have putenv() in them."""
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    routes = project / "routes/web.php"
    tries = "try { \\Hayate\\Boot\\putenv('LD_PRELOAD=x'); return 'set'; } catch (\\Error $error) { return $error->getMessage(); }"
    by_array = "try { array_map('Hayate\\Boot\\putenv', ['LD_PRELOAD=x']); return 'set'; } catch (\\Error $error) { return $error->getMessage(); }"
    routes.write_text(routes.read_text() + f"\nRoute::get('/tries', function () {{ {tries} }});\nRoute::get('/array', function () {{ {by_array} }});\n")
    disabled = "exec,passthru,shell_exec,system,proc_open,popen,parse_ini_file,show_source,putenv"
    with Hayate(project, workers=1, args=["--ini", f"disable_functions={disabled}"]) as server:
        (app,) = server.status()["apps"]
        assert (app["mode"], app["fallback"]) == ("worker", None), server.log()
        for path in ("/tries", "/array"):
            assert get(server, path).text == "Call to undefined function Hayate\\Boot\\putenv()"


def test_warmup_requests_of_a_plain_page_are_kept(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    routes = project / "routes/web.php"
    routes.write_text(routes.read_text() + "\nRoute::get('/plain', fn () => response()->json(['at' => route('plain'), 'now' => now()->year]))->name('plain');\n")
    with Hayate(project, workers=1, args=["--warmup", "/plain"]) as server:
        (app,) = server.status()["apps"]
        assert (app["mode"], app["cold_boot"]) == ("worker", None), server.log()
