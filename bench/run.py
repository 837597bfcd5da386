#!/usr/bin/env python3
"""`make bench`: CPU time per request, throughput, latency and memory of Hayate, php-fpm and nginx.

    run.py                       every engine, every workload
    run.py --quick               one short round: does it work, and roughly how fast
    run.py --workload W1 W2 --engine "hayate worker" --rounds 5 --json bench.json
    run.py --instructions        count what processors execute, which a busy machine does not disturb (needs perf)
    run.py --idle                memory and wake-ups of servers that have nothing to do

A server runs on one core, wrk on another. In each round every engine is started, checked, warmed up, measured and
stopped, one after the other and in another order each time; the figures are medians with the least and the most.
CPU time per request is user and system time of all the server's processes by the number of answers: of all figures
the one that a noisy machine disturbs least; as root, `chrt -r 5 bench/run.py` keeps all other work out, but the kernel
halts such processes for 5 % of each second, so the latencies of that run say nothing. Latency is that of a closed
loop at full load: it says how long the queue is. Nothing is asserted about speed; wrong answers and errors end the
run with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import nullcontext
from dataclasses import asdict, dataclass

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from lib.process import ServerError, temporary_directory  # noqa: E402
from lib.servers import PHP_VERSION, REPOSITORY, hayate_binary  # noqa: E402

from bench.engines import ENGINES, INI, Bench, PinnedHayate, pinned  # noqa: E402
from bench.measure import Instructions, context_switches, cpu, family, instructions, memory, stolen  # noqa: E402
from bench.workloads import WORKLOADS, Workload, build  # noqa: E402

#: What the ratios are taken against.
REFERENCE = "nginx + php-fpm"
SERVER_CORE, CLIENT_CORE = 0, 1


class BenchError(RuntimeError):
    """A server answered wrongly, or not at all; the text says which and how."""


@dataclass(frozen=True)
class Sample:
    """One engine in one round. Times in microseconds, memory in bytes."""

    cpu_us: float
    user_us: float
    system_us: float
    per_second: float
    p50_us: int
    p99_us: int
    p999_us: int
    pss: int
    requests: int
    #: Instructions for a request, in user mode and in the kernel; 0 if they were not counted.
    instructions_user: float = 0
    instructions_kernel: float = 0


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of 2 seconds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="length of one measurement")
    parser.add_argument("--workers", type=int, default=4, help="PHP processes of every engine")
    parser.add_argument("--workload", nargs="+", choices=tuple(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--engine", nargs="+", choices=tuple(ENGINES), default=list(ENGINES))
    parser.add_argument("--idle", action="store_true", help="measure idle servers instead")
    parser.add_argument("--instructions", action="store_true", help="count them as well")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 2
    return options


def check(server: Bench, load: Workload) -> None:
    """Raises BenchError unless the server gives the workload's answer."""
    try:
        with urllib.request.urlopen(server.url + load.path, timeout=10) as answer:
            body = answer.read()
    except OSError as error:
        raise BenchError(f"{load.path}: {error}\n{server.log()[-2000:]}") from None
    if load.expected not in body:
        raise BenchError(f"{load.path} answers {body[:200]!r}, without {load.expected!r}\n{server.log()[-2000:]}")


def drive(url: str, connections: int, seconds: int) -> dict[str, int]:
    """wrk's figures, see report.lua."""
    command = [*pinned(CLIENT_CORE), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(HERE / "report.lua")]
    done = subprocess.run([*command, url], capture_output=True, text=True, timeout=seconds + 60, check=False)
    if done.returncode != 0:
        raise BenchError(f"wrk ended with {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def sample(engine: str, load: Workload, options: argparse.Namespace) -> Sample:
    """Starts, checks, warms up, measures and stops one engine."""
    with ENGINES[engine](SERVER_CORE, load, options.workers) as server:
        check(server, load)
        drive(server.url + load.path, load.connections, 1)
        pids = [pid for root in server.pids() for pid in family(root)]
        before = cpu(pids)
        with instructions(pids) if options.instructions else nullcontext(Instructions()) as counted:
            figures = drive(server.url + load.path, load.connections, options.seconds)
        spent = cpu(pids) - before
        errors = {key: figures[key] for key in ("connect", "read", "write", "status", "timeout") if figures[key]}
        if errors or figures["requests"] == 0:
            raise BenchError(f"{engine}, {load.name}: {figures['requests']} answers, errors: {errors}")
        if set(pids) != {pid for root in server.pids() for pid in family(root)}:
            raise BenchError(f"{engine}, {load.name}: processes came or went while they were measured")
        check(server, load)
        if isinstance(server, PinnedHayate):
            rewinds = server.rewinds()
            if (rewinds >= figures["requests"]) == (server.mode in ("classic", "kept")):
                raise BenchError(f"{engine}, {load.name}: {rewinds} rewinds for {figures['requests']} answers")
        scale = 1e6 / figures["requests"]
        return Sample(
            cpu_us=spent.total * scale,
            user_us=spent.user * scale,
            system_us=spent.system * scale,
            per_second=figures["requests"] / figures["duration_us"] * 1e6,
            p50_us=figures["p50_us"],
            p99_us=figures["p99_us"],
            p999_us=figures["p999_us"],
            pss=memory(pids).pss,
            requests=figures["requests"],
            instructions_user=counted.of("user") / figures["requests"],
            instructions_kernel=counted.of("kernel") / figures["requests"],
        )


def table(load: Workload, samples: dict[str, list[Sample]]) -> str:
    """Medians, and least to most in brackets, one line for each engine."""
    reference = [one.cpu_us for one in samples.get(REFERENCE, [])]
    lines = [
        f"{load.title}, {load.connections} connections",
        f"{'':22} {'CPU µs/request':>24} {'user+sys':>13} {'of php-fpm':>10} {'requests/s':>10}"
        f" {'p50 ms':>8} {'p99 ms':>8} {'p99.9 ms':>8} {'PSS MB':>7}",
    ]
    for engine, some in samples.items():
        cost = [one.cpu_us for one in some]

        def middle(name: str, some: list[Sample] = some) -> float:
            return statistics.median(getattr(one, name) for one in some)

        ratio = f"{statistics.median(cost) / statistics.median(reference):.3f}" if reference else "-"
        lines.append(
            f"{engine:22} {middle('cpu_us'):8.2f} ({min(cost):.2f}-{max(cost):.2f})".ljust(47)
            + f" {middle('user_us'):6.1f}+{middle('system_us'):<6.1f} {ratio:>10} {middle('per_second'):10.0f}"
            f" {middle('p50_us') / 1000:8.2f} {middle('p99_us') / 1000:8.2f} {middle('p999_us') / 1000:8.2f}"
            f" {middle('pss') / 1e6:7.1f}"
        )
        if middle("instructions_user"):
            user, kernel = middle("instructions_user") / 1000, middle("instructions_kernel") / 1000
            lines.append(f"{'':22} {user:8.1f} + {kernel:.1f} thousand instructions, {user + kernel:.1f}")
    return "\n".join(lines) + "\n"


def available(names: list[str], load: Workload) -> list[str]:
    """Engines that can run this workload here."""
    # The constant answer of nginx is the floor for W1 only; what is plain PHP is nothing to recognise.
    left_out = {"nginx return 200" if load.recognised else "hayate recognised"}
    if not hayate_binary().exists():
        left_out |= {name for name in names if name.startswith("hayate")}
    return [name for name in names if name not in left_out]


def measure_load(options: argparse.Namespace, scratch: pathlib.Path) -> dict:
    """All rounds of all workloads; prints a table for each."""
    result = {}
    for load in build(options.workload, scratch):
        names = available(options.engine, load)
        samples: dict[str, list[Sample]] = {name: [] for name in names}
        for number in range(options.rounds):
            turn = number % len(names) if names else 0
            for name in names[turn:] + names[:turn]:
                samples[name].append(sample(name, load, options))
                print(f"{load.name} {number + 1}/{options.rounds} {name}", file=sys.stderr, flush=True)
        print(table(load, samples))
        result[load.name] = {
            "title": load.title,
            "connections": load.connections,
            "engines": {name: [asdict(one) for one in some] for name, some in samples.items()},
        }
    return result


def measure_idle(options: argparse.Namespace, scratch: pathlib.Path) -> dict:
    """Memory and context switches of servers that have answered once and then have nothing to do."""
    (load,) = build(["W1"], scratch)
    result = {}
    print(f"idle for 5 s, {options.workers} PHP processes")
    print(f"{'':22} {'':>24} {'RSS MB':>8} {'PSS MB':>8} {'switches':>9}")
    for name in available(options.engine, load):
        with ENGINES[name](SERVER_CORE, load, options.workers) as server:
            check(server, load)
            time.sleep(3)
            pids = [pid for root in server.pids() for pid in family(root)]
            parts = {"first process": [server.pid], "all processes": pids}
            before = {part: sum(map(context_switches, some)) for part, some in parts.items()}
            time.sleep(5)
            for part, some in parts.items():
                switches = sum(map(context_switches, some)) - before[part]
                used = memory(some)
                result.setdefault(name, {})[part] = {**asdict(used), "context_switches": switches, "count": len(some)}
                title = f"{part} ({len(some)})"
                print(f"{name:22} {title:>24} {used.rss / 1e6:8.1f} {used.pss / 1e6:8.1f} {switches:9}")
    return result


def surroundings() -> dict:
    """What the figures depend on."""

    def said(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return (done.stdout + done.stderr).strip()

    return {
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "load": os.getloadavg(),
        "php": said(f"/usr/sbin/php-fpm{PHP_VERSION}", "-v").splitlines()[0],
        "nginx": said("/usr/sbin/nginx", "-v"),
        "commit": said("git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"),
        "ini": INI,
    }


def main() -> int:
    """Measures what the command line asks for."""
    options = parse_arguments()
    if not hayate_binary().exists():
        print(f"Hayate is left out: {hayate_binary()} is not built", file=sys.stderr)
    if (os.cpu_count() or 1) < 2:
        print("bench: needs two processors, one for the server and one for wrk", file=sys.stderr)
        return 2
    scratch = temporary_directory("bench")
    around, stolen_before, started = surroundings(), stolen(), time.monotonic()
    print(
        f"{around['php']}; {around['nginx']}; kernel {around['kernel']}; {options.workers} PHP processes; "
        f"{options.rounds} rounds of {options.seconds} s; load {around['load'][0]:.1f}\n"
    )
    try:
        measured = measure_idle(options, scratch) if options.idle else measure_load(options, scratch)
    except (BenchError, OSError, ServerError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    lost = (stolen() - stolen_before) / (time.monotonic() - started) / (os.cpu_count() or 1)
    print(f"taken by the hypervisor for others: {lost:.1%} of the processors")
    if options.json is not None:
        report = {**around, "stolen": lost, "workers": options.workers, "idle" if options.idle else "loads": measured}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
