"""A seeded sample of commands whose places are swapped while they write; `python -m tests.safety swaps` has all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.safety.part_swaps import stages
from tests.safety.runs import Runs
from tests.safety.swaps import COMMANDS, SWAPS, swapped

pytestmark = pytest.mark.backend("onnx")


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with Runs() as running:
        if running.library is None:
            pytest.skip("there is no C compiler to swap things with")
        yield running


@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_is_swapped_while_a_command_writes_nothing_outside_is_touched(runs: Runs, command: str) -> None:
    with swapped(runs, command) as one:
        calls = one.count()
        assert calls > 5
        rng = np.random.default_rng(list(command.encode()))
        for name, swap in SWAPS.items():
            number = int(rng.choice(stages(calls, seed=0)))
            assert (name, number, one.attack(swap, number)) == (name, number, [])
