"""`.keras` archives: checked before anything in them is used, changed in place without being rewritten."""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from arachne.adapting.zips import Zip, open_zip, write_copy
from arachne.errors import ModelError, UnsafeModelError
from arachne.io.files import atomic_draft
from arachne.io.reading import parse_json
from arachne_keras.config import check_config
from arachne_keras.hdf5 import ALWAYS_ALLOWED_BYTES, MAX_GROWTH, HDF5Location, locate_tensors, read_tensor

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
MAX_CONFIG_BYTES = 64 * 2**20


class Archive:
    """A `.keras` file whose names, sizes, checksums and contents hold.

    Attributes:
        path: The file.
        members: What the archive holds, by name.
        config: Its description of the model.
        locations: Where each tensor lies inside the HDF5 member.
    """

    def __init__(self, path: Path, *, trust_code: bool = False) -> None:
        """Check the whole archive.

        Raises:
            UnsafeModelError: It would run code, reach outside, or grow out of proportion.
            ModelError: It is no `.keras` file, or a damaged one.
        """
        self.path = path
        with open_zip(path, "a .keras archive") as file:
            self._zip = Zip.read_directory(file, path)
            self.members = self._zip.members
            self._check_members(file)
            self.config = self._read_config(file)
            if not trust_code:
                check_config(self.config, path.name)
            content = file.read(WEIGHTS)
        with open_hdf5(io.BytesIO(content), path.name) as weights:
            self.locations = locate_tensors(weights, path.name, len(content))

    def tensor(self, location: HDF5Location) -> Any:
        """Read one tensor as it is stored; a contiguous tensor is read without the rest of the file."""
        info = self.members[WEIGHTS]
        if location.offset is None or info.compress_type != zipfile.ZIP_STORED:
            with open_hdf5(io.BytesIO(self._weights()), self.path.name) as file:
                return np.array(file[location.path])
        with self.path.open("rb") as raw:
            return read_tensor(raw, self._zip.extent(WEIGHTS)[0] + location.offset, location)

    def _weights(self) -> bytes:
        with zipfile.ZipFile(self.path) as file:
            return file.read(WEIGHTS)

    def write_copy(self, destination: Path, tensors: Mapping[str, Any]) -> None:
        """Write a copy with other values of some tensors, by path, as arrays of the stored shape and dtype.

        If the archive is uncompressed and the tensors are contiguous, as Keras writes them, only their bytes and the
        checksum change. Otherwise the HDF5 member is rewritten and every other member copied.
        """
        info = self.members[WEIGHTS]
        whole = all(self.locations[path].offset is not None for path in tensors)
        if whole and info.compress_type == zipfile.ZIP_STORED:
            start, _ = self._zip.extent(WEIGHTS)
            edits = {start + (self.locations[path].offset or 0): values.tobytes() for path, values in tensors.items()}
            write_copy(self.path, destination, edits, self._zip)
        else:
            self._rewrite(destination, tensors)

    def _rewrite(self, destination: Path, tensors: Mapping[str, Any]) -> None:
        content = io.BytesIO(self._weights())
        with open_hdf5(content, self.path.name, "r+") as weights:
            for path, values in tensors.items():
                weights[path][...] = values
        with (
            atomic_draft(destination, self.path) as temporary,
            zipfile.ZipFile(self.path) as source,
            zipfile.ZipFile(temporary, "w") as target,
        ):
            for name, info in self.members.items():
                target.writestr(info, content.getvalue() if name == WEIGHTS else source.read(name))

    def _check_members(self, file: zipfile.ZipFile) -> None:
        name = self.path.name
        size, total = self.path.stat().st_size, sum(info.file_size for info in self.members.values())
        if total > max(ALWAYS_ALLOWED_BYTES, MAX_GROWTH * size):
            raise UnsafeModelError(f"'{name}' would grow from {size:,} to {total:,} bytes when it is read")
        for member in (CONFIG, WEIGHTS):
            if member not in self.members:
                raise ModelError(f"'{name}' lacks its member '{member}'")
        self._zip.check_checksums(file)

    def _read_config(self, file: zipfile.ZipFile) -> Any:
        if self.members[CONFIG].file_size > MAX_CONFIG_BYTES:
            raise ModelError(f"'{self.path.name}' has a config.json too large to be read")
        try:
            return parse_json(file.read(CONFIG), finite=False)
        except ValueError as error:
            raise ModelError(f"'{self.path.name}' has a config.json that cannot be read: {error}") from error


@contextlib.contextmanager
def open_hdf5(source: Any, name: str, mode: str = "r") -> Iterator[Any]:
    """Open an HDF5 file.

    Raises:
        ModelError: It is not readable.
    """
    try:
        file = h5py.File(source, mode)
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"'{name}' holds no readable HDF5 weights: {error}") from error
    with file:
        yield file
