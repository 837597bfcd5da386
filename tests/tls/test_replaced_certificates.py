"""What the log says of certificates that visitors will not take, or that are not there."""

from __future__ import annotations

import os
import pathlib
import tempfile

from lib import site
from lib.servers import free_port
from lib.tls import TlsHayate, self_signed

CONFIG = """
listen = ["127.0.0.1:{port}", { address = "127.0.0.1:{tls}", tls = true }]
[tls]
certificates = [{ certificate = "%s/one.pem", key = "%s/one.key" }, { certificate = "%s/two.pem", key = "%s/two.key" }]
[[app]]
root = "%s"
workers = 1
"""


def test_a_certificate_that_is_replaced_by_a_bad_one_is_warned_of(hayate_command, tmp_path) -> None:
    self_signed(tmp_path, "one", ["a.example", "b.example"])
    self_signed(tmp_path, "two", ["c.example"])

    def replace(name: str, hosts: list[str], between: tuple[int, int]) -> None:
        place = tmp_path / f"{name}.new"
        place.mkdir()
        chain, key = self_signed(place, "one", hosts, between=between)
        # One after the other: for a moment they are no pair.
        key.replace(tmp_path / "one.key")
        chain.replace(tmp_path / "one.pem")

    def warned(text: str) -> bool:
        assert running.logged(text), running.log()
        return "WARN" in next(line for line in running.log().splitlines() if text in line)

    root = site.make(pathlib.Path(tmp_path))
    with TlsHayate(CONFIG % (*[tmp_path] * 4, root), {name: free_port() for name in ("port", "tls")}) as running:
        replace("past", ["a.example", "b.example"], (-9, -2))
        assert warned("the certificate of a.example b.example was replaced by one that has expired")
        replace("future", ["a.example", "b.example"], (2, 9))
        assert warned("the certificate of a.example b.example was replaced by one that is not valid yet")
        assert "names" not in "".join(line for line in running.log().splitlines() if "any more" in line)
        replace("other", ["a.example", "d.example"], (-2, 9))
        assert warned("no certificate of the files that changed names b.example any more")


def test_who_has_no_certificate_gets_that_of_another_host(hayate_command) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        place.chmod(0o755)
        self_signed(place, "one", ["a.example"])
        self_signed(place, "two", ["b.example"])
        # Nobody listens on port 1.
        acme = f'acme = "on"\nacme_hosts = "c.example"\nacme_directory = "https://127.0.0.1:1/dir"\nacme_storage = "{place}/acme"\n[[app]]'
        config = (CONFIG % (*[place] * 4, site.make(place / "site"))).replace("[[app]]", acme)
        config = ('user = "www-data"\n' if os.geteuid() == 0 else "") + config
        with TlsHayate(config, {name: free_port() for name in ("port", "tls")}) as running:
            assert running.logged("clients of this name get another host's certificate"), running.log()
