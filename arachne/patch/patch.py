"""`Patch`: a few weights before and after, with provenance and evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arachne.errors import PatchError
from arachne.io.files import atomic_write
from arachne.io.reading import parse_errors_as
from arachne.model.values import Address, Array
from arachne.model.weight_file import WeightFile
from arachne.patch.algebra import compose, without
from arachne.patch.base import PatchBase
from arachne.patch.change import TensorChange, changes
from arachne.patch.file import Written, write_changed
from arachne.patch.in_memory import base_of, changes_between, changes_of_edits, edit_of, set_changed
from arachne.patch.low_rank import LowRankChange, check_apart, read_low_rank
from arachne.patch.text import checked_size, read_base, read_entry, read_file, read_text, write_changes, write_text
from arachne.patch.values_file import read_values, write_values
from arachne.patch.weight_change import WeightChange
from arachne.plugins.drawing import TEXT, Drawable, draw
from arachne.text import pluralise
from arachne.weights.edit import Edit

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

LARGE = 2000
"""With more weights than this, the values go into a file beside the text."""


@dataclass(frozen=True)
class Patch(Drawable):
    """A few weights of a trained network, before and after.

    Attributes:
        entries: The changed weights, in the order of the model.
        base: What they were changed in.
        provenance: How the patch came about: target, seed, settings, versions, hash of the data.
        evidence: What it was accepted with.
        low_rank: Tensors that change as a whole, each by a low-rank edit.
    """

    entries: tuple[WeightChange, ...]
    base: PatchBase
    provenance: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    low_rank: tuple[LowRankChange, ...] = ()

    def __post_init__(self) -> None:
        _ = self.changes  # a patch that contradicts itself is never made

    def __len__(self) -> int:
        """Number of changed weights."""
        return sum(change.weights for change in self.changes)

    def __str__(self) -> str:
        """The changed weights by layer, old → new, with the evidence."""
        return draw(self, TEXT)

    @property
    def headline(self) -> str:
        """`20 weights in fc1, fc2`."""
        layers = dict.fromkeys(change.tensor.layer for change in self.changes)
        return f"{pluralise(len(self), 'weight')} in {', '.join(layers) or 'no layer'}"

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
        made = changes_between(backend, addresses, new_values)
        return cls.of(made, base_of(backend), provenance=provenance, evidence=evidence)

    @classmethod
    def of(
        cls,
        wanted: Sequence[TensorChange],
        base: PatchBase,
        *,
        provenance: Mapping[str, Any] | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> Patch:
        """The patch that makes these changes; `base` says which file they are for, its tensors come from them."""
        tensors = tuple(change.tensor for change in wanted)
        entries = tuple(entry for change in wanted for entry in change.entries)
        low_rank = tuple(change for change in wanted if isinstance(change, LowRankChange))
        return cls(entries, replace(base, tensors=tensors), provenance or {}, evidence or {}, low_rank)

    @classmethod
    def of_edits(
        cls,
        backend: ModelBackend,
        edits: Sequence[Edit],
        *,
        provenance: Mapping[str, Any] | None = None,
    ) -> Patch:
        """Make the patch of sparse and low-rank edits of a model that has its original weights.

        Raises:
            PatchError: Two edits change one tensor, or an edit does not fit the model.
        """
        return cls.of(changes_of_edits(backend, edits), base_of(backend), provenance=provenance)

    @cached_property
    def changes(self) -> tuple[TensorChange, ...]:
        """The patch, tensor by tensor."""
        check_apart(self.low_rank, self.entries)
        whole: dict[tuple[str, str], TensorChange] = {change.key: change for change in self.low_rank}
        others = [tensor for tensor in self.base.tensors if (tensor.layer, tensor.parameter) not in whole]
        whole |= {change.key: change for change in changes(replace(self.base, tensors=tuple(others)), self.entries)}
        return tuple(whole[tensor.layer, tensor.parameter] for tensor in self.base.tensors)

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """One edit for each tensor that the patch changes."""
        return tuple(edit_of(change) for change in self.changes)

    @cached_property
    def digest(self) -> str:
        """sha256 of what the patch changes; provenance and evidence do not count."""
        return hashlib.sha256(write_changes(self.entries, self.low_rank).encode()).hexdigest()

    def with_evidence(self, evidence: Mapping[str, Any]) -> Patch:
        """A copy of the patch with other evidence."""
        return replace(self, evidence=evidence)

    def compose(self, other: Patch) -> Patch:
        """Both patches as one: `other` was made on the same model, or on what this one leaves.

        Raises:
            PatchError: They want different values for a weight, or were made for different models.
        """
        both = compose(self.changes, other.changes)
        _check_one_model(self.base, other.base)
        return Patch.of(both, self.base, provenance={"stack": [*_parts(self), *_parts(other)]})

    def minus(self, other: Patch) -> Patch:
        """Take out another patch that this one contains, and return the rest.

        Raises:
            PatchError: It does not contain it, or changes its weights again.
        """
        gone = {part["digest"] for part in _parts(other)}
        left = [part for part in _parts(self) if part["digest"] not in gone]
        taken_out = [] if len(left) < len(_parts(self)) else [{"without": other.digest}]
        return Patch.of(without(self.changes, other.changes), self.base, provenance={"stack": [*left, *taken_out]})

    def inverse(self) -> Patch:
        """The patch that takes this one back; for the file this one leaves behind."""
        turned = [change.inverse() for change in self.changes]
        base = PatchBase(self.base.file, None, self.base.backend, content=self.base.patched_content)
        return Patch.of(turned, base, provenance={"inverse_of": _parts(self)})

    def to_json(self) -> str:
        """The text of the patch, with every weight in it however many there are."""
        return write_text(self.base, self.entries, self.provenance, self.evidence, low_rank=self.low_rank)

    @classmethod
    def from_json(cls, text: str) -> Patch:
        """The patch in a text.

        Raises:
            PatchError: The text is no patch, or contradicts itself.
        """
        with parse_errors_as("patch", PatchError):
            return cls._from_document(read_text(text), None)

    def save(self, path: str | Path) -> None:
        """Write the patch, whole or not at all.

        The values of more than `LARGE` weights go into a safetensors file of the same name beside the text.
        """
        path = Path(path)
        if len(self.entries) <= LARGE:
            atomic_write(path, checked_size(self.to_json()).encode())
            return
        beside = path.with_suffix(".safetensors")
        content = write_values(self.changes)
        values = {"file": beside.name, "sha256": hashlib.sha256(content).hexdigest(), "weights": len(self.entries)}
        bare = replace(self.base, tensors=tuple(replace(tensor, fingerprints=()) for tensor in self.base.tensors))
        text = write_text(bare, (), self.provenance, self.evidence, values, self.low_rank)
        atomic_write(beside, content)
        atomic_write(path, text.encode())

    @classmethod
    def load(cls, path: str | Path) -> Patch:
        """Read a patch.

        Raises:
            PatchError: Nothing is there, or it is no patch.
        """
        path = Path(path)
        text = read_file(path)
        try:
            with parse_errors_as("patch", PatchError):
                return cls._from_document(read_text(text), path.parent)
        except PatchError as error:
            raise PatchError(f"'{path}': {error}") from error

    @classmethod
    def _from_document(cls, document: Mapping[str, Any], folder: Path | None) -> Patch:
        base = read_base(document)
        entries = tuple(read_entry(item) for item in document["entries"])
        low_rank = tuple(read_low_rank(item, base.tensors) for item in document.get("low_rank", ()))
        values = document.get("values")
        if values is not None:
            if folder is None:
                raise PatchError(f"the patch keeps its values in '{values['file']}': load it from its folder")
            if entries:
                raise PatchError(f"the patch lists weights and also keeps them in '{values['file']}'")
            base, entries = read_values(folder / values["file"], values["sha256"], base, low_rank)
            if len(entries) != values["weights"]:
                raise PatchError(f"the patch has {values['weights']} weights and '{values['file']}' {len(entries)}")
        return cls(entries, base, document["provenance"], document["evidence"], low_rank)

    def apply(self, backend: ModelBackend) -> None:
        """Set the new weights in a model, after checking that it is the one the patch was made for.

        Raises:
            PatchError: It is another model, or carries the patch already; the model is as it was.
        """
        set_changed(backend, self.changes, "the model already carries this patch")

    def revert(self, backend: ModelBackend) -> None:
        """Set the old weights again, bit for bit, after checking that the model carries the patch.

        Raises:
            PatchError: It does not; the model is as it was.
        """
        wanted = [change.inverse() for change in self.changes]
        set_changed(backend, wanted, "the model does not carry this patch")

    @contextmanager
    def apply_temporarily(self, backend: ModelBackend) -> Iterator[None]:
        """Keep the patch in the model for the length of the block, and take it out however the block ends."""
        from arachne.model.cut import restoring_weights

        with restoring_weights(backend, [(tensor.layer, tensor.parameter) for tensor in self.base.tensors]):
            self.apply(backend)
            yield

    def apply_file(
        self,
        source: WeightFile,
        destination: Path,
        *,
        reopen: Callable[[Path], WeightFile] | None = None,
        finish: Callable[[Path], None] | None = None,
    ) -> Written:
        """A copy of a model file with the new weights, proven to differ in nothing else.

        Args:
            source: The file.
            destination: Where the copy goes.
            reopen: Opens the copy for the proof.
            finish: Called with the proven copy before it is put into its place, which an error prevents.

        Raises:
            PatchError: It is another model, carries the patch already, or is the destination itself; nothing is
                written.
        """
        done = f"'{source.path.name}' already carries this patch"
        return write_changed(source, destination, self.changes, done=done, reopen=reopen, finish=finish)

    def revert_file(
        self,
        source: WeightFile,
        destination: Path,
        *,
        reopen: Callable[[Path], WeightFile] | None = None,
        finish: Callable[[Path], None] | None = None,
    ) -> Written:
        """A copy of a patched model file with the old weights, bit for bit; arguments as `apply_file`.

        Raises:
            PatchError: The file does not carry the patch, or is the destination itself; nothing is written.
        """
        wanted = [change.inverse() for change in self.changes]
        done = f"'{source.path.name}' does not carry this patch"
        return write_changed(source, destination, wanted, done=done, reopen=reopen, finish=finish)


def _check_one_model(first: PatchBase, second: PatchBase) -> None:
    """Refuse a second patch that was made neither on the first one's model nor on its patched model."""
    known = first.content, first.patched_content
    if first.backend == second.backend and None not in known and second.content not in (*known, None):
        raise PatchError(
            f"the patches are for different models: '{second.file or 'the second model'}' is neither "
            f"'{first.file or 'the first model'}' nor what the first patch leaves of it"
        )


def _parts(patch: Patch) -> list[dict[str, Any]]:
    """The patches that a stack was put together from; a patch that is no stack is its own part."""
    stack = patch.provenance.get("stack")
    if isinstance(stack, list):
        return [part for part in stack if isinstance(part, dict) and "digest" in part]
    own = {"digest": patch.digest, "weights": len(patch)}
    return [{**own, "provenance": dict(patch.provenance), "evidence": dict(patch.evidence)}]
