"""Make a delta: of two files, or of a repair's folder and the original that its patch leads back to."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from arachne.delta.arachne_delta import CHUNK, MAX_DELTA, Delta, Run
from arachne.errors import InputError
from arachne.io.readers import check_no_link
from arachne.io.reading import ordinary_file
from arachne.patch.commands import revert
from arachne.patch.patch import Patch

MAX_GAP = 6
"""Equal bytes between two runs, at most, that are stored twice because the head of another run would take more."""


def make_delta(old: str | Path, new: str | Path) -> Delta:
    """Make the delta between two files of one length.

    Raises:
        InputError: They have different lengths, are the same, or differ in more bytes than a delta may hold.
    """
    paths = [ordinary_file(path, "file") for path in (old, new)]
    length, other = (path.stat().st_size for path in paths)
    if length != other:
        raise InputError(
            f"expected two files of one length, '{old}' has {length:,} bytes and '{new}' {other:,}: a delta replaces "
            "bytes, so only formats that store weights as they are have one (ONNX, safetensors, .pt, TFLite)"
        )
    hashes = hashlib.sha256(), hashlib.sha256()
    runs: list[Run] = []
    size = 0
    with paths[0].open("rb") as first, paths[1].open("rb") as second:
        at = 0
        while at < length:
            before, after = first.read(CHUNK), second.read(CHUNK)
            for digest, content in zip(hashes, (before, after), strict=True):
                digest.update(content)
            found = [Run(at + start, before[start:end], after[start:end]) for start, end in _differing(before, after)]
            size += sum(2 * len(run.old) for run in found)
            if size > MAX_DELTA // 2:
                raise InputError(f"'{old}' and '{new}' differ in more bytes than a delta may hold; send the whole file")
            runs += found
            at += len(before)
    if not runs:
        raise InputError(f"'{old}' and '{new}' are the same file, so there is no delta")
    return Delta(length, hashes[0].digest(), hashes[1].digest(), tuple(runs))


def _differing(before: bytes, after: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of differing bytes."""
    if before == after:
        return
    offsets = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8))
    breaks = np.flatnonzero(np.diff(offsets) > MAX_GAP + 1)
    starts = offsets[np.concatenate(([0], breaks + 1))]
    ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + 1
    yield from zip(starts.tolist(), ends.tolist(), strict=True)


def delta_of_result(folder: str | Path) -> tuple[Delta, str]:
    """Make the delta that turns the original of a repair into its patched model.

    Returns:
        The delta, and the name of the file in the folder that it leads to.

    Raises:
        InputError: The folder holds no patch with one patched model, or taking the patch out does not lead back.
    """
    folder = Path(folder)
    check_no_link(folder / "patch.safetensors", "values of the patch")
    patch = Patch.load(check_no_link(folder / "patch.json", "patch"))
    models = [path for path in sorted(folder.glob("model.*")) if not path.name.endswith((".data", ".json"))]
    if len(models) != 1:
        raise InputError(f"expected one patched model in '{folder}', model.onnx say, got {len(models) or 'none'}")
    with tempfile.TemporaryDirectory() as work:
        revert(patch, check_no_link(models[0], "model"), Path(work, models[0].name))
        before = {path.name: path for path in Path(work).iterdir() if (folder / path.name).is_file()}
        for name in before:
            check_no_link(folder / name, "file of the model")
        changed = [name for name, path in before.items() if path.read_bytes() != (folder / name).read_bytes()]
        if len(changed) != 1:
            raise InputError(f"the patch in '{folder}' changes {len(changed)} files, and a delta is of one")
        delta = make_delta(before[changed[0]], folder / changed[0])
    wanted = patch.base.sha256
    if changed[0] == models[0].name and wanted is not None and delta.old_sha256.hex() != wanted:
        raise InputError(
            f"taking the patch out of '{models[0]}' does not lead back to the file it was made for; give both files"
        )
    return delta, changed[0]
