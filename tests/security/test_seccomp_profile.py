"""Under the seccomp filter that Docker and Kubernetes put around a container by default, all but a list of system calls refused: each way of running
answers, and nothing but `userfaultfd` is missed. As root with the capabilities that Docker leaves, and as a user without any."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import requests

from lib.process import temporary_directory
from lib.seccomp import Filter
from lib.servers import Hayate

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a server with fewer capabilities")

USER = "www-data"
#: The first is for rewinding. The second is asked by a library of an extension as it is loaded (libnuma), which goes on without.
MISSED = {"userfaultfd", "get_mempolicy"}
BOOT = "<?php $n = 0; $shared = new PDO('sqlite::memory:');"
#: What applications do, and the kernel is asked for in other ways than for a page.
ACT = r"""
    $n = ($n ?? 0) + 1;
    $file = tempnam(sys_get_temp_dir(), 'hayate');
    file_put_contents($file, str_repeat('x', 100000), LOCK_EX);
    echo json_encode([
        'n' => $n,
        'file' => filesize($file) . ' ' . var_export(unlink($file), true),
        'body' => strlen(file_get_contents('php://input')),
        'upload' => isset($_FILES['file']) ? filesize($_FILES['file']['tmp_name']) : null,
        'program' => trim(shell_exec('echo program; id -u')),
        'process' => (function () {
            $process = proc_open(['/bin/cat'], [['pipe', 'r'], ['pipe', 'w']], $pipes);
            fwrite($pipes[0], 'through a pipe');
            fclose($pipes[0]);
            return stream_get_contents($pipes[1]) . ' ' . proc_close($process);
        })(),
        'database' => (new PDO('sqlite::memory:'))->query('select 6 * 7')->fetchColumn(),
        'random' => strlen(random_bytes(32)),
        'name' => gethostbyname('localhost'),
        'fetched' => (function () {
            if (!function_exists('curl_init') || isset($_GET['inner'])) {
                return 'plain';
            }
            // Resolves names in a thread.
            $curl = curl_init("http://localhost:{$_SERVER['SERVER_PORT']}/plain.txt");
            curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 30]);
            return curl_exec($curl);
        })(),
        'session' => (function () {
            session_save_path(sys_get_temp_dir());
            session_id('seccomp' . getmypid());
            session_start();
            $_SESSION['seen'] = true;
            return session_destroy();
        })(),
        'limit' => (function () {
            set_time_limit(30);
            usleep((int) ($_GET['sleep'] ?? 0) * 1000);
            return ini_get('max_execution_time');
        })(),
    ]);
"""


@pytest.fixture(scope="module")
def site() -> Iterator[pathlib.Path]:
    directory = temporary_directory("seccomp")
    (directory / "index.php").write_text("<?php" + ACT)
    (directory / "plain.txt").write_text("plain")
    (directory / "large.bin").write_bytes(bytes(range(256)) * 8000)
    (directory / "worker.php").write_text(f"{BOOT} while (hayate_handle_request(function () use (&$n, $shared) {{ {ACT} }})) {{ }}")
    yield directory
    shutil.rmtree(directory)


class Contained(Hayate):
    """With that filter; `root`: started as root, else as a user without privileges."""

    def __init__(self, site: pathlib.Path, prepare, *, root: bool, **more) -> None:
        super().__init__(site, user=USER, **more)
        self.prepare = prepare
        if not root:
            self._user = None

    def command(self) -> list[str]:
        become = [] if self._user else ["/usr/bin/setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        return [*become, *map(str, super().command())]


def act(server: Hayate, **query: object) -> dict:
    files = {"file": ("a.bin", b"f" * 300_000)}
    answer = requests.post(server.url + "/", params=query, files=files, timeout=60)
    assert answer.status_code == 200, (answer.text, server.log_tail())
    return answer.json()


@pytest.mark.parametrize("root", [True, False], ids=["root", "user"])
@pytest.mark.parametrize("allowed", [(), ("userfaultfd",)], ids=["default", "userfaultfd-allowed"])
@pytest.mark.parametrize("mode", ["classic", "worker"])
def test_everything_answers(site, mode, allowed, root) -> None:
    refused: set[str] = set()
    how = {"worker": site / "worker.php"} if mode == "worker" else {}
    with Filter(*allowed, root=True).watch(refused) as prepare:
        flags = ["--slow-request", "300ms", *(["--warmup", "off"] if mode == "worker" else [])]
        with Contained(site, prepare, root=root, workers="1-3", args=flags, access_log="-", **how) as server:
            uid = subprocess.run(["id", "-u", USER], capture_output=True, text=True, check=True).stdout.strip()
            for _ in range(3):
                said = act(server)
                assert said == {
                    "n": 1,
                    "file": "100000 true",
                    "body": 0,
                    "upload": 300_000,
                    "program": f"program\n{uid}",
                    "process": "through a pipe 0",
                    "database": said["database"],
                    "random": 32,
                    "name": "127.0.0.1",
                    "fetched": "plain",
                    "session": True,
                    "limit": "30",
                }
                assert str(said["database"]) == "42"
            assert requests.get(server.url + "/large.bin", timeout=60).content == bytes(range(256)) * 8000
            (app,) = server.status()["apps"]
            if mode == "worker":
                expected = {"uffd"} if allowed else {"fork", "soft-dirty"}
                assert app["rewind"]["tracking"] in expected, app["rewind"]
            act(server, sleep=600)
            assert server.logged("slow request")
            reloaded = server.reload()
            assert reloaded.returncode == 0, reloaded.stderr
            upgraded = server.run("upgrade")
            assert upgraded.stdout == "upgraded\n", (upgraded, server.log_tail())
            assert act(server)["n"] == 1
        assert "refuse" not in server.log() and "not permitted" not in server.log(), server.log()
    assert refused <= MISSED, refused
