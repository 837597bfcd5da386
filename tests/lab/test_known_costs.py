"""Experiments on a workload whose cost is known beforehand: do they find what theory says?"""

from __future__ import annotations

import json
import os
import re
import tomllib

import pytest

from laboratory import REPOSITORY, SHORT, Laboratory
from napping import add_nap

LADDER = """
title = "naps"
workload = "nap"
engine = "php-fpm"
metric = "rate"
[base]
reference = 200
[[step]]
title = "a longer nap"
env = { NAP = "40000" }
reference = 50
[[step]]
title = "half as long"
above = "previous"
env = { NAP = "20000" }
[[step]]
title = "on another engine"
engine = "php-s"
"""


def test_a_regression_that_is_real_is_found_and_ends_with_1(lab: Laboratory) -> None:
    for name, nap in {"before": 5000, "again": 5000, "slower": 20000}.items():
        add_nap(lab, nap)
        lab.run("run", "nap", "-e", "php-fpm", "-r", "3", *SHORT, "--json", f"{name}.json")
    same = ["-m", "rate,p50", "--threshold", "40"]
    output = lab.run("compare", "before.json", "again.json", *same)
    assert "0 worse, 0 better" in output

    output = lab.run("compare", "before.json", "slower.json", *same, status=1)
    assert "2 worse, 0 better" in output and "WORSE" in output
    changes = {change["what"]: change for change in json.loads(
        lab.run("compare", "before.json", "slower.json", "--json", "-m", "rate,p50", status=1))["changes"]}
    # Four times the nap: a quarter of the rate, four times the latency; a busy machine adds its noise.
    rate = next(change for what, change in changes.items() if "req" in what.lower() or "rate" in what.lower())
    assert rate["verdict"] == "worse" and 0.1 < rate["ratio"] < 0.5
    assert rate["low"] < rate["ratio"] < rate["high"] < 1

    assert "2 better" in lab.run("compare", "slower.json", "before.json", *same)
    # Nobody minds a change that is smaller than what he said matters.
    assert "0 worse" in lab.run("compare", "before.json", "slower.json", "-m", "rate,p50", "--threshold", "900")


def test_an_engine_that_answers_wrongly_now_is_a_regression(lab: Laboratory) -> None:
    add_nap(lab)
    lab.run("run", "nap", "-e", "php-fpm", "-r", "1", *SHORT, "--json", "before.json")
    (lab.data / "workloads/nap/index.php").write_text("<?php http_response_code(500);")
    lab.run("run", "nap", "-e", "php-fpm", "-r", "1", *SHORT, "--json", "broken.json", status=1)
    output = lab.run("compare", "before.json", "broken.json", status=1)
    assert "WORSE" in output and "500" in output
    assert "works again" in lab.run("compare", "broken.json", "before.json")


def test_the_limit_of_two_workers_that_sleep(lab: Laboratory) -> None:
    add_nap(lab)
    # Where others had the processors it says so, or that the generator had too little.
    for _ in range(3):
        output = lab.run("saturate", "nap", "-e", "php-fpm", "--step", "400ms", "--warm-up", "0.2s", "--workers", "2",
                         "--json", "results.json")
        subject = lab.results()["parts"][0]["subjects"][0]
        found = subject["saturation"]
        # Two workers, 5 ms each: 400 a second, and less for what PHP, and others on this machine, do besides.
        assert found["limit"] <= 408 and found["knee"] <= found["failed_at"] < 600, found
        if found["exhausted"] == ["workers"]:
            assert "others had" in output or found["limit"] > 200 and found["knee"] > 20, found
            assert "all 2 workers were occupied" in output
            break
    else:
        assert "others had" in output or "generator" in found["exhausted"], found
    assert len(subject["measurements"]) >= 8


def test_each_step_is_measured_against_the_one_it_stands_on(lab: Laboratory) -> None:
    add_nap(lab, 10_000)
    (lab.data / "ladders/naps.toml").write_text(LADDER)
    assert "naps" in lab.run("ladder")
    output = lab.run("ladder", "naps", "-r", "1", *SHORT, "--json", "results.json")
    part = lab.results()["parts"][0]
    subjects = {subject["name"]: subject for subject in part["subjects"]}
    assert [subject.get("above") for subject in part["subjects"]] == [None, 0, 1, 0]
    rate = {name: subject["measurements"][0]["load"]["total"]["ok_rate"] for name, subject in subjects.items()}
    base = part["subjects"][0]["name"]
    # Two workers, so many microseconds each; on a busy machine each nap ends late.
    for name, expected in {base: 200, "a longer nap": 50, "half as long": 100}.items():
        assert 0.2 * expected < rate[name] < 1.05 * expected, rate
    assert subjects["on another engine"]["engine"] == "php-s"
    for name, below in {"a longer nap": base, "half as long": "a longer nap"}.items():
        assert re.search(rf"{name}.* {rate[name] / rate[below]:.3g}", output), output

    output = lab.run("ladder", "naps", "-r", "1", *SHORT, "--step", "half as long", "--json", "results.json")
    assert [s["name"] for s in lab.results()["parts"][0]["subjects"]] == [base, "a longer nap", "half as long"]
    assert "did you mean 'a longer nap'" in lab.run("ladder", "naps", "--step", "a lonker nap", status=2)
    assert "blog-down" in lab.run("ladder", "blog-donw", status=2)


#: What was published, each figure as it was written: requests per second, milliseconds, percent.
PUBLISHED = {
    "php-web-server": [11933, 19618, 20297, 30389],
    "golang-vs-php7": [108.5, 909.6, 919.3, 570.8],
    "fast-processor": [4340.75, 1670.98, 270.11, 178.17, 63.12, 107.98],
    "php-app-servers": [9.9, 11050, 80.67, 3150, 99.85, 2785, 98, 70.466, 99.619, 99.996],
    "tideways-2025": [7023.11, 6934.06, 2.022, 2.06],
    "codeigniter-2026": [6262, 5972, 4978, 3259, 382, 371, 336, 338],
    "laravel-async": [987, 599, 556],
}


def test_presets_keep_the_published_figures(lab: Laboratory) -> None:
    listed = lab.run("reproduce")
    for name, figures in PUBLISHED.items():
        assert name in listed
        preset = tomllib.loads((REPOSITORY / f"lab/presets/{name}.toml").read_text())
        references = [reference for part in preset["part"] for reference in part.get("reference", [])]
        assert set(figures) <= {reference["value"] for reference in references}, name
    for ladder, figures in {"blog-down": {195.84, 195.39, 199.29, 125, 101.9, 22.76, 12.83, 6.5},
                            "blog-up": {195.84, 865.7, 1300, 8000, 12000}}.items():
        data = tomllib.loads((REPOSITORY / f"lab/ladders/{ladder}.toml").read_text())
        assert figures == {step["reference"] for step in [data["base"], *data["step"]] if "reference" in step}


def test_a_preset_shows_published_figures_beside_ours(lab: Laboratory) -> None:
    add_nap(lab)
    (lab.data / "presets/mine.toml").write_text("""
title = "a comparison"
source = "somebody, requests per second"
[[part]]
title = "naps"
workload = "nap"
engines = ["php-fpm", "php-s"]
load = { connections = 4, duration = "20s" }
rounds = 5
quick = { rounds = 1, load = { duration = "400ms" } }
reference = [{ engine = "php-fpm", metric = "rate", value = 12345 }]
[[part]]
title = "its limit"
kind = "saturate"
workload = "nap"
engines = ["php-fpm"]
""")
    output = lab.run("reproduce", "mine", "--quick", "--part", "naps", "-e", "php-fpm", *SHORT,
                     "--json", "results.json")
    results = lab.results()
    assert results["source"] == "somebody, requests per second" and len(results["parts"]) == 1
    assert [subject["name"] for subject in results["parts"][0]["subjects"]] == ["php-fpm"]
    assert len(results["parts"][0]["subjects"][0]["measurements"]) == 1, "--quick takes the quick rounds"
    assert results["duration"] < 15
    assert "12,345" in output or "12345" in output
    assert "no part of 'mine' has 'nasp' in its title" in lab.run("reproduce", "mine", "--part", "nasp", status=2)
    assert "php-web-server" in lab.run("reproduce", "php-web-serve", status=2)


@pytest.mark.parametrize("preset", sorted(path.stem for path in (REPOSITORY / "lab/presets").glob("*.toml")))
def test_every_preset_can_be_looked_up(lab: Laboratory, preset: str) -> None:
    """All its engines, workloads and ladders exist; nothing is measured, since no part has this title."""
    assert "there are" in lab.run("reproduce", preset, "--part", "no such part", status=2)


def test_a_framework_that_no_debian_has_is_asked_for(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CodeIgniter its half says where it is looked for and how to get it; with it (HAYATE_FRAMEWORKS) it is measured."""
    half = ("reproduce", "codeigniter-2026", "--quick", "--part", "a route", "-e", "php-fpm,hayate-classic,hayate-recognised", *SHORT)
    monkeypatch.setenv("HAYATE_LAB_PARTS", str(lab.temporary))
    said = lab.run(*half, status=1)
    place = lab.temporary / "codeigniter"
    reason = f"there is no CodeIgniter at {place}; Debian has none: composer create-project codeigniter4/appstarter {place}"
    assert "\nphp-fpm, hayate-classic, hayate-recognised had no database or data: " in said
    assert said.count(reason) == 2, f"once when it is tried, and once among the results:\n{said}"
    if frameworks := os.environ.get("HAYATE_FRAMEWORKS"):
        monkeypatch.setenv("HAYATE_LAB_PARTS", frameworks)
        lab.run(*half, "--json", "results.json")
        assert {subject["name"] for subject in lab.results()["parts"][0]["subjects"]} == {"php-fpm", "hayate-classic", "hayate-recognised"}
