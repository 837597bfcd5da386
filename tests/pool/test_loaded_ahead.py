"""What recognised projects load before there is a request, and what of it may go by one: each visitor is answered as in classic mode.

Found by attack on 2026-11-27: classes of packages were loaded by name, whatever else their files did, through autoloaders that were taken away
and given back.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import socket

import pytest
import requests

from lib.process import open_files, wait_until
from lib.servers import Hayate

from . import frameworks

#: A visitor each.
VISITORS = {"red": {"Cookie": "tenant=red", "Host": "red.example"}, "blue": {"Cookie": "tenant=blue", "Host": "blue.example"}}
OF_RED = "eval('namespace Acme; final class Mail { const OF = \"red\"; }')"
TENANT = "$tenant = $_COOKIE['tenant'] ?? 'nobody';"
#: The loader that Composer writes, and its class.
COMPOSER = "require_once '/usr/share/php/Composer/Autoload/ClassLoader.php'; $loader = $GLOBALS['loader'] = new \\Composer\\Autoload\\ClassLoader();"
PAGES = {f"{name}/Page": f"final class Page {{ public const OF = '{name}'; }}" for name in ("red", "blue", "nobody")}
#: The package's files, what the page does before it gives back the last expression, and what stands in bootstrap/app.php.
KINDS = {
    "constant of the request": (
        {"Pdf": "defined('ACME_URL') || define('ACME_URL', 'http://'.($_SERVER['HTTP_HOST'] ?? 'nobody'));\nfinal class Pdf {}"},
        "new \\Acme\\Pdf();",
        "ACME_URL",
        "",
    ),
    "static property": ({"Lang": "final class Lang { public static $of; }\nLang::$of = $_COOKIE['tenant'] ?? 'nobody';"}, "", "\\Acme\\Lang::$of", ""),
    "constant that the application defines": (
        {"Theme": "defined('THEME') || define('THEME', 'default');\nfinal class Theme {}"},
        f"{TENANT} define('THEME', $tenant); new \\Acme\\Theme();",
        "THEME",
        "",
    ),
    "function that the application declares": (
        {"Names": "if (!function_exists('theme')) {\n    eval('function theme() { return \"default\"; }');\n}\nfinal class Names {}"},
        f"{TENANT} eval(\"function theme() {{ return '$tenant'; }}\"); new \\Acme\\Names();",
        "theme()",
        "",
    ),
    "parent that does something": (
        {"Base": "define('BASE', $_COOKIE['tenant'] ?? 'nobody');\nabstract class Base {}", "Kid": "final class Kid extends Base {}"},
        "new \\Acme\\Kid();",
        "BASE",
        "",
    ),
    "setting": ({"Sets": "ini_set('precision', '4');\nfinal class Sets {}"}, "isset($_GET['use']) && new \\Acme\\Sets();", "ini_get('precision')", ""),
    "autoloader that it registers": (
        {"Legacy": "spl_autoload_register(static function (string $class): void { if (str_starts_with($class, 'App\\\\')) { throw new \\Exception($class); } });\nfinal class Legacy {}"},
        "new \\Acme\\Legacy();",
        "get_debug_type(new \\App\\Own())",
        "",
    ),
    "hint for OPcache": ({"Header": "class_exists(Line::class);\nfinal class Header {}", "Line": "final class Line {}"}, "", "get_debug_type(new \\Acme\\Header())", ""),
    "hint at a file that does something": (
        {"Header": "class_exists(Line::class);\nfinal class Header {}", "Line": "define('LINE', 7);\nfinal class Line {}"},
        "",
        "[get_debug_type(new \\Acme\\Header()), LINE]",
        "",
    ),
    "two classes in a file": (
        {"Mail": "final class Mail {}\nfinal class MailTool extends Base {}", "Base": "define('BASE', 1);\nabstract class Base {}"},
        "new \\Acme\\Mail();",
        "get_debug_type(new \\Acme\\MailTool())",
        "",
    ),
    "file that returns something": ({"Plug": "final class Plug {}\nreturn Plug::class;"}, "", "require_once base_path('vendor/acme/Plug.php')", ""),
    "class that is asked for": (
        {"Mail": "final class Mail { public const OF = 'package'; }"},
        f"{TENANT} class_exists('Acme\\\\Mail', false) || eval(\"namespace Acme; final class Mail {{ const OF = '$tenant'; }}\");",
        "\\Acme\\Mail::OF",
        "",
    ),
    "autoloader of each request": (
        {"Mail": "final class Mail { public const OF = 'package'; }"},
        f"{TENANT} spl_autoload_register(static function (string $class) use ($tenant): void {{ $class === 'Acme\\\\Mail' && eval(\"namespace Acme; final class Mail {{ const OF = '$tenant'; }}\"); }}, true, true);",
        "\\Acme\\Mail::OF",
        "",
    ),
    "own autoloader before all": (
        {"Base": "class Base { public const OF = 'package'; }", "Kid": "final class Kid extends Base {}"},
        "",
        "\\Acme\\Kid::OF",
        "spl_autoload_register(static function (string $class): void { if ($class === 'Acme\\\\Base') { require __DIR__.'/../own.php'; } }, true, true);",
    ),
    "own autoloader that nobody else may call": (
        {"Kid": "final class Kid { public const OF = 'package'; }"},
        "",
        "[\\Acme\\Kid::OF, \\Acme\\Base::OF, count(spl_autoload_functions())]",
        "(new class { public function add(): void { spl_autoload_register([$this, 'load']); } private function load(string $class): void { if ($class === 'Acme\\\\Base') { require __DIR__.'/../own.php'; } } })->add();",
    ),
    "second class of a hinted file": (
        {"Y": "class_exists(X::class);\nfinal class Y {}", "X": "final class X {}\nfinal class Z extends Base {}", "Base": "define('BASE', 1);\nabstract class Base {}"},
        "new \\Acme\\Y();",
        "get_debug_type(new \\Acme\\Z())",
        "",
    ),
    "class that nobody finds by its name": (
        {"Mail": "final class Mail {}\nfinal class MailTool {}"},
        f"{TENANT} $tenant === 'nobody' && new \\Acme\\Mail();",
        "class_exists('Acme\\MailTool')",
        "",
    ),
    "autoloader of a package's that calls what it has found": (
        {
            "Loader": "final class Loader { public static function wrap(): void { $all = spl_autoload_functions(); spl_autoload_register(static function (string $class) use ($all): void {\n"
            "    foreach ($all as $one) { $one($class); if (class_exists($class, false)) { method_exists($class, 'construct') && $class::construct(); return; } } }, true, true); } }",
            "Reg": "final class Reg { public static array $map = []; public static function construct(): void { self::$map = ['filled' => 1]; } }",
        },
        "",
        "\\Acme\\Reg::$map",
        "require_once __DIR__.'/../vendor/acme/Loader.php'; \\Acme\\Loader::wrap();",
    ),
    "autoloader of a package's that goes by the request": (
        {
            "Themes": "final class Themes { public static string $of = 'nobody'; public static function load(string $class): void { if ($class === 'Acme\\Page') { require __DIR__.'/'.self::$of.'.php'; } } }",
            **{name: f"final class Page {{ public const OF = '{name}'; }}" for name in ("red", "blue", "nobody")},
        },
        f"{TENANT} \\Acme\\Themes::$of = $tenant;",
        "\\Acme\\Page::OF",
        "spl_autoload_register([\\Acme\\Themes::class, 'load']);",
    ),
    "autoloader of a package's that shares a variable": (
        {
            "Themes": "final class Themes { public static string $of = 'nobody'; public static function start(): void { $of = &self::$of;\n"
            "    spl_autoload_register(static function (string $class) use (&$of): void { if ($class === 'Acme\\Page') { require __DIR__.'/'.$of.'/Page.php'; } }); } }",
            **{f"{name}/Page": f"final class Page {{ public const OF = '{name}'; }}" for name in ("red", "blue", "nobody")},
        },
        f"{TENANT} \\Acme\\Themes::$of = $tenant;",
        "\\Acme\\Page::OF",
        "\\Acme\\Themes::start();",
    ),
    **{
        f"autoloader of a package's that goes by {what}": (
            {
                "Themes": "final class Themes { public static function load(string $class): void { if ($class === 'Acme\\Page') { require 'Page.php'; } } }",
                **{f"{name}/Page": f"final class Page {{ public const OF = '{name}'; }}" for name in ("red", "blue", "nobody")},
            },
            f"{TENANT} {sets};",
            "\\Acme\\Page::OF",
            "spl_autoload_register([\\Acme\\Themes::class, 'load']);",
        )
        for what, sets in {"include_path": "set_include_path(base_path('vendor/acme/'.$tenant))", "the directory": "chdir(base_path('vendor/acme/'.$tenant))"}.items()
    },
    "autoloader of a package's whose file is made of itself": (
        {"Page": "final class Page { public const OF = 'page'; }"},
        "",
        "\\Acme\\Page::OF",
        "spl_autoload_register(eval('return static function (string $class): void { $file = __DIR__; $file = $file.$class; $file = $file.\".php\"; if (is_file($file)) { require $file; } };'));",
    ),
    "loader of Composer's that a request adds": (
        PAGES,
        f"{TENANT} $l = new \\Composer\\Autoload\\ClassLoader(); $l->addPsr4('Acme\\\\', base_path('vendor/acme/'.$tenant)); $l->register();",
        "\\Acme\\Page::OF",
        COMPOSER,
    ),
    "autoloader that a package adds for a request": (
        {
            "Themes": "final class Themes { public static function use(string $of): void { $map = ['Acme\\\\Page' => __DIR__.'/'.$of.'/Page.php'];\n"
            "    spl_autoload_register(static function (string $class) use ($map): void { if (isset($map[$class])) { require $map[$class]; } }); } }",
            **PAGES,
        },
        f"{TENANT} \\Acme\\Themes::use($tenant);",
        "\\Acme\\Page::OF",
        "",
    ),
    **{
        f"{whose} loader that goes by include_path": (
            {f"{name}/Other/Page": f"namespace Other;\nfinal class Page {{ public const OF = '{name}'; }}" for name in ("red", "blue", "nobody")},
            f"{TENANT} set_include_path(base_path('vendor/acme/'.$tenant));",
            "\\Other\\Page::OF",
            f"{COMPOSER} {loader}$loader->setUseIncludePath(true); $loader->register();",
        )
        for whose, loader in {"Composer's": "", "a child of Composer's": "$loader = new class extends \\Composer\\Autoload\\ClassLoader {}; "}.items()
    },
    "autoloader of a package's that asks a file": (
        {
            "Loader": "final class Loader { public static string $of = 'nobody'; public static function start(): void {\n"
            "    spl_autoload_register(static function (string $class): void { static $map = null; if ($map === null) { $map = require __DIR__.'/map.php'; } if (isset($map[$class])) { require $map[$class]; } }); } }",
            "map": "return ['Acme\\\\Page' => __DIR__.'/'.Loader::$of.'/Page.php'];",
            **PAGES,
        },
        f"{TENANT} \\Acme\\Loader::$of = $tenant;",
        "\\Acme\\Page::OF",
        "\\Acme\\Loader::start();",
    ),
    "parent that the application asks for": (
        {"Base": "class Base {}", "Kid": "final class Kid extends Base { public const OF = 'kid'; }", "Other": "final class Other { public const OF = 'other'; }"},
        "$there = class_exists('Acme\\Base', false);",
        "[$there, \\Acme\\Kid::OF, \\Acme\\Other::OF]",
        "",
    ),
    "file that is included once, as a static says": (
        {
            "Kit": "final class Kit { private static bool $loaded = false; public static function load(): void { if (!self::$loaded) { self::$loaded = true; require __DIR__.'/Compat.php'; } } }",
            "Compat": "final class Compat { public const OF = 'compat'; }",
        },
        "\\Acme\\Kit::load();",
        "\\Acme\\Compat::OF",
        "",
    ),
    "class of the package that extends an own one": ({"Kid": "final class Kid extends \\App\\Own {}"}, "", "\\Acme\\Kid::OF", ""),
}


def ask(server: Hayate, path: str = "/page") -> dict[str, str]:
    answers = {name: requests.get(server.url + path, headers=headers, timeout=60) for name, headers in VISITORS.items()}
    return {name: f"{answer.status_code} {answer.text[:200]}" for name, answer in answers.items()}


def laravel(directory: pathlib.Path, files: dict[str, str], statements: str, expression: str, bootstrap: str = "") -> pathlib.Path:
    directory.chmod(0o755)
    project = frameworks.laravel(directory)
    frameworks.package(project, files)
    (project / "own.php").write_text("<?php\nnamespace Acme;\nclass Base { public const OF = 'own'; }\n")
    (project / "app/Own.php").write_text("<?php\nnamespace App;\nclass Own { public const OF = 'own'; }\n")
    routes = project / "routes/web.php"
    routes.write_text(routes.read_text() + f"\nRoute::get('/page', function () {{ {statements} return json_encode({expression}); }});\n")
    boot = project / "bootstrap/app.php"
    boot.write_text(boot.read_text().replace("<?php", f"<?php\n{bootstrap}", 1))
    return project


def in_both_modes(project: pathlib.Path, warmup: str = "/page", args: tuple[str, ...] = ()) -> tuple[dict, dict, dict]:
    """The answers in classic mode and as a recognised project, and the latter's status."""
    with Hayate(project, workers=1, args=["--mode", "classic", *args]) as server:
        classic = ask(server)
    with Hayate(project, workers=1, args=["--warmup", "/", "--warmup", warmup, *args]) as server:
        recognised = ask(server)
        (app,) = server.status()["apps"]
        app["log"] = server.log()
    return classic, recognised, app


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_file_of_a_class_does_it_does_in_the_request_that_loads_it(tmp_path, kind) -> None:
    project = laravel(tmp_path, *KINDS[kind])
    classic, recognised, app = in_both_modes(project, "/page?use=1" if kind == "setting" else "/page")
    assert recognised == classic and all(answer.startswith("200 ") for answer in classic.values()), (classic, recognised)
    assert (app["mode"], app["cold_boot"]) == ("worker", None), app["log"]


def test_a_class_of_a_package_that_does_nothing_else_is_there_before_the_requests(tmp_path) -> None:
    """Else the tests above would prove nothing."""
    files = {"Base": "abstract class Base {}", "Kid": "final class Kid extends Base {}", "Does": "define('DOES', 1);\nfinal class Does {}"}
    # Where the project's own code asks, there is none.
    files["Ask"] = "final class Ask { public static function there(): array { return get_declared_classes(); } }"
    there = "array_map(fn (string $class): bool => in_array($class, $all, true), ['Acme\\Kid', 'Acme\\Does', 'App\\Own'])"
    project = laravel(tmp_path, files, f"$all = \\Acme\\Ask::there(); $there = {there}; new \\Acme\\Kid(); new \\Acme\\Does(); new \\App\\Own();", "isset($_COOKIE['tenant']) ? $there : null")
    _, recognised, _ = in_both_modes(project)
    assert set(recognised.values()) == {"200 [true,false,false]"}


@pytest.mark.parametrize("how", ["file", "other name", "file behind a question", "autoloader", "Laravel's other name", "question in small letters", "question for all", "wrapper of files"])
def test_after_a_request_that_declares_a_class_of_a_packages_name_all_are_left_to_requests(tmp_path, how) -> None:
    file = OF_RED
    declares = {
        "file": file,
        "other name": "class_alias(\\App\\Own::class, 'Acme\\Mail')",
        "file behind a question": f"class_exists('Acme\\Mail', false) || {file}",
        "autoloader": f"spl_autoload_register(static fn (string $class) => $class === 'Acme\\Mail' && {file}, true, true)",
        "Laravel's other name": "\\Illuminate\\Foundation\\AliasLoader::getInstance()->alias('Acme\\Mail', \\App\\Own::class)",
        # A file of that name is nowhere.
        "question in small letters": "class_exists('acme\\mail') && exit('there')",
        "wrapper of files": "stream_wrapper_unregister('file'); stream_wrapper_restore('file')",
        "question for all": "in_array('Acme\\Mail', get_declared_classes(), true) && exit('there')",
    }[how]
    red = "own" if "other name" in how else "package" if "wrapper" in how or ("question " in how and "file" not in how) else "red"
    statements = f"{TENANT} if ($tenant === 'red') {{ {declares}; }}"
    project = laravel(tmp_path, {"Mail": "final class Mail { public const OF = 'package'; }"}, statements, "\\Acme\\Mail::OF")
    with Hayate(project, workers=1, args=["--warmup", "/page"]) as server:
        assert ask(server)["red"].startswith("500 ")
        assert wait_until(lambda: server.status()["apps"][0]["fallback"] is not None, 30), server.log()
        (app,) = server.status()["apps"]
        assert app["fallback"]["to"] == "classes" and "it declared one of its own" in app["fallback"]["why"]
        assert (app["mode"], app["rewind"]["rewind"]) == ("worker", "on")
        right = {"red": f'200 "{red}"', "blue": '200 "package"'}
        assert wait_until(lambda: ask(server) == right, 30)
        # What is known of an application's requests is known after a reload, too: nobody meets that error again.
        for _ in range(2):
            assert server.reload().returncode == 0
            assert [ask(server) for _ in range(3)] == [right] * 3, server.log()
            assert server.status()["apps"][0]["fallback"]["to"] == "classes"


@pytest.mark.parametrize("adds", ["its own", "behind", "before"])
def test_a_name_space_that_a_request_adds_matters_to_its_own_classes_alone(tmp_path, adds) -> None:
    """To Composer's loader: a plugin's; a directory behind those in which the package's class lies; and before them."""
    call = {
        "its own": "addPsr4('Plugin\\\\', base_path('plugins'))",
        "behind": "addPsr4('Other\\\\', base_path('plugins'))",
        "before": "addPsr4('Other\\\\', base_path('plugins'), true)",
    }[adds]
    files = {
        "other/Page": "namespace Other;\nfinal class Page { public const OF = 'package'; }",
        # Where the project's own code asks, there is none.
        "Ask": "final class Ask { public static function there(): bool { return class_exists('Other\\\\Page', false); } }",
    }
    bootstrap = f"{COMPOSER} $loader->addPsr4('Other\\\\', __DIR__.'/../vendor/acme/other'); $loader->register();"
    statements = f"{TENANT} $there = \\Acme\\Ask::there(); if ($tenant === 'red') {{ $GLOBALS['loader']->{call}; }}"
    project = laravel(tmp_path, files, statements, "[\\Other\\Page::OF, class_exists('Plugin\\None'), isset($_COOKIE['tenant']) ? $there : null]", bootstrap)
    (project / "plugins").mkdir()
    (project / "plugins/Page.php").write_text("<?php\nnamespace Other;\nfinal class Page { public const OF = 'plugin'; }\n")
    with Hayate(project, workers=1, args=["--warmup", "/", "--warmup", "/page"]) as server:
        answers = ask(server)
        assert answers["blue"] == '200 ["package",false,true]'
        if adds != "before":
            assert answers["red"] == answers["blue"] and server.status()["apps"][0]["fallback"] is None, server.log()
        else:
            assert answers["red"].startswith("500 ")
            assert wait_until(lambda: ask(server) == {"red": '200 ["plugin",false,false]', "blue": '200 ["package",false,false]'}, 30), server.log()


@pytest.mark.parametrize("way", [["--rewind", "fork"], []], ids=["forks", "rewound, then forks"])
def test_with_a_fork_for_each_request_too(tmp_path, way) -> None:
    """A request in whose way a class is has the application boot anew; who falls back to forks since has no classes ahead again."""
    statements = f"{TENANT} if ($tenant === 'red') {{ class_exists('Acme\\Mail', false) || {OF_RED}; }} isset($_GET['costs']) && proc_nice(1);"
    project = laravel(tmp_path, {"Mail": "final class Mail { public const OF = 'package'; }"}, statements, "\\Acme\\Mail::OF")
    right = {"red": '200 "red"', "blue": '200 "package"'}
    with Hayate(project, workers=1, args=["--warmup", "/page", *way]) as server:
        assert ask(server)["red"].startswith("500 ")
        assert wait_until(lambda: ask(server) == right, 30), server.log()
        if not way:
            def forks() -> bool:
                requests.get(server.url + "/page?costs=1", headers=VISITORS["blue"], timeout=60)
                fallback = server.status()["apps"][0]["fallback"]
                return fallback is not None and fallback["to"] == "fork"

            assert wait_until(forks, 60), server.log()
            assert [ask(server) for _ in range(5)] == [right] * 5, server.log()


def test_what_php_is_to_run_after_each_script_is_run(tmp_path) -> None:
    project = laravel(tmp_path, {}, "", "1")
    (tmp_path / "after.php").write_text("<?php file_put_contents(__DIR__.'/ran', 'x', FILE_APPEND);")
    (tmp_path / "ran").touch()
    (tmp_path / "ran").chmod(0o666)
    with Hayate(project, workers=1, args=["--ini", f"auto_append_file={tmp_path}/after.php"]) as server:
        assert wait_until(lambda: server.status()["apps"][0]["fallback"] is not None, 30), server.log()
        before = (tmp_path / "ran").read_text()
        assert requests.get(server.url + "/page", timeout=60).text == "1"
        assert wait_until(lambda: (tmp_path / "ran").read_text() == before + "x"), server.log()
        assert "auto_append_file" in server.status()["apps"][0]["fallback"]["why"]


def test_a_file_that_the_handler_includes_itself_is_left_to_it(tmp_path) -> None:
    """Each request of a worker script may include a file of a class: nobody would have asked for that class by its name."""
    tmp_path.chmod(0o755)
    (tmp_path / "Db.php").write_text("<?php\nfinal class Db { public const OF = 'db'; }\n")
    os.utime(tmp_path / "Db.php", (1, 1))
    (tmp_path / "worker.php").write_text("<?php\nwhile (hayate_handle_request(static function (): void { require __DIR__.'/Db.php'; echo Db::OF; })) {\n}\n")
    with Hayate(tmp_path, workers=1, args=["--worker", "worker.php"]) as server:
        answers = [requests.get(server.url, timeout=60) for _ in range(4)]
        assert {(answer.status_code, answer.text) for answer in answers} == {(200, "db")}, server.log()


@pytest.mark.parametrize("own", [True, False], ids=["own class", "package's class"])
def test_what_the_handler_sets_up_unless_a_class_is_there_is_set_up(tmp_path, own) -> None:
    """By a worker script of one's own whose warm-up requests leave a connection, so that it boots again without them."""
    tmp_path.chmod(0o755)
    place = tmp_path / ("lib" if own else "vendor/shop")
    place.mkdir(parents=True)
    (place / "App.php").write_text(
        "<?php\nfinal class App { public static array $is = []; public static $kept; public static function boot(): void\n"
        "{ self::$is = ['name' => 'shop']; self::$kept = stream_socket_client($_SERVER['PEER']); } }\n"
    )
    os.utime(place / "App.php", (1, 1))
    (tmp_path / "worker.php").write_text(
        f"<?php\n{COMPOSER} $loader->addPsr4('', '{place}'); $loader->register();\n"
        "while (hayate_handle_request(static function (): void { if (!class_exists('App', false)) { App::boot(); } echo App::$is['name'] ?? 'nothing'; })) {\n}\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as peer:
        args = ["--worker", "worker.php", "--env", f"PEER=tcp://127.0.0.1:{peer.getsockname()[1]}"]
        with Hayate(tmp_path, workers=1, args=args) as server:
            answers = [requests.get(server.url, timeout=60) for _ in range(4)]
            assert {(answer.status_code, answer.text) for answer in answers} == {(200, "shop")}, server.log()
            assert server.status()["apps"][0]["cold_boot"] is not None, "else this says nothing"


def test_a_text_of_a_visitors_is_no_error_of_phps(tmp_path) -> None:
    project = laravel(tmp_path, {"Mail": "final class Mail {}"}, "@trigger_error($_GET['text'] ?? '', E_USER_WARNING);", "get_debug_type(new \\Acme\\Mail())")
    with Hayate(project, workers=1, args=["--warmup", "/page"]) as server:
        text = "Cannot declare class Acme\\Mail, because the name is already in use"
        for _ in range(3):
            requests.get(server.url + "/page", params={"text": text}, timeout=60)
        (app,) = server.status()["apps"]
        assert (app["mode"], app["restarts"], app["fallback"]) == ("worker", {}, None)


ANSWERS = {
    "header in place of PHP's": ("header_remove('X-Powered-By'); header('X-Acme: 1');", "a header"),
    "header": ("header('X-Acme: 1');", "a header"),
    "cookie": ("setcookie('acme', '1');", "a header"),
    "header less": ("header_remove('X-Powered-By');", "a header"),
    "function": ("header_register_callback(static function (): void { header('X-Acme: 1'); });", "a function that adds headers"),
    "buffer": ("ob_start(static fn (string $text): string => $text.'acme');", "an output buffer"),
    "status": ("http_response_code(202);", "a status"),
    "output": ("echo 'acme';", "output"),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_package_that_has_a_part_in_the_answer_as_laravel_boots_has_it_served_in_classic_mode(tmp_path, kind) -> None:
    tmp_path.chmod(0o755)
    project = frameworks.laravel(tmp_path)
    code, says = ANSWERS[kind]
    frameworks.package(project, {}, code)
    args = ["--ini", "expose_php=1"]
    with Hayate(project, workers=1, args=["--mode", "classic", *args]) as server:
        classic = requests.get(server.url, timeout=60)
    with Hayate(project, workers=1, args=args) as server:
        answer = requests.get(server.url, timeout=60)
        (app,) = server.status()["apps"]
        assert app["mode"] == "classic" and re.search(rf"a part in the answer \(.*{says}", app["fallback"]["why"]), server.log()
    for field in ("X-Acme", "Set-Cookie", "X-Powered-By"):
        assert (field in answer.headers) == (field in classic.headers)
    assert answer.status_code == classic.status_code and ("acme" in answer.text) == ("acme" in classic.text)


def symfony(directory: pathlib.Path, services: str, files: dict[str, str], framework: str = "") -> pathlib.Path:
    directory.chmod(0o755)
    project = frameworks.symfony(directory, runtime=False)
    for name, text in files.items():
        (project / f"src/{name}.php").write_text(f"<?php\nnamespace App;\n{text}\n")
    config = project / "config/services.php"
    config.write_text(config.read_text().replace("    // The kernel itself", f"    {services}\n    // The kernel itself"))
    if framework:
        (file,) = (project / "config/packages").glob("framework.php")
        file.write_text(file.read_text().replace("'secret'", f"{framework} 'secret'"))
    return project


def page(body: str) -> str:
    route = f"#[\\Symfony\\Component\\Routing\\{frameworks.ROUTES}\\Route('/page')]"
    return (
        "final class Page extends \\Symfony\\Bundle\\FrameworkBundle\\Controller\\AbstractController\n{\n"
        f"    {route}\n    public function page(\\Symfony\\Component\\HttpFoundation\\Request $request): \\Symfony\\Component\\HttpFoundation\\Response\n    {{\n{body}\n    }}\n}}"
    )


SYMFONY = ("--env", "APP_ENV=prod", "--env", "APP_SECRET=x", "--env", "GREETING=hello")


def test_a_cache_of_symfonys_answers_as_in_classic_mode(tmp_path) -> None:
    """framework.http_cache: a kernel that has booted does not ask it."""
    body = "        return (new \\Symfony\\Component\\HttpFoundation\\Response(bin2hex(random_bytes(8))))->setSharedMaxAge(60);"
    project = symfony(tmp_path, "", {"Controller/Page": page(body).replace("final class", "#[\\AllowDynamicProperties] final class")}, "'http_cache' => ['enabled' => true, 'debug' => true],")
    file = project / "src/Controller/Page.php"
    file.write_text(file.read_text().replace("namespace App;", "namespace App\\Controller;"))
    with Hayate(project, workers=1, args=SYMFONY) as server:
        (app,) = server.status()["apps"]
        assert app["mode"] == "worker", server.log()
        first, second = (requests.get(server.url + "/page", timeout=60) for _ in range(2))
        assert first.text == second.text and "Age" in second.headers, (dict(first.headers), server.log())
        assert "fresh" in second.headers["X-Symfony-Cache"]
        assert requests.get(server.url + "/", timeout=60).ok


@pytest.mark.parametrize("kind", ["configurator", "argument resolver"])
def test_what_the_application_has_a_part_in_is_made_by_requests(tmp_path, kind) -> None:
    if kind == "configurator":
        services = (
            "$services->set('locale_listener', \\Symfony\\Component\\HttpKernel\\EventListener\\LocaleListener::class)"
            "->args([\\Symfony\\Component\\DependencyInjection\\Loader\\Configurator\\service('request_stack'), 'xx'])"
            "->tag('kernel.event_subscriber')->configurator([\\App\\Configures::class, 'listener']);"
        )
        files = {
            "Configures": "final class Configures { public static function listener(object $of): void { (function (): void { $this->defaultLocale = $_COOKIE['tenant'] ?? 'nobody'; })->call($of); } }",
            "Controller/Page": page("        return $this->json($request->getLocale());"),
        }
    else:
        services = (
            "$services->set('App\\Resolves')->decorate('argument_resolver')"
            "->args([\\Symfony\\Component\\DependencyInjection\\Loader\\Configurator\\service('.inner')]);"
        )
        files = {
            "Resolves": "final class Resolves implements \\Symfony\\Component\\HttpKernel\\Controller\\ArgumentResolverInterface { private string $tenant;"
            " public function __construct(private \\Symfony\\Component\\HttpKernel\\Controller\\ArgumentResolverInterface $inner) { $this->tenant = $_COOKIE['tenant'] ?? 'nobody'; }"
            " public function getArguments(\\Symfony\\Component\\HttpFoundation\\Request $request, callable $controller, ?\\ReflectionFunctionAbstract $reflector = null): array"
            " { $request->attributes->set('tenant', $this->tenant); return $this->inner->getArguments($request, $controller); } }",
            "Controller/Page": page("        return $this->json($request->attributes->get('tenant'));"),
        }
    project = symfony(tmp_path, services, files)
    file = project / "src/Controller/Page.php"
    file.write_text(file.read_text().replace("namespace App;", "namespace App\\Controller;"))
    classic, recognised, _ = in_both_modes(project, "/page", SYMFONY)
    assert recognised == classic == {"red": '200 "red"', "blue": '200 "blue"'}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks into processes that are not dumpable")
def test_the_list_of_names_does_not_grow_with_workers_that_boot_by_themselves(tmp_path, peer) -> None:
    project = laravel(tmp_path, {"Kid": "final class Kid {}"}, "new \\Acme\\Kid();", "1")
    frameworks.provider(project, f"$GLOBALS['peer'] = stream_socket_client('tcp://127.0.0.1:{peer}');")

    def size(server: Hayate) -> int:
        (size,) = [status.st_size for name, status in open_files(server.status()["apps"][0]["zygote"]) if "hayate-classes" in name]
        return size

    with Hayate(project, workers=2, args=["--warmup", "/page", "--max-requests", "1"]) as server:
        ask(server)
        before = size(server)
        for _ in range(5):
            ask(server)
        assert server.status()["apps"][0]["boot"] == "private" and 0 < size(server) == before, server.log()


@pytest.mark.parametrize("kind", ["laravel", "worker script"])
def test_a_connection_that_the_file_of_a_class_opens_is_each_workers_own(tmp_path, redis, kind) -> None:
    """The boot without warm-up requests loaded that class in the process that all workers are forked from: visitors got each other's answers."""
    tmp_path.chmod(0o755)
    code = "final class Store {{ public static \\Redis $redis; }}\nStore::$redis = new \\Redis();\nStore::$redis->connect('127.0.0.1', {port});".format(port=redis.port)
    echo = "implode(' ', array_map(static fn (): string => {class}::$redis->echo($_COOKIE['tenant'] ?? 'nobody'), range(1, 20)))"
    if kind == "laravel":
        project = laravel(tmp_path, {"Store": code}, "", echo.format(class_="", **{"class": "\\Acme\\Store"}))
        made = {"root": project, "args": ["--warmup", "/", "--warmup", "/page"]}
    else:
        (tmp_path / "Store.php").write_text(f"<?php\n{code}\n")
        (tmp_path / "worker.php").write_text(
            "<?php\nspl_autoload_register(static function (string $class): void { require __DIR__.\"/$class.php\"; });\n"
            f"while (hayate_handle_request(static function (): void {{ echo {echo.format(**{'class': 'Store'})}; }})) {{\n}}\n"
        )
        made = {"root": tmp_path, "worker": tmp_path / "worker.php"}
    names = [f"visitor{n}" for n in range(8)]
    with Hayate(made.pop("root"), workers=8, **made) as server, concurrent.futures.ThreadPoolExecutor(8) as visitors:
        for _ in range(3):
            answers = list(visitors.map(lambda name: requests.get(server.url + "/page", headers={"Cookie": f"tenant={name}"}, timeout=60).text, names))
            assert [answer.strip('"').split() for answer in answers] == [[name] * 20 for name in names], server.log()
