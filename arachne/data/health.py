"""Look whether a model is sick before it is repaired: normalisation that does not fit the data, dead layers.

No labels are needed. What enters the scale of a batch normalisation was brought to mean 0 and deviation 1 by the
statistics the layer stores; where the data's own are others, the stored ones are wrong, or the inputs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from arachne.model.accumulate import ActivationAccumulator
from arachne.model.values import Activation, Array, Inputs, LayerInfo, count, take
from arachne.text import pluralise

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

TRIAL_INPUTS = 128
"""The most inputs that layers are watched on."""

MIN_INPUTS = 20
"""With fewer inputs nothing is said."""

MAX_SHIFT = 0.7
"""A layer whose median channel is further from mean 0 and deviation 1, in deviations or as a logarithm, is off."""

MIN_SHARE = 0.9
"""A layer counts as dead or saturated when at least this share of its units or values is."""

SATURATING = {"tanh": 3.0, "sigmoid": 6.0}
"""Functions that hardly change beyond some size of their input."""

SAME = 1e-2
"""Moments of single inputs this close to 0 and 1 show a norm without stored statistics."""


@dataclass
class _Sums:
    """Sums over inputs and positions for each channel `(channels,)`, and what single inputs showed."""

    number: int = 0
    first: Array = field(default_factory=lambda: np.zeros(0))
    second: Array = field(default_factory=lambda: np.zeros(0))
    by_input: list[tuple[float, float]] = field(default_factory=list)

    @property
    def shift(self) -> float:
        """How far the median channel is from mean 0 and deviation 1; 0 if single inputs have these already."""
        means, squares = (np.array(one) for one in zip(*self.by_input, strict=True))
        if np.all(np.abs(means) < SAME) or np.all(np.abs(squares - 1) < SAME):
            return 0.0
        mean = self.first / self.number
        deviation = np.sqrt(np.maximum(self.second / self.number - mean**2, 1e-12))
        return float(np.median(np.maximum(np.abs(mean), np.abs(np.log(deviation)))))


@dataclass
class _Watch(ActivationAccumulator):
    """Adds up the moments behind normalisations, and which units of other layers ever do something."""

    infos: Mapping[str, LayerInfo]
    norms: dict[str, _Sums] = field(default_factory=dict)
    alive: dict[str, Array] = field(default_factory=dict)
    saturated: dict[str, list[float]] = field(default_factory=dict)

    def activation(self, layer: str, use: int, activation: Activation) -> None:
        """Add one batch."""
        info = self.infos[layer]
        if info.kind == "norm" and "scale" in activation.entering:
            self._add_norm(layer, np.asarray(activation.entering["scale"], np.float64))
        following = (info.followed_by or ("",))[0]
        leaving = np.asarray(activation.leaving)
        if following == "relu":
            axis = 1 if info.kind in ("conv", "conv_transpose", "norm") else leaving.ndim - 1
            active = (leaving > 0).any(axis=tuple(other for other in range(leaving.ndim) if other != axis))
            self.alive[layer] = self.alive.get(layer, np.zeros_like(active)) | active
        elif following in SATURATING:
            self.saturated.setdefault(layer, []).append(float(np.mean(np.abs(leaving) > SATURATING[following])))

    def _add_norm(self, layer: str, values: Array) -> None:
        sums = self.norms.setdefault(layer, _Sums())
        flat = values.reshape(len(values), -1)
        sums.by_input += list(zip(flat.mean(axis=1).tolist(), (flat**2).mean(axis=1).tolist(), strict=True))
        others = tuple(axis for axis in range(values.ndim) if axis != 1)
        new = values.sum(axis=others), (values**2).sum(axis=others)
        old = (sums.first, sums.second) if sums.number else (0.0, 0.0)
        sums.first, sums.second = old[0] + new[0], old[1] + new[1]
        sums.number += values.size // values.shape[1]

    def gradient(self, layer: str, use: int, gradient: Array) -> None:
        """Nothing: no gradients are asked for."""


@dataclass(frozen=True)
class Health:
    """Signs of a sick model, from some inputs without labels.

    Attributes:
        norms: How many normalisations with stored statistics were looked at.
        shifted: Those whose statistics do not fit the data, with how far off they are.
        dead: Layers of which nearly all units give 0 for every input.
        saturated: Layers of which nearly all values are where the function behind them is flat.
    """

    norms: int = 0
    shifted: Mapping[str, float] = field(default_factory=dict)
    dead: tuple[str, ...] = ()
    saturated: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for each sign; empty for a model that looks well."""
        found = []
        if self.shifted:
            worst = max(self.shifted, key=lambda layer: self.shifted[layer])
            found.append(
                f"the stored statistics of {len(self.shifted)} of {pluralise(self.norms, 'normalisation')} do not fit "
                f"these inputs, most of all '{worst}': estimate them again from inputs like these, or check the "
                "preprocessing, before a repair"
            )
        for layers, what in ((self.dead, "dead, all units give 0"), (self.saturated, "saturated, all units are flat")):
            if layers:
                names = ", ".join(f"'{name}'" for name in layers[:3])
                found.append(f"almost {what}: {names}; a repair can do little there")
        return tuple(found)


def examine(backend: ModelBackend, inputs: Inputs) -> Health:
    """Watch the layers of a model on some inputs, in one pass."""
    number = count(inputs)
    infos = {info.name: info for info in backend.layers}
    watched = [
        name
        for name, info in infos.items()
        if info.kind == "norm" or (info.followed_by or ("",))[0] in ("relu", *SATURATING)
    ]
    if number < MIN_INPUTS or not watched or backend.HANDLES_SHARDING:  # a cluster's inputs are elsewhere
        return Health()
    rows = np.unique(np.linspace(0, number - 1, min(TRIAL_INPUTS, number)).astype(np.int64))
    watch = _Watch(infos)
    backend.observe(take(inputs, rows), watched, watch)
    shifts = {name: sums.shift for name, sums in watch.norms.items()}
    return Health(
        norms=len(shifts),
        shifted={name: shift for name, shift in shifts.items() if shift > MAX_SHIFT},
        dead=tuple(name for name, alive in watch.alive.items() if np.mean(~alive) >= MIN_SHARE),
        saturated=tuple(name for name, shares in watch.saturated.items() if np.mean(shares) >= MIN_SHARE),
    )
