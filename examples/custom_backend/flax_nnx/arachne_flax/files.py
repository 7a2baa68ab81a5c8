"""Files of weights: the state of a model in msgpack, as `flax.serialization` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx, serialization, traverse_util

from arachne.errors import ModelError, did_you_mean
from arachne.io.files import atomic_write
from arachne.model.values import Array, Weights
from arachne.model.weight_file import WeightFile

Paths = dict[tuple[str, ...], Array]

STORED_STATE = nnx.Not(nnx.RngState)
"""The part of a model's state that is stored: everything but the state of random numbers."""


def read(path: Path) -> Paths:
    """Read the arrays in a file, by path.

    Raises:
        ModelError: It is no file of weights.
    """
    try:
        content = serialization.msgpack_restore(path.read_bytes())
        arrays = {tuple(map(str, way)): values for way, values in traverse_util.flatten_dict(content).items()}
    except Exception as error:  # msgpack raises whatever its bytes lead to
        raise ModelError(f"'{path.name}' is no msgpack file of weights: {type(error).__name__}: {error}") from error
    if not arrays or not all(hasattr(values, "dtype") for values in arrays.values()):
        raise ModelError(
            f"'{path.name}' should hold arrays by name, as flax.serialization.msgpack_serialize writes them"
        )
    return {way: np.asarray(values) for way, values in arrays.items()}


def write(path: Path, arrays: Paths) -> None:
    """Write arrays by name; the file appears whole or not at all."""
    atomic_write(path, serialization.msgpack_serialize(traverse_util.unflatten_dict(arrays)))


def state_of(model: nnx.Module) -> Paths:
    """Return the stored arrays of a model, by path."""
    pure = nnx.to_pure_dict(nnx.state(model, STORED_STATE))
    return {tuple(map(str, way)): np.asarray(values) for way, values in traverse_util.flatten_dict(pure).items()}


def fill(model: nnx.Module, path: Path) -> None:
    """Put the arrays of a file into a model.

    Raises:
        ModelError: They do not fit the model.
    """
    state, arrays = nnx.state(model, STORED_STATE), read(path)
    pure = traverse_util.flatten_dict(nnx.to_pure_dict(state))
    wanted = {tuple(map(str, way)): way for way in pure}
    for way in wanted.keys() - arrays.keys():
        raise ModelError(f"'{path.name}' lacks '{'.'.join(way)}' of the model")
    for way in arrays.keys() - wanted.keys():
        names = [".".join(each) for each in wanted]
        raise ModelError(
            f"'{path.name}' has '{'.'.join(way)}', which the model has not" + did_you_mean(".".join(way), names)
        )
    for way, values in arrays.items():
        expected = pure[wanted[way]].shape
        if values.shape != expected:
            raise ModelError(
                f"'{path.name}' has a '{'.'.join(way)}' of shape {values.shape}, the model's is {expected}"
            )
    filled = {own: jnp.asarray(arrays[way], pure[own].dtype) for way, own in wanted.items()}
    nnx.replace_by_pure_dict(state, traverse_util.unflatten_dict(filled))
    nnx.update(model, state)


class FlaxWeightFile(WeightFile):
    """The weights in a msgpack file; the name of an array and its number of axes identify the kind of layer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrays = read(path)
        self._ways = {
            found: way for way, values in self._arrays.items() if (found := _address(way, values)) is not None
        }

    def parameters(self) -> Sequence[tuple[str, str]]:
        """Every kernel, table, scale and bias, in the file's order."""
        return list(self._ways)

    def _read(self, layer: str, parameter: str) -> Array:
        values = self._arrays[self._ways[layer, parameter]]
        values = values.astype(np.float32) if str(values.dtype) == "bfloat16" else values.copy()
        return (
            np.ascontiguousarray(np.moveaxis(values, (-1, -2), (0, 1))) if self._is_kernel(layer, parameter) else values
        )

    def _dtype(self, layer: str, parameter: str) -> str:
        return str(self._arrays[self._ways[layer, parameter]].dtype)

    def _rewrite(self, destination: Path, weights: Weights) -> None:
        arrays = dict(self._arrays)
        for (layer, parameter), values in weights.items():
            way = self._ways[layer, parameter]
            turned = np.moveaxis(values, (0, 1), (-1, -2)) if self._is_kernel(layer, parameter) else values
            arrays[way] = np.ascontiguousarray(turned).astype(arrays[way].dtype)
        write(destination, arrays)

    def _is_kernel(self, layer: str, parameter: str) -> bool:
        return self._ways[layer, parameter][-1] == "kernel"


def _address(way: tuple[str, ...], values: Any) -> tuple[str, str] | None:
    names = {"kernel": "weight", "embedding": "weight", "bias": "bias", "scale": "scale"}
    if way[-1] not in names or (values.dtype.kind not in "fV" and str(values.dtype) != "bfloat16"):
        return None
    return ".".join(way[:-1]), names[way[-1]]
