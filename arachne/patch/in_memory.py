"""Patches of a model in memory: its base, the changes between weights, and setting them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arachne.errors import PatchError, UnknownLayerError
from arachne.io.files import sha256_of
from arachne.model.values import Address, Array, ParameterInfo
from arachne.patch.base import PatchBase, content_of, tensor_sha256
from arachne.patch.change import TensorChange, changed_weights, index_arrays
from arachne.patch.low_rank import LowRankChange, low_rank_change
from arachne.patch.weight_change import WeightChange
from arachne.weights.edit import Edit, LowRankEdit, SparseEdit
from arachne.weights.parameter_slice import ParameterSlice
from arachne.weights.selection import Selection
from arachne.weights.storage import FILE_STORAGES

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend


def changes_between(
    backend: ModelBackend, addresses: Sequence[Address], new_values: Array | Sequence[float]
) -> tuple[TensorChange, ...]:
    """The changes from a model's present weights to new ones, in the order of the model.

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
            values = stored.to_file(np.asarray(backend.get_weights(info.name)[parameter]))
            changed = _changed_entries(values, stored, pairs)
            if changed:
                made.append(TensorChange.of(values, changed, uses=info.uses))
    backend.resolve_parameters(wanted)  # raises: what is left is not in the model
    return tuple(made)


def changes_of_edits(backend: ModelBackend, edits: Sequence[Edit]) -> tuple[TensorChange, ...]:
    """The changes that edits make to a model, in the order of the model.

    Raises:
        PatchError: Two edits change one tensor, or an edit does not fit the model.
    """
    made: dict[tuple[str, str], TensorChange] = {}
    for edit in edits:
        for change in _changes_of(backend, edit):
            if change.key in made:
                raise PatchError(f"two edits change '{change.tensor.name}'; make one of them")
            made[change.key] = change
    order = [(info.name, parameter) for info in backend.layers for parameter in info.parameters]
    return tuple(made[key] for key in order if key in made)


def _changes_of(backend: ModelBackend, edit: Edit) -> Sequence[TensorChange]:
    """The changes that one edit makes to a model."""
    if isinstance(edit, LowRankEdit):
        backend.resolve_parameters([edit.key])  # raises where the model has no such parameter
        info = backend.info(edit.layer)
        stored = info.parameters[edit.parameter]
        values = stored.to_file(np.asarray(backend.get_weights(edit.layer)[edit.parameter]))
        own = replace(edit, storage=stored.storage)
        found = low_rank_change(values, own, uses=info.uses)
        return [] if found is None else [found]
    sparse = edit.to_sparse(backend)
    return changes_between(backend, sparse.selection.addresses, sparse.values)


def edit_of(change: TensorChange) -> Edit:
    """The edit that a change makes to its tensor."""
    if isinstance(change, LowRankChange):
        return change.edit
    tensor = change.tensor
    flat = np.ravel_multi_index(change.index, tensor.shape) if tensor.shape else np.zeros(1, np.int64)
    order = np.argsort(flat)
    slice_ = ParameterSlice(*change.key, tensor.shape, tensor.storage, slice(0, len(flat)), flat[order])
    old, new = (np.array([getattr(one, name) for one in change.entries])[order] for name in ("old", "new"))
    return SparseEdit(Selection((slice_,), old), new)


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
        stored = info.parameters[parameter]
        return stored.to_file(np.asarray(backend.get_weights(layer)[parameter])), stored.dtype

    weights = changed_weights(wanted, read, backend.describe().source or "the model", done)
    kept = {(layer, parameter): backend.get_weights(layer)[parameter] for layer, parameter in weights}
    try:
        for (layer, parameter), numbers in weights.items():
            backend.set_weights(layer, parameter, backend.info(layer).parameters[parameter].from_file(numbers))
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
    known = None if backend.file_identity is None else backend.file_identity.sha256(path)
    return PatchBase(path.name, known or sha256_of(path), description.backend, content=content)


def _tensors(backend: ModelBackend) -> Iterator[tuple[str, str]]:
    for info in backend.layers:
        for parameter, values in backend.get_weights(info.name).items():
            stored = info.parameters[parameter]
            if stored.dtype in FILE_STORAGES:
                numbers = np.asarray(stored.to_file(np.asarray(values)), FILE_STORAGES[stored.dtype].carrier)
                yield f"{info.name}.{parameter}", tensor_sha256(numbers)


def _changed_entries(
    values: Array, stored: ParameterInfo, pairs: Sequence[tuple[Address, float]]
) -> list[WeightChange]:
    """The entries of one parameter whose bits change, from its numbers in a file; vectorised if all are valid."""
    dtype, index = stored.dtype, index_arrays([address.index for address, _ in pairs], values.shape)
    if index is not None:
        new = np.array([value for _, value in pairs], np.float64)
        if stored.grid is not None:
            new = stored.grid.at(np.ravel_multi_index(index, values.shape), values.shape).to_stored(new)
        old = values[index]
        storage = FILE_STORAGES[dtype]
        if np.isfinite(old).all() and np.isfinite(storage.round(new)).all():
            before, after = storage.bits_of(old), storage.bits_of(new)
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
