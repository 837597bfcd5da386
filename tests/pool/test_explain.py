"""`hayate explain`: what it says of a boot that does what a boot should not, and of requests that cost something."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

import pytest

from apps import sites
from lib import php_extensions
from lib.process import temporary_directory
from lib.servers import hayate_binary

WORKER = """<?php
$started = microtime(true);
$token = random_bytes(8);
$today = date('Y-m-d'); $fixed = date('Y-m-d', 0); $epoch = new DateTimeImmutable('2020-01-01');
$settings = file_get_contents(__DIR__.'/settings "of" mine.json');
$home = getenv('HOME');
mt_srand(); mt_srand(42); $own = new Random\\Engine\\Mt19937(); $seeded = new Random\\Engine\\Mt19937(7); $seeded->generate();
class Thing { public int $n = 0; public array $data = []; }
$things = [];
for ($i = 0; $i < 5000; $i++) { $things[] = $thing = new Thing; $thing->data = [$i, "of $i"]; }
CONNECT
$handler = function () use ($things) {
    if (isset($_GET['walk'])) { foreach ($things as $thing) { $thing->n++; } }
    if (isset($_GET['child'])) { proc_open(['sleep', '5'], [], $pipes); }
    if (isset($_GET['fail'])) { http_response_code(503); }
    if (isset($_GET['load'])) { require __DIR__.'/more.php'; }
    echo count($things), isset($_SERVER['HAYATE_WARMUP']);
};
while (hayate_handle_request($handler)) {
}
"""


def explain(directory: pathlib.Path, *flags: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [str(hayate_binary()), "explain", str(directory), "--ini", "xdebug.mode=off", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stderr
    return done


def reports(directory: pathlib.Path, *flags: str) -> dict:
    (report,) = json.loads(explain(directory, "--json", *flags).stdout)
    return report


@pytest.fixture
def site(tmp_path) -> pathlib.Path:
    tmp_path.chmod(0o755)
    (tmp_path / 'settings "of" mine.json').write_text("{}")
    (tmp_path / "worker.php").write_text(WORKER.replace("CONNECT", ""))
    return tmp_path


def test_what_the_boot_froze(site) -> None:
    worker = site / "worker.php"
    report = reports(site, "--worker", str(worker))
    frozen = {(event["kind"], event["what"]): event for event in report["frozen"]}
    lines = {key: event["at"].removeprefix(f"{worker}:") for key, event in frozen.items()}
    assert lines == {
        ("time", "microtime()"): "2",
        ("random", "random_bytes()"): "3",
        ("time", "date()"): "4",
        ("file", f'{site}/settings "of" mine.json'): "5",
        ("environment", "getenv(HOME)"): "6",
        ("random", "mt_srand()"): "7",
        ("random", "Random\\Engine\\Mt19937::__construct()"): "7",
        ("random", "Random\\Engine\\Mt19937::generate()"): "7",
    }
    assert frozen["random", "mt_srand()"]["count"] == 1, "one that gives no seed freezes nothing"
    assert frozen["time", "date()"]["count"] == 1, "a date of a timestamp, or of a year, is not of the clock"
    assert report["files"] == 1 and 0 < report["script_us"] < report["boot_us"]
    assert report["boot"] == "shared" and any("read the clock" in advice for advice in report["advice"])


DRAWN = {
    "gmp": ["gmp_random_seed(7);", "gmp_random_bits(64);", "gmp_random_range(1, 9);"],
    "uuid": ["uuid_create(UUID_TYPE_TIME);"],
    "mongodb": ["new MongoDB\\BSON\\ObjectId();"],
}


@pytest.mark.parametrize("extension", DRAWN)
def test_what_the_boot_drew_from_an_extension(extension: str, tmp_path: pathlib.Path) -> None:
    """With the line: what was drawn stays the same in each request, though the generators are seeded anew."""
    if not php_extensions.is_there(extension):
        pytest.skip(f"{extension} is not installed")
    tmp_path.chmod(0o755)
    loop = "while (hayate_handle_request(function () { echo 'served'; })) {}"
    (tmp_path / "worker.php").write_text("\n".join(["<?php", *DRAWN[extension], loop]))
    loads = [flag for line in php_extensions.settings([extension]).splitlines() for flag in ("--ini", line)]
    report = reports(tmp_path, "--worker", str(tmp_path / "worker.php"), *loads)
    drawn = {event["at"].rpartition(":")[2]: event["what"] for event in report["frozen"] if event["kind"] == "random"}
    names = [call.removeprefix("new ").partition("(")[0] for call in DRAWN[extension]]
    assert [drawn.get(str(n)) for n in range(2, len(names) + 2)] == [
        f"{name}::__construct()" if call.startswith("new ") else f"{name}()" for name, call in zip(names, DRAWN[extension], strict=True)
    ]


def test_snapshot_warm_up_and_samples(site) -> None:
    flags = ["--worker", str(site / "worker.php"), "--warmup", "/a", "--warmup", "/b?fail=1"]
    report = reports(site, *flags, "--url", "/", "--url", "/?walk=1", "--url", "/?child=1")
    assert [(warm["path"], warm["status"]) for warm in report["warmed"]] == [("/a", 200), ("/b?fail=1", 503)]
    assert any("by the status of their answers: /b?fail=1 (503)." in advice for advice in report["advice"])
    plain, walk, child = report["samples"]
    assert [sample["status"] for sample in report["samples"]] == [200] * 3
    assert child["retired"] == "rewind_child" and any("child process" in advice for advice in report["advice"])
    if report["tracking"] == "fork":
        assert report["tracking_why"] and report["snapshot"] is None
        return
    assert report["snapshot"]["at"] == f"{site}/worker.php:{WORKER[: WORKER.index('while (')].count(chr(10)) + 1}"
    kinds = {region["kind"]: region["pages"] for region in report["snapshot"]["regions"]}
    assert kinds["PHP heap"] * 4096 > 5000 * 400, "each thing takes some 400 bytes"
    assert kinds["malloc"] > 0 and kinds["libraries"] > 0
    written = [{cause["what"]: cause["pages"] for cause in sample["causes"]} for sample in (plain, walk)]
    assert 0 < sum(written[0].values()) < 100 < sum(written[1].values())
    assert written[1]["objects of the boot: Thing"] > 50 and "objects of the boot: Thing" not in written[0]
    assert walk["php_us"] > plain["php_us"] and plain["copy_ns"] > 0


def test_code_that_no_warm_up_has_loaded(site) -> None:
    (site / "more.php").write_text("<?php class More {}")
    flags = ["--worker", str(site / "worker.php"), "--url", "/", "--url", "/?load=1"]
    report = reports(site, *flags)
    if report["tracking"] != "fork":
        assert [sample["loaded"] for sample in report["samples"]] == [0, 1]
        (line,) = [line for line in report["advice"] if "/?load=1 (1 files)" in line]
        assert line.endswith('warmup = ["/", "/?load=1"]'), "as the configuration takes it"


def test_below_a_path_warm_up_requests_are_advised_as_the_key_says_them(site, tmp_path_factory) -> None:
    """From the application's front page, although visitors come by another path."""
    (site / "more.php").write_text("<?php class More {}")
    config = tmp_path_factory.mktemp("explain") / "hayate.toml"
    config.write_text(f'[[app]]\npath = "/shop"\nroot = "{site}"\nworker = "worker.php"\nwarmup = ["/?fail=1", "/"]\n')
    command = [str(hayate_binary()), "explain", "--config", str(config), "--json", "--url", "/", "--url", "/?load=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)
    assert [sample["path"] for sample in report["samples"]] == ["/shop/", "/shop/?load=1"]
    if report["tracking"] != "fork":
        (in_vain,) = [line for line in report["advice"] if "Name others" in line]
        assert "answers: /?fail=1 (503)." in in_vain
        (line,) = [line for line in report["advice"] if "/shop/?load=1 (1 files)" in line]
        assert line.endswith('warmup = ["/", "/?load=1"]')


def test_warm_up_requests_in_vain_are_named(site) -> None:
    """By a worker script, in the process that boots; in a recognised project by one of their own, in classic mode."""
    said = explain(site, "--worker", str(site / "worker.php"), "--warmup", "/?fail=1", "--warmup", "/", "--warmup", "/?fail=2").stdout
    assert "by the status of their answers: /?fail=1 (503), /?fail=2 (503). Name others: warmup" in said, said
    directory = temporary_directory("explain")
    project = sites.symfony(directory)
    env = [flag for name, value in project.env.items() for flag in ("--env", f"{name}={value}")]
    user = ["--user", sites.USER] if os.geteuid() == 0 else []
    said = explain(project.root, *env, *user, "--warmup", "/json", "--warmup", "/gone", "--url", "/json", "--url", "/").stdout
    shutil.rmtree(directory, ignore_errors=True)
    assert re.search(r"\n              /json  200  \d+ µs\n              /gone  404  \d+ µs\n", said), said
    assert "by the status of their answers: /gone (404). Name others: warmup" in said, said
    # What is advised leaves it out.
    assert 'warmup = ["/json", "/"]' in said, said


def test_a_connection_of_the_boot(site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "127.0.0.1:%d" % server.getsockname()[1]
        connect = f"$connection = stream_socket_client('tcp://{address}');"
        (site / "worker.php").write_text(WORKER.replace("CONNECT", connect))
        report = reports(site, "--worker", str(site / "worker.php"))
    assert report["boot"] == "private"
    connections = {event["what"] for event in report["frozen"] if event["kind"] == "connection"}
    assert connections == {"stream_socket_client()", f"tcp {address}, still open"}
    assert any("Open them in the request" in advice for advice in report["advice"])


@pytest.mark.parametrize("rewind", ["fork", "off"])
def test_without_a_snapshot_the_boot_is_explained(site, rewind) -> None:
    report = reports(site, "--worker", str(site / "worker.php"), "--rewind", rewind)
    assert {event["kind"] for event in report["frozen"]} == {"time", "random", "file", "environment"}
    assert report["snapshot"] is None and report["samples"][0]["status"] == 200
    kept = [advice for advice in report["advice"] if "State is kept" in advice]
    assert bool(kept) == (rewind == "off")


ENDS = """<?php
class Buffer { function __destruct() { usleep(1000 * (int) ($_GET['ms'] ?? 0)); } }
final class Promise { function __destruct() {} }
final class Quiet { public array $lines = []; }
final class Made { static $it; function __destruct() {} }
$kept = [new Buffer, new Promise, new Buffer, new Quiet];
while (hayate_handle_request(function () { Made::$it ??= new Made; new Promise; echo 'served'; })) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_destructors_of_the_boot_and_what_they_cost(tmp_path, rewind) -> None:
    """By class, in the order of making, those of warm-up requests included; what has no destructor, and requests' own objects, left out."""
    tmp_path.chmod(0o755)
    (tmp_path / "worker.php").write_text(ENDS)
    flags = ["--worker", str(tmp_path / "worker.php"), "--rewind", rewind, "--url", "/", "--url", "/?ms=20"]
    report = reports(tmp_path, *flags)
    assert [(event["what"], event["count"]) for event in report["destructors"]] == [("Buffer", 2), ("Promise", 1), ("Made", 1)]
    plain, dear = report["samples"]
    assert plain["status"] == dear["status"] == 200
    assert 0 < plain["destructors_ns"] and 40_000_000 <= dear["destructors_ns"], report["samples"]
    said = explain(tmp_path, *flags).stdout
    assert "destructors of the boot, at the end of each request: Buffer × 2, Promise, Made\n" in said and "ends µs" in said, said


def test_as_text(site) -> None:
    said = explain(site, "--worker", str(site / "worker.php"), "--url", "/?walk=1").stdout
    parts = ["snapshot    at ", "PHP heap", "warm-up     / / /", "random: random_bytes() at ", "samples     medians"]
    for part in parts:
        assert part in said, said


def test_it_runs_as_the_configured_user() -> None:
    with tempfile.TemporaryDirectory(prefix="hayate-explain-") as name:
        directory = pathlib.Path(name)
        script = "<?php touch(__DIR__.'/cache');\nwhile (hayate_handle_request(fn () => 1)) {\n}\n"
        (directory / "worker.php").write_text(script)
        flags = ["--worker", str(directory / "worker.php")]
        if os.geteuid() == 0:
            flags += ["--user", "www-data"]
            shutil.chown(directory, "www-data")
        directory.chmod(0o755)
        reports(directory, *flags)
        assert (directory / "cache").owner() == directory.owner(), "what the boot writes is not root's"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run applications as several users")
@pytest.mark.parametrize("as_json", [True, False])
def test_applications_of_several_users_each_run_as_theirs(as_json) -> None:
    """And the configuration may be root's alone to read."""
    with tempfile.TemporaryDirectory(prefix="hayate-explain-") as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        config = directory / "hayate.toml"
        text = ""
        for app, user in (("one", "www-data"), ("two", "backup"), ("three", "www-data")):
            (directory / app).mkdir(mode=0o700)
            (directory / app / "worker.php").write_text("<?php touch(__DIR__.'/cache');\nwhile (hayate_handle_request(fn () => 1)) {\n}\n")
            for path in (directory / app, directory / app / "worker.php"):
                shutil.chown(path, user)
            text += f'[[app]]\nname = "{app}"\npath = "/{app}"\nroot = "{app}"\nworker = "worker.php"\nuser = "{user}"\n'
        config.write_text(text)
        config.chmod(0o600)
        command = [str(hayate_binary()), "explain", "--config", str(config), *(["--json"] if as_json else [])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        if as_json:
            assert [report["name"] for report in json.loads(done.stdout)] == ["one", "three", "two"]
        else:
            assert done.stdout.count("snapshot    at ") == 3
        for app, user in (("one", "www-data"), ("two", "backup"), ("three", "www-data")):
            assert (directory / app / "cache").owner() == user


def test_a_boot_that_fails(site) -> None:
    (site / "worker.php").write_text("<?php throw new RuntimeException('no database yet');")
    done = explain(site, "--worker", str(site / "worker.php"), status=1)
    assert "no database yet" in done.stderr and done.stdout == ""


def test_a_worker_script_that_costs_more_than_classic_mode_is_found_out(site) -> None:
    """What it does for `/dear` takes far longer than the front controller; for `/cheap` it is the other way round."""
    (site / "index.php").write_text(
        "<?php $n = $_SERVER['REQUEST_URI'] === '/cheap' ? 400 : 0;"
        "for ($i = 0; $i < $n; $i++) { hash_pbkdf2('sha256', 'a', 'b', 100); }"
    )
    (site / "worker.php").write_text(
        "<?php while (hayate_handle_request(function () {"
        "  $n = $_SERVER['REQUEST_URI'] === '/dear' ? 400 : 0;"
        "  for ($i = 0; $i < $n; $i++) { hash_pbkdf2('sha256', 'a', 'b', 100); }"
        "})) {}"
    )
    flags = ["--worker", str(site / "worker.php"), "--front-controller", "index.php", "--url", "/dear", "--url", "/cheap"]
    report = reports(site, *flags)
    if report["tracking"] == "fork":
        return
    dear, cheap = report["samples"]
    assert report["not_compared"] == []
    assert dear["classic_cpu_us"] < dear["cpu_us"] and cheap["cpu_us"] < cheap["classic_cpu_us"], report["samples"]
    advice = [line for line in report["advice"] if 'mode = "classic"' in line]
    assert len(advice) == 1 and "classic mode: /dear (" in advice[0] and "/cheap" not in advice[0], advice
    said = explain(site, *flags).stdout
    assert "with the worker script and in classic mode" in said


def test_without_a_front_controller_the_scripts_that_urls_name_are_compared(site) -> None:
    """An application of many scripts has none; what classic mode would run is clear all the same, or the report says why not."""
    (site / "app").mkdir()
    (site / "app/pages").mkdir()
    (site / "app/edit.php").write_text("<?php for ($i = 0; $i < 400; $i++) { hash_pbkdf2('sha256', 'a', 'b', 100); } echo 'edit';")
    (site / "app/pages/index.php").write_text("<?php echo 'pages';")
    (site / "app/gone.php").write_text("<?php http_response_code(410);")
    (site / "worker.php").write_text(
        "<?php while (hayate_handle_request(static function (): void {})) {"
        "  if (str_ends_with($_SERVER['SCRIPT_FILENAME'], 'pages/index.php')) { include $_SERVER['SCRIPT_FILENAME']; } else { echo 'quick'; }"
        "}"
    )
    flags = ["--worker", str(site / "worker.php"), "--warmup", "off"]
    urls = ["/edit.php", "/pages/?a=1", "/", "/no.php", "/gone.php"]
    flags += [flag for url in urls for flag in ("--url", url)]
    report = reports(site / "app", *flags)
    said = explain(site / "app", *flags).stdout
    if report["tracking"] == "fork":
        assert report["not_compared"] == ["each request runs in a fork, whose CPU time is not the worker's"]
        return
    edit, pages, front, missing, gone = report["samples"]
    assert [sample["path"] for sample in report["samples"]] == urls
    assert edit["classic_cpu_us"] > edit["cpu_us"] > 0 and pages["classic_cpu_us"] > 0, report["samples"]
    assert front["classic_cpu_us"] is missing["classic_cpu_us"] is gone["classic_cpu_us"] is None
    no_script = "names no script, and there is no front controller but the worker script (front_controller, --front-controller)"
    reasons = [f"/ {no_script}", f"/no.php {no_script}", "/gone.php is answered with 200 by the worker script and with 410 in classic mode"]
    assert report["not_compared"] == reasons
    assert "with the worker script and in classic mode\n" in said and f"              not compared: {reasons[0]}\n" in said, said


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_what_is_not_compared_is_said(site, rewind) -> None:
    """A script that answers all by itself has nothing beside it to run in classic mode."""
    flags = ["--worker", str(site / "worker.php"), "--rewind", rewind, "--url", "/", "--url", "/worker.php"]
    report = reports(site, *flags)
    assert [sample["classic_cpu_us"] for sample in report["samples"]] == [None, None]
    if rewind == "fork" or report["tracking"] == "fork":
        assert report["not_compared"] == ["each request runs in a fork, whose CPU time is not the worker's"]
    else:
        assert [why.partition(" ")[0] for why in report["not_compared"]] == ["/", "/worker.php"]
        assert report["not_compared"][1] == "/worker.php is the worker script itself"
    assert f"  classic     not compared: {report['not_compared'][0]}\n" in explain(site, *flags).stdout


def test_classic_mode_is_compared_with_nothing(site) -> None:
    (site / "index.php").write_text("<?php echo 'here';")
    report = reports(site)
    assert report["mode"] == "classic" and report["not_compared"] == []
    assert "not compared" not in explain(site).stdout


def test_classic_mode_is_explained_by_what_it_has(site) -> None:
    (site / "index.php").write_text("<?php if (isset($_GET['to'])) { header(\"Location: /there\"); }")
    said = explain(site, "--url", "/", "--url", "/?to=1").stdout
    assert "CPU µs  path" in said and "pages" not in said and "scan" not in said
    assert "  /?to=1 → /there" in said
    assert "Each request starts afresh, as under php-fpm" in said


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize("start", ["return;", "throw new Exception('no database');", "$GLOBALS['peer'] = stream_socket_client('tcp://127.0.0.1:PEER');"], ids=["fine", "throws", "opens"])
def test_what_costs_a_worker_is_told_of_the_request_that_does(tmp_path, peer, rewind, start) -> None:
    """A start that threw, and a doubt that came after a rewind, were one request more, so that others were said to do it."""
    tmp_path.chmod(0o755)
    (tmp_path / 'settings "of" mine.json').write_text("{}")
    step = f"hayate_on_worker_start(function () {{ {start.replace('PEER', str(peer))} }});"
    handler = "if (isset($_GET['reset'])) { opcache_reset(); }"
    script = WORKER.replace("CONNECT", step).replace("    echo count", f"    {handler}\n    echo count")
    (tmp_path / "worker.php").write_text(script)
    urls = ["/", "/?child=1" if rewind == "on" else "/?reset=1", "/?a", "/?b"]
    flags = [flag for url in urls for flag in ("--url", url)]
    report = reports(tmp_path, "--worker", str(tmp_path / "worker.php"), "--rewind", rewind, "--connections", "warm", *flags)
    told = [sample["path"] for sample in report["samples"] if sample["retired"]]
    assert told == [urls[1]], [(sample["path"], sample["retired"]) for sample in report["samples"]]
