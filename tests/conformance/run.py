#!/usr/bin/env python3
"""`make conformance`: PHP's own tests through a server, against the same tests through php-cgi.

    run.py                                  Hayate in classic mode, with php-fpm behind nginx as the reference
    run.py --mode worker                    Hayate in worker mode: each test twice in one process
    run.py --mode rewind                    the same with rewind: three times, and all tests in one process
    run.py --backend php-fpm                the reference alone
    run.py --paths ext/json tests/basic/001.phpt --list-failures

Ends with 1 if a test passes in php-cgi and fails in Hayate without a reason in accepted.txt, else with 0.
As root it hands over to www-data: many tests are about what an unprivileged user may not do.
"""

from __future__ import annotations

import argparse
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
from conformance.phpt import Phpt  # noqa: E402
from conformance.report import BASELINE, REFERENCE, Report, difference, read_accepted  # noqa: E402
from conformance.source import SourceError, php_source  # noqa: E402
from conformance.suite import Run, find_tests, plan, run_all  # noqa: E402

PATHS = """Zend/tests tests ext/standard ext/session ext/date ext/json ext/pcre ext/spl ext/ctype ext/filter ext/hash
    ext/random ext/mbstring ext/pdo_sqlite ext/tokenizer ext/reflection""".split()
#: Below target/, so that `git` ignores it; holds php-src and the outcomes of earlier runs.
WORK = REPOSITORY / "target" / "conformance"
UNPRIVILEGED = "www-data"
BACKENDS = {BASELINE: PhpCgi, REFERENCE: PhpFpm, **{f"hayate {mode}": backend for mode, backend in MODES.items()}}


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", nargs="+", default=PATHS, metavar="PATH", help="directories or tests of php-src")
    parser.add_argument("--backend", choices=("hayate", "php-fpm", "none"), default="hayate")
    parser.add_argument("--mode", choices=tuple(MODES), default="classic", help="Hayate's mode")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="copies of the tree and servers at once")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N tests")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--list-failures", action="store_true", help="show what differs, test by test")
    parser.add_argument("--no-reference", action="store_true", help="do not run php-fpm")
    parser.add_argument("--fresh", action="store_true", help="run php-cgi and php-fpm again even if nothing changed")
    return parser.parse_args(arguments)


def hand_over(arguments: list[str], json_file: pathlib.Path | None) -> int:
    """Runs this program again as an unprivileged user, with an environment that says nothing of ours."""
    user = pwd.getpwnam(UNPRIVILEGED)
    results = WORK / "results"
    results.mkdir(parents=True, exist_ok=True)
    os.chown(results, user.pw_uid, user.pw_gid)
    report = results / "report.json"
    if json_file is not None:
        arguments = [*arguments, "--json", str(report)]
    kept = {key: value for key, value in os.environ.items() if key.startswith("HAYATE_")}
    # No group of root's remains, and none is looked up that this account may not have.
    done = subprocess.run(
        [sys.executable, "-B", str(HERE / "run.py"), *arguments],
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        cwd="/",
        env={"PATH": os.environ.get("PATH", "/usr/bin:/bin:/usr/sbin:/sbin"), "HOME": "/tmp", **kept},
        check=False,
    )
    if json_file is not None and report.exists():
        shutil.copyfile(report, json_file)
    return done.returncode


def php_version() -> str:
    """The version of the PHP under test, as php-cgi says it."""
    command = [f"/usr/bin/php-cgi{PHP_VERSION}", "-v"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1]


def fingerprint(*parts: str) -> str:
    """Changes with what decides an outcome: the tests, PHP, and this engine."""
    digest = hashlib.sha256("\0".join(parts).encode())
    for file in ("phpt.py", "suite.py", "backends.py"):
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


def save(name: str, key: str, run: Run, fresh: bool) -> None:
    """Keeps a run for load(); a larger one that is there stays, unless it is to be replaced."""
    file = WORK / "results" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    if fresh or load(name, key, list(run.outcomes)) is None:
        file.write_text(json.dumps({"fingerprint": key, "run": run.as_json()}))


def main(arguments: list[str]) -> int:
    """Runs what the command line asks for and prints the report."""
    options = parse_arguments(arguments)
    if options.backend == "hayate" and not hayate_binary().exists():
        missing = f"{hayate_binary()} does not exist: build it with `make`, or set HAYATE_BIN"
        print(f"conformance: {missing}", file=sys.stderr)
        return 2
    try:
        version, source = php_source(WORK, f"php{PHP_VERSION}")
    except SourceError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    if os.geteuid() == 0:
        return hand_over(arguments, options.json)

    names = find_tests(source, options.paths)[: options.limit]
    cases, settled = plan(source, names)
    php = php_version()
    key = fingerprint(version, php)
    wanted = [BASELINE]
    if options.backend != "none" and not (options.no_reference and options.backend == "hayate"):
        wanted.append(REFERENCE)
    if options.backend == "hayate":
        wanted.append(f"hayate {options.mode}")

    runs: dict[str, Run] = {}
    for name in wanted:
        kept = name in (BASELINE, REFERENCE)
        run = load(name, key, names) if kept and not options.fresh else None
        if run is None:
            verdicts = runs[BASELINE].outcomes if runs else None
            run = run_all(source, cases, settled, BACKENDS[name], verdicts, options.jobs, name)
            if kept:
                save(name, key, run, options.fresh)
        runs[name] = run

    report = Report(version, php, runs, read_accepted(HERE / "accepted.txt"))
    print(report.as_text())
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(), indent=1, ensure_ascii=True) + "\n")
    under_test = wanted[-1]
    if options.list_failures:
        for name in report.regressions(under_test):
            outcomes = runs[under_test].outcomes[name], runs[BASELINE].outcomes[name]
            print(difference(Phpt(source, name), *outcomes), end="\n\n")
    return 1 if options.backend == "hayate" and report.unexplained(under_test) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
