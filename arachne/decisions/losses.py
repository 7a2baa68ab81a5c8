"""Losses of class scores: the loss of each input, and its gradient as a `LossGradient` for a backend.

A function in the plural gives one number per input. Its namesake in the singular makes the `LossGradient` of a weighted
sum of them over the inputs, which is their mean unless weights are given. These are functions of this module with some
arguments filled in, so that they go to other processes quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from arachne.decisions.decisions import Array, best_others, margins
from arachne.errors import DataError, WeightShapeError

LossGradient = Callable[[Array, slice], Array]
"""A loss as gradients see it: from the outputs `(rows, ...)` of some rows to d loss / d outputs, of the same shape.

The loss is a sum over rows. A backend calls it once for each batch, with the float32 outputs of that batch and the
slice of rows they belong to; every row comes once, in order, and rows that only fill a batch never come. Where rows
come from several shards, an integer index array takes the place of the slice. This module has the usual ones.
"""


def check_labels(labels: Array, scores: Array) -> None:
    """Refuse labels that are not one per row of scores, or not classes of the model.

    Raises:
        WeightShapeError: Another number of labels.
        DataError: A label that is no class.
    """
    if len(labels) != len(scores):
        raise WeightShapeError(f"expected {len(scores)} labels, one per input, got {len(labels)}")
    last = scores.shape[1] - 1
    if len(labels) and not 0 <= labels.min() <= labels.max() <= last:
        raise DataError(f"labels should lie between 0 and {last}, got {labels.min()} to {labels.max()}")


def probabilities(scores: Array) -> Array:
    """Return the softmax of scores `(n, classes)`, in their dtype."""
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Array = exponentials / exponentials.sum(axis=1, keepdims=True)
    return shares


def cross_entropies(scores: Array, labels: Array) -> Array:
    """Return the cross-entropy of each input, float64 `(n,)`, from class scores `(n, classes)`."""
    scores = scores.astype(np.float64)
    shifted = scores - scores.max(axis=1, keepdims=True)
    loss: Array = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
    return loss


def cross_entropy(labels: Array, weights: Array | None = None, *, score_kind: str = "logits") -> LossGradient:
    """The mean cross-entropy of inputs with these labels `(n,)`.

    Args:
        labels: The class each input should have.
        weights: The weight of each input, `(n,)`; 1 / n if left out.
        score_kind: The kind of the scores, as the backend says. The gradient at log-probabilities is minus the one-hot
            label, at logits softmax - one-hot.
    """
    return partial(_of_cross_entropy, np.asarray(labels), weights, score_kind)


def _of_cross_entropy(labels: Array, weights: Array | None, score_kind: str, scores: Array, rows: slice) -> Array:
    wanted = labels[rows]
    check_labels(wanted, scores)
    gradient = np.zeros_like(scores) if score_kind == "log-probabilities" else probabilities(scores)
    gradient[np.arange(len(wanted)), wanted] -= 1
    return _weigh(gradient, weights, rows, len(labels))


def squared_probability_changes(scores: Array, before: Array) -> Array:
    """Sum over classes of (p - q)^2, float64 `(n,)`: p of these scores, q of those `before`, both `(n, classes)`."""
    change = probabilities(scores.astype(np.float64)) - probabilities(before.astype(np.float64))
    total: Array = (change * change).sum(axis=1)
    return total


def squared_probability_change(before: Array, weights: Array | None = None) -> LossGradient:
    """The mean squared change of probabilities since the scores were `before` `(n, classes)`."""
    return partial(_of_probability_change, probabilities(np.asarray(before, np.float64)), weights)


def _of_probability_change(kept: Array, weights: Array | None, scores: Array, rows: slice) -> Array:
    p = probabilities(scores.astype(np.float64))
    change = p - kept[rows]
    # dp_k / ds_j = p_k (delta_kj - p_j)
    gradient = 2 * p * (change - (change * p).sum(axis=1, keepdims=True))
    return _weigh(gradient, weights, rows, len(kept)).astype(scores.dtype)


def margin(labels: Array, weights: Array | None = None) -> LossGradient:
    """The mean margin of inputs with these labels `(n,)`; mistakes make this loss smaller."""
    return partial(_of_margin, np.asarray(labels), weights)


def _of_margin(labels: Array, weights: Array | None, scores: Array, rows: slice) -> Array:
    wanted, each = labels[rows], np.arange(len(scores))
    check_labels(wanted, scores)
    gradient = np.zeros_like(scores)
    gradient[each, wanted] = 1
    gradient[each, best_others(scores, wanted)] = -1
    return _weigh(gradient, weights, rows, len(labels))


def margin_hinges(scores: Array, labels: Array, width: float) -> Array:
    """max(0, width - margin) of each input, float64 `(n,)`."""
    return np.maximum(width - margins(scores.astype(np.float64), labels), 0.0)


def margin_hinge(labels: Array, width: float, weights: Array | None = None) -> LossGradient:
    """The mean of max(0, width - margin): inputs won by less than `width` are pulled towards their label."""
    return partial(_of_margin_hinge, np.asarray(labels), width, weights)


def _of_margin_hinge(labels: Array, width: float, weights: Array | None, scores: Array, rows: slice) -> Array:
    wanted, each = labels[rows], np.arange(len(scores))
    check_labels(wanted, scores)
    best = best_others(scores, wanted)
    short = (scores[each, wanted] - scores[each, best] < width).astype(scores.dtype)
    gradient = np.zeros_like(scores)
    gradient[each, best] = short
    gradient[each, wanted] = -short
    return _weigh(gradient, weights, rows, len(labels))


def _weigh(gradient: Array, weights: Array | None, rows: slice, n: int) -> Array:
    """Multiply every row by its weight, in the gradient's dtype."""
    if weights is None:
        mean: Array = gradient / n
        return mean
    each: Array = gradient * np.asarray(weights, gradient.dtype)[rows, None]
    return each
