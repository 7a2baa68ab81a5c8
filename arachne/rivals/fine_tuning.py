"""Baselines for a repair: retraining of a few weights, fine-tuning of all, and a ridge fit of the last layer.

They are not members of the pool, but are run beside it for comparison. They are cross-fitted like the other searches,
so that their points are judged in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arachne.decisions.losses import cross_entropy
from arachne.errors import UsageError
from arachne.model.backend import LossGradient
from arachne.model.values import Array
from arachne.plugins.options import option
from arachne.search.cross_fit import CrossFitted
from arachne.search.folds import Batch
from arachne.search.gradient import GradientSearch
from arachne.search.margin import TARGET_MARGIN
from arachne.search.problem import Problem
from arachne.search.state import SearchState
from arachne.search.weight_choice import last_layer
from arachne.tasks import best_others, margins

BYTES_PER_WEIGHT = 1000
"""The memory of one tuned weight: its address, its value at every point of the path, gradients and copies."""

STRONGEST, WEAKEST = 1e2, 1e-5
"""The strength of the ridge at the first and last point, in mean squares of the layer's inputs."""


@dataclass(frozen=True, kw_only=True)
class Retrain(GradientSearch):
    """Retraining of the localised weights alone: the baseline that the paper calls RT.

    The loss of every step is the cross-entropy of all inputs, negatives counted `alpha` times. The points of its path
    differ in how long it trains.
    """

    name = "rt"

    LOCALISER = "bl"

    def loss_gradient(self, problem: Problem, batch: Batch, progress: float) -> LossGradient:
        inputs = problem.fitness_inputs
        weights = batch.shares.copy()
        for kind in ("negative", "positive", "never_break"):
            weights[inputs.of_kind(kind)[batch.rows]] *= inputs.weights[inputs.of_kind(kind)].sum()
        return cross_entropy(batch.labels, weights / weights.sum(), score_kind=problem.backend.score_kind)


@dataclass(frozen=True, kw_only=True)
class Tune(Retrain):
    """Fine-tuning of every weight of every layer that is not left out.

    Attributes:
        most_weights: The largest number of weights it may tune; each takes about `BYTES_PER_WEIGHT`.
    """

    name = "tune"

    LOCALISER = "all"
    STEPS_PER_POINT: ClassVar[int] = 32
    GRID: ClassVar[float] = 4096.0

    most_weights: int = option(2_000_000, "Weights that may be tuned; a million take 1 GB.", least=1)

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        k = len(problem.suspects)
        if k > self.most_weights:
            raise UsageError(
                f"fine-tuning {k:,} weights takes about {k * BYTES_PER_WEIGHT / 1e9:.2g} GB of memory, and at most "
                f"{self.most_weights:,} weights may be tuned; leave out some layers, or allow more weights"
            )
        return super().begin(problem, rng=rng)


@dataclass(frozen=True, kw_only=True)
class Ridge(CrossFitted):
    """The last layer in closed form: the smallest change that gives negatives wanted scores and keeps other scores.

    With X the inputs of the layer and a 1 for its bias, w the inputs' weights in the fitness, and T the wanted changes
    of scores (0 except for negatives, whose true class is raised and best other lowered until it wins by TARGET_MARGIN
    units):

        Δ = argmin Σ_n w_n |x_n Δ - t_n|^2 + s |Δ|^2,   s falling from point to point

    Attributes:
        strengths: The number of values of s to try.
    """

    name = "ridge"

    NEEDS_SINGLE_LABEL = True

    GRID: ClassVar[float] = 65536.0

    strengths: int = option(16, "How many strengths to try.", least=1)

    @property
    def points(self) -> int:
        return self.strengths

    def select_weights(self, problem: Problem) -> Problem:
        return problem.with_selection("last layer", lambda: last_layer(problem))

    def scale(self, problem: Problem, *, rng: np.random.Generator) -> Array:
        return problem.suspects.magnitudes

    def initial(self, problem: Problem, scale: Array) -> dict[str, Array]:
        return {"change": np.zeros(len(scale)), "ahead": np.zeros((self.points, len(scale)))}

    def advance(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], int]:
        """Return the fit of the next strength; the first point computes the fits of all strengths."""
        ahead = state.arrays["ahead"]
        if point == 0:
            ahead = self._fits(problem, state.arrays["folds"] != fold) / state.arrays["scale"]
        return {"change": ahead[point], "ahead": ahead}, 1

    def _fits(self, problem: Problem, among: Array) -> Array:
        """Compute the change of every suspect at every strength, `(points, k)`."""
        layer = problem.suspects.layers[0]
        if problem.tail is None:
            raise UsageError(f"what enters the last layer, '{layer}', does not fit into memory; give less data")
        entering = problem.tail.entering(layer)[among].astype(np.float64)
        has_bias = any(slice_.parameter == "bias" for slice_ in problem.suspects.slices)
        entering = np.column_stack([entering, np.full(len(entering), float(has_bias))])
        weighted = entering * problem.fitness_inputs.weights[among, None]
        values, vectors = np.linalg.eigh(weighted.T @ entering)
        wanted = vectors.T @ (weighted.T @ _wanted_changes(problem)[among])
        found = np.zeros((self.points, len(problem.suspects)))
        for number, strength in enumerate(np.geomspace(STRONGEST, WEAKEST, self.points)):
            added = strength * max(float(values.mean()), 1e-300)
            change = (vectors @ (wanted / (np.maximum(values, 0) + added)[:, None])).T
            for slice_ in problem.suspects.slices:
                own = change[:, -1] if slice_.parameter == "bias" else change[:, :-1]
                found[number, slice_.numbers] = own[slice_.index]
        return found


def _wanted_changes(problem: Problem) -> Array:
    """Return by how much every score should change, float64 `(n, classes)`."""
    scores, labels = problem.original_scores.astype(np.float64), problem.fitness_inputs.labels
    each = np.arange(len(scores))
    missing = np.maximum(TARGET_MARGIN * problem.margin_unit - margins(scores, labels), 0)
    missing[~problem.fitness_inputs.of_kind("negative")] = 0
    wanted = np.zeros_like(scores)
    wanted[each, labels] = missing / 2
    wanted[each, best_others(scores, labels)] = -missing / 2
    return wanted
