"""Servers that the tests of the matrix share."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator

import pytest

from lib.process import temporary_directory

from . import world as outside
from .matrix_site import ENGINES, MatrixSite, Player, Pong, Reference


@pytest.fixture(scope="package")
def pong() -> Iterator[str]:
    with Pong() as url:
        yield url


@pytest.fixture(scope="package")
def matrix_site() -> Iterator[MatrixSite]:
    site = MatrixSite()
    yield site
    site.remove()


@pytest.fixture(scope="package")
def reference(matrix_site: MatrixSite, pong: str) -> Iterator[Reference]:
    with matrix_site.reference(pong) as player:
        yield Reference(player)


@pytest.fixture(scope="module", params=ENGINES)
def alone(request: pytest.FixtureRequest, matrix_site: MatrixSite, pong: str) -> Iterator[Player]:
    """One worker, all memory compared after each request."""
    args = ("--rewind", "on", "--rewind-verify", "1")
    with matrix_site.hayate(f"alone-{request.param}", pong, args=args, ini=ENGINES[request.param]) as player:
        yield player


@pytest.fixture
def directory() -> Iterator[pathlib.Path]:
    """An empty directory that php-fpm's user may write to."""
    path = temporary_directory("modes")
    path.chmod(0o777)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def world() -> Iterator[outside.World]:
    """Databases, Redis and what else libraries talk to."""
    with outside.opened() as made:
        yield made
