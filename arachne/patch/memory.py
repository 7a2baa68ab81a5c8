"""Patches and a model in memory: what is there, what would change, and setting it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from arachne.backend import ModelBackend
from arachne.dtypes import CARRIERS, all_bits, round_to
from arachne.errors import PatchError, UnknownLayerError
from arachne.files import sha256_of
from arachne.patch.base import PatchBase, content_of, tensor_sha256
from arachne.patch.change import TensorChange, changed_weights, places
from arachne.patch.weight_change import WeightChange
from arachne.values import Address, Array


def changes_between(
    backend: ModelBackend, addresses: Sequence[Address], new_values: Array | Sequence[float]
) -> tuple[TensorChange, ...]:
    """What takes a model from its present weights to new ones, in the order of the model.

    Raises:
        PatchError: A value is not finite or too large for its dtype, or an address is outside its tensor.
    """
    wanted: dict[tuple[str, str], list[tuple[Address, float]]] = {}
    for address, value in zip(addresses, new_values, strict=True):
        wanted.setdefault((address.layer, address.parameter), []).append((address, float(value)))
    made = []
    for info in backend.layers:
        for parameter, stored in info.parameters.items():
            pairs = wanted.pop((info.name, parameter), None)
            if pairs is None:
                continue
            values = np.asarray(backend.get_weights(info.name)[parameter])
            changed = _changed(values, stored.dtype, pairs)
            if changed:
                made.append(TensorChange.of(values, changed, uses=info.uses))
    backend.chosen(wanted)  # raises: what is left is not in the model
    return tuple(made)


def set_changed(backend: ModelBackend, wanted: Sequence[TensorChange], done: str) -> None:
    """Change some weights of a model, or none.

    Args:
        backend: The model.
        wanted: The changes.
        done: What to say when the model already is what the changes would make of it.

    Raises:
        PatchError: The changes do not fit; the model is as it was.
    """

    def read(layer: str, parameter: str) -> tuple[Array, str]:
        try:
            info = backend.info(layer)
        except UnknownLayerError as error:
            raise PatchError(f"the patch changes layer '{layer}': {error}") from error
        if parameter not in info.parameters:
            raise PatchError(f"the patch changes '{layer}.{parameter}', which the model does not have")
        return np.asarray(backend.get_weights(layer)[parameter]), info.parameters[parameter].dtype

    weights = changed_weights(wanted, read, backend.describe().source or "the model", done)
    kept = {key: read(*key)[0] for key in weights}
    try:
        for (layer, parameter), values in weights.items():
            backend.set_weights(layer, parameter, values)
    except BaseException:
        for (layer, parameter), values in kept.items():
            backend.set_weights(layer, parameter, values)
        raise


def base_of(backend: ModelBackend) -> PatchBase:
    """Where a model comes from: its file's name and hash, if it came from one."""
    description = backend.describe()
    path = None if description.source is None else Path(description.source)
    content = content_of(_tensors(backend))
    if path is None or not path.is_file():
        return PatchBase(None, None, description.backend, content=content)
    known = None if backend.pinned is None else backend.pinned.sha256(path)
    return PatchBase(path.name, known or sha256_of(path), description.backend, content=content)


def _tensors(backend: ModelBackend) -> Iterator[tuple[str, str]]:
    for info in backend.layers:
        for parameter, values in backend.get_weights(info.name).items():
            dtype = info.parameters[parameter].dtype
            if dtype in CARRIERS:
                yield f"{info.name}.{parameter}", tensor_sha256(np.asarray(values, CARRIERS[dtype]))


def _changed(values: Array, dtype: str, pairs: Sequence[tuple[Address, float]]) -> list[WeightChange]:
    """The entries of one parameter that are not as before, all at once where nothing is wrong with any."""
    index = places([address.index for address, _ in pairs], values.shape)
    if index is not None:
        new = np.array([value for _, value in pairs], np.float64)
        old = values[index]
        if np.isfinite(old).all() and np.isfinite(round_to(new, dtype)).all():
            before, after = all_bits(old, dtype), all_bits(new, dtype)
            found = zip(pairs, before, after, strict=True)
            return [WeightChange(pair[0], dtype, was, now) for pair, was, now in found if was != now]
    entries = [WeightChange.of(address, dtype, _at(values, address), new) for address, new in pairs]
    return [entry for entry in entries if entry.old_bits != entry.new_bits]


def _at(values: Array, address: Address) -> float:
    if len(address.index) != values.ndim or any(
        not 0 <= i < n for i, n in zip(address.index, values.shape, strict=True)
    ):
        raise PatchError(f"{address} is outside a tensor of shape {values.shape}")
    return float(values[address.index])
