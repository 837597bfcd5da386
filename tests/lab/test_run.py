"""`hayate-lab run` and `engines` with real servers: what is measured, and what happens when something goes wrong."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import re
import time

from laboratory import SHORT, Laboratory

NGINX = """
base = "nginx-return-200"
title = "nginx of this test"
"""


def test_engines_are_ready_or_say_what_is_missing(lab: Laboratory) -> None:
    lab.engine("no-such", 'title = "x"\nentry = "php"\ninstall = "buy it"\n[detect]\ncommands = ["no-such-command"]\n'
                          '[[start]]\nname = "x"\ncommand = ["x"]\n')
    engines = {engine["name"]: engine for engine in json.loads(lab.run("engines", "--json"))}
    assert len(engines) > 20
    assert engines["nginx-return-200"]["ready"] and engines["nginx-return-200"]["version"].startswith("nginx 1.")
    assert engines["php-fpm"]["ready"] and "status" in engines["php-fpm"]["workloads"]
    assert engines["no-such"]["missing"] == ["command no-such-command"]
    assert "no-such: buy it" in lab.run("engines", "no-such")


def test_a_run_measures_what_it_says(lab: Laboratory) -> None:
    names = ["php-fpm", "nginx-return-200", "hayate-worker"]
    output = lab.run("run", "status", "-e", ",".join(names), "-r", "2", "-c", "4", "-d", "400ms", *SHORT,
                     "--json", "results.json", "--csv", "results.csv")
    results = lab.results()
    part = results["parts"][0]
    subjects = {subject["name"]: subject for subject in part["subjects"]}
    assert list(subjects) == names and part["baseline"] == "php-fpm" and part["rounds"] == 2

    for name, subject in subjects.items():
        assert "failure" not in subject and len(subject["measurements"]) == 2
        assert subject["version"] and subject["configuration"]
        for measurement in subject["measurements"]:
            total, server = measurement["load"]["total"], measurement["server"]
            assert total["ok"] == total["requests"] > 20
            seconds = server["cpu_user"] + server["cpu_system"]
            # All that the engine did in this time, and nobody can use a processor longer than it lasted.
            assert 0 < seconds < 1.5 * len(results["cores"]["server"])
            assert server["memory_max"] >= server["memory_median"] > 1_000_000
            assert server["processes"] >= 2 and server["voluntary"] > 0
            assert {core["cpu"] for core in measurement["cores"]} >= set(results["cores"]["server"])
    # PHP by php-fpm costs more than no PHP at all, whatever the machine is doing.
    cost = {name: sum(m["server"]["cpu_user"] + m["server"]["cpu_system"] for m in s["measurements"])
            / sum(m["load"]["total"]["requests"] for m in s["measurements"]) for name, s in subjects.items()}
    assert cost["php-fpm"] > cost["nginx-return-200"]

    # Interleaved: all of round 1 before all of round 2, which begins with another engine.
    order = sorted((m["load"]["started"], m["round"], name) for name, s in subjects.items() for m in s["measurements"])
    assert [entry[1] for entry in order] == [1, 1, 1, 2, 2, 2]
    assert order[0][2] == names[0] and order[3][2] == names[1]

    assert len(results["noise"]["calibrations"]) == 3
    assert "Noise: servers' processor" in output and "× php-fpm (95 %)" in output
    with open(lab.dir / "results.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 6 and all(float(line["ok_percent"]) == 100 for line in lines)


def test_instructions_are_counted_or_said_to_be_refused(lab: Laboratory) -> None:
    names = ["php-fpm", "nginx-return-200"]
    command = ["run", "status", "-e", ",".join(names), "-r", "2", "-c", "4", "-d", "300ms", *SHORT, "--instructions",
               "--json", "results.json", "--csv", "results.csv", "--html", "results.html"]
    output = lab.run(*command, status=None)
    if output.startswith("hayate-lab: instructions cannot be counted"):
        # Nothing was started then; CI machines may be like that.
        assert "kernel.perf_event_paranoid=1" in output or "virtual machines" in output or "stand still" in output
        return
    counted = {subject["name"]: [(m["instructions"]["user"], m["instructions"]["kernel"], m["load"]["total"]["ok"])
                                 for m in subject["measurements"]] for subject in lab.results()["parts"][0]["subjects"]}
    assert [len(rounds) for rounds in counted.values()] == [2, 2], output
    for name, rounds in counted.items():
        for user, kernel, requests in rounds:
            # No server parses a request and writes an answer with fewer; none here needs a hundred times what PHP does.
            assert requests * 1_000 < user < requests * 10_000_000, (name, user, requests)
            assert requests * 1_000 < kernel < requests * 10_000_000, (name, kernel, requests)
        first, second = ((user + kernel) / requests for user, kernel, requests in rounds)
        assert 0.5 < first / second < 2, "what a busy machine does not disturb is the same in each round"
    php, nginx = (sum(user for user, *_ in counted[name]) / sum(requests for *_, requests in counted[name])
                  for name in names)
    assert php > 2 * nginx
    for text in [output, (lab.dir / "results.html").read_text(), lab.run("compare", "results.json", "results.json")]:
        assert "1,000 instructions/request" in text
    with open(lab.dir / "results.csv", newline="") as file:
        assert [float(line["instructions_user"]) for line in csv.DictReader(file)][:2] == [
            user for user, *_ in counted["php-fpm"]]


def test_a_failing_engine_does_not_stop_the_others(lab: Laboratory) -> None:
    nonsense = "location / { default_type application/json; return 200 'nonsense'; }"
    lab.engine("wrong", f'{NGINX}[variables]\nlocations = "{nonsense}"\n')
    lab.engine("broken", NGINX + '[variables]\nlocations = "no nginx directive;"\n')
    lab.engine("silent", NGINX + '[[start]]\nname = "sleep"\ncommand = ["sleep", "60"]\n[ready]\ntimeout = "300ms"\n')
    lab.engine("mortal", NGINX + '[[start]]\nname = "nginx"\ncommand = ["timeout", "2", "nginx", "-e", '
                                 '"{{ dir }}/nginx-error.log", "-c", "{{ dir }}/nginx.conf"]\n')
    output = lab.run("run", "status", "-e", "wrong,broken,silent,mortal,nginx-return-200", "-r", "1", "-c", "2",
                     "-d", "3s", *SHORT, "--json", "results.json", status=1)
    subjects = {subject["name"]: subject for subject in lab.results()["parts"][0]["subjects"]}
    stages = {name: subject["failure"]["stage"] for name, subject in subjects.items() if "failure" in subject}
    assert stages == {"wrong": "check", "broken": "start", "silent": "ready", "mortal": "died"}
    assert subjects["nginx-return-200"]["measurements"]
    assert 'the body is "nonsense" instead of' in output.replace('\\"', '"')
    assert 'unknown directive "no"' in subjects["broken"]["failure"]["log"]
    assert not subjects["wrong"]["measurements"], "no load before the answer is right"


def test_an_engine_that_is_not_what_it_says_gets_no_figures(lab: Laboratory) -> None:
    kept = (lab.data / "engines" / "hayate-worker.toml").read_text().split('app = """')[1].split('"""')[0]
    lab.engine("not-rewinding", f'base = "hayate-rewind"\n[variables]\napp = """{kept}"""\n')
    output = lab.run("run", "status", "-e", "not-rewinding,hayate-rewind", "-r", "1", "-c", "2", "-d", "300ms", *SHORT,
                     "--json", "results.json", status=1)
    false, true = lab.results()["parts"][0]["subjects"]
    assert false["failure"]["stage"] == "proof" and not false["measurements"]
    assert "not-rewinding is not what it says: requests were rewound" in output
    assert true["measurements"] and "failure" not in true


def test_a_quick_run_is_short_unless_it_is_said_how_long(lab: Laboratory) -> None:
    quick = ["run", "status", "-e", "nginx-return-200", "--quick", "--json", "results.json"]
    for flags, seconds in [(["-c", "2"], 2), (["--timeout", "3s"], 2), (["-c", "2", "-d", "3s"], 3)]:
        lab.run(*quick, *flags)
        (subject,) = lab.results()["parts"][0]["subjects"]
        assert subject["load"]["duration"] == seconds, subject["load"]


def test_files_that_cannot_be_written(lab: Laboratory) -> None:
    run = ["run", "status", "-e", "nginx-return-200", "-r", "1", "-c", "2", *SHORT]
    for flag in ("--json", "--csv", "--html", "--markdown"):
        began = time.monotonic()
        output = lab.run(*run, "-d", "60s", flag, "nowhere/file", status=2)
        assert "nowhere/file: there is no folder nowhere" in output and time.monotonic() - began < 30
    # What turns out in the end only takes nothing else along: neither what is printed, nor another file.
    output = lab.run(*run, "-d", "300ms", "--json", "/dev/full", "--csv", "/dev/full", "--html", "page.html", status=2)
    assert "results so far are not kept: /dev/full: No space left" in output and "with nothing beside it" in output
    assert "<html" in (lab.dir / "page.html").read_text()


def test_names_and_schedules_that_are_wrong(lab: Laboratory) -> None:
    assert "did you mean 'php-fpm'" in lab.run("run", "status", "-e", "phpfpm", status=2)
    assert "there is no workload 'statsu'; did you mean 'status'" in lab.run("run", "statsu", status=2)
    output = lab.run("run", "status", "--schedule", "const(100,10s) lnie(1,2,3s)", status=2)
    assert "lnie" in output and "^" in output
    lab.engine("absent", NGINX + '[detect]\ncommands = ["no-such-command"]\n')
    output = lab.run("run", "status", "-e", "absent", status=1)
    assert "absent is missing: command no-such-command; apt install nginx" in output
    lab.engine("typo", 'titel = "x"\n')
    assert "typo.toml:1: unknown field `titel`" in lab.run("engines", status=2)


#: Answers rightly, but never the first request that comes.
DEAF = """
import http.server, json, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, heard = "HTTP/1.1", 0
    def do_GET(self):
        Handler.heard += 1
        if Handler.heard == 1:
            time.sleep(60)
        body = b'{"status":"OK"}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_an_engine_that_does_not_answer_is_asked_and_started_again(lab: Laboratory) -> None:
    (lab.data / "engines" / "deaf.py").write_text(DEAF)
    lab.engine("deaf", 'title = "deaf"\nentry = "fixed"\ninstall = ""\n[detect]\n[[start]]\nname = "deaf"\n'
                       'command = ["/usr/bin/python3", "{{ lab }}/engines/deaf.py", "{{ port }}"]\n')
    once = "test -e {{ data }}/seen || { touch {{ data }}/seen; exec sleep 60; }; exec nginx -c {{ dir }}/nginx.conf"
    lab.engine("late", NGINX + f'[[start]]\nname = "nginx"\ncommand = ["sh", "-c", "{once}"]\n'
                               '[ready]\ntimeout = "2s"\n')
    output = lab.run("run", "status", "-e", "deaf,late", "-r", "1", "-c", "2", "-d", "300ms", *SHORT,
                     "--json", "results.json")
    deaf, late = (subject["measurements"][0] for subject in lab.results()["parts"][0]["subjects"])
    assert deaf["start_up"] > 1 and not deaf["warnings"]
    warning = "at the first start late does not answer after 2 s; it was started again"
    assert late["warnings"] == [warning] and f"late: {warning}." in output


def test_a_terminal_shows_what_runs_and_what_is_left(lab: Laboratory) -> None:
    ours, theirs = pty.openpty()
    process = lab.start("run", "status", "-e", "nginx-return-200", "-r", "2", "-c", "1", "-d", "1200ms", *SHORT,
                        stderr=theirs)
    os.close(theirs)
    shown = ""
    # The end of a terminal is an error to its reader.
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
        while part := terminal.read(1000):
            shown += part.decode()
    assert process.communicate(timeout=60)[0] and process.returncode == 0
    lines = shown.split("\r\n")
    assert re.fullmatch(r"a constant answer in JSON: 1 engine, 2 rounds, about \d+ s", lines[0])
    for number in (1, 2):
        # What is left changes while a load runs, and the line gives way to the figures.
        steps = lines[number].split("\r\x1b[K")
        running = [step for step in steps if step.startswith(f"nginx-return-200, {number} of 2, ")]
        assert len(running) >= 2 and all(step.endswith((" left", "nearly done")) for step in running), shown
        assert re.match(rf"{number}/2  nginx-return-200 +[\d.]+ req/s", steps[-1]), shown


def test_engines_are_loaded_over_tls_and_http2(lab: Laboratory) -> None:
    names = ["hayate-worker-tls", "php-fpm-tls", "nginx-return-200-tls"]
    lab.run("run", "status", "-e", ",".join(names), "-r", "1", "-c", "2", "-d", "300ms", "--over", "h2", "--streams", "5",
            *SHORT, "--json", "results.json")
    for subject in lab.results()["parts"][0]["subjects"]:
        load = subject["measurements"][0]["load"]
        assert load["total"]["ok"] == load["total"]["requests"] > 10, subject["name"]
        assert (load["protocol"]["http"], load["protocol"]["streams"]) == ("HTTP/2", 5)
        # What is compared is the servers, not their ciphers.
        assert load["protocol"]["tls"] == "TLSv1_3, TLS13_AES_256_GCM_SHA384", subject["name"]
    # An engine without TLS says so.
    output = lab.run("run", "status", "-e", "nginx-return-200", "-r", "1", "-c", "2", "-d", "300ms", "--over", "tls", *SHORT, status=1)
    assert "has no port named 'https'" in output


def test_limits_are_searched_over_http2(lab: Laboratory) -> None:
    output = lab.run("saturate", "status", "-e", "hayate-worker-tls", "--over", "h2", "--streams", "5", "--step", "300ms",
                     "--max-rate", "200", *SHORT, "--json", "results.json")
    assert re.search(r"in a closed loop of 20 connections for 0\.3 s over HTTP/2 with 5 streams each", output)
    assert "a constant answer in JSON: to the limit over HTTP/2 with 5 streams each" in output
    (subject,) = lab.results()["parts"][0]["subjects"]
    assert len(subject["measurements"]) >= 5
    for measurement in subject["measurements"]:
        protocol = measurement["load"]["protocol"]
        assert (protocol["http"], protocol["streams"]) == ("HTTP/2", 5) and protocol["tls"].startswith("TLSv1_3")
    assert "streams need over" in lab.run("saturate", "status", "-e", "hayate-worker-tls", "--streams", "5", status=2)
