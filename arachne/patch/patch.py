"""`Patch`: a few weights before and after, with what they were found for and what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from arachne.backend import ModelBackend, WeightFile, restored
from arachne.dtypes import CARRIERS
from arachne.errors import PatchError, UnknownLayerError
from arachne.files import atomic_write, sha256_of
from arachne.patch.base import Base, BaseTensor, fingerprints, row_of, tensor_sha256
from arachne.patch.change import TensorChange, changed_weights, changes
from arachne.patch.entry import Entry
from arachne.patch.file import Written, write_changed
from arachne.patch.text import read_base, read_entry, read_text, write_text
from arachne.values import Address, Array

MAX_BYTES = 256 << 20
"""A longer file is no patch, and is not read."""


@dataclass(frozen=True)
class Patch:
    """A few weights of a trained network, before and after.

    Attributes:
        entries: The changed weights, in the order of the model.
        base: What they were changed in.
        provenance: How the patch came about: target, seed, settings, versions, hash of the data.
        evidence: What it was accepted with.
    """

    entries: tuple[Entry, ...]
    base: Base
    provenance: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        changes(self.base, self.entries)  # a patch that contradicts itself is never made

    def __len__(self) -> int:
        """Number of changed weights."""
        return len(self.entries)

    @classmethod
    def between(
        cls,
        backend: ModelBackend,
        addresses: Sequence[Address],
        new_values: Array | Sequence[float],
        *,
        provenance: Mapping[str, Any] | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> Patch:
        """The patch that takes a model from its present weights to new ones.

        Args:
            backend: The model, with its original weights.
            addresses: Which weights, `k` of them.
            new_values: `(k,)`; rounded to the dtype each weight is stored in. Weights that stay as they are, bit for
                bit, are left out.
            provenance: How the values were found.
            evidence: What was measured with them.

        Raises:
            PatchError: A value is not finite or too large for its dtype, or an address is outside its tensor.
        """
        wanted: dict[tuple[str, str], list[tuple[Address, float]]] = {}
        for address, value in zip(addresses, new_values, strict=True):
            wanted.setdefault((address.layer, address.parameter), []).append((address, float(value)))
        tensors, entries = [], []
        for info in backend.layers:
            for parameter, stored in info.parameters.items():
                pairs = wanted.pop((info.name, parameter), [])
                values = np.asarray(backend.get_weights(info.name)[parameter]) if pairs else np.empty(0)
                found = [Entry.of(a, stored.dtype, _at(values, a), new) for a, new in pairs]
                found = sorted((e for e in found if e.old_bits != e.new_bits), key=lambda e: e.address.index)
                if found:
                    tensors.append(base_tensor(values, found, uses=info.uses))
                    entries += found
        for layer, parameter in wanted:
            backend.check_values(layer, parameter, np.empty(0))
        return cls(tuple(entries), base_of(backend, tensors), provenance or {}, evidence or {})

    def with_evidence(self, evidence: Mapping[str, Any]) -> Patch:
        """The same patch with other evidence."""
        return replace(self, evidence=evidence)

    def to_json(self) -> str:
        """The text of the patch."""
        return write_text(self.base, self.entries, self.provenance, self.evidence)

    @classmethod
    def from_json(cls, text: str) -> Patch:
        """The patch in a text.

        Raises:
            PatchError: The text is no patch, or contradicts itself.
        """
        document = read_text(text)
        entries = tuple(read_entry(item) for item in document["entries"])
        return cls(entries, read_base(document), document["provenance"], document["evidence"])

    def save(self, path: str | Path) -> None:
        """Write the patch, whole or not at all."""
        atomic_write(path, self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> Patch:
        """Read a patch.

        Raises:
            PatchError: Nothing is there, or it is no patch.
        """
        return cls.from_json(_read(Path(path)))

    def apply(self, backend: ModelBackend) -> None:
        """Set the new weights in a model, after checking that it is the one the patch was made for.

        Raises:
            PatchError: It is another model, or carries the patch already; the model is as it was.
        """
        self._set(backend, changes(self.base, self.entries), "the model already carries this patch")

    def revert(self, backend: ModelBackend) -> None:
        """Set the old weights again, bit for bit, after checking that the model carries the patch.

        Raises:
            PatchError: It does not; the model is as it was.
        """
        wanted = [change.inverse() for change in changes(self.base, self.entries)]
        self._set(backend, wanted, "the model does not carry this patch")

    @contextmanager
    def applied(self, backend: ModelBackend) -> Iterator[None]:
        """The patch is in the model for the length of the block, and out of it however the block ends."""
        with restored(backend, [(tensor.layer, tensor.parameter) for tensor in self.base.tensors]):
            self.apply(backend)
            yield

    def apply_file(
        self, source: WeightFile, destination: Path, *, reopen: Callable[[Path], WeightFile] | None = None
    ) -> Written:
        """A copy of a model file with the new weights, proven to differ in nothing else.

        Raises:
            PatchError: It is another model, carries the patch already, or is the destination itself; nothing is
                written.
        """
        done = f"'{source.path.name}' already carries this patch"
        return write_changed(source, destination, changes(self.base, self.entries), done=done, reopen=reopen)

    def revert_file(
        self, source: WeightFile, destination: Path, *, reopen: Callable[[Path], WeightFile] | None = None
    ) -> Written:
        """A copy of a patched model file with the old weights, bit for bit.

        Raises:
            PatchError: The file does not carry the patch, or is the destination itself; nothing is written.
        """
        wanted = [change.inverse() for change in changes(self.base, self.entries)]
        done = f"'{source.path.name}' does not carry this patch"
        return write_changed(source, destination, wanted, done=done, reopen=reopen)

    def _set(self, backend: ModelBackend, wanted: Sequence[TensorChange], done: str) -> None:
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


def base_tensor(values: Array, entries: Sequence[Entry], *, uses: int = 1) -> BaseTensor:
    """The identity of a tensor that all these entries are in, before and after them."""
    first = entries[0]
    carried = np.asarray(values, CARRIERS[first.dtype])
    changed = carried.copy()
    for entry in entries:
        changed[entry.address.index] = entry.new
    return BaseTensor(
        first.address.layer,
        first.address.parameter,
        tuple(values.shape),
        first.dtype,
        tensor_sha256(carried),
        tensor_sha256(changed),
        uses,
        fingerprints(carried, (row_of(entry.address.index) for entry in entries)),
    )


def base_of(backend: ModelBackend, tensors: Sequence[BaseTensor]) -> Base:
    """The identity of a model, with its file's name and hash where it came from one."""
    description = backend.describe()
    path = None if description.source is None else Path(description.source)
    if path is None or not path.is_file():
        return Base(None, None, description.backend, tuple(tensors))
    return Base(path.name, sha256_of(path), description.backend, tuple(tensors))


def _at(values: Array, address: Address) -> float:
    if len(address.index) != values.ndim or any(
        not 0 <= i < n for i, n in zip(address.index, values.shape, strict=True)
    ):
        raise PatchError(f"{address} is outside a tensor of shape {values.shape}")
    return float(values[address.index])


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PatchError(f"'{path}' is too large to be a patch")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise PatchError(f"cannot read patch '{path}': {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PatchError(f"'{path}' is no patch: it is not text") from error
