"""Random numbers and identifiers never repeat, between requests and between workers; what was seeded does, as under php-fpm.

HAYATE_RANDOM_REQUESTS says how many requests are made (default 2,000, for CI).
"""

from __future__ import annotations

import collections
import math
import os
import pathlib
import shutil
import threading

import pytest
import requests as http
from lib import php_extensions
from lib.process import temporary_directory, wait_until
from lib.servers import Hayate, NginxFpm

from . import modes
from .keep_alive import KeepAlive
from .matrix_site import USER

HERE = pathlib.Path(__file__).parent / "randomness"
REQUESTS = int(os.environ.get("HAYATE_RANDOM_REQUESTS", "2000"))
WORKERS = 4
CLIENTS = 6
#: MT19937 and libc's random() are seeded with 32 random bits, in every PHP: so it repeats about n²/2³³ times in n requests. What uses it
#: repeats with it.
OF_32_BITS = {"mt_rand", "shuffle", "libc_rand", "xslt", "engine_mt19937"}
#: Sources that are there with Debian's extension of that name.
OF_EXTENSIONS = {"gmp": "gmp", "uuid": "uuid", "object_id": "mongodb"}
#: Debian's package of Symfony's component.
SYMFONY_UID = pathlib.Path("/usr/share/php/Symfony/Component/Uid/autoload.php")
#: One request in so many draws from the dear sources as well.
DEAR = 20


class Drawn:
    """What all requests have drawn, by source: how often each value came. Values are kept as hashes of 64 bits."""

    def __init__(self) -> None:
        self.values: dict[str, set[int]] = collections.defaultdict(set)
        self.repeats: collections.Counter[str] = collections.Counter()
        self.lock = threading.Lock()

    def add(self, text: bytes) -> None:
        with self.lock:
            for line in text.splitlines():
                source, _, value = line.partition(b" ")
                name, key = source.decode(), hash(value)
                if key in self.values[name]:
                    self.repeats[name] += 1
                self.values[name].add(key)


def draw(server: Hayate, requests: int) -> Drawn:
    drawn = Drawn()
    share = -(-requests // CLIENTS)
    failures: list[BaseException] = []

    def client() -> None:
        try:
            with KeepAlive(server.port) as connection:
                for n in range(share):
                    status, text = connection.get("/?dear" if n % DEAR == 0 else "/")
                    assert status == 200, text
                    drawn.add(text)
        except BaseException as failure:  # noqa: BLE001 (told below, whatever it is)
            failures.append(failure)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return drawn


def serve(rewind: str, boot: str, script: str = "worker.php") -> Hayate:
    directory = temporary_directory("randomness")
    shutil.copy(HERE / script, directory / "worker.php")
    arguments = ["--rewind", rewind, "--warmup", "/", "--warmup", "/"]
    if boot == "private":
        arguments += ["--env", "PRIVATE_BOOT=1"]
    return Hayate(
        directory,
        worker=directory / "worker.php",
        workers=WORKERS,
        user=USER,
        ini={"ffi.enable": "1"},
        args=[*arguments, *elsewhere(directory)],
    )


def elsewhere(directory: pathlib.Path) -> list[str]:
    """Arguments that load those extensions as far as they are there."""
    (directory / "extensions.ini").write_text(php_extensions.settings(list(OF_EXTENSIONS.values())))
    return ["--env", f"PHP_INI_SCAN_DIR=:{directory}"]


def test_extensions_that_draw_are_there() -> None:
    missing = [name for name in OF_EXTENSIONS.values() if not php_extensions.is_there(name)]
    if missing:
        pytest.skip(f"{missing} are not installed: scripts/setup --test installs them")


@pytest.mark.parametrize("boot", ["shared", "private"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_randomness_never_repeats(rewind: str, boot: str) -> None:
    requests = REQUESTS if rewind == "on" else min(REQUESTS, 300)
    with serve(rewind, boot) as server:
        drawn = draw(server, requests)
        (app,) = server.status()["apps"]
    shutil.rmtree(server.root, ignore_errors=True)
    assert app["boot"] == boot and not app["restarts"] and app["rewind"]["rewinds"] >= requests * 0.99
    made = -(-requests // CLIENTS) * CLIENTS
    extensions = drawn.values.keys() & OF_EXTENSIONS.keys()
    assert len(drawn.values) - len(extensions) == 28
    assert extensions == {source for source, name in OF_EXTENSIONS.items() if php_extensions.is_there(name)}
    by_chance = made * made / 2 / 2**32
    chance = by_chance + 6 * math.sqrt(by_chance) + 2
    sources = drawn.values.keys() - {"pid"}
    repeated = {s: drawn.repeats[s] for s in sources if drawn.repeats[s] > (chance if s in OF_32_BITS else 0)}
    assert not repeated, f"repeats in {made} requests: {repeated}"
    if rewind == "on":
        assert len(drawn.values["pid"]) > 1, "one worker did it all"


@pytest.mark.parametrize("boot", ["shared", "private"])
@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_uuids_of_symfony_never_repeat(rewind: str, boot: str) -> None:
    """Its UuidV1 and UuidV6, which take time, sequence number and node from libuuid, and keep a node of their own once one is made."""
    if not (SYMFONY_UID.exists() and php_extensions.is_there("uuid")):
        pytest.skip("php-symfony-uid or the extension uuid is not installed: scripts/setup --test installs them")
    requests = REQUESTS if rewind == "on" else min(REQUESTS, 300)
    with serve(rewind, boot, "symfony.php") as server:
        drawn = draw(server, requests)
        (app,) = server.status()["apps"]
    shutil.rmtree(server.root, ignore_errors=True)
    assert app["boot"] == boot and not app["restarts"] and app["rewind"]["rewinds"] >= requests * 0.99
    made = 2 * CLIENTS * -(-requests // CLIENTS)
    assert {name: (len(drawn.values[name]), drawn.repeats[name]) for name in ("v1", "v6")} == {"v1": (made, 0), "v6": (made, 0)}
    assert len(drawn.values["pid"]) > 1 or rewind == "fork", "one worker did it all"


@pytest.mark.parametrize("rewind", ["on", "fork"])
def test_a_seed_of_the_boot_gives_each_request_the_same_sequence(rewind: str) -> None:
    """As under php-fpm, which boots for each request; whatever warm-up requests drew, and from the first number on."""
    directory = temporary_directory("seeds")
    shutil.copy(HERE / "seeded.php", directory / "index.php")
    with NginxFpm(directory) as fpm:
        right = http.get(f"{fpm.url}/index.php", timeout=60).json()
        one, copy = http.get(f"{fpm.url}/index.php?engines", timeout=60).text.split()
        assert one == copy
    arguments = ["--rewind", rewind, "--warmup", "/", "--warmup", "/", *elsewhere(directory)]
    with Hayate(directory, worker=directory / "index.php", workers=2, args=arguments) as server:
        said = [http.get(server.url, timeout=60).json() for _ in range(20)]
        pairs = [http.get(f"{server.url}/?engines", timeout=60).text.split() for _ in range(20)]
    shutil.rmtree(directory, ignore_errors=True)
    gmp = [answer.pop("gmp", None) for answer in said]
    assert all(answer == right for answer in said), (right, said[0], said[-1])
    assert len(set(gmp)) == 1
    assert all(one == copy for one, copy in pairs) and len({one for one, _ in pairs}) == len(pairs)


DRAWS = """
$draw = random_bytes(...);
$nonce = random_bytes(24);
$token = $draw(8);
mt_srand(42);
$drawn = [mt_rand(), (new Random\\Engine\\Mt19937(7))->generate(), (new Random\\Randomizer(new Random\\Engine\\Mt19937(7)))->getInt(1, 9)];
$own = (new Random\\Randomizer(new Random\\Engine\\Xoshiro256StarStar()))->getInt(1, 9);
for ($i = 0; $i < 1000; $i++) { $number = random_int(0, 9); }
while (hayate_handle_request(function () use ($nonce) {
    sodium_increment($nonce);
    random_bytes(8);
    if (isset($_GET['die'])) {
        posix_kill(getmypid(), 9);
    }
    echo bin2hex($nonce);
})) {
}
"""
#: What a boot draws from an extension.
OF_EXTENSION = {"gmp": "gmp_random_bits(64)", "uuid": "uuid_create(UUID_TYPE_TIME)", "mongodb": "new MongoDB\\BSON\\ObjectId()"}


def told(server: Hayate) -> list[str]:
    return [line for line in server.log().splitlines() if "The boot drew random numbers" in line]


@modes.each_mode
def test_the_log_names_what_the_boot_drew(rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Each request counts up the same nonce. Once, with the line, whoever boots; not what a seed gives, which is the same under php-fpm."""
    modes.write(directory, DRAWS)
    lines = (directory / "worker.php").read_text().splitlines()
    calls = ("$nonce = random_bytes", "$token = $draw", "$own =", "for (")
    numbers = [next(n for n, line in enumerate(lines, 1) if line.startswith(call)) for call in calls]
    with modes.hayate(directory, rewind, boot, workers=3) as server:
        assert len({modes.get(server) for _ in range(12)}) <= (1 if boot == "shared" else 3)
        assert http.post(f"{server.url}/?die", timeout=60).status_code == 502
        assert wait_until(lambda: len(modes.application(server)["workers"]) == 3)
        modes.get(server)
        (line,) = told(server)
    names = ["random_bytes()", "random_bytes()", "Random\\Randomizer::getInt()", "random_int()"]
    places = [f"{name} at {directory}/worker.php:{number}" for name, number in zip(names, numbers, strict=True)]
    assert f"each request finds the same: {', '.join(places)}. Draw in the request" in line.replace("\\\\", "\\"), line


def test_a_boot_that_draws_nothing_is_not_spoken_of(directory: pathlib.Path) -> None:
    modes.write(directory, "mt_srand(1); mt_rand(); while (hayate_handle_request(function () { echo bin2hex(random_bytes(8)); })) {}")
    with modes.hayate(directory, "on", "shared", workers=1) as server:
        assert len({modes.get(server) for _ in range(5)}) == 5
        assert told(server) == []


@pytest.mark.parametrize("extension", OF_EXTENSION)
def test_the_log_names_what_was_drawn_from_an_extension(extension: str, directory: pathlib.Path) -> None:
    if not php_extensions.is_there(extension):
        pytest.skip(f"{extension} is not installed: scripts/setup --test installs it")
    draws = OF_EXTENSION[extension]
    modes.write(directory, f"$drawn = {draws};\nwhile (hayate_handle_request(function () {{ echo 'served'; }})) {{}}")
    with modes.hayate(directory, "on", "shared", workers=1, args=elsewhere(directory)) as server:
        (line,) = told(server)
    name = draws.removeprefix("new ").partition("(")[0] + ("::__construct()" if draws.startswith("new ") else "()")
    assert f"{name} at {directory}/worker.php:" in line.replace("\\\\", "\\"), line


DEVICE = """
function drawn(): string {
    static $file;
    $file ??= OPENS;
    return bin2hex($file instanceof SplFileObject ? $file->fread(8) : fread($file, 8));
}
getenv('BOOT') && drawn();
while (hayate_handle_request(function () { echo drawn(); })) {
}
"""


@pytest.mark.parametrize("opens", ["fopen('/dev/urandom', 'r')", "new SplFileObject('/dev/urandom')"], ids=["fopen", "SplFileObject"])
@pytest.mark.parametrize("when", ["boot", "warm-up"])
@pytest.mark.parametrize("rewind", ["on", "fork", "off"])
def test_what_is_read_ahead_of_a_device_is_nobodys(rewind: str, when: str, opens: str, directory: pathlib.Path) -> None:
    """PHP reads 8 KiB at once, and keeps what nobody has taken yet."""
    modes.write(directory, DEVICE.replace("OPENS", opens))
    args = ("--env", "BOOT=1") if when == "boot" else ()
    warmup = "off" if when == "boot" or rewind == "off" else "/"
    with modes.hayate(directory, rewind, "shared", workers=3, args=args, warmup=warmup) as server:
        drawn = modes.many(server, 24)
        assert len(set(drawn)) == 24, drawn


def test_what_a_worker_reads_ahead_of_a_device_when_it_starts_is_nobodys(directory: pathlib.Path) -> None:
    script = DEVICE.replace("OPENS", "fopen('/dev/urandom', 'r')").replace("getenv('BOOT') && drawn();", "hayate_on_worker_start(drawn(...));")
    modes.write(directory, script)
    with modes.hayate(directory, "on", "shared", workers=2, args=("--connections", "warm")) as server:
        drawn = [modes.get(server) for _ in range(12)]
        assert len(set(drawn)) == 12, drawn
