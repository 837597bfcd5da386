"""A server process of the suite: started in its own session, watched, stopped, with nothing left behind.

Promises: `start()` returns when the server answers or raises with the server's own log; `stop()` leaves no
process of the server alive, whatever happened. Must never end a process it did not start.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence


#: Seconds after which what did not come is said not to come. No test depends on speed: a machine may be ten times slower than this one.
IN_VAIN = 60.0


class ServerError(RuntimeError):
    """A server did not start, did not stop, or left processes behind; the text carries its log."""


#: By how much all waits are longer than on an ordinary machine: emulated processors are slow.
PATIENCE = float(os.environ.get("HAYATE_TEST_PATIENCE", "1"))

#: Names that keep the ports of `free_port()` ours, until this process ends.
_reserved: list[socket.socket] = []


def is_free(port: int) -> bool:
    """Whether nobody has a port, of TCP or UDP, on any address of this machine."""
    kinds = [(family, kind) for family in (socket.AF_INET, socket.AF_INET6) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
    for family, kind in kinds:
        everywhere = "::" if family == socket.AF_INET6 else "0.0.0.0"
        try:
            with socket.socket(family, kind) as sock:
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind((everywhere, port))
        except OSError as error:
            # Without IPv6 nobody can be there.
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                return False
    return True


def free_port() -> int:
    """A port that is free for TCP and UDP on every address, and that stays free for who asked.

    It lies below the ports that the kernel gives to connections and to those who ask for any, so neither takes it between
    now and the start of a server. A name in the kernel's list of unix sockets, which goes with this process, keeps it
    from other runs of the suite (`crates/hayate/tests/command.rs` and hayate-lab use the same names).
    """
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.Random().sample(range(10240, max(first, 16384)), 1000):
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0hayate-port-{port}")
        except OSError:
            mark.close()
            continue
        if is_free(port):
            _reserved.append(mark)
            return port
        mark.close()
    raise ServerError("none of 1000 ports is free")


def temporary_directory(prefix: str) -> pathlib.Path:
    """A new directory that every user may enter: servers drop to www-data and have to reach what lies inside."""
    path = pathlib.Path(tempfile.mkdtemp(prefix=f"hayate-{prefix}-"))
    path.chmod(0o755)
    return path


def stop_process(pid: int) -> None:
    """Stops a process with SIGSTOP, and returns when all its threads stand still.

    The signal goes to one thread, which stops the others once it gets a processor: until then they serve.
    """
    os.kill(pid, signal.SIGSTOP)

    def still() -> bool:
        stats = [task.read_text(errors="replace") for task in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")]
        return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)

    if not wait_until(still):
        raise ServerError(f"process {pid} was sent SIGSTOP {IN_VAIN:.0f} seconds ago and still moves")


def wait_until(condition: Callable[[], bool], timeout: float = IN_VAIN, interval: float = 0.01) -> bool:
    """Polls `condition` for at most `timeout` seconds (times PATIENCE); says whether it came true."""
    end = time.monotonic() + timeout * PATIENCE
    while True:
        if condition():
            return True
        if time.monotonic() > end:
            return False
        time.sleep(interval)


def accepts(port: int) -> bool:
    """Whether something accepts connections on a TCP port of 127.0.0.1."""
    with contextlib.suppress(OSError), socket.socket() as sock:
        sock.settimeout(1)
        sock.connect(("127.0.0.1", port))
        return True
    return False


def accepts_unix(path: pathlib.Path) -> bool:
    """Whether something accepts connections on a unix socket."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(1)
        sock.connect(str(path))
        return True
    return False


def open_files(pid: int) -> list[tuple[str, os.stat_result]]:
    """What a process has open, by name; without what it closes meanwhile."""
    found = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append((str(fd.readlink()), fd.stat()))
    return found


def in_temporary_files(server: Server) -> int:
    """Bytes that a server's front has in files without a name."""
    return sum(st.st_size for name, st in open_files(server.front) if name.endswith("(deleted)") and "/memfd:" not in name)


def _dies_with_us() -> list[str]:
    """A command prefix: the kernel ends the server when this process dies, however it dies.

    Only for servers started from the main thread: the kernel means the thread that made the child, not its process.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    return ["/usr/bin/setpriv", "--pdeathsig", "TERM"]


def _stat(pid: int) -> tuple[int, str, str] | None:
    """(parent, state, start time) of a process, None when it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")  # its name may be any bytes
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), fields[0], fields[19]


def descendants(pid: int) -> dict[int, str]:
    """Every living descendant of `pid`, with its start time (a pid alone may be reused)."""
    table: dict[int, tuple[int, str, str]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))) is not None:
            table[int(entry)] = stat
    found: dict[int, str] = {}
    frontier = [pid]
    while frontier:
        parent = frontier.pop()
        for child, (its_parent, _, started) in table.items():
            if its_parent == parent and child not in found:
                found[child] = started
                frontier.append(child)
    return found


def still_running(processes: dict[int, str]) -> list[int]:
    """Those of `descendants()` that are alive; a zombie waiting for a foreign reaper counts as dead."""
    return [
        pid
        for pid, started in processes.items()
        if (stat := _stat(pid)) is not None and stat[2] == started and stat[1] not in "ZX"
    ]


class Server:
    """A foreground process in a temporary directory, its output in files. Subclasses say how it starts."""

    name = "server"
    #: Called in its process before it is there.
    prepare: Callable[[], None] | None = None
    start_timeout = IN_VAIN
    stop_timeout = IN_VAIN

    def __init__(self) -> None:
        self.dir = temporary_directory(self.name)
        self.process: subprocess.Popen[bytes] | None = None
        self._output = self.dir / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self.process is not None, f"{self.name} was not started"
        return self.process.pid

    def command(self) -> Sequence[str | os.PathLike[str]]:
        """The command line; called once for each start."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether the server answers."""
        raise NotImplementedError

    def log(self) -> str:
        """Everything the server has written so far."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def logged(self, text: str, times: int = 1) -> bool:
        """Waits until the log has a text, at least so many times. Lines come by pipes and threads: after the answer that they are about."""
        return wait_until(lambda: self.log().count(text) >= times)

    def log_tail(self) -> str:
        """The end of the log, as much as a reader of a failure wants to see."""
        return self.log()[-4000:]

    def spawn(self, env: dict[str, str] | None = None) -> None:
        """Starts the process without waiting for it."""
        with open(self._output, "ab") as output:
            self.process = subprocess.Popen(
                [*_dies_with_us(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                preexec_fn=self.prepare,
            )

    def wait_ready(self) -> None:
        """Waits until the server answers; raises ServerError with its log when it ends or takes too long."""
        process = self.process
        assert process is not None
        answered = wait_until(lambda: process.poll() is not None or self.ready(), self.start_timeout)
        if process.poll() is not None:
            raise ServerError(f"{self.name} ended with {process.returncode} instead of serving:\n{self.log_tail()}")
        if not answered:
            raise ServerError(f"{self.name} did not answer within {self.start_timeout:.0f} s:\n{self.log_tail()}")

    def start(self):
        """Starts the server and waits until it answers. Returns the server."""
        try:
            self.spawn()
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, sig: int = signal.SIGTERM) -> int:
        """Sends `sig`, waits for the end and returns the exit status. Raises ServerError on a hang or an orphan."""
        process = self.process
        if process is None or process.returncode is not None:
            return process.returncode if process is not None else 0
        family = self.family()
        process.send_signal(sig)
        try:
            status = process.wait(self.stop_timeout * PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(
                f"{self.name} did not stop within {self.stop_timeout:.0f} s:\n{self.log_tail()}"
            ) from None
        if not wait_until(lambda: not still_running(family)):
            orphans = still_running(family)
            self._kill_all(family)
            raise ServerError(f"{self.name} left processes behind: {orphans}\n{self.log_tail()}")
        return status

    def family(self) -> dict[int, str]:
        """The processes that must not outlive the server."""
        return descendants(self.pid)

    def kill(self) -> None:
        """Ends the server and all its descendants at once."""
        process = self.process
        if process is None or process.returncode is not None:
            return
        family = descendants(process.pid)
        process.kill()
        process.wait()
        self._kill_all(family)

    @staticmethod
    def _kill_all(family: dict[int, str]) -> None:
        for pid in still_running(family):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """Deletes the server's directory; logs are gone afterwards."""
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, exc_type, exc, tb) -> None:
        try:
            if exc_type is None:
                self.stop()
            else:
                self.kill()
                print(f"--- {self.name} log\n{self.log_tail()}")
        finally:
            self.remove()


@contextlib.contextmanager
def running(*servers: Server) -> Iterator[tuple[Server, ...]]:
    """Several servers as one context manager, stopped in reverse order."""
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(server) for server in servers)
