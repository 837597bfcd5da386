"""Who has the answer finds what its request held given up: locks, half-read statements. As under php-fpm.

And what only objects of the boot hand in when they are freed: cookies of a cURL handle; an archive, which cannot.
"""

from __future__ import annotations

import http.server
import pathlib
import threading
import zipfile
from collections.abc import Iterator

import pytest

from lib.servers import ROOT

from . import modes

#: The slow stream is closed first: what was opened last. Without an order, everything else is still held for so long.
SCRIPT = """
final class Slow
{
    public $context;
    public function stream_open(): bool { return true; }
    public function stream_write(string $data): int { return strlen($data); }
    public function stream_close(): void { usleep(400_000); }
}
stream_wrapper_register('slow', Slow::class);
$dir = __DIR__;
$database = new PDO("sqlite:$dir/rows.db");
$database->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY)');
$insert = $database->prepare('INSERT INTO t DEFAULT VALUES RETURNING n');
$handle = fopen("$dir/boot.lock", 'a');
$held = fopen("$dir/held.lock", 'a');
flock($held, LOCK_EX);
while (hayate_handle_request(function () use ($dir, $insert, $handle): void {
    if (isset($_GET['take'])) {
        $GLOBALS['own'] = fopen("$dir/own.lock", 'c+');
        flock($GLOBALS['own'], LOCK_EX);
        flock($handle, LOCK_EX);
        $insert->execute();
        echo 'number ', $insert->fetchColumn();
        $GLOBALS['slow'] = fopen('slow://', 'w');
        return;
    }
    $other = fopen("$dir/boot.lock", 'c+');
    $own = fopen("$dir/own.lock", 'c+');
    echo json_encode([
        flock($own, LOCK_EX | LOCK_NB),
        flock($other, LOCK_EX | LOCK_NB),
        (new PDO("sqlite:$dir/rows.db"))->query('SELECT COUNT(*) FROM t')->fetchColumn(),
    ]);
})) {
}
"""


@pytest.fixture
def site(directory: pathlib.Path) -> pathlib.Path:
    modes.write(directory, SCRIPT)
    return directory


def check(server: modes.Hayate | modes.NginxFpm) -> None:
    for n in (1, 2, 3):
        assert modes.get(server, "take") == f"number {n}"
        assert modes.get(server) == f"[true,true,{n}]"


def test_as_under_php_fpm(site: pathlib.Path) -> None:
    with modes.php_fpm(site) as server:
        check(server)


@modes.each_mode
def test_what_was_held_is_given_up_before_the_answer_is_complete(site: pathlib.Path, rewind: str, boot: str) -> None:
    with modes.hayate(site, rewind, boot, user="www-data" if ROOT else None) as server:
        check(server)
        # With forks the worker itself waits for its child, so the next request goes to another one in any case.
        assert modes.application(server)["restarts"] == {}


COOKIES = """
$curl = curl_init();
curl_setopt_array($curl, [
    CURLOPT_URL => getenv('SINK'), CURLOPT_RETURNTRANSFER => true,
    CURLOPT_COOKIEFILE => __DIR__ . '/jar', CURLOPT_COOKIEJAR => __DIR__ . '/jar',
]);
while (hayate_handle_request(function () use ($curl): void {
    curl_setopt($curl, CURLOPT_URL, getenv('SINK') . '?' . $_GET['visitor']);
    echo curl_exec($curl);
})) {
}
"""


@pytest.fixture
def sink() -> Iterator[str]:
    """Gives each visitor a cookie, and says which ones came."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            visitor = self.path.partition("?")[2]
            cookies = self.headers.get("Cookie", "")
            body = " ".join(sorted(cookies.split("; "))).encode()
            self.send_response(200)
            self.send_header("Set-Cookie", f"{visitor}=here; Max-Age=3600")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def visits(server: modes.Hayate | modes.NginxFpm) -> list[str]:
    return [modes.get(server, f"visitor={visitor}") for visitor in ("Ada", "Grace", "Joan", "Mary")]


@pytest.mark.parametrize("rewind", ["php-fpm", "on", "fork"])
def test_cookies_of_a_handle_of_the_boot_are_kept(directory: pathlib.Path, sink: str, rewind: str) -> None:
    modes.write(directory, COOKIES)
    if rewind == "php-fpm":
        server = modes.NginxFpm(directory, index="worker.php", ini={**modes.INI, **modes.ONCE}, workers=2, fpm={"env[SINK]": f'"{sink}"'})
    else:
        server = modes.hayate(directory, rewind, "shared", args=("--env", f"SINK={sink}"), user="www-data" if ROOT else None)
    with server:
        assert visits(server) == ["", "Ada=here", "Ada=here Grace=here", "Ada=here Grace=here Joan=here"]


JARS = """
[$jar, $handles] = [__DIR__ . '/jar', []];
foreach ([0, 1] as $i) {
    $handles[] = $handle = curl_init();
    curl_setopt_array($handle, [CURLOPT_COOKIEFILE => '', CURLOPT_COOKIEJAR => $jar, CURLOPT_URL => 'file:///dev/null']);
}
unset($handle);
while (hayate_handle_request(function () use ($jar, $handles): void {
    foreach ($handles as $i => $handle) {
        curl_setopt($handle, CURLOPT_COOKIELIST, "Set-Cookie: of-$i=here; domain=example.org; expires=Fri, 01 Jan 2100 00:00:00 GMT");
        curl_exec($handle); // libcurl 8.23 writes no jar for a handle that has transferred nothing
    }
    echo is_file($jar) ? preg_match_all('/of-[01]/', file_get_contents($jar), $found) . ' ' . implode(' ', $found[0]) : 'none';
})) {
}
"""


@pytest.mark.parametrize("rewind", ["php-fpm", "on", "fork"])
def test_of_two_handles_with_one_jar_the_first_is_freed_last(directory: pathlib.Path, rewind: str) -> None:
    modes.write(directory, JARS)
    user = "www-data" if ROOT else None
    server = modes.php_fpm(directory) if rewind == "php-fpm" else modes.hayate(directory, rewind, "shared", user=user)
    with server:
        assert [modes.get(server) for _ in range(3)] == ["none", "1 of-0", "1 of-0"]


ARCHIVE = """
$archive = new ZipArchive();
$archive->open(__DIR__ . '/names.zip', ZipArchive::CREATE);
if (getenv('CLOSED')) {
    $archive->close();
}
while (hayate_handle_request(function () use ($archive): void {
    getenv('CLOSED') && $archive->open(__DIR__ . '/names.zip', ZipArchive::CREATE);
    $archive->addFromString($_GET['visitor'], 'here');
    echo $archive->count();
})) {
}
"""


@pytest.mark.parametrize("closed", ["", "1"])
def test_an_archive_that_the_boot_leaves_open_is_not_rewound(directory: pathlib.Path, closed: str) -> None:
    modes.write(directory, ARCHIVE)
    # The front controller, for classic mode: the same without the loop.
    (directory / "index.php").write_text("<?php" + ARCHIVE.replace("while (hayate_handle_request(", "(").replace(")) {\n}", ")();"))
    args = ("--env", f"CLOSED={closed}") if closed else ()
    with modes.hayate(directory, "on", "shared", args=args, user="www-data" if ROOT else None) as server:
        path = f"{server.url}/index.php"
        answers = [modes.requests.get(path, params={"visitor": v}, timeout=60).text for v in ("Ada", "Grace", "Joan")]
        assert answers == ["1", "2", "3"]
        app = modes.application(server)
        if closed:
            assert app["fallback"] is None and app["restarts"] == {}
        else:
            assert app["fallback"]["to"] == "classic" and "left the archive" in app["fallback"]["why"], app
    assert sorted(zipfile.ZipFile(directory / "names.zip").namelist()) == ["Ada", "Grace", "Joan"]
