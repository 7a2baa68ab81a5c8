"""Losses: numbers worked out by hand, and every gradient the slope of its own loss."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from arachne.decisions.losses import (
    cross_entropies,
    cross_entropy,
    margin,
    margin_hinge,
    margin_hinges,
    squared_probability_change,
    squared_probability_changes,
)
from arachne.errors import DataError, WeightShapeError
from arachne.model.backend import LossGradient
from arachne.model.values import Array
from arachne.tasks import margins

SCORES = np.array([[1.0, 3.0, 0.0], [2.0, -1.0, 1.5], [0.0, 0.5, 0.25]])
LABELS = np.array([0, 0, 1])
BEFORE = np.array([[0.0, 1.0, 0.0], [2.0, 2.0, 0.0], [-1.0, 0.0, 1.0]])


def test_margins_are_taken_against_the_best_other_class() -> None:
    np.testing.assert_allclose(margins(SCORES, LABELS), [-2, 0.5, 0.25])
    np.testing.assert_allclose(margin_hinges(SCORES, LABELS, 0.4), [2.4, 0, 0.15])


def test_cross_entropy_of_even_scores_is_the_logarithm_of_the_number_of_classes() -> None:
    np.testing.assert_allclose(cross_entropies(np.full((2, 4), 7.0), np.array([0, 3])), np.log(4))
    gradient = cross_entropy(np.array([0, 3]))(np.full((2, 4), 7.0), slice(0, 2))
    np.testing.assert_allclose(gradient, (0.25 - np.eye(4)[[0, 3]]) / 2)


def test_log_probabilities_are_pulled_by_minus_the_label_alone() -> None:
    loss = cross_entropy(LABELS, score_kind="log-probabilities")
    np.testing.assert_array_equal(loss(SCORES, slice(0, 3)), -np.eye(3)[LABELS] / 3)


@pytest.mark.parametrize("weights", [None, np.array([0.5, 0.0, 2.0])], ids=["mean", "weighted"])
@pytest.mark.parametrize("name", ["cross-entropy", "squared", "margin", "hinge"])
def test_a_pull_is_the_slope_of_its_loss_in_parts_too(name: str, weights: Array | None) -> None:
    counts = np.full(3, 1 / 3) if weights is None else weights

    def value(scores: Array) -> float:
        each = {
            "cross-entropy": lambda: cross_entropies(scores, LABELS),
            "squared": lambda: squared_probability_changes(scores, BEFORE),
            "margin": lambda: margins(scores, LABELS),
            "hinge": lambda: margin_hinges(scores, LABELS, 0.4),
        }[name]()
        return float(each @ counts)

    loss: LossGradient = {
        "cross-entropy": cross_entropy(LABELS, weights),
        "squared": squared_probability_change(BEFORE, weights),
        "margin": margin(LABELS, weights),
        "hinge": margin_hinge(LABELS, 0.4, weights),
    }[name]
    gradient = np.concatenate([loss(SCORES[rows], rows) for rows in (slice(0, 2), slice(2, 3))])
    for index in np.ndindex(SCORES.shape):
        step = np.zeros_like(SCORES)
        step[index] = 1e-6
        slope = (value(SCORES + step) - value(SCORES - step)) / 2e-6
        assert gradient[index] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("make", [cross_entropy, lambda labels: margin_hinge(labels, 1.0)], ids=["entropy", "margin"])
def test_labels_that_are_no_classes_are_refused_in_one_wording(make: object) -> None:
    assert callable(make)
    for labels in ([0, 1, 3], [-1, 0, 0]):
        with pytest.raises(DataError, match="labels should lie between 0 and 2, got"):
            make(np.array(labels))(SCORES, slice(0, 3))
    with pytest.raises(WeightShapeError, match="expected 3 labels, one per input, got 2"):
        make(np.array([0, 1]))(SCORES, slice(0, 3))


def test_a_pull_keeps_the_dtype_of_the_scores_and_the_scores_themselves() -> None:
    scores = SCORES.astype(np.float32)
    kept = scores.copy()
    for loss in (cross_entropy(LABELS), squared_probability_change(BEFORE), margin_hinge(LABELS, 1.0, np.ones(3))):
        assert loss(scores, slice(0, 3)).dtype == np.float32
    np.testing.assert_array_equal(scores, kept)


def test_losses_go_to_other_processes_by_plain_pickle() -> None:
    scores, labels = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32), np.array([0, 2, 1, 1])
    for made in (cross_entropy(labels), margin(labels), margin_hinge(labels, 1.0), squared_probability_change(scores)):
        again = pickle.loads(pickle.dumps(made))
        assert np.array_equal(again(scores, slice(0, 4)), made(scores, slice(0, 4)))
