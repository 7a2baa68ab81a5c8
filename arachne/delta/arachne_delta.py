#!/usr/bin/env python3
"""Apply, revert and verify an Arachne delta: the bytes of a model file that a repair changed.

This one file needs Python 3.9 and nothing else; `arachne_delta.c` beside it does the same on a device without Python.

    arachne_delta.py DELTA MODEL OUT            write a patched copy
    arachne_delta.py DELTA MODEL                patch MODEL in place; a journal beside it survives a loss of power
    arachne_delta.py --revert DELTA MODEL [OUT] the way back, bit for bit
    arachne_delta.py --verify DELTA MODEL       say whether MODEL is the old or the new file
    arachne_delta.py --recover MODEL            finish what a loss of power interrupted

Layout, all numbers little-endian; both files have the same length:

    "ARADELT1"   length of the file u64   sha256 of the old file   sha256 of the new file   number of runs u32
    each run, in ascending order:   offset u64   length u32   old bytes   new bytes
    sha256 of everything before it

Exit codes: 0 done, 2 wrong usage, 3 a delta or a file that does not fit, 4 the disk.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"ARADELT1"
HEAD = struct.Struct("<8sQ32s32sI")
RUN = struct.Struct("<QI")
DIGEST = 32
MAX_DELTA = 1 << 28
"""Bytes of a delta, at most: two copies of the changed bytes and a few more."""

CHUNK = 1 << 20
JOURNAL, DRAFT = ".journal", ".arachne-draft"
"""Endings: of the delta that is being put into the file beside it, and of files that are not whole yet."""


class DeltaError(Exception):
    """A delta or a file that does not fit, in one sentence."""


@dataclass(frozen=True)
class Run:
    """Bytes of the file from `offset` on, before and after."""

    offset: int
    old: bytes
    new: bytes


@dataclass(frozen=True)
class Delta:
    """All runs by which two files of one length differ, and the sha256 of both."""

    length: int
    old_sha256: bytes
    new_sha256: bytes
    runs: tuple[Run, ...]

    def to_bytes(self) -> bytes:
        """Return the delta as it is in a file."""
        parts = [HEAD.pack(MAGIC, self.length, self.old_sha256, self.new_sha256, len(self.runs))]
        for run in self.runs:
            parts += [RUN.pack(run.offset, len(run.old)), run.old, run.new]
        content = b"".join(parts)
        return content + hashlib.sha256(content).digest()

    @classmethod
    def from_bytes(cls, content: bytes) -> Delta:
        """Read a delta, whoever wrote it.

        Raises:
            DeltaError: It is no delta, damaged, or its runs are not in order within the file.
        """
        if len(content) < HEAD.size + DIGEST or content[:8] != MAGIC:
            raise DeltaError("not an Arachne delta")
        end = len(content) - DIGEST
        if hashlib.sha256(content[:end]).digest() != content[end:]:
            raise DeltaError("the delta is damaged: its checksum does not fit")
        _, length, old, new, count = HEAD.unpack_from(content)
        at, reached, runs = HEAD.size, 0, []
        for _ in range(count):
            if end - at < RUN.size:
                raise DeltaError("the delta ends within a run")
            offset, size = RUN.unpack_from(content, at)
            at += RUN.size
            if not size or offset < reached or offset + size > length or 2 * size > end - at:
                raise DeltaError("the delta has a run that does not fit into the file")
            runs.append(Run(offset, content[at : at + size], content[at + size : at + 2 * size]))
            at, reached = at + 2 * size, offset + size
        if at != end:
            raise DeltaError("the delta has bytes that belong to no run")
        return cls(length, old, new, tuple(runs))

    def reverse(self) -> Delta:
        """Return the delta from the new file to the old one."""
        runs = tuple(Run(run.offset, run.new, run.old) for run in self.runs)
        return Delta(self.length, self.new_sha256, self.old_sha256, runs)


def read_delta(path: str) -> Delta:
    """Read the delta in a file.

    Raises:
        DeltaError: There is none in it.
    """
    with _open(path) as stream:
        content = stream.read(MAX_DELTA + 1)
    if len(content) > MAX_DELTA:
        raise DeltaError(f"'{path}' is larger than any delta")
    if content[:8] != MAGIC:
        raise DeltaError(f"'{path}' is no Arachne delta; `arachne delta` makes one")
    return Delta.from_bytes(content)


def apply(delta: Delta, model: str, out: str | None = None) -> str:
    """Turn the old file into the new one, in place or as a copy; return a sentence about it.

    Raises:
        DeltaError: The file is neither the old nor the new one, or a journal lies beside it; nothing was written.
    """
    if os.path.lexists(model + JOURNAL):  # whoever put it there: only `recover` follows one
        raise DeltaError(f"'{model + JOURNAL}' says that a change was interrupted; finish it with --recover first")
    with _open(model) as stream:
        found = _hash(stream)
        if found == delta.new_sha256 and out is None:
            return f"'{model}' is the wanted file already"
        _check(delta, stream, model, found)
        if out is not None:
            _write_copy(delta, stream, out)
            return f"wrote '{out}': {_describe(delta)}"
    _change_in_place(delta, model)
    return f"changed '{model}': {_describe(delta)}"


def revert(delta: Delta, model: str, out: str | None = None) -> str:
    """Turn the new file into the old one again, as `apply` does the other way."""
    return apply(delta.reverse(), model, out)


def verify(delta: Delta, model: str) -> str:
    """Return `old` or `new`.

    Raises:
        DeltaError: The file is neither.
    """
    with _open(model) as stream:
        found = _hash(stream)
    if found == delta.new_sha256:
        return "new"
    if found == delta.old_sha256:
        return "old"
    raise DeltaError(f"'{model}' is neither the old nor the new file of this delta")


def recover(model: str) -> str | None:
    """Finish what a journal beside the file says; return a sentence about it, None if there is no journal.

    Raises:
        DeltaError: The journal belongs to another file; nothing was written.
    """
    journal = model + JOURNAL
    if not os.path.lexists(journal):
        return None
    delta = read_delta(journal)
    with _open(model) as stream:
        if _hash(stream, [(run.offset, run.old) for run in delta.runs]) != delta.old_sha256:
            raise DeltaError(f"'{journal}' belongs to another file than '{model}'; move it away")
    _write_runs(delta, model)
    _remove(journal)
    return f"finished what was interrupted: {_describe(delta)}"


def _check(delta: Delta, stream: BinaryIO, model: str, found: bytes) -> None:
    """Refuse a file that is not the old one, and a delta that would not make the new one of it."""
    if found != delta.old_sha256 or os.fstat(stream.fileno()).st_size != delta.length:
        raise DeltaError(f"'{model}' is not the file this delta was made for: its sha256 is {found.hex()}")
    old = _hash(stream, [(run.offset, run.old) for run in delta.runs])
    new = _hash(stream, [(run.offset, run.new) for run in delta.runs])
    if (old, new) != (delta.old_sha256, delta.new_sha256):
        raise DeltaError("the delta does not lead from the file it was made for to the one it promises")


def _describe(delta: Delta) -> str:
    changed = sum(run.old[n] != run.new[n] for run in delta.runs for n in range(len(run.old)))
    return f"{changed:,} bytes in {len(delta.runs):,} runs, sha256 {delta.new_sha256.hex()}"


def _pieces(stream: BinaryIO, runs: list[tuple[int, bytes]]) -> Iterator[bytes]:
    """Yield the content of a file with some bytes replaced."""
    at = 0
    for offset, content in [*runs, (None, b"")]:
        stream.seek(at)
        while offset is None or at < offset:
            piece = stream.read(CHUNK if offset is None else min(CHUNK, offset - at))
            if not piece:
                break
            at += len(piece)
            yield piece
        yield content
        at += len(content)


def _hash(stream: BinaryIO, runs: list[tuple[int, bytes]] | None = None) -> bytes:
    digest = hashlib.sha256()
    for piece in _pieces(stream, runs or []):
        digest.update(piece)
    return digest.digest()


def _write_copy(delta: Delta, stream: BinaryIO, out: str) -> None:
    if os.path.lexists(out):
        raise DeltaError(f"'{out}' is there already")
    draft = out + DRAFT
    with _create(draft) as copy:
        for piece in _pieces(stream, [(run.offset, run.new) for run in delta.runs]):
            copy.write(piece)
        _sync(copy)
    os.rename(draft, out)
    _sync_folder(out)


def _change_in_place(delta: Delta, model: str) -> None:
    journal = model + JOURNAL
    with _create(journal + DRAFT) as stream:
        stream.write(delta.to_bytes())
        _sync(stream)
    os.rename(journal + DRAFT, journal)
    _sync_folder(journal)
    _write_runs(delta, model)
    _remove(journal)


def _write_runs(delta: Delta, model: str) -> None:
    """Write the new bytes; running it again after it was interrupted is safe."""
    with open(model, "r+b") as stream:
        for run in delta.runs:
            stream.seek(run.offset)
            stream.write(run.new)
        _sync(stream)
        if _hash(stream) != delta.new_sha256:
            raise DeltaError(f"'{model}' did not become the promised file; its journal stays, recover it")


def _open(path: str) -> BinaryIO:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise DeltaError(f"'{path}' is no ordinary file")
    return open(path, "rb")


def _create(path: str) -> BinaryIO:
    if os.path.lexists(path):
        os.unlink(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb")


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _remove(path: str) -> None:
    os.unlink(path)
    _sync_folder(path)


def _sync_folder(path: str) -> None:
    if os.name == "posix":
        handle = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    mode = arguments[0] if arguments and arguments[0].startswith("--") else "--apply"
    paths = arguments[1:] if arguments and arguments[0] == mode else arguments
    allowed = {"--apply": (2, 3), "--revert": (2, 3), "--verify": (2, 2), "--recover": (1, 1)}.get(mode)
    if allowed is None or not allowed[0] <= len(paths) <= allowed[1]:
        print((__doc__ or "").split("\n\nLayout")[0], file=sys.stderr)
        return 2
    try:
        if mode == "--recover":
            print(recover(paths[0]) or f"nothing was interrupted in '{paths[0]}'")
        elif mode == "--verify":
            print(verify(read_delta(paths[0]), paths[1]))
        else:
            done = apply if mode == "--apply" else revert
            print(done(read_delta(paths[0]), *paths[1:]))
    except DeltaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"error: {error.strerror or error}: '{error.filename}'", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
