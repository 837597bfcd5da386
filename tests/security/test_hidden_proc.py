"""/proc that shows nobody the processes of others (hidepid=2): the server tells its own all the same."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import pytest
import requests

from lib import site
from lib.process import wait_until
from lib.servers import Hayate, hayate_binary

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount /proc anew")


class Hidden(Hayate):
    """In a mount namespace of its own; without the capability to look at any process, as under the systemd unit."""

    def command(self) -> Sequence[str]:
        mount = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
        without = "-sys_ptrace"
        drop = ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}"]
        return ["unshare", "--mount", "sh", "-c", mount, "sh", *drop, *super().command()]


@pytest.mark.parametrize("user", [None, "www-data"])
def test_workers_that_proc_hides_are_found_and_killed(tmp_path, user) -> None:
    """With www-data for all, processes that are not dumpable are hidden from the same user as well."""
    root = site.make(tmp_path)
    config = f'user = "www-data"\n[[app]]\nroot = "{root}"\nworkers = 2\nrequest_timeout = "3s"\n'
    if user is not None:
        config = f'front_user = "{user}"\n{config}'
    with Hidden(config=config) as server:
        before = {worker["pid"] for worker in server.status()["apps"][0]["workers"]}
        assert requests.get(server.url + "/spin.php", timeout=60).status_code == 504
        # Whoever ran it is dead, and replaced.
        assert wait_until(lambda: any(not os.path.exists(f"/proc/{pid}") for pid in before), 60), "nobody was killed"

        def idle() -> bool:
            return [w["state"] for w in server.status()["apps"][0]["workers"]] == ["idle"] * 2

        assert wait_until(idle, 60), server.status()
        assert server.status()["apps"][0]["restarts"].get("request_timeout") == 1, server.status()["apps"][0]["restarts"]
        zygote = server.status()["apps"][0]["zygote"]
        os.kill(zygote, 9)
        assert wait_until(lambda: server.status()["apps"][0]["zygote"] not in (zygote, None), 60)
        assert wait_until(idle, 60)
        assert requests.get(server.url + "/ok.php?x", timeout=60).text == "ok x"
        assert server.reload().returncode == 0
        assert requests.get(server.url + "/ok.php?x", timeout=30).text == "ok x"


@pytest.mark.plain("nothing is served")
def test_without_proc_nothing_is_served_in_silence(hayate_command, tmp_path) -> None:
    """A project of Laravel would not be recognised as one, and be served in classic mode."""
    command = ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh", hayate_binary(), "check", site.make(tmp_path)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 2 and "/proc is not mounted" in checked.stderr, checked
