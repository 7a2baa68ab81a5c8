"""The direction that best tells one kind of inputs from another: logistic regression with a ridge.

With x the inputs less the mean of the second kind, each entry in its deviation over both kinds, both kinds weighing the
same, it is the w that minimises

    mean over the first of log(1 + exp(-(wᵀx + b)))  +  mean over the second of log(1 + exp(wᵀx + b))  +  RIDGE wᵀw

The mean difference treats all inputs alike; this looks at those that are hard to tell.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from arachne.model.values import Array, batches

RIDGE, STEPS = 0.02, 16
"""The ridge, and the number of L-BFGS steps: so few that another framework, which rounds differently, ends at the same
numbers once they are on a grid; after 100 steps it does not."""

MAX_BLOCK_BYTES = 8 << 20
"""The most memory that a block of rows takes."""

MIN_DEVIATION = 0.05
"""The least deviation of an entry, as a share of the largest: no entry counts for more because it hardly varies."""


def find_discriminant(first: Array, second: Array, among: Array | None = None) -> Array:
    """Return the direction along which the first kind lies above the second, in the units of inputs.

    Args:
        first: Rows `(k, n)`, read in blocks, which become float64.
        second: Rows `(m, n)`, likewise.
        among: The rows of the second kind to take; all when None.

    Returns:
        float64 `(n,)`; zeros where there are none of a kind, or nothing varies.
    """
    among = np.arange(len(second)) if among is None else among
    counts, width = (len(first), len(among)), first.shape[1]
    if not all(counts):
        return np.zeros(width)
    sign, shares = np.repeat([1.0, -1.0], counts), np.repeat(1 / np.array(counts), counts)

    def blocks() -> Iterator[tuple[slice, Array]]:
        for rows, chosen, start in ((first, np.arange(counts[0]), 0), (second, among, counts[0])):
            for part in batches(len(chosen), max(1, MAX_BLOCK_BYTES // (8 * width))):
                yield slice(start + part.start, start + part.stop), np.asarray(rows[chosen[part]], np.float64)

    middle, squares = np.zeros(width), np.zeros(width)
    for part, own in blocks():
        if part.start >= counts[0]:
            middle += own.sum(axis=0) / counts[1]
    for part, own in blocks():
        squares += np.einsum("i,ij,ij->j", shares[part] / 2, own - middle, own - middle)
    deviations = np.sqrt(squares)
    if not deviations.any():
        return np.zeros(width)
    deviations = np.maximum(deviations, MIN_DEVIATION * deviations.max())

    def loss(weights: Array) -> tuple[float, Array]:
        own, value, slope = weights[:-1] / deviations, RIDGE * weights[:-1] @ weights[:-1], np.zeros(width)
        total = 0.0
        for part, rows in blocks():
            margins = sign[part] * (rows @ own - middle @ own + weights[-1])
            value += shares[part] @ np.logaddexp(0.0, -margins)
            pulls = -sign[part] * shares[part] * expit(-margins)
            slope += pulls @ rows - pulls.sum() * middle
            total += pulls.sum()
        return float(value), np.append(slope / deviations + 2 * RIDGE * weights[:-1], total)

    found = minimize(loss, np.zeros(width + 1), jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    return np.asarray(found[:-1] / deviations)
