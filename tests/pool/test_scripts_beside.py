"""PHP scripts beside the front controller of a project that was recognised: they run in classic mode, beside the application."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
import threading
import time

import pytest
import requests
from lib.process import wait_until
from lib.servers import Hayate, hayate_binary

from . import frameworks

LEGACY = """<?php
$calls = ($calls ?? 0) + 1;
$GLOBALS['kept'] = ($GLOBALS['kept'] ?? 0) + 1;
setcookie('legacy', 'yes');
header('X-Legacy: yes');
$server = array_intersect_key($_SERVER, array_flip(['SCRIPT_NAME', 'SCRIPT_FILENAME', 'PATH_INFO', 'QUERY_STRING', 'REQUEST_METHOD',
    'PHP_SELF', 'DOCUMENT_ROOT', 'HAYATE_PROJECT', 'HAYATE_RUN', 'GREETING']));
echo json_encode(['server' => $server, 'get' => $_GET, 'post' => $_POST, 'body' => file_get_contents('php://input'), 'calls' => $calls,
    'kept' => $GLOBALS['kept'], 'cwd' => getcwd(), 'user' => posix_geteuid(), 'limit' => ini_get('memory_limit'),
    'files' => get_included_files()]);
"""
FILES = {
    "legacy.php": LEGACY,
    "sub/index.php": LEGACY,
    "leaves.php": "<?php header('X-Left: yes'); echo 'left'; exit(3); echo 'not';",
    "fails.php": "<?php throw new LogicException('a failure of a script beside');",
    "sleeps.php": "<?php usleep((int) $_GET['ms'] * 1000); echo getmypid();",
}
PATHS = [
    "/legacy.php",
    "/legacy.php?x=1&y[]=2",
    "/legacy.php/a/b?x=1",
    "/legacy.php/",
    "//legacy.php",
    "/sub/../legacy.php",
    "/leg%61cy.php",
    "/sub",
    "/sub/",
    "/sub/?a",
    "/sub/index.php",
    "/sub/index.php/more",
    "/leaves.php",
    "/fails.php",
    "/legacy.phpx",
    "/missing.php",
    "/sub/missing.php",
    "/legacy.php.bak",
]


def symfony(directory: pathlib.Path) -> pathlib.Path:
    return frameworks.symfony(directory, runtime=True)


@pytest.fixture(params=[symfony, frameworks.laravel], ids=["symfony", "laravel"])
def project(request, tmp_path) -> pathlib.Path:
    tmp_path.chmod(0o755)
    return request.param(tmp_path)


def add(project: pathlib.Path) -> pathlib.Path:
    for name, text in FILES.items():
        (project / "public" / name).parent.mkdir(exist_ok=True)
        (project / "public" / name).write_text(text)
    return project


def get(server: Hayate, path: str, **more) -> requests.Response:
    request = requests.Request("GET", server.url, **more).prepare()
    request.url = server.url + path
    return requests.Session().send(request, timeout=60, allow_redirects=False)


def modes(server: Hayate) -> dict[str, str]:
    return {app["name"]: app["mode"] for app in server.status()["apps"]}


def check(root: pathlib.Path, *flags: str) -> str:
    done = subprocess.run([hayate_binary(), "check", root, *flags], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def seen(server: Hayate, path: str, method: str = "GET", **more) -> tuple:
    request = requests.Request(method, server.url, **more).prepare()
    request.url = server.url + path
    answer = requests.Session().send(request, timeout=60, allow_redirects=False)
    headers = {name: answer.headers.get(name) for name in ("X-Legacy", "X-Left", "Content-Type", "Set-Cookie")}
    location = answer.headers.get("Location", "").replace(server.url, "")
    return path, answer.status_code, headers, location, answer.text


def test_they_answer_as_in_classic_mode(project) -> None:
    name = add(project).name
    answers = []
    for flags in (["--mode", "classic"], []):
        with Hayate(project, args=flags, workers=2, env={"GREETING": "no"}) as server:
            assert modes(server) == ({name: "classic"} if flags else {name: "worker", f"{name} scripts": "classic"})
            found = [seen(server, path) for path in PATHS for _ in range(2)]
            found.append(seen(server, "/legacy.php?a=b", "POST", data={"c": "d"}))
            found.append(seen(server, "/sub/", "PUT", data=b"x" * 100_000))
            found.append(seen(server, "/legacy.php", "POST", files={"file": ("a.txt", b"content")}, data={"c": "d"}))
            answers.append(found)
            assert server.logged("a failure of a script beside")
            # The front controller stays the application's, by whatever name it is asked for.
            assert get(server, "/?n=1").json()["static"] == 1 and get(server, "/index.php?n=1").json()["static"] == 1
            assert modes(server)[name] == ("classic" if flags else "worker"), server.log()
    for classic, beside in zip(*answers, strict=True):
        assert beside == classic
    script = json.loads(answers[1][4][4])
    assert script["server"]["SCRIPT_NAME"] == "/legacy.php" and script["server"]["PATH_INFO"] == "/a/b"
    assert (script["calls"], script["kept"]) == (1, 1) and "HAYATE_PROJECT" not in script["server"]


def test_what_is_put_there_later_runs_after_a_reload(project) -> None:
    name, late = project.name, project / "public/late.php"
    with Hayate(project, workers=1) as server:
        assert modes(server) == {name: "worker"}, "no scripts, no second application"
        late.write_text("<?php echo 'late';")
        time.sleep(1.1)
        assert get(server, "/late.php").text != "late" and modes(server) == {name: "worker"}
        assert server.reload().returncode == 0
        assert get(server, "/late.php").text == "late" and modes(server) == {name: "worker", f"{name} scripts": "classic"}
        later = project / "public/later.php"
        later.write_text("<?php echo 'later';")
        assert get(server, "/later.php").text != "later"
        late.write_text("<?php echo 'changed';")
        assert wait_until(lambda: get(server, "/late.php").text == "changed")
        late.unlink()
        assert wait_until(lambda: get(server, "/late.php").status_code == 404)
        later.unlink()
        assert server.reload().returncode == 0
        assert modes(server) == {name: "worker"} and get(server, "/").status_code == 200


def test_what_they_do_goes_on_over_a_reload_and_an_upgrade(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = add(frameworks.laravel(tmp_path))
    stop, failed, count = threading.Event(), [], []

    def load(server: Hayate, path: str, fits) -> None:
        while not stop.is_set():
            answer = requests.get(server.url + path, timeout=60)
            count.append(path)
            if answer.status_code != 200 or not fits(answer.text):
                failed.append((path, answer.status_code, answer.text[:200]))

    with Hayate(project, workers=2) as server:
        of_scripts = {worker["pid"] for worker in server.status()["apps"][1]["workers"]}
        loads = [("/sleeps.php?ms=20", str.isdigit), ("/sub/", lambda text: '"kept":1' in text), ("/?n=1", lambda text: '"static":1' in text)]
        threads = [threading.Thread(target=load, args=(server, *one)) for one in loads]
        slow: list[requests.Response] = []
        threads.append(threading.Thread(target=lambda: slow.append(requests.get(server.url + "/sleeps.php?ms=4000", timeout=60))))
        for thread in threads:
            thread.start()
        try:
            time.sleep(0.5)
            assert server.reload().returncode == 0
            time.sleep(0.5)
            done = server.run("upgrade", timeout=60)
            assert done.returncode == 0, (done, server.log_tail())
            time.sleep(0.5)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failed and len(count) > 20, failed
        assert slow[0].status_code == 200 and slow[0].text.isdigit()
        assert modes(server) == {"laravel": "worker", "laravel scripts": "classic"}
        assert of_scripts.isdisjoint({worker["pid"] for worker in server.status()["apps"][1]["workers"]})


def test_check_the_log_and_status_say_it(project) -> None:
    name = add(project).name
    said = check(project)
    assert "mode        worker, recognised" in said, said
    assert "scripts     /fails.php, /leaves.php, /legacy.php, /sleeps.php, /sub/index.php\n" in said, said
    assert "run in classic mode" in said and "after a reload" in said and "This can be served" in said
    for flags in (["--mode", "classic"], ["--mode", "worker"]):
        assert "scripts     " not in check(project, *flags)
    (project / "public/more.php").write_text("")
    with Hayate(project, workers="1-3") as server:
        assert "PHP scripts beside it, in classic mode" in server.log() and "and 1 more" in server.log(), server.log()
        described = server.run("status").stdout
        assert f"{name} scripts: serving, classic mode" in described and f"runs PHP scripts beside {name}" in described
        (_, scripts) = server.status()["apps"]
        assert (scripts["beside"], scripts["workers_min"], scripts["workers_max"]) == (name, 1, 3)


def test_who_writes_worker_mode_down_keeps_it(project) -> None:
    add(project)
    with Hayate(project, workers=1, args=["--mode", "worker"]) as server:
        assert modes(server) == {project.name: "worker"}
        assert "X-Legacy" not in get(server, "/legacy.php").headers


def test_limits_and_rules_hold_for_them(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = add(frameworks.laravel(tmp_path))
    for directory in ("closed", "storage/deep"):
        (project / "public" / directory).mkdir(parents=True)
    for name in ("storage/x.php", "storage/deep/y.php", "closed/x.php", "hidden.secret.php", ".dot.php"):
        (project / "public" / name).write_text("<?php echo 'never';")
    config = (
        f'[[app]]\nroot = "{project}"\nname = "shop"\nworkers = 2\nrequest_timeout = "1s"\ndeny = ["/closed"]\nhidden_files = ["default", "*.secret.php"]\n'
        '[[app.rule]]\npath = "/old"\nrewrite = "/legacy.php"\n'
        '[[app.rule]]\npath = "/sub"\ndeny = 403\n'
        "[[app.rule]]\npath = '/storage'\nregex = '(?i)\\.php$'\ndeny = 404\n"
    )
    with Hayate(config=config) as server:
        assert modes(server) == {"shop": "worker", "shop scripts": "classic"}
        for path in ("/storage/x.php", "/storage/deep/y.php/a", "/closed/x.php", "/hidden.secret.php", "/.dot.php"):
            assert get(server, path).status_code == 404, path
        assert get(server, "/sub/").status_code == 403 and get(server, "/sub/index.php").status_code == 403
        assert get(server, "/old?a=1").headers["X-Legacy"] == "yes"
        assert get(server, "/sleeps.php?ms=5000").status_code == 504
        assert get(server, "/legacy.php").json()["kept"] == 1


def test_below_a_path(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = add(frameworks.symfony(tmp_path, runtime=True))
    with Hayate(config=f'[[app]]\nroot = "{project}"\npath = "/shop"\nworkers = 1\n') as server:
        assert get(server, "/shop/legacy.php/a").json()["server"]["SCRIPT_NAME"] == "/shop/legacy.php"
        assert get(server, "/shop/sub/").json()["server"]["SCRIPT_NAME"] == "/shop/sub/index.php"
        assert get(server, "/legacy.php").status_code == 404


def test_an_application_that_does_not_boot_fails_the_start_whatever_runs_beside_it(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = add(frameworks.laravel(tmp_path))
    broken = project / "config/app.php"
    broken.write_text(broken.read_text().replace("return", "throw new LogicException('misconfigured by the tests');\nreturn", 1))
    command = [hayate_binary(), "serve", project, "--listen", "127.0.0.1:0", "--control", project / "control"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "misconfigured by the tests" in done.stderr, done.stderr


def test_they_run_beside_an_application_that_falls_back(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = add(frameworks.laravel(tmp_path))
    frameworks.provider(project, "$host = request()->getHost();")
    with Hayate(project, workers=1) as server:
        assert get(server, "/").status_code == 200
        (app, scripts) = server.status()["apps"]
        assert app["fallback"]["to"] == "classic" and scripts["fallback"] is None, server.log()
        assert get(server, "/legacy.php/a").json()["server"]["PATH_INFO"] == "/a"


def test_explain_tells_them_apart(tmp_path) -> None:
    tmp_path.chmod(0o755)
    project = add(frameworks.laravel(tmp_path))
    command = [hayate_binary(), "explain", project, "--url", "/legacy.php", "--url", "/?n=1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    found = {report["name"]: [sample["path"] for sample in report["samples"]] for report in reports}
    assert found == {"laravel": ["/?n=1"], "laravel scripts": ["/legacy.php"]}, reports


def test_another_application_may_be_called_as_they_are(tmp_path) -> None:
    """The fault: a request that was under way at the reload which brought it ran in its environment, as its user."""
    tmp_path.chmod(0o755)
    project = add(frameworks.laravel(tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.php").write_text("<?php echo 'other';")
    shop = f'[[app]]\nname = "shop"\nroot = "{project}"\nworkers = 1\n'
    with Hayate(config=shop) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as one:
            one.sendall(b"POST /legacy.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n\r\n12345")
            time.sleep(0.5)
            named_alike = f'[[app]]\nname = "shop scripts"\nroot = "{other}"\nhosts = ["other.example"]\nworkers = 1\n[app.env]\nGREETING = "other"\n'
            server._config.write_text(server._config.read_text() + named_alike)
            assert server.reload().returncode == 0, server.log_tail()
            one.sendall(b"67890")
            answer = b""
            while part := one.recv(65536):
                answer += part
        said = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert said["body"] == "1234567890" and "GREETING" not in said["server"]
        assert get(server, "/legacy.php").json()["server"].get("GREETING") is None
