"""Baselines for bidirectional localisation: gradient loss alone (GL), random weights (RS), and all weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from arachne.data.part import Part
from arachne.errors import UsageError
from arachne.localise.base import Localisation, Localiser
from arachne.localise.bidirectional import Bidirectional, most_suspicious
from arachne.localise.ranked import largest
from arachne.model.backend import ModelBackend
from arachne.plugins.options import option
from arachne.weights.selection import Selection

DEFAULT_COUNT = 10
"""The number of weights that random localisation takes if no front can be computed."""


class GradientLoss(Bidirectional):
    """The weights with the largest gradient loss; as many as the Pareto front has unless a count is given."""

    name = "gl"

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        scores = self.scores(backend, part, rng=rng)
        size = self.count or max(most_suspicious(scores, 0)[1], self.min_weights)
        losses = {(part_scores.layer, part_scores.parameter): part_scores.gradient_loss for part_scores in scores}
        suspects = Selection.at(backend, largest(losses, size))
        return Localisation(self.name, suspects, scores, len(suspects), sum(map(len, scores)))


@dataclass(frozen=True, kw_only=True)
class Everything(Localiser):
    """Every weight of the layers that are not left out, as fine-tuning changes them."""

    name = "all"

    biases: bool = option(True, "Count biases and normalisation scales as weights too.")

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        if self.count is not None:
            raise UsageError("the localiser 'all' takes every weight and no count; include or exclude layers instead")
        whole = Selection.whole(backend, [(info.name, name) for info, name in self.candidates(backend)])
        return Localisation(self.name, whole, (), len(whole), len(whole))


class RandomChoice(Localiser):
    """Weights drawn at random; as many as the Pareto front has unless a count is given."""

    name = "rs"

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        parameters = list(self.candidates(backend))
        sizes = [info.parameters[name].size for info, name in parameters]
        size = min(self.count or self._front_size(backend, part, rng), sum(sizes))
        starts = np.concatenate([[0], np.cumsum(sizes)])
        drawn = np.sort(rng.choice(sum(sizes), size=size, replace=False))
        chosen = {
            (info.name, name): drawn[slice(*np.searchsorted(drawn, [start, stop]))] - start
            for (info, name), (start, stop) in zip(parameters, pairwise(starts.tolist()), strict=True)
        }
        return Localisation(self.name, Selection.at(backend, chosen), (), size, sum(sizes))

    def _front_size(self, backend: ModelBackend, part: Part, rng: np.random.Generator) -> int:
        if not backend.SUPPORTS_GRADIENTS:
            return DEFAULT_COUNT
        bidirectional = Bidirectional(include=self.include, exclude=self.exclude, biases=self.biases)
        return bidirectional.localise(backend, part, rng=rng).front
