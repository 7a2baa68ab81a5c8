"""Norms: statistics of normalisations estimated again from the seen inputs, without labels.

A batch normalisation stores the mean and deviation that its input had in training. Where the data's are others, what
enters its scale has mean m and deviation s by channel, not 0 and 1. With

    scale' = scale / s        bias' = bias - scale m / s

the layer gives what it would with the data's own statistics; those it stores stay as they are. Layers are mended in
order of execution, each one's moments measured behind those before it that are mended already. All seen inputs count,
right or wrong, whatever the target is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arachne.data.health import MENDED
from arachne.data.norm_moments import NormAccumulator, estimate_again
from arachne.errors import UsageError
from arachne.model.values import Array, LayerInfo, take
from arachne.plugins.options import option
from arachne.search.cross_fit import CrossFitted
from arachne.search.layer_inputs import spread
from arachne.search.problem import Problem
from arachne.search.state import SearchState
from arachne.weights.selection import Selection

PROBED = 32
"""Inputs that tell which normalisations store statistics."""


@dataclass(frozen=True, kw_only=True)
class Norms(CrossFitted):
    """Estimates the statistics of batch normalisations again from the data, in their scales and biases.

    Attributes:
        inputs: The most inputs that statistics are estimated from.
    """

    name = "norms"

    GRID: ClassVar[float] = 1024.0
    USES_ALPHA = False

    inputs: int = option(512, "Inputs to estimate statistics from, at most.", least=2)

    @property
    def points(self) -> int:
        return 1

    def select_weights(self, problem: Problem) -> Problem:
        return problem.with_selection("norms", lambda: _select_norms(problem))

    def scale(self, problem: Problem, *, rng: np.random.Generator) -> Array:
        """Return the largest scale of each layer, for its scales and biases."""
        scale, selection = np.zeros(len(problem.suspects)), problem.suspects
        for layer in selection.layers:
            own = selection.in_layer(layer)
            scale[own] = np.abs(problem.backend.read_weights(layer)["scale"]).max()
        return scale

    def initial(self, problem: Problem, scale: Array) -> dict[str, Array]:
        return {"change": np.zeros(len(scale))}

    def advance(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], int]:
        """Mend one layer after the other from the inputs outside the fold."""
        seen = problem.split.seen
        counted = np.arange(len(seen.decisions)) if problem.rows is None else problem.rows
        aside = seen.decisions.inputs[counted[state.arrays["folds"][: len(counted)] == fold]]
        values = _mend(problem, spread(np.setdiff1d(np.arange(len(seen)), aside), self.inputs))
        scale = state.arrays["scale"]
        change = np.divide(values - problem.suspects.values, scale, out=np.zeros(len(scale)), where=scale > 0)
        return {"change": change}, 0


def _mend(problem: Problem, rows: Array) -> Array:
    """Return new scales and biases of the suspects' layers from some of the seen inputs, float64 `(k,)`."""
    selection = problem.suspects
    mended = estimate_again(problem.backend, selection.layers, take(problem.split.seen.data.inputs, rows))
    return np.concatenate([mended[one.key].reshape(-1)[one.flat] for one in selection.slices]).astype(np.float64)


def _select_norms(problem: Problem) -> Selection:
    """Choose every scale and bias of the normalisations that store statistics.

    Raises:
        UsageError: The model has none, or the user allows none.
    """
    backend = problem.backend
    known = [info for info in backend.layers if info.kind == "norm" and set(info.parameters) >= MENDED]
    found: list[LayerInfo] = []
    if known:
        watch = NormAccumulator()
        seen = problem.split.seen
        inputs = take(seen.data.inputs, spread(np.arange(len(seen)), PROBED))
        backend.observe(inputs, [info.name for info in known], watch)
        found = [info for info in known if info.name in watch.norms and watch.norms[info.name].stores_statistics]
    if not found:
        raise UsageError(
            "the model has no batch normalisation with statistics, a scale and a bias; an export often folds them into "
            "the layer before, so repair the model before its export"
        )
    layers = problem.allowed_layers(found, "the batch normalisations")
    return Selection.whole(backend, [(info.name, name) for info in layers for name in sorted(MENDED)])
