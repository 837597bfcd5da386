"""An application that keeps the first request in the process boots without warm-up: no visitor gets a page of the warm-up (D18).

And one that keeps nothing of it is not taken for one that does.
"""

from __future__ import annotations

import pathlib
import subprocess

import pytest
import requests

from lib.servers import Hayate, hayate_binary

#: As Slim 3: a container makes each service once, the request among them, and `$app->run()` in the handler takes it from there.
CONTAINER = """
final class Container {
    private array $made = [];
    public function __construct(private array $makers) {}
    public function get(string $id) { return $this->made[$id] ??= ($this->makers[$id])($this); }
}
final class Request {
    public static function capture(): self { return new self(strtok($_SERVER['REQUEST_URI'], '?'), $_GET, $_SERVER['HTTP_HOST']); }
    public function __construct(public string $path, public array $query, public string $host) {}
}
$container = new Container(['request' => fn () => Request::capture()]);
"""
ROUTES = """
    if ($request->path === '/') { echo '<h1>The front page</h1>'; }
    elseif ($request->path === '/about') { echo '<h1>About us</h1>'; }
    else { http_response_code(404); echo '<h1>There is no ', htmlspecialchars($request->path), '</h1>'; }
"""
#: What keeps a request, by how it shows.
KEEPS = {
    "the whole request": (CONTAINER, "$request = $container->get('request');" + ROUTES),
    "the page": ("", "static $page; echo $page ??= '<p>page for '.$_SERVER['REQUEST_URI'].'</p>';"),
    "the path in a link": (
        CONTAINER,
        "$r = $container->get('request'); echo str_repeat('<p>much that is the same</p>', 200), '<link href=\"', $r->path, '\">';",
    ),
    "the query": (CONTAINER, "echo 'you asked for ', http_build_query($container->get('request')->query) ?: 'nothing';"),
    "the host": (CONTAINER, "echo 'https://', $container->get('request')->host, '/';"),
    "the port": (CONTAINER, "echo 'https://', strpbrk($container->get('request')->host, ':') ?: 'no port';"),
    "the language": ("", "static $language; echo $language ??= $_SERVER['HTTP_ACCEPT_LANGUAGE'] ?? 'no language';"),
    "the cookies": ("", "static $visitor; echo $visitor ??= $_COOKIE === [] ? 'for the first time' : 'welcome back';"),
    "a redirect": (CONTAINER, "header('Location: http://'.$container->get('request')->host.'/login');"),
    "a session": ("class Session { static $id; }", "if (!Session::$id) { setcookie('visitor', Session::$id = bin2hex(random_bytes(8))); } echo 'hello';"),
    "a failure": ("", "static $n = 0; if (++$n > 3) { throw new Exception('no more'); } echo 'fine';"),
    "a status": ("", "static $n = 0; if (++$n > 3) { http_response_code(500); } echo 'fine';"),
    "a death": ("", "static $n = 0; if (++$n > 3) { posix_kill(getmypid(), 9); } echo 'fine';"),
    # As an application of plain scripts whose front controller the handler includes.
    "files included once": ("", "require_once __DIR__.'/page.php';"),
    "amid noise": (
        CONTAINER,
        "echo 'token ', bin2hex(random_bytes(8)), ' at ', microtime(), ' ', ['red', 'green', 'blue', 'black'][random_int(0, 3)], "
        "' for ', $container->get('request')->path;",
    ),
}
#: What differs between two requests, or between the first one in a process and the others, and is right.
HARMLESS = {
    "nothing": ("", "echo '{\"status\": \"OK\"}';"),
    "routes": (CONTAINER, "$request = Request::capture();" + ROUTES),
    "a counter": ("", "static $n = 0; echo 'handled ', ++$n, ' with ', memory_get_usage(), ' in ', getmypid();"),
    "tokens": ("", "setcookie('sid', bin2hex(random_bytes(16))); echo '<input value=\"', base64_encode(random_bytes(32)), '\">', uniqid();"),
    "quotations": ("", "$words = range('a', 'z'); shuffle($words); echo 'quote ', implode(' of ', array_slice($words, 0, 5));"),
    "the time": ("", "header('Last-Modified: '.gmdate('D, d M Y H:i:s').' GMT'); echo date('r'), ' ', hrtime(true);"),
    "a cache": (
        "",
        "$file = __DIR__.'/cache/'.md5($_SERVER['HTTP_HOST'].$_SERVER['REQUEST_URI']); echo is_file($file) ? 'cached' : 'rendered'; touch($file);",
    ),
    "a limit": (
        "",
        "file_put_contents(__DIR__.'/cache/visits', '.', FILE_APPEND); if (filesize(__DIR__.'/cache/visits') > 7) { http_response_code(429); } echo 'x';",
    ),
    "sessions": ("", "session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo 'visit ', $_SESSION['n'];"),
    "errors": ("", "if ($_SERVER['REQUEST_URI'] !== '/') { throw new Exception('missing'); } echo 'x';"),
    "exits": ("", "echo 'x'; exit;"),
    "fatal errors": ("", "if ($_SERVER['REQUEST_URI'] !== '/') { missing(); } echo 'x';"),
    "classes loaded": ("", "echo class_exists('ArrayObject') ? 'yes' : 'no', ' ', count(get_included_files());"),
    "finished answers": ("", "echo 'x'; fastcgi_finish_request(); static $n = 0; $n++; echo str_repeat('later ', $n);"),
    "files of the boot": ("$file = fopen(__FILE__, 'r');", "global $file; rewind($file); echo rtrim(fgets($file)), ftell($file);"),
}
PRIVATE = "$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);"
MODES = ["on", "fork", "private"]
#: In every mode; the others where they are fastest.
EVERYWHERE = {"the whole request", "the host", "amid noise", "a counter", "quotations", "fatal errors", "finished answers", "files of the boot"}


def cases(of: dict[str, tuple]) -> list[tuple[str, str]]:
    return [(what, mode) for what in of for mode in (MODES if what in EVERYWHERE else MODES[:1])]


def start(directory: pathlib.Path, boot: str, handler: str, mode: str, *args: str) -> Hayate:
    private = PRIVATE if mode == "private" else ""
    (directory / "cache").mkdir()
    (directory / "cache").chmod(0o777)
    (directory / "page.php").write_text("<?php echo 'page of ', $_SERVER['REQUEST_URI'];")
    (directory / "worker.php").write_text(
        f"<?php\n{private}\n{boot}\n$handler = function () use (&$container) {{\n{handler}\n}};\nwhile (hayate_handle_request($handler)) {{}}\n"
    )
    rewind = "on" if mode == "private" else mode
    return Hayate(directory, worker=directory / "worker.php", workers=2, args=["--rewind", rewind, *args])


@pytest.mark.parametrize(("what", "mode"), cases(KEEPS))
def test_what_keeps_a_request_boots_without_warm_up(tmp_path, what, mode) -> None:
    def pages(server: Hayate) -> list[tuple]:
        answers = []
        for path in ["/", "/about", "/hello?page=two", "/"]:
            for host in ("a.test", "b.test:81"):
                answer = requests.get(server.url + path, headers={"Host": host}, timeout=60, allow_redirects=False)
                text = "path" if what == "amid noise" and answer.text.endswith(f" for {path.partition('?')[0]}") else answer.text
                answers.append((answer.status_code, answer.headers.get("Location"), len(answer.cookies), text))
        return answers

    with start(tmp_path, *KEEPS[what], mode) as server:
        (app,) = server.status()["apps"]
        assert app["boot"] == ("private" if mode == "private" else "shared")
        assert app["cold_boot"] and app["cold_boot"].startswith("after the warm-up requests http://"), app["cold_boot"]
        assert server.logged("since visitors would get wrong pages with them: after the warm-up")
        assert f"booted without warm-up requests: {app['cold_boot']}" in server.run("status").stdout
        assert server.logged(f"without warm-up requests: {app['cold_boot']}")
        right = pages(server)
    (tmp_path / "cache").rmdir()
    with start(tmp_path, *KEEPS[what], mode, "--warmup", "off") as server:
        assert pages(server) == right
        assert server.status()["apps"][0]["cold_boot"] is None
    assert all(status != 500 for status, *_ in right)


@pytest.mark.parametrize(("what", "mode"), cases(HARMLESS))
def test_what_keeps_none_is_not_suspected(tmp_path, what, mode) -> None:
    with start(tmp_path, *HARMLESS[what], mode) as server:
        assert requests.get(server.url, timeout=60).status_code in (200, 429)
        (app,) = server.status()["apps"]
        assert (app["cold_boot"], app["fallback"], app["restarts"]) == (None, None, {}), server.log()
        assert app["boot"] == ("private" if mode == "private" else "shared")
        assert "missing" not in server.log(), "what such a request logs is nobody's"


def test_nothing_of_the_comparison_stays(tmp_path) -> None:
    """It is seen as what it is, runs in processes of its own, and leaves neither state nor processes nor descriptors."""
    handler = """
        static $n = 0;
        $n++;
        $kind = isset($_SERVER['HAYATE_WARMUP']) ? 'warm-up' : (isset($_SERVER['HAYATE_COMPARISON']) ? 'compared' : 'visitor');
        file_put_contents(__DIR__.'/cache/log', "$kind $n ".getmypid()." $_SERVER[REQUEST_METHOD] $_SERVER[REQUEST_URI]\\n", FILE_APPEND);
        echo json_encode(['n' => $n, 'open' => count(scandir('/proc/self/fd')), 'maps' => substr_count(file_get_contents('/proc/self/maps'), '/dev/zero')]);
    """
    answers = []
    for warmup in (["--warmup", "/", "--warmup", "/two"], ["--warmup", "off"]):
        directory = tmp_path / str(len(answers))
        directory.mkdir()
        with start(directory, "", handler, "on", *warmup) as server:
            children = pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
            zygote = server.status()["apps"][0]["zygote"]
            assert str(zygote) in children
            below = pathlib.Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
            assert sorted(map(int, below)) == sorted(worker["pid"] for worker in server.status()["apps"][0]["workers"])
            answers.append(requests.get(server.url, timeout=60).json())
    assert (answers[0].pop("n"), answers[1].pop("n")) == (3, 1) and answers[0] == answers[1]
    lines = [line.split() for line in (tmp_path / "0/cache/log").read_text().splitlines()]
    kinds = [line[0] for line in lines]
    assert kinds.count("warm-up") == 2 and kinds.count("visitor") == 1 and 8 <= kinds.count("compared") <= 12, lines
    compared = [line for line in lines if line[0] == "compared"]
    assert len({line[2] for line in compared}) == len(compared) and {line[1] for line in compared} == {"1", "3"}
    assert {line[4] for line in compared} >= {"/", "/two", "/hayate-comparison/kappa"} and {line[3] for line in lines} == {"GET"}


def test_a_connection_of_the_boot_is_not_used_by_the_comparison_unnoticed(tmp_path) -> None:
    """Both ends of a conversation would lose their place in it."""
    with start(tmp_path, "", "global $pair; fwrite($pair[0], 'x'); echo fread($pair[1], 1);", "private") as server:
        (app,) = server.status()["apps"]
        assert "uses a connection of the boot" in app["cold_boot"]
        assert requests.get(server.url, timeout=60).text == "x"


def test_a_comparison_that_takes_too_long_costs_the_warm_up_only(tmp_path) -> None:
    handler = "if (isset($_SERVER['HAYATE_COMPARISON'])) { posix_kill(posix_getppid(), 9); } echo 'x';"
    with start(tmp_path, "", handler, "on") as server:
        assert "could not go on" in server.status()["apps"][0]["cold_boot"]
        assert requests.get(server.url, timeout=60).text == "x"


BOOT_KEEPS = CONTAINER + "$request = new Request('/', [], ''); // as Request::createFromGlobals() at boot makes it"


@pytest.mark.parametrize("front", [f"<?php {CONTAINER} $request = Request::capture(); {ROUTES}", "<?php echo 'the same';", "<?php missing();", None])
def test_a_request_that_the_boot_keeps_is_told_of(tmp_path, front) -> None:
    """No warm-up is at fault then, and each URL gets one page; whether that is meant, the front controller says."""
    if front is not None:
        (tmp_path / "index.php").write_text(front)
    handler = "global $request; " + ROUTES
    with start(tmp_path, BOOT_KEEPS, handler, "on") as server:
        assert requests.get(server.url + "/about", timeout=60).text == "<h1>The front page</h1>"
        (app,) = server.status()["apps"]
        assert app["cold_boot"] is None
        if front is not None and "Container" in front:
            assert "the worker script answers / and /hayate-comparison-omega?hayate=psi alike" in app["boot_remark"]
            assert app["boot_remark"] in server.run("status").stdout
            assert server.logged("it seems that the boot keeps a request")
        else:
            assert app["boot_remark"] is None, app["boot_remark"]


def test_explain_says_what_was_seen(tmp_path) -> None:
    server = start(tmp_path, *KEEPS["the whole request"], "on")
    done = subprocess.run(
        [str(hayate_binary()), "explain", str(tmp_path), "--worker", str(tmp_path / "worker.php")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    del server
    assert done.returncode == 0 and "is answered as it is not without them: status 200, not 404" in done.stdout, done.stdout
