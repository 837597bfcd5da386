"""deploy/kubernetes: what Hayate has to say to it. kubeconform checks the rest by hand, see docs/kubernetes.md."""

from __future__ import annotations

import concurrent.futures
import re
import subprocess

import requests

from lib.process import temporary_directory, wait_until
from lib.servers import REPOSITORY, Hayate, hayate_binary

MANIFESTS = REPOSITORY / "deploy/kubernetes"


def number(pattern: str, name: str) -> int:
    (found,) = re.findall(pattern, (MANIFESTS / name).read_text())
    return int(found)


def test_the_configuration_can_be_served() -> None:
    root = temporary_directory("manifests")
    text = (MANIFESTS / "hayate.toml").read_text()
    assert 'root = "/app"' in text
    (root / "hayate.toml").write_text(text.replace('root = "/app"', f'root = "{root}"\ndocument_root = "public"'))
    (root / "public").mkdir()
    command = [str(hayate_binary()), "check", "--config", str(root / "hayate.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_requests_may_finish_before_the_pod_is_killed() -> None:
    grace = number(r"terminationGracePeriodSeconds: (\d+)", "deployment.yaml")
    waits = number(r'command: \[sleep, "(\d+)"\]', "deployment.yaml")
    assert waits + number(r'drain_timeout = "(\d+)s"', "hayate.toml") < grace


def test_probes_and_ports_are_those_of_the_configuration() -> None:
    deployment = (MANIFESTS / "deployment.yaml").read_text()
    listen, metrics = number(r'listen = ":(\d+)"', "hayate.toml"), number(r'metrics = ":(\d+)"', "hayate.toml")
    for name, port in (("http", listen), ("metrics", metrics)):
        assert f"- name: {name}\n              containerPort: {port}\n" in deployment
    assert f'prometheus.io/port: "{metrics}"' in deployment
    named = set(re.findall(r"^  - (\w+\.yaml)$", (MANIFESTS / "kustomization.yaml").read_text(), re.MULTILINE))
    assert named == {path.name for path in MANIFESTS.glob("*.yaml")} - {"kustomization.yaml"}


def test_the_metric_that_pods_are_added_by_is_how_many_requests_wait_for_a_worker() -> None:
    """By its name in the manifest, and in the adapter's rule of the guide."""
    (metric,) = re.findall(r"metric:\n +name: (\w+)", (MANIFESTS / "autoscaler.yaml").read_text())
    guide = (REPOSITORY / "docs/kubernetes.md").read_text()
    assert re.findall(r"seriesQuery: '(\w+)\{", guide) == re.findall(r"name: \{as: (\w+)\}", guide) == [metric]
    root = temporary_directory("manifests")
    root.chmod(0o755)
    (root / "index.php").write_text("<?php while (!file_exists(__DIR__ . '/go')) { usleep(10000); clearstatcache(); } echo 'done';")

    def waiting() -> list[float]:
        # One series for each application: the rule adds them up.
        return [float(value) for value in re.findall(rf"(?m)^{metric}\{{[^}}]*\}} (\S+)$", server.metrics())]

    with Hayate(root, workers=1) as server, concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert waiting() == [0]
        answers = [pool.submit(requests.get, server.url, timeout=60) for _ in range(6)]
        try:
            assert wait_until(lambda: waiting() == [5]), server.metrics()
        finally:
            (root / "go").touch()
        assert [answer.result().text for answer in answers] == ["done"] * 6
        assert wait_until(lambda: waiting() == [0])
