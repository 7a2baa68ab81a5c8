"""Erase: take the directions in which a fault enters a layer out of that layer, in closed form.

A trigger, a sticker or a broken sensor enters a dense layer along one direction: the mean difference between negatives
and right inputs of their class. It enters a convolution along a few, the patches of that difference class by class.
`arachne.search.directions` has the change that makes the layer blind to them; here it is tried at many strengths f:

    ΔW = -f (W d) vᵀ
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from arachne.model.values import Array
from arachne.plugins.options import option
from arachne.search.direction_search import DirectionSearch, Material
from arachne.search.directions import cut_rank, find_directions, on_grid
from arachne.search.effort import MEASURED, share_behind
from arachne.search.problem import Problem

WEAKEST, STRONGEST = 1 / 32, 2.0
"""The first and the last strength f: at 1 the layer does not see the directions at all."""

DEEP_SHARE = 4
"""Of the strengths, one in this many is tried where each trial runs a part of the model."""

DEEP_RANKS = (1, 4)
"""How many directions of a convolution are taken out at a time."""


@dataclass(frozen=True, kw_only=True)
class Erase(DirectionSearch):
    """Takes the directions in which a fault enters a layer out of it, in closed form and without gradients.

    Attributes:
        strengths: How many strengths to try.
        deep_share: Of these, one in so many is tried where each trial runs a part of the model.
    """

    name = "erase"

    DRAWS_ALIKE = True

    strengths: int = option(48, "How many strengths to try.", least=1)

    deep_share: int = option(DEEP_SHARE, "Of the strengths, one in this many is tried behind a cut.", least=1)

    def passes(self, problem: Problem) -> float:
        total = 0.0
        for info in (site.info for site in self.sites(problem)):
            near = problem.is_near(info)
            tried = self._strength_count(near=near, cheap=False) * (1 if near else len(DEEP_RANKS))
            total += share_behind(problem, [info.name]) * MEASURED * tried
        return total

    def within(self, problem: Problem, most: float) -> Self | None:
        variants = (replace(self, deep_share=self.deep_share * 2**times) for times in range(3))
        return next((one for one in variants if one.passes(problem) <= most), None)

    def _strength_count(self, *, near: bool, cheap: bool) -> int:
        """Return how many strengths are tried in a layer."""
        if cheap:
            return self.strengths
        return max(1, (2 if near else 1) * self.strengths // self.deep_share)

    def fit(
        self, problem: Problem, material: Material, fold: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], Array]:
        """Fit without a fold, and try every strength."""
        parameter, aside = material.inputs.parameter, material.rows_in(fold)
        strengths, right = self._strengths(material), []
        for left, detectors in _changes(material, fold):
            scorer = problem.low_rank_scorer(material.info.name, parameter, detectors)
            scores = (scorer.scores(strength * left.ravel(), aside) for strength in strengths)
            right += [problem.fitness_inputs.correct(one, aside) for one in scores]
        return {}, np.stack(right)

    def fit_all(
        self, problem: Problem, material: Material, found: Mapping[str, Array], *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Fit to all inputs: that is the change that is handed back."""
        whole = _changes(material, -1)
        lefts, rights = ([one[n] for one in whole] for n in (0, 1))
        ranks = np.array([left.shape[1] for left in lefts])
        strengths = self._strengths(material)
        return {"strengths": strengths, "ranks": ranks, "left": np.hstack(lefts), "right": np.hstack(rights)}

    def change(self, found: Mapping[str, Array], point: int) -> tuple[Array, Array]:
        strengths, ranks = found["strengths"], found["ranks"]
        number, at = divmod(point, len(strengths))
        own = slice(int(ranks[:number].sum()), int(ranks[: number + 1].sum()))
        return strengths[at] * found["left"][:, own], found["right"][:, own]

    def _strengths(self, material: Material) -> Array:
        count = self._strength_count(near=material.is_near, cheap=material.is_cheap)
        return np.geomspace(WEAKEST, STRONGEST, count).astype(np.float32)


def _changes(material: Material, without: int) -> list[tuple[Array, Array]]:
    """Return the changes at f = 1 that a fit without a fold gives, float32 `(out, r)` and `(in, r)`, r at least 1.

    In a dense layer that is the mean difference alone; taking out those of each class too repaired no more. The
    directions of a convolution are in the order of what they do to inputs, so that the first few are the nearest
    change of a smaller rank.
    """
    shifts, found = material.shifts, []
    ranks = (1,) if material.is_near else DEEP_RANKS
    near = material.is_near
    columns, whitened = material.whiten_mean(without) if near else material.whiten(shifts.own(without), without)
    for rank in ranks:
        directions, detectors = find_directions(columns, whitened, rank)
        if not directions.shape[1]:
            directions, detectors = np.zeros((2, material.weight.shape[1], 1))
        left = -(material.weight @ directions.astype(np.float32))
        if rank == 1:
            found.append((on_grid(left), on_grid(detectors)))
        else:
            found.append(cut_rank(left, detectors, material.moments.sizes, detectors.shape[1]))
    return found
