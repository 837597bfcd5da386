"""A workload whose cost is known beforehand: a PHP script that sleeps, on a known number of workers."""

from __future__ import annotations

from laboratory import Laboratory

WORKLOAD = """
title = "a nap"
about = "A script that sleeps for NAP microseconds: n workers answer n / NAP requests per second, whatever the machine."
env = { NAP = "5000" }
[entry.php]
docroot = "{{ app }}"
script = "index.php"
[request]
path = "/"
[[check]]
body = "slept"
[load]
connections = 4
duration = "300ms"
"""


def add_nap(lab: Laboratory, microseconds: int = 5000) -> None:
    """Adds the workload `nap`, or changes how long it sleeps."""
    folder = lab.data / "workloads" / "nap"
    folder.mkdir(exist_ok=True)
    (folder / "workload.toml").write_text(WORKLOAD.replace("5000", str(microseconds)))
    (folder / "index.php").write_text("<?php usleep((int) getenv('NAP')); echo 'slept';")
