"""The page of a run, as a browser lays it out: nothing spills, nothing is hidden, light, dark, narrow and on paper."""

from __future__ import annotations

import html
import json
import pathlib
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from laboratory import SHORT, Laboratory, laboratory
from napping import add_nap

#: Runs in the page: what a person would see at a glance.
FACTS = """<script>
const seen = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
const plots = [...document.querySelectorAll("svg[role=img]")];
const inside = e => {
    const a = e.getBoundingClientRect(), b = e.closest("figure").getBoundingClientRect();
    return a.left >= b.left - 2 && a.right <= b.right + 2 && a.top >= b.top - 2 && a.bottom <= b.bottom + 2;
};
window.top.document.body.dataset.facts = JSON.stringify({
    title: document.title,
    heading: document.querySelector("h1").textContent,
    sections: [...document.querySelectorAll("h2")].map(e => e.textContent),
    ground: getComputedStyle(document.body).backgroundColor,
    text: getComputedStyle(document.body).color,
    plots: plots.length,
    hidden: plots.filter(e => !seen(e)).length,
    lines: document.querySelectorAll("svg .line").length,
    spilled: plots.flatMap(svg => [...svg.querySelectorAll("text")].filter(e => !inside(e)))
        .map(e => e.textContent),
    small: Math.min(...[...document.querySelectorAll("figure text, figure span, figure p")].map(
        e => parseFloat(getComputedStyle(e).fontSize) * (e.getScreenCTM ? e.getScreenCTM().a : 1))),
    covered: plots.flatMap(svg => {
        const boxes = [...svg.querySelectorAll("text")].map(e => [e.getBoundingClientRect(), e.textContent]);
        return boxes.flatMap(([a, one], i) => boxes.slice(i + 1).filter(([b]) =>
            a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
            .map(([, other]) => one + " | " + other));
    }),
    verdict: document.querySelector(".verdict").textContent,
    unnamed: plots.filter(e => !e.getAttribute("aria-label") && !e.querySelector("title")).length,
    nan: [...document.querySelectorAll("svg *")].some(
        e => [...e.attributes].some(a => /NaN|Infinity|undefined/.test(a.value))),
    width: document.documentElement.scrollWidth,
    window: innerWidth,
    cells: [...document.querySelectorAll("td")].length,
    all: document.body.innerText.length,
});
</script>"""


def browser(page: pathlib.Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Chromium without a window, and without the network."""
    profile = page.parent / "chromium"
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += [f"--user-data-dir={profile}", *flags, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)


def facts(page: pathlib.Path, *flags: str, width: int | None = None) -> dict[str, Any]:
    """What a browser shows of a page; `width`: in a frame that is narrower than a window may be."""
    measured = page.with_name("measured.html")
    text = page.read_text().replace("</body>", FACTS + "</body>")
    if width:
        text = f'<body><iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{html.escape(text)}"></iframe></body>'
    measured.write_text(text)
    shown = browser(measured, "--dump-dom", *flags).stdout
    return json.loads(html.unescape(re.search(r'data-facts="([^"]*)"', shown)[1]))


@pytest.fixture(scope="module")
def lab() -> Iterator[Laboratory]:
    """One for all tests here."""
    yield from laboratory()


@pytest.fixture(scope="module")
def page(lab: Laboratory) -> pathlib.Path:
    """A run with everything a page may show: a schedule, rounds, an engine that failed."""
    add_nap(lab)
    lab.engine("broken", 'base = "php-fpm"\ntitle = "broken"\n[[start]]\nname = "x"\ncommand = ["false"]\n')
    lab.run("run", "nap", "-e", "php-fpm,php-s,broken", "-r", "2", "--schedule", "line(5,60,1s) const(60,1s)", *SHORT,
            "--json", "results.json", "--html", "page.html", status=1)
    return lab.dir / "page.html"


def test_the_page_in_a_browser(page: pathlib.Path) -> None:
    light = facts(page, "--window-size=1200,1600", "--blink-settings=preferredColorScheme=1")
    assert "nap" in light["title"] and light["heading"] == light["title"]
    assert light["plots"] >= 4 and light["hidden"] == 0 and light["lines"] >= 4 and not light["nan"]
    assert light["spilled"] == [] and light["covered"] == [] and light["unnamed"] == 0
    assert re.match(r"(php -S|nginx \+ php-fpm) .* 95 % of its answers came within [\d.,]+ ms", light["verdict"])
    assert light["width"] <= light["window"], "no scrolling sideways"
    assert light["cells"] > 30

    dark = facts(page, "--window-size=1200,1600", "--blink-settings=preferredColorScheme=0")
    brightness = {name: [sum(map(int, re.findall(r"\d+", seen[key])[:3])) for key in ("ground", "text")]
                  for name, seen in {"light": light, "dark": dark}.items()}
    assert brightness["light"][0] > 600 > 300 > brightness["light"][1]
    assert brightness["dark"][0] < 200 < 500 < brightness["dark"][1]
    assert {**dark, "ground": 0, "text": 0} == {**light, "ground": 0, "text": 0}

    narrow = facts(page, "--window-size=500,900", width=390)
    assert narrow["window"] == 390 and narrow["width"] <= 390 and narrow["plots"] == light["plots"]
    assert narrow["spilled"] == [] and narrow["covered"] == [] and narrow["nan"] is False
    assert light["small"] == narrow["small"] >= 12, "text is as large on a telephone"

    paper = page.with_name("page.pdf")
    browser(page, "--no-pdf-header-footer", f"--print-to-pdf={paper}")
    assert paper.read_bytes().startswith(b"%PDF") and paper.stat().st_size > 20_000


def test_the_page_says_what_was_measured(lab: Laboratory, page: pathlib.Path) -> None:
    shown = html.unescape(re.sub(r"<[^>]+>", " ", page.read_text()))
    results = lab.results()
    machine = results["machine"]
    for what in [machine["kernel"], machine["cpu"], "line(5,60,1s)", "const(60,1s)", "php-fpm", "php -S", "broken",
                 "99.9", "CPU", "memory", "virtual machine", "pm.max_children"]:  # fmt: skip
        assert what.lower() in shown.lower(), what
    for subject in results["parts"][0]["subjects"]:
        if "failure" in subject:
            assert subject["failure"]["message"].splitlines()[0] in shown
        for measurement in subject["measurements"]:
            assert measurement["load"]["plan"]["shots"] == 92
