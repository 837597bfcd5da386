"""Which tests are run, under which settings, and the running of them on several copies of the tree at once.

What may run is decided once, by php-cgi: a test that it skips (by SKIPIF, for want of an extension, or because it
needs a command line) is skipped for every server, and a test that it runs has to pass on every server.
"""

from __future__ import annotations

import collections
import itertools
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field

from lib.process import temporary_directory
from lib.servers import PHP_VERSION

from .backends import Backend, PhpCgi, Setting, ini_arguments, php_environment, run_process
from .phpt import BrokenTest, Phpt, Request, Response

#: run-tests.php's own settings, and below them PHP's built-in defaults where Debian's php.ini departs from them:
#: the tests are written for a PHP without a php.ini.
INI = {
    "output_handler": "",
    "open_basedir": "",
    "disable_functions": "",
    "output_buffering": "Off",
    "error_reporting": "32767",
    "display_errors": "1",
    "display_startup_errors": "1",
    "log_errors": "0",
    "html_errors": "0",
    "track_errors": "0",
    "report_memleaks": "1",
    "report_zend_debug": "0",
    "docref_root": "",
    "docref_ext": ".html",
    "error_prepend_string": "",
    "error_append_string": "",
    "auto_prepend_file": "",
    "auto_append_file": "",
    "ignore_repeated_errors": "0",
    "precision": "14",
    "serialize_precision": "-1",
    "memory_limit": "128M",
    "opcache.fast_shutdown": "0",
    "opcache.file_update_protection": "0",
    "opcache.revalidate_freq": "0",
    # Large enough for the strings of all tests, or the later ones would find theirs not interned.
    "opcache.interned_strings_buffer": "64",
    "opcache.jit_hot_loop": "1",
    "opcache.jit_hot_func": "1",
    "opcache.jit_hot_return": "1",
    "opcache.jit_hot_side_exit": "1",
    "zend.assertions": "1",
    "zend.exception_ignore_args": "0",
    "zend.exception_string_param_max_len": "15",
    "short_open_tag": "0",
    # PHP's built-in defaults
    "variables_order": "EGPCS",
    # Unset, it takes after variables_order; empty, it would mean no variables at all.
    "request_order": "GPC",
    # From 8.5 on PHP says in each answer that this is deprecated.
    "register_argc_argv": "0" if PHP_VERSION >= "8.5" else "1",
    "enable_dl": "1",
    "expose_php": "1",
    "max_input_time": "-1",
    "session.gc_probability": "1",
    "session.gc_divisor": "100",
    "session.sid_length": "32",
    "session.sid_bits_per_character": "4",
    "session.save_path": "",
}

#: Tests that are left out, and why.
LEFT_OUT = {"ext/standard/tests/file/bug36365.phpt": "makes 70,000 files and removes them, for each run"}

#: Tests handed to a job at a time: small enough to keep the jobs level, large enough to keep a server busy.
CHUNK = 100


@dataclass
class Outcome:
    """How one test went. `status` is pass, fail, xfail (a failure the test itself announces), skip or borked.

    `later` says how a later run in the same process differed from this one: "" when none did, or there was none.
    `in_function`: it failed, and php-cgi fails with the same output when the test is included by a function.
    """

    status: str
    why: str = ""
    output: str = ""
    later: str = ""
    in_function: bool = False


@dataclass
class Case:
    """A test that can be run: what is asked, and under which settings."""

    test: Phpt
    setting: Setting
    request: Request
    alone: bool

    @property
    def script(self) -> str:
        """Path of the script below the tree."""
        return self.test.name[: -len("phpt")] + "php"


def find_tests(root: pathlib.Path, paths: list[str]) -> list[str]:
    """Names of all tests below the given directories (or of the files themselves), sorted."""
    names = set()
    for path in paths:
        start = root / path
        if not start.exists():
            raise SystemExit(f"{path}: no such file or directory in php-src")
        files = [start] if start.is_file() else start.rglob("*.phpt")
        names.update(str(file.relative_to(root)) for file in files)
    return sorted(names)


def loaded_extensions() -> set[str]:
    """Names, in lower case, of what php-cgi has loaded."""
    command = [f"/usr/bin/php-cgi{PHP_VERSION}", "-m"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    names = {line.strip().lower() for line in listed.splitlines()}
    return names | ({"opcache"} if "zend opcache" in names else set())


def plan(root: pathlib.Path, names: list[str]) -> tuple[list[Case], dict[str, Outcome]]:
    """(cases that may run, outcomes of those that cannot)."""
    cases, settled = [], {}
    extensions = loaded_extensions()
    for name in names:
        try:
            test = Phpt(root, name)
            if why := LEFT_OUT.get(name) or test.unsupported():
                settled[name] = Outcome("skip", why)
                continue
            missing = set(test.text("EXTENSIONS").lower().split()) - extensions
            if missing:
                settled[name] = Outcome("skip", f"extension {' '.join(sorted(missing))} is not there")
                continue
            alone = "CONFLICTS" in test.sections or (test.path.parent / "CONFLICTS").exists()
            cases.append(Case(test, Setting({**INI, **test.ini()}, test.env()), test.request(), alone))
        except BrokenTest as error:
            settled[name] = Outcome("borked", str(error))
    return cases, settled


class Runner:
    """Runs cases in one copy of the tree."""

    def __init__(self, tree: pathlib.Path, backend: Backend, verdicts: dict[str, Outcome] | None) -> None:
        self.tree = tree
        self.backend = backend
        #: Baseline outcomes, which say what is skipped; None when this run is the baseline.
        self._verdicts = verdicts
        self._in_function = PhpCgi(tree, in_function=True)
        #: When the next test's script will have been modified: never as the one before, or OPcache would not notice.
        self._modified = int(time.time()) - 100_000
        self._skips: dict[tuple[pathlib.Path, bytes], str] = {}

    def run(self, case: Case) -> Outcome:
        """Runs one test as often as the backend repeats; all of that twice if it fails and is known to be flaky."""
        if settled := self._settled(case):
            return settled
        try:
            outcome = self._sequence(case)
            if outcome.status != "pass" and case.test.is_flaky(outcome.output.encode("utf-8", "surrogateescape")):
                outcome = self._sequence(case)
            if outcome.later:
                outcome.later = self._confirmed(case, outcome)
            if outcome.status == "fail" and self._verdicts is not None and (why := self._skipped_by_server(case)):
                return Outcome("skip", why)
            if outcome.status == "fail" and self.backend.in_function:
                outcome.in_function = self._fails_in_function(case, outcome)
                if not outcome.in_function:
                    # Once more in a process that is new for sure.
                    self.backend.close()
                    outcome = self._sequence(case)
                    outcome.in_function = outcome.status == "fail" and self._fails_in_function(case, outcome)
        except BrokenTest as error:
            outcome = Outcome("borked", str(error))
        if outcome.status == "fail" and "XFAIL" in case.test.sections:
            outcome.status = "xfail"
        if outcome.status == "pass":
            outcome.output = ""
        return outcome

    def _sequence(self, case: Case) -> Outcome:
        """The first run, and how the later ones in the same process differ from it."""
        self.backend.prepare(case.script, case.setting)
        self._modified += 1
        first = self._attempt(case)
        if first.why.startswith("no answer"):
            return first  # its process has been ended
        for number in range(2, self.backend.runs + 1):
            later = self._attempt(case)
            # A test that passes says itself what may change from run to run; of another one, nothing may.
            if first.status == "pass":
                same = later.status == "pass"
            else:
                same = _comparable(later.output) == _comparable(first.output)
            if not same and not first.later:
                first.later = f"run {number}: {difference(first.output, later.output)}"
        return first

    def _confirmed(self, case: Case, outcome: Outcome) -> str:
        """How a later run differs, if it does so again in a fresh process and the test does not differ by itself."""
        self.backend.close()
        again = self._sequence(case)
        steady = outcome.status == again.status == "pass" or _comparable(outcome.output) == _comparable(again.output)
        return again.later if again.later and steady else ""

    def _fails_in_function(self, case: Case, outcome: Outcome) -> bool:
        """Whether php-cgi puts out the same when a function includes the test."""
        again = self._attempt(case, self._in_function)
        return again.status == "fail" and _comparable(again.output) == _comparable(outcome.output)

    def _attempt(self, case: Case, backend: Backend | None = None) -> Outcome:
        script = self.tree / case.script
        script.unlink(missing_ok=True)
        before = set(os.listdir(script.parent))
        script.write_bytes(case.test.sections["FILE"])
        # The same for all runs of a sequence: those after the first find it in OPcache, if it can be there at all.
        os.utime(script, (self._modified, self._modified))
        try:
            response = (backend or self.backend).run(case.script, case.setting, case.request)
        finally:
            self._clean(case)
            script.unlink(missing_ok=True)
        why = case.test.complaint(response)
        if why:
            _remove_left_over(script.parent, before)
        return Outcome("fail" if why else "pass", why, _as_text(response))

    def _skipped_by_server(self, case: Case) -> str:
        """Why the test does not apply to this server, in its own words: what its SKIPIF says there."""
        wanted = ", ".join(f"'{name}'" for name in case.test.text("EXTENSIONS").split())
        probe = f'<?php foreach ([{wanted}] as $e) if (!extension_loaded($e)) die("skip $e is not there"); ?>\n'
        name = case.test.name[: -len("phpt")] + "skip.php"
        file = self.tree / name
        file.write_bytes(probe.encode() + case.test.sections.get("SKIPIF", b""))
        try:
            said = self.backend.run(name, case.setting, Request("GET", "", (), b"")).body.decode("utf-8", "replace")
        finally:
            file.unlink(missing_ok=True)
        return _reason(said.strip()) if said.strip()[:4].lower() == "skip" else ""

    def _settled(self, case: Case) -> Outcome | None:
        if self._verdicts is not None:
            verdict = self._verdicts[case.test.name]
            return verdict if verdict.status in ("skip", "borked") else None
        said = self._skipif(case)
        kind = said[:5].lower()
        if kind.startswith("skip"):
            return Outcome("skip", _reason(said))
        if kind in ("xfail", "flaky"):
            case.test.sections[kind.upper()] = said[5:].encode()
        elif said and not kind.startswith(("info", "warn")):
            return Outcome("borked", f"SKIPIF says {said[:200]!r}")
        return None

    def _skipif(self, case: Case) -> str:
        code = case.test.sections.get("SKIPIF", b"")
        folder = (self.tree / case.test.name).parent
        if not code.strip():
            return ""
        # Per directory: the code often includes a file of its own.
        if (folder, code) not in self._skips:
            said = self._php("php-cgi", case, ".skip.php", code, "-q")
            if said.startswith("nocache"):
                return ""
            self._skips[folder, code] = said
        return self._skips[folder, code]

    def _clean(self, case: Case) -> None:
        if code := case.test.sections.get("CLEAN", b"").strip():
            self._php("php", case, ".clean.php", code)

    def _php(self, program: str, case: Case, suffix: str, code: bytes, *arguments: str) -> str:
        file = self.tree / (case.test.name[: -len(".phpt")] + suffix)
        file.write_bytes(code)
        env = php_environment(self.tree, case.setting.ini(self.tree), case.setting.env(self.tree))
        command = [f"/usr/bin/{program}{PHP_VERSION}", *arguments, *ini_arguments(INI), str(file)]
        output, _ = run_process(command, env, self.tree)
        file.unlink(missing_ok=True)
        return output.decode("utf-8", "replace").strip()


def _remove_left_over(folder: pathlib.Path, before: set[str]) -> None:
    """Removes what a test that failed half-way left beside it, or its next run would fail for that."""
    for name in set(os.listdir(folder)) - before:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            subprocess.run(["chmod", "-R", "u+rwX", str(path)], check=False, stderr=subprocess.DEVNULL)
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _reason(said: str) -> str:
    """The reason in what a SKIPIF says, "skip" and all."""
    return said[4:].lstrip(" :-").splitlines()[0] if said[4:].strip() else "without a reason"


def difference(first: str, later: str) -> str:
    """The first line that differs between two outputs, empty ones not counted."""
    lines = (filter(str.strip, output.splitlines()) for output in (first, later))
    for a, b in itertools.zip_longest(*lines):
        if a != b:
            return f"{b!r:.200} instead of {a!r:.200}"
    return "white space differs"


def _comparable(output: str) -> str:
    """An output without what differs by chance, and without the name of what calls the worker script's handler."""
    output = re.sub(r"\b(call_user_func|hayate_handle_request)\b", "handle", output)
    output = re.sub(r"\bphp[0-9A-Za-z]{6}\b", "<temporary name>", output)
    output = re.sub(r"'[0-9a-v]{15}\.\.\.'|\b[0-9a-v]{26,32}\b", "<session id>", output)
    return re.sub(r"(?i)(\bstring|resource(?: id ?#)?)\W{0,2}\d+", r"\1 <number>", output)


def _as_text(response: Response) -> str:
    head = f"{response.status} {response.reason}\n" if response.status != 200 else ""
    return head + response.body[: 1 << 20].decode("utf-8", "surrogateescape")


@dataclass
class Run:
    """All outcomes of one backend, by test, and what befell its servers."""

    outcomes: dict[str, Outcome]
    events: list[tuple[str, str]]
    seconds: float
    #: How often each test ran in one process.
    times: int = 1
    #: Tests after which a process was replaced, by cause.
    replaced: dict[str, list[str]] = field(default_factory=dict)

    def as_json(self) -> dict:
        """What from_json() reads; outputs are cut to what a reader needs."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict) -> Run:
        """The run as_json() wrote."""
        outcomes = {name: Outcome(**outcome) for name, outcome in data["outcomes"].items()}
        events = [tuple(event) for event in data["events"]]
        return cls(outcomes, events, data["seconds"], data["times"], data["replaced"])


def run_all(
    source: pathlib.Path,
    cases: list[Case],
    settled: dict[str, Outcome],
    backend: type[Backend],
    verdicts: dict[str, Outcome] | None,
    jobs: int,
    label: str,
) -> Run:
    """Runs every case on `jobs` fresh copies of the tree; tests that exclude others run after all else, one by one."""
    started = time.monotonic()
    cases = sorted(cases, key=lambda case: (case.alone, case.setting, case.test.name))
    work: queue.SimpleQueue[list[Case]] = queue.SimpleQueue()
    crowd = [case for case in cases if not case.alone]
    while crowd:
        chunk = [case for case in crowd[:CHUNK] if case.setting == crowd[0].setting]
        work.put(chunk)
        crowd = crowd[len(chunk) :]
    outcomes, events, errors = dict(settled), [], []
    replaced: dict[str, list[str]] = collections.defaultdict(list)
    runners = []

    def drain(runner: Runner) -> None:
        try:
            while not errors:
                for case in work.get_nowait():
                    outcomes[case.test.name] = runner.run(case)
                    if len(outcomes) % 500 == 0:
                        print(f"{label}: {len(outcomes)} of {len(cases) + len(settled)}", file=sys.stderr, flush=True)
        except queue.Empty:
            pass
        except BaseException as error:
            errors.append(error)

    directories = [temporary_directory("phpt") for _ in range(jobs)]
    try:
        for directory in directories:
            tree = directory / "php-src"
            copy = ["cp", "-R", "--preserve=mode,timestamps", "--reflink=auto", str(source), str(tree)]
            subprocess.run(copy, check=True)
            runners.append(Runner(tree, backend(tree), verdicts))
        threads = [threading.Thread(target=drain, args=(runner,)) for runner in runners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for case in (case for case in cases if case.alone and not errors):
            outcomes[case.test.name] = runners[0].run(case)
    finally:
        for runner in runners:
            runner.backend.close()
            events += runner.backend.events
            for cause, tests in runner.backend.replaced.items():
                replaced[cause] += tests
        for directory in directories:
            # Tests leave directories behind that nobody may enter.
            subprocess.run(["chmod", "-R", "u+rwX", str(directory)], check=False, stderr=subprocess.DEVNULL)
            shutil.rmtree(directory, ignore_errors=True)
    if errors:
        raise errors[0]
    return Run(outcomes, events, time.monotonic() - started, backend.runs, dict(replaced))
