"""The influence of weights on margins, which sets the size of gradient steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne.decisions.losses import margin
from arachne.model.values import Array
from arachne.scoring.base import Scorer
from arachne.search.problem import Problem

PROBED_INPUTS, SIGN_DRAWS = 200, 8
"""How many negatives, and positives, influence is estimated from, and with how many draws of random signs."""


def influence_scale(problem: Problem, *, rng: np.random.Generator) -> Array:
    """Return a scale for each weight, such that a random change of 1 in a whole layer moves margins by about one unit.

    With F_i the mean over inputs of (d margin / d w_i)^2, the scale of a layer is

        unit / sqrt(sum over its suspects of F_i of the positives + F_i of the negatives)

    so layers of any size and depth can be stepped together. Both kinds of inputs count, because some weights, such as
    those on a corner of the picture that is always dark, get no activation from positives. The sum is estimated from
    gradients of sums with random signs: the expectation of |Σ_n ± g_n|^2 is Σ_n |g_n|^2.
    """
    squares = influences(problem, problem.suspects.values, rng=rng)
    scale = np.zeros(len(squares))
    for layer in problem.suspects.layers:
        own = problem.suspects.in_layer(layer)
        total = float(squares[own].sum())
        scale[own] = problem.margin_unit / np.sqrt(total) if total > 0 else 0.0
    return scale


def layer_scale(problem: Problem, scorer: Scorer, values: Array, *, rng: np.random.Generator) -> float:
    """Return the scale of one layer whose scores another scorer gives; 0 if nothing there moves a margin."""
    total = float(influences(problem, values, rng=rng, scorer=scorer).sum())
    return float(problem.margin_unit / np.sqrt(total)) if total > 0 else 0.0


def influences(problem: Problem, values: Array, *, rng: np.random.Generator, scorer: Scorer | None = None) -> Array:
    """Return F_i of the positives + F_i of the negatives for every weight at these values, float64 `(k,)`.

    The weights are the suspects, or those of another scorer of the fitness inputs.
    """
    scorer, squares = scorer or problem.scorer, np.zeros(len(values))
    for rows, signs in draw_signs(problem, rng=rng):
        slope = scorer.gradients(values, margin(problem.fitness_inputs.labels[rows], signs), rows)
        squares += slope * slope / (SIGN_DRAWS * len(rows))
    return squares


def draw_signs(problem: Problem, *, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Draw the inputs `(rows,)` and random signs `(rows,)` of each gradient that influences are estimated from."""
    negative = problem.fitness_inputs.of_kind("negative")
    for rows in (np.flatnonzero(negative), np.flatnonzero(~negative)):
        if len(rows) > PROBED_INPUTS:
            rows = np.sort(rng.choice(rows, PROBED_INPUTS, replace=False))
        for _ in range(SIGN_DRAWS if len(rows) else 0):
            yield rows, rng.choice(np.array([-1.0, 1.0]), len(rows))


def rounded_scale(scale: Array) -> Array:
    """Round to the nearest quarter power of two, so that every framework gets the same number."""
    found = np.zeros_like(scale)
    found[scale > 0] = 2.0 ** (np.rint(4 * np.log2(scale[scale > 0])) / 4)
    return found
