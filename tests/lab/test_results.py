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
    assert len(subject["measurements"]) >= 5
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
    assert "no results of hayate-lab" in lab.run("compare", "lab/php.ini", "before.json", status=2)
