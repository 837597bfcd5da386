"""The guest book that `make run` serves: in worker mode, rewound, as the Makefile says it; and its engine room, which shows what that means."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from lib.process import temporary_directory
from lib.servers import REPOSITORY, Hayate

from .browser import Browser, Page
from .sites import USER

RUN = re.search(r"^run:.*\n\t\$\(HAYATE\) serve demo --listen \$\(LISTEN\) (?P<flags>.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)


@pytest.fixture(params=["rewound", "classic"])
def demo(request: pytest.FixtureRequest) -> Iterator[Hayate]:
    assert RUN and RUN["flags"] == "--dev $(if $(filter classic,$(MODE)),,--worker public/worker.php)", "the Makefile runs it otherwise"
    directory = temporary_directory("demo")
    root = directory / "demo"
    try:
        shutil.copytree(REPOSITORY / "demo", root, ignore=shutil.ignore_patterns("var"))
        directory.chmod(0o755)
        (root / "var").mkdir()
        if USER:
            shutil.chown(root / "var", USER, USER)
        rewound = request.param == "rewound"
        args, worker = (["--dev", "--rewind-verify", "1"], "public/worker.php") if rewound else (["--dev"], None)
        with Hayate(root, args=args, worker=worker, user=USER, workers=1) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def facts(page: Page) -> dict[str, str]:
    assert page.status == 200, page.text[:3000]
    return dict(zip(page.all("//dl[@class='facts']//dt"), page.all("//dl[@class='facts']//dd"), strict=True))


def test_the_engine_room_shows_what_the_mode_means(demo: Hayate) -> None:
    """To her who asks again, to another visitor, after an entry and after an exception."""
    (app,) = demo.status()["apps"]
    rewound = app["mode"] == "worker"
    (worker,) = (worker["pid"] for worker in app["workers"])
    ada, grace = Browser(demo.url), Browser(demo.url)
    first = facts(ada.get("/engine"))
    assert (first["Mode"], first["SAPI"], first["Process"]) == ("worker" if rewound else "classic", "hayate", str(worker))
    if not rewound:
        assert first["Requests since boot"] == "1"
    signed = ada.get("/").submit({"name": "Ada", "message": "It blows from the west."}, form="//form[@method='post']")
    assert signed.status == 200 and "It blows from the west." in signed.text and "Thank you, Ada" in signed.text
    failed = grace.get("/engine/fail")
    assert failed.status == 500 and "Something broke on our side" in failed.text
    assert "It blows from the west." in grace.get("/").text and "Thank you, Ada" not in grace.get("/").text
    for visitor in (ada, grace):
        page = visitor.get("/engine")
        again = facts(page)
        # Classic mode boots for each; a rewound process is what it was after its warm-up, so that neither counts.
        same = ["Mode", "SAPI", "PHP", "Process", "Requests since boot", *(["Booted"] if rewound else [])]
        assert {name: again[name] for name in same} == {name: first[name] for name in same}
        gauges = dict(zip(page.all("//dl[@class='gauges']//dt"), page.all("//dl[@class='gauges']//dd"), strict=True))
        shown = (gauges["mode"], gauges["SAPI"], gauges["process"], gauges["request"])
        assert shown == (again["Mode"], again["SAPI"], again["Process"], f"{again['Requests since boot']} since boot")
        assert ("booted once" in page.text, "booted for your request" in page.text) == (rewound, not rewound)
    (app,) = demo.status()["apps"]
    assert app["restarts"] == {} and app["fallback"] is None, demo.log_tail()
    if rewound:
        assert app["rewind"]["rewind"] == "on" and (app["rewind"]["rewinds"] >= 8 or app["rewind"]["tracking"] == "fork")
