"""Passes of the original model over data, kept on the disk for the next command on the same model and data.

A pass is its outputs, and what enters and leaves the dense tail. It is found by a hash of everything it depends on. A
file is believed only if it carries the mark of this user's key, if it fits, and if the model gives the same outputs for
a few of the inputs; anything else is as if there were no file. A verdict does not rest on it: the outputs of held-out
inputs are computed anew (`confirm_held_out`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import arachne
from arachne.data.part import Part
from arachne.errors import ArachneError
from arachne.io.arrays import read_arrays, write_arrays
from arachne.io.folder import Folder
from arachne.io.output_paths import make_private_folder, remove_from, touch
from arachne.io.own_key import OPEN, check_ours_alone, read_own_key
from arachne.model.backend import ModelBackend
from arachne.model.lazy import is_lazy
from arachne.model.values import Array, Inputs, by_name, count, take
from arachne.patch.in_memory import base_of
from arachne.scoring.tail_cache import TailCache, fitting_tail, run_and_keep

SCHEMA, ENDING = "arachne.pass/1", ".npz"
NAME = re.compile(r"[0-9a-f]{64}\.npz")
"""Names of the files that are counted and removed; what else lies in the folder is not touched."""

CACHE = "XDG_CACHE_HOME"

MAX_BYTES = 2 << 30
"""Bytes that all passes together may take; the least recently used are removed first."""

MAX_PASS_BYTES = 512 << 20
"""A larger pass is not kept."""

MIN_SECONDS = 1.0
"""A pass that took less processor time is not kept."""

PROBES = 16
"""Inputs that the model runs on again before a kept pass is used."""

TOLERANCE = 1e-4
"""How far outputs may lie from kept ones, relative to the largest: batches of other sizes round in other ways."""

WHOLE_FORMATS = ("onnx file", "exported program", "keras")
"""Formats of files that hold all there is to a model; of others, a part is somebody's code."""


def passes_folder() -> Path | None:
    """The folder where this user's programs keep what can be made again; None without a home."""
    named = os.environ.get(CACHE, "")
    try:
        above = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
    except RuntimeError:
        return None
    return above / "arachne" / "passes"


@dataclass
class KeptPasses:
    """The passes in a folder.

    Attributes:
        folder: Where they are; made when the first is written.
        used: How many passes were found there by this process.
    """

    folder: Path
    used: int = 0

    def run(self, backend: ModelBackend, inputs: Inputs) -> tuple[Array, TailCache | None]:
        """Look a pass up, or run the model and keep the pass."""
        backend.look(inputs)
        key = pass_key(backend, inputs)
        found = None if key is None else self._read(key, backend, inputs)
        if found is not None:
            self.used += 1
            return found
        start = time.process_time()
        outputs, tail = run_and_keep(backend, inputs)
        if key is not None and time.process_time() - start >= MIN_SECONDS:
            with contextlib.suppress(ArachneError, OSError):  # nothing depends on its being kept
                self._write(key, outputs, tail)
        return outputs, tail

    def sizes(self) -> dict[str, int]:
        """The bytes of each file, the least recently used first."""
        if not self._is_ours():
            return {}
        with os.scandir(self.folder) as entries:
            files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
        stats = {entry.name: entry.stat(follow_symlinks=False) for entry in files if NAME.fullmatch(entry.name)}
        oldest_first = sorted(stats, key=lambda name: (stats[name].st_mtime_ns, name))
        return {name: stats[name].st_size for name in oldest_first}

    def clear(self) -> int:
        """Remove every pass; the number of them."""
        names = list(self.sizes())
        if names:
            remove_from(self.folder, names)
        return len(names)

    def _read(self, key: str, backend: ModelBackend, inputs: Inputs) -> tuple[Array, TailCache | None] | None:
        path = self.folder / f"{key}{ENDING}"
        try:
            if not os.path.lexists(path) or not self._is_ours():
                return None
            arrays, about = read_arrays(path, SCHEMA, MAX_PASS_BYTES + (64 << 20))
            found = _fit(arrays, about, key, backend, inputs)
            if found is not None:
                touch(path)
        except (ArachneError, OSError):
            return None
        return found if found is not None and _gives(backend, inputs, found[0]) else None

    def _write(self, key: str, outputs: Array, tail: TailCache | None) -> None:
        arrays = {"outputs": outputs}
        if tail is not None:
            arrays |= {"entering": tail.entering(tail.layers[0]), "leaving": tail.leaving(tail.layers[0])}
        size = sum(array.nbytes for array in arrays.values())
        if size > MAX_PASS_BYTES or any(map(is_lazy, arrays.values())):
            return
        read_own_key()  # what carries no mark would never be read
        make_private_folder(self.folder)
        if not self._is_ours():
            return
        sizes = self.sizes()
        while sizes and sum(sizes.values()) + size > MAX_BYTES:
            oldest = next(iter(sizes))
            remove_from(self.folder, [oldest])
            del sizes[oldest]
        about = {"schema": SCHEMA, "key": key, "tail": None if tail is None else tail.layers}
        remove_from(self.folder, [f"{key}{ENDING}"])
        write_arrays(self.folder / f"{key}{ENDING}", arrays, about)

    def _is_ours(self) -> bool:
        """Whether the folder is there, no link, nobody else's to read or write, and nobody else's to swap."""
        try:
            with Folder.open(self.folder.parent) as parent, parent.enter(self.folder.name) as held:
                check_ours_alone(parent)
                check_ours_alone(held, forbidden=OPEN)
        except (ArachneError, OSError):
            return False
        return True


def pass_key(backend: ModelBackend, inputs: Inputs) -> str | None:
    """Hash everything that a pass depends on; None where that is not known, or the inputs are not in memory."""
    about = backend.describe()
    opened = backend.opened_with
    if backend.remote is not None or opened is None or about.source is None or about.format not in WHOLE_FORMATS:
        return None
    digest = _inputs_sha256(inputs)
    if digest is None:
        return None
    base = base_of(backend)
    depends = {
        "versions": [SCHEMA, arachne.__version__, np.__version__, about.framework],
        "model": [base.sha256, base.content, about.backend, about.format, about.device, about.scores, *about.beside],
        "opened": {name: str(value) for name, value in sorted(opened.items())},
        "tail": [info.name for info in fitting_tail(backend, count(inputs))],
        "inputs": digest,
    }
    return hashlib.sha256(json.dumps(depends).encode()).hexdigest()


def _inputs_sha256(inputs: Inputs) -> str | None:
    digest = hashlib.sha256()
    for name, array in sorted(by_name(inputs).items()):
        if is_lazy(array) or array.dtype.kind not in "biuf":
            return None
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _fit(
    arrays: Mapping[str, Array], about: Mapping[str, object], key: str, backend: ModelBackend, inputs: Inputs
) -> tuple[Array, TailCache | None] | None:
    """Make a pass of arrays that were read; None where they belong to other inputs."""
    outputs, n = arrays.get("outputs"), count(inputs)
    if about.get("key") != key or outputs is None or outputs.dtype != np.float32 or len(outputs) != n:
        return None
    layers = fitting_tail(backend, n)
    if about.get("tail") is None:
        return (outputs, None) if set(arrays) == {"outputs"} else None
    if about["tail"] != [info.name for info in layers] or set(arrays) != {"outputs", "entering", "leaving"}:
        return None
    high, wide = layers[0].parameters["weight"].shape
    entering, leaving = arrays["entering"], arrays["leaving"]
    if (entering.shape, leaving.shape) != ((n, wide), (n, high)) or {entering.dtype.str, leaving.dtype.str} != {"<f4"}:
        return None
    return outputs, TailCache(backend, layers, entering, leaving)


def _gives(backend: ModelBackend, inputs: Inputs, outputs: Array) -> bool:
    """Whether the model gives these outputs for a few of the inputs."""
    rows = np.unique(np.linspace(0, count(inputs) - 1, PROBES).astype(np.int64))
    return _near(backend.forward(take(inputs, rows)), outputs[rows])


def _near(fresh: Array, kept: Array) -> bool:
    if fresh.shape != kept.shape:
        return False
    with np.errstate(invalid="ignore"):
        off = np.abs(fresh - kept) <= TOLERANCE * max(1.0, float(np.abs(fresh).max(initial=0.0)))
    return bool((off | (fresh == kept)).all())


_CURRENT: ContextVar[KeptPasses | None] = ContextVar("kept passes", default=None)


@contextlib.contextmanager
def keeping_passes() -> Iterator[None]:
    """A block in which passes are looked up and kept in this user's folder."""
    folder = passes_folder()
    before = _CURRENT.set(None if folder is None else KeptPasses(folder))
    try:
        yield
    finally:
        _CURRENT.reset(before)


def run_or_find(backend: ModelBackend, inputs: Inputs) -> tuple[Array, TailCache | None]:
    """Run the original model, or find its pass where passes are kept."""
    passes = _CURRENT.get()
    return run_and_keep(backend, inputs) if passes is None else passes.run(backend, inputs)


def confirm_held_out(backend: ModelBackend, part: Part) -> Part:
    """Compute outputs and tail activations of the held-out part again where they may come from a kept pass.

    Outputs that are the same but for rounding, and read as the same decisions, stay as they are: the result is that of
    a run without kept passes, to the byte.
    """
    passes = _CURRENT.get()
    if passes is None or not passes.used:
        return part
    fresh, tail = run_and_keep(backend, part.data.inputs)
    other = replace(part, outputs=fresh, cached_activations=tail if part.task.SINGLE else None)
    same = _near(fresh, part.outputs) and np.array_equal(other.predictions, part.predictions)
    return replace(other, outputs=part.outputs) if same else other
