"""What becomes of results: the page by its text; comparisons; and the experiments that are more than a run."""

from __future__ import annotations

import copy
import csv
import html.parser
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from laboratory import SHORT, Laboratory, laboratory

LADDER = """
title = "nginx, two ways"
workload = "status"
engine = "nginx-return-200"
load = { connections = 2, duration = "300ms" }
[base]
title = "constant"
[[step]]
title = "a file"
engine = "nginx-static"
reference = 12000
"""

PRESET = """
title = "a preset of this test"
source = "nobody"
[[part]]
title = "on a schedule"
workload = "status"
engines = ["nginx-return-200", "nginx-static"]
load = { schedule = "line(10,100,500ms) const(100,500ms)" }
reference = [{ engine = "nginx-static", metric = "p95", value = 0.5, phase = "const(100,60s)" }]
[[part]]
title = "steps"
kind = "ladder"
ladder = "small"
[[part]]
title = "limits"
kind = "saturate"
workload = "status"
engines = ["nginx-return-200"]
reference = [{ engine = "nginx-return-200", metric = "rate", value = 24500 }]
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Laboratory]:
    """One for all tests here: none of them changes what it holds."""
    yield from laboratory()


@pytest.fixture(scope="module")
def results(lab: Laboratory) -> Any:
    """Results of a preset with a part of each kind; the text is what it printed."""
    (lab.data / "ladders").mkdir(exist_ok=True)
    (lab.data / "presets").mkdir(exist_ok=True)
    (lab.data / "ladders" / "small.toml").write_text(LADDER)
    (lab.data / "presets" / "small.toml").write_text(PRESET)
    lab.printed = lab.run("reproduce", "small", "--step", "300ms", "--max-rate", "2000", *SHORT,
                          "--json", "results.json", "--html", "page.html")
    return lab.results()


def test_parts_of_each_kind(lab: Laboratory, results: Any) -> None:
    schedule, ladder, limits = results["parts"]
    for subject in schedule["subjects"]:
        (measurement,) = subject["measurements"]
        assert [phase["shots"] for phase in measurement["load"]["phases"]] == [27, 50]
        assert measurement["load"]["total"]["ok"] == 77
    assert [subject["name"] for subject in ladder["subjects"]] == ["constant", "a file"]
    assert ladder["subjects"][1]["above"] == 0 and ladder["subjects"][1]["reference"] == 12000
    (subject,) = limits["subjects"]
    assert len(subject["measurements"]) >= 2  # a busy machine is saturated soon
    assert 0 < subject["saturation"]["limit"] <= 2100 and subject["saturation"]["conclusion"]
    for text in ["beside the published", "× what it stands on", "knee req/s", "const(100,500ms)"]:
        assert text in lab.printed
    assert re.search(r"^3 parts, 5 measurements, about \d+ s$", lab.printed, re.M)
    assert re.search(r"^small +about \d+ s +a preset of this test$", lab.run("reproduce"), re.M)
    assert "nginx, two ways" in lab.run("ladder")


def test_phases_hold_all_rounds(lab: Laboratory, results: Any) -> None:
    """Two rounds, of which the first is the slower one and has a failure: the tables show both together."""
    changed = copy.deepcopy(results)
    changed["parts"] = changed["parts"][:1]
    one, other = changed["parts"][0]["subjects"]
    rounds = [subject["measurements"][0] for subject in (one, other)]
    longest = [[phase["figures"]["latency_ms"]["max"] for phase in m["load"]["phases"]] for m in rounds]
    if longest[0][1] < longest[1][1]:
        rounds.reverse()
        longest.reverse()
    for number, measurement in enumerate(rounds):
        measurement["round"] = number + 1
    figures = rounds[0]["load"]["phases"][1]["figures"]
    figures["ok"], figures["ok_percent"] = 49, 98
    one["measurements"] = rounds
    changed["parts"][0]["subjects"] = [one]
    (lab.dir / "rounds.json").write_text(json.dumps(changed))
    lab.run("report", "rounds.json", "--csv", "rounds.csv", "--html", "rounds.html")
    text = lab.run("report", "rounds.json")

    with open(lab.dir / "rounds.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["round"] for line in lines] == ["1", "2", "all", "all"]
    line = lines[3]
    assert (line["phase"], line["requests"], line["ok"]) == ("const(100,0.5s)", "100", "99")
    assert float(line["ok_percent"]) == 99 and float(line["max_ms"]) == pytest.approx(longest[0][1], abs=1e-4)
    medians = sorted(m["load"]["phases"][1]["figures"]["latency_ms"]["p50"] for m in rounds)
    assert medians[0] - 1e-3 <= float(line["p50_ms"]) <= medians[1] + 1e-3
    assert float(line["p50_ms"]) <= float(line["p999_ms"]) <= float(line["max_ms"]) and line["cpu_user_s"] == ""

    row = re.search(r"const\(100,0\.5s\) +nginx-return-200 +[\d.]+ +99\.00 .* ([\d.,]+)\n", text)
    page = (lab.dir / "rounds.html").read_text()
    after = page[page.index("<h3>const(100,0.5s)</h3>"):]
    cells = re.findall(r"<td>(.*?)</td>", after[:after.index("</table>")])
    assert row and cells[2] == "99.00" and cells[-2] == row[1], (text, cells)


class Page(html.parser.HTMLParser):
    """The tags of a page, and whether they are closed in order."""

    VOID = {"meta", "br", "link", "img", "hr", "input"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else(lab: Laboratory, results: Any) -> None:
    text = (lab.dir / "page.html").read_text()
    page = Page()
    page.feed(text)
    assert not page.open
    names = [tag for tag, _ in page.tags]
    assert not {"script", "link", "img", "iframe", "object"} & set(names)
    assert not [a for _, attrs in page.tags for a, value in attrs.items() if a in ("src", "href") and value[0] != "#"]
    assert "url(" not in text and "@import" not in text
    # Bars of the run and the ladder, two courses each, a curve.
    assert names.count("svg") >= 4 + 2 + 1 + 2 + 1
    assert "NaN" not in text and "inf" not in re.findall(r' (?:d|x|y|cx|cy|width)="([^"]*)"', text)
    again = lab.run("report", "results.json", "--html", "again.html")
    assert not again and (lab.dir / "again.html").read_text() == text


def variant(results: Any, factor: float, spread: float) -> Any:
    """Results as another run might have had them: three rounds, CPU time by a factor, each round a little different."""
    changed = copy.deepcopy(results)
    changed["parts"] = changed["parts"][:1]
    for subject in changed["parts"][0]["subjects"]:
        (one,) = subject["measurements"]
        subject["measurements"] = []
        for turn in range(3):
            measurement = copy.deepcopy(one)
            measurement["round"] = turn + 1
            for key in ("cpu_user", "cpu_system"):
                measurement["server"][key] *= factor * (1 + spread * (turn - 1))
            subject["measurements"].append(measurement)
    return changed


def test_comparisons(lab: Laboratory, results: Any) -> None:
    for name, value in {
        "before": variant(results, 1, 0.02),
        "slower": variant(results, 1.3, 0.02),
        "faster": variant(results, 0.7, 0.02),
        "slightly": variant(results, 1.03, 0.001),
        "noisy": variant(results, 1.3, 0.5),
        "failed": variant(results, 1, 0.02),
        "wrong": variant(results, 1, 0.02),
    }.items():
        subjects = value["parts"][0]["subjects"]
        if name == "failed":
            subjects[0]["failure"] = {"stage": "died", "message": "nginx was ended by SIGSEGV", "log": ""}
        if name == "wrong":
            subjects[0]["measurements"][0]["load"]["total"]["ok"] -= 1
        (lab.dir / f"{name}.json").write_text(json.dumps(value))

    def compare(after: str, status: int) -> str:
        return lab.run("compare", "before.json", f"{after}.json", status=status)

    assert "0 worse, 0 better" in compare("before", 0)
    assert "2 worse, 0 better" in compare("slower", 1)
    assert "0 worse, 2 better" in compare("faster", 0)
    assert "0 worse, 0 better" in compare("slightly", 0)
    assert "0 worse, 0 better" in compare("noisy", 0)
    assert "died: nginx was ended by SIGSEGV" in compare("failed", 1)
    assert "1 worse" in compare("wrong", 1)
    # A single round says nothing about its noise.
    assert "too few rounds to tell" in lab.run("compare", "results.json", "results.json")
    assert "no results of `hayate-lab run`" in lab.run("compare", "lab/php.ini", "before.json", status=2)


def closed(results: Any, rates: dict[str, list[float]], kinds: tuple[str, ...] = ()) -> Any:
    """Results of closed loops whose subjects had these rates, a round each; all else is what was measured. `kinds`: yardsticks."""
    changed = copy.deepcopy(results)
    part = changed["parts"][0]
    (one,) = part["subjects"][0]["measurements"]
    template = part["subjects"][0]
    part["subjects"], part["baseline"], part["references"] = [], next(iter(rates)), []
    part["rounds"] = len(next(iter(rates.values())))
    for name, values in rates.items():
        subject = {**copy.deepcopy(template), "name": name, "title": f"Server {name}", "engine": name, "measurements": []}
        subject["load"] = {"form": "closed", "connections": 2, "duration": 1.0}
        subject["yardstick"] = name in kinds
        for turn, rate in enumerate(values):
            measurement = copy.deepcopy(one)
            measurement["round"] = turn + 1
            measurement["load"]["total"]["ok_rate"] = rate
            subject["measurements"].append(measurement)
        part["subjects"].append(subject)
    changed["parts"] = [part]
    return changed


def said(lab: Laboratory, results: Any) -> tuple[str, str, str]:
    """The verdict on the terminal and on the page, and the page."""
    (lab.dir / "said.json").write_text(json.dumps(results))
    lines = lab.run("report", "said.json").splitlines()
    lab.run("report", "said.json", "--html", "said.html")
    page = (lab.dir / "said.html").read_text()
    title = next(number for number, line in enumerate(lines) if line.startswith("on a schedule: "))
    return lines[title + 1], re.search(r'<p class="verdict">(.*?)</p>', page)[1], page


def test_the_verdict_says_who_is_ahead_and_whether_the_rounds_tell(lab: Laboratory, results: Any) -> None:
    steady = [100.0, 101.0, 99.0, 100.0, 100.0]
    faster = [rate * 1.5 + number for number, rate in enumerate(steady)]
    text, shown, page = said(lab, closed(results, {"a": steady, "b": faster, "c": [r * 4 for r in steady]}, ("c",)))
    assert re.match(r"b is ahead, and five rounds are enough to say so: 152\.5 requests/s, 1\.52 times \(1\.\d+–1\.\d+\) "
                    r"as many as a\. ", text), text
    assert "Server b is ahead, and five rounds are enough to say so" in shown and "many as Server a" in shown
    # One order everywhere; what runs no application comes last, however fast.
    order = ["Server b", "Server a", "Server c"]
    assert re.findall(r'<span class="label">(.*?)</span>', page) == order * 4
    for table in re.findall(r"<tbody>(.*?)</tbody>", page)[:3]:
        assert re.findall(r"<tr><td>(.*?)</td>", table) == order
    assert re.findall(r"<figcaption>(Server .)</figcaption>", page) == order

    noisy = [140.0, 80.0, 105.0, 90.0, 120.0]
    text, _, _ = said(lab, closed(results, {"a": steady, "b": noisy, "c": [r / 2 for r in steady]}))
    assert text.startswith("b and a are not told apart by five rounds: b had 105.0 requests/s, 1.0"), text
    assert re.search(r"2\.\d\d times \(1\.\d+–2\.\d+\) as many as c", text) is None, "the baseline is a"

    text, _, page = said(lab, closed(results, {"a": [100.0, 100.0], "b": [90.0, 160.0]}))
    assert text.startswith("b did best, but two rounds are too few to say so: 125.0 requests/s, 1.20 times as many as a."), text
    assert re.search(r"<td>1\.20<small>0\.\d+–\d+\.\d+, too few rounds</small></td>", page)
    text, _, _ = said(lab, closed(results, {"a": [100.0], "b": [300.0]}))
    assert text.startswith("b did best, but one round is too few to say so: 300.0 requests/s, 3.00 times as many as a."), text
    text, _, _ = said(lab, closed(results, {"a": [100.0]}))
    assert text == "a: 100.0 requests/s, with nothing beside it."


def test_verdicts_of_the_other_kinds(lab: Laboratory, results: Any) -> None:
    changed = copy.deepcopy(results)
    one, other = changed["parts"][0]["subjects"]
    total = other["measurements"][0]["load"]["total"]
    total["ok"], total["ok_percent"] = 40, 100 * 40 / total["requests"]
    text, _, _ = said(lab, {**changed, "parts": changed["parts"][:1]})
    assert re.match(rf"{one['name']} did best: it answered 100 % rightly, {other['name']} 51\.\d+ %; 95 % of its answers", text), text
    assert f"Not all answers were right: 51.95 % of {other['name']}." in text
    printed = lab.run("report", "results.json")
    assert re.search(r"^The step that changes most is 'a file': [\d.]+ times the requests/s of 'constant'; one round is too few "
                     r"to say more\.$", printed, re.M)
    assert re.search(r"^nginx-return-200 bears [\d,.]+ requests/s\.", printed, re.M)
    # Nobody answered rightly: nobody did best.
    for kind in ("run", "ladder", "saturate"):
        wrong = copy.deepcopy(changed["parts"][{"run": 0, "ladder": 1, "saturate": 2}[kind]])
        for subject in wrong["subjects"]:
            for measurement in subject["measurements"]:
                load = measurement["load"]
                for figures in [load["total"], *(phase["figures"] for phase in load.get("phases", []))]:
                    figures["ok"], figures["ok_percent"], figures["rate"] = 0, 0.0, 0.0
            if "saturation" in subject:
                subject["saturation"]["limit"] = 0.0
        wrong["title"] = "on a schedule"
        text, _, _ = said(lab, {**changed, "parts": [wrong]})
        names = ", ".join(subject["name"] for subject in wrong["subjects"])
        expected = "No rate that was tried was served" if kind == "saturate" else "Not one answer was right, so nothing compares"
        assert text == f"{expected}: {names}."
    # Nothing was measured: no verdict, and no panic.
    for subject in changed["parts"][0]["subjects"]:
        subject["measurements"] = []
    assert said(lab, {**changed, "parts": changed["parts"][:1]})[0] == "Nothing was measured."


def test_the_report_of_a_load_is_called_what_it_is(lab: Laboratory, results: Any) -> None:
    load = results["parts"][0]["subjects"][0]["measurements"][0]["load"]
    (lab.dir / "load.json").write_text(json.dumps({"format": 1, "generator": "hayate-load 1", **load}))
    (lab.dir / "other.json").write_text("{}")
    for command in (["report", "load.json"], ["compare", "results.json", "load.json"]):
        assert "load.json: the report of a single `hayate-lab load`; what `run`" in lab.run(*command, status=2)
    assert "other.json: no results of `hayate-lab run`" in lab.run("report", "other.json", status=2)


def test_a_quantile_is_one_figure(lab: Laboratory, results: Any) -> None:
    """Chart, tables and what stands beside published figures: all have that of all requests of all rounds."""
    changed = closed(results, {"a": [100.0, 100.0], "b": [100.0, 100.0]})
    part = changed["parts"][0]
    # Two rounds that differ: the median of their quantiles is not the quantile of both together.
    other = results["parts"][0]["subjects"][1]["measurements"][0]["load"]["total"]
    part["subjects"][0]["measurements"][1]["load"]["total"] = {**other, "ok_rate": 100.0}
    part["references"] = [{"engine": "a", "metric": "p99", "value": 1.0}, {"theirs": "Elsewhere", "metric": "p99", "value": 2.0}]
    text, _, page = said(lab, changed)
    printed = lab.run("report", "said.json")
    in_table = re.search(r"^ a +(?:[\d.,]+ +){4}([\d.,]+)", printed[printed.index("latency, ms"):], re.M)[1]
    in_chart = re.search(r'aria-label="Server a: ([\d.,]+) ms"', page)[1]
    beside = re.search(r"^ a +p99 ms +1\.00 +([\d.,]+)", printed, re.M)[1]
    assert in_table == in_chart == beside
    assert re.search(r"^ Elsewhere +p99 ms +2\.00 +- +-$", printed, re.M) and "<small>not here</small>" in page


def test_a_short_account_for_a_readme(lab: Laboratory, results: Any) -> None:
    steady = [100.0, 101.0, 99.0, 100.0, 100.0]
    said(lab, closed(results, {"a|b": steady, "c": [rate * 2 for rate in steady]}))
    lab.run("report", "said.json", "--markdown", "said.md")
    lines = (lab.dir / "said.md").read_text().splitlines()
    assert any(line.startswith("Server c is ahead, and five rounds are enough to say so: 200.0 requests/s, 2.00 times") for line in lines)
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    assert len(rows) == 4 and {len(row) for row in rows} == {10}, rows
    assert [row[0].strip() for row in rows[2:]] == ["Server c", r"Server a\|b"] and rows[2][1].strip() == "200.0"
    assert all(len(line) <= 160 for line in lines if not line.startswith("|"))
