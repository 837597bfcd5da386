"""Where there is no room to put something back that the boot has, the application is not rewound, and says so: no table is full in silence."""

from __future__ import annotations

import pathlib
import resource
import subprocess
from collections.abc import Iterator

import pytest

from . import modes

each_rewind = pytest.mark.parametrize("rewind", ["on", "fork"])

#: A hundred files, of which each request reads on; and what the kernel says of how they are open.
FILES = r"""
if (getenv('LIMIT')) {
    $most = FFI::new('unsigned long[2]');
    [$most[0], $most[1]] = [(int) getenv('LIMIT'), (int) getenv('LIMIT')];
    FFI::cdef('int setrlimit(int, const unsigned long *);')->setrlimit(7, $most);
}
$files = [];
for ($n = 0; $n < 100; $n++) {
    $files[] = $file = fopen(__DIR__ . '/digits', 'r');
    fseek($file, $n % 5);
}
while (hayate_handle_request(function () use ($files) {
    $wrong = $waiting = 0;
    foreach ($files as $n => $file) {
        $wrong += fread($file, 1) !== (string) ($n % 5);
    }
    foreach (scandir('/proc/self/fdinfo') as $n) {
        $info = @file_get_contents("/proc/self/fdinfo/$n");
        $waiting += @readlink("/proc/self/fd/$n") === __DIR__ . '/digits' && octdec(preg_replace('/.*flags:\s*(\d+).*/s', '$1', $info)) & 04000 ? 1 : 0;
    }
    foreach ($files as $file) {
        stream_set_blocking($file, false);
    }
    echo "$wrong $waiting";
})) {
}
"""


def front_controller(directory: pathlib.Path) -> None:
    """By it the application can be served in classic mode."""
    (directory / "index.php").write_text("<?php echo 'classic';")


def declined(server: modes.Hayate) -> str:
    """Why the application is served in classic mode; the log has it, too."""
    assert {modes.get(server) for _ in range(4)} == {"classic"}
    app = modes.application(server)
    assert app["mode"] == "classic" and app["fallback"]["to"] == "classic", app
    why = app["fallback"]["why"]
    assert server.logged(why[:100])
    return why


@each_rewind
@pytest.mark.parametrize("limit", [None, 400, 200])
def test_a_limit_of_open_files_that_is_too_small(limit: int | None, rewind: str, directory: pathlib.Path) -> None:
    """What cannot be open twice would keep the flags, and with forks the place, that a request has left."""
    modes.write(directory, FILES)
    front_controller(directory)
    (directory / "digits").write_text("0123456789" * 1000)
    args = () if limit is None else ("--env", f"LIMIT={limit}")
    with modes.hayate(directory, rewind, "shared", workers=1, args=args) as server:
        if limit == 200:
            why = declined(server)
            assert "the limit of open files is 200" in why and "LimitNOFILE" in why
        else:
            assert [modes.get(server) for _ in range(5)] == ["0 0"] * 5
            app = modes.application(server)
            assert app["fallback"] is None and app["restarts"] == {}, app


SEMAPHORES = r"""
$key = (int) file_get_contents(__DIR__ . '/key');
$sets = [];
for ($n = (int) getenv('COUNT'); $n > 0; $n--) {
    $sets[] = sem_get($key + $n);
}
while (hayate_handle_request(function () use ($sets) { echo json_encode(sem_acquire($sets[0])); })) {
}
"""


@pytest.fixture
def semaphores(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    key = 0x4D600000 | (hash(str(directory)) & 0xFFFF)
    (directory / "key").write_text(str(key))
    modes.write(directory, SEMAPHORES)
    front_controller(directory)
    yield directory
    made = subprocess.run(["ipcs", "-s"], check=True, capture_output=True, text=True).stdout
    for n in range(1000):
        if f"{key + n:#010x}" in made:
            subprocess.run(["ipcrm", "-S", hex(key + n)], check=False, capture_output=True)


@each_rewind
def test_many_semaphores_of_the_boot(rewind: str, semaphores: pathlib.Path) -> None:
    """Which requests take and leave to their end to give back."""
    with modes.hayate(semaphores, rewind, "shared", args=("--env", "COUNT=100")) as server:
        assert set(modes.many(server, 60)) == {"true"}
        assert modes.application(server)["fallback"] is None and modes.application(server)["restarts"] == {}


@each_rewind
def test_more_semaphores_than_can_be_known(rewind: str, semaphores: pathlib.Path) -> None:
    """Whether it holds one of them nobody could say."""
    with modes.hayate(semaphores, rewind, "shared", workers=2, args=("--env", "COUNT=600")) as server:
        assert "more System V semaphores than" in declined(server)


WRITTEN = r"""
$files = [];
for ($n = 0; $n < 2100; $n++) {
    $files[] = fopen(__DIR__ . "/written/$n", 'a');
}
while (hayate_handle_request(function () { echo 'worker'; })) {
}
"""


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 8192, reason="wants a limit of 8192 open files")
@each_rewind
def test_more_files_that_are_written_to_than_can_be_noted(rewind: str, directory: pathlib.Path) -> None:
    modes.write(directory, WRITTEN)
    front_controller(directory)
    (directory / "written").mkdir()
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert "2100 files open for writing" in declined(server)
