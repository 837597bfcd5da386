"""Request smuggling: hundreds of raw requests, each played to nginx with php-fpm and to Hayate.

Whatever Hayate understands otherwise than nginx is in `smuggling/differences.toml`, with the reason. A new difference fails, one that is no more fails,
and where Hayate takes more than nginx does, the entry has to say who allows it.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import re
import subprocess
import tomllib

import pytest

from lib.servers import Hayate, NginxFpm, running

from .smuggling.corpus import CASES
from .smuggling.play import CLOSED, KEPT, SCRIPT, accepted, play

pytestmark = pytest.mark.plain("it is about bytes of HTTP/1")

DIFFERENCES = pathlib.Path(__file__).parent / "smuggling" / "differences.toml"
#: Who waits for bytes that never come gives up after these: long enough for a busy machine to read what has come.
NGINX = "client_header_timeout 5s; client_body_timeout 5s; keepalive_timeout 5s; lingering_timeout 1s; lingering_time 2s;"
HAYATE = """
[limits]
header_timeout = "5s"
idle_timeout = "5s"
body_timeout = "5s"
[[app]]
root = "{root}"
front_controller = "index.php"
workers = 2
"""

Outcomes = dict[str, str]


@pytest.fixture(scope="module")
def outcomes(hayate_command, tmp_path_factory) -> tuple[Outcomes, Outcomes]:
    """How nginx and Hayate understood each case."""
    root = tmp_path_factory.mktemp("smuggling") / "site"
    root.mkdir()
    (root / "index.php").write_text(SCRIPT)
    (root / "plain.txt").write_text("plain")
    for path in (root.parent, root, *root.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    nginx = NginxFpm(root, front_controller="/index.php", extra=NGINX)
    with running(nginx, Hayate(config=HAYATE.format(root=root))) as servers:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            played = [pool.map(lambda data, port=server.port: play(port, data), CASES.values()) for server in servers]
            return tuple(dict(zip(CASES, answers, strict=True)) for answers in played)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.search(r"\d+(\.\d+)+", version)[0].split(".")))


@pytest.fixture(scope="module")
def version() -> str:
    return subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr


@pytest.fixture(scope="module")
def known(version: str) -> dict[str, dict]:
    """The entries of the data file by case, each with its group's reason; those that there are with this nginx."""
    entries: dict[str, dict] = {}
    for group in tomllib.loads(DIFFERENCES.read_text())["difference"]:
        assert group["reason"], group
        if numbers(version) < numbers(group.get("since", "0.0")):
            continue
        for name, entry in group["cases"].items():
            assert name not in entries, f"{name} is there twice"
            entries[name] = {**entry, "allowed_by": group.get("allowed_by")}
    return entries


def toml(name: str, nginx: str, hayate: str) -> str:
    """An entry, as it is written in the data file."""

    def quoted(text: str) -> str:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda control: f"\\u{ord(control[0]):04x}", text) + '"'

    return f"{quoted(name)} = {{ nginx = {quoted(nginx)}, hayate = {quoted(hayate)} }}"


def test_the_corpus_is_large_and_its_outcomes_are_not_all_alike(outcomes) -> None:
    assert len(CASES) >= 700
    for server in outcomes:
        served = sum(accepted(outcome) > 0 for outcome in server.values())
        assert 150 < served < len(CASES) - 150
        assert {outcome.rsplit(" ", 1)[-1] for outcome in server.values()} == {KEPT, CLOSED}


def test_hayate_understands_requests_as_nginx_does_or_for_a_reason_otherwise(outcomes, known, version) -> None:
    nginx, hayate = outcomes
    is_reference = f"nginx/{tomllib.loads(DIFFERENCES.read_text())['nginx']}" in version
    wrong = []
    for name in CASES:
        entry = known.get(name)
        differs = nginx[name] != hayate[name]
        line = toml(name, nginx[name], hayate[name])
        if differs and entry is None:
            wrong.append(f"a new difference: {line}")
        elif entry is not None and hayate[name] != entry["hayate"]:
            wrong.append(f"Hayate does otherwise than recorded: {line}")
        elif is_reference and entry is not None and nginx[name] != entry["nginx"]:
            wrong.append(f"nginx does otherwise than recorded: {line}")
        elif is_reference and entry is not None and not differs:
            wrong.append(f"no difference any more: {line}")
    assert not wrong, f"{len(wrong)} of {len(CASES)}:\n" + "\n".join(wrong)


def test_where_hayate_takes_more_than_nginx_somebody_allows_it(outcomes, known) -> None:
    nginx, hayate = outcomes
    wrong = [
        toml(name, nginx[name], hayate[name])
        for name in CASES
        if accepted(hayate[name]) > accepted(nginx[name]) and not known.get(name, {}).get("allowed_by")
    ]
    assert not wrong, "\n".join(wrong)


def test_no_entry_is_about_a_case_that_is_not_there(known) -> None:
    assert not known.keys() - CASES.keys()


def test_nothing_hidden_is_served_where_framing_is_in_doubt(outcomes) -> None:
    """Whatever nginx does: two statements about a length end the connection before anything behind them is looked at."""
    doubtful = re.compile(r"(CL\.TE|TE\.CL|TE\.TE|two lengths|two codings|coding, then a length|length, then a coding): ")
    cases = [name for name in CASES if doubtful.match(name)]
    assert len(cases) > 50
    for name in cases:
        assert accepted(outcomes[1][name]) == 0 and outcomes[1][name].endswith(CLOSED), (name, outcomes[1][name])
