"""The direction that best tells one kind of inputs from another: logistic regression with a ridge.

With x the inputs less the mean of the second kind, each entry in its deviation over both kinds, both kinds weighing the
same, it is the w that minimises

    mean over the first of log(1 + exp(-(wᵀx + b)))  +  mean over the second of log(1 + exp(wᵀx + b))  +  RIDGE wᵀw

Conjugate gradients (Polak and Ribière's, with Newton's steps along each direction) come near in a few passes over the
inputs, and need no matrix but these. The mean difference treats all inputs alike; this looks at those that are hard to
tell.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from arachne.model.values import Array

RIDGE, PASSES = 0.02, 16
"""The ridge, and the number of directions that are followed."""

LINE_STEPS, MIN_BEND = 3, 0.05
"""Newton's steps along a direction, and the least second derivative, as a share of the one where nothing is told."""

MIN_DEVIATION = 0.05
"""The least deviation of an entry, as a share of the largest: no entry counts for more because it hardly varies."""


def find_discriminant(first: Array, second: Array) -> Array:
    """Return the direction along which the first kind lies above the second, in the units of inputs.

    Args:
        first: float64 `(k, n)`.
        second: float64 `(m, n)`.

    Returns:
        float64 `(n,)`; zeros where there are none of a kind, or nothing varies.
    """
    if not len(first) or not len(second):
        return np.zeros(first.shape[1])
    middle = second.mean(axis=0)
    inputs = np.concatenate([first, second]) - middle
    wanted = np.repeat([1.0, 0.0], [len(first), len(second)])
    shares = np.repeat([1 / len(first), 1 / len(second)], [len(first), len(second)])
    deviations = np.sqrt(np.einsum("i,ij,ij->j", shares / 2, inputs, inputs))
    if not deviations.any():
        return np.zeros(first.shape[1])
    deviations = np.maximum(deviations, MIN_DEVIATION * deviations.max())
    inputs /= deviations
    weights, scores = np.zeros(inputs.shape[1] + 1), np.zeros(len(inputs))
    along, last = np.zeros_like(weights), np.zeros_like(weights)
    for _ in range(PASSES):
        pulls = shares * (expit(scores) - wanted)
        slope = np.append(inputs.T @ pulls + 2 * RIDGE * weights[:-1], pulls.sum())
        if not slope.any():
            break
        turn = max(0.0, slope @ (slope - last) / (last @ last)) if last.any() else 0.0
        along, last = turn * along - slope, slope
        moved = inputs @ along[:-1] + along[-1]
        size = _walk(scores, moved, wanted, shares, (float(weights[:-1] @ along[:-1]), float(along[:-1] @ along[:-1])))
        weights, scores = weights + size * along, scores + size * moved
    found: Array = weights[:-1] / deviations
    return found


def _walk(scores: Array, moved: Array, wanted: Array, shares: Array, ridge: tuple[float, float]) -> float:
    """Return how far to go along a direction.

    Args:
        scores: The scores of inputs `(n,)`.
        moved: By how much a step of 1 moves them `(n,)`.
        wanted: 1 for the first kind and 0 for the second, `(n,)`.
        shares: The weights of inputs `(n,)`.
        ridge: The products of the direction with the weights and with itself.
    """
    size, square = 0.0, 2 * RIDGE * ridge[1]
    least = MIN_BEND * (float(shares @ (moved * moved)) / 4 + square)
    for _ in range(LINE_STEPS):
        told = expit(scores + size * moved)
        slope = float((shares * (told - wanted)) @ moved) + 2 * RIDGE * ridge[0] + size * square
        bend = float((shares * told * (1 - told)) @ (moved * moved)) + square
        size -= slope / max(bend, least)
    return size
