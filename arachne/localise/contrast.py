"""Contrast: how differently a weight is activated when the fault happens, times the effect of that on the decision.

With ā the mean input of a linear layer z = A(W) o, over negatives and over positives, and ḡ the mean over the
negatives of the gradient of (score of the wrong class - score of the true class) at z:

    contrast = |W * (gradient of A(W) (ā_neg - ā_pos) with respect to W, seeded with ḡ)|

For a dense layer with weights w_ji `(out, in)` this is |w_ji (ā_i,neg - ā_i,pos) ḡ_j|. Convolutions sum over positions
and recurrent layers over steps before the magnitude is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.data.part import Part
from arachne.localise.ranked import Ranked
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Weights


@dataclass(frozen=True, kw_only=True)
class Contrast(Ranked):
    """The weights whose activation differs most when the fault happens, weighted by their effect on the decision."""

    name = "contrast"

    def _scores(self, backend: ModelBackend, part: Part, positives: Array, *, rng: np.random.Generator) -> Weights:
        from arachne.localise.contrast_flows import contrasts
        from arachne.localise.linear_maps import LINEAR

        layers = self.filter_by_depth(backend, part, [info for info in self.layers(backend) if info.kind in LINEAR])
        return contrasts(backend, part, positives, [(info, sorted(self.parameters(info))) for info in layers])
