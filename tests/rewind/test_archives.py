"""Archives of the phar extension, of which PHP keeps the list for a request: what each visitor adds is there afterwards, as under php-fpm."""

from __future__ import annotations

import dataclasses
import io
import pathlib
import subprocess
import tarfile

import pytest

from lib.servers import PHP_VERSION, Hayate, NginxFpm

from . import modes
from .test_opened_again import hayate, nobody_was_replaced, php_fpm, prepare

VISITORS = ["Ada", "Grace", "Joan"]
ADDS = "if ($v !== '') { (new PharData(\"$d/a.tar\"))->addFromString($v, $v); }"
READS = 'echo file_get_contents("phar://$d/a.tar/head");'


@dataclasses.dataclass(frozen=True)
class Case:
    """PHP code, as in test_opened_again.py; `declined` is what the log says of it."""

    boot: str
    request: str
    warmup: str = "off"
    declined: str = ""
    #: A name that the archive brings itself.
    own_name: str = ""


CASES = {
    "read by the boot": Case(READS.replace("echo", "$head ="), ADDS + READS),
    "an object of the boot": Case('$f = new PharData("$d/a.tar");', "if ($v !== '') { $f->addFromString($v, $v); } echo 1;", declined="left an object of the class PharData"),
    "an entry of the boot": Case('$f = new PharFileInfo("phar://$d/a.tar/head");', ADDS + "echo $f->getCRC32() > 0;", declined="left an object of the class PharFileInfo"),
    "given a name by the boot": Case('new PharData("$d/a.tar", 0, "named.tar");', ADDS + 'echo file_get_contents("phar://named.tar/head");', declined="gave a name to the archive"),
    "with a name that it brings": Case(READS.replace("echo", "$head ="), ADDS + READS, own_name="own.tar"),
    "beside code in another": Case('require "$d/library.phar"; One::ONE;' + READS.replace("echo", "$head ="), ADDS + READS + "echo Two::TWO;"),
    "with a name that it brings, beside code": Case('require "$d/library.phar"; One::ONE;' + READS.replace("echo", "$head ="), ADDS + READS + "echo Two::TWO;", own_name="own.tar"),
    "beside code, by a warm-up request": Case('require "$d/library.phar"; One::ONE;', ADDS + READS, warmup="/"),
    "given a name by the boot, beside code": Case(
        'require "$d/library.phar"; One::ONE; new PharData("$d/a.tar", 0, "named.tar");', ADDS + 'echo file_get_contents("phar://named.tar/head");', declined="gave a name to the archive"
    ),
    "code in it": Case('include "phar://$d/a.tar/lib.php";', ADDS + "echo Lib::LIB;"),
    "code in it, by a warm-up request": Case("", 'include_once "phar://$d/a.tar/lib.php";' + ADDS + "echo Lib::LIB;", warmup="/"),
    "code in it by a name": Case('Phar::loadPhar("$d/a.tar", "named.tar"); include "phar://named.tar/lib.php";', ADDS + "echo Lib::LIB;", declined="runs code of the archive"),
    "read by a warm-up request": Case("", ADDS + READS, warmup="/"),
    "an object of a warm-up request": Case("", '$GLOBALS["kept"] ??= new PharData("$d/a.tar");' + ADDS + "echo 1;", warmup="/", declined="left an object of the class PharData"),
}


BUILDS = """
$p = new Phar($argv[1]);
$p->addFromString('one.php', '<?php class One { const ONE = 1; }');
$p->addFromString('two.php', '<?php class Two { const TWO = 2; }');
$p->setStub('<?php Phar::mapPhar("own-name.phar"); spl_autoload_register(fn ($c) => require "phar://own-name.phar/" . strtolower($c) . ".php"); __HALT_COMPILER();');
"""


def give_archive(directory: pathlib.Path, own_name: str = "") -> None:
    """One with a head, which everybody may write to; and a library."""
    files = {"head": "head", "lib.php": "<?php class Lib { const LIB = 3; }"}
    if own_name:
        files[".phar/alias.txt"] = own_name
    with tarfile.open(directory / "a.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    (directory / "a.tar").chmod(0o666)
    subprocess.run([f"php{PHP_VERSION}", "-d", "phar.readonly=0", "-r", BUILDS, str(directory / "library.phar")], check=True, timeout=60)
    (directory / "library.phar").chmod(0o644)


def play(server: Hayate | NginxFpm, directory: pathlib.Path) -> tuple[list[str], dict[str, bytes]]:
    """The answers, and what is in the archive then."""
    answers = [modes.get(server, f"v={visitor}") for visitor in VISITORS]
    with tarfile.open(directory / "a.tar") as archive:
        return answers, {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}


@pytest.mark.parametrize(("rewind", "boot"), modes.MODES)
@pytest.mark.parametrize("name", CASES)
def test_what_visitors_add_stays(name: str, rewind: str, boot: str, directory: pathlib.Path) -> None:
    """Each of them; and who has an archive open when the boot is over is not rewound."""
    case = CASES[name]
    prepare(directory, case.boot, case.request, {})
    give_archive(directory, case.own_name)
    with php_fpm(directory) as fpm:
        expected = play(fpm, directory)
    assert set(expected[1]) >= {"head", "lib.php", *VISITORS}
    prepare(directory, case.boot, case.request, {})
    give_archive(directory, case.own_name)
    with hayate(directory, rewind, boot, warmup=case.warmup) as server:
        assert play(server, directory) == expected, server.log()[-3000:]
        application = modes.application(server)
        assert application["mode"] == ("classic" if case.declined and case.warmup == "off" else "worker"), application
        assert case.declined in server.log(), server.log()[-3000:]
        if not case.declined:
            assert "warm-up request" not in server.log(), server.log()[-3000:]
            nobody_was_replaced(server)


@pytest.mark.parametrize("required", ["boot", "request"])
@modes.each_mode
def test_a_library_in_an_archive(rewind: str, boot: str, required: str, directory: pathlib.Path) -> None:
    """Its code is found by the name that it gives itself, by requests as well; nobody can write to it."""
    requires = 'require_once __DIR__ . "/library.phar";'
    prepare(directory, f"{requires} One::ONE;" if required == "boot" else "", f'{requires} echo One::ONE, $v === "" ? "" : Two::TWO;', {})
    subprocess.run([f"php{PHP_VERSION}", "-d", "phar.readonly=0", "-r", BUILDS, str(directory / "library.phar")], check=True, timeout=60)
    (directory / "library.phar").chmod(0o644)
    with hayate(directory, rewind, boot, warmup="/") as server:
        assert [modes.get(server, f"v={visitor}") for visitor in VISITORS] == ["12"] * 3, server.log()[-3000:]
        nobody_was_replaced(server)


def test_a_library_that_requests_may_write_to(directory: pathlib.Path) -> None:
    """PHP would write it by the list of the boot's time: it is not rewound."""
    prepare(directory, 'require __DIR__ . "/library.phar"; One::ONE;', "echo Two::TWO;", {})
    subprocess.run([f"php{PHP_VERSION}", "-d", "phar.readonly=0", "-r", BUILDS, str(directory / "library.phar")], check=True, timeout=60)
    (directory / "library.phar").chmod(0o644)
    with hayate(directory, "on", "shared", args=("--ini", "phar.readonly=0")) as server:
        assert modes.get(server) == "2"
        application = modes.application(server)
        assert application["mode"] == "classic" and "to which requests may write" in application["fallback"]["why"], application
