"""What PHP's versions differ in, rewound: generators that they keep, lazy objects, property hooks, calls without a frame, exit()."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator

import pytest
import requests

from lib.process import temporary_directory
from lib.servers import PHP_VERSION

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
