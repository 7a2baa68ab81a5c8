"""Ten thousand classes: a scan and a repair take memory by the inputs, not by pairs of classes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from arachne.data.class_order import other_order
from arachne.data.confusions import MAX_DENSE_CLASSES, PairCounts
from arachne.errors import UsageError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("command", ["scan", "repair"])
def test_ten_thousand_classes_take_less_than_500_megabytes(command: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.unit.many_classes", command],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(ran.stdout)
    assert told["bytes"] < 500 << 20
    assert told["page"] < 1 << 20


def test_pairs_that_occur_give_the_table_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(0, 7, 200), rng.integers(0, 7, 200)
    table = np.zeros((7, 7), np.int64)
    np.add.at(table, (labels, predictions), 1)
    pairs = PairCounts.of(labels, predictions, 7)
    np.testing.assert_array_equal(pairs.dense(), table)
    assert pairs.right == np.trace(table)


def test_no_table_of_thousands_of_classes_is_made() -> None:
    with pytest.raises(UsageError, match="use the pairs that occur"):
        PairCounts.of(np.array([0]), np.array([1]), MAX_DENSE_CLASSES + 1).dense()


def test_classes_that_take_each_others_places_are_found_among_ten_thousand() -> None:
    labels = np.repeat(np.arange(10_000), 3)
    predictions = labels.copy()
    ring = np.arange(100, 110)
    for label, place in zip(ring, np.roll(ring, 1), strict=True):
        predictions[labels == label] = place
    found = other_order(labels, predictions, 10_000)
    assert found is not None
    assert dict(found.read_as) == dict(zip(ring.tolist(), np.roll(ring, 1).tolist(), strict=True))
    assert (found.accuracy, found.better) == (1 - 30 / 30_000, 1.0)
