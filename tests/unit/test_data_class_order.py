"""Labels in another order than the model's classes are no fault to repair."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.data.class_order import other_order
from arachne.data.labelled import LabelledData
from arachne.engine import repair
from arachne.errors import DataError
from arachne.model.values import Array
from arachne.search import DifferentialEvolution
from arachne.settings import Settings
from arachne.testing import ReferenceBackend

QUICK = DifferentialEvolution(population=20, generations=12)


def read_as(order: list[int], right: float, n: int = 1000) -> tuple[Array, Array]:
    """Labels, and predictions that give label `c` the class `order[c]` in a share `right` of inputs."""
    rng = np.random.default_rng(0)
    labels = rng.integers(len(order), size=n)
    predictions = np.where(rng.random(n) < right, np.array(order)[labels], rng.integers(len(order), size=n))
    return labels, predictions


def test_a_permutation_of_the_classes_is_found() -> None:
    found = other_order(*read_as([3, 1, 0, 2, 4, 6, 5, 7, 8, 9], 0.8), 10)
    assert found is not None
    assert found.read_as == {0: 3, 2: 0, 3: 2, 5: 6, 6: 5}
    assert found.better == pytest.approx(0.82, abs=0.03)
    assert found.accuracy < 0.5


@pytest.mark.parametrize("right", [0.0, 0.3, 0.95])
def test_labels_in_the_model_s_order_are_left_alone(right: float) -> None:
    assert other_order(*read_as(list(range(10)), right), 10) is None


def test_a_class_that_is_always_taken_for_another_is_a_fault() -> None:
    labels, predictions = read_as(list(range(10)), 0.9)
    assert other_order(labels, np.where(labels == 8, 1, predictions), 10) is None


def test_two_classes_that_are_taken_for_each_other_now_and_then_are_a_fault() -> None:
    labels, predictions = read_as(list(range(4)), 1.0)
    swapped = np.array([1, 0, 2, 3])[labels]
    often = np.random.default_rng(1).random(len(labels)) < 0.4
    assert other_order(labels, np.where(often, swapped, predictions), 4) is None


def test_a_repair_with_the_wrong_order_stops_and_says_what_another_gives(
    model: ReferenceBackend, digits: LabelledData
) -> None:
    order = np.array([1, 2, 3, 0, 4, 5, 6, 7, 9, 8])
    wrong = LabelledData(digits.inputs, order[digits.labels])
    with pytest.raises(
        DataError, match=r"another order of the classes gives 9\d\.\d %: .*number the labels as the model"
    ):
        repair(model, wrong, "8:9", settings=Settings(searcher=QUICK))
    named = LabelledData(digits.inputs, order[digits.labels], class_names=tuple("abcdefghij"))
    with pytest.raises(DataError, match="label 'a' is its class 3") as error:
        repair(model, named, "8:9", settings=Settings(searcher=QUICK))
    assert error.value.argument == "classes"
    repair(model, wrong, "8:9", settings=Settings(searcher=QUICK, accept_near_chance=True))
