"""Code that adapters share, on numbers one can see through."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from weakref import ref

import numpy as np
import pytest

from arachne.adapting.batch_axis import BatchAxis, MixedInputsError
from arachne.adapting.outputs import are_probabilities, class_names, join_activations
from arachne.model.values import Activation, Array
from arachne.weights.storage import BFLOAT16


@pytest.mark.parametrize(
    ("axis", "each", "strided"), [*itertools.product((0, 1, 2), (1, 2), (False, True)), (None, 1, False)]
)
def test_a_fold_taken_apart_is_put_together_again(axis: int | None, each: int, strided: bool) -> None:
    fold = BatchAxis(axis, each, strided)
    shape = [4, 5, 6]
    if axis is not None:
        shape[axis] = 3 * each
    array = np.arange(np.prod(shape)).reshape(shape)
    apart = fold.to_batch_first(array, 3)
    assert len(apart) == 3
    np.testing.assert_array_equal(fold.from_batch_first(apart), array)


def test_entries_of_one_input_lie_side_by_side_or_apart() -> None:
    array = np.arange(6)
    np.testing.assert_array_equal(BatchAxis(0, 2).to_batch_first(array, 3), [[0, 1], [2, 3], [4, 5]])
    np.testing.assert_array_equal(BatchAxis(0, 2, strided=True).to_batch_first(array, 3), [[0, 3], [1, 4], [2, 5]])


def test_an_axis_that_does_not_hold_the_inputs_is_refused() -> None:
    with pytest.raises(MixedInputsError):
        BatchAxis(1).to_batch_first(np.zeros((3, 4)), 3)


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ([[0.25, 0.75], [1.0, 0.0]], True),
        ([[0.25, 0.7], [1.0, 0.0]], False),
        ([[1.5, -0.5]], False),
        ([[1.0], [1.0]], False),
        (np.empty((0, 3)), False),
    ],
)
def test_probabilities_are_told_by_their_sum(rows: list[list[float]], answer: bool) -> None:
    assert are_probabilities(np.asarray(rows, np.float32)) is answer


def test_class_names_are_taken_from_either_attribute() -> None:
    assert class_names(SimpleNamespace(class_names=["cat", "dog"])) == ("cat", "dog")
    assert class_names(SimpleNamespace(classes=("cat", "dog"))) == ("cat", "dog")
    assert class_names(SimpleNamespace(classes=[0, 1])) is None
    assert class_names(SimpleNamespace()) is None
    assert class_names(hugging_face({0: "cat", 1: "dog"})) == ("cat", "dog")
    assert class_names(hugging_face({0: "LABEL_0", 1: "LABEL_1"})) is None
    assert class_names(hugging_face({0: "cat", 2: "dog"})) is None


def hugging_face(labels: dict[int, str]) -> SimpleNamespace:
    return SimpleNamespace(config=SimpleNamespace(id2label=labels))


def test_batches_of_sequences_are_joined_with_zeros_behind_the_shorter_ones() -> None:
    one, other = (Activation({"weight": np.ones((2, steps, 3))}, np.ones((2, steps, 4)), True) for steps in (2, 5))
    (found,) = join_activations([{"read": [one]}, {"read": [other]}], 4)["read"]
    assert found.entering["weight"].shape == (4, 5, 3)
    assert found.leaving.shape == (4, 5, 4)
    assert found.leaving[:2, 2:].sum() == 0
    assert found.transposed


def test_batches_are_joined_in_their_order_as_they_come() -> None:
    whole = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    held: list[ref[Array]] = []

    def pieces() -> Iterator[dict[str, list[Activation]]]:
        for rows in (slice(0, 3), slice(3, 6), slice(6, 7)):
            assert all(one() is None for one in held[:-1]), "batches before the last one are still held"
            entering = whole[rows].copy()
            held.append(ref(entering))
            yield {"read": [Activation({"weight": entering}, 2 * entering)]}

    (found,) = join_activations(pieces(), 7)["read"]
    np.testing.assert_array_equal(found.entering["weight"], whole)
    np.testing.assert_array_equal(found.leaving, 2 * whole)
    alone = Activation({"weight": whole}, whole)
    assert join_activations([{"read": [alone]}], 7)["read"][0].leaving is whole


def test_bfloat16_bits_come_back_as_the_rounded_values() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(size=100), [0.0, -0.0, 1e38, np.inf]]).astype(np.float32)
    bits = BFLOAT16.to_stored(values.reshape(2, -1))
    assert bits.dtype == np.uint16
    np.testing.assert_array_equal(BFLOAT16.to_float(bits).ravel(), BFLOAT16.round(values))
