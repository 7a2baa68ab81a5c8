"""The third kind of file of a checkpoint: the sums of a pass of an unfinished localisation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arachne.data.lazy.source_spec import describe
from arachne.errors import DataError, InputError
from arachne.io.arrays import read_arrays, write_arrays
from arachne.io.stored_values import whole
from arachne.model.lazy import is_lazy
from arachne.model.passes import PassState
from arachne.model.values import Inputs, by_name

if TYPE_CHECKING:
    from arachne.results.checkpoint.keeper import Checkpoints

PASS = "arachne.localising/1"

MAX_BYTES = 1 << 30
"""Bytes that the passes of one run may take on the disk; what comes later is not kept."""


class PassFiles:
    """Keeps passes as files of a run's checkpoints: a `PassKeeper`.

    Args:
        checkpoints: Says where files are and when one is due.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._block: str | None = None
        self._number = 0
        self._about = ""
        self._name = ""
        self._sizes: dict[str, int] = {}

    @property
    def block(self) -> str | None:
        """The name of the block that passes are kept in; None keeps none. Passes are counted from its beginning."""
        return self._block

    @block.setter
    def block(self, name: str | None) -> None:
        self._block, self._number = name, 0

    def begin(self, kind: str, inputs: Inputs, names: Sequence[object]) -> tuple[int, PassState]:
        self._number += 1
        digest = hashlib.sha256(f"{self._block}\0{self._number}\0{kind}\0{list(names)}\0".encode())
        digest.update(json.dumps(self._checkpoints.fields, sort_keys=True, default=str).encode())
        try:
            _add_inputs(digest, inputs)
        except DataError:  # they are made by code of this process
            self._about = ""
            return 0, {}
        self._about = digest.hexdigest()
        self._name = f"pass-{self._about[:16]}.npz"
        return self._checkpoints.read_pass(self._name, self._read)

    def keep(self, done: int, state: Callable[[], PassState | None]) -> None:
        if not self._about:
            return

        def write(path: Path) -> None:
            arrays = state()
            if arrays is None:
                return
            size = sum(values.nbytes for values in arrays.values())
            if size + sum(own for name, own in self._sizes.items() if name != self._name) > MAX_BYTES:
                return
            write_arrays(path, arrays, {"schema": PASS, "sha256": self._about, "done": done})
            self._sizes[self._name] = size

        self._checkpoints.keep_pass(self._name, write)

    def _read(self, path: Path) -> tuple[int, PassState]:
        arrays, about = read_arrays(path, PASS, MAX_BYTES)
        if about.get("sha256") != self._about:
            raise InputError(f"'{path}' cannot be used: it is of another pass")
        self._sizes[self._name] = sum(values.nbytes for values in arrays.values())
        return whole(about.get("done"), "done"), arrays


def _add_inputs(digest: hashlib._Hash, inputs: Inputs) -> None:
    """Add what inputs hold to a digest, or where they come from if they are read only when needed."""
    if is_lazy(inputs):
        digest.update(repr(describe(inputs)).encode())
        return
    for name, values in by_name(inputs).items():
        digest.update(f"{name}\0{values.dtype.str}\0{values.shape}\0".encode())
        digest.update(np.ascontiguousarray(values).data)
