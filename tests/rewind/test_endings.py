"""A request ends as if it had booted by itself: whatever the boot has left for the end of a script happens in each.

Destructors of the boot's objects in PHP's order, `finally` of what is suspended, shutdown functions, buffers, and what
happens when a request destroys any of it before. php-fpm, which boots for each request, says what is right.
"""

from __future__ import annotations

import gzip
import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import requests

from lib.process import temporary_directory, wait_until
from lib.servers import Hayate, NginxFpm, Server

from . import modes

SITE = pathlib.Path(__file__).parent / "endings"
INI = {"display_errors": "1", "html_errors": "0", "log_errors": "0", "zlib.output_compression": "0"}
KINDS = re.findall(r"case '([a-z ]+)':", (SITE / "worker.php").read_text())
VISITORS = 4


def seen(do: str, body: str) -> str:
    """Without what is not the same where there is no loop: an exception ends the functions on its way, then is shown."""
    return re.sub(r"(?m)^#\d+ .*\n", "", body.replace("[local]", "") if do in ("exception", "error") else body)



@dataclass(frozen=True)
class Ending:
    """What a visitor got, and what its request handed in."""

    status: int
    body: str
    handed_in: str


class Site:
    """A server of the worker script, and what the requests have left in its directory."""

    def __init__(self, server: Server, out: pathlib.Path) -> None:
        self.server = server
        self.out = out

    def visit(self, do: str, n: int = 0, *, expected: Ending | None = None) -> Ending:
        """A client has its answer before streams are closed: waits for what is expected, or else for the only process that serves."""
        record = self.out / "handed-in"
        before = record.stat().st_size if record.exists() else 0
        response = requests.get(self.server.url + "/", params={"do": do, "n": f"visitor {n}"}, timeout=60)

        def ending() -> Ending:
            return Ending(response.status_code, seen(do, response.text), record.read_text()[before:])

        if expected is not None:
            wait_until(lambda: ending() == expected)
        elif isinstance(self.server, Hayate):
            assert wait_until(lambda: [worker["state"] for worker in modes.application(self.server)["workers"]] == ["idle"])
        else:
            assert requests.get(self.server.url + "/idle.php", timeout=60).text == "idle"
        return ending()

    def files(self) -> dict[str, str]:
        return {
            "lines.gz": gzip.decompress((self.out / "lines.gz").read_bytes()).decode(),
            **{name: (self.out / name).read_text() for name in ("filtered", "of-the-boot")},
        }


def new_directory() -> pathlib.Path:
    out = temporary_directory("endings")
    out.chmod(0o777)
    return out


@pytest.fixture(scope="module")
def reference() -> Iterator[Site]:
    out = new_directory()
    with NginxFpm(SITE, index="worker.php", ini={**INI, **modes.ONCE}, workers=1, fpm={"env[OUT]": str(out)}) as fpm:
        yield Site(fpm, out)


MODES = {
    "rewound": ["--rewind", "on", "--rewind-verify", "1", "--warmup", "off"],
    "rewound-warm": ["--rewind", "on", "--rewind-verify", "1", "--warmup", "/"],
    "rewound-warm-thrice": ["--rewind", "on", "--rewind-verify", "1"],
    "fork": ["--rewind", "fork", "--warmup", "/"],
    # What it opens, workers must not share.
    "private": ["--rewind", "on", "--rewind-verify", "1", "--env", "PAIR=1"],
}


@pytest.fixture(scope="module", params=MODES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    out = new_directory()
    args = [*MODES[request.param], "--env", f"OUT={out}"]
    with Hayate(SITE, worker=SITE / "worker.php", workers=1, ini=INI, args=args) as hayate:
        yield Site(hayate, out)
        (app,) = hayate.status()["apps"]
        assert app["restarts"] == {} and app["fallback"] is None and app["cold_boot"] is None
        assert app["boot"] == ("private" if request.param == "private" else "shared")
        before = {path.name: path.read_bytes() for path in out.iterdir()}
    # Workers that leave end no request: there is nobody who would hand in anything.
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("kind", ["nothing", *KINDS])
def test_as_under_php_fpm(kind: str, site: Site, reference: Site) -> None:
    expected = reference.visit(kind)
    for _ in range(2):
        assert site.visit(kind, expected=expected) == expected


def test_a_function_that_the_request_does_not_register_again_is_not_run(site: Site, reference: Site) -> None:
    """Each warm-up request registers it: so it is each request's own business, and this one leaves it."""
    expected = reference.visit("without")
    assert "of each request" not in expected.handed_in
    assert site.visit("without", expected=expected) == expected


def test_what_four_visitors_hand_in_arrives_four_times(site: Site, reference: Site) -> None:
    for one in (reference, site):
        for name in ("lines.gz", "filtered", "of-the-boot"):
            (one.out / name).write_bytes(b"")
        for n in range(VISITORS):
            handed_in = one.visit("lines", n).handed_in
            assert handed_in.count(f"line of visitor {n}\n") == 2, handed_in  # of the buffer and of the slate
            assert handed_in.count(f"task: visitor {n}\n") == 1
        assert one.files()["lines.gz"] == "".join(f"line of visitor {n}\n" for n in range(VISITORS))
    assert site.files() == reference.files()


#: What a boot has begun outside, its shutdown functions end: a closure's, a name's.
BEGUN = """
function leave() { @unlink(__DIR__ . '/pid'); }
$pid = @fopen(__DIR__ . '/pid', 'x');
if ($pid) {
    register_shutdown_function(NAME);
}
UNFIT
while (hayate_handle_request(function () use ($pid) { echo $pid ? 'ok' : 'busy'; })) {
}
"""
UNFIT = {"declined": "", "private": "fclose($pid); $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);"}


@pytest.mark.parametrize("unfit", UNFIT)
@pytest.mark.parametrize("name", ["'leave'", "fn () => leave()"], ids=["name", "closure"])
@pytest.mark.parametrize("warmup", ["off", "/"])
def test_a_boot_that_is_given_up_runs_its_shutdown_functions(warmup: str, name: str, unfit: str, directory: pathlib.Path) -> None:
    """What they undo the next boot does not find."""
    directory.chmod(0o777)
    modes.write(directory, BEGUN.replace("NAME", name).replace("UNFIT", UNFIT[unfit]))
    modes.front_controller(directory)
    with modes.hayate(directory, "on", "shared", workers=1, warmup=warmup) as server:
        assert [modes.get(server) for _ in range(3)] == ["ok"] * 3
        app = modes.application(server)
        assert app["boot"] == "private" if unfit == "private" else app["mode"] == "classic", app


#: A loop that boots the application anew after each request: what that has begun outside ends with it, also when it is given up then.
BOOTED_ANEW = """
function boot() {
    $pid = @fopen(__DIR__ . '/pid', 'x');
    if ($pid) {
        register_shutdown_function(NAME);
    }
    return $pid ? 'ok' : 'busy';
}
function leave() { @unlink(__DIR__ . '/pid'); file_put_contents(__DIR__ . '/left', "left\\n", FILE_APPEND); }
$state = boot();
while (hayate_handle_request(function () { echo $GLOBALS['state']; })) {
    leave();
    $state = boot();
    UNFIT
}
"""
#: Found out by what is left open, before the warm-up is over, or by what it leaves to be handed in.
LEFT = {
    "opened": "$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);",
    "residue": "if (!class_exists('Holds')) { class Holds { public $held = []; function __destruct() {} } } $GLOBALS['h'] ??= new Holds(); $GLOBALS['h']->held[] = 1;",
}


@pytest.mark.parametrize("unfit", LEFT)
@pytest.mark.parametrize("name", ["'leave'", "fn () => leave()"], ids=["name", "closure"])
def test_an_application_that_was_booted_anew_ends_when_it_is_given_up(name: str, unfit: str, directory: pathlib.Path) -> None:
    directory.chmod(0o777)
    modes.write(directory, BOOTED_ANEW.replace("NAME", name).replace("UNFIT", LEFT[unfit]))
    modes.front_controller(directory)
    with modes.hayate(directory, "on", "shared", workers=1, warmup="/") as server:
        assert modes.application(server)["cold_boot"] is not None, modes.application(server)
        assert [modes.get(server) for _ in range(3)] == ["ok"] * 3


SESSION = """
session_save_path(__DIR__);
session_start();
while (hayate_handle_request(function () {
    $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
    echo $_SESSION['n'];
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_boot_that_starts_a_session_is_not_rewound(rewind: str, directory: pathlib.Path) -> None:
    """It belongs to a visitor: under php-fpm each request has its own."""
    directory.chmod(0o777)
    modes.write(directory, SESSION)
    modes.front_controller(directory)
    with modes.hayate(directory, rewind, "shared", workers=2) as server:
        app = modes.application(server)
        assert app["mode"] == "classic" and "the boot started a session" in app["fallback"]["why"], app
        with modes.requests.Session() as visitor:
            assert [visitor.get(server.url, timeout=60).text for _ in range(3)] == ["1", "2", "3"]
        assert modes.get(server) == "1"


@pytest.mark.parametrize("warmup", ["off", "/"])
@pytest.mark.parametrize("rewind", ["on", "fork", "off"])
def test_sessions_that_start_by_themselves_do_so_with_the_request(rewind: str, warmup: str, directory: pathlib.Path) -> None:
    directory.chmod(0o777)
    modes.write(directory, SESSION.replace("session_start();", "$boot = session_status();").replace("function () {", "function () use ($boot) {", 1))
    args = ("--ini", "session.auto_start=1", "--ini", f"session.save_path={directory}")
    with modes.hayate(directory, rewind, "shared", workers=2, warmup=warmup, args=args) as server:
        for _ in range(2):
            with modes.requests.Session() as visitor:
                assert [visitor.get(server.url, timeout=60).text for _ in range(3)] == ["1", "2", "3"]
        assert modes.application(server)["fallback"] is None and modes.application(server)["restarts"] == {}


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_boot_that_writes_to_a_session_is_not_rewound(rewind: str, directory: pathlib.Path) -> None:
    """With session.auto_start: it belongs to a visitor."""
    directory.chmod(0o777)
    modes.write(directory, SESSION.partition("session_start();")[2].join(["$_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;", ""]))
    modes.front_controller(directory)
    args = ("--ini", "session.auto_start=1", "--ini", f"session.save_path={directory}")
    with modes.hayate(directory, rewind, "shared", workers=2, args=args) as server:
        app = modes.application(server)
        assert app["mode"] == "classic" and "the boot started a session" in app["fallback"]["why"], app
        with modes.requests.Session() as visitor:
            assert [visitor.get(server.url, timeout=60).text for _ in range(3)] == ["2", "4", "6"]


PROCESS = """
umask(027);
chdir(__DIR__ . '/of-the-boot');
while (hayate_handle_request(function () {
    isset($_GET['shown']) && print(basename(getcwd()) . ' ' . decoct(umask()));
    umask(0);
    chdir('/');
})) {
    umask(077);
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_warm_up_request_leaves_no_directory_and_no_umask(rewind: str, directory: pathlib.Path) -> None:
    directory.chmod(0o777)
    (directory / "of-the-boot").mkdir()
    modes.write(directory, PROCESS)
    with modes.hayate(directory, rewind, "shared", workers=2, warmup="/") as server:
        assert {modes.get(server, "shown=1") for _ in range(8)} == {"of-the-boot 27"}
        assert modes.application(server)["cold_boot"] is None and modes.application(server)["restarts"] == {}
