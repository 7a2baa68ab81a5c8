"""Localisation: which few weights are behind the mistake."""

from __future__ import annotations

from arachne.errors import UsageError, did_you_mean
from arachne.localise.base import Localisation, Localiser, ParameterScores
from arachne.localise.baselines import GradientLoss, RandomChoice
from arachne.localise.bidirectional import Bidirectional
from arachne.suspects import Suspects

LOCALISERS: dict[str, type[Localiser]] = {
    localiser.name: localiser for localiser in (Bidirectional, GradientLoss, RandomChoice)
}


def localiser_named(name: str) -> type[Localiser]:
    """The localiser with the paper's short name: `bl`, `gl` or `rs`."""
    if name.lower() not in LOCALISERS:
        raise UsageError(f"no localiser named '{name}'" + did_you_mean(name, LOCALISERS))
    return LOCALISERS[name.lower()]


__all__ = [
    "LOCALISERS",
    "Bidirectional",
    "GradientLoss",
    "Localisation",
    "Localiser",
    "ParameterScores",
    "RandomChoice",
    "Suspects",
    "localiser_named",
]
