"""Change weights in a copy of a model file, which is checked before, compared after, and only then published."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arachne.errors import PatchError, UnknownLayerError, did_you_mean
from arachne.io.expected import expected_at
from arachne.io.files import CHUNK, same_file, sha256_of
from arachne.io.folder import Folder, Identity
from arachne.io.moving import put_file
from arachne.io.output_paths import allowed_mode, check_room, environment_faults, folders_above, remove
from arachne.io.working_folder import COPY, WorkingFolder, working_folder
from arachne.model.values import Array, Weights
from arachne.model.weight_file import WeightFile
from arachne.patch.change import TensorChange, changed_weights


@dataclass(frozen=True)
class Written:
    """Facts that were proven about a file after it was written.

    Attributes:
        path: The new file.
        sha256: Its hash.
        weights: How many weights differ from the source.
        tensors: How many tensors were compared bit for bit, touched ones included.
        bytes_changed: How many bytes of the file, and of those it keeps weights in, differ from the source; None where
            the lengths differ (an archive that had to be written anew).
        beside: Names of the other files that hold weights of the new file, relative to its folder.
    """

    path: Path
    sha256: str
    weights: int
    tensors: int
    bytes_changed: int | None
    beside: tuple[str, ...] = ()


def write_changed(
    source: WeightFile,
    destination: Path,
    wanted: Sequence[TensorChange],
    *,
    done: str,
    reopen: Callable[[Path], WeightFile] | None = None,
    finish: Callable[[Path], None] | None = None,
) -> Written:
    """A copy of a model file with some weights changed, or nothing at all.

    Args:
        source: The file; it is only read.
        destination: Where the copy goes.
        wanted: The changes.
        done: What to say when the file already is what the changes would make of it.
        reopen: Opens the copy for the proof; `source.reopen` unless told.
        finish: Called with the proven copy before it is put into its place, which an error prevents; files that it
            leaves beside the copy go with it.

    Raises:
        PatchError: The patch does not fit, or the destination is the source itself.
        EnvironmentFaultError: The disk is full, or the folder cannot be written.
    """
    destination = Path(destination)
    check_destination(source.path, destination)
    listed = list(source.parameters())
    for change in wanted:
        _check_listed(change, listed, source.path.name)
    weights = changed_weights(
        wanted, lambda layer, parameter: (source.read(layer, parameter), source.dtype(layer, parameter)),
        source.path.name, done,
    )  # fmt: skip
    opener = reopen or source.reopen
    absolute = destination.absolute()
    with ExitStack() as stack:
        with environment_faults(destination):
            stack.enter_context(folders_above(absolute))
            work = stack.enter_context(working_folder(absolute))
            found = expected_at(absolute, work.parent)
            check_room(absolute.parent, 2 * source.path.stat().st_size)
            copy = stack.enter_context(work.make(COPY))
            folder = copy.path
            draft = folder / destination.name
            source.rewrite(draft, weights)
        if source.file_identity is not None:
            source.file_identity.check()
        changed = _changed_bytes(folder, draft, source.path)
        _make_way(source, folder, draft, destination)
        _prove(source, opener(draft), listed, weights)
        beside = tuple(path.relative_to(folder).as_posix() for path in _beside(folder, draft))
        _leave_shared(folder, draft, destination)
        if finish is not None:
            finish(draft)
        with environment_faults(destination):
            digest = sha256_of(draft)
            _publish(work, copy, source.path, absolute.name, found)
    return Written(destination, digest, sum(change.weights for change in wanted), len(listed), changed, beside)


def check_destination(source: Path, destination: Path) -> None:
    """Refuse to write over the file that is read, whatever name or link leads to it."""
    if same_file(source, destination):
        raise PatchError(f"the output '{destination}' is the input itself, choose another name")
    if destination.is_dir():
        raise PatchError(f"the output '{destination}' is a directory, expected a file name")


def differing_bytes(a: Path, b: Path) -> int | None:
    """How many bytes of two files differ; None when their lengths do."""
    if a.stat().st_size != b.stat().st_size:
        return None
    count = 0
    with open(a, "rb") as left, open(b, "rb") as right:
        while chunk := left.read(CHUNK):
            other = right.read(CHUNK)
            if chunk != other:
                count += int(np.count_nonzero(np.frombuffer(chunk, np.uint8) != np.frombuffer(other, np.uint8)))
    return count


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays have the same shape, dtype and bits; a zero and a negative zero differ."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _check_listed(change: TensorChange, listed: Sequence[tuple[str, str]], where: str) -> None:
    if change.key not in listed:
        names = [f"{layer}.{parameter}" for layer, parameter in listed]
        raise PatchError(
            f"the patch changes '{change.tensor.name}', which '{where}' does not have"
            + did_you_mean(change.tensor.name, names)
        )


def _prove(source: WeightFile, copy: WeightFile, listed: Sequence[tuple[str, str]], weights: Weights) -> None:
    """Compare every tensor of the copy, bit for bit, with its expected values."""
    if list(copy.parameters()) != listed:
        raise PatchError(f"writing '{source.path.name}' anew changed which tensors it holds; nothing was written")
    for layer, parameter in listed:
        try:
            found = copy.read(layer, parameter)
        except UnknownLayerError as error:
            raise PatchError(f"'{layer}.{parameter}' is gone from the written copy; nothing was kept") from error
        expected = weights[layer, parameter] if (layer, parameter) in weights else source.read(layer, parameter)
        same_dtype = copy.dtype(layer, parameter) == source.dtype(layer, parameter)
        if same_dtype and same_bits(found, np.asarray(expected, found.dtype)):
            continue
        if not (same_dtype and _is_alias(source, weights, expected, found)):
            raise PatchError(f"'{layer}.{parameter}' in the written copy is not what it must be; nothing was kept")


def _is_alias(source: WeightFile, weights: Weights, before: Array, after: Array) -> bool:
    """Whether a tensor is another name for a changed one: equal to it before, and equal to it after."""
    return any(
        same_bits(after, np.asarray(values, after.dtype)) and same_bits(before, source.read(*key))
        for key, values in weights.items()
    )


def _changed_bytes(folder: Path, draft: Path, source: Path) -> int | None:
    """How many bytes of a finished copy differ from the source, over all its files; None when a length does."""
    counts = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        before = source if path == draft else source.parent / path.relative_to(folder)
        counts.append(differing_bytes(before, path) if before.is_file() else None)
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _make_way(source: WeightFile, folder: Path, draft: Path, destination: Path) -> None:
    """Rename the other files that hold a copy's weights where files of their names are, but with other contents.

    An exporter calls them like the model, so a copy in the model's own folder always meets the model's.
    """
    beside = _beside(folder, draft)
    for path in beside:
        above = (destination.parent / path.relative_to(folder)).parent
        if not above.resolve().is_relative_to(destination.parent.resolve()):
            raise PatchError(f"'{above}' leads out of the folder that '{destination.name}' goes to")
    taken = [path for path in beside if _is_in_the_way(path, destination.parent / path.relative_to(folder))]
    if not taken:
        return
    named = f"{destination.name}.data"
    new = {path: folder / (named if len(beside) == 1 else f"{destination.stem}-{path.name}") for path in taken}
    for path, other in new.items():
        if other in beside or _is_in_the_way(path, destination.parent / other.name):
            elsewhere = destination.parent / destination.stem / destination.name
            raise PatchError(
                f"'{source.path.name}' keeps weights in '{path.name}' beside it, and '{other.name}' is there already; "
                f"remove it, or write into a folder of its own, such as '{elsewhere}'"
            )
    source.rename_beside(draft, {path.relative_to(folder).as_posix(): other.name for path, other in new.items()})


def _leave_shared(folder: Path, draft: Path, destination: Path) -> None:
    """Leave out of a copy the files that are where it goes: those in which nothing changes are shared."""
    for path in _beside(folder, draft):
        if os.path.lexists(destination.parent / path.relative_to(folder)):
            remove(path)


def _is_in_the_way(path: Path, target: Path) -> bool:
    """Tell whether something lies where a file should go that is not the same file."""
    if not os.path.lexists(target):
        return False
    return not target.is_file() or target.is_symlink() or differing_bytes(path, target) != 0


def _publish(work: WorkingFolder, copy: Folder, source: Path, name: str, found: Identity | None) -> None:
    """Move the finished copy to its place; the file that refers to the others comes last."""
    allowed = allowed_mode([source])
    copy.check_reached()
    work.check_unmoved()
    for path in _beside(copy.path, copy.path / name):
        with ExitStack() as stack:
            inside, outside = copy, work.parent
            for part in path.relative_to(copy.path).parts[:-1]:
                inside = stack.enter_context(inside.enter(part))
                outside = stack.enter_context(outside.enter_or_make(part))
            inside.sync_file(path.name, allowed)
            put_file(inside, path.name, outside, path.name, found=None)
    copy.sync_file(name, allowed)
    put_file(copy, name, work.parent, name, found=found)
    work.parent.sync()


def _beside(folder: Path, draft: Path) -> list[Path]:
    """The files of a copy apart from the one that refers to them."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path != draft)
