"""A seeded sample of results that are written on a failing disk or by two runs; `python -m tests.safety` has all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.safety import part_result_writes as writes
from tests.safety.part_checkpoint_writes import FAULTS
from tests.safety.part_races import race
from tests.safety.results import WRITERS, Replaced, prepare, prepare_folder
from tests.safety.runs import Runs

pytestmark = pytest.mark.backend("onnx")


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with Runs() as running:
        if running.library is None:
            pytest.skip("there is no C compiler to make faults with")
        yield running


@pytest.fixture(scope="module", params=WRITERS)
def one(request: pytest.FixtureRequest, runs: Runs) -> Iterator[Replaced]:
    with prepare_folder(runs, WRITERS[request.param]) as made:
        yield made


def test_whatever_call_fails_while_an_output_is_replaced_it_is_the_old_one_or_the_new_one(one: Replaced) -> None:
    calls = writes.count(one)
    assert calls > 10
    rng = np.random.default_rng(list(one.writer.output.encode()))
    for fault in FAULTS:
        for number in rng.choice(calls, 1).tolist():
            found, wrong, _ = writes.strike(one, fault, number + 1)
            assert (found in ("old", "new"), wrong) == (True, [])


def test_of_two_runs_into_one_folder_exactly_one_goes_on(runs: Runs, tmp_path: Path) -> None:
    prepare(runs, tmp_path)
    with Runs() as other:
        for number in range(2):
            codes, wrong = race(runs, other, tmp_path, number)
            assert (codes[0], wrong) == (0, [])
