"""Bidirectional localisation, the paper's Algorithm 1: gradient loss and forward impact, and their Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from arachne.data.part import Part
from arachne.decisions.losses import cross_entropy
from arachne.errors import NothingToRepairError, UsageError
from arachne.localise.base import Localisation, Localiser, ParameterScores, sample_positives
from arachne.localise.pareto import front, order_by_fronts, survivors
from arachne.model.backend import ModelBackend, Weights
from arachne.model.memory import release_freed_memory
from arachne.model.values import Array, LayerInfo, take
from arachne.plugins.options import option
from arachne.weights.selection import Selection

if TYPE_CHECKING:
    from arachne.localise.averages import Averages
    from arachne.localise.impact import ScoredClasses

MAX_EXACT_CLASSES = 50
"""With at most this many classes, every class's score is differentiated for every input."""

MAX_FAULT_CLASSES, BACKWARD_PASSES = 8, 12
"""In models with more classes: the most classes of the fault that every input differentiates, and all passes."""

MAX_AVERAGES_BYTES = 64 << 20
"""Averages of at most this many bytes stay in memory while gradients are computed."""

MIN_WEIGHTS = 5
"""The default of `min_weights` in a repair: with fewer suspects a search has too little freedom."""


@dataclass(frozen=True, kw_only=True)
class Bidirectional(Localiser):
    """The weights on the Pareto front of gradient loss and forward impact.

    Attributes:
        min_weights: The smallest number of suspects. The first front may be a single weight, which leaves the search
            little freedom; then the next fronts are added, best first. 0 takes the first front alone, as the paper
            does.
        every_class: Whether the forward impact differentiates every class's score for every input. Otherwise models
            with more than 50 classes take 12 backward passes: up to 8 for classes of the fault, and the other classes
            take turns.
        include: Layers to localise in; all when empty.
        exclude: Layers to leave out.
        biases: Whether biases count too.
        count: Take this many weights from the top of the ranking instead of the first front.
    """

    name = "bl"

    NEEDS_SINGLE_LABEL = True

    min_weights: int = option(0, "Widen a front smaller than this.", least=0)
    every_class: bool = option(
        False, "Differentiate every class's score for every input, however many there are.", paper=True
    )

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        scores = self.scores(backend, part, rng=rng)
        chosen, first = most_suspicious(scores, self.count or self.min_weights, self.count)
        suspects = Selection.at(backend, chosen)
        return Localisation(
            method=self.name,
            suspects=suspects,
            scores=scores,
            front=min(first, len(suspects)),
            n_candidates=sum(map(len, scores)),
        )

    def scores(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> tuple[ParameterScores, ...]:
        """Compute both scores of every weight, Algorithm 1 up to line 11."""
        if not backend.SUPPORTS_GRADIENTS:
            raise UsageError(f"backend '{backend.NAME}' has no gradients, so only the localiser 'rs' works with it")
        if not len(part.negatives):
            raise NothingToRepairError("no negative inputs: the model does not make this mistake on the seen data")
        layers = self.layers(backend)
        positives = sample_positives(part, rng=rng)
        losses, impacts = self._both(backend, part, positives, layers)
        return tuple(
            ParameterScores(info.name, parameter, losses[info.name, parameter], impacts[info.name, parameter])
            for info, parameter in self.candidates(backend)
        )

    def _both(
        self, backend: ModelBackend, part: Part, positives: Array, layers: Sequence[LayerInfo]
    ) -> tuple[Weights, Weights]:
        """Compute gradient loss and forward impact, in the order that needs least memory at a time.

        Averages larger than `MAX_AVERAGES_BYTES` and half of the weights are turned into impacts first, and gradients
        are then computed for some layers at a time. A pass keeps most memory for the first layers, so the first parts
        are small.
        """
        release_freed_memory()
        flows = self._flows(backend, part, positives, layers)
        weights = sum(entry.size for info in layers for entry in info.parameters.values())
        if sum(side.nbytes for side in flows) < max(MAX_AVERAGES_BYTES, weights * np.dtype(np.float32).itemsize // 2):
            losses = self._gradient_loss(backend, part, positives, layers)
            return losses, self._forward_impact(backend, layers, flows)
        impacts = self._forward_impact(backend, layers, flows)
        losses = {}
        for some in _in_turn(layers):
            losses |= self._gradient_loss(backend, part, positives, some)
        return losses, impacts

    def classes(self, part: Part) -> ScoredClasses:
        """Return the classes whose scores' gradients the forward impact sums, and their schedule."""
        return scored_classes(part, part.n_classes if self.every_class else MAX_EXACT_CLASSES)

    def _gradient_loss(
        self, backend: ModelBackend, part: Part, positives: Array, layers: Sequence[LayerInfo]
    ) -> dict[tuple[str, str], Array]:
        """`|dL/dw| over the negatives / (1 + |dL/dw| over the positives)`, computed in place."""
        keys = [(info.name, parameter) for info in layers for parameter in self.parameters(info)]
        negative = dict(_loss_gradients(backend, part, part.negatives, keys))
        positive = dict(_loss_gradients(backend, part, positives, keys)) if len(positives) else {}
        for key in keys:
            above, below = negative[key], positive.pop(key, None)
            np.abs(above, out=above)
            if below is not None:
                np.abs(below, out=below)
                below += 1
                above /= below
        release_freed_memory()
        return negative

    def _flows(
        self, backend: ModelBackend, part: Part, positives: Array, layers: Sequence[LayerInfo]
    ) -> list[Averages]:
        """Average the activations and gradients of the layers for the negatives and for the positives."""
        # Imported here and not above: it needs scipy, which is slow to load, and options are asked for without it.
        from arachne.localise.impact import LINEAR, measure_flows

        classes, linear = self.classes(part), [info for info in layers if info.kind in LINEAR]
        sides = [take(part.data.inputs, rows) for rows in (part.negatives, positives)]
        return [measure_flows(backend, side, linear, classes) for side in sides]

    def _forward_impact(
        self, backend: ModelBackend, layers: Sequence[LayerInfo], flows: Sequence[Averages]
    ) -> dict[tuple[str, str], Array]:
        from arachne.localise.impact import LINEAR, impact_ratio

        impacts: dict[tuple[str, str], Array] = {}
        there = held = sum(side.nbytes for side in flows)
        for info in layers:
            # Float32 copies that the impact overwrites. What arrives at an output depends on all the matrices.
            names = dict.fromkeys([*info.weights, *self.parameters(info)])
            weights = backend.get_weights(info.name)
            wanted = {name: _float32(weights[name]) for name in names}
            if info.kind in LINEAR:
                impact_ratio(info, wanted, *(side.take(info.name) for side in flows))
            else:
                wanted = {name: np.zeros_like(values) for name, values in wanted.items()}
            impacts |= {(info.name, name): wanted[name] for name in self.parameters(info)}
            held = sum(side.nbytes for side in flows)
            if (
                there - held > MAX_AVERAGES_BYTES // 4
            ):  # what was taken from the averages makes room for what is made of them
                there = held
                release_freed_memory()
        release_freed_memory()
        return impacts


def scored_classes(part: Part, most: int = MAX_EXACT_CLASSES) -> ScoredClasses:
    """Return all classes; of more than `most`, the classes of the fault, while the others take turns.

    The classes of the fault are the true and predicted classes of the negatives, the most frequent ones first.
    """
    from arachne.localise.impact import ScoredClasses

    every = range(part.n_classes)
    if part.n_classes <= most:
        return ScoredClasses(part.n_classes, tuple(every))
    fault = np.concatenate([part.labels[part.negatives], part.predictions[part.negatives]])
    often = np.bincount(fault, minlength=part.n_classes)
    always = [int(label) for label in np.argsort(-often, kind="stable")[:MAX_FAULT_CLASSES] if often[label]]
    others = [label for label in every if label not in set(always)]
    return ScoredClasses(part.n_classes, tuple(always), tuple(others), BACKWARD_PASSES - len(always))


def _in_turn(layers: Sequence[LayerInfo]) -> list[Sequence[LayerInfo]]:
    """Split the layers into parts that end after about a sixth, a half, three quarters and all of the weights."""
    sizes = np.cumsum([sum(entry.size for entry in info.parameters.values()) for info in layers])
    edges = [0, *np.searchsorted(sizes, sizes[-1] * np.array([1 / 6, 1 / 2, 3 / 4])).tolist(), len(layers)]
    return [layers[start:stop] for start, stop in pairwise(edges) if start < stop]


def most_suspicious(
    scores: Sequence[ParameterScores], at_least: int, at_most: int | None = None
) -> tuple[dict[tuple[str, str], Array], int]:
    """Select the first front over all parameters, and the next weights in the ranking up to `at_least`.

    The worst are left out if there are more than `at_most`.

    A weight on an early front over all parameters is on an early front of its parameter. So the parameters are filtered
    one by one, and never concatenated as a whole.

    Returns:
        The positions in each flattened parameter, best first, and the number of weights on the first front.
    """
    fronts = max(1, at_least)
    positions: list[Array] = []
    points: list[Array] = []
    for number, part in enumerate(scores):
        losses, impacts = part.gradient_loss.ravel(), part.forward_impact.ravel()
        rows = survivors(losses, impacts, fronts)
        positions.append(np.stack([np.full(len(rows), number), rows], axis=1))
        points.append(np.stack([losses[rows], impacts[rows]], axis=1))
    together, both = np.concatenate(points), np.concatenate(positions)
    order = front(together)
    first = len(order)
    # The largest scores are on the first front, so its order does not depend on what is behind it.
    order = order[order_by_fronts(together[order])] if at_least <= first else order_by_fronts(together)[:at_least]
    chosen = both[order[:at_most]]
    found = {(part.layer, part.parameter): chosen[chosen[:, 0] == n, 1] for n, part in enumerate(scores)}
    return found, first


def _loss_gradients(backend: ModelBackend, part: Part, rows: Array, parameters: Iterable[tuple[str, str]]) -> Weights:
    loss = cross_entropy(part.labels[rows], score_kind=backend.score_kind)
    return backend.weight_gradients(take(part.data.inputs, rows), loss, parameters)


def _float32(values: Array) -> Array:
    return values.astype(np.float32, copy=False)
