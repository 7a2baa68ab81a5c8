"""How large a step is: what a change of a layer's weights does to margins."""

from __future__ import annotations

import numpy as np

from arachne.losses import margin
from arachne.search.base import Problem
from arachne.values import Array

PROBED, DRAWS = 200, 8
"""How many negatives (and as many positives) influence is measured on, and with how many draws of signs."""


def influence_scale(problem: Problem, *, rng: np.random.Generator) -> Array:
    """A change of 1 in every weight of a layer, each in a random direction, moves margins by about one unit.

    With F_i the mean over inputs of (d margin / d w_i)^2, the scale of a layer is

        unit / sqrt(sum over its suspects of F_i of the positives + F_i of the negatives)

    so layers can be stepped through together, whatever their size and wherever they stand. Both kinds of inputs count:
    through some weights, such as those on a corner that is always dark, nothing flows in positives. The sum is
    estimated from gradients of sums with random signs: the expectation of |Σ_n ± g_n|^2 is Σ_n |g_n|^2.
    """
    squares = influences(problem, problem.suspects.values, rng=rng)
    scale = np.zeros(len(squares))
    layers = np.array([address.layer for address in problem.suspects.addresses])
    for layer in np.unique(layers):
        total = float(squares[layers == layer].sum())
        scale[layers == layer] = problem.unit / np.sqrt(total) if total > 0 else 0.0
    return scale


def influences(problem: Problem, values: Array, *, rng: np.random.Generator) -> Array:
    """F_i of the positives + F_i of the negatives for every suspect, float64 `(k,)`, where they have these values."""
    inputs = problem.fitness_inputs
    squares = np.zeros(len(values))
    negative = inputs.of_kind("negative")
    for rows in (np.flatnonzero(negative), np.flatnonzero(~negative)):
        if len(rows) > PROBED:
            rows = np.sort(rng.choice(rows, PROBED, replace=False))
        for _ in range(DRAWS if len(rows) else 0):
            signs = rng.choice(np.array([-1.0, 1.0]), len(rows))
            slope = problem.tunable.gradients(values, margin(inputs.labels[rows], signs), rows)
            squares += slope * slope / (DRAWS * len(rows))
    return squares


def rounded_scale(scale: Array) -> Array:
    """The nearest quarter powers of two: the same number in every framework."""
    found = np.zeros_like(scale)
    found[scale > 0] = 2.0 ** (np.rint(4 * np.log2(scale[scale > 0])) / 4)
    return found
