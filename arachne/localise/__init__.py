"""Localisation: which few weights are behind the mistake."""

from __future__ import annotations

from arachne.localise.base import Localisation, Localiser, ParameterScores
from arachne.localise.baselines import Everything, GradientLoss, RandomChoice
from arachne.localise.bidirectional import MIN_WEIGHTS, Bidirectional
from arachne.localise.contrast import Contrast
from arachne.localise.fisher import Fisher
from arachne.localise.spectrum import Spectrum
from arachne.weights.selection import Selection

__all__ = [
    "MIN_WEIGHTS",
    "Bidirectional",
    "Contrast",
    "Everything",
    "Fisher",
    "GradientLoss",
    "Localisation",
    "Localiser",
    "ParameterScores",
    "RandomChoice",
    "Selection",
    "Spectrum",
]
