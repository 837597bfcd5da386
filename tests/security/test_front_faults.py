"""Faults of the front that an attacker found, each under its name: one visitor, one file or one script ended the server for all."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import errno
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import requests

from lib import site
from lib.cgroups import Unavailable, process_group
from lib.process import wait_until
from lib.servers import Hayate, free_port, hayate_binary


@pytest.fixture
def blog(hayate_command, tmp_path) -> Iterator[Hayate]:
    """An application below /blog that sends files by X-Accel-Redirect; `<root>-old` lies beside its root."""
    root = site.make(tmp_path)
    (root / "accel_any.php").write_text("<?php header('X-Accel-Redirect: ' . $_GET['to']);")
    (root / "send_any.php").write_text("<?php header('X-Sendfile: ' . $_GET['to']);")
    neighbour = root.with_name(root.name + "-old")
    neighbour.mkdir()
    (neighbour / "x.txt").write_text("of the neighbour")
    config = f'[[app]]\nroot = "{root}"\npath = "/blog"\nfront_controller = ""\nsendfile_roots = []\n'
    with Hayate(config=config, workers=1) as server:
        yield server


def redirected(server: Hayate, to: str, script: str = "accel_any.php") -> requests.Response:
    return requests.get(f"{server.url}/blog/{script}", params={"to": to}, timeout=60)


def test_x_accel_redirect_to_a_path_outside_of_the_applications_prefix(blog) -> None:
    assert redirected(blog, "/blog/plain.txt").text.startswith("plain text")
    for to in ("/a", "/", "/blo", "/blo/", "/blo/-old/x.txt", "/blogger", "/blog-old/x.txt", "a", "", "/blog/../a", "%", "//"):
        answer = redirected(blog, to)
        assert answer.status_code == 404 and "neighbour" not in answer.text, to
    assert blog.logged("the script asked to send")


def test_x_sendfile_from_a_neighbour_of_the_root(blog) -> None:
    root = pathlib.Path(blog.status()["apps"][0]["document_root"])
    for to in (f"{root}-old/x.txt", f"{root}/../{root.name}-old/x.txt", "/etc/passwd", "x.txt", ""):
        answer = redirected(blog, to, "send_any.php")
        assert answer.status_code == 404 and "neighbour" not in answer.text, to
    assert redirected(blog, f"{root}/plain.txt", "send_any.php").text.startswith("plain text")


def test_a_prefix_is_not_one_of_its_neighbours(blog) -> None:
    for path in ("/blogger/ok.php", "/blog-old/x.txt", "/blo/g/ok.php"):
        assert requests.get(blog.url + path, timeout=60).status_code == 404, path


def test_a_file_whose_time_is_after_the_year_9999(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    far = pathlib.Path("/dev/shm") / f"hayate-{os.getpid()}-far.txt"
    try:
        for seconds in (253402300800, 2**40, -1, -(2**40)):
            far.write_text("from afar")
            subprocess.run(["touch", "-d", f"@{seconds}", far], check=True)
            if not (root / "far.txt").is_symlink():
                (root / "far.txt").symlink_to(far)
            with Hayate(root, workers=1) as server:
                answer = requests.get(server.url + "/far.txt", timeout=60)
                assert (answer.status_code, answer.text) == (200, "from afar")
                assert "Last-Modified" not in answer.headers
                assert requests.get(server.url + "/ok.php?on", timeout=60).text == "ok on"
    finally:
        far.unlink(missing_ok=True)


def test_header_count_has_a_range(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    config = tmp_path / "hayate.toml"
    for count, said in ((32769, "out of range"), (0, "out of range"), (10_000, "")):
        config.write_text(f'[limits]\nheader_count = {count}\nhead_size = "1M"\n[[app]]\nroot = "{root}"\n')
        done = subprocess.run(
            [hayate_binary(), "check", "--config", config], capture_output=True, text=True, timeout=60, check=False
        )
        assert (said in done.stdout + done.stderr) and (done.returncode == 0) == (not said), done
    with Hayate(config=config.read_text(), workers=1) as server:
        for count in (9_990, 10_001, 39_000):
            headers = "".join(f"a{i}: b\r\n" for i in range(count))
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
                s.sendall(f"GET /plain.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n".encode())
                want = b"200" if count < 10_000 else b"431"
                assert s.recv(65536).startswith(b"HTTP/1.1 " + want), count
        assert requests.get(server.url + "/ok.php?on", timeout=60).text == "ok on"


def fuse_that_never_answers(directory: pathlib.Path) -> int:
    """Mounts a FUSE file system without a daemon: every look at it waits until the returned descriptor is closed."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error}")
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"hayate-test", os.fsencode(directory), b"fuse", 0, options.encode()) != 0:
        os.close(device)
        pytest.skip(f"cannot mount FUSE: {os.strerror(ctypes.get_errno())}")
    return device


def test_a_file_system_that_hangs(hayate_command, tmp_path) -> None:
    """The site on it gets 503; the others, healthz and SIGTERM do not notice."""
    root = site.make(tmp_path)
    hanging = tmp_path / "hanging"
    (hanging / "files").mkdir(parents=True)
    (hanging / "index.php").write_text("<?php echo 'unharmed';")
    os.chmod(hanging, 0o755)
    metrics = f"127.0.0.1:{free_port()}"
    config = (
        f'metrics = "{metrics}"\n'
        f'[[app]]\nname = "fine"\nroot = "{root}"\nworkers = 2\n'
        f'[[app]]\nname = "hanging"\nroot = "{hanging}"\nhosts = ["hanging.test"]\nworkers = 1\n'
    )
    device = fuse_that_never_answers(hanging / "files")
    try:
        with Hayate(config=config) as server:

            def hung(i: int) -> int:
                headers = {"Host": "hanging.test"}
                return requests.get(f"{server.url}/files/{i}.txt", headers=headers, timeout=60).status_code

            def others_are_served() -> None:
                for i in range(5):
                    assert requests.get(f"{server.url}/ok.php?{i}", timeout=60).text == f"ok {i}"
                    assert requests.get(f"{server.url}/plain.txt", timeout=60).status_code == 200
                assert requests.post(f"{server.url}/count.php", data=b"x" * 100_000, timeout=60).text == "100000"

            with concurrent.futures.ThreadPoolExecutor(30) as pool:
                waiting = [pool.submit(hung, i) for i in range(30)]
                others_are_served()
                assert server.run("status").returncode == 0
                for path in ("healthz", "readyz", "metrics"):
                    assert requests.get(f"http://{metrics}/{path}", timeout=60).status_code == 200
                assert {future.result() for future in waiting} == {503}
            # Now it is known: nobody waits any more.
            assert hung(31) == 503
            others_are_served()
            assert server.logged("does not answer")
    finally:
        os.close(device)
        subprocess.run(["umount", "-l", hanging / "files"], check=False)


def test_sigterm_with_a_file_system_that_hangs(hayate_command, tmp_path) -> None:
    """Requests hang in it when the signal comes. They get 503, and the server ends long before drain_timeout (30 s) is over."""
    hanging = tmp_path / "hanging"
    hanging.mkdir()
    (tmp_path / "index.php").write_text("<?php echo 'unharmed';")
    os.chmod(tmp_path, 0o755)
    device = fuse_that_never_answers(hanging)
    try:
        with Hayate(config=f'[[app]]\nroot = "{tmp_path}"\nworkers = 1\n') as server, contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60)) for _ in range(3)]
            for i, one in enumerate(waiting):
                one.sendall(f"GET /hanging/{i}.txt HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert wait_until(lambda: server.status()["connections"] >= 3)
            # Their lookups hold three of the four threads that a place may occupy.
            assert requests.get(server.url + "/", timeout=60).text == "unharmed"
            server.stop_timeout = 28
            assert server.stop() == 0
            assert [one.recv(12) for one in waiting] == [b"HTTP/1.1 503"] * 3
    finally:
        os.close(device)
        subprocess.run(["umount", "-l", hanging], check=False)


def test_a_file_system_that_fails(hayate_command, tmp_path) -> None:
    """Nobody can say that nothing is there: neither 404 nor the front controller is the answer, and the log says why."""
    (tmp_path / "files").mkdir()
    (tmp_path / "index.php").write_text("<?php echo 'the front controller';")
    os.chmod(tmp_path, 0o755)
    device = fuse_that_never_answers(tmp_path / "files")
    # Whoever looks gets ENOTCONN.
    os.close(device)
    try:
        config = f'[[app]]\nroot = "{tmp_path}"\nfront_controller = "index.php"\nworkers = 1\n'
        with Hayate(config=config) as server:
            assert requests.get(f"{server.url}/there/is/none", timeout=60).text == "the front controller"
            for name in ("style.css", "page", "script.php"):
                assert requests.get(f"{server.url}/files/{name}", timeout=60).status_code == 503, name
            assert server.logged("not connected")
    finally:
        subprocess.run(["umount", "-l", tmp_path / "files"], check=False)


class FailingFuse(threading.Thread):
    """Answers for a FUSE: each question but the first with this error."""

    def __init__(self, device: int, error: int) -> None:
        super().__init__(daemon=True)
        self.device, self.error = device, error

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                request = os.read(self.device, 1 << 20)
                _, opcode, unique = struct.unpack_from("=IIQ", request)
                answer, error = b"", -self.error
                if opcode == 26:  # INIT: struct fuse_init_out
                    answer, error = struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 9, 4096, 1, 0, 0, 0), 0
                elif opcode in (2, 42):  # FORGET, in one piece or many: nobody waits
                    continue
                os.write(self.device, struct.pack("=IiQ", 16 + len(answer), error, unique) + answer)


@pytest.mark.parametrize("name", ["EIO", "EBADMSG", "EUCLEAN", "EHOSTUNREACH", "ENOLINK", "ENODEV", "EOVERFLOW"])
def test_whatever_a_file_system_fails_with_nobody_says_that_nothing_is_there(hayate_command, tmp_path, name) -> None:
    """A broken disk, a network that is gone, a key that is missing: 503 and its word in the log, also for what a script sends."""
    error = getattr(errno, name)
    (tmp_path / "files").mkdir()
    (tmp_path / "index.php").write_text("<?php echo 'the front controller';")
    (tmp_path / "send.php").write_text(f"<?php header('X-Sendfile: {tmp_path}/files/' . $_GET['name']);")
    os.chmod(tmp_path, 0o755)
    device = fuse_that_never_answers(tmp_path / "files")
    FailingFuse(device, error).start()
    try:
        config = f'[[app]]\nroot = "{tmp_path}"\nfront_controller = "index.php"\nworkers = 1\nsendfile_roots = []\n'
        with Hayate(config=config) as server:
            assert requests.get(f"{server.url}/there/is/none", timeout=60).text == "the front controller"
            for path in ("/files/style.css", "/files/page", "/files/script.php", "/send.php?name=a"):
                assert requests.get(server.url + path, timeout=60).status_code == 503, path
            assert server.logged(os.strerror(error))
    finally:
        subprocess.run(["umount", "-l", tmp_path / "files"], check=False)
        os.close(device)


@contextlib.contextmanager
def file_system_that_stops(directory: pathlib.Path) -> Iterator[Callable[[bool], None]]:
    """A directory on a file system of its own; gives what makes it take no write any more, and take them again."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    image = directory.with_suffix(".image")
    with image.open("wb") as file:
        file.truncate(32 << 20)
    directory.mkdir()
    for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, directory]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip(f"no {command[0]} here")
        if done.returncode != 0:
            pytest.skip(f"no file system of its own here: {done.stderr}")
    directory.chmod(0o777)
    frozen: subprocess.Popen | None = None

    def stop(so: bool) -> None:
        nonlocal frozen
        if so and frozen is None:
            # Who ends these tests in the midst of it does not leave a machine behind where each sync hangs.
            thaws = ["sh", "-c", 'sleep 300; exec fsfreeze -u "$0"', directory]
            frozen = subprocess.Popen(thaws, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            subprocess.run(["fsfreeze", "-f", directory], check=True)
        elif not so and frozen is not None:
            subprocess.run(["fsfreeze", "-u", directory], check=True)
            # With its sleep.
            os.killpg(frozen.pid, 9)
            frozen.wait()
            frozen = None

    try:
        yield stop
    finally:
        stop(False)
        subprocess.run(["umount", "-l", directory], check=False)


def others_are_served(server: Hayate, n: int = 5) -> None:
    for i in range(n):
        assert requests.get(f"{server.url}/ok.php?{i}", timeout=60).text == f"ok {i}"
        assert requests.get(f"{server.url}/plain.txt", timeout=60).status_code == 200
    assert server.run("status").returncode == 0


def test_a_log_file_on_a_file_system_that_hangs(hayate_command, tmp_path) -> None:
    """Requests go on, what does not fit the queue is lost and counted, and the log goes on where it can be written again."""
    root = site.make(tmp_path)
    metrics = f"127.0.0.1:{free_port()}"
    with file_system_that_stops(tmp_path / "logs") as stop:
        log = tmp_path / "logs/access.log"
        with Hayate(root, workers=1, access_log=str(log), args=["--metrics", metrics]) as server, requests.Session() as session:

            def lost() -> int:
                text = requests.get(f"http://{metrics}/metrics", timeout=60).text
                return int(re.search(r"(?m)^hayate_access_log_lost_total (\d+)$", text)[1])

            others_are_served(server)
            assert wait_until(lambda: log.exists() and "/ok.php?4" in log.read_text())
            stop(True)
            # More than the 4 MB that wait for the thread, of lines as long as they may be: 6 KB.
            long = {"Referer": "x" * 3000, "User-Agent": "x" * 3000}
            for i in range(1000):
                assert session.get(f"{server.url}/plain.txt?{i}-{'x' * 3000}", headers=long, timeout=60).status_code == 200
            assert wait_until(lambda: lost() > 0)
            others_are_served(server)
            assert requests.get(f"http://{metrics}/healthz", timeout=60).status_code == 200
            stop(False)
            assert requests.get(f"{server.url}/ok.php?after", timeout=60).text == "ok after"
            assert wait_until(lambda: "/ok.php?after" in log.read_text())


def test_temporary_files_on_a_file_system_that_hangs(hayate_command, tmp_path) -> None:
    """What needs one gets 503, the rest goes on."""
    root = site.make(tmp_path)
    with file_system_that_stops(tmp_path / "temporary") as stop, Hayate(
        root, workers=2, env={"TMPDIR": str(tmp_path / "temporary")}
    ) as server:

        def upload(size: int) -> tuple[int, str]:
            answer = requests.post(f"{server.url}/count.php", data=b"x" * size, timeout=120)
            return answer.status_code, answer.text if answer.status_code == 200 else ""

        assert upload(300_000) == (200, "300000")
        stop(True)
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            waiting = [pool.submit(upload, 300_000) for _ in range(20)]
            others_are_served(server)
            assert upload(20_000) == (200, "20000")
            assert {future.result() for future in waiting} == {(503, "")}
        assert upload(300_000) == (503, ""), "nobody waits any more"
        others_are_served(server)
        assert server.logged("does not answer")
        stop(False)
        assert wait_until(lambda: upload(300_000) == (200, "300000"), interval=0.2)


def test_files_that_scripts_send_from_a_file_system_that_hangs(hayate_command, tmp_path) -> None:
    """Answers that need it are 503; pages, small files and other applications go on, and a worker is held by none of them."""
    root = site.make(tmp_path)
    files = tmp_path / "files"
    (files / "hanging").mkdir(parents=True)
    (files / "fine.txt").write_text("fine")
    (root / "send_any.php").write_text("<?php header('X-Sendfile: ' . $_GET['to']);")
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.php").write_text("<?php echo 'unharmed';")
    (other / "large.bin").write_bytes(b"x" * 1_000_000)
    config = (
        f'[[app]]\nname = "sends"\nroot = "{root}"\nworkers = 1\nsendfile_roots = ["{files}"]\n'
        f'[[app]]\nname = "other"\nroot = "{other}"\nhosts = ["other.test"]\nworkers = 1\n'
    )
    device = fuse_that_never_answers(files / "hanging")
    try:
        with Hayate(config=config) as server:

            def sent(name: str) -> int:
                answer = requests.get(f"{server.url}/send_any.php", params={"to": files / name}, timeout=120)
                assert ("Retry-After" in answer.headers) == (answer.status_code == 503)
                return answer.status_code

            assert sent("fine.txt") == 200
            with concurrent.futures.ThreadPoolExecutor(20) as pool:
                waiting = [pool.submit(sent, f"hanging/{i}") for i in range(20)]
                others_are_served(server)
                for path, text in (("/", "unharmed"), ("/large.bin", "x" * 1_000_000)):
                    assert requests.get(server.url + path, headers={"Host": "other.test"}, timeout=60).text == text
                answers = [future.result() for future in waiting]
                assert set(answers) == {503}
            others_are_served(server)
            assert server.logged("does not answer")
    finally:
        os.close(device)
        subprocess.run(["umount", "-l", files / "hanging"], check=False)


def test_at_the_limit_of_processes_files_and_uploads_go_on(hayate_command, tmp_path) -> None:
    root = site.make(tmp_path)
    (root / "large.bin").write_bytes(bytes(range(256)) * 2000)
    with Hayate(root, workers=1) as server:
        time.sleep(6)  # threads that idle may have ended by now, and new ones are not to be had
        # No thread and no process more. Root is not bound by it, so a cgroup would be; a limit of the user's is the same to clone(2).
        if os.geteuid() == 0:
            limited = pids_cgroup(server)
        else:
            subprocess.run(["prlimit", "--pid", str(server.front), "--nproc=1"], check=True)
            limited = contextlib.nullcontext()
        with limited:
            def one(_: int) -> None:
                assert requests.get(server.url + "/large.bin", timeout=60).content == bytes(range(256)) * 2000
                assert requests.post(server.url + "/count.php", data=b"x" * 300_000, timeout=60).text == "300000"
                assert requests.get(server.url + "/ok.php?on", timeout=60).text == "ok on"

            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                assert list(pool.map(one, range(48))) == [None] * 48
        assert "panic" not in server.log() and "fault of Hayate" not in server.log()


@contextlib.contextmanager
def pids_cgroup(server: Hayate) -> Iterator[None]:
    """The front alone in a cgroup that allows it no further thread."""
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(process_group("front"))
        except Unavailable as why:
            pytest.skip(str(why))
        front = server.front
        before = group.procs.parent.parent / "cgroup.procs"
        group.procs.write_text(str(front))
        group.allow(1)
        try:
            yield
        finally:
            before.write_text(str(front))


def test_a_file_that_changes_is_sent_as_it_was_at_one_time(hayate_command, tmp_path) -> None:
    """Its length and its tag are those of its content, or caches would keep a part for the whole."""
    root = site.make(tmp_path)
    file, texts = root / "changes.css", [letter * length for letter, length in ((b"a", 60_000), (b"b", 30_000))]
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            for text in texts:
                file.write_bytes(text)
                # More than a tick of the clock that the kernel notes changes by.
                time.sleep(0.02)

    file.write_bytes(texts[0])
    writer = threading.Thread(target=write)
    with Hayate(root, workers=1) as server, requests.Session() as session:
        writer.start()
        try:
            for _ in range(1000):
                answer = session.get(f"{server.url}/changes.css", timeout=60)
                assert answer.status_code == 200
                if "ETag" in answer.headers:
                    length = int(answer.headers["ETag"].strip('"').split("-")[1], 16)
                    assert answer.content in [text[:length] for text in texts] and len(answer.content) == length
                else:
                    # It was being written each time that it was looked at.
                    assert "Last-Modified" not in answer.headers and "Accept-Ranges" not in answer.headers
        finally:
            over.set()
            writer.join()


@pytest.mark.parametrize("mark", ["short", "written all the time"])
def test_a_file_that_is_never_the_same_is_sent_as_it_was_read(hayate_command, tmp_path, mark) -> None:
    """As by nginx, and with its own length; but nothing that a cache or a second range could go by."""
    root = site.make(tmp_path)
    with contextlib.ExitStack() as stack:
        if mark == "short":
            # What says that it is longer than it is: the kernel's own files do.
            file = pathlib.Path("/sys/kernel/uevent_seqnum")
            assert file.stat().st_size > len(file.read_bytes())
        else:
            file = root / "counter"
            # Its time changes with each of them; the kernel's clock goes by ticks of 4 ms, so several in each look. Two, for one may be held up.
            for _ in range(2):
                writer = subprocess.Popen(
                    [sys.executable, "-c", f"import os\nf = os.open({str(file)!r}, os.O_RDWR | os.O_CREAT)\n"
                     "n = 0\nwhile True:\n n += 1\n os.pwrite(f, b'%d' % n, 0)\n os.ftruncate(f, 0 if n % 2 else 40_000)"]
                )  # fmt: skip
                stack.callback(writer.wait)
                stack.callback(writer.kill)
            assert wait_until(file.exists)
        (root / "changes.txt").symlink_to(file)
        server = stack.enter_context(Hayate(root, workers=1))
        plain = tries = 0
        # It is seen to change only where the writers run during each of several looks: until that is so, whatever else the machine does.
        while tries < 200 or (plain == 0 and tries < 20_000):
            i, tries = tries, tries + 1
            headers = {"Accept-Encoding": "identity"} | ({"Range": "bytes=0-0"} if i % 2 else {})
            answer = requests.get(f"{server.url}/changes.txt", headers=headers, timeout=60)
            assert answer.status_code in (200, 206, 416), answer.status_code
            if "ETag" not in answer.headers:
                assert answer.status_code == 200 and int(answer.headers["Content-Length"]) == len(answer.content)
                assert not {"Last-Modified", "Accept-Ranges", "Content-Range"} & set(answer.headers)
                plain += 1
                if mark == "short":
                    assert answer.content.strip().isdigit()
        assert plain == 200 or mark != "short"
        assert plain > 0, "it was never seen to change"


def test_a_log_on_a_file_system_that_hangs(hayate_command, tmp_path) -> None:
    """It is a reload that fails, and a start that fails or is ended; whoever is served does not notice."""
    hanging, pages = tmp_path / "hanging", tmp_path / "site"
    for directory in (hanging, pages):
        directory.mkdir()
    (pages / "a.txt").write_text("fine")
    os.chmod(tmp_path, 0o755)
    app = f'[[app]]\nroot = "{pages}"\nphp = "off"\n'
    log = f'access_log = "{hanging}/access.log"\n'
    config, other = tmp_path / "hayate.toml", tmp_path / "other.toml"
    config.write_text(app)
    other.write_text(f'listen = "127.0.0.1:{free_port()}"\ncontrol = "{tmp_path}/other.sock"\n{log}{app}')
    device = fuse_that_never_answers(hanging)
    try:
        with Hayate(config=config, access_log=None) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
            config.write_text(log + app)
            reload = pool.submit(server.reload)
            while not reload.done():
                assert requests.get(server.url + "/a.txt", timeout=5).text == "fine"
                assert server.run("status").returncode == 0
                time.sleep(0.2)
            assert reload.result().returncode != 0 and "its file system does not answer" in reload.result().stderr
        for ended in (True, False):
            starting = subprocess.Popen([hayate_binary(), "serve", "--config", other], stderr=subprocess.PIPE, text=True)
            if ended:
                time.sleep(2)
                starting.terminate()
            began = time.monotonic()
            said = starting.communicate(timeout=30)[1]
            assert starting.returncode == 0 if ended else "its file system does not answer" in said, said
            assert time.monotonic() - began < (5 if ended else 20)
    finally:
        os.close(device)
        subprocess.run(["umount", "-l", hanging], check=False)
