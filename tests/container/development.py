"""The development image, started by runc as somebody would who works on an application: the project is mounted from outside, changes show, errors are in
the browser, Xdebug steps and profiles, composer and git run. `run` starts it in a root of Debian 13, and prints a line for each thing that holds.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from inside import PORT, configured, get, holds, run, started, unpack

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "php"))
from debugger import Session  # noqa: E402
from lib.seccomp import profile  # noqa: E402

CONFIGURATION = f"""
listen = "127.0.0.1:{PORT}"
drain_timeout = "25s"
[[app]]
root = "/app"
inherit_env = "*"
"""
PAGE = """<?php
require __DIR__.'/../src/greeting.php';
$n = (int) ($_GET['n'] ?? 1);
$twice = $n * 2;
echo json_encode(['greeting' => greeting(), 'twice' => $twice, 'xdebug' => extension_loaded('xdebug'), 'modes' => xdebug_info('mode')]);
"""
FAULT = "<?php throw new LogicException('what is wrong');"


def greeting(project: pathlib.Path, text: str) -> None:
    """As an editor saves."""
    (project / "src/greeting.php.new").write_text(f"<?php function greeting() {{ return '{text}'; }}")
    (project / "src/greeting.php.new").rename(project / "src/greeting.php")


def main(image: pathlib.Path, bundle: pathlib.Path) -> None:
    root, project = bundle / "rootfs", bundle / "project"
    root.mkdir()
    of_image = unpack(image, root)
    (root / "etc/hayate/hayate.toml").write_text(CONFIGURATION)
    bundle.chmod(0o755)
    for directory in ("", "public", "src"):
        (project / directory).mkdir()
    greeting(project, "one")
    (project / "public/index.php").write_text(PAGE)
    (project / "public/fault.php").write_text(FAULT)
    uid = int(of_image["User"].split(":")[0])
    holds("its user is a number, and not root", uid > 0, uid)
    holds("it serves in development mode", "--dev" in of_image["Cmd"], " ".join(of_image["Cmd"]))
    check = of_image["Healthcheck"]["Test"][1:]

    def mounted(**environment: str) -> dict:
        config = configured(of_image, **environment)
        config["mounts"].append({"destination": "/app", "type": "bind", "source": str(project), "options": ["rbind", "rw"]})
        config["linux"]["seccomp"] = profile()
        return config

    with started(bundle, mounted(), check) as container:
        answer = json.loads(get("/"))
        holds("a mounted project is served", answer["greeting"] == "one" and answer["twice"] == 2)
        holds("Xdebug is there, and off", answer["xdebug"] and answer["modes"] == [], answer)
        seen = []
        for text in ("two", "three", "four"):
            greeting(project, text)
            seen.append(json.loads(get("/"))["greeting"])
        holds("a change shows with the next request", seen == ["two", "three", "four"], seen)
        (project / "public/new.php").write_text("<?php echo 'new';")
        until = time.monotonic() + 10
        while (new := get("/new.php")) != b"new" and time.monotonic() < until:
            time.sleep(0.1)
        holds("a new script is found", new == b"new", new)
        try:
            get("/fault.php")
            raise AssertionError("expected 500 for an exception that nobody catches")
        except urllib.error.HTTPError as error:
            page = error.read().decode()
            holds("an error is in the browser, with its place", error.code == 500 and "what is wrong" in page and "/app/public/fault.php" in page)
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=30) as plain:
            holds("answers say how long they took", "php;dur=" in plain.headers["Server-Timing"], plain.headers["Server-Timing"])
        for command in (["composer", "--version", "--no-interaction"], ["git", "--version"], ["php", "--version"], ["unzip", "-v"]):
            done = container.exec(*command)
            holds(f"{command[0]} runs", done.returncode == 0, done.stdout.partition("\n")[0] or done.stderr)
        holds("it ends with 0", container.end() == 0)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(60)
        told = f"client_host=127.0.0.1 client_port={listener.getsockname()[1]}"
        with started(bundle, mounted(XDEBUG_MODE="debug", XDEBUG_CONFIG=told), check) as container:
            answer = pool.submit(get, "/?n=21&XDEBUG_TRIGGER=1")
            with Session(listener.accept()[0]) as session:
                line = 1 + PAGE.splitlines().index("$twice = $n * 2;")
                session.say("breakpoint_set", f"-t line -f file:///app/public/index.php -n {line}")
                stopped, n = session.go("run"), session.value("$n")
                stepped, twice = session.go("step_over"), session.value("$twice")
                holds("XDEBUG_MODE=debug: a debugger breaks, looks and steps", (stopped, n, stepped, twice) ==
                      (("break", line), "21", ("break", line + 1), "42"), (stopped, n, stepped, twice))
                session.finish()
            holds("and the answer comes", json.loads(answer.result(60))["twice"] == 42)
            holds("it ends with 0", container.end() == 0)

    # As the guide says: whose project it is, by the number outside.
    for path in (project, *project.rglob("*")):
        os.chown(path, 1000, 1000)
    (project / "public/writes.php").write_text("<?php mkdir('/app/var'); echo posix_getuid(), ' ', file_put_contents('/app/var/cached', 'x');")
    own = mounted(HOME="/tmp")
    own["process"]["user"] = {"uid": 1000, "gid": 1000}
    with started(bundle, own, check) as container:
        holds("as its own user the project is written", get("/writes.php") == b"1000 1" and (project / "var/cached").stat().st_uid == 1000)
        done = container.exec("composer", "init", "--no-interaction", "--name=a/b", "--working-dir=/app/var")
        holds("and Composer writes there", done.returncode == 0 and (project / "var/composer.json").stat().st_uid == 1000, done.stderr)
        holds("it ends with 0", container.end() == 0)

    with started(bundle, mounted(XDEBUG_MODE="profile", XDEBUG_CONFIG="output_dir=/tmp"), check) as container:
        get("/")
        listing = container.exec("sh", "-c", "zcat -f /tmp/cachegrind.out.* | grep -c '^fn='")
        holds("XDEBUG_MODE=profile: a profile lies in /tmp", listing.returncode == 0, listing.stdout.strip() + " functions called")
        holds("it ends with 0", container.end() == 0)


if __name__ == "__main__":
    run(main)
