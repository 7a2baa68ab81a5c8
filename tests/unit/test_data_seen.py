"""A patch names the inputs its repair has seen, and they are found again in the data it is measured on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.data.labelled import LabelledData
from arachne.data.seen import HELD_OUT, MAX_HASHES, PARTLY_SEEN, SEEN, UNKNOWN, find_seen, seen_record
from arachne.model.values import Address, Array
from arachne.patch import Patch
from arachne.testing import ReferenceBackend, mlp


def some_data(n: int, seed: int = 0) -> LabelledData:
    inputs = np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)
    return LabelledData(inputs, np.arange(n) % 3)


def provenance_of(data: LabelledData, rows: Array) -> dict[str, Any]:
    told = {"sha256": data.sha256(), "seen": seen_record(rows, data)}
    return dict(json.loads(json.dumps({"data": told})))


def test_the_same_data_again_is_known_row_by_row() -> None:
    data, rows = some_data(3001), np.arange(0, 3001, 3)
    found = find_seen(provenance_of(data, rows), data)
    assert found.rows is not None
    np.testing.assert_array_equal(np.flatnonzero(found.rows), rows)
    assert found.basis == PARTLY_SEEN


def test_a_few_seen_inputs_are_found_in_any_data() -> None:
    data, rows = some_data(300), np.arange(100)
    other = data.take([250, 7, 251, 99, 100])
    found = find_seen(provenance_of(data, rows), other)
    assert found.rows is not None
    assert found.rows.tolist() == [False, True, False, True, False]
    assert find_seen(provenance_of(data, rows), data.take(np.arange(50))).basis == SEEN
    assert find_seen(provenance_of(data, rows), some_data(5, seed=1)).basis == HELD_OUT


def test_many_seen_inputs_are_found_by_a_sample() -> None:
    data = some_data(20 * MAX_HASHES)
    told = provenance_of(data, np.arange(10 * MAX_HASHES))
    assert len(json.dumps(told)) < 8000
    assert find_seen(told, data.take(np.arange(1, 5 * MAX_HASHES))).basis == PARTLY_SEEN
    unseen = find_seen(told, data.take(np.arange(10 * MAX_HASHES, 20 * MAX_HASHES)))
    assert (unseen.basis, unseen.seen_count) == (HELD_OUT, 0)
    assert find_seen(told, some_data(3, seed=1)).basis == UNKNOWN


@pytest.mark.parametrize("seen", [None, {}, {"rows": "?", "hashes": "", "different": 0}, {"rows": "", "hashes": "%"}])
def test_a_patch_that_does_not_say_leaves_it_unknown(seen: Any) -> None:
    data = some_data(30)
    assert find_seen({"data": {"sha256": data.sha256(), "seen": seen}}, data).basis == UNKNOWN
    assert find_seen({"stack": []}, data).basis == UNKNOWN


def test_a_stack_has_seen_what_its_patches_have() -> None:
    data = some_data(30)
    parts = [{"provenance": provenance_of(data, np.array(rows))} for rows in ([1, 2], [2, 5])]
    found = find_seen({"stack": parts}, data)
    assert found.rows is not None
    assert np.flatnonzero(found.rows).tolist() == [1, 2, 5]
    assert find_seen({"stack": [*parts, {"provenance": {}}]}, data).basis == PARTLY_SEEN


def measure_seen(told: dict[str, Any], data: LabelledData) -> arachne.Evidence:
    model = ReferenceBackend(mlp([4, 8, 3]))
    patch = Patch.between(model, [Address("fc2", "bias", (0,))], [5.0], provenance=told)
    return arachne.measure(model, data, patch=patch, target="*:*")


def test_seen_inputs_are_not_called_held_out() -> None:
    data, rows = some_data(120), np.arange(40)
    told = provenance_of(data, rows)
    both = measure_seen(told, data)
    assert both.seen is not None
    assert (both.seen.inputs, both.held_out.inputs, both.basis) == (40, 80, HELD_OUT)
    only_seen = measure_seen(told, data.take(rows))
    assert (only_seen.basis, only_seen.seen) == (SEEN, None)
    assert "held-out" not in str(only_seen)
    assert "The repair has seen all of these inputs" in str(only_seen)
    unknown = measure_seen({}, data)
    assert "held-out" not in str(unknown)
    assert "is not known" in str(unknown)
    assert measure_seen(told, some_data(90, seed=1)).basis == HELD_OUT
