"""Find the transformation of whole pictures that makes right inputs look like the errors of a cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arachne.causes.features import PICTURES, layout_of
from arachne.causes.interventions import Transformation
from arachne.causes.transforming import TRANSFORMATIONS, Strength
from arachne.data.layout import as_pictures
from arachne.model.values import Array

COMPARED = (
    "brightness",
    "brightest value",
    "darkest value",
    "contrast",
    "sharpness",
    "centre row",
    "centre column",
    "tilt",
    "uprightness",
)
"""The features by which pictures are compared."""

MAX_PICTURES = 100
"""Right pictures that are transformed for each strength that is tried."""

MIN_SCALE = 0.02
"""The least deviation of a feature that differences are measured by."""

MIN_MATCH = 0.6
"""A transformation is reported if right pictures, transformed, differ from errors by at most this share of before."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs of one array: errors with a cause, and right inputs without it in the same mixture of true classes.

    Attributes:
        name: The array's name.
        errors: `(k, ...)`.
        right: `(m, ...)`.
        low: The smallest value of the data.
        high: The largest.
        names: The names of an input's values, if they have any.
    """

    name: str
    errors: Array
    right: Array
    low: float
    high: float
    names: tuple[str, ...] | None = None

    @cached_property
    def layout(self) -> tuple[int, ...] | None:
        """The shape that makes pictures of the inputs; None if they are no pictures."""
        return layout_of(self.right)


def match_transformation(examples: Examples) -> Transformation | None:
    """Find the transformation after which right pictures have the errors' features; None if none comes close."""
    layout = examples.layout
    if layout is None:
        return None
    right = examples.right[:: max(1, len(examples.right) // MAX_PICTURES)][:MAX_PICTURES]
    errors = as_pictures(examples.errors.astype(np.float32), layout)
    before, wanted = _measure(as_pictures(right.astype(np.float32), layout)), _measure(errors)
    best, closest = None, MIN_MATCH * _distance(before, wanted, before)
    for kind, strength in _candidates(before, wanted, examples):
        words = TRANSFORMATIONS[kind].describe(strength)
        one = Transformation(examples.name, words, layout, kind, strength, examples.low, examples.high)
        planted = as_pictures(one.plant(right, np.random.default_rng(0)).astype(np.float32), layout)
        found = _distance(_measure(planted), wanted, before)
        if found < closest:
            best, closest = one, found
    return best


def _measure(pictures: Array) -> Array:
    return np.stack([PICTURES[name](pictures) for name in COMPARED], axis=1).astype(np.float64)


def _distance(found: Array, wanted: Array, before: Array) -> float:
    """Return how far medians and spreads of features are apart, in standard deviations of the right pictures."""
    middle = np.abs(np.median(found, axis=0) - np.median(wanted, axis=0))
    spread = np.abs(found.std(axis=0) - wanted.std(axis=0))
    scale = np.maximum(np.maximum(before.std(axis=0), wanted.std(axis=0)), MIN_SCALE)
    return float(((middle + spread) / scale).sum())


def _candidates(before: Array, wanted: Array, examples: Examples) -> Iterator[tuple[str, Strength]]:
    """Yield kinds with the strengths to try: estimated from the features where one tells it, else from a grid."""
    was = dict(zip(COMPARED, np.median(before, axis=0).tolist(), strict=True))
    now = dict(zip(COMPARED, np.median(wanted, axis=0).tolist(), strict=True))
    spread = examples.high - examples.low
    if was["brightness"] > examples.low:
        for name in ("brightness", "brightest value"):
            yield "gain", (round((now[name] - examples.low) / (was[name] - examples.low), 3),)
    yield from (("brightness", (round(now[name] - was[name], 4),)) for name in ("brightness", "darkest value"))
    if was["contrast"] > 0:
        yield "contrast", (round(now["contrast"] / was["contrast"], 3),)
    yield from (("noise", (share * spread,)) for share in (0.05, 0.1, 0.2, 0.3, 0.5))
    moved = [now[name] - was[name] for name in ("centre row", "centre column")]
    # What leaves the picture does not move its centre.
    steps = [{0.0, *(float(round(more * one)) for more in (1, 1.3, 1.6))} if abs(one) > 0.5 else {0.0} for one in moved]
    yield from (("shift", (down, right)) for down in steps[0] for right in steps[1] if down or right)
    for kind in ("blur", "rotation"):
        yield from ((kind, strength) for strength in TRANSFORMATIONS[kind].grid)
