"""The weights of `.keras` and `.weights.h5` files by address: read, and replaced in a copy.

Which tensor of the file a variable is, only Keras knows. So the model is built from its checked description, and Keras
is asked to "save" it into a store that only records where each variable would go. A `.weights.h5` file without its
model has the layers that it names itself (`names.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from keras.src.saving import saving_lib

from arachne.adapting.zips import write_copy
from arachne.errors import ModelError
from arachne.io.files import atomic_draft
from arachne.model.values import Array, Weights
from arachne.model.weight_file import WeightFile
from arachne.weights.storage import BFLOAT16
from arachne_keras.archive import Archive, open_hdf5
from arachne_keras.hdf5 import HDF5Location, locate_tensors, read_tensor
from arachne_keras.kinds import Layer
from arachne_keras.names import addresses
from arachne_keras.parameter_slice import ParameterSlice


class KerasWeightFile(WeightFile):
    """The weights of one file by address.

    Args:
        path: The file.
        stored: How and where each parameter is stored.
        archive: The checked archive, for a `.keras` file.
    """

    def __init__(
        self,
        path: Path,
        stored: Mapping[tuple[str, str], tuple[ParameterSlice, HDF5Location]],
        archive: Archive | None = None,
    ) -> None:
        self.path = path
        self._archive = archive
        self._stored = stored
        self._locations = {location.path: location for _, location in stored.values()}

    @classmethod
    def of_model(cls, path: Path, model: Any, layers: Mapping[str, Layer], archive: Archive | None = None) -> Self:
        """Open a file with the repairable layers of its model."""
        if archive is None:
            with open_hdf5(path, path.name) as file:
                there = locate_tensors(file, path.name, path.stat().st_size)
        else:
            there = archive.locations
        paths = _paths(model)
        found = {}
        for name, layer in layers.items():
            for parameter, stored in layer.stored.items():
                location = there.get(paths.get(id(stored.variable), ""))
                if location is None or location.shape != tuple(stored.variable.shape):
                    raise ModelError(f"'{path.name}' does not hold '{name}.{parameter}' where Keras would look for it")
                found[name, parameter] = stored, location
        return cls(path, found, archive)

    @classmethod
    def of_names(cls, path: Path) -> Self:
        """Open a `.weights.h5` file with the layers that it names itself."""
        with open_hdf5(path, path.name) as file:
            there = locate_tensors(file, path.name, path.stat().st_size)
            found = addresses(file, there, path.name)
        return cls(path, {key: (stored, stored.variable) for key, stored in found.items()})

    def parameters(self) -> Sequence[tuple[str, str]]:
        """Every parameter of the model's repairable layers, in order of execution."""
        return tuple(self._stored)

    def _read(self, layer: str, parameter: str) -> Array:
        """One parameter in the canonical layout."""
        stored, location = self._stored[layer, parameter]
        return stored.to_canonical(self._tensor(location))

    def _dtype(self, layer: str, parameter: str) -> str:
        """The dtype it is stored in."""
        return self._stored[layer, parameter][1].name

    def _rewrite(self, destination: Path, weights: Weights) -> None:
        """Copy the file, write the weights over their old bytes, and set the checksum right."""
        tensors: dict[str, Array] = {}
        for (layer, parameter), values in weights.items():
            stored, location = self._stored[layer, parameter]
            whole = tensors.get(location.path)
            tensors[location.path] = stored.put(self._tensor(location) if whole is None else whole, np.asarray(values))
        packed = {path: _to_stored(values, self._locations[path]) for path, values in tensors.items()}
        if self._archive is not None:
            self._archive.write_copy(destination, packed)
        else:
            self._copy(destination, packed)

    def _copy(self, destination: Path, tensors: Mapping[str, Array]) -> None:
        offsets = {path: self._locations[path].offset for path in tensors}
        if None not in offsets.values():
            write_copy(
                self.path, destination, {offsets[path] or 0: values.tobytes() for path, values in tensors.items()}
            )
            return
        with atomic_draft(destination, self.path) as temporary:
            shutil.copyfile(self.path, temporary)
            with open_hdf5(temporary, self.path.name, "r+") as file:
                for path, values in tensors.items():
                    file[path][...] = values

    def _tensor(self, location: HDF5Location) -> Array:
        values = self._stored_tensor(location)
        if location.name == "bfloat16":
            return BFLOAT16.to_float(values.view(np.uint16))
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def _stored_tensor(self, location: HDF5Location) -> Array:
        if self._archive is not None:
            return np.asarray(self._archive.tensor(location))
        if location.offset is None:
            with open_hdf5(self.path, self.path.name) as file:
                return np.array(file[location.path])
        with self.path.open("rb") as raw:
            return read_tensor(raw, location.offset, location)


class _Paths(saving_lib.H5IOStore):  # type: ignore[misc]  # Keras is untyped
    """A store that records the path of each variable and nothing else."""

    def __init__(self) -> None:
        self.found: dict[int, str] = {}
        self._group = ""

    def __bool__(self) -> bool:
        return True

    def make(self, path: str, metadata: Any = None) -> _Paths:
        """Begin a group."""
        self._group = path
        return self

    def __setitem__(self, key: str, value: Any) -> None:
        self.found[id(value)] = f"{self._group}/vars/{key}" if self._group else f"vars/{key}"


def _paths(model: Any) -> dict[int, str]:
    """The path of each variable in a file of the model's weights, by the variable's identity."""
    store = _Paths()
    saving_lib._save_state(model, store, None, "", set())
    return store.found


def _to_stored(values: Array, location: HDF5Location) -> Array:
    """Convert values to the dtype of the file."""
    if location.name == "bfloat16":
        return BFLOAT16.to_stored(values).view(location.dtype)
    return np.ascontiguousarray(values, dtype=location.dtype)
