"""Contrast: what flows differently through a weight when the fault happens, times what that does to the decision.

With ā the mean of what enters a linear layer z = A(W) o, over negatives and over positives, and ḡ the mean over the
negatives of the gradient of (score of the wrong class - score of the true class) at z:

    contrast = |W * (gradient of A(W) (ā_neg - ā_pos) with respect to W, seeded with ḡ)|

For a dense layer this is |w_ij (ā_i,neg - ā_i,pos) ḡ_j|. Convolutions sum over positions and recurrent layers over
steps before the magnitude is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part
from arachne.localise.ranked import Ranked
from arachne.values import Array, Weights


@dataclass(frozen=True, kw_only=True)
class Contrast(Ranked):
    """The weights through which the most flows differently when the fault happens."""

    name = "contrast"

    def _scores(self, backend: ModelBackend, part: Part, positives: Array, *, rng: np.random.Generator) -> Weights:
        from arachne.localise.contrast_flows import contrasts
        from arachne.localise.linear_maps import LINEAR

        layers = self.deep_enough([info for info in self.layers(backend) if info.kind in LINEAR])
        return contrasts(backend, part, positives, [(info, sorted(self.parameters(info))) for info in layers])
