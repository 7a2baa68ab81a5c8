"""Tell which part of the input the changed weights are connected to, where they are connected to few."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from arachne.causes.wording import describe_position, describe_token
from arachne.data.labelled import LabelledData
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, LayerInfo, read, take
from arachne.patch import Patch
from arachne.text import pluralise

MAX_NAMED = 4
"""Places of the input that a sentence names; a patch that reads more of them is spread out."""

MAX_COMPARED = 8
"""Inputs that are run to see whether a layer reads the input itself."""


def describe_connections(backend: ModelBackend, patch: Patch, data: LabelledData) -> str | None:
    """Say that all changed weights are connected to a few pixels, columns or words; None where that is not so.

    Args:
        backend: The model.
        patch: The changed weights.
        data: Some data, of which a few inputs are run.
    """
    tensors = {(entry.address.layer, entry.address.parameter) for entry in patch.entries}
    if patch.low_rank or len(tensors) != 1 or not len(data):
        return None
    layer, parameter = tensors.pop()
    info = backend.info(layer)
    axis = {"dense": -1, "embedding": 0}.get(info.kind)
    if parameter != "weight" or axis is None:
        return None
    places = sorted({entry.address.index[axis] for entry in patch.entries})
    if len(places) > MAX_NAMED:
        return None
    name = _array_read(backend, info, data)
    if name is None:
        return None
    describe = describe_token if info.kind == "embedding" else describe_position
    told = [describe(data, name, place) for place in places]
    where = told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
    weights = len(patch.entries)
    if info.kind == "embedding":
        return f"all {pluralise(weights, 'changed weight')} are in what the model knows of {where}"
    which = "the one changed weight is" if weights == 1 else f"all {weights:,} changed weights are"
    return f"{which} connected to {where}"


def _array_read(backend: ModelBackend, info: LayerInfo, data: LabelledData) -> str | None:
    """Return the name of the input array that a layer reads as it is; None if it reads something else."""
    inputs = read(take(data.inputs, np.arange(min(MAX_COMPARED, len(data)))))
    uses = backend.activations(inputs, info.name)
    entering = np.asarray(uses[0].entering["weight"])
    arrays: Mapping[str, Array] = inputs if isinstance(inputs, Mapping) else {"": inputs}
    for name, array in arrays.items():
        flat = np.asarray(array).reshape(len(array), -1)
        same = entering.reshape(len(entering), -1)
        if len(uses) == 1 and flat.shape == same.shape and np.allclose(flat, same, equal_nan=True):
            return name
    return None
