"""What the boot opened and reads on in requests: directories, iterators, files with a position. Each request has it as
it was at the end of the boot, whoever else reads meanwhile."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from lib.process import wait_until

from . import modes

SCRIPT = r"""
$dir = __DIR__.'/entries';
$unread = opendir($dir);
$begun = opendir($dir);
$first = [readdir($begun), readdir($begun), readdir($begun)];
$over = opendir($dir);
while (readdir($over) !== false) {
}
$object = dir($dir);
$object->read();
$iterator = new DirectoryIterator($dir);
$iterator->next();
$recursive = new RecursiveDirectoryIterator($dir, FilesystemIterator::SKIP_DOTS);
$names = new GlobIterator($dir.'/entry1*');
$glob = opendir('glob://'.$dir.'/entry2*');
readdir($glob);
$names_of = static function ($handle): array {
    $names = [];
    while (($name = readdir($handle)) !== false) {
        $names[] = $name;
    }
    return $names;
};
$append = fopen(__DIR__.'/append', 'a+');
fseek($append, 6);
$read = fopen(__DIR__.'/append', 'r');
fgets($read);
while (hayate_handle_request(function () use (
    $unread, $begun, $first, $over, $object, $iterator, $recursive, $names, $glob, $names_of, $append, $read
) {
    $rest = $names_of($begun);
    rewinddir($begun);
    $again = $names_of($begun);
    $all = $names_of($unread);
    rewinddir($over);
    $of_object = [];
    while (($name = $object->read()) !== false) {
        $of_object[] = $name;
    }
    $object->rewind();
    $left = [];
    for ($at = $iterator->getFilename(); $iterator->valid(); $iterator->next()) {
        $left[] = (string) $iterator;
    }
    $whole = [];
    foreach ($iterator as $file) {
        $whole[] = (string) $file;
    }
    echo json_encode([
        'partly read: the rest' => count($rest), 'none twice' => array_values(array_intersect($first, $rest)),
        'partly read: again' => $again, 'not read' => $all, 'read to the end' => $names_of($over),
        'dir()' => count($of_object), 'dir() again' => $object->read() !== false,
        'DirectoryIterator: the rest' => count($left), 'DirectoryIterator' => $whole,
        'recursive' => array_keys(iterator_to_array($recursive)),
        'GlobIterator' => count($names), 'glob' => count($names_of($glob)),
        'a+' => [ftell($append), fgets($append), ftell($append)], 'r' => [ftell($read), fgets($read)],
    ]);
})) {
}
"""


@pytest.fixture
def site(directory: pathlib.Path) -> pathlib.Path:
    modes.write(directory, SCRIPT)
    (directory / "entries").mkdir()
    for n in range(300):
        (directory / "entries" / f"entry{n:03}").touch()
    (directory / "append").write_text("line 1\nline 2\nline 3\n" * 1000)
    (directory / "append").chmod(0o666)
    return directory


@modes.each_mode
def test_directories_and_positions_of_the_boot_belong_to_each_request(site, rewind, boot) -> None:
    with modes.php_fpm(site) as fpm:
        expected = json.loads(modes.get(fpm))
    assert len(expected["partly read: again"]) == 302 and expected["none twice"] == []
    with modes.hayate(site, rewind, boot, args=("--rewind-verify", "10")) as server:
        answers = [json.loads(answer) for answer in modes.many(server, 80)]
        app = modes.application(server)
    wrong = [answer for answer in answers if answer != expected]
    assert not wrong, {key: (value, wrong[0][key]) for key, value in expected.items() if value != wrong[0][key]}
    assert app["boot"] == boot and app["restarts"] == {}, app
    assert app["fallback"] is None


NEW_ENTRY = r"""
$unread = opendir(__DIR__.'/entries');
while (hayate_handle_request(function () use ($unread) {
    for ($n = 0; readdir($unread) !== false; $n++);
    rewinddir($unread);
    for ($again = 0; readdir($unread) !== false; $again++);
    echo "$n $again";
})) {
}
"""


@modes.each_mode
def test_what_is_new_in_a_directory_is_listed(directory, rewind, boot) -> None:
    modes.write(directory, NEW_ENTRY)
    (directory / "entries").mkdir()
    with modes.hayate(directory, rewind, boot, workers=2) as server:
        for n in range(12):
            assert set(modes.many(server, 4)) == {f"{n + 2} {n + 2}"}
            (directory / "entries" / str(n)).touch()


MANY = r"""
$files = [];
for ($n = 0; $n < (int) getenv('FILES'); $n++) {
    $files[] = $file = fopen(__DIR__.'/append', $n % 2 ? 'r' : 'a+');
    fseek($file, $n % 5);
}
while (hayate_handle_request(function () use ($files) {
    $wrong = 0;
    foreach ($files as $n => $file) {
        $wrong += fread($file, 1) !== (string) ($n % 5);
    }
    fclose($files[count($files) - 1]);
    echo count($files), ' ', $wrong;
})) {
}
"""


@pytest.mark.parametrize("files", [400, 1100])
@modes.each_mode
def test_no_number_of_files_of_the_boot_is_too_large(directory, rewind, boot, files) -> None:
    """400: positions of all of them are put back. 1,100: the same, above what select() can watch."""
    modes.write(directory, MANY)
    (directory / "append").write_text("0123456789")
    (directory / "append").chmod(0o666)
    args = ("--env", f"FILES={files}", "--rewind-verify", "1")
    with modes.hayate(directory, rewind, boot, workers=2, args=args) as server:
        assert set(modes.many(server, 30, at_once=4)) == {f"{files} 0"}
        app = modes.application(server)
    assert app["boot"] == boot and app["restarts"] == {} and app["fallback"] is None
    assert (app["rewind"]["tracking"] == "fork") == (rewind == "fork")


LEFT_BEHIND = r"""
$libc = FFI::cdef('int fork(); void _exit(int); int usleep(unsigned);');
$file = fopen(__DIR__.'/lines', 'r');
$entries = opendir(__DIR__.'/entries');
while (hayate_handle_request(function () use ($libc, $file, $entries) {
    if (isset($_GET['fork'])) {
        if ($libc->fork() === 0) {
            file_put_contents(__DIR__.'/child', getmypid());
            for ($n = 0; $n < 100000 && !file_exists(__DIR__.'/stop'); $n++) {
                fseek($file, 0, SEEK_END);
                readdir($entries);
                rewinddir($entries);
                $libc->usleep(200);
            }
            $libc->_exit(0);
        }
        return;
    }
    for ($read = 0; ($text = fread($file, 8192)) !== ''; $read += strlen($text)) {
        $libc->usleep(1000);
    }
    for ($n = 0; readdir($entries) !== false; $n++) {
        $n % 200 === 0 && $libc->usleep(1000);
    }
    echo "$read $n";
})) {
}
"""


def test_what_a_forked_child_of_a_request_reads_moves_nobody_else(directory) -> None:
    """With a fork for each request: one that its own child outlives shares what was open with nobody who comes later."""
    modes.write(directory, LEFT_BEHIND)
    directory.chmod(0o777)
    (directory / "lines").write_text("0123456789" * 10000)
    (directory / "entries").mkdir()
    for n in range(2000):  # more than one call of getdents() lists
        (directory / "entries" / f"entry{n:04}").touch()
    with modes.hayate(directory, "fork", "shared", workers=1) as server:
        modes.get(server, "fork=1")
        assert wait_until((directory / "child").exists)
        answers = {modes.get(server) for _ in range(20)}
        os.kill(int((directory / "child").read_text()), 0)  # it has read to this moment
        (directory / "stop").touch()
    assert answers == {"100000 2002"}
