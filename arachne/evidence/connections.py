"""Tell which part of the input the changed weights are connected to, where they are connected to few."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.causes.wording import describe_position, describe_token
from arachne.data.labelled import LabelledData
from arachne.model.backend import ModelBackend
from arachne.model.values import Address, Array, LayerInfo, by_name, read, take
from arachne.patch import Patch

MAX_NAMED = 4
"""Positions of the input that a sentence names; a patch that reads more of them is spread out."""

MAX_LISTED = 64
"""Positions of a layer that are named one by one, in a table of changed weights."""

MAX_COMPARED = 8
"""Inputs that are run to see whether a layer reads the input itself."""


def describe_connections(backend: ModelBackend, patch: Patch, data: LabelledData) -> str | None:
    """Say that all changed weights are connected to a few pixels, columns or words; None where that is not so.

    Args:
        backend: The model.
        patch: The changed weights.
        data: Some data, of which a few inputs are run.
    """
    weights = len(patch)
    names = _names_of_matrix(backend, patch, data) if patch.low_rank else _names_of_entries(backend, patch, data)
    if not names:
        return None
    where = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    which = "the one changed weight is" if weights == 1 else f"all {weights:,} changed weights are"
    return f"{which} connected to {where}"


def _names_of_entries(backend: ModelBackend, patch: Patch, data: LabelledData) -> list[str]:
    """Name what all single weights of a patch are connected to; nothing where that is not known of each of them."""
    if len({entry.address.layer for entry in patch.entries}) > 1:
        return []
    named = name_connections(backend, patch, data, most=MAX_NAMED)
    if len(named) < len(patch.entries):
        return []
    return list(dict.fromkeys(named[entry.address] for entry in patch.entries))


def _names_of_matrix(backend: ModelBackend, patch: Patch, data: LabelledData) -> list[str]:
    """Name what the one matrix that a patch changes is connected to; nothing where single weights change too."""
    if patch.entries or len(patch.low_rank) > 1:
        return []
    (change,) = patch.low_rank
    positions = np.flatnonzero(change.edit.right.any(axis=1)).tolist()
    return list(name_inputs(backend, change.tensor.layer, data, positions, most=MAX_NAMED).values())


def name_inputs(
    backend: ModelBackend, layer: str, data: LabelledData, positions: Sequence[int], *, most: int = MAX_LISTED
) -> dict[int, str]:
    """Name the pixels or columns at these positions of what enters a dense layer; none if it reads something else.

    Args:
        backend: The model.
        layer: The layer.
        data: Some data, of which a few inputs are run.
        positions: Which of the layer's inputs.
        most: How many are named; none where there are more.
    """
    info = backend.info(layer)
    if info.kind != "dense" or not positions or len(positions) > most or not len(data):
        return {}
    name = array_read_by(backend, info, data)
    return {} if name is None else {position: describe_position(data, name, position) for position in positions}


def name_connections(
    backend: ModelBackend, patch: Patch, data: LabelledData, *, most: int = MAX_LISTED
) -> dict[Address, str]:
    """Name the pixel, column or word that each changed weight reads, for weights of layers that read the input.

    Args:
        backend: The model.
        patch: The changed weights.
        data: Some data, of which a few inputs are run.
        most: How many positions of a layer are named; none are of one where more change.
    """
    found: dict[Address, str] = {}
    for layer in dict.fromkeys(entry.address.layer for entry in patch.entries if len(data)):
        info = backend.info(layer)
        axis = {"dense": -1, "embedding": 0}.get(info.kind)
        own = [entry.address for entry in patch.entries if entry.address.layer == layer]
        addresses = [address for address in own if address.parameter == "weight"]
        if axis is None or not addresses:
            continue
        positions = sorted({address.index[axis] for address in addresses})
        name = array_read_by(backend, info, data) if len(positions) <= most else None
        if name is None:
            continue
        describe = describe_token if info.kind == "embedding" else describe_position
        descriptions = {position: describe(data, name, position) for position in positions}
        found |= {address: descriptions[address.index[axis]] for address in addresses}
    return found


def array_read_by(backend: ModelBackend, info: LayerInfo, data: LabelledData) -> str | None:
    """Return the name of the input array that a layer reads as it is; None if it reads something else."""
    inputs = read(take(data.inputs, np.arange(min(MAX_COMPARED, len(data)))))
    uses = backend.activations(inputs, info.name)
    entering = np.asarray(uses[0].entering["weight"])
    for name, array in by_name(inputs).items():
        flat = np.asarray(array).reshape(len(array), -1)
        same = entering.reshape(len(entering), -1)
        if len(uses) == 1 and flat.shape == same.shape and _is_scaled(flat, same):
            return name
    return None


def _is_scaled(flat: Array, entering: Array) -> bool:
    """Whether every column `(n, values)` enters as it is, or shifted and scaled on its own, as scalers do it."""
    if np.allclose(flat, entering, equal_nan=True):
        return True
    if len(flat) < MAX_COMPARED or not (np.isfinite(flat).all() and np.isfinite(entering).all()):
        return False
    given, found = (part.astype(np.float64) - part.mean(axis=0, dtype=np.float64) for part in (flat, entering))
    spread = (given**2).sum(axis=0)
    slope = np.divide((given * found).sum(axis=0), spread, out=np.zeros_like(spread), where=spread > 0)
    return bool(np.allclose(slope * given, found, rtol=1e-4, atol=1e-4 * float(np.abs(found).max())))
