"""What the runs say side by side, as text and as JSON. Must never call a test passed that was not run."""

from __future__ import annotations

import collections
import difflib
import pathlib
from dataclasses import dataclass, field

from .phpt import Phpt
from .suite import Outcome, Run

BASELINE = "php-cgi"
#: A web server that is not ours: what fails here too is no fault of Hayate's.
REFERENCE = "php-fpm"
#: The mode in which a request may find what earlier ones left: that is what it is for.
KEEPS_STATE = "hayate worker"
#: Where a function of a worker script includes the tests.
WORKERS = (KEEPS_STATE, "hayate rewind")


@dataclass
class Report:
    """`runs` by backend name; the first is the baseline.

    `accepted` maps a test to the reason it may fail, `accepted_worker` to the reason it may do so where a worker script
    includes it, and `accepted_later` to the reason a later run may go another way than the first.
    """

    source: str
    php: str
    runs: dict[str, Run]
    accepted: dict[str, str]
    accepted_worker: dict[str, str] = field(default_factory=dict)
    accepted_later: dict[str, str] = field(default_factory=dict)

    def passes(self, backend: str) -> set[str]:
        """Names of the tests that passed."""
        return {name for name, outcome in self.runs[backend].outcomes.items() if outcome.status == "pass"}

    def regressions(self, backend: str) -> list[str]:
        """Tests that pass through php-cgi and fail through this backend, sorted."""
        return sorted(self.passes(BASELINE) - self.passes(backend) - set(self.skipped_here(backend)))

    def skipped_here(self, backend: str) -> list[str]:
        """Tests that pass through php-cgi and say of this server that they are not for it, sorted."""
        outcomes = self.runs[backend].outcomes
        return sorted(name for name in self.passes(BASELINE) if outcomes[name].status == "skip")

    def unsteady(self, backend: str) -> list[str]:
        """Tests of which a later run in the same process did not go as the first, sorted."""
        return sorted(name for name, outcome in self.runs[backend].outcomes.items() if outcome.later)

    def unsteady_here(self, backend: str) -> list[str]:
        """Those of the unsteady that are steady through the reference server, or all where it was not run."""
        there = set(self.unsteady(REFERENCE)) if REFERENCE in self.runs and backend != REFERENCE else set()
        return [name for name in self.unsteady(backend) if name not in there]

    def only_here(self, backend: str) -> list[str]:
        """Those of the regressions that pass through the reference server too, or all where it was not run."""
        missed = self.regressions(backend)
        if REFERENCE not in self.runs or backend == REFERENCE:
            return missed
        passed = self.passes(REFERENCE)
        return [name for name in missed if name in passed]

    def in_function(self, backend: str) -> list[str]:
        """Those of the regressions that php-cgi shows too when a function includes the test."""
        outcomes = self.runs[backend].outcomes
        return [name for name in self.regressions(backend) if outcomes[name].in_function]

    def reasons(self, backend: str) -> dict[str, str]:
        """The accepted failures of a backend."""
        return {**self.accepted, **self.accepted_worker} if backend in WORKERS else self.accepted

    def failures(self, backend: str) -> list[str]:
        """The regressions that the lack of a global scope does not explain."""
        in_function = set(self.in_function(backend))
        return [name for name in self.regressions(backend) if name not in in_function]

    def unexplained(self, backend: str) -> list[str]:
        """Failures, and later runs that went another way where no state is kept, without an accepted reason."""
        failures = [name for name in self.failures(backend) if name not in self.reasons(backend)]
        unsteady = [] if backend == KEEPS_STATE else self.unsteady_here(backend)
        return sorted({*failures, *(name for name in unsteady if name not in self.accepted_later)})

    def outdated(self) -> list[str]:
        """Tests whose accepted failure occurred on none of the servers that ran them."""
        servers = [name for name in self.servers() if name != REFERENCE]
        failed = {test for name in servers for test in self.failures(name)}
        failed_worker = {test for name in servers if name in WORKERS for test in self.failures(name)}
        later = {test for name in servers for test in self.unsteady(name)}
        ran = self.runs[BASELINE].outcomes
        listed = [*(test for test in self.accepted if test not in failed)]
        listed += [test for test in self.accepted_worker if test not in failed_worker]
        listed += [test for test in self.accepted_later if test not in later]
        return sorted(test for test in listed if servers and test in ran)

    def servers(self) -> list[str]:
        """Backends other than the baseline."""
        return [name for name in self.runs if name != BASELINE]

    def as_json(self) -> dict:
        """Everything, for machines: counts, regressions with their reasons, skips."""
        baseline = self.runs[BASELINE].outcomes
        return {
            "source": self.source,
            "php": self.php,
            "tests": len(baseline),
            "skipped": {name: outcome.why for name, outcome in baseline.items() if outcome.status == "skip"},
            "borked": {name: outcome.why for name, outcome in baseline.items() if outcome.status == "borked"},
            "backends": {
                name: {
                    "counts": dict(collections.Counter(outcome.status for outcome in run.outcomes.values())),
                    "seconds": round(run.seconds, 1),
                    "server_events": run.events,
                    "passes_in_php_cgi_and_fails_here": {
                        test: {
                            "why": run.outcomes[test].why,
                            "fails_in_php_fpm_too": REFERENCE in self.runs
                            and self.runs[REFERENCE].outcomes[test].status != "pass",
                            "accepted": self.reasons(name).get(test),
                        }
                        for test in self.regressions(name)
                    },
                    "need_the_global_scope": self.in_function(name),
                    "not_for_this_server": {test: run.outcomes[test].why for test in self.skipped_here(name)},
                    "later_runs_differ": {test: run.outcomes[test].later for test in self.unsteady(name)},
                    "later_runs_differ_but_not_in_php_fpm": self.unsteady_here(name),
                    "processes_replaced_after": run.replaced,
                    "passes_here_and_fails_in_php_cgi": sorted(self.passes(name) - self.passes(BASELINE)),
                }
                for name, run in self.runs.items()
            },
        }

    def as_text(self) -> str:
        """A table by directory, then what is skipped and why, then every regression of every server."""
        lines = [f"php-src tests of {self.source}, PHP {self.php}", ""]
        lines += self._table() + [""] + self._skips()
        for name in self.servers():
            lines += ["", *self._regressions(name)]
        if outdated := self.outdated():
            lines += ["", "accepted differences that did not occur:", *(f"    {test}" for test in outdated)]
        return "\n".join(lines) + "\n"

    def _table(self) -> list[str]:
        names = list(self.runs)
        rows = collections.defaultdict(collections.Counter)
        for test, outcome in self.runs[BASELINE].outcomes.items():
            for row in (directory(test), "all"):
                rows[row]["tests"] += 1
                rows[row]["run"] += outcome.status not in ("skip", "borked")
                for name in names:
                    rows[row][name] += self.runs[name].outcomes[test].status == "pass"
        width = max(map(len, rows))
        head = f"{'':{width}} {'tests':>7} {'run':>7}" + "".join(f" {name:>15}" for name in names)
        ordered = [*sorted(row for row in rows if row != "all"), "all"]
        body = [
            f"{row:{width}} {rows[row]['tests']:7} {rows[row]['run']:7}"
            + "".join(f" {rows[row][name]:15}" for name in names)
            for row in ordered
        ]
        seconds = f"{'seconds':{width}} {'':7} {'':7}" + "".join(f" {self.runs[name].seconds:15.0f}" for name in names)
        return [head, *body, seconds]

    def _skips(self) -> list[str]:
        reasons = collections.Counter()
        for outcome in self.runs[BASELINE].outcomes.values():
            if outcome.status in ("skip", "borked"):
                reasons["borked" if outcome.status == "borked" else outcome.why] += 1
        shown = reasons.most_common(12)
        rest = sum(reasons.values()) - sum(count for _, count in shown)
        lines = [f"skipped for all: {sum(reasons.values())}"]
        lines += [f"  {count:5}  {reason[:100]}" for reason, count in shown]
        return lines + ([f"  {rest:5}  other reasons, see the JSON report"] if rest else [])

    def _regressions(self, name: str) -> list[str]:
        """All that is to be said of one server."""
        return [*self._failures(name), *self._inapplicable(name), *self._later_runs(name), *self._events(name)]

    def _failures(self, name: str) -> list[str]:
        missed, here = self.regressions(name), set(self.only_here(name))
        outcomes = self.runs[name].outcomes
        lines = [f"{name}: {len(missed)} tests pass in php-cgi and fail here"]
        if name != REFERENCE and REFERENCE in self.runs:
            lines[0] += f"; {len(here)} of them pass in php-fpm, {len(self.unexplained(name))} are not explained"
        in_function = self.in_function(name)
        if in_function:
            lines.append(f"  {len(in_function)} of them need the global scope: php-cgi fails alike in a function")
        for test in self.failures(name):
            mark = " " if name == REFERENCE or REFERENCE not in self.runs else "!" if test in here else "="
            reason = f" (accepted: {self.reasons(name)[test]})" if test in self.reasons(name) else ""
            lines.append(f"  {mark} {test}: {outcomes[test].why}{reason}")
        return lines if missed else [*lines, "  none"]

    def _inapplicable(self, name: str) -> list[str]:
        outcomes, skipped = self.runs[name].outcomes, self.skipped_here(name)
        if not skipped:
            return []
        lines = [f"{name}: {len(skipped)} tests pass in php-cgi and say of this server that they are not for it"]
        return lines + [f"    {test}: {outcomes[test].why}" for test in skipped]

    def _later_runs(self, name: str) -> list[str]:
        run = self.runs[name]
        if run.times == 1:
            return []
        count = sum(outcome.status not in ("skip", "borked") for outcome in run.outcomes.values())
        different = self.unsteady(name)
        head = f"{name}: {count} tests were run {run.times} times in one process"
        here = set(self.unsteady_here(name))
        lines = [f"{head}; of {len(different)} a later run differs, of {len(here)} not in {REFERENCE}"]
        for test in different:
            reason = f" (accepted: {self.accepted_later[test]})" if test in self.accepted_later else ""
            lines.append(f"  {'!' if test in here else '='} {test}: {run.outcomes[test].later}{reason}")
        if run.replaced:
            lines.append("  processes were replaced:")
            lines += [f"    {len(tests):5}  {cause}" for cause, tests in sorted(run.replaced.items())]
        return lines

    def _events(self, name: str) -> list[str]:
        events = self.runs[name].events
        lines = [f"{name}: what befell the server ({len(events)})"] if events else []
        return lines + [f"    {test}: {what.splitlines()[0] if what else ''}" for test, what in events]


def difference(test: Phpt, outcome: Outcome, baseline: Outcome) -> str:
    """A readable difference between what a test expects and what came, for --list-failures."""
    expected = test.expected().decode("utf-8", "replace").splitlines()
    got = outcome.output.encode("utf-8", "replace").decode("utf-8", "replace").strip().splitlines()
    lines = list(difflib.unified_diff(expected, got, "expected", "got", lineterm="", n=1))
    return "\n".join([f"--- {test.name}: {outcome.why} (php-cgi: {baseline.status})", *lines[2:60]])


def read_accepted(file: pathlib.Path) -> dict[str, str]:
    """Lines `path: reason`; empty lines and those that begin with # do not count."""
    accepted = {}
    if file.exists():
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, colon, reason = line.partition(": ")
            if not colon or not reason.strip():
                raise SystemExit(f"{file}:{number}: write `path/of/test.phpt: reason`")
            accepted[name] = reason.strip()
    return accepted


def directory(test: str) -> str:
    """Where a test is counted."""
    parts = test.split("/")
    return "/".join(parts[:2]) if parts[0] in ("ext", "Zend", "sapi") else parts[0]
