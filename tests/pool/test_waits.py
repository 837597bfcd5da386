"""No wait without an end: boots that crash in a worker, boots that hang beside others, requests that run long while their processes are replaced.

Faults found by attack on 2026-11-27.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import shutil
import signal
import socket
import time

import pytest
import requests

from lib import site
from lib.process import accepts, stop_process, wait_until
from lib.servers import Hayate

#: Each worker boots by itself, since the boot opens a connection; it crashes where BOOT, START or WORK say so.
PRIVATE = """<?php
$peer = stream_socket_client('tcp://127.0.0.1:PORT');
BOOT
hayate_on_worker_start(function () { START });
while (hayate_handle_request(function () { WORK echo 'worker'; })) {
}
"""
CRASH = "posix_kill(getmypid(), 11);"
#: Boots as long as there is a file `wait`, and counts its boots.
SLOW = (
    "<?php file_put_contents(__DIR__ . '/boots', 'x', FILE_APPEND);\n"
    "while (file_exists(__DIR__ . '/wait')) { usleep(5000); clearstatcache(); }\n"
    "while (hayate_handle_request(function () { echo 'worker'; })) {}"
)


def private(directory: pathlib.Path, peer: int, *, boot: str = "", start: str = "", work: str = "") -> pathlib.Path:
    directory.mkdir(exist_ok=True)
    text = PRIVATE.replace("PORT", str(peer)).replace("BOOT", boot).replace("START", start).replace("WORK", work)
    (directory / "worker.php").write_text(text)
    return directory


def beside(tmp_path: pathlib.Path, other: pathlib.Path, keys: str = "") -> str:
    """A site in classic mode, and the application in question below /other."""
    root = site.make(tmp_path)
    return (
        f'[[app]]\nname = "site"\nroot = "{root}"\nworkers = 1\n'
        f'[[app]]\nname = "other"\nroot = "{other}"\npath = "/other"\nworker = "worker.php"\nworkers = 2\n{keys}'
    )


def get(server: Hayate, path: str, timeout: float = 60) -> requests.Response:
    return requests.get(server.url + path, timeout=timeout)


def rest(s: socket.socket) -> bytes:
    """What comes until the connection ends."""
    data = b""
    while chunk := s.recv(65536):
        data += chunk
    return data


def of(server: Hayate, name: str) -> dict:
    return next(app for app in server.status()["apps"] if app["name"] == name)


def test_a_worker_that_crashes_in_a_warmup_request_of_its_own_boots_without(tmp_path, peer) -> None:
    other = private(tmp_path / "other", peer, work=f"if (isset($_SERVER['HAYATE_WARMUP'])) {{ {CRASH} }}")
    with Hayate(config=beside(tmp_path, other)) as server:
        assert get(server, "/ok.php?x").text == "ok x"
        assert get(server, "/other/").text == "worker"
        status = of(server, "other")
        assert status["boot"] == "private" and "signal 11" in status["cold_boot"], status


@pytest.mark.parametrize("where", ["boot", "start"])
def test_a_worker_that_crashes_before_it_serves_keeps_no_other_application_down(tmp_path, peer, where) -> None:
    broken = f"if (file_exists(__DIR__ . '/broken')) {{ {CRASH} }}"
    if where == "boot":
        # The first boot is the zygote's, which finds out that each worker has to boot by itself.
        broken = "if (file_exists(__DIR__ . '/booted')) { " + broken + " } touch(__DIR__ . '/booted');"
    other = private(tmp_path / "other", peer, **{where: broken})
    if where == "start":
        text = (other / "worker.php").read_text()
        (other / "worker.php").write_text("\n".join(line for line in text.splitlines() if "$peer" not in line))
    (other / "broken").touch()
    keys = 'connections = "warm"\n' if where == "start" else ""
    with Hayate(config=beside(tmp_path, other, keys)) as server:
        assert get(server, "/ok.php?x").text == "ok x"
        assert server.status()["state"] == "serving"
        assert of(server, "other")["unavailable"] is not None
        assert get(server, "/other/").status_code == 503
        for command in ("reload", "upgrade", "upgrade"):
            done = server.run(command)
            assert done.returncode == 1 and "did not boot" in done.stderr, (command, done)
        (other / "broken").unlink()
        assert wait_until(lambda: of(server, "other")["unavailable"] is None, 60)
        assert get(server, "/other/").text == "worker"


def test_a_boot_that_hangs_keeps_no_other_application_down(tmp_path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "worker.php").write_text(
        "<?php while (!file_exists(__DIR__ . '/go')) { usleep(5000); clearstatcache(); }\n"
        "while (hayate_handle_request(function () { echo 'worker'; })) {}"
    )
    with Hayate(config=beside(tmp_path, other, 'boot_timeout = "10m"\n')) as server:
        assert get(server, "/ok.php?x").text == "ok x"
        assert of(server, "other")["state"] == "booting"
        assert server.logged("serving without the applications that still boot")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(get, server, "/other/")
            time.sleep(0.5)
            (other / "go").touch()
            assert waits.result().text == "worker"


@pytest.mark.parametrize(
    ("top", "keys"),
    [
        ('drain_timeout = "1s"', 'request_timeout = "off"'),
        ('drain_timeout = "1s"', 'request_timeout = "2s"\n[[app.rule]]\npath = "/sleep.php"\ntimeout = "20s"'),
        ('drain_timeout = "off"', 'request_timeout = "2s"\n[[app.rule]]\npath = "/sleep.php"\ntimeout = "20s"'),
    ],
    ids=["no limit", "of a rule", "drain_timeout off"],
)
@pytest.mark.parametrize("commands", [["reload"], ["upgrade"], ["reload", "upgrade"]], ids=" ".join)
def test_what_may_run_is_not_cut_off_by_what_takes_its_place(tmp_path, top, keys, commands) -> None:
    root = site.make(tmp_path)
    with (
        Hayate(config=f'{top}\n[[app]]\nname = "site"\nroot = "{root}"\nworkers = 1\n{keys}\n') as server,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        slow = pool.submit(get, server, "/sleep.php?ms=5000")
        time.sleep(0.5)
        for command in commands:
            done = server.run(command)
            assert done.returncode == 0, done
        assert slow.result().status_code == 200


@pytest.mark.parametrize("command", ["reload", "upgrade"])
def test_a_slow_client_gets_all_that_it_asked_for(tmp_path, command) -> None:
    """Of a script, which does nothing by then but wait for the client, and of a file; for longer than any request may run."""
    size = 24 << 20
    root = site.make(tmp_path)
    (root / "much.php").write_text(f"<?php for ($i = 0; $i < {size >> 16}; $i++) {{ echo str_repeat('x', 65536); }}")
    (root / "much.bin").write_bytes(b"x" * size)
    (root / "much.bin").chmod(0o644)
    config = f'drain_timeout = "1s"\n[[app]]\nroot = "{root}"\nworkers = 1\nrequest_timeout = "1s"\n'

    def slowly(path: str) -> int:
        with requests.get(server.url + path, stream=True, timeout=60) as answer:
            taken = 0
            for part in answer.iter_content(size // 50):
                taken += len(part)
                time.sleep(0.1)
        return taken

    with Hayate(config=config) as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
        under_way = [pool.submit(slowly, path) for path in ("/much.php", "/much.bin")]
        time.sleep(0.5)
        assert server.run(command).returncode == 0
        assert [one.result() for one in under_way] == [size, size], server.log()


def test_drain_timeout_off_is_no_limit_at_the_end_either(tmp_path) -> None:
    root = site.make(tmp_path)
    with (
        Hayate(config=f'drain_timeout = "off"\n[[app]]\nroot = "{root}"\nworkers = 1\n') as server,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        slow = pool.submit(get, server, "/sleep.php?ms=2000")
        time.sleep(0.5)
        server.stop()
        assert slow.result().status_code == 200


def test_refused_reloads_make_no_more_boots(tmp_path) -> None:
    (tmp_path / "worker.php").write_text(
        "<?php file_put_contents(__DIR__ . '/boots', 'x', FILE_APPEND);\n"
        "if (file_exists(__DIR__ . '/broken')) { throw new Exception('no boot today'); }\n"
        "while (hayate_handle_request(function () { if ($_SERVER['REQUEST_URI'] === '/reset') { opcache_reset(); } echo getmypid(); })) {}"
    )
    config = f'[[app]]\nname = "site"\nroot = "{tmp_path}"\nworkers = 1\nworker = "worker.php"\nwarmup = []\n'
    with Hayate(config=config) as server:
        (tmp_path / "broken").touch()
        for _ in range(5):
            assert server.reload().returncode == 1
        (tmp_path / "broken").unlink()
        (tmp_path / "boots").write_text("")
        zygote = of(server, "site")["zygote"]
        get(server, "/reset")
        assert wait_until(lambda: of(server, "site")["zygote"] not in (zygote, None), 60)
        time.sleep(1)
        assert (tmp_path / "boots").read_text() == "x"


def test_a_new_boot_that_fails_is_tried_again_until_it_works(tmp_path) -> None:
    (tmp_path / "worker.php").write_text(
        "<?php if (file_exists(__DIR__ . '/broken')) { throw new Exception('no boot today'); }\n"
        "while (hayate_handle_request(function () { if ($_SERVER['REQUEST_URI'] === '/reset') { opcache_reset(); } echo getmypid(); })) {}"
    )
    config = f'[[app]]\nname = "site"\nroot = "{tmp_path}"\nworkers = 1\nworker = "worker.php"\nwarmup = []\n'
    with Hayate(config=config) as server:
        zygote = of(server, "site")["zygote"]
        (tmp_path / "broken").touch()
        get(server, "/reset")
        assert server.logged("it does not boot anew, so the old generation goes on serving")
        assert wait_until(lambda: "no boot today" in (of(server, "site")["boot_error"] or ""), 60)
        assert get(server, "/").status_code == 200
        (tmp_path / "broken").unlink()
        assert wait_until(lambda: of(server, "site")["zygote"] not in (zygote, None), 60)
        assert wait_until(lambda: of(server, "site")["boot_error"] is None, 60)


def test_a_body_that_is_gathered_while_an_application_is_renamed_is_answered(tmp_path) -> None:
    root = site.make(tmp_path)
    config = 'drain_timeout = "1s"\n[[app]]\nname = "{}"\nroot = "' + str(root) + '"\nworkers = 1\nrequest_timeout = "1s"\n'
    (tmp_path / "hayate.toml").write_text(config.format("before"))
    with Hayate(config=tmp_path / "hayate.toml") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
            s.sendall(b"POST /count.php HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n" + b"x" * 50000)
            time.sleep(0.5)
            old = of(server, "before")["zygote"]
            text = (tmp_path / "hayate.toml").read_text()
            (tmp_path / "hayate.toml").write_text(text.replace('"before"', '"after"'))
            assert server.reload().returncode == 0
            assert wait_until(lambda: not os.path.exists(f"/proc/{old}"), 60)
            s.sendall(b"x" * 50000)
            data = rest(s)
        assert data.startswith(b"HTTP/1.1 200") and data.endswith(b"100000"), data


@pytest.mark.skipif(os.geteuid() != 0, reason="applications of other users need root")
def test_a_body_that_is_gathered_is_not_for_another_customer_of_the_same_code(tmp_path) -> None:
    """Two applications of one document root, and one is taken away: what was begun for it ran in the other, as its user."""
    root = site.make(tmp_path)
    text = '[[app]]\nname = "{0}"\nhosts = ["{0}.example"]\nroot = "' + str(root) + '"\nworkers = 1\nuser = "{1}"\nenv = {{ CUSTOMER = "{0}" }}\n'
    one, other = text.format("one", "www-data"), text.format("other", "nobody")
    (tmp_path / "hayate.toml").write_text(one + other)
    with Hayate(config=tmp_path / "hayate.toml") as server, socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(b"POST /count.php HTTP/1.1\r\nHost: one.example\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n" + b"x" * 50000)
        time.sleep(0.5)
        (tmp_path / "hayate.toml").write_text(other)
        assert server.reload().returncode == 0
        s.sendall(b"x" * 50000)
        data = rest(s)
        assert data.startswith(b"HTTP/1.1 503"), data


def test_a_body_that_is_gathered_is_not_for_another_customer_of_the_same_name(tmp_path) -> None:
    """Both are called by the last name of their directory, and one takes the other's place."""
    tmp_path.chmod(0o755)
    roots = []
    for customer in ("one", "other"):
        (tmp_path / customer).mkdir(mode=0o755)
        roots.append(site.make(tmp_path / customer))
    assert roots[0].name == roots[1].name
    text = '[[app]]\nhosts = ["{0}.example"]\nroot = "{1}"\nworkers = 1\nuser = "{2}"\n'
    (tmp_path / "hayate.toml").write_text(text.format("one", roots[0], "www-data"))
    with Hayate(config=tmp_path / "hayate.toml") as server, socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(b"POST /count.php HTTP/1.1\r\nHost: one.example\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n" + b"x" * 50000)
        time.sleep(0.5)
        (tmp_path / "hayate.toml").write_text(text.format("other", roots[1], "nobody"))
        assert server.reload().returncode == 0
        s.sendall(b"x" * 50000)
        data = rest(s)
        assert data.startswith(b"HTTP/1.1 503"), data


@pytest.mark.parametrize("mode", ["classic", "worker"])
@pytest.mark.parametrize("removed", [False, True], ids=["kept", "removed"])
def test_a_body_that_comes_during_a_deployment_is_for_one_release(tmp_path, mode, removed) -> None:
    """The script of the old release ran beside the library of the new one; where the old release had been removed, nothing ran, and that was 200."""
    tmp_path.chmod(0o755)
    for release in ("one", "two"):
        (tmp_path / release).mkdir(mode=0o755)
        (tmp_path / release / "library.php").write_text(f"<?php const LIBRARY = '{release}';")
        (tmp_path / release / "index.php").write_text(
            f"<?php require_once __DIR__ . '/library.php'; echo 'script of {release}, library of ', LIBRARY, ', ', strlen(file_get_contents('php://input')), ' bytes';"
        )
        (tmp_path / release / "worker.php").write_text(
            "<?php require __DIR__ . '/library.php'; while (hayate_handle_request(function () { include $_SERVER['SCRIPT_FILENAME']; })) {}"
        )
    current = tmp_path / "current"
    current.symlink_to("one")
    worker = f'worker = "{current}/worker.php"\n' if mode == "worker" else ""
    config = f'[[app]]\nroot = "{current}"\nworkers = 1\n{worker}'
    with Hayate(config=config) as server, socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(b"POST /index.php HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc")
        time.sleep(0.5)
        current.unlink()
        current.symlink_to("two")
        assert server.reload().returncode == 0
        if removed:
            shutil.rmtree(tmp_path / "one")
        s.sendall(b"defghij")
        data = rest(s)
        assert data.startswith(b"HTTP/1.1 200") and data.endswith(b"script of two, library of two, 10 bytes"), (data, server.log_tail())


def rule(text: str) -> str:
    return f'[[app.rule]]\npath = "/page.php"\n{text}\n'


#: Rules before and after a deployment, and what becomes of a request for /page.php?a=b that came before it and whose body came after it.
RULES = {
    "alias": ("", rule('alias = "files"'), "503"),
    "no more an alias for others": (rule('method = "PUT"\nalias = "files"'), "", "200 page of two, a=b"),
    "deny": ("", rule("deny = 403"), "403"),
    "a smaller body": ("", rule("max_body = 5"), "413"),
    "a smaller body for all": ("", "#5", "413"),
    "deny of the application": ("", 'deny = "/page.php"', "404"),
    "redirect": ("", rule('redirect = "/other.php"'), "302"),
    "password": ("", rule('basic_auth = { users = "staff" }'), "401"),
    "others rewritten": (rule('rewrite = "/one.php?x=1"'), rule('rewrite = "/two.php?y=2"'), "200 two of two, y=2&a=b"),
    "rewritten no more": (rule('rewrite = "/one.php?x=1"'), "", "200 page of two, a=b"),
    "counted once": (rule("rate = { requests = 1, per = '1h', burst = 0 }"), rule("rate = { requests = 1, per = '1h', burst = 0 }"), "200 page of two, a=b"),
    "front controller": ("", '[[app.rule]]\npath = "/page.php"\nrewrite = "/nothing"\n[[app.rule]]\npath = "/index.php"\ndeny = 403\n', "403"),
}


@pytest.mark.parametrize("case", RULES)
def test_the_rules_of_a_deployment_hold_for_bodies_that_come_during_it(tmp_path, case) -> None:
    before, after, want = RULES[case]
    tmp_path.chmod(0o755)
    for release in ("one", "two"):
        (tmp_path / release).mkdir(mode=0o755)
        for name in ("page", "one", "two", "index"):
            (tmp_path / release / f"{name}.php").write_text(
                f"<?php echo '{name} of {release}, ', $_SERVER['QUERY_STRING'], ', ', strlen(file_get_contents('php://input')), ' bytes';"
            )
    (tmp_path / "files").mkdir()
    (tmp_path / "staff").write_text("anna:$2y$04$zKvuQyLoJkufXBLEEw2tHuDAXemS4DBB5AHAQ5D33cEVu/WXXZqvy\n")
    config = tmp_path / "hayate.toml"

    def deploy(release: str, more: str) -> None:
        # A limit stands above the applications.
        top = f"[limits]\nbody_size = {more[1:]}\n" if more.startswith("#") else ""
        config.write_text(f'{top}[[app]]\nname = "shop"\nroot = "{tmp_path}/{release}"\nworkers = 1\nfront_controller = "index.php"\n{more}')

    deploy("one", before)
    with Hayate(config=config) as server, socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(b"POST /page.php?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc")
        time.sleep(0.5)
        deploy("two", after)
        assert server.reload().returncode == 0, server.log_tail()
        s.sendall(b"defghij")
        data = rest(s)
        status, _, text = want.partition(" ")
        assert data.startswith(f"HTTP/1.1 {status} ".encode()), (data, server.log_tail())
        if text:
            assert data.endswith(f"{text}, 10 bytes".encode()), data
        if case == "counted once":
            assert requests.get(f"{server.url}/page.php", timeout=60).status_code == 429, "one more would have been too many"


def test_an_alias_runs_no_script(tmp_path) -> None:
    """So there is none that could be of another release."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "page.php").write_text("<?php echo 'run';")
    (tmp_path / "index.php").write_text("<?php echo 'index';")
    config = f'[[app]]\nroot = "{tmp_path}"\nworkers = 1\n[[app.rule]]\npath = "/files"\nalias = "{tmp_path}/files"\n'
    with Hayate(config=config) as server, socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(b"POST /files/page.php HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc")
        assert s.recv(1000).startswith(b"HTTP/1.1 404"), "before the body has come"


def test_a_body_is_not_for_the_customer_who_has_its_host_now(tmp_path) -> None:
    """What had been sent to one customer ran in another's application, which had got the host by a reload."""
    tmp_path.chmod(0o755)
    for name in ("one", "two"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name / "index.php").write_text(f"<?php echo '{name} ', file_get_contents('php://input');")
    apps = '[[app]]\nname = "{0}"\nroot = "{2}/{0}"\nuser = "{1}"\nhosts = ["{3}"]\nworkers = 1\n'
    text = "".join(apps.format(name, user, tmp_path, host) for name, user, host in (("one", "www-data", "a"), ("two", "nobody", "b")))
    config = tmp_path / "hayate.toml"
    config.write_text(text)
    with Hayate(config=config) as server, socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(b"POST /index.php HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc")
        time.sleep(0.5)
        config.write_text(text.replace('["a"]', '["c"]').replace('["b"]', '["a"]'))
        assert server.reload().returncode == 0
        s.sendall(b"defghij")
        data = rest(s)
        assert data.startswith(b"HTTP/1.1 503"), (data, server.log_tail())
        answer = requests.post(f"{server.url}/index.php", data=b"x", headers={"Host": "a"}, timeout=60)
        assert answer.text == "two x"


def test_a_body_that_has_begun_is_taken_where_it_is(tmp_path) -> None:
    """No worker has taken it when the zygote dies, and a reload puts another generation in the place: it cannot be begun anew there."""
    (tmp_path / "worker.php").write_text(
        "<?php if (is_file(__DIR__ . '/slow')) { sleep(3); }\n"
        "while (hayate_handle_request(function () { echo 'took ', strlen(file_get_contents('php://input')); })) {}"
    )
    config = f'[[app]]\nroot = "{tmp_path}"\nworker = "{tmp_path}/worker.php"\nworkers = 2\nrequest_buffering = false\n'
    with Hayate(config=config) as server:
        assert requests.get(server.url, timeout=60).text == "took 0"
        (app,) = server.status()["apps"]
        (tmp_path / "slow").touch()
        for worker in app["workers"]:
            stop_process(worker["pid"])
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
            s.sendall(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 80000\r\nConnection: close\r\n\r\n" + b"x" * 40000)
            time.sleep(0.05)
            os.kill(app["zygote"], signal.SIGKILL)
            time.sleep(0.5)
            (tmp_path / "slow").unlink()
            assert server.reload().returncode == 0
            s.sendall(b"x" * 40000)
            data = rest(s)
        assert data.startswith(b"HTTP/1.1 200") and data.endswith(b"took 80000"), data


def test_what_waits_with_a_body_that_is_whole_goes_to_the_next_release(tmp_path) -> None:
    """It waited for a boot of the old one, and all that stood beside it, although the new one served."""
    (tmp_path / "release").write_text("one")
    (tmp_path / "worker.php").write_text(
        "<?php $release = file_get_contents(__DIR__ . '/release'); if (is_file(__DIR__ . '/slow')) { sleep(20); }\n"
        "while (hayate_handle_request(function () use ($release) { echo $release, ' took ', strlen(file_get_contents('php://input')); })) {}"
    )
    with Hayate(tmp_path, worker=tmp_path / "worker.php", workers=1) as server:
        assert requests.get(server.url, timeout=60).text == "one took 0"
        (app,) = server.status()["apps"]
        (tmp_path / "slow").touch()
        stop_process(app["workers"][0]["pid"])
        os.kill(app["zygote"], signal.SIGKILL)
        assert wait_until(lambda: server.status()["apps"][0]["workers"] == [])
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            post = pool.submit(requests.post, server.url, data=b"x" * 1000, timeout=60)
            page = pool.submit(requests.get, server.url, timeout=60)
            time.sleep(1)
            (tmp_path / "slow").unlink()
            (tmp_path / "release").write_text("two")
            assert server.reload().returncode == 0
            assert (post.result().text, page.result().text) == ("two took 1000", "two took 0")


def test_a_slow_request_is_named_though_its_zygote_is_stopped(tmp_path) -> None:
    root = site.make(tmp_path)
    config = f'[[app]]\nname = "site"\nroot = "{root}"\nworkers = 1\nrequest_timeout = "3s"\n'
    with Hayate(config=config) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        zygote = of(server, "site")["zygote"]
        slow = pool.submit(get, server, "/sleep.php?ms=20000")
        time.sleep(0.5)
        stop_process(zygote)
        assert slow.result().status_code == 504
        assert server.logged("slow request: it had run for")


def test_a_new_boot_is_taken_while_another_application_finds_no_way(tmp_path, peer) -> None:
    """What boots beside is looked at as it is ready, and not when something else happens next."""
    finds_none = tmp_path / "a"
    private(finds_none, peer, work="if ($_SERVER['REQUEST_URI'] === '/a/talk') { fwrite($GLOBALS['peer'], 'x'); }")
    slow = tmp_path / "b"
    slow.mkdir()
    (slow / "worker.php").write_text(
        "<?php while (file_exists(__DIR__ . '/wait')) { usleep(5000); clearstatcache(); }\n"
        "while (hayate_handle_request(function () { if ($_SERVER['REQUEST_URI'] === '/b/reset') { opcache_reset(); } echo 'b'; })) {}"
    )
    app = '[[app]]\nname = "{0}"\nroot = "{1}"\npath = "/{0}"\nworkers = 1\nworker = "worker.php"\nwarmup = []\n'
    with Hayate(config=app.format("a", finds_none) + app.format("b", slow)) as server:
        zygote = of(server, "b")["zygote"]
        (slow / "wait").touch()
        get(server, "/b/reset")
        assert server.logged("opcache_reset")
        for _ in range(12):
            assert get(server, "/a/talk").status_code == 200
        assert server.logged("There is no slower way that is as safe")
        (slow / "wait").unlink()
        assert wait_until(lambda: of(server, "b")["zygote"] not in (zygote, None), 30)


def held(server: Hayate, pool: concurrent.futures.Executor, go: pathlib.Path) -> concurrent.futures.Future:
    """A request that runs until a file is there."""
    slow = pool.submit(get, server, f"/hold.php?go={go}")
    assert wait_until(lambda: any(worker["state"] == "serving" for worker in server.status()["apps"][0]["workers"]))
    return slow


def asked_to_end(server: Hayate, how: str) -> None:
    if how == "SIGTERM":
        server.process.send_signal(signal.SIGTERM)
        return
    began = time.monotonic()
    done = server.run("stop")
    assert done.stdout == "stopped\n", done
    assert server.process.poll() is not None, f"it said so after {time.monotonic() - began:.1f} s, and is not"


@pytest.mark.parametrize("how", ["stop", "SIGTERM"])
@pytest.mark.parametrize("when", ["just", "long since"])
@pytest.mark.parametrize("outcome", ["finished", "cut"])
def test_the_end_is_for_fronts_that_were_replaced_as_well(tmp_path, how, when, outcome) -> None:
    root, go = site.make(tmp_path), tmp_path / "go"
    drain = "60s" if outcome == "finished" else "3s"
    config = f'drain_timeout = "{drain}"\n[[app]]\nroot = "{root}"\nworkers = 1\nrequest_timeout = "off"\n'
    with Hayate(config=config) as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
        slow = held(server, pool, go)
        assert server.run("upgrade").returncode == 0
        if when == "long since":
            assert server.logged("finishing what is being served")
        began = time.monotonic()
        asked = pool.submit(asked_to_end, server, how)
        assert wait_until(lambda: not accepts(server.port)), "it accepts connections that nobody answers"
        if outcome == "finished":
            time.sleep(1)
            assert not slow.done(), "the first signal was taken for the second"
            assert server.status()["state"] == "draining", "there is nobody to ask"
            go.touch()
            assert slow.result().text == "held"
        assert server.process.wait(50) == 0, server.log_tail()
        asked.result()
        assert "a second signal: ending" not in server.log() and "it is killed" not in server.log()
        if outcome == "cut":
            assert slow.result().status_code == 502 and time.monotonic() - began >= 3


def test_the_second_signal_ends_all_fronts_and_a_command_is_none(tmp_path) -> None:
    root = site.make(tmp_path)
    config = f'drain_timeout = "60s"\n[[app]]\nroot = "{root}"\nworkers = 1\nrequest_timeout = "off"\n'
    with Hayate(config=config) as server, concurrent.futures.ThreadPoolExecutor(3) as pool:
        slow = held(server, pool, tmp_path / "never")
        assert server.run("upgrade").returncode == 0
        assert server.logged("finishing what is being served")
        commands = [pool.submit(server.run, "stop") for _ in range(2)]
        assert server.logged("finishing what is being served", 3)
        server.process.send_signal(signal.SIGTERM)
        assert server.logged("the server is stopping already")
        time.sleep(0.5)
        assert not slow.done() and server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(50) == 0, server.log_tail()
        assert slow.result().status_code == 502
        assert [command.result().stdout for command in commands] == ["stopped\n"] * 2


def test_a_stop_while_a_successor_boots_ends_both(tmp_path) -> None:
    (tmp_path / "worker.php").write_text(SLOW)
    config = f'[[app]]\nroot = "{tmp_path}"\nworkers = 1\nworker = "worker.php"\nwarmup = []\n'
    with Hayate(config=config) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        (tmp_path / "wait").touch()
        upgrade = pool.submit(server.run, "upgrade")
        assert wait_until(lambda: (tmp_path / "boots").read_text() == "xx")
        assert server.run("stop").returncode == 0
        assert server.process.wait(50) == 0, server.log_tail()
        assert upgrade.result().returncode == 1


def test_a_first_boot_that_hangs_can_be_stopped_and_says_that_it_cannot_reload(tmp_path) -> None:
    (tmp_path / "worker.php").write_text(SLOW)
    (tmp_path / "wait").touch()
    server = Hayate(config=f'[[app]]\nroot = "{tmp_path}"\nworkers = 1\nworker = "worker.php"\nwarmup = []\nboot_timeout = "off"\n')
    try:
        server.spawn()
        assert wait_until(lambda: server.run("status").returncode == 3)
        for command in ("reload", "upgrade"):
            done = server.run(command, timeout=20)
            assert done.returncode == 1 and "the server is starting" in done.stderr, done
        assert server.run("stop", timeout=20).stdout == "stopped\n"
        assert server.process.wait(1) == 0
    finally:
        server.kill()
        server.remove()


def test_a_hangup_during_the_first_boot_is_a_reload_after_it(tmp_path) -> None:
    (tmp_path / "worker.php").write_text(SLOW)
    (tmp_path / "wait").touch()
    server = Hayate(config=f'[[app]]\nroot = "{tmp_path}"\nworkers = 1\nworker = "worker.php"\nwarmup = []\n')
    try:
        server.spawn()
        # Also before the front hears signals, which would end it.
        assert wait_until(lambda: server.pid_file.exists(), interval=0.001)
        for _ in range(50):
            server.process.send_signal(signal.SIGHUP)
            server.process.send_signal(signal.SIGUSR1)
            time.sleep(0.01)
        (tmp_path / "wait").unlink()
        assert server.logged("reloaded")
        assert (tmp_path / "boots").read_text() == "xx" and server.process.poll() is None
        server.stop()
    finally:
        server.kill()
        server.remove()
