"""Sockets of the boot: messages that need no answer are sent at no price, and what a request does to a socket stays with it."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import threading
from collections.abc import Iterator

import pytest

from lib.process import wait_until

from . import modes


class Statsd:
    """Hears datagrams; with `echo` it answers each, and leaves a file of its name in that directory then."""

    def __init__(self, family: int, address: object, echo: pathlib.Path | None = None) -> None:
        self.heard: list[str] = []
        self._echo = echo
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self.address = self._socket.getsockname()
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                message, sender = self._socket.recvfrom(2000)
                if message == b"end":
                    return
                self.heard.append(message.decode())
                if self._echo:
                    self._socket.sendto(b"to " + message, sender)
                    (self._echo / message.decode()).touch()

    def close(self) -> None:
        with socket.socket(self._socket.family, socket.SOCK_DGRAM) as last:
            last.sendto(b"end", self.address)
        self._thread.join(60)
        self._socket.close()


@pytest.fixture
def statsd() -> Iterator[Statsd]:
    server = Statsd(socket.AF_INET, ("127.0.0.1", 0))
    yield server
    server.close()


@pytest.fixture
def local(directory: pathlib.Path) -> Iterator[Statsd]:
    server = Statsd(socket.AF_UNIX, str(directory / "log"))
    (directory / "log").chmod(0o777)
    yield server
    server.close()


SENDS = r"""
$port = (int) file_get_contents(__DIR__.'/port');
$stream = stream_socket_client("udp://127.0.0.1:$port");
$connected = socket_create(AF_INET, SOCK_DGRAM, SOL_UDP);
socket_connect($connected, '127.0.0.1', $port);
$unconnected = socket_create(AF_INET, SOCK_DGRAM, SOL_UDP);
$local = stream_socket_client('udg://'.__DIR__.'/log');
openlog('modes', LOG_NDELAY, LOG_USER);
while (hayate_handle_request(function () use ($port, $stream, $connected, $unconnected, $local) {
    $n = $_GET['n'] ?? 'nobody';
    syslog(LOG_INFO, 'a test');
    echo json_encode([
        fwrite($stream, "stream $n"),
        socket_write($connected, "write $n"),
        socket_send($connected, "send $n", strlen("send $n"), 0),
        socket_sendto($unconnected, "to $n", strlen("to $n"), 0, '127.0.0.1', $port),
        fwrite($local, "local $n"),
    ]);
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_message_of_statistics_costs_no_worker(directory, statsd, local, rewind) -> None:
    modes.write(directory, SENDS)
    (directory / "port").write_text(str(statsd.address[1]))
    with modes.hayate(directory, rewind, "shared", workers=2) as server:
        for n in range(40):
            said = [len(f"{word} {n}") for word in ("stream", "write", "send", "to", "local")]
            assert json.loads(modes.get(server, f"n={n}")) == said
        app = modes.application(server)
        assert app["restarts"] == {} and app["fallback"] is None and app["boot"] == "private", app
    expected = {f"{word} {n}" for n in range(40) for word in ("stream", "write", "send", "to")}
    assert wait_until(lambda: len(statsd.heard) >= len(expected) and len(local.heard) >= 40)
    assert len(statsd.heard) == len(expected) and set(statsd.heard) == expected
    assert set(local.heard) == {f"local {n}" for n in range(40)}


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_nobody_learns_that_nobody_listens_from_what_another_sent(directory, statsd, local, rewind) -> None:
    """The first message to a closed port is sent; the error that comes back concerns the second."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        (directory / "port").write_text(str(closed.getsockname()[1]))
    modes.write(directory, SENDS.replace('socket_send($connected, "send $n", strlen("send $n"), 0)', "0"))
    with modes.php_fpm(directory) as fpm:
        expected = modes.get(fpm, "n=1")
    assert json.loads(expected) == [8, 7, 0, 4, 7]
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert [modes.get(server, "n=1") for _ in range(20)] == [expected] * 20
        assert modes.application(server)["restarts"] == {}


ASKS = r"""
$port = (int) file_get_contents(__DIR__.'/port');
$stream = stream_socket_client("udp://127.0.0.1:$port");
stream_set_timeout($stream, 60);
while (hayate_handle_request(function () use ($stream) {
    $n = $_GET['n'] ?? 'nobody';
    fwrite($stream, $n);
    echo ($_GET['do'] ?? '') === 'ask' ? fread($stream, 100) : 'sent';
    // An answer that comes later is nobody's fault.
    for ($i = 0; $i < 6000 && !file_exists(__DIR__."/answered/$n"); $i++) { usleep(10000); clearstatcache(); }
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_an_answer_is_for_who_has_asked(directory, rewind) -> None:
    (directory / "answered").mkdir()
    (directory / "answered").chmod(0o755)
    server_of_answers = Statsd(socket.AF_INET, ("127.0.0.1", 0), echo=directory / "answered")
    modes.write(directory, ASKS)
    (directory / "port").write_text(str(server_of_answers.address[1]))
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        for n in range(6):
            assert modes.get(server, f"n=a{n}") == "sent"
            assert modes.get(server, f"n=b{n}&do=ask") == f"to b{n}"
        assert modes.application(server)["restarts"].get("rewind_connection", 0) > 0
    server_of_answers.close()


PORTS = r"""
$socket = socket_create(FAMILY, SOCK_DGRAM, SOL_UDP);
while (hayate_handle_request(function () use ($socket) {
    socket_getsockname($socket, $address, $port);
    echo json_encode([$address, $port, match ($_GET['do'] ?? '') {
        'send' => socket_sendto($socket, 'x', 1, 0, 'ADDRESS', 9),
        'bind' => socket_bind($socket, 'ADDRESS'),
        default => null,
    }]);
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
@pytest.mark.parametrize(("family", "address"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")])
def test_a_port_that_sending_has_given_is_nothing_for_the_next(directory, rewind, family, address) -> None:
    """Under php-fpm each request has a port of its own: an answer to one is not for another, and the address is free to choose."""
    modes.write(directory, PORTS.replace("FAMILY", family).replace("ADDRESS", address))
    with modes.php_fpm(directory) as fpm:
        expected = [modes.get(fpm, f"do={do}") for do in ("send", "send", "", "bind")]
    assert expected[1:] == [expected[0], expected[0].replace("1]", "null]"), expected[0].replace("1]", "true]")]
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        assert [modes.get(server, f"do={do}") for do in ("send", "send", "")] == expected[:3]
        assert modes.application(server)["restarts"] == {}
        assert modes.get(server, "do=bind") == expected[3]


OPTIONS = r"""
$socket = socket_create(AF_INET, SOCK_DGRAM, SOL_UDP);
$said = static function () use ($socket): string {
    socket_getsockname($socket, $address, $port);
    $peer = @socket_getpeername($socket, $host, $number) ? $host : 'none';
    return json_encode([
        socket_get_option($socket, SOL_SOCKET, SO_SNDBUF), socket_get_option($socket, SOL_SOCKET, SO_BROADCAST),
        $address, $port === 0, $peer,
    ]);
};
while (hayate_handle_request(function () use ($socket, $said) {
    echo $said();
    match ($_GET['do'] ?? '') {
        'buffer' => socket_set_option($socket, SOL_SOCKET, SO_SNDBUF, 10000),
        'broadcast' => socket_set_option($socket, SOL_SOCKET, SO_BROADCAST, 1),
        'bind' => socket_bind($socket, '127.0.0.1'),
        'connect' => socket_connect($socket, '127.0.0.1', 9),
        default => null,
    };
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_options_and_addresses_of_a_socket_are_as_at_the_boot(directory, rewind) -> None:
    modes.write(directory, OPTIONS)
    with modes.php_fpm(directory) as fpm:
        expected = modes.get(fpm)
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        for do in ("buffer", "broadcast", "bind", "connect"):
            assert [modes.get(server, f"do={do}"), modes.get(server), modes.get(server)] == [expected] * 3
        assert modes.application(server)["restarts"] == {"rewind_connection": 4}


TWICE_IN_DOUBT = r"""
$libc = FFI::cdef('long syscall(long, ...); int nice(int);');
$socket = socket_create(AF_INET, SOCK_DGRAM, SOL_UDP);
while (hayate_handle_request(function () use ($libc, $socket) {
    echo socket_get_option($socket, SOL_SOCKET, SO_BROADCAST);
    $steps = [
        'option' => static fn () => socket_set_option($socket, SOL_SOCKET, SO_BROADCAST, 1),
        'by number' => static fn () => $libc->syscall(157, 29, 77777, 0, 0, 0), // prctl(PR_SET_TIMERSLACK)
        'nice' => static fn () => $libc->nice(1),
        'file' => static fn () => fopen('/proc/self/timerslack_ns', 'r+'),
    ];
    foreach (array_filter(explode(',', $_GET['do'] ?? '')) as $step) {
        $steps[$step]();
    }
})) {
}
"""


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_socket_that_was_changed_stays_so_for_nobody_whatever_else_is_in_doubt(directory, rewind) -> None:
    """With a fork for each request nothing else that is in doubt outlives it: so it must not take the socket's place."""
    modes.write(directory, TWICE_IN_DOUBT)
    with modes.hayate(directory, rewind, "shared", workers=1) as server:
        for n, after in enumerate(("by number", "nice", "file"), 1):
            for do in (f"option,{after}", f"{after},option"):
                assert modes.get(server, f"do={do}") == "0"
                assert modes.get(server) == "0", do
            assert wait_until(lambda n=n: modes.application(server)["restarts"] == {"rewind_connection": 2 * n})


ENDS = r"""
[$one, $other] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
while (hayate_handle_request(function () {
    global $one, $other;
    if (isset($_GET['close'])) {
        fwrite($one, "of $_GET[close]");
        fclose($one);
        echo stream_get_contents($other), feof($other) ? ' to its end' : '';
    } else {
        echo 'open';
    }
})) {
}
"""


def test_the_other_end_hears_that_a_request_closes_one(directory: pathlib.Path) -> None:
    modes.write(directory, ENDS)
    queries = ("close=Ada", "", "close=Grace", "close=John", "")
    with modes.php_fpm(directory, workers=1) as fpm:
        expected = [modes.get(fpm, query) for query in queries]
    assert expected[0] == "of Ada to its end"
    with modes.hayate(directory, "on", "private", workers=1) as server:
        assert [modes.get(server, query) for query in queries] == expected
        assert modes.application(server)["restarts"] == {"rewind_connection": 3}


CLIENT = """
class Client {
    public function __construct(public $socket) {}
    public function __destruct() { fclose($this->socket); }
}
$client = new Client(stream_socket_client('unix://' . __DIR__ . '/service'));
while (hayate_handle_request(function () use ($client) {
    if (isset($_GET['closes'])) {
        $client->__destruct();
    }
    echo 'served';
})) {
}
"""


def test_a_client_of_the_boot_may_close_at_the_end(directory: pathlib.Path) -> None:
    """As it would be closed with the process: nobody waits for that. What a request closes itself is heard."""
    directory.chmod(0o777)
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(directory / "service"))
        (directory / "service").chmod(0o777)
        service.listen()
        modes.write(directory, CLIENT)
        with modes.hayate(directory, "on", "shared", workers=1, warmup="/") as server:
            assert [modes.get(server) for _ in range(10)] == ["served"] * 10
            assert modes.application(server)["restarts"] == {}
            assert "served" in modes.get(server, "closes=1")
            assert modes.get(server) == "served"
            assert modes.application(server)["restarts"] == {"rewind_connection": 1}
