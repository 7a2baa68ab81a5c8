"""The common base of the searches for directions: layer by layer, cross-fitted, judged by what each fit left out.

For each layer, a search fits changes of rank r once without each fold, and counts what they do to the inputs of that
fold. Layer and point (a strength, or a point of a path of training) are told apart by these counts alone.

Where the fault marks few of the inputs of a dense layer (a stuck pixel, a sticker), a second fit uses these alone. All
others then tell nothing of the fault, and estimates from some hundred negatives are far less noisy; but a fault that
only shows against its surroundings, such as rows that are dark, is seen better by the first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from arachne.errors import UsageError
from arachne.model.memory import release_freed_memory
from arachne.model.values import Array, LayerInfo
from arachne.plugins.options import option
from arachne.scoring.low_rank import is_in_tail
from arachne.search.ahead import Runs, ahead_of
from arachne.search.base import Searcher
from arachne.search.cross_fit import outcomes, select_front
from arachne.search.directions import SecondMoments
from arachne.search.folds import fold_numbers
from arachne.search.layer_inputs import LayerInputs, read_layer_inputs
from arachne.search.problem import FITTED_TO, Problem
from arachne.search.shifts import MIN_T, Kinds, Shifts
from arachne.search.state import Candidate, Generation, SearchResult, SearchState
from arachne.weights.edit import LowRankEdit

LINEAR_LAYERS = ("dense", "conv", "recurrent")
"""The kinds of layers that are linear in what enters them."""

MAX_KEPT = 2
"""Of how many layers that is kept which fits are made of."""

MAX_MARKED_SHARE = 0.5
"""The largest share of a layer's inputs that a fault may mark for these to be fitted alone."""


@dataclass(frozen=True)
class Site:
    """A layer to change, by all of its inputs or by those alone that the fault marks."""

    info: LayerInfo
    is_narrow: bool = False


@dataclass(frozen=True, eq=False)
class Material:
    """Everything that the fits of one layer are made of.

    Attributes:
        info: The layer.
        inputs: What enters it.
        shifts: How that differs when the fault happens.
        moments: Its second moments where the model is right.
        weight: The matrix, or the kernel as one, float32 `(out, in)`.
        folds: The fold of each fitness input `(inputs,)`.
        is_near: Whether it is one of the dense layers at the end.
        is_cheap: Whether a trial there costs no part of the model: that of whole numbers does.
        is_narrow: Whether the fits use only inputs of the layer that the fault marks.
        means: The results of `whiten_mean`, which searches share.
    """

    info: LayerInfo
    inputs: LayerInputs
    shifts: Shifts
    moments: SecondMoments
    weight: Array
    folds: Array
    is_near: bool
    is_cheap: bool
    is_narrow: bool = False
    means: dict[tuple[int, bool], tuple[Array, Array]] = field(default_factory=dict)

    @property
    def is_marked(self) -> bool:
        """Whether the fault marks some inputs of the layer and leaves most of them as they are."""
        return bool(0 < len(self.marked_inputs(-1)) <= MAX_MARKED_SHARE * np.count_nonzero(self.moments.sizes))

    def marked_inputs(self, without: int) -> Array:
        """Return the numbers of the layer's inputs that the fault marks: it moves them by more than chance does."""
        shift, errors = self.shifts.mean(without), self.moments.deviations / np.sqrt(max(1, self.shifts.count(without)))
        return np.flatnonzero((shift != 0) & (np.abs(shift) >= MIN_T * errors))

    def rows_in(self, fold: int) -> Array:
        """Return the fitness inputs of a fold."""
        return np.flatnonzero(self.folds == fold)

    def whiten(self, differences: Array, without: int) -> tuple[Array, Array]:
        """Return differences of inputs `(width, k)` as vectors that the weights meet, M and R M `(n, columns)`."""
        columns = self.inputs.columns(differences)
        if not self.is_narrow:
            return columns, self.moments.solve(columns, without)
        marked, (inside, solved) = self.marked_inputs(without), np.zeros((2, *columns.shape))
        if len(marked):
            inside[marked] = columns[marked]
            solved[marked] = self.moments.narrow(marked).solve(columns[marked], without)
        return inside, solved

    def whiten_mean(self, without: int) -> tuple[Array, Array]:
        """Return the mean difference as `whiten` does; it is computed once."""
        key = without, self.is_narrow
        if key not in self.means:
            self.means[key] = self.whiten(self.shifts.mean(without)[:, None], without)
        return self.means[key]


@dataclass(frozen=True, kw_only=True)
class DirectionSearch(Searcher):
    """Changes whole matrices along a few directions.

    Attributes:
        folds: Into how many folds the inputs fall.
        deep_layers: How many of the last layers before the dense ones at the end are tried, where the model has no
            hidden dense layers there or none may be changed; behind these every trial runs a part of the model.
    """

    LOCALISER = "contrast"
    CROSS_FITS = True
    LOOKS_AT_TAIL = True
    USES_ALPHA = False
    NEEDS_SINGLE_LABEL = True
    CHANGES_MATRICES = True

    DRAWS_ALIKE: ClassVar[bool] = False
    """Whether a fit draws the same random numbers whatever it computes, and `skip_fit` draws them; other processes may
    then begin with later folds."""

    folds: int = option(4, "Runs, each over all seen inputs but a share of them.", least=2)
    deep_layers: int = option(1, "Layers to try before the dense ones, where no hidden one is among these.", least=0)

    @abstractmethod
    def fit(
        self, problem: Problem, material: Material, fold: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], Array]:
        """Fit one layer without a fold.

        Returns:
            Arrays to keep, and which inputs of the fold are right at each point, bool `(points, inputs)`.
        """

    def fit_all(
        self, problem: Problem, material: Material, found: Mapping[str, Array], *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Fit one layer to all inputs, after its fits without a fold; return arrays to keep, or none of them.

        Args:
            problem: What to repair.
            material: The layer.
            found: The arrays of its fits without a fold, as for `change`.
            rng: Where all randomness comes from.
        """
        return {}

    @abstractmethod
    def change(self, found: Mapping[str, Array], point: int) -> tuple[Array, Array]:
        """Return the change at a point, float32 `(out, r)` and `(in, r)`.

        Args:
            found: The arrays of all fits of the layer; those of fold 1 are named `name 1`, those of the fit to all
                inputs `name`.
            point: The point.
        """

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        if problem.fitness_inputs.decisions is not None or not problem.fitness_inputs.task.SINGLE:
            raise UsageError("this search compares whole inputs, and needs one label for each")
        self.sites(problem)
        folds = fold_numbers(problem, self.folds, rng=np.random.default_rng(0))  # searches share what they gather
        fitness = float(problem.fitness_inputs.weights @ problem.originally_right)
        return SearchState({"folds": folds}, {"layer": 0, "fold": 0}, (Generation(0, fitness, 0, 0, 0, 0),))

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Fit one layer without one fold, and judge every point by the inputs of that fold."""
        sites, (number, fold) = self.sites(problem), _at(state)
        arrays, folds = dict(state.arrays), state.arrays["folds"]
        site = sites[number]
        material = replace(gather(problem, site.info, folds, self.folds), is_narrow=site.is_narrow)
        if material.is_narrow and not material.is_marked:
            arrays[f"{number}: judged"] = problem.originally_right[None][:0]
            return self._move_on(problem, arrays, number + 1, 0, state.history)
        found, judged = self._reach(problem, material, (number, fold), rng=rng)
        arrays |= {f"{number}: {name} {fold}": array for name, array in found.items()}
        before = arrays.get(f"{number}: judged")
        right = np.tile(problem.originally_right, (len(judged), 1)) if before is None else before.copy()
        right[:, folds == fold] = judged
        arrays[f"{number}: judged"] = right
        if fold == self.folds - 1:
            whole = self.fit_all(problem, material, own_arrays(arrays, number), rng=rng)
            arrays |= {f"{number}: {name}": array for name, array in whole.items()}
        history = (*state.history, _generation(problem, state.history[-1], right, len(judged)))
        number, fold = (number, fold + 1) if fold + 1 < self.folds else (number + 1, 0)
        return self._move_on(problem, arrays, number, fold, history)

    def skip_fit(self, problem: Problem, material: Material, fold: int, *, rng: np.random.Generator) -> None:
        """Draw the random numbers of a fit without a fold, and do nothing else; called if `DRAWS_ALIKE`."""

    def _reach(
        self, problem: Problem, material: Material, at: tuple[int, int], *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], Array]:
        """Return the fit of a layer without a fold; another process may have computed it."""
        (number, fold), kind = at, material.info.name
        ahead, name = ahead_of(problem), f"{self.name}, layer {number}"
        others = fold + 1 < self.folds and self.DRAWS_ALIKE and material.is_cheap and problem.is_tail_at_hand
        if others and not ahead.is_shared(name, fold + 1):
            compute, skip = partial(self._give_fit, problem, material), partial(self.skip_fit, problem, material)
            ahead.share(name, kind, range(fold, self.folds), Runs(compute, skip), rng=rng)
        found: tuple[dict[str, Array], Array] | None = ahead.take(name, fold, kind, rng=rng)
        if found is not None:
            return found
        before = rng.bit_generator.state
        with ahead.timing(kind):
            found = self.fit(problem, material, fold, rng=rng)
        ahead.give(name, fold, before, found, rng=rng)
        return found

    def _give_fit(
        self, problem: Problem, material: Material, fold: int, *, rng: np.random.Generator
    ) -> Iterator[tuple[dict[str, Array], Array]]:
        yield self.fit(problem, material, fold, rng=rng)

    def _move_on(
        self, problem: Problem, arrays: dict[str, Array], number: int, fold: int, history: tuple[Generation, ...]
    ) -> SearchState:
        """Return the state before the fit of a site without a fold; there may be none left."""
        stopped = "all layers are done" if number == len(self.sites(problem)) else None
        return SearchState(arrays, {"layer": number, "fold": fold}, history, stopped)

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        """Return the points that no other beats out of fold, in layers where every fold has been judged."""
        sites, original = self.sites(problem), problem.fitness_inputs.deficits_by_term(problem.original_scores)
        done = range(_at(state)[0])
        by_layer = [state.arrays[f"{number}: judged"] for number in done]
        right = np.concatenate([problem.originally_right[None][:0], *by_layer])
        pairs = [(number, point) for number in done for point in range(len(by_layer[number]))]
        costs = problem.objective_costs(right) if problem.has_objective and len(right) else None
        chosen = [(sites[pairs[row][0]], *pairs[row], right[row]) for row in select_front(problem, right, costs=costs)]
        front = self.candidates(problem, state.arrays, chosen)
        suspects = problem.suspects
        nothing = Candidate(suspects, suspects.values, original, self.name, problem.originally_right)
        totals = [int(one.deficits.sum()) for one in front if one.deficits is not None]
        best = int(np.argmin(totals)) if totals and min(totals) < int(original.sum()) else 0
        return problem.result(state, *(front or [nothing]), original=original, chosen=best)

    def candidates(
        self, problem: Problem, arrays: Mapping[str, Array], chosen: list[tuple[Site, int, int, Array]]
    ) -> list[Candidate]:
        """Make candidates of points, with their deficits.

        Args:
            problem: What to repair.
            arrays: The arrays of all fits.
            chosen: The site of each point with its number, the point, and which inputs are right out of fold.
        """
        edits = [_edit(site.info, *self.change(own_arrays(arrays, number), at)) for site, number, at, _ in chosen]
        order = sorted(range(len(edits)), key=lambda one: edits[one].key)  # those of a layer share a pass
        scores = problem.edited_scores([edits[one] for one in order])
        deficits = {one: problem.fitness_inputs.deficits_by_term(own) for one, own in zip(order, scores, strict=True)}
        return [Candidate.of_edit(edit, deficits[n], self.name, chosen[n][3]) for n, edit in enumerate(edits)]

    def sites(self, problem: Problem) -> list[Site]:
        """Return the layers to change; the dense ones at the end come twice, the second time by marked inputs."""
        return [
            Site(info, is_narrow)
            for info in self.layers(problem)
            for is_narrow in ((False, True) if problem.is_near(info) else (False,))
        ]

    def layers(self, problem: Problem) -> list[LayerInfo]:
        """Return the layers to change, the last one first: the dense tail, and where it is short, others too.

        Raises:
            UsageError: The model has none, or the user allows none.
        """
        known = [info for info in reversed(problem.backend.layers) if info.kind in LINEAR_LAYERS and info.weights]
        if not known:
            raise UsageError(
                "the model has no dense, convolutional or recurrent layer, and this search changes no other"
            )
        allowed = problem.allowed_layers(known, "all dense, convolutional and recurrent layers")
        near = [info for info in allowed if problem.is_near(info)]
        hidden = [info for info in near if info.name != problem.backend.layers[-1].name]
        return near if hidden else [*near, *[info for info in allowed if info not in near][: self.deep_layers]]


def gather(problem: Problem, info: LayerInfo, folds: Array, count: int) -> Material:
    """Gather the arrays that a layer is fitted from; those of the last few layers stay cached."""
    kept: dict[tuple[str, int, bytes], Material] = problem.shared.setdefault(FITTED_TO, {})
    key = info.name, count, folds.tobytes()
    if key in kept:
        return kept[key]
    while len(kept) >= MAX_KEPT:
        del kept[next(iter(kept))]
    release_freed_memory()
    inputs = problem.fitness_inputs
    negative, positive, guarded = (inputs.of_kind(kind) for kind in ("negative", "positive", "never_break"))
    read_as = inputs.task.decide(problem.original_scores)
    entering = read_layer_inputs(problem, info)
    kinds = Kinds(inputs.labels, read_as, negative, positive, folds, count)
    shifts = Shifts(kinds, entering.pieces())
    rows, owners = entering.samples(np.flatnonzero(positive | guarded))
    moments = SecondMoments(rows, np.where(guarded, -1, folds)[owners])
    whole = problem.backend.read_weights(info.name)[entering.parameter]
    weight = np.asarray(whole, np.float32).reshape(len(whole), -1)
    near, cheap = problem.is_near(info), is_in_tail(problem.tail, (info.name, "weight"))
    kept[key] = Material(info, entering, shifts, moments, weight, folds, near, cheap)
    return kept[key]


def _edit(info: LayerInfo, left: Array, right: Array) -> LowRankEdit:
    """Make the edit of a layer, from `(out, r)` and `(in, r)`.

    Zeros get a plus: the sign that a matrix product gives them depends on the processor.
    """
    storage = info.parameters[info.weights[0]].storage
    return LowRankEdit(info.name, info.weights[0], left + 0.0, right + 0.0, storage)


def own_arrays(arrays: Mapping[str, Array], number: int) -> dict[str, Array]:
    """Return the arrays of one layer's fits by their names there; of any shape."""
    prefix = f"{number}: "
    return {key.removeprefix(prefix): one for key, one in arrays.items() if key.startswith(prefix)}


def _at(state: SearchState) -> tuple[int, int]:
    """Return the layer and the fold that come next."""
    return int(state.values["layer"] or 0), int(state.values["fold"] or 0)


def _generation(problem: Problem, last: Generation, right: Array, evaluations: int) -> Generation:
    """Describe the best point of the layer; inputs that were not judged yet count as in the original model."""
    repaired, broken = outcomes(problem, right)
    fitness = right @ problem.fitness_inputs.weights
    best = int(np.argmax(fitness))
    counts = float(fitness[best]), int(repaired[best]), int(broken[best])
    return Generation(last.number + 1, *counts, last.evaluations + evaluations, 0)
