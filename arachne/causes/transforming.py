"""Transformations of whole pictures: gain, brightness, contrast, blur, noise, rotation, shift."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array

Strength = tuple[float, ...]
Apply = Callable[[Array, Strength, float, np.random.Generator], Array]


@dataclass(frozen=True)
class TransformationKind:
    """A way to change all values of pictures.

    Attributes:
        apply: Changes pictures `(n, height, width, channels)`, by a strength and the data's smallest value.
        describe: Words for a strength.
        grid: Strengths that are tried; none where they are estimated from the pictures.
        invert: The strength that takes it back; None where nothing does.
    """

    apply: Apply
    describe: Callable[[Strength], str]
    grid: tuple[Strength, ...]
    invert: Callable[[Strength], Strength | None]


def _gain(pictures: Array, strength: Strength, low: float, rng: np.random.Generator) -> Array:
    return np.asarray((pictures - low) * strength[0] + low)


def _offset(pictures: Array, strength: Strength, low: float, rng: np.random.Generator) -> Array:
    return pictures + strength[0]


def _contrast(pictures: Array, strength: Strength, low: float, rng: np.random.Generator) -> Array:
    mean = pictures.mean(axis=(1, 2, 3), keepdims=True)
    return np.asarray((pictures - mean) * strength[0] + mean)


def _blur(pictures: Array, strength: Strength, low: float, rng: np.random.Generator) -> Array:
    from scipy.ndimage import gaussian_filter  # here and below, because it is slow to load

    return np.asarray(gaussian_filter(pictures, (0, strength[0], strength[0], 0), mode="nearest"))


def _noise(pictures: Array, strength: Strength, low: float, rng: np.random.Generator) -> Array:
    return pictures + rng.normal(scale=strength[0], size=pictures.shape).astype(np.float32)


def _rotate(pictures: Array, strength: Strength, low: float, rng: np.random.Generator) -> Array:
    from scipy.ndimage import rotate

    return np.asarray(rotate(pictures, strength[0], axes=(1, 2), reshape=False, order=1, mode="constant", cval=low))


def _shift(pictures: Array, strength: Strength, low: float, rng: np.random.Generator) -> Array:
    from scipy.ndimage import shift

    return np.asarray(shift(pictures, (0, *strength, 0), order=0, mode="constant", cval=low))


def _describe_shift(strength: Strength) -> str:
    ways = ((strength[0], "down", "up"), (strength[1], "to the right", "to the left"))
    moves = [f"{abs(size):g} {more if size > 0 else less}" for size, more, less in ways if size]
    return f"pictures are moved by {' and '.join(moves)}"


def _negate(strength: Strength) -> Strength:
    return tuple(-one for one in strength)


def _invert_factor(strength: Strength) -> Strength | None:
    return (1 / strength[0],) if strength[0] else None


TRANSFORMATIONS: Mapping[str, TransformationKind] = {
    "gain": TransformationKind(_gain, lambda s: f"values are {s[0]:.2g} times as large", (), _invert_factor),
    "brightness": TransformationKind(_offset, lambda s: f"values are {abs(s[0]):.2g} {_more(s[0])}", (), _negate),
    "contrast": TransformationKind(_contrast, lambda s: f"contrast is {s[0]:.2g} times as large", (), _invert_factor),
    "blur": TransformationKind(
        _blur,
        lambda s: f"pictures are blurred, by about {s[0]:g} pixels",
        tuple((width,) for width in (0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)),
        lambda s: None,
    ),
    "noise": TransformationKind(_noise, lambda s: f"values are noisy, by about {s[0]:.2g}", (), lambda s: None),
    "rotation": TransformationKind(
        _rotate,
        lambda s: f"pictures are turned by about {abs(s[0]):g} degrees {'anticlockwise' if s[0] > 0 else 'clockwise'}",
        tuple((float(angle),) for angle in (-180, -90, -60, -45, -30, -20, -15, 15, 20, 30, 45, 60, 90)),
        _negate,
    ),
    "shift": TransformationKind(_shift, _describe_shift, (), _negate),
}
"""The ways a whole picture may change, the plainest first."""


def _more(size: float) -> str:
    return "larger" if size > 0 else "smaller"
