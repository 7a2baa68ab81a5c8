"""Finite differences that know how far they can be trusted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from arachne.model.values import Array

TRIES = 4
STEPS = (0.02, 0.01, 0.005)
"""Lengths of a step, relative to the size of the moved values."""

SLACK = 0.02
"""How far a gradient may be from a slope, as a share of it."""


def agree(at: Array, gradient: Array, value: Callable[[Array], float], what: str) -> bool:
    """Refuse a gradient that finite differences contradict.

    Directions lean along the gradient, where a slope stands out from rounding, and half at random, where what is
    missing from the gradient shows. A direction that crosses a kink has other slopes for other steps, and says nothing.

    Args:
        at: Where the gradient is taken, any shape.
        gradient: What is claimed, in that shape.
        value: The function.
        what: What to call it in a message.

    Returns:
        Whether a direction could be judged.
    """
    rng = np.random.default_rng(7)
    length = float(np.linalg.norm(gradient))
    size = float(np.linalg.norm(at)) or 1.0
    for _ in range(TRIES):
        aside = rng.normal(size=at.shape)
        direction = aside / np.linalg.norm(aside) + (gradient / length if length else 0)
        direction /= np.linalg.norm(direction)
        claimed = float((np.asarray(gradient, np.float64) * direction).sum())
        for share in STEPS:
            slopes = [_slope(at, direction, step * size, value) for step in (share, share / 2)]
            spread = abs(slopes[0] - slopes[1])
            if spread > SLACK * max(abs(slopes[1]), abs(claimed)) + 1e-7:
                continue
            if abs(claimed - slopes[1]) > SLACK * abs(slopes[1]) + 3 * spread + 1e-6:
                raise AssertionError(
                    f"{what}: the gradient says {claimed:.4g} along a direction, the scores {slopes[1]:.4g}"
                )
            return True
    return False


def _slope(at: Array, direction: Array, step: float, value: Callable[[Array], float]) -> float:
    above, below = (np.asarray(at + sign * step * direction, at.dtype) for sign in (1, -1))
    moved = float(((above.astype(np.float64) - below) * direction).sum())
    return (value(above) - value(below)) / moved
