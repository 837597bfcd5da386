"""Regular expressions that the application's code names are compiled when it has booted, not by each visitor anew."""

from __future__ import annotations

import pathlib

import pytest
import requests

from lib.servers import Hayate

# How many patterns PCRE keeps: in PHP's globals of PCRE a table comes first, with the number of its elements after 28 bytes.
WORKER = r"""<?php
namespace Site;
$known = \FFI::cdef('extern uint32_t pcre_globals[8];');
class Paths
{
    public static function taken(string $path): bool
    {
        return preg_match('~^/other/taken~', $path) === 1;
    }

    public function others(string $path): string
    {
        $in_closure = fn () => \preg_split('~/+~', $path);
        $several = preg_replace(['~one~', '~two~'], '', $path);
        return implode(' ', $in_closure()) . $several . preg_replace_callback('~[aeiou]~', fn ($found) => '', $path);
    }
}
/* Not a pattern: nobody hears of it until it is used. */
function wrong(): bool|int
{
    return \preg_match('~(~', 'x');
}
set_error_handler(function (int $type, string $message): bool {
    echo $message;
    return true;
});
while (hayate_handle_request(function () use ($known) {
    $path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
    echo error_get_last()['message'] ?? 'no error', ', ', preg_last_error_msg(), '; ';
    $before = $known->pcre_globals[7];
    if ($path === '/other') {
        Paths::taken($path);
        (new Paths())->others($path);
    } elseif ($path === '/computed') {
        preg_match('~' . strlen($path) . '~', $path);
    } elseif ($path === '/wrong') {
        wrong();
    }
    echo $known->pcre_globals[7] - $before;
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize("warmup", ["off", "/"])
def test_no_visitor_compiles_what_the_code_names(tmp_path: pathlib.Path, rewind: str, warmup: str) -> None:
    (tmp_path / "worker.php").write_text(WORKER)
    args = ["--rewind", rewind, "--warmup", warmup, "--rewind-verify", "1"]
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1, ini={"ffi.enable": "1"}, args=args) as server:

        def get(path: str) -> str:
            return requests.get(server.url + path, timeout=60).text

        for _ in range(3):
            assert get("/other") == "no error, No error; 0", "classes, closures, arrays of patterns"
            assert get("/computed") == "no error, No error; 1", "what is put together in a request is its own"
            assert get("/wrong").startswith("no error, No error; preg_match(): Compilation failed: ")
        (app,) = server.status()["apps"]
        assert app["restarts"] == {} and app["fallback"] is None
