"""The proof of the load generator: against wrk, oha and theory. Takes minutes on a quiet machine with two processors.

    HAYATE_PROOF=1 python3 -m pytest tests/lab/test_load_proof.py -s

Prints the tables of docs/load.md. Not part of the suite: its verdicts depend on what else the machine does, and oha is
not in Debian (`cargo install oha`).
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from generator import Nginx, Stalling, load
from lib.process import descendants

#: pytest's own switch for a module that is not to be collected.
__test__ = os.environ.get("HAYATE_PROOF") == "1"

ROUNDS = int(os.environ.get("HAYATE_PROOF_ROUNDS", "7"))
SECONDS = int(os.environ.get("HAYATE_PROOF_SECONDS", "3"))
#: The server has one processor, the generators take turns on the other.
SERVER, GENERATOR = (["taskset", "-c", cpu] for cpu in ("0", "1"))
#: Only `/compressed` cares.
COMPRESSED = "Accept-Encoding: gzip"


@pytest.fixture(scope="module")
def nginx() -> Iterator[Nginx]:
    with Nginx(prefix=SERVER) as server:
        yield server


def _cpu(server: Nginx) -> float:
    """CPU seconds that the server's processes have taken so far."""
    total = 0.0
    for pid in [server.pid, *descendants(server.pid)]:
        fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _by_wrk(url: str) -> float:
    command = [*GENERATOR, "wrk", "-t1", "-c100", f"-d{SECONDS}s", "-H", COMPRESSED, url]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"Requests/sec: +([\d.]+)", output)[1])


def _by_us(client: str) -> Callable[[str], float]:
    def measure(url: str) -> float:
        flags = ["-c", "100", "-d", f"{SECONDS}s", "--generator-threads", "1", "--client", client]
        flags += ["-H", COMPRESSED]
        return load(url, *flags, prefix=GENERATOR)["total"]["ok_rate"]

    return measure


@pytest.mark.parametrize("path", ["/", "/file", "/compressed"])
def test_closed_loop_against_wrk(nginx: Nginx, path: str) -> None:
    """At least 95 % of what wrk gets; where the server is the limit, the same within 5 %, with the server as busy."""
    tools = {"wrk": _by_wrk, "lean": _by_us("lean"), "hyper": _by_us("hyper")}
    rates: dict[str, list[float]] = {name: [] for name in tools}
    busy: dict[str, list[float]] = {name: [] for name in tools}
    for round_ in range(ROUNDS):
        names = list(tools)
        for name in names[round_ % 3 :] + names[: round_ % 3]:
            cpu, begun = _cpu(nginx), time.monotonic()
            rates[name].append(tools[name](nginx.url + path))
            busy[name].append((_cpu(nginx) - cpu) / (time.monotonic() - begun))
    print(f"\n{path}: {ROUNDS} rounds of {SECONDS} s, 100 connections, one processor each\n")
    print("| | requests/s, median | least-most | of wrk, median of rounds | nginx busy |")
    print("| --- | --- | --- | --- | --- |")
    ratio = {}
    for name in tools:
        ratio[name] = statistics.median(a / b for a, b in zip(rates[name], rates["wrk"], strict=True))
        least, most = min(rates[name]), max(rates[name])
        print(f"| {name} | {statistics.median(rates[name]):,.0f} | {least:,.0f}-{most:,.0f} | {ratio[name]:.3f} "
              f"| {100 * statistics.median(busy[name]):.0f} % |")  # fmt: skip
    assert ratio["lean"] >= 0.95
    assert statistics.median(busy["lean"]) >= 0.95 * statistics.median(busy["wrk"])
    if path == "/compressed":
        assert ratio["lean"] == pytest.approx(1, abs=0.05) and ratio["hyper"] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("connections", [1000, 10])
def test_a_server_that_stalls_one_second_in_ten(connections: int) -> None:
    """A tenth of the shots meet the stall, spread evenly: the quantile q above 0.9 waits for 10 (q - 0.9) seconds."""
    with Stalling(period=10, stall=1) as server:
        server.begin()
        report = load(server.url, "--schedule", "const(300, 30s)", "-c", str(connections))
        server.begin()
        closed = load(server.url, "-c", "10", "-d", "30s")["total"]["latency_ms"]
    latency, service = report["total"]["latency_ms"], report["total"]["service_ms"]
    print(f"\n300/s for 30 s, at most {connections} connections; ms\n")
    print("| | 50 % | 80 % | 90 % | 95 % | 99 % | 99.9 % | max |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
    names = ["p50", "p80", "p90", "p95", "p99", "p999", "max"]
    theory = dict(zip(names, [0, 0, 0, 500, 900, 990, 1000], strict=True))
    rows = {"theory": theory, "open loop": latency, "open loop, from sending": service, "closed loop": closed}
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(f"{row[key]:.3g}" for key in names) + " |")
    for name in ["p95", "p99", "p999", "max"]:
        assert latency[name] == pytest.approx(theory[name], abs=30), name
    assert latency["p80"] < 30
    assert closed["p99"] < 100


def _oha(url: str, rate: int, seconds: int) -> dict[str, float]:
    command = ["oha", "--no-tui", "--output-format", "json", "-q", str(rate), "-z", f"{seconds}s", "-c", "300"]
    command += ["--latency-correction", "-w", url]
    output = subprocess.run([*GENERATOR, *command], capture_output=True, text=True, check=True).stdout
    report = json.loads(output)
    latency = {name: 1000 * value for name, value in report["latencyPercentiles"].items() if value is not None}
    return {"rate": report["summary"]["requestsPerSec"], "max": 1000 * report["summary"]["slowest"], **latency}


def test_open_loop_against_oha(nginx: Nginx) -> None:
    """Another tool that counts from the intended start sees the same server the same way, stalls and all."""
    with Stalling(period=5, stall=0.5) as stalling:
        rows = {}
        for what, url in {"nginx": nginx.url, "stalling 0.5 s in 5": stalling.url}.items():
            stalling.begin()
            theirs = _oha(url, 500, 20)
            stalling.begin()
            total = load(url, "-s", "const(500, 20s)", "-c", "300", prefix=GENERATOR)["total"]
            latency = total["latency_ms"]
            rows[what] = theirs, {"rate": total["rate"], **{name: latency[name] for name in latency}}
    print("\n500/s for 20 s; ms\n\n| | rate | 50 % | 90 % | 95 % | 99 % | 99.9 % | max |\n" + "| --- " * 8 + "|")
    for what, (theirs, ours) in rows.items():
        for tool, row, p999 in ("oha", theirs, "p99.9"), ("hayate-lab", ours, "p999"):
            keys = ["p50", "p90", "p95", "p99", p999, "max"]
            print(f"| {what}, {tool} | {row['rate']:.1f} | " + " | ".join(f"{row[key]:.3g}" for key in keys) + " |")
    for theirs, ours in rows.values():
        assert ours["rate"] == pytest.approx(theirs["rate"], rel=0.05)
        for name in ["p50", "p90", "p95", "p99"]:
            assert ours[name] == pytest.approx(theirs[name], rel=0.05, abs=20), name
