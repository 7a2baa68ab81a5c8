"""Bidirectional localisation, the paper's Algorithm 1: gradient loss and forward impact, and their Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.backend import ModelBackend, Weights
from arachne.data.split import Part
from arachne.errors import NothingToRepairError, UsageError
from arachne.localise.base import Localisation, Localiser, ParameterScores, sample_positives
from arachne.localise.pareto import front, order_by_fronts, survivors
from arachne.losses import cross_entropy
from arachne.options import option
from arachne.suspects import Suspects
from arachne.values import Address, Array, LayerInfo, take

MIN_WEIGHTS = 5
"""What a repair takes for `min_weights`: with fewer suspects the search has too little to trade with."""


@dataclass(frozen=True, kw_only=True)
class Bidirectional(Localiser):
    """The weights on the Pareto front of gradient loss and forward impact.

    Attributes:
        min_weights: The least number of suspects. The first front may be a single weight, which leaves the search
            little to work with; then the next fronts are added, best first. 0 keeps to the first front, as the paper
            does.
        include: Layers to look at; all when empty.
        exclude: Layers to leave out.
        biases: Whether biases count too.
        count: Take this many weights from the top of the ranking instead of the first front.
    """

    name = "bl"

    min_weights: int = option(0, "Widen a front smaller than this.", least=0)

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        scores = self.scores(backend, part, rng=rng)
        ranked, first = most_suspicious(scores, self.count or self.min_weights)
        chosen = ranked[: self.count] if self.count else ranked
        return Localisation(
            method=self.name,
            suspects=Suspects.of(backend, chosen),
            scores=scores,
            front=min(first, len(chosen)),
            n_candidates=sum(map(len, scores)),
        )

    def scores(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> tuple[ParameterScores, ...]:
        """Both scores of every weight, Algorithm 1 up to line 11."""
        if not backend.SUPPORTS_GRADIENTS:
            raise UsageError(f"backend '{backend.NAME}' has no gradients, so only the localiser 'rs' works with it")
        if not len(part.negatives):
            raise NothingToRepairError("no negative inputs: the model does not make this mistake on the seen data")
        layers = self.layers(backend)
        positives = sample_positives(part, rng=rng)
        losses = self._gradient_loss(backend, part, positives, layers)
        impacts = self._forward_impact(backend, part, positives, layers)
        return tuple(
            ParameterScores(info.name, parameter, losses[info.name, parameter], impacts[info.name][parameter])
            for info, parameter in self.candidates(backend)
        )

    def _gradient_loss(
        self, backend: ModelBackend, part: Part, positives: Array, layers: Sequence[LayerInfo]
    ) -> Weights:
        """`|dL/dw| over the negatives / (1 + |dL/dw| over the positives)`, computed in place."""
        places = [(info.name, parameter) for info in layers for parameter in self.parameters(info)]
        negative = _loss_gradients(backend, part, part.negatives, places)
        positive = _loss_gradients(backend, part, positives, places) if len(positives) else None
        for place in places:
            above = negative[place]
            np.abs(above, out=above)
            if positive is not None:
                below = positive[place]
                np.abs(below, out=below)
                below += 1
                above /= below
        return negative

    def _forward_impact(
        self, backend: ModelBackend, part: Part, positives: Array, layers: Sequence[LayerInfo]
    ) -> Mapping[str, Mapping[str, Array]]:
        # Imported here and not above: it needs scipy, which is slow to load, and options are asked for without it.
        from arachne.localise.impact import LINEAR, impact_ratio, measure_flows

        classes = scored_classes(part)
        names = [info.name for info in layers if info.kind in LINEAR]
        negative = measure_flows(backend, take(part.data.inputs, part.negatives), names, classes, part.n_classes)
        positive = (
            measure_flows(backend, take(part.data.inputs, positives), names, classes, part.n_classes)
            if len(positives)
            else {name: [] for name in names}
        )
        impacts: dict[str, dict[str, Array]] = {}
        for info in layers:
            weights = backend.get_weights(info.name)
            if info.kind in LINEAR:
                # Float32 copies that the impact overwrites. What arrives at an output depends on all the matrices.
                wanted = {
                    name: _float32(weights[name]) for name in dict.fromkeys([*info.weights, *self.parameters(info)])
                }
                impact_ratio(info, wanted, negative[info.name], positive[info.name])
                impacts[info.name] = wanted
            else:
                impacts[info.name] = {name: np.zeros_like(weights[name]) for name in self.parameters(info)}
        return impacts


def scored_classes(part: Part) -> list[int]:
    """The classes whose scores the forward impact uses: all, or `MAX_CLASSES` of them, those of the fault first."""
    from arachne.localise.impact import MAX_CLASSES

    if part.n_classes <= MAX_CLASSES:
        return list(range(part.n_classes))
    fault = np.concatenate([part.data.labels[part.negatives], part.predictions[part.negatives]])
    common = np.argsort(-np.bincount(part.predictions, minlength=part.n_classes), kind="stable")
    return list(dict.fromkeys([*np.unique(fault).tolist(), *common.tolist()]))[:MAX_CLASSES]


def most_suspicious(scores: Sequence[ParameterScores], at_least: int) -> tuple[list[Address], int]:
    """The first front over all parameters, then what follows it in the ranking until there are `at_least` weights.

    Only what is on an early front of its own parameter can be on an early front of all, so the parameters are filtered
    one by one and the whole is never put together.

    Returns:
        The weights, best first, and how many of them are on the first front.
    """
    fronts = max(1, at_least)
    addresses: list[Address] = []
    points: list[Array] = []
    for part in scores:
        losses, impacts = part.gradient_loss.ravel(), part.forward_impact.ravel()
        rows = survivors(losses, impacts, fronts)
        indices = np.stack(np.unravel_index(rows, part.gradient_loss.shape), axis=1).tolist()
        addresses += [Address(part.layer, part.parameter, tuple(index)) for index in indices]
        points.append(np.stack([losses[rows], impacts[rows]], axis=1))
    together = np.concatenate(points)
    first = len(front(together))
    order = order_by_fronts(together)[: max(first, at_least)]
    return [addresses[row] for row in order], first


def _loss_gradients(backend: ModelBackend, part: Part, rows: Array, parameters: Iterable[tuple[str, str]]) -> Weights:
    loss = cross_entropy(part.data.labels[rows], score_kind=backend.score_kind)
    return backend.weight_gradients(take(part.data.inputs, rows), loss, parameters)


def _float32(values: Array) -> Array:
    return values.astype(np.float32, copy=False)
