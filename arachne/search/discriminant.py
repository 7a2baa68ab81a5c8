"""The direction that best tells one kind of inputs from another: logistic regression with a ridge.

With x the inputs less the mean of the second kind, each entry in its deviation over both kinds, both kinds weighing the
same, it is the w that minimises

    mean over the first of log(1 + exp(-(wᵀx + b)))  +  mean over the second of log(1 + exp(wᵀx + b))  +  RIDGE wᵀw

The mean difference treats all inputs alike; this looks at those that are hard to tell.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from arachne.model.values import Array

RIDGE, STEPS = 0.02, 16
"""The ridge, and the number of L-BFGS steps: so few that another framework, which rounds differently, ends at the same
numbers once they are on a grid; after 100 steps it does not."""

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
    inputs = np.concatenate([first, second]) - second.mean(axis=0)
    sign = np.repeat([1.0, -1.0], [len(first), len(second)])
    shares = np.repeat([1 / len(first), 1 / len(second)], [len(first), len(second)])
    deviations = np.sqrt(np.einsum("i,ij,ij->j", shares / 2, inputs, inputs))
    if not deviations.any():
        return np.zeros(first.shape[1])
    deviations = np.maximum(deviations, MIN_DEVIATION * deviations.max())
    inputs /= deviations

    def loss(weights: Array) -> tuple[float, Array]:
        own, margins = weights[:-1], sign * (inputs @ weights[:-1] + weights[-1])
        pulls = -sign * shares * expit(-margins)
        value = shares @ np.logaddexp(0.0, -margins) + RIDGE * own @ own
        return value, np.append(pulls @ inputs + 2 * RIDGE * own, pulls.sum())

    start = np.zeros(inputs.shape[1] + 1)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    return np.asarray(found[:-1] / deviations)
