"""The container image, started by runc as a cluster would: read-only root, no user but www-data, no capability, limits of a cgroup, seccomp.

`run` starts it in a root of Debian 13. It prints a line for each thing that holds; the first that does not ends it with what the server said.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lib.seccomp import profile  # noqa: E402

PORT, METRICS = 18480, 18481
WORKER = """<?php
$booted = getmypid();
while (hayate_handle_request(function () use (&$n) {
    if (isset($_GET['sleep'])) { sleep((int) $_GET['sleep']); }
    echo json_encode(['php' => PHP_VERSION, 'uid' => posix_getuid(), 'n' => ++$n, 'greeting' => getenv('GREETING'),
        'root' => @file_put_contents('/app/written', 'x'), 'tmp' => file_put_contents('/tmp/written', 'x'),
        'collects' => ini_get('session.gc_probability') / ini_get('session.gc_divisor'), 'extensions' => get_loaded_extensions()]);
})) {
}
"""
CONFIGURATION = f"""
listen = "127.0.0.1:{PORT}"
metrics = "127.0.0.1:{METRICS}"
drain_timeout = "25s"
[[app]]
root = "/app"
worker = "public/worker.php"
warmup = []
inherit_env = "*"
"""
EXTENSIONS = {"intl", "mbstring", "pdo_mysql", "pdo_pgsql", "pdo_sqlite", "Zend OPcache", "redis", "apcu", "gd", "curl", "zip", "bcmath", "xml"}


def unpack(image: pathlib.Path, root: pathlib.Path) -> dict:
    """The layers, one over the other; returns the image's configuration."""
    with tarfile.open(image) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(layer)) as files:
                for member in files:
                    path = pathlib.PurePath(member.name)
                    if path.name.startswith(".wh."):
                        gone = root / path.parent / path.name.removeprefix(".wh.")
                        if gone.is_dir() and not gone.is_symlink():
                            shutil.rmtree(gone)
                        else:
                            gone.unlink(missing_ok=True)
                    else:
                        files.extract(member, root, filter="fully_trusted")
        return json.load(tar.extractfile(manifest["Config"]))["config"]


class Container:
    def __init__(self, bundle: pathlib.Path, config: dict) -> None:
        self.bundle, self.name = bundle, f"hayate-test-{os.getpid()}"
        self.runc = ["runc", "--root", str(bundle / "state")]
        (bundle / "config.json").write_text(json.dumps(config))
        self.log = open(bundle / "log", "w+")
        self.process = subprocess.Popen(
            [*self.runc, "run", "--bundle", str(bundle), self.name], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def exec(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.runc, "exec", self.name, *command], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False
        )

    def healthy(self) -> bool:
        """By the image's own health check."""
        return self.exec(*self.check).returncode == 0

    def workers(self) -> list[dict]:
        return json.loads(self.exec("hayate", "status", "--json").stdout)["apps"][0]["workers"]

    def end(self) -> int:
        subprocess.run([*self.runc, "kill", self.name, "TERM"], check=True, timeout=30)
        return self.process.wait(40)


@contextlib.contextmanager
def started(bundle: pathlib.Path, config: dict, check: list[str]) -> Iterator[Container]:
    container = Container(bundle, config)
    container.check = check
    try:
        until = time.monotonic() + 60
        while not container.healthy():
            if container.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"it does not become healthy:\n{container.exec(*check)}\n{container.said()}")
            time.sleep(0.2)
        yield container
    finally:
        if container.process.poll() is None:
            subprocess.run([*container.runc, "kill", container.name, "KILL"], check=False, timeout=30)
            container.process.wait(30)


def get(path: str, port: int = PORT) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        assert answer.status == 200
        return answer.read()


def holds(what: str, condition: object, found: object = "") -> None:
    if not condition:
        raise AssertionError(f"{what}: {found}")
    print(f"holds: {what} {found}".rstrip(), flush=True)


def configured(of_image: dict, **environment: str) -> dict:
    """What runc is told: a read-only root, no capability, the image's user."""
    uid, gid = map(int, of_image["User"].split(":"))

    def mount(to: str, kind: str, *options: str) -> dict:
        return {"destination": to, "type": kind, "source": kind, "options": ["nosuid", *options]}

    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": uid, "gid": gid},
            "args": of_image["Cmd"],
            # What is said when it is started takes the place of what the image says.
            "env": [f"{name}={value}" for name, value in {**dict(one.split("=", 1) for one in of_image["Env"]), **environment}.items()],
            "cwd": of_image["WorkingDir"],
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": [
            mount("/proc", "proc"),
            mount("/dev", "tmpfs", "mode=755", "size=65536k"),
            mount("/dev/shm", "tmpfs", "mode=1777", "size=65536k"),
            mount("/tmp", "tmpfs", "mode=1777", "nodev"),
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro"]},
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "cgroup")],
            "readonlyPaths": ["/proc/sys"],
        },
    }


def main(image: pathlib.Path, bundle: pathlib.Path) -> None:
    root = bundle / "rootfs"
    root.mkdir()
    of_image = unpack(image, root)
    (root / "app/public/worker.php").write_text(WORKER)
    licences = root / "usr/share/licenses/hayate"
    holds("the licence is in the image, and those of what is linked into it", all((licences / name).exists() for name in ("LICENSE", "notices")))
    (root / "etc/hayate/hayate.toml").write_text(CONFIGURATION)
    uid = int(of_image["User"].split(":")[0])
    holds("its user is a number, and not root", uid > 0, uid)
    for program in ("hayate", "hayate-php8.4"):
        listed = json.loads((root / f"usr/share/hayate/sbom/{program}.cdx.json").read_text())
        holds("what went into the program is listed", listed["metadata"]["component"]["name"] == program, f"{program}: {len(listed['components'])}")
    config = configured(of_image, GREETING="of the container")
    config["linux"]["resources"] = {"memory": {"limit": 192 << 20}, "cpu": {"quota": 100000, "period": 100000}, "pids": {"limit": 60}}
    check = of_image["Healthcheck"]["Test"][1:]

    with started(bundle, config, check) as container:
        answer = json.loads(get("/"))
        holds("it answers as www-data, with PHP 8.4", answer["uid"] == uid and answer["php"].startswith("8.4."), answer["php"])
        holds("the root is read-only and /tmp is not", answer["root"] is False and answer["tmp"] == 1)
        holds("the application has the container's variables", answer["greeting"] == "of the container")
        holds("PHP removes old sessions itself", 0 < answer["collects"] < 0.1, answer["collects"])
        holds("the usual extensions are there", EXTENSIONS <= set(answer["extensions"]), EXTENSIONS - set(answer["extensions"]) or "")
        holds("requests are rewound", [json.loads(get("/"))["n"] for _ in range(20)] == [1] * 20)
        holds("/readyz and /metrics answer", b"ready" in get("/readyz", METRICS) and b"hayate_" in get("/metrics", METRICS))
        said = container.exec("hayate", "check", "--config", "/etc/hayate/hayate.toml").stdout
        seen = "may use       1 processor, 192 MB of memory (cgroup), 60 processes" in said and "workers     1-3\n" in said
        holds("the cgroup's limits are seen", seen, said.splitlines()[2])
        slow: list[bytes] = []
        client = threading.Thread(target=lambda: slow.append(get("/?sleep=3")))
        client.start()
        while all(worker["state"] == "idle" for worker in container.workers()):
            time.sleep(0.05)
        code = container.end()
        client.join(30)
        holds("SIGTERM lets a request of three seconds finish, then it ends with 0", slow and code == 0, code)

    for what, filter_ in [
        ("no profile", None),
        ("Docker's default profile", profile()),
        ("Docker's, with userfaultfd allowed", profile(("userfaultfd",))),
    ]:
        other = copy.deepcopy(config)
        del other["linux"]["resources"]
        if filter_:
            other["linux"]["seccomp"] = filter_
        with started(bundle, other, check) as container:
            numbers = [json.loads(get("/"))["n"] for _ in range(20)]
            said = container.exec("hayate", "check", "--config", "/etc/hayate/hayate.toml").stdout
            (line,) = [line.strip() for line in said.splitlines() if "tracking" in line]
            forbidden = filter_ is not None and "userfaultfd" not in filter_["syscalls"][0]["names"]
            holds(f"{what}: each request is the first of its application", numbers == [1] * 20)
            holds(f"{what}: check says how", ("uffd, the fastest" in line) != forbidden, line)
            holds(f"{what}: check says what to allow", ("allow that system call" in said) == forbidden)
            metrics = get("/metrics", METRICS).decode()
            way = line.split()[1].strip(",").replace("none", "fork")
            holds(f"{what}: the metric says so as well", f'hayate_rewind_tracking{{app="app",tracking="{way}"}} 1' in metrics)
            holds(f"{what}: it ends with 0", container.end() == 0)


def run(looks: Callable[[pathlib.Path, pathlib.Path], None]) -> None:
    """With the image that the command names, and a directory that is gone afterwards."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="hayate-container-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        looks(pathlib.Path(sys.argv[1]), directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    run(main)
