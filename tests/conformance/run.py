#!/usr/bin/env python3
"""`make conformance`: PHP's own tests through a server, against the same tests through php-cgi.

    run.py                                  php-cgi, php-fpm behind nginx as the reference, Hayate in all modes
    run.py --mode worker                    Hayate in worker mode: each test twice in one process
    run.py --mode rewind                    the same with rewind: three times, and all tests in one process
    run.py --backend php-fpm                the reference alone
    run.py --paths ext/json tests/basic/001.phpt --list-failures
    run.py --reuse --page docs/conformance.md   the figures of the last complete run into the page, running nothing

Ends with 1 if a test passes in php-cgi and fails in Hayate, or a later run in the same process goes another way,
without a reason in accepted.txt; else with 0.
As root it hands over to www-data: many tests are about what an unprivileged user may not do. Copies of php-src are made
below $TMPDIR: with TMPDIR=/dev/shm it takes half the time where disks are slow.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
from dataclasses import replace

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lib.servers import PHP_VERSION, REPOSITORY, hayate_binary  # noqa: E402

from conformance.backends import PhpCgi, PhpFpm  # noqa: E402
from conformance.hayate import MODES  # noqa: E402
from conformance.page import insert, page  # noqa: E402
from conformance.phpt import Phpt  # noqa: E402
from conformance.report import BASELINE, REFERENCE, Report, difference, read_accepted  # noqa: E402
from conformance.source import SourceError, php_source  # noqa: E402
from conformance.suite import Run, find_tests, plan, run_all  # noqa: E402

PATHS = """Zend/tests tests ext/standard ext/session ext/date ext/json ext/pcre ext/spl ext/ctype ext/filter ext/hash
    ext/random ext/mbstring ext/pdo_sqlite ext/tokenizer ext/reflection""".split()
#: Below target/, so that `git` ignores it; holds php-src and the outcomes of earlier runs.
WORK = REPOSITORY / "target" / "conformance"
#: Why a test may fail, why in worker mode, and why a later run in the same process may go another way than the first.
ACCEPTED = ("accepted.txt", "accepted_worker.txt", "accepted_later.txt")
UNPRIVILEGED = "www-data"
BACKENDS = {BASELINE: PhpCgi, REFERENCE: PhpFpm, **{f"hayate {mode}": backend for mode, backend in MODES.items()}}


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", nargs="+", default=PATHS, metavar="PATH", help="directories or tests of php-src")
    parser.add_argument("--source", default=f"php{PHP_VERSION}", metavar="PACKAGE|PATH", help="whose tests: a source package, or a path (with a / or .tar in it) to php-src, packed or not")
    parser.add_argument("--backend", choices=("hayate", "php-fpm", "none"), default="hayate")
    parser.add_argument("--mode", nargs="+", choices=tuple(MODES), default=tuple(MODES), help="Hayate's modes")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="copies of the tree and servers at once")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N tests")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--page", type=pathlib.Path, metavar="FILE", help="put the figures into this Markdown page")
    parser.add_argument("--reuse", action="store_true", help="take Hayate's outcomes, too, from the last run")
    parser.add_argument("--list-failures", action="store_true", help="show what differs, test by test")
    parser.add_argument("--no-reference", action="store_true", help="do not run php-fpm")
    parser.add_argument("--fresh", action="store_true", help="run php-cgi and php-fpm again even if nothing changed")
    return parser.parse_args(arguments)


def hand_over(arguments: list[str], options: argparse.Namespace) -> int:
    """Runs this program again as an unprivileged user, with an environment that says nothing of ours.

    That user may not write where the caller wants files: they are made among the results and copied.
    """
    user = pwd.getpwnam(UNPRIVILEGED)
    results = WORK / "results"
    results.mkdir(parents=True, exist_ok=True)
    os.chown(results, user.pw_uid, user.pw_gid)
    files = {"--json": (results / "report.json", options.json), "--page": (results / "page.md", options.page)}
    files = {flag: pair for flag, pair in files.items() if pair[1] is not None}
    for flag, (made, wanted) in files.items():
        made.unlink(missing_ok=True)
        if flag == "--page":
            shutil.copyfile(wanted, made)
            os.chown(made, user.pw_uid, user.pw_gid)
        arguments = [*arguments, flag, str(made)]
    kept = {key: value for key, value in os.environ.items() if key.startswith("HAYATE_") or key == "TMPDIR"}
    run = functools.partial(
        subprocess.run,
        # No group of root's remains, and none is looked up that this account may not have.
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        cwd="/",
        env={"PATH": os.environ.get("PATH", "/usr/bin:/bin:/usr/sbin:/sbin"), "HOME": "/tmp", **kept},
        check=False,
    )
    for needed in (HERE / "run.py", *([hayate_binary()] if options.backend == "hayate" else [])):
        if run(["test", "-r", str(needed)]).returncode != 0:
            print(f"conformance: {UNPRIVILEGED} may not read {needed}: open its directories to it", file=sys.stderr)
            return 2
    done = run([sys.executable, "-B", str(HERE / "run.py"), *arguments])
    for made, wanted in files.values():
        if made.exists():
            shutil.copyfile(made, wanted)
    return done.returncode


def php_version() -> str:
    """The version of the PHP under test, as php-cgi says it."""
    command = [f"/usr/bin/php-cgi{PHP_VERSION}", "-v"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1]


def fingerprint(*parts: str) -> str:
    """Changes with what decides an outcome: the tests, PHP, and this engine."""
    digest = hashlib.sha256("\0".join(parts).encode())
    for file in ("phpt.py", "suite.py", "backends.py", "hayate.py", "worker.php"):
        digest.update((HERE / file).read_bytes())
    return digest.hexdigest()


def load(name: str, key: str, tests: list[str]) -> Run | None:
    """What an earlier run of this backend says of these tests, if it had them all and nothing has changed since."""
    file = WORK / "results" / f"{name}.json"
    if file.exists():
        data = json.loads(file.read_text())
        if data["fingerprint"] == key and all(test in data["run"]["outcomes"] for test in tests):
            run = Run.from_json(data["run"])
            return replace(run, outcomes={test: run.outcomes[test] for test in tests})
    return None


def save(name: str, key: str, run: Run) -> None:
    """Keeps a run for load(); one of more tests that is there stays."""
    file = WORK / "results" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(file.read_text()) if file.exists() else None
    if before is None or before["fingerprint"] != key or not before["run"]["outcomes"].keys() - run.outcomes.keys():
        file.write_text(json.dumps({"fingerprint": key, "run": run.as_json()}))


def main(arguments: list[str]) -> int:
    """Runs what the command line asks for and prints the report."""
    options = parse_arguments(arguments)
    if options.backend == "hayate" and not hayate_binary().exists():
        missing = f"{hayate_binary()} does not exist: build it with `make`, or set HAYATE_BIN"
        print(f"conformance: {missing}", file=sys.stderr)
        return 2
    try:
        version, source = php_source(WORK, options.source)
    except SourceError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    if os.geteuid() == 0:
        # Sources are fetched and unpacked by root alone.
        return hand_over([*arguments, "--source", str(source)], options)

    names = find_tests(source, options.paths)[: options.limit]
    cases, settled = plan(source, names)
    php = php_version()
    key = fingerprint(version, php)
    wanted = [BASELINE]
    if options.backend != "none" and not (options.no_reference and options.backend == "hayate"):
        wanted.append(REFERENCE)
    if options.backend == "hayate":
        wanted += [f"hayate {mode}" for mode in options.mode]

    runs: dict[str, Run] = {}
    for name in wanted:
        reusable = options.reuse or (name in (BASELINE, REFERENCE) and not options.fresh)
        run = load(name, key, names) if reusable else None
        if run is None:
            verdicts = runs[BASELINE].outcomes if runs else None
            run = run_all(source, cases, settled, BACKENDS[name], verdicts, options.jobs, name)
            save(name, key, run)
        runs[name] = run

    report = Report(version, php, runs, *(read_accepted(HERE / name) for name in ACCEPTED))
    print(report.as_text())
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(), indent=1, ensure_ascii=True) + "\n")
    if options.page is not None:
        insert(options.page, page(report))
    under_test = [name for name in wanted if name not in (BASELINE, REFERENCE)]
    if options.list_failures:
        for server in under_test or wanted[1:]:
            for name in sorted({*report.regressions(server)} - {*report.in_function(server)}):
                outcomes = runs[server].outcomes[name], runs[BASELINE].outcomes[name]
                print(difference(Phpt(source, name), *outcomes), end="\n\n")
    return 1 if any(report.unexplained(server) for server in under_test) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
