"""What the runs say side by side, as text and as JSON. Must never call a test passed that was not run."""

from __future__ import annotations

import collections
import difflib
import pathlib
from dataclasses import dataclass

from .phpt import Phpt
from .suite import Outcome, Run

BASELINE = "php-cgi"
#: A web server that is not ours: what fails here too is no fault of Hayate's.
REFERENCE = "php-fpm"


@dataclass
class Report:
    """`runs` by backend name; the first is the baseline. `accepted` maps a test to the reason it may fail."""

    source: str
    php: str
    runs: dict[str, Run]
    accepted: dict[str, str]

    def passes(self, backend: str) -> set[str]:
        """Names of the tests that passed."""
        return {name for name, outcome in self.runs[backend].outcomes.items() if outcome.status == "pass"}

    def regressions(self, backend: str) -> list[str]:
        """Tests that pass through php-cgi and do not through this backend, sorted."""
        return sorted(self.passes(BASELINE) - self.passes(backend))

    def only_here(self, backend: str) -> list[str]:
        """Those of the regressions that pass through the reference server too, or all where it was not run."""
        missed = self.regressions(backend)
        if REFERENCE not in self.runs or backend == REFERENCE:
            return missed
        passed = self.passes(REFERENCE)
        return [name for name in missed if name in passed]

    def unexplained(self, backend: str) -> list[str]:
        """Regressions without a reason in the list of accepted differences."""
        return [name for name in self.regressions(backend) if name not in self.accepted]

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
                            "accepted": self.accepted.get(test),
                        }
                        for test in self.regressions(name)
                    },
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
        return "\n".join(lines) + "\n"

    def _table(self) -> list[str]:
        names = list(self.runs)
        rows = collections.defaultdict(collections.Counter)
        for test, outcome in self.runs[BASELINE].outcomes.items():
            for row in (_directory(test), "all"):
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
        missed, here = self.regressions(name), set(self.only_here(name))
        outcomes = self.runs[name].outcomes
        lines = [f"{name}: {len(missed)} tests pass in php-cgi and fail here"]
        if name != REFERENCE and REFERENCE in self.runs:
            lines[0] += f"; {len(here)} of them pass in php-fpm, {len(self.unexplained(name))} are not explained"
        for test in missed:
            mark = " " if name == REFERENCE or REFERENCE not in self.runs else "!" if test in here else "="
            reason = f" (accepted: {self.accepted[test]})" if test in self.accepted else ""
            lines.append(f"  {mark} {test}: {outcomes[test].why}{reason}")
        if not missed:
            lines.append("  none")
        if events := self.runs[name].events:
            lines.append(f"  what befell the server ({len(events)}):")
            lines += [f"    {test}: {what.splitlines()[0] if what else ''}" for test, what in events]
        return lines


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


def _directory(test: str) -> str:
    parts = test.split("/")
    return "/".join(parts[:2]) if parts[0] in ("ext", "Zend", "sapi") else parts[0]
