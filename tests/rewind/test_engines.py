"""What PHP's versions differ in, rewound: generators that they keep, lazy objects, property hooks, calls without a frame, exit(), limits of the
stack."""

from __future__ import annotations

import pathlib
import re
import shutil
from collections.abc import Iterator

import pytest
import requests

from apps import sites
from lib.process import temporary_directory
from lib.servers import PHP_VERSION, Server

from . import modes

VERSION = tuple(map(int, PHP_VERSION.split(".")))


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    directory = temporary_directory("engines")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


GC = """
class Store extends SessionHandler { public static int $collected = 0;
    public function gc(int $max): int|false { self::$collected++; return 0; } }
%s
while (hayate_handle_request(function () {
    session_set_save_handler(new Store);
    session_start(['gc_probability' => 1, 'gc_divisor' => 2, 'save_path' => sys_get_temp_dir(), 'use_cookies' => 0]);
    session_destroy();
    echo Store::$collected;
})) {}
"""


@pytest.mark.parametrize("boot_draws", ["", "session_start(['gc_probability' => 1, 'gc_divisor' => 2]); session_destroy();"])
@modes.each_mode
def test_sessions_decide_anew_whether_to_collect_old_ones(rewind: str, boot: str, boot_draws: str, place: pathlib.Path) -> None:
    """Since 8.4 by a generator of their own, which a rewind would put back: then always, or never."""
    modes.write(place, GC % boot_draws)
    with modes.hayate(place, rewind, boot, workers=1) as server:
        said = [requests.get(server.url, timeout=60).text for _ in range(40)]
    assert set(said) == {"0", "1"}, said


NEW = """
class Lazy {
    public string $name { get => $this->name . '!'; set => strtolower($value); }
    public function __construct(public int $n) { $this->name = 'MADE'; }
    public function __destruct() { if (T::$armed) { echo ' destroyed ', $this->n; } }
}
class T { public static bool $armed = false; }
$class = new ReflectionClass('Lazy');
$ghost = $class->newLazyGhost(function (Lazy $it) { $it->__construct(1); });
$proxy = $class->newLazyProxy(fn () => new Lazy(2));
$never = $class->newLazyGhost(fn (Lazy $it) => $it->__construct(3));
while (hayate_handle_request(function () use ($ghost, $proxy, $never, $class) {
    T::$armed = true;
    echo (int) $class->isUninitializedLazyObject($ghost), (int) $class->isUninitializedLazyObject($proxy),
        (int) $class->isUninitializedLazyObject($never), ' ', $ghost->n, $ghost->name, ' ', $proxy->n, $proxy->name;
    $ghost->name = 'SET';
    echo ' ', $ghost->name, ' ', in_array(3, [1, 2, 3]) ? 'in' : 'out', str_contains('frameless', 'less') ? ' less' : '';
    register_shutdown_function(function () { echo ' over'; });
    if (isset($_GET['exit'])) { array_map(exit(...), [' left']); }
})) {}
"""


if VERSION >= (8, 4):

    @modes.each_mode
    def test_lazy_objects_and_hooks(rewind: str, boot: str, place: pathlib.Path) -> None:
        modes.write(place, NEW)
        with modes.php_fpm(place) as reference:
            expected = {target: requests.get(reference.url + target, timeout=60).text for target in ("/", "/?exit=1")}
        assert "111 1made! 2made! set! in less over" in expected["/"] and " left over" in expected["/?exit=1"], expected
        with modes.hayate(place, rewind, boot, workers=1, args=("--rewind-verify", "1")) as server:
            for target in ("/", "/?exit=1", "/", "/", "/?exit=1"):
                assert requests.get(server.url + target, timeout=60).text == expected[target]
            assert server.status()["apps"][0]["restarts"] == {}


# What a request leaves for its end: a kind each, made in the request, by the boot, or by the boot and met in the request.
LEFT = """
class Told { public static array $said = []; }
class Hooked {
    private array $log = [];
    public string $name { get { $this->log[] = 'get'; return $this->name . count($this->log); } set { $this->log[] = 'set'; $this->name = $value; } }
    public string $whole { get => Told::$said[] = 'virtual of ' . $this->name; }
    public ?Hooked $other = null;
    public function __construct(public int $n) { $this->name = 'made'; }
    public function __destruct() { if (T::$armed) { $this->name = 'destroyed'; echo "[{$this->n} {$this->name} {$this->whole}]"; } }
}
class T { public static bool $armed = false; public static mixed $kept; }
$class = new ReflectionClass('Hooked');
$kinds = [
    'hook' => fn () => new Hooked(1),
    'ring' => function () { $a = new Hooked(2); $a->other = new Hooked(3); $a->other->other = $a; return $a; },
    'ghost' => fn () => $class->newLazyGhost(fn (Hooked $it) => $it->__construct(4)),
    'proxy' => fn () => $class->newLazyProxy(fn () => new Hooked(5)),
    'met' => function () use ($class) { $it = $class->newLazyProxy(fn () => new Hooked(6)); $it->name = 'met'; return $it; },
    // At the end of the request: its destructor is that of an object of which half is there.
    'throws' => fn () => $class->newLazyGhost(function (Hooked $it) { $it->n = 7; throw new RuntimeException('never made'); }),
    'ends' => fn () => $class->newLazyProxy(function () { echo 'ends '; exit; }),
    'holder' => fn () => new class($class) { public function __construct(private $class) {} public function __destruct() {
        if (!T::$armed) { return; }
        $it = $this->class->newLazyGhost(function (Hooked $it) { echo '(made at the end)'; $it->__construct(8); }); echo $it->name; T::$kept = $it; } },
    'resets' => function () use ($class) { $it = new Hooked(9); $class->resetAsLazyGhost($it, fn (Hooked $it) => $it->__construct(10)); return $it; },
    'static' => function () use ($class) { return T::$kept = $class->newLazyGhost(fn (Hooked $it) => $it->__construct(11)); },
    'reference' => function () { $it = new Hooked(12); foreach ($it as $name => $value) { echo $name, ' '; } $it->other = clone $it; return $it; },
];
// What it says here is no part of an answer.
ob_start();
$boot = array_map(fn ($make) => $make(), array_diff_key($kinds, ['ends' => 0]));
ob_end_clean();
T::$kept = null;
while (hayate_handle_request(function () use ($kinds, $boot) {
    T::$armed = true;
    $it = isset($_GET['boot']) ? $boot[$_GET['kind']] : $kinds[$_GET['kind']]();
    register_shutdown_function(function () use ($it) { echo ' over '; });
    if (isset($_GET['use'])) { try { echo $it->name, ' ', $it->n, ' '; $it->name = 'changed'; } catch (Throwable $e) { echo $e->getMessage(), ' '; } }
    echo implode(',', Told::$said), ' ', count($boot);
    match ($_GET['end'] ?? '') { 'exit' => exit, 'throw' => throw new LogicException('thrown'), default => null };
})) {}
"""
KINDS = re.findall(r"^    '([a-z]+)' =>", LEFT, re.M)


if VERSION >= (8, 4):

    @modes.each_mode
    def test_lazy_and_hooked_objects_at_the_end_of_a_request(rewind: str, boot: str, place: pathlib.Path) -> None:
        """Destructors with hooks, objects that were never made, that cannot be, or are only now: what is freed runs code, and is put back."""
        modes.write(place, LEFT)

        def ask(server: Server, target: str) -> str:
            # The trace of an error ends in the script that includes this one under php-fpm.
            return re.sub(r"^#\d+ .*\n", "", requests.get(server.url + target, timeout=60).text, flags=re.MULTILINE)

        targets = [
            f"/?kind={kind}{made}{use}{end}"
            for kind in KINDS
            for made in ("", "&boot=1")[: 1 if kind == "ends" else 2]
            for use in ("", "&use=1")
            for end in ("", "&end=exit", "&end=throw")
        ]
        with modes.php_fpm(place) as reference:
            expected = {target: ask(reference, target) for target in targets}
        assert "[1 destroyed3 virtual of destroyed" in expected["/?kind=hook"], expected
        with modes.hayate(place, rewind, boot, workers=1, args=("--rewind-verify", "1")) as server:
            got = {target: ask(server, target) for target in (*targets, *targets)}
            differ = {target: (expected[target], got[target]) for target in targets if expected[target] != got[target]}
            assert not differ, differ
            assert server.status()["apps"][0]["restarts"] == {}


LENT = """
while (hayate_handle_request(function () {
    echo json_encode([PHP_SAPI, php_sapi_name(), opcache_get_status(false)['opcache_enabled'], extension_loaded('Zend OPcache')]);
})) {}
"""


@modes.each_mode
def test_opcache_starts_and_the_sapi_has_its_own_name(rewind: str, boot: str, place: pathlib.Path) -> None:
    """As a shared object and, since 8.5, as part of PHP: the name that it knows is lent before it starts, and nobody sees that later."""
    modes.write(place, LENT)
    with modes.hayate(place, rewind, boot, workers=1) as server:
        for _ in range(2):
            assert requests.get(server.url, timeout=60).json() == ["hayate", "hayate", True, True]


DEEP = """
function down(int $n): array { return array_map('down', [$n + 1]); }
class Text { public function __toString(): string { return strtoupper($this); } }
class Json implements JsonSerializable { public function jsonSerialize(): mixed { return json_encode(new self, 0, PHP_INT_MAX >> 33); } }
$deep = [
    'call' => fn () => down(0),
    'text' => fn () => (string) new Text,
    'json' => fn () => json_encode(new Json),
    'compile' => fn () => eval('return ' . str_repeat('$a . ', 100000) . '1;'),
    'fiber' => fn () => (new Fiber(fn () => down(0)))->start(),
];
while (hayate_handle_request(function () use ($deep) {
    $run = $deep[$_GET['deep'] ?? ''] ?? fn () => null;
    $caught = isset($_GET['caught']);
    try { $run(); } catch (Error $e) { if (!$caught) { throw $e; } echo get_class($e), ': ', $e->getMessage(), "\\n"; }
    echo ini_get('zend.max_allowed_stack_size'), ' served';
})) {}
"""
DEPTHS = [f"/?deep={kind}{how}" for kind in ("call", "text", "json", "fiber", "compile") for how in ("&caught", "")]


if VERSION >= (8, 3):

    @pytest.mark.parametrize("limit", ["0", "256K"])
    @modes.each_mode
    def test_a_recursion_that_is_too_deep_ends_as_under_php_fpm(rewind: str, boot: str, limit: str, place: pathlib.Path) -> None:
        """Since 8.3 before the stack is used up: at the limit that PHP finds out by itself (0) or is told. Nobody dies of it, and the next
        request is served."""
        modes.write(place, DEEP)
        # Its trace has a line for each level: php-fpm writes what it logs among the answer, which is more than nginx bears.
        ini = {"zend.max_allowed_stack_size": limit, "xdebug.mode": "off", "log_errors": "0"}

        def ask(server: Server, target: str) -> tuple[int, str]:
            answer = requests.get(server.url + target, timeout=60)
            # The trace of an error ends in the script that includes this one under php-fpm.
            return answer.status_code, re.sub(r"Stack trace:.*", "", answer.text, flags=re.DOTALL)

        with modes.php_fpm(place, ini=ini) as reference:
            expected = {target: ask(reference, target) for target in ("/", *DEPTHS)}
        reached = "Maximum call stack size of 212992 bytes" if limit != "0" else "Maximum call stack size of "
        assert reached in expected["/?deep=call&caught"][1] and expected["/?deep=call&caught"][1].endswith(f"{limit} served"), expected
        for target in DEPTHS:
            assert "Maximum call stack size of " in expected[target][1], (target, expected[target])
        assert expected["/"] == (200, f"{limit} served")
        flags = [flag for name, value in ini.items() for flag in ("--ini", f"{name}={value}")]
        verified = ["--rewind-verify", "1"] if rewind == "on" else []
        with modes.hayate(place, rewind, boot, workers=1, args=(*flags, *verified)) as server:
            for target in DEPTHS:
                assert (target, ask(server, target)) == (target, expected[target])
                assert ask(server, "/") == expected["/"], target
            assert server.status()["apps"][0]["restarts"] == {}


def test_a_closure_that_asks_for_a_variable_by_any_name_is_compiled_at_the_boot(place: pathlib.Path) -> None:
    """Found with PHP 8.4 on 2026-11-27, whose closures have no name when they are compiled: the host ended by SIGSEGV."""
    made = sites.unbuilt_symfony(place)
    kernel = made.root / "src/Kernel.php"
    end = kernel.read_text().rindex("}")
    closures = "fn (string $name) => $_SERVER[$name] ?? null, function (string $name) { return isset($_SERVER[$name]); }"
    kernel.write_text(kernel.read_text()[:end] + f"    public static function read(): array {{ return [{closures}]; }}\n}}\n")
    sites.build_symfony(made)
    with sites.server("rewind", made, workers=1) as server:
        assert requests.get(server.url + "/json", timeout=60).json() == {"status": "OK"}
        (app,) = server.status()["apps"]
        assert app["mode"] == "worker" and app["fallback"] is None
