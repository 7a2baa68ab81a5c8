"""What bidirectional localisation is compared with: gradient loss alone (GL), chance (RS), all weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part
from arachne.errors import UsageError
from arachne.localise.base import Localisation, Localiser
from arachne.localise.bidirectional import Bidirectional, most_suspicious
from arachne.options import option
from arachne.suspects import Suspects
from arachne.values import Address

DEFAULT_COUNT = 10
"""How many weights random localisation takes where no front says how many."""


class GradientLoss(Bidirectional):
    """The weights with the largest gradient loss; as many as the Pareto front has unless a count is given."""

    name = "gl"

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        scores = self.scores(backend, part, rng=rng)
        size = self.count or max(most_suspicious(scores, 0)[1], self.min_weights)
        best: list[tuple[float, Address]] = []
        for part_scores in scores:
            losses = part_scores.gradient_loss.ravel()
            rows = np.argsort(-losses, kind="stable")[:size]
            indices = np.stack(np.unravel_index(rows, part_scores.gradient_loss.shape), axis=1).tolist()
            best += [
                (float(losses[row]), Address(part_scores.layer, part_scores.parameter, tuple(index)))
                for row, index in zip(rows, indices, strict=True)
            ]
        best.sort(key=lambda pair: -pair[0])
        suspects = Suspects.of(backend, [address for _, address in best[:size]])
        return Localisation(self.name, suspects, scores, len(suspects), sum(map(len, scores)))


@dataclass(frozen=True, kw_only=True)
class Everything(Localiser):
    """Every weight of the layers that are not left out: what fine-tuning changes."""

    name = "all"

    biases: bool = option(True, "Count biases and normalisation scales as weights too.")

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        if self.count is not None:
            raise UsageError("the localiser 'all' takes every weight and no count; include or exclude layers instead")
        addresses = [
            Address(info.name, name, index)
            for info, name in self.candidates(backend)
            for index in np.ndindex(*info.parameters[name].shape)
        ]
        return Localisation(self.name, Suspects.of(backend, addresses), (), len(addresses), len(addresses))


class RandomChoice(Localiser):
    """Weights drawn at random; as many as the Pareto front has unless a count is given."""

    name = "rs"

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        parameters = list(self.candidates(backend))
        sizes = [info.parameters[name].size for info, name in parameters]
        size = min(self.count or self._front_size(backend, part, rng), sum(sizes))
        starts = np.concatenate([[0], np.cumsum(sizes)])
        chosen = []
        for number in rng.choice(sum(sizes), size=size, replace=False):
            which = int(np.searchsorted(starts, number, side="right")) - 1
            info, name = parameters[which]
            index = np.unravel_index(number - starts[which], info.parameters[name].shape)
            chosen.append(Address(info.name, name, tuple(map(int, index))))
        return Localisation(self.name, Suspects.of(backend, chosen), (), size, sum(sizes))

    def _front_size(self, backend: ModelBackend, part: Part, rng: np.random.Generator) -> int:
        if not backend.SUPPORTS_GRADIENTS:
            return DEFAULT_COUNT
        bidirectional = Bidirectional(include=self.include, exclude=self.exclude, biases=self.biases)
        return bidirectional.localise(backend, part, rng=rng).front
