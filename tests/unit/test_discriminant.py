"""The direction that best tells one kind of inputs from another is found where the loss is least."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from arachne.model.values import Array
from arachne.search.discriminant import RIDGE, find_discriminant


def two_kinds(seed: int = 0) -> tuple[Array, Array]:
    """Return inputs of two kinds that differ little along an entry that hardly varies, and more along a loud one."""
    rng = np.random.default_rng(seed)
    loud = rng.standard_normal(500) * 4
    second = np.column_stack([loud, loud + rng.standard_normal(500) * 0.3, rng.standard_normal(500)])
    first = second[:60] + np.array([3, 0, 0.5])
    return first, second


def test_the_direction_is_the_one_whose_loss_is_least() -> None:
    first, second = two_kinds()
    inputs = np.concatenate([first, second]) - second.mean(axis=0)
    shares = np.repeat([1 / len(first), 1 / len(second)], [len(first), len(second)])
    deviations = np.sqrt((shares / 2) @ np.square(inputs))
    wanted = np.repeat([1.0, -1.0], [len(first), len(second)])

    def loss(weights: Array) -> float:
        scores = inputs / deviations @ weights[:3] + weights[3]
        return float(shares @ -np.log(expit(wanted * scores)) + RIDGE * weights[:3] @ weights[:3])

    best = minimize(loss, np.zeros(4), tol=1e-12).x[:3] / deviations
    found = find_discriminant(first, second)
    np.testing.assert_allclose(found, best, rtol=1e-3)


def test_it_tells_apart_what_the_mean_difference_does_not() -> None:
    first, second = two_kinds()
    fresh, others = two_kinds(1)
    found, mean = find_discriminant(first, second), first.mean(axis=0) - second.mean(axis=0)

    def share_above(direction: Array) -> float:
        return float((fresh @ direction > np.quantile(others @ direction, 0.99)).mean())

    assert share_above(found) > 0.9 > 0.2 > share_above(mean)


def test_nothing_to_tell_apart_gives_zeros() -> None:
    same = np.ones((4, 3))
    for first, second in ((same, same), (same[:0], same), (same, same[:0])):
        np.testing.assert_array_equal(find_discriminant(first, second), np.zeros(3))
