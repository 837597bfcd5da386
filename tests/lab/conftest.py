"""Fixtures of the lab's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laboratory import Laboratory, laboratory


@pytest.fixture
def lab() -> Iterator[Laboratory]:
    yield from laboratory()
