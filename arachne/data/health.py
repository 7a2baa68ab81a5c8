"""Look whether a model is sick before it is repaired: normalisation that does not fit the data, dead layers.

No labels are needed. What enters the scale of a batch normalisation was brought to mean 0 and deviation 1 by the
statistics the layer stores; where the data's own are others, the stored ones are wrong, or the inputs are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from arachne.data.norm_moments import NormAccumulator, estimate_again
from arachne.decisions.decisions import correct
from arachne.model.accumulate import ActivationAccumulator
from arachne.model.cut import temporary_weights
from arachne.model.values import Activation, Array, Inputs, LayerInfo, count, take
from arachne.text import pluralise

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

TRIAL_INPUTS = 256
"""The most inputs that layers are watched on."""

TRIAL_VALUES, MIN_TRIAL_INPUTS = 256, 32
"""Statistics are estimated again from as many values of each channel, and from no fewer inputs; a convolution has many
values for each input."""

MIN_INPUTS = 20
"""With fewer inputs nothing is said."""

MAX_SHIFT = 0.7
"""A layer is off if its median channel is further from mean 0 (in deviations) or deviation 1 (as a logarithm)."""

MIN_SHARE = 0.9
"""A layer counts as dead or saturated when at least this share of its units or values is."""

SATURATING = {"tanh": 3.0, "sigmoid": 6.0}
"""Functions that hardly change beyond some size of their input."""

MIN_GAIN = 0.02
"""Statistics that fit less well do no harm where estimating them again raises accuracy by less."""

MENDED = frozenset({"scale", "bias"})
"""The parameters in which the statistics of a normalisation can be estimated again, both together."""


@dataclass
class _Watch(ActivationAccumulator):
    """Adds up the moments behind normalisations, and which units of other layers ever do something."""

    infos: Mapping[str, LayerInfo]
    norms: NormAccumulator = field(default_factory=NormAccumulator)
    alive: dict[str, Array] = field(default_factory=dict)
    saturated: dict[str, list[float]] = field(default_factory=dict)

    def activation(self, layer: str, use: int, activation: Activation) -> None:
        """Add one batch."""
        info = self.infos[layer]
        if info.kind == "norm":
            self.norms.activation(layer, use, activation)
        following = (info.followed_by or ("",))[0]
        leaving = np.asarray(activation.leaving)
        if following == "relu":
            axis = 1 if info.kind in ("conv", "conv_transpose", "norm") else leaving.ndim - 1
            active = (leaving > 0).any(axis=tuple(other for other in range(leaving.ndim) if other != axis))
            self.alive[layer] = self.alive.get(layer, np.zeros_like(active)) | active
        elif following in SATURATING:
            self.saturated.setdefault(layer, []).append(float(np.mean(np.abs(leaving) > SATURATING[following])))

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
        mendable: Whether one of `shifted` has a scale and a bias, in which statistics can be estimated again.
    """

    norms: int = 0
    shifted: Mapping[str, float] = field(default_factory=dict)
    dead: tuple[str, ...] = ()
    saturated: tuple[str, ...] = ()
    mendable: bool = False

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for each sign; empty for a model that looks well."""
        found = []
        if self.shifted:
            worst = max(self.shifted, key=lambda layer: self.shifted[layer])
            found.append(
                f"the stored statistics of {len(self.shifted)} of {pluralise(self.norms, 'normalisation')} do not fit "
                f"these inputs, most of all '{worst}': check the preprocessing, and if that is right, estimate them "
                f"again from inputs like these{' (--search norms does)' if self.mendable else ''}"
            )
        for layers, what in ((self.dead, "dead, all units give 0"), (self.saturated, "saturated, all units are flat")):
            if layers:
                names = ", ".join(f"'{name}'" for name in layers[:3])
                found.append(f"almost {what}: {names}; a repair can do little there")
        return tuple(found)


def examine(backend: ModelBackend, inputs: Inputs, labels: Array | None = None, scores: Array | None = None) -> Health:
    """Watch the layers of a model on some inputs, in one pass.

    Args:
        backend: The model.
        inputs: The inputs.
        labels: Their classes `(n,)`, where each has one. Statistics that do not fit are then told only where
            estimating them again makes the model clearly better: a network that was trained for a short while often
            has such statistics, and is used to them.
        scores: What the model gives for them `(n, classes)`, where it is known.
    """
    number = count(inputs)
    infos = {info.name: info for info in backend.layers}
    watched = [
        name
        for name, info in infos.items()
        if info.kind == "norm" or (info.followed_by or ("",))[0] in ("relu", *SATURATING)
    ]
    if number < MIN_INPUTS or not watched or backend.remote is not None:  # a cluster's inputs are elsewhere
        return Health()
    rows = np.unique(np.linspace(0, number - 1, min(TRIAL_INPUTS, number)).astype(np.int64))
    watch = _Watch(infos)
    backend.observe(take(inputs, rows), watched, watch)
    shifts = {name: moments.shift for name, moments in watch.norms.norms.items()}
    shifted = {name: shift for name, shift in shifts.items() if shift > MAX_SHIFT}
    if labels is not None and shifted:
        stores = {name: moments for name, moments in watch.norms.norms.items() if moments.stores_statistics}
        known = {name: moments for name, moments in stores.items() if set(infos[name].parameters) >= MENDED}
        fewest = min((moments.number for moments in known.values()), default=len(rows))
        needed = max(MIN_TRIAL_INPUTS, -(-TRIAL_VALUES * len(rows) // fewest))
        tried = take(inputs, rows)
        given = backend.forward(tried) if scores is None else scores[rows]
        if _gain(backend, known, tried, labels[rows], given, needed) < MIN_GAIN:
            shifted = {}
    return Health(
        norms=len(shifts),
        shifted=shifted,
        dead=tuple(name for name, alive in watch.alive.items() if np.mean(~alive) >= MIN_SHARE),
        saturated=tuple(name for name, shares in watch.saturated.items() if np.mean(shares) >= MIN_SHARE),
        mendable=any(set(infos[name].parameters) >= MENDED for name in shifted),
    )


def _gain(
    backend: ModelBackend, layers: Collection[str], inputs: Inputs, labels: Array, scores: Array, needed: int
) -> float:
    """Return how much accuracy rises when the statistics of normalisations are estimated again from these inputs.

    Args:
        backend: The model.
        layers: The normalisations.
        inputs: The inputs that accuracy is measured on.
        labels: Their classes.
        scores: What the model gives for them as it is.
        needed: From how many of them, evenly spread, statistics are estimated: each layer takes a pass of its own.
    """
    before = float(np.mean(correct(scores, labels)))
    if 1 - before < MIN_GAIN:
        return 0.0  # it cannot rise by so much
    some = np.unique(np.linspace(0, len(labels) - 1, min(needed, len(labels))).astype(np.int64))
    with temporary_weights(backend, estimate_again(backend, layers, take(inputs, some))):
        return float(np.mean(correct(backend.forward(inputs), labels))) - before
