"""Gates: several unused hidden units fire where the fault is, and give these inputs scores of their own.

`gate` takes the same from every input with the fault. Here K of the least used units of the last hidden layer read a
few directions each, and all that they read and do is trained:

    p = Vᵀ h       z_k = STEEPNESS (a_kᵀ p + b_k)       scores' = scores without the units + Σ_k c_k f(z_k) / STEEPNESS

V has what best tells negatives from right inputs (`arachne.search.discriminant`), the detectors of their mean
difference and of those of classes (`arachne.search.shifts`), which tell the fault and, among inputs with it, the
classes. Training begins at units that fire above the same threshold and do nothing, c_k = 0, each with a class of
its own; it follows the margin loss (`arachne.search.margin`). Where the units do not fire, scores stay as they
were, so right inputs pay only as far as they look like the fault.

One unit is trained, and then as many as the model has to spare. A point is judged by runs without a fold each; its
patch is that of a run over all inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from arachne.errors import UsageError
from arachne.model.backend import LossGradient
from arachne.model.values import Array, LayerInfo
from arachne.plugins.options import option
from arachne.scoring.functions import Function, apply, chain, slope
from arachne.search.direction_search import DirectionSearch, Material, Site, own_arrays
from arachne.search.directions import max_moment_rows, on_grid
from arachne.search.discriminant import find_discriminant
from arachne.search.folds import draw_batch, draw_rows, rows_by_kind
from arachne.search.gate import find_gates_layer, measure_uses
from arachne.search.gradient import STEPS_PER_POINT, take_adam_step
from arachne.search.influence import rounded_scale
from arachne.search.layer_inputs import spread
from arachne.search.margin import margin_loss
from arachne.search.problem import Problem
from arachne.search.state import Candidate
from arachne.weights.selection import Selection

RATE, READING_RATE = 0.05, 0.015
"""The size of a step in the scores that units give, in margins, and in what they read."""

STEEPNESS, GRID = 10.0, 256.0
"""By how much units read more and do less than in training, so that smooth functions fire sharply as well; numbers
trained are whole numbers of 1 / GRID, so that rounding in another framework gives the same patch."""

SHARE_ABOVE, APART = 0.001, 0.5
"""The share of right inputs above the threshold at the start, and how far units begin from each other."""

SPARE = 0.05
"""A unit is unused that moves the scores of right inputs by less than this share of the unit of margins."""

MAX_WEIGHTS = 10_000
"""The largest number of weights of the units together."""


@dataclass(frozen=True, kw_only=True)
class Gates(DirectionSearch):
    """Trains the least used units of the last hidden layer to fire where the fault is and to tell its classes apart.

    Attributes:
        steps: The number of gradient steps of each run.
        batch: The largest number of negatives, and of positives, that one step uses; each step draws them anew.
        units: The largest number of units.
    """

    name = "gates"

    DRAWS_ALIKE = True

    steps: int = option(128, "Gradient steps of each run.", least=STEPS_PER_POINT)
    batch: int = option(1000, "Negatives, and positives, that one step looks at.", least=1)
    units: int = option(8, "Hidden units it may change, at most.", least=1)

    def layers(self, problem: Problem) -> list[LayerInfo]:
        """Return the last hidden layer.

        Raises:
            UsageError: The model has none whose units can be gates, or the user does not allow the change.
        """
        found = find_gates_layer(problem)
        if slope(chain(found.followed_by) or ()) is None:
            raise UsageError(f"more than one function follows '{found.name}'")
        if problem.max_weights is not None:
            raise UsageError(f"it changes all that its units read, and {problem.max_weights:,} weights may change")
        return [found]

    def sites(self, problem: Problem) -> list[Site]:
        """Return the layer once: what tells classes apart is not among the inputs that the fault marks."""
        return [Site(info) for info in self.layers(problem)]

    def fit(
        self, problem: Problem, material: Material, fold: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], Array]:
        """Train without a fold; every few steps are a point, of one unit first and then of all."""
        aside, right = material.rows_in(fold), []
        reading = _read(problem, material, fold)
        for count in self._counts(problem, material):
            head = Head.of(problem, material.info, count)
            for trained in self._train(problem, material, head, reading, fold, rng=rng):
                scores = head.scores(trained, reading.along[aside], aside)
                right.append(problem.fitness_inputs.correct(scores.astype(np.float32), aside))
        return {}, np.stack(right)

    def skip_fit(self, problem: Problem, material: Material, fold: int, *, rng: np.random.Generator) -> None:
        by_kind = rows_by_kind(problem, material.folds != fold)
        for _ in range(self.steps * len(self._counts(problem, material))):
            draw_rows(by_kind, self.batch, rng=rng)

    def fit_all(
        self, problem: Problem, material: Material, found: Mapping[str, Array], *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Train on all inputs: that is the change that is handed back."""
        reading = _read(problem, material, -1)
        arrays: dict[str, Array] = {}
        for number, count in enumerate(self._counts(problem, material)):
            head = Head.of(problem, material.info, count)
            path = self._train(problem, material, head, reading, -1, rng=rng)
            arrays |= {f"trained {number}": np.stack(path), f"units {number}": head.units}
        arrays |= {"detectors": reading.detectors, "middle": reading.middle, "spread": reading.spread}
        return {**arrays, "unit": np.array(problem.margin_unit)}

    def _counts(self, problem: Problem, material: Material) -> list[int]:
        """Return how many units are trained: one, and as many as there are to spare."""
        width, classes = material.weight.shape[1], problem.original_scores.shape[1]
        uses = measure_uses(problem, material.info)
        spare = int((uses <= SPARE * problem.margin_unit).sum())
        most = min(self.units, spare, MAX_WEIGHTS // (width + 1 + classes))
        return [1, most] if most > 1 else [1]

    def _train(
        self,
        problem: Problem,
        material: Material,
        head: Head,
        reading: _Reading,
        without: int,
        *,
        rng: np.random.Generator,
    ) -> list[Array]:
        """Train units without a fold; return the numbers after every few steps, float64 `(r + 1 + classes, K)` each."""
        along, negative = reading.along, problem.fitness_inputs.of_kind("negative")
        among = material.folds != without
        positive = problem.fitness_inputs.of_kind("positive") & among
        trained, path = _start(head, along[negative & among, 0], along[positive, 0], along.shape[1]), []
        rates = np.full(trained.shape, READING_RATE)
        rates[along.shape[1] + 1 :] = RATE
        by_kind, moments = rows_by_kind(problem, among), np.zeros((2, trained.size))
        for number in range(self.steps):
            batch = draw_batch(problem, by_kind, self.batch, rng=rng)
            loss = margin_loss(problem, batch, number / max(1, self.steps - 1))
            slopes = head.gradient(trained, along[batch.rows], batch.rows, loss)
            step = take_adam_step(moments[0], moments[1], slopes.ravel(), number + 1)
            trained = trained - rates * step.reshape(trained.shape)
            if (number + 1) % STEPS_PER_POINT == 0:
                path.append(np.rint(GRID * trained) / GRID)
        return path

    def change(self, found: Mapping[str, Array], point: int) -> tuple[Array, Array]:
        """Return the units' weights with their biases behind them `(in + 1, K)`, and their columns `(classes, K)`."""
        part, at = divmod(point, len(found["trained 0"]))
        rows, bias, columns = _weights_of(found, found[f"trained {part}"][at])
        return np.vstack([rows.T, bias]), columns

    def candidates(
        self, problem: Problem, arrays: Mapping[str, Array], chosen: list[tuple[Site, int, int, Array]]
    ) -> list[Candidate]:
        """Make candidates of single weights: the units' rows and biases, and their columns in the last layer."""
        made = []
        for site, number, point, judged in chosen:
            found = own_arrays(arrays, number)
            (read, columns), width = self.change(found, point), len(found["detectors"])
            units = found[f"units {point // len(found['trained 0'])}"]
            limited = _limit(problem, site.info, units)
            values, last = limited.suspects.values.copy(), problem.backend.layers[-1].parameters["weight"].shape[1]
            for slice_ in limited.suspects.slices:
                if slice_.layer != site.info.name:
                    own = columns[slice_.flat // last, _places(units, slice_.flat % last)]
                elif slice_.parameter == "bias":
                    own = read[-1, _places(units, slice_.flat)]
                else:
                    own = read[slice_.flat % width, _places(units, slice_.flat // width)]
                values[slice_.numbers] = own
            with np.errstate(over="ignore"):
                values = limited.round_to_storage(values)
            if np.isfinite(values).all():
                made.append(limited.score(Candidate(limited.suspects, values, None, self.name, judged)))
        return made


@dataclass(frozen=True, eq=False)
class _Reading:
    """The directions that units may read, and how far inputs go along them.

    Attributes:
        detectors: V, float32 `(in, r)`; the first tells negatives from right inputs.
        middle: The mean of Vᵀ h over right inputs, in deviations, `(r,)`.
        spread: Its deviation over right inputs, `(r,)`.
        along: How far each input goes along V, from the middle and in deviations, `(inputs, r)`.
    """

    detectors: Array
    middle: Array
    spread: Array
    along: Array


def _read(problem: Problem, material: Material, without: int) -> _Reading:
    """Find the detectors of a fit without a fold, and how far each input goes along them."""
    mean = material.shifts.mean(without)
    mean = mean if mean.any() else material.shifts.mean(without, 0.0)
    differences = np.column_stack([mean, material.shifts.own(without), material.shifts.read_as(without)])
    columns, whitened = material.whiten(differences, without)
    sizes = np.sqrt(np.maximum(np.einsum("ij,ij->j", columns, whitened), 0.0))
    detectors = np.divide(whitened, sizes, out=np.zeros_like(whitened), where=sizes > 0)
    detectors = on_grid(np.column_stack([_tell_apart(problem, material, without), detectors]))
    along = np.concatenate([own @ detectors for _, own in material.inputs.pieces()]).astype(np.float64)
    right = along[problem.fitness_inputs.of_kind("positive") & (material.folds != without)]
    spread = rounded_scale(right.std(axis=0)) if len(right) else np.zeros(along.shape[1])
    spread[spread == 0] = 1.0
    middle = np.rint(GRID * right.mean(axis=0) / spread) / GRID if len(right) else np.zeros(along.shape[1])
    return _Reading(detectors, middle, spread, along / spread - middle)


def _tell_apart(problem: Problem, material: Material, without: int) -> Array:
    """Return what tells negatives from right inputs, fitted without a fold, `(in,)`; zeros where either are none."""
    negative = np.flatnonzero(problem.fitness_inputs.of_kind("negative") & (material.folds != without))
    rows, _ = material.inputs.samples(spread(negative, max_moment_rows(material.weight.shape[1])))
    moments = material.moments
    return find_discriminant(rows, moments.rows, np.flatnonzero((moments.folds != without) | (moments.folds < 0)))


def _start(head: Head, negative: Array, positive: Array, count: int) -> Array:
    """Return units that fire above a threshold and do nothing, `(r + 1 + classes, K)`.

    Args:
        head: The units.
        negative: How far negatives go along the first detector.
        positive: How far right inputs go along it.
        count: How many detectors there are.
    """
    found = np.zeros((count + 1 + len(head.columns), len(head.units)))
    middle = float(np.median(negative)) if len(negative) else 1.0
    threshold = float(np.quantile(positive, 1 - SHARE_ABOVE)) if len(positive) else 0.0
    threshold = threshold if threshold < middle else middle - 1.0
    found[0] = np.rint(GRID / (middle - threshold)) / GRID
    found[count] = -np.rint(GRID * threshold / (middle - threshold)) / GRID
    for unit in range(1, found.shape[1]) if count > 1 else ():
        lap, own = divmod(unit - 1, count - 1)
        found[1 + own, unit] += APART if lap % 2 == 0 else -APART
    return found


@dataclass(frozen=True, eq=False)
class Head:
    """The last two layers, with some units to train.

    Attributes:
        units: Their numbers `(K,)`.
        columns: Their weights in the last layer `(classes, K)`.
        without: The scores of all inputs without them `(inputs, classes)`.
        unit: The unit of margins.
        functions: What follows the hidden layer.
        derivative: Its derivative.
    """

    units: Array
    columns: Array
    without: Array
    unit: float
    functions: tuple[Function, ...]
    derivative: Function

    @classmethod
    def of(cls, problem: Problem, info: LayerInfo, count: int) -> Head:
        """Take the least used units of a layer."""
        kept: dict[tuple[str, int], Head] = problem.shared.setdefault("units of gates", {})
        key = info.name, count
        if key not in kept:
            functions, tail = chain(info.followed_by) or (), problem.tail
            derivative = slope(functions)
            if tail is None or derivative is None:
                raise ValueError(f"no units of '{info.name}' can be gates")
            units = np.argsort(measure_uses(problem, info), kind="stable")[:count]
            weight = problem.backend.read_weights(problem.backend.layers[-1].name)["weight"]
            columns = np.asarray(weight[:, units], np.float64)
            firing = apply(functions, np.asarray(tail.leaving(info.name)[:, units], np.float64))
            without = problem.original_scores - firing @ columns.T
            kept[key] = cls(units, columns, without, problem.margin_unit, functions, derivative)
        return kept[key]

    def scores(self, trained: Array, along: Array, rows: Array) -> Array:
        """Return the scores of some inputs, float64 `(rows, classes)`."""
        count = along.shape[1]
        firing = apply(self.functions, STEEPNESS * (along @ trained[:count] + trained[count]))
        return np.asarray(self.without[rows] + self.unit / STEEPNESS * firing @ trained[count + 1 :].T)

    def gradient(self, trained: Array, along: Array, rows: Array, loss: LossGradient) -> Array:
        """Return the gradient of a loss with respect to all that is trained."""
        count = along.shape[1]
        leaving = STEEPNESS * (along @ trained[:count] + trained[count])
        columns, firing = trained[count + 1 :], apply(self.functions, leaving)
        scores = self.without[rows] + self.unit / STEEPNESS * firing @ columns.T
        pull = self.unit * loss(scores, slice(0, len(rows)))
        entering = pull @ columns * self.derivative(leaving)
        return np.vstack([along.T @ entering, entering.sum(axis=0), pull.T @ firing / STEEPNESS])


def _weights_of(found: Mapping[str, Array], trained: Array) -> tuple[Array, Array, Array]:
    """Return the units' weights `(K, in)`, their biases `(K,)` and their columns in the last layer `(classes, K)`."""
    count = found["detectors"].shape[1]
    read = STEEPNESS * trained[:count] / found["spread"][:, None]
    rows = on_grid(found["detectors"] @ read).T
    bias = STEEPNESS * (trained[count] - found["middle"] @ trained[:count])
    return rows, bias, float(found["unit"]) / STEEPNESS * trained[count + 1 :]


def _limit(problem: Problem, info: LayerInfo, units: Array) -> Problem:
    """Return the problem over all weights of some units: what they read, their biases and their columns."""
    kept: dict[tuple[str, bytes], Problem] = problem.shared.setdefault("problems of gates", {})
    key = info.name, units.tobytes()
    if key not in kept:
        last, width = problem.backend.layers[-1], info.parameters["weight"].shape[1]
        classes, hidden = last.parameters["weight"].shape
        chosen = {
            (info.name, "weight"): (units[:, None] * width + np.arange(width)).ravel(),
            (info.name, "bias"): units,
            (last.name, "weight"): (np.arange(classes)[:, None] * hidden + units).ravel(),
        }
        kept[key] = problem.with_suspects(Selection.at(problem.backend, chosen))
    return kept[key]


def _places(units: Array, numbers: Array) -> Array:
    """Return where some units are among those that are trained."""
    order = np.argsort(units)
    found: Array = order[np.searchsorted(units[order], numbers)]
    return found
