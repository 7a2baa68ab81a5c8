"""Apply a patch to a file it was not made in: find its tensors, change a copy, and keep the derived patch.

Files of the patch's own backend must hold the very same bits, or another dtype. In other files tensors may be rounded
or scaled by an exporter; then a derived patch with that file's own bits is written beside the copy
(`patched.onnx.patch.json`), and reverting uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arachne.errors import PatchError
from arachne.model.values import Array, Weights
from arachne.model.weight_file import WeightFile
from arachne.patch.file import Written, check_destination
from arachne.patch.matching import Match, carries_derived, match
from arachne.patch.patch import Patch
from arachne.weights.storage import IntegerGrid

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend


@dataclass(frozen=True)
class AppliedPatch:
    """A patch that was put into a copy of a file, or taken out of one.

    Attributes:
        written: The copy, and what was proven about it.
        match: How the patch's tensors were found.
        derived: The file with the derived patch, where one was needed.
    """

    written: Written
    match: Match
    derived: Path | None = None


def apply_to(
    patch: Patch,
    source: WeightFile,
    destination: Path,
    *,
    backend: str | None = None,
    mapping: Mapping[str, str] | None = None,
    reopen: Callable[[Path], WeightFile] | None = None,
    check: Callable[[Path], None] | None = None,
    named: bool = False,
) -> AppliedPatch:
    """A copy of a model file of any framework with the patch in it.

    Args:
        patch: The patch.
        source: The file.
        destination: Where the copy goes.
        backend: The name of the backend that opened the file.
        mapping: Which layer of the file is meant, by the patch's layer.
        reopen: Opens the copy for the proof.
        check: Called with the finished copy before it is put into its place, which an error prevents.
        named: Whether the copy notes which patch it carries.

    Raises:
        PatchError: The patch's tensors are not in the file, or not clearly; nothing is written.
        ModelError: The copy is to note the patch, and its format has no place for that.
    """
    check_destination(source.path, destination)
    try:
        found = match(patch, source, mapping=mapping, exact=_own(patch, source, backend) and not mapping)
    except PatchError:
        if derived_for(patch, source.path) is not None:
            raise carries_derived(source.path.name) from None
        raise

    def finish(draft: Path) -> None:
        if found.derived:  # the copy cannot be reverted without it
            found.patch.save(derived_path(draft))
        if named:
            source.name_patch(draft, patch.digest)
        if check is not None:
            check(draft)

    written = found.patch.apply_file(source, destination, reopen=reopen, finish=finish)
    return AppliedPatch(written, found, derived_path(destination) if found.derived else None)


def revert_from(
    patch: Patch,
    source: WeightFile,
    destination: Path,
    *,
    backend: str | None = None,
    mapping: Mapping[str, str] | None = None,
    reopen: Callable[[Path], WeightFile] | None = None,
) -> AppliedPatch:
    """A copy of a patched model file of any framework with the old weights, bit for bit; arguments as `apply_to`.

    Raises:
        PatchError: The file does not carry the patch; nothing is written.
    """
    check_destination(source.path, destination)
    own = derived_for(patch, source.path)
    exact = own is not None or (_own(patch, source, backend) and not mapping)
    found = match(own or patch, source, mapping=None if own else mapping, exact=exact, reverting=True)

    def finish(draft: Path) -> None:
        for digest in (patch.digest, found.patch.digest):
            source.forget_patch(draft, digest)

    return AppliedPatch(found.patch.revert_file(source, destination, reopen=reopen, finish=finish), found)


def for_model(
    patch: Patch, backend: ModelBackend, *, mapping: Mapping[str, str] | None = None, reverting: bool = False
) -> Patch:
    """The patch with the names and bits of a model in memory, which may be of another framework.

    Raises:
        PatchError: The patch's tensors are not in the model, or not clearly.
    """
    source = WeightsInMemory(backend)
    exact = _own(patch, source, backend.NAME) and not mapping
    return match(patch, source, mapping=mapping, exact=exact, reverting=reverting).patch


def derived_path(model: Path) -> Path:
    """Where the derived patch of a model file is kept."""
    return model.with_name(model.name + ".patch.json")


def derived_for(patch: Patch, model: Path) -> Patch | None:
    """The derived patch beside a model file, if it was derived from this one."""
    beside = derived_path(model)
    if not beside.is_file():
        return None
    own = Patch.load(beside)
    origin = own.provenance.get("derived_from")
    return own if isinstance(origin, Mapping) and origin.get("digest") == patch.digest else None


class WeightsInMemory(WeightFile):
    """The weights of a model in memory, read as if they were a file's."""

    def __init__(self, backend: ModelBackend) -> None:
        self._backend = backend
        self.path = Path(backend.describe().source or "the model")
        self._stored = {
            (info.name, parameter): stored for info in backend.layers for parameter, stored in info.parameters.items()
        }

    def parameters(self) -> list[tuple[str, str]]:
        """Every parameter, in order of execution."""
        return list(self._stored)

    def grid(self, layer: str, parameter: str) -> IntegerGrid | None:
        """Return the grid of a quantised parameter."""
        return self._stored[layer, parameter].grid

    def _read(self, layer: str, parameter: str) -> Array:
        """One parameter."""
        return self._stored[layer, parameter].to_file(np.asarray(self._backend.get_weights(layer)[parameter]))

    def _dtype(self, layer: str, parameter: str) -> str:
        """The dtype it is stored in."""
        return self._stored[layer, parameter].dtype

    def _rewrite(self, destination: Path, weights: Weights) -> None:
        """A model in memory is no file."""
        raise PatchError("a model in memory is patched in place, not as a file")


def _own(patch: Patch, source: WeightFile, backend: str | None) -> bool:
    """Whether a file is of the kind the patch was made in, so that its tensors must match bit for bit."""
    if backend is not None and patch.base.backend is not None:
        return backend == patch.base.backend
    return patch.base.file is None or Path(patch.base.file).suffix == source.path.suffix
