"""The warmed-up processes, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.safety.running import Servers


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with Servers() as running:
        yield running
