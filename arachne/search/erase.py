"""Erase: take the direction in which a fault enters a dense layer out of that layer, in closed form.

A trigger, a sticker or a broken sensor enters a layer along one direction. `arachne.search.directions` has the change
that makes the layer blind to it. Here it is computed for every dense layer, once without each fold and once from all
inputs, and tried at many strengths; layer and strength are told apart by what happens to inputs that the fit left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.errors import UsageError
from arachne.model.values import Array, LayerInfo
from arachne.plugins.options import option
from arachne.search.base import Problem, Searcher
from arachne.search.cross_fit import outcomes, pareto
from arachne.search.directions import SecondMoments, erase_direction, max_moment_rows, mean_shift
from arachne.search.folds import fold_numbers
from arachne.search.layer_inputs import project, read_layer_inputs
from arachne.search.rank_one import RankOne
from arachne.search.state import Candidate, Generation, SearchResult, SearchState

WEAKEST, STRONGEST = 1 / 16, 2.0
"""The first and the last strength f: at 1 the layer does not see the direction at all."""

MAX_FRONT_WEIGHTS = 1 << 24
"""How many weights the candidates of a front may hold together; of a wide layer fewer points are kept."""


@dataclass(frozen=True, kw_only=True)
class Erase(Searcher):
    """Takes the direction in which a fault enters a dense layer out of it, in closed form and without gradients.

    Attributes:
        strengths: How many strengths to try.
        folds: Into how many folds the inputs fall.
    """

    name = "erase"

    LOCALISER = "contrast"
    CROSS_FITS = True
    LOOKS_AT_TAIL = True
    USES_ALPHA = False
    NEEDS_SINGLE_LABEL = True

    strengths: int = option(32, "How many strengths to try.", least=1)
    folds: int = option(4, "Runs, each over all seen inputs but a share of them.", least=2)

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        layers = dense_layers(problem)
        folds = fold_numbers(problem, self.folds, rng=rng)
        right = np.tile(problem.originally_right, (len(layers) * self.strengths, 1))
        fitness = float(problem.fitness_inputs.weights @ problem.originally_right)
        first = Generation(0, fitness, 0, 0, 0, 0)
        return SearchState({"folds": folds, "right": right}, {"layer": 0, "fold": 0}, (first,))

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Try every strength in one layer on one fold; before a layer's first fold its directions are found."""
        layers = dense_layers(problem)
        number, fold = _at(state)
        layer, arrays = layers[number].name, dict(state.arrays)
        if fold == 0:
            arrays |= self._fit(problem, layer, number, arrays["folds"])
        aside = np.flatnonzero(arrays["folds"] == fold)
        right = arrays["right"] = arrays["right"].copy()
        for place, strength in enumerate(self._strengths):
            scores = _direction(arrays, layer, number, fold, strength).scores(problem, aside)
            right[number * self.strengths + place, aside] = problem.fitness_inputs.correct(scores, aside)
        history = (*state.history, _generation(problem, state.history[-1], right, self.strengths))
        number, fold = (number, fold + 1) if fold + 1 < self.folds else (number + 1, 0)
        stopped = "all dense layers are done" if number == len(layers) else None
        return SearchState(arrays, {"layer": number, "fold": fold}, history, stopped)

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        """The points that no other beats out of fold, in layers where every fold has been judged."""
        layers, (done, _) = dense_layers(problem), _at(state)
        right = state.arrays["right"][: done * self.strengths]
        original = problem.fitness_inputs.deficits_by_term(problem.original_scores)
        costs = problem.objective_costs(right) if problem.has_objective and len(right) else None
        numbers = pareto(*outcomes(problem, right), costs)
        front = []
        for number in _thin(numbers, max((info.parameters["weight"].size for info in layers[:done]), default=1)):
            layer, place = divmod(number, self.strengths)
            found = _direction(state.arrays, layers[layer].name, layer, self.folds, self._strengths[place])
            front.append(found.candidate(problem, self.name, right[number]))
        suspects = problem.suspects
        nothing = Candidate(suspects, suspects.values, original, self.name, problem.originally_right)
        totals = [int(one.deficits.sum()) for one in front if one.deficits is not None]
        best = int(np.argmin(totals)) if totals and min(totals) < int(original.sum()) else 0
        return problem.result(state, *(front or [nothing]), original=original, chosen=best)

    @property
    def _strengths(self) -> list[float]:
        found: list[float] = np.geomspace(WEAKEST, STRONGEST, self.strengths).tolist()
        return found

    def _fit(self, problem: Problem, layer: str, number: int, folds: Array) -> dict[str, Array]:
        """Find the direction without each fold and, last, from all inputs, and how far each input goes along them."""
        inputs, entering = problem.fitness_inputs, read_layer_inputs(problem, layer)
        negative, positive, guarded = (inputs.of_kind(kind) for kind in ("negative", "positive", "never_break"))
        rows = np.flatnonzero(positive | guarded)
        most = max_moment_rows(entering.means.shape[1])
        rows = rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)] if len(rows) > most else rows
        moments = SecondMoments(np.asarray(entering.samples[rows], np.float64))
        weight = np.asarray(problem.backend.read_weights(layer)["weight"], np.float64)
        lefts, rights = [], []
        for fold in range(self.folds + 1):
            among = folds != fold
            shift = mean_shift(
                entering.means, inputs.labels, np.flatnonzero(negative & among), np.flatnonzero(positive & among)
            )
            whitened = moments.solve(shift[:, None], (among | guarded)[rows])[:, 0]
            left, right = erase_direction(weight, shift, whitened)
            lefts.append(left)
            rights.append(right)
        along = project(entering.means, np.stack(rights))
        return {f"left {number}": np.stack(lefts), f"right {number}": np.stack(rights), f"along {number}": along}


def dense_layers(problem: Problem) -> list[LayerInfo]:
    """The dense layers that a repair may change, the last one first.

    Raises:
        UsageError: The model has none, or the user allows none.
    """
    layers = [info for info in reversed(problem.backend.layers) if info.kind == "dense" and "weight" in info.parameters]
    if not layers:
        raise UsageError("the model has no dense layer, and this search changes nothing else")
    return problem.allowed_layers(layers, "the dense layers")


def _at(state: SearchState) -> tuple[int, int]:
    """The layer and the fold that come next."""
    return int(state.values["layer"] or 0), int(state.values["fold"] or 0)


def _direction(arrays: Mapping[str, Array], layer: str, number: int, fit: int, strength: float) -> RankOne:
    """The change of a layer that one fit gives at a strength."""
    left, right, along = (arrays[f"{name} {number}"][fit] for name in ("left", "right", "along"))
    return RankOne(layer, np.float32(strength) * left, right, along)


def _generation(problem: Problem, last: Generation, right: Array, evaluations: int) -> Generation:
    """The best point so far; inputs that were not judged yet count as in the original model."""
    repaired, broken = outcomes(problem, right)
    fitness = right @ problem.fitness_inputs.weights
    best = int(np.argmax(fitness))
    counts = float(fitness[best]), int(repaired[best]), int(broken[best])
    return Generation(last.number + 1, *counts, last.evaluations + evaluations, 0)


def _thin(numbers: Sequence[int], weights: int) -> list[int]:
    """As many points, evenly along the front, as may be held where each changes this many weights."""
    most = max(2, MAX_FRONT_WEIGHTS // weights)
    chosen = np.linspace(0, len(numbers) - 1, min(len(numbers), most)).astype(np.int64)
    return [numbers[number] for number in chosen]
