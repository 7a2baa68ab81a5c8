"""Leave layers alone that values depend on which no patch may change, such as the boxes of a detector."""

from __future__ import annotations

from dataclasses import replace
from glob import escape

import numpy as np

from arachne.data.part import Part
from arachne.localise.base import Localiser
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Inputs, count, take
from arachne.text import pluralise

PROBED = 4
"""The number of inputs whose gradients tell which layers a value depends on."""


def spare_layers(backend: ModelBackend, part: Part, localiser: Localiser) -> tuple[Localiser, str | None]:
    """Return a localiser that leaves out the layers behind the outputs that the task spares, and a note on them.

    Where these are all the layers that the user allows, none is left out: the evidence tells what becomes of the rest.

    Args:
        backend: The model.
        part: Some inputs with the task that reads them.
        localiser: The localiser with the layers that the user allows.
    """
    spared = part.task.spared_outputs(part.outputs)
    if spared is None:
        return localiser, None
    touching = layers_behind(backend, part.data.inputs, spared)
    allowed = [layer.name for layer in localiser.layers(backend)]
    behind = [name for name in allowed if name in touching]
    what = part.task.SPARED
    if not behind:
        return localiser, None
    if len(behind) == len(allowed):
        return localiser, f"every layer changes {what} too, so none is left alone"
    left = pluralise(len(allowed) - len(behind), "layer")
    note = f"{left} of {len(allowed)} may change: those that {what} do not depend on"
    return replace(localiser, exclude=(*localiser.exclude, *map(escape, behind))), note


def layers_behind(backend: ModelBackend, inputs: Inputs, values: Array) -> frozenset[str]:
    """Return the layers that some values of the outputs depend on: those with a gradient.

    Args:
        backend: The model.
        inputs: Inputs; the first few are looked at.
        values: Which values of an input's outputs, bool of their shape.
    """
    rows = np.arange(min(PROBED, count(inputs)))
    chance = np.random.default_rng(0).normal(size=(len(rows), *values.shape)).astype(np.float32) * values
    found = backend.weight_gradients(take(inputs, rows), lambda _, batch: chance[batch])
    return frozenset(layer for (layer, _), gradient in found.items() if np.any(gradient))
