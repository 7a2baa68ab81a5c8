"""Which layer each tensor of a `.weights.h5` file belongs to, from the file alone.

Keras calls a group after the class of its layer (`dense_1`) and keeps the layer's own name beside its tensors. That is
enough for layers with only one possible layout. An `EinsumDense`, layers in a `TimeDistributed` and custom layers are
left out: only their model defines what their axes mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from arachne.errors import ModelError
from arachne_keras import layout
from arachne_keras.hdf5 import HDF5Location
from arachne_keras.parameter_slice import Layout, ParameterSlice

Parameters = dict[tuple[str, str], ParameterSlice]
"""Slices by `(layer, parameter)`; `variable` is a location in the file."""

Reading = Callable[[Sequence[HDF5Location]], Iterator[tuple[str, str, ParameterSlice]]]
"""Maps a layer's tensors to its parameters, each with its part of the layer."""

ATTENTION = ("query_dense", "key_dense", "value_dense", "output_dense")
GATES = {4: (0, 1, 2, 3), 3: (1, 0, 2), 1: (0,)}
"""The stored position of each canonical gate (i f g o, r z n), by the number of gates."""


def addresses(file: Any, locations: Mapping[str, HDF5Location], name: str) -> Parameters:
    """Every parameter whose layer the file names, in the file's order.

    Args:
        file: The open file, checked.
        locations: Its tensors.
        name: Its name, for the message.

    Raises:
        ModelError: It names none.
    """
    found: Parameters = {}
    for path in dict.fromkeys(path.rpartition("/vars/")[0] for path in locations if "/vars/" in path):
        try:
            layers = list(_read(file, locations, path))
        except (IndexError, ValueError, KeyError, ZeroDivisionError) as error:
            raise ModelError(f"'{name}' does not hold '{path}' as Keras stores such a layer") from error
        for layer, parameter, stored in layers:
            if found.setdefault((layer, parameter), stored) is not stored:
                raise ModelError(f"'{name}' holds two layers named '{layer}'")
    if not found:
        raise ModelError(
            f"'{name}' names no layers that can be patched; patch the .keras file, or save the weights again with "
            "Keras 3 as .weights.h5"
        )
    return found


def _read(file: Any, locations: Mapping[str, HDF5Location], path: str) -> Iterator[tuple[str, str, ParameterSlice]]:
    tensors = [locations[f"{path}/vars/{key}"] for key in sorted(file[f"{path}/vars"], key=int)]
    reading, owner = _reading(path)
    for part, parameter, stored in reading(tensors):
        if len(stored.layout.axes) != len(stored.variable.shape) - (stored.row is not None):
            raise ValueError(f"{path} has a tensor of shape {stored.variable.shape}")
        yield layer_name(file, owner, part), parameter, stored


def _reading(path: str) -> tuple[Reading, str]:
    """Return the reader for the tensors of a group, and the group of their layer."""
    parent, _, last = path.rpartition("/")
    if last == "cell":
        return _recurrent, parent
    if last in ATTENTION and _class_of(parent) == "multi_head_attention":
        return _output if last == "output_dense" else _projection, path
    return READINGS.get(_class_of(path), _nothing), path


def _class_of(path: str) -> str:
    return re.sub(r"_\d+$", "", path.rpartition("/")[2])


def layer_name(file: Any, path: str, part: str = "") -> str:
    """Join the names of a layer's parents, the layer and its part; container groups have no name."""
    parts = path.split("/")
    groups = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    own = [(file.get(f"{group}/vars"), group.rpartition("/")[2]) for group in groups]
    names = [str(variables.attrs.get("name") or group) for variables, group in own if variables is not None]
    return "/".join([*names, part] if part else names)


def _with_bias(weight: Callable[[Any], ParameterSlice]) -> Reading:
    def reading(tensors: Sequence[HDF5Location]) -> Iterator[tuple[str, str, ParameterSlice]]:
        if len(tensors) > 2:  # more than a plain layer has: a quantised one, or one with an adapter
            return
        yield "", "weight", weight(tensors[0])
        if len(tensors) > 1:
            yield "", "bias", layout.plain(tensors[1])

    return reading


def _separable(tensors: Sequence[HDF5Location]) -> Iterator[tuple[str, str, ParameterSlice]]:
    yield "depthwise", "weight", layout.depthwise_kernel(tensors[0])
    yield "pointwise", "weight", layout.kernel(tensors[1])
    if len(tensors) > 2:
        yield "pointwise", "bias", layout.plain(tensors[2])


def _table(tensors: Sequence[HDF5Location]) -> Iterator[tuple[str, str, ParameterSlice]]:
    if len(tensors) == 1:
        yield "", "weight", ParameterSlice(tensors[0], Layout.of(tensors[0].shape, (0, 1)))


def _norm(many: int) -> Reading:
    def reading(tensors: Sequence[HDF5Location]) -> Iterator[tuple[str, str, ParameterSlice]]:
        if len(tensors) == many:  # with fewer, a scale and a bias look the same
            yield from (
                ("", parameter, layout.plain(tensor))
                for parameter, tensor in zip(("scale", "bias"), tensors, strict=False)
            )

    return reading


def _recurrent(tensors: Sequence[HDF5Location]) -> Iterator[tuple[str, str, ParameterSlice]]:
    if len(tensors) not in (2, 3) or len(tensors[1].shape) != 2:
        return
    units, rows = tensors[1].shape
    order = GATES.get(rows // units)
    if order is None:
        return
    yield "", "weight_ih", layout.gates(tensors[0], order)
    yield "", "weight_hh", layout.gates(tensors[1], order)
    if len(tensors) == 3:
        double = len(tensors[2].shape) == 2
        yield "", "bias_ih", layout.gate_bias(tensors[2], order, 0 if double else None)
        if double:
            yield "", "bias_hh", layout.gate_bias(tensors[2], order, 1)


def _projection(tensors: Sequence[HDF5Location]) -> Iterator[tuple[str, str, ParameterSlice]]:
    return _with_bias(lambda t: _flat(t, (1, 2, 0), (t.shape[1] * t.shape[2], t.shape[0])))(tensors)


def _output(tensors: Sequence[HDF5Location]) -> Iterator[tuple[str, str, ParameterSlice]]:
    return _with_bias(lambda t: _flat(t, (2, 0, 1), (t.shape[2], t.shape[0] * t.shape[1])))(tensors)


def _flat(tensor: HDF5Location, axes: Sequence[int], shape: Sequence[int]) -> ParameterSlice:
    return ParameterSlice(tensor, Layout.of(tensor.shape, axes, shape))


def _nothing(tensors: Sequence[HDF5Location]) -> Iterator[tuple[str, str, ParameterSlice]]:
    return iter(())


READINGS: Mapping[str, Reading] = {
    "dense": _with_bias(layout.dense),
    **{f"conv{axes}d": _with_bias(layout.kernel) for axes in (1, 2, 3)},
    **{f"conv{axes}d_transpose": _with_bias(layout.kernel) for axes in (1, 2, 3)},
    **{f"depthwise_conv{axes}d": _with_bias(layout.depthwise_kernel) for axes in (1, 2)},
    **{f"separable_conv{axes}d": _separable for axes in (1, 2)},
    "embedding": _table,
    "batch_normalization": _norm(4),
    "layer_normalization": _norm(2),
    "group_normalization": _norm(2),
    "rms_normalization": _norm(1),
}
"""By the class of the layer, as Keras spells it in a file."""
