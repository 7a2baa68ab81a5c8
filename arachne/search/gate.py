"""Gate: make the least used hidden unit fire where the fault is and nowhere else, and take back what the fault does.

In the last hidden layer z = W h + b, with v the detector of the mean difference of negatives (`arachne.search.shifts`,
`arachne.search.directions`), unit j, and d the mean difference of the negatives' scores to those of right inputs of
their class:

    z_j' = z_j + a (vᵀ h - t) / (m - t)        scores' = scores with column j of the last weights = -f d / a

with m the median of vᵀ h over negatives. A right input below the threshold t keeps its scores but for what unit j did
for it, which is least of all units; networks often have some that never fire. So a few right inputs above the threshold
pay for the repair, where a change along a direction moves all of them a little. Thresholds t and strengths f are tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.errors import UsageError
from arachne.model.values import Array, LayerInfo, batches
from arachne.plugins.options import option
from arachne.scoring.functions import Function, apply, chain
from arachne.scoring.low_rank import is_in_tail
from arachne.scoring.tail_cache import TAIL_BATCH
from arachne.search.direction_search import DirectionSearch, Material, Site, own_arrays
from arachne.search.directions import on_grid
from arachne.search.problem import Problem
from arachne.search.state import Candidate
from arachne.search.weight_choice import hidden_dense
from arachne.weights.selection import Selection

SHARES_ABOVE = (0.0, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04)
"""The shares of right inputs above each threshold."""

STRENGTHS = (0.5, 0.75, 1.0, 1.5, 2.0)
"""How much of the scores' difference is taken back."""

STEEPNESS = 10.0
"""The deviations of what right inputs did to the unit that a negative puts into it: those are noise to it now."""

FAR = 50.0
"""The distance below 0 at which nothing may pass the function, and above 0 at which all of it has to."""


@dataclass(frozen=True, kw_only=True)
class Gate(DirectionSearch):
    """Turns the least used unit of the last hidden layer into one that fires where the fault is.

    Attributes:
        thresholds: How many thresholds to try, from the one that no right input reaches on.
    """

    name = "gate"

    CHANGES_MATRICES = False

    thresholds: int = option(len(SHARES_ABOVE), "How many thresholds to try.", least=1)

    def layers(self, problem: Problem) -> list[LayerInfo]:
        """Return the last hidden layer.

        Raises:
            UsageError: The model has none whose units can be gates, or the user does not allow the change.
        """
        info = find_gates_layer(problem)
        if self._most_read(problem) < 1:
            raise UsageError(f"a unit and its outputs have more than {problem.max_weights:,} weights")
        return [info]

    def fit(
        self, problem: Problem, material: Material, fold: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], Array]:
        """Fit without a fold, and try every threshold and strength on it."""
        aside, unit = material.rows_in(fold), _unit(problem, material.info)
        found = self._fit(problem, material, fold)
        before = problem.original_scores[aside] - np.outer(unit.fires(unit.leaving[aside]), unit.column)
        right = []
        for point in range(self.thresholds * len(STRENGTHS)):
            at, column = point // len(STRENGTHS), found["columns"][:, point]
            pull = found["reading"][aside] * found["steepness"][at] + found["bias"][at]
            scores = before + np.outer(unit.fires(unit.leaving[aside] + pull), column)
            changes = bool(found["steepness"][at])
            own = problem.fitness_inputs.correct(scores.astype(np.float32), aside)
            right.append(own if changes else problem.originally_right[aside])
        return {}, np.stack(right)

    def fit_all(
        self, problem: Problem, material: Material, found: Mapping[str, Array], *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Fit to all inputs: that is the change that is handed back."""
        whole = self._fit(problem, material, -1)
        return {name: whole[name] for name in ("detector", "steepness", "bias", "columns")}

    def _fit(self, problem: Problem, material: Material, without: int) -> dict[str, Array]:
        """Fit without a fold.

        Returns:
            The detector `(in,)`, how far each input goes along it `(inputs,)`, what the unit gets of that and its bias
            for each threshold, and the column of the last layer for each point `(classes, points)`.
        """
        inputs, among = problem.fitness_inputs, material.folds != without
        negative, positive = (inputs.of_kind(kind) & among for kind in ("negative", "positive"))
        unit = _unit(problem, material.info)
        scale = STEEPNESS * (float(unit.leaving[positive].std()) or 1.0) if positive.any() else STEEPNESS
        whitened = material.whiten_mean(without)[1]
        detector = _strongest(whitened, material.moments.deviations, self._most_read(problem))
        detector = on_grid(detector / (float(np.abs(detector).max()) or 1.0))[:, 0]
        reading = np.concatenate([own @ detector for _, own in material.inputs.pieces()])
        least, column = np.sort(reading[positive])[::-1], _pull_back(problem, negative, positive) / scale
        middle = float(np.median(reading[negative])) if negative.any() else 0.0
        steepness, bias = np.zeros((2, self.thresholds))
        for at, share in enumerate(SHARES_ABOVE[: self.thresholds]):
            threshold = float(least[int(share * len(least))]) if len(least) else middle
            if middle > threshold:
                steepness[at] = _round(scale / (middle - threshold))
                bias[at] = _round(-steepness[at] * threshold - float(unit.leaving[positive].mean()))
        columns = on_grid(np.stack([share * column for _ in steepness for share in STRENGTHS], axis=1))
        return {"detector": detector, "reading": reading, "steepness": steepness, "bias": bias, "columns": columns}

    def _most_read(self, problem: Problem) -> int:
        """Return how many inputs of the layer the unit may read, as the user limits the weights that change."""
        width, classes = problem.backend.layers[-2].parameters["weight"].shape[-1], problem.original_scores.shape[1]
        return width if problem.max_weights is None else min(width, problem.max_weights - 1 - classes)

    def change(self, found: Mapping[str, Array], point: int) -> tuple[Array, Array]:
        """Return what a point adds to the unit's weights, its bias behind them `(in + 1,)`, and its new column."""
        at = point // len(STRENGTHS)
        row = np.append(found["detector"] * found["steepness"][at], found["bias"][at])
        return row, found["columns"][:, point]

    def candidates(
        self, problem: Problem, arrays: Mapping[str, Array], chosen: list[tuple[Site, int, int, Array]]
    ) -> list[Candidate]:
        """Make candidates of single weights: the unit's row and bias, and its column in the last layer."""
        made = []
        for site, number, point, judged in chosen:
            row, column = self.change(own_arrays(arrays, number), point)
            limited = _limit(problem, site.info, np.flatnonzero(row[:-1]))
            unit, values = _unit(problem, site.info), limited.suspects.values.copy()
            for slice_ in limited.suspects.slices:
                if slice_.layer != site.info.name:
                    values[slice_.numbers] = column
                elif slice_.parameter == "bias":
                    values[slice_.numbers] += row[-1]
                else:
                    values[slice_.numbers] += row[slice_.flat - unit.number * (len(row) - 1)]
            with np.errstate(over="ignore"):
                values = limited.round_to_storage(values)
            if not np.isfinite(
                values
            ).all():  # a threshold so near the negatives is too steep for what the model stores
                continue
            made.append(limited.score(Candidate(limited.suspects, values, None, self.name, judged)))
        return made


def find_gates_layer(problem: Problem) -> LayerInfo:
    """Return the last hidden layer.

    Raises:
        UsageError: The model has none whose units can be gates, or the user does not allow the change.
    """
    info, last = hidden_dense(problem)[0], problem.backend.layers[-1]
    problem.allowed_layers([last], f"the last layer, '{last.name}'")
    if info.name != problem.backend.layers[-2].name or not is_in_tail(problem.tail, (info.name, "weight")):
        raise UsageError("the model does not end in a hidden dense layer that may change, and one of its scores")
    functions = chain(info.followed_by) or ()
    ends = apply(functions, np.array([-FAR, FAR], np.float32))
    if not np.allclose(ends, [0, FAR], atol=1e-3) or "bias" not in info.parameters:
        raise UsageError(f"no unit of '{info.name}' can be one that fires above a threshold alone")
    if any(one.is_quantised for one in (info, last)):
        raise UsageError("the dense layers at the end hold whole numbers, whose range is that of their weights")
    return info


@dataclass(frozen=True, eq=False)
class _Unit:
    """A hidden unit.

    Attributes:
        number: Its number in its layer.
        leaving: Its output before the function, for each fitness input `(inputs,)`.
        column: Its weights in the last layer `(classes,)`.
        functions: What follows the layer.
    """

    number: int
    leaving: Array
    column: Array
    functions: tuple[Function, ...]

    def fires(self, leaving: Array) -> Array:
        """Return what the unit hands on."""
        return np.asarray(apply(self.functions, leaving))


def _unit(problem: Problem, info: LayerInfo) -> _Unit:
    """Find the unit that does least to the scores of right inputs."""
    kept: dict[str, _Unit] = problem.shared.setdefault("gates", {})
    if info.name not in kept and problem.tail is not None:
        functions = chain(info.followed_by) or ()
        weight = np.asarray(problem.backend.read_weights(problem.backend.layers[-1].name)["weight"], np.float32)
        number = int(np.argmin(measure_uses(problem, info)))
        leaving = np.asarray(problem.tail.leaving(info.name)[:, number])
        kept[info.name] = _Unit(number, leaving, weight[:, number], functions)
    return kept[info.name]


def measure_uses(problem: Problem, info: LayerInfo) -> Array:
    """Return how far each unit moves the scores of right inputs apart, as a root of mean squares `(units,)`."""
    kept: dict[str, Array] = problem.shared.setdefault("uses of units", {})
    if info.name not in kept:
        if problem.tail is None:
            raise ValueError("the model has no dense tail")
        functions = chain(info.followed_by) or ()
        weight = np.asarray(problem.backend.read_weights(problem.backend.layers[-1].name)["weight"], np.float32)
        leaving, positive = problem.tail.leaving(info.name), problem.fitness_inputs.of_kind("positive")
        rows, squares = np.flatnonzero(positive), np.zeros(weight.shape[1])
        for part in batches(len(rows), TAIL_BATCH):
            squares += np.square(apply(functions, leaving[rows[part]]), dtype=np.float64).sum(axis=0)
        sizes = np.linalg.norm(weight - weight.mean(axis=0), axis=0)
        kept[info.name] = np.sqrt(squares / max(1, len(rows))) * sizes
    return kept[info.name]


def _limit(problem: Problem, info: LayerInfo, read: Array) -> Problem:
    """Return the problem over the weights of the unit that change: those of these inputs, its bias and its column."""
    kept: dict[tuple[str, bytes], Problem] = problem.shared.setdefault("gate problems", {})
    key = info.name, read.tobytes()
    if key not in kept:
        unit, last = _unit(problem, info).number, problem.backend.layers[-1]
        classes, width = last.parameters["weight"].shape
        chosen: dict[tuple[str, str], Any] = {
            (info.name, "weight"): unit * info.parameters["weight"].shape[1] + read,
            (info.name, "bias"): np.array([unit]),
            (last.name, "weight"): np.arange(classes) * width + unit,
        }
        kept[key] = problem.with_suspects(Selection.at(problem.backend, chosen))
    return kept[key]


def _pull_back(problem: Problem, negative: Array, positive: Array) -> Array:
    """Return minus the mean difference of the negatives' scores to those of right inputs of their class."""
    scores, labels = problem.original_scores.astype(np.float64), problem.fitness_inputs.labels
    total = np.zeros(scores.shape[1])
    for label in np.unique(labels[negative]):
        own, usual = negative & (labels == label), positive & (labels == label)
        total += scores[own].sum(axis=0) - own.sum() * scores[usual if usual.any() else positive].mean(axis=0)
    found: Array = total.mean() - total
    return found / max(1, int(negative.sum()))


def _strongest(detector: Array, sizes: Array, most: int) -> Array:
    """Keep the entries of a detector `(n, 1)` that do most, and set the others to 0."""
    if np.count_nonzero(detector) > most:
        detector = detector.copy()
        detector[np.argsort(-np.abs(detector[:, 0]) * sizes, kind="stable")[most:]] = 0
    return detector


def _round(value: float) -> float:
    """Round a number as vectors are rounded, so that frameworks which differ in its last bits agree."""
    return float(on_grid(np.array([[value]]))[0, 0])
