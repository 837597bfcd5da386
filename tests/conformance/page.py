"""The figures of docs/conformance.md: what the runs say, as Markdown tables. The prose is the page's own."""

from __future__ import annotations

import collections
import itertools
import pathlib

from .report import BASELINE, KEEPS_STATE, REFERENCE, Report, directory

BEGIN = "<!-- figures: make conformance -->"
END = "<!-- end of the figures -->"


def insert(file: pathlib.Path, figures: str) -> None:
    """Replaces what stands between the two marks of a page."""
    text = file.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{file}: write {BEGIN} and {END}, each on a line of its own, where the figures belong")
    before, _, rest = text.partition(BEGIN)
    file.write_text(f"{before}{BEGIN}\n\n{figures}\n{END}{rest.partition(END)[2]}")


def page(report: Report) -> str:
    """All figures and all differences."""
    return "\n".join([*_summary(report), "", *_directories(report), "", *_differences(report), *_later(report), ""])


def _table(head: list[str], rows: list[list[object]]) -> list[str]:
    line = "| " + " | ".join(head) + " |"
    rule = "| " + " | ".join("---" for _ in head) + " |"
    return [line, rule, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)]


def _summary(report: Report) -> list[str]:

    def as_there(name: str) -> int:
        return len(report.unsteady(name)) - len(report.unsteady_here(name))

    servers = report.servers()
    passed = len(report.passes(BASELINE))
    head = [f"of the {passed:,} that pass through php-cgi", *servers]
    rows = [
        ["pass", *(f"{len(report.passes(BASELINE) & report.passes(name)):,}" for name in servers)],
        ["are not for this server, as they say themselves", *(len(report.skipped_here(name)) for name in servers)],
        ["need the global scope", *(len(report.in_function(name)) or "-" for name in servers)],
        ["fail, for the reasons below", *(len(report.failures(name)) for name in servers)],
        ["runs of each test in one process", *(report.runs[name].times for name in servers)],
        ["a later run goes another way than the first", *(len(report.unsteady(name)) for name in servers)],
        ["of these, as in php-fpm", *("" if name == REFERENCE else as_there(name) for name in servers)],
    ]
    tests, skipped = len(report.runs[BASELINE].outcomes), 0
    for outcome in report.runs[BASELINE].outcomes.values():
        skipped += outcome.status in ("skip", "borked")
    return [
        f"php-src {report.source}, PHP {report.php}: {tests:,} tests. {skipped:,} do not apply here (other systems, "
        f"missing extensions, a command line), {tests - skipped:,} run, and {passed:,} pass through php-cgi.",
        "",
        *_table(head, rows),
    ]


def _directories(report: Report) -> list[str]:
    names = list(report.runs)
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for test, outcome in report.runs[BASELINE].outcomes.items():
        counts[directory(test)]["run"] += outcome.status not in ("skip", "borked")
        for name in names:
            counts[directory(test)][name] += report.runs[name].outcomes[test].status == "pass"
    rows = [[place, count["run"], *(count[name] for name in names)] for place, count in sorted(counts.items())]
    return ["Tests that pass, by directory:", "", *_table(["directory", "run", *names], rows)]


def _differences(report: Report) -> list[str]:
    """One line for each test that fails in Hayate and not for want of the global scope, grouped by reason."""
    servers = [name for name in report.servers() if name != REFERENCE]
    found: dict[str, list[str]] = collections.defaultdict(list)
    for name in servers:
        for test in report.failures(name):
            found[test].append(name.removeprefix("hayate "))
    reference = set(report.regressions(REFERENCE)) if REFERENCE in report.runs else set()

    accepted = {**report.accepted_worker, **report.accepted}

    def reason(test: str) -> str:
        return accepted.get(test, "not explained yet")

    rows = []
    for why, tests in itertools.groupby(sorted(found, key=lambda test: (reason(test), test)), key=reason):
        for number, test in enumerate(tests):
            rows.append([why if number == 0 else "", f"`{test}`", ", ".join(found[test]), "yes" * (test in reference)])
    if not rows:
        return []
    return ["Every difference:", "", *_table(["reason", "test", "modes", "in php-fpm too"], rows), ""]


def _later(report: Report) -> list[str]:
    """Which later runs go another way where no state is kept, and not in the reference server."""
    lines = []
    for name in report.servers():
        different = report.unsteady_here(name)
        if name not in (REFERENCE, KEEPS_STATE) and different:
            rows = [[report.accepted_later.get(test, "not explained yet"), f"`{test}`"] for test in different]
            lines += [f"{name}: later runs that go another way:", "", *_table(["reason", "test"], sorted(rows)), ""]
    return lines
