"""Arrays in untrusted npz and npy files: headers are checked against the file's bytes before memory is allocated."""

from __future__ import annotations

import math
import os
import struct
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from arachne.errors import InputError
from arachne.io.reading import ordinary_file, parse_errors_as
from arachne.io.zip_directory import MAX_DIRECTORY_BYTES, directory_size
from arachne.text import size_text

Array = npt.NDArray[Any]

MAX_EMPTY_BYTES = 1 << 40
"""An array without values may have sides of which these would be many; beyond that it is no array."""

READABLE_DTYPES = "biufUS"
"""Truth values, numbers and text; everything else is no data of a network, and objects would run code."""

ALWAYS_ALLOWED_BYTES = 128 << 20
"""Bytes an archive may always unpack to."""

MIN_MAPPED_BYTES = 64 << 20
"""Larger uncompressed arrays are memory-mapped where that is wanted."""

LOCAL_HEADER = 30
"""Bytes before a member's name and its extra field, whose lengths are the last four of them."""

RATIO = 100
"""How many times its own size an archive may unpack to beyond `ALWAYS_ALLOWED_BYTES`. Real data stays below forty."""


def read_npz(
    path: Path,
    what: str,
    fault: type[InputError],
    *,
    held: int | None = None,
    max_bytes: int | None = None,
    links: bool = True,
) -> dict[str, Array]:
    """The arrays of an npz by name; nothing in it can run code.

    Args:
        path: The file.
        what: What it should be, as messages call it.
        fault: What to raise.
        held: An archive that unpacks to more bytes than this is not read: its large arrays are memory-mapped where they
            lie in it uncompressed, and refused otherwise. None reads every archive.
        max_bytes: An archive that unpacks to more bytes than this is refused.
        links: Whether a link to a file is followed.
    """
    with parse_errors_as(f"'{path}' as npz", fault), open_zip(path, what, fault, links=links) as (stream, archive):
        members = archive.infolist()
        total = sum(info.file_size for info in members)
        if max_bytes is not None and total > max_bytes:
            raise fault(f"'{path}' unpacks to {size_text(total)}, expected at most {size_text(max_bytes)} for a {what}")
        strange = [info.filename for info in members if not info.filename.endswith(".npy")]
        if strange:
            raise fault(f"cannot read '{path}' as npz: it holds '{strange[0]}', which is no array")
        if len({info.filename for info in members}) != len(members):
            raise fault(f"cannot read '{path}' as npz: it holds two arrays of one name")
        mapped = [info for info in members if held is not None and info.file_size > min(held, MIN_MAPPED_BYTES)]
        for info in mapped:
            if info.compress_type != zipfile.ZIP_STORED and info.file_size > (held or 0):
                raise fault(_compression_message(path, info, held or 0))
        stored = [info for info in mapped if info.compress_type == zipfile.ZIP_STORED]
        read = [info for info in members if info not in stored]
        check_growth(path, os.fstat(stream.fileno()).st_size, sum(info.file_size for info in read), fault)
        found = {info.filename.removesuffix(".npy"): read_member(archive, info) for info in read}
        return found | {info.filename.removesuffix(".npy"): _map_member(path, archive, info) for info in stored}


@contextmanager
def open_zip(
    path: Path, what: str, fault: type[InputError], *, links: bool = True
) -> Iterator[tuple[IO[bytes], zipfile.ZipFile]]:
    """An archive of arrays open for reading, and its file; a list of members longer than any of ours is not read.

    Raises:
        InputError: As `fault`: it is no ordinary file, or lists too many members.
        zipfile.BadZipFile: It is no archive.
    """
    ordinary_file(path, what, fault, links=links)
    with path.open("rb") as stream:
        if not os.fstat(stream.fileno()).st_size:
            raise fault(f"'{path}' is empty: it has no bytes")
        if directory_size(stream) > MAX_DIRECTORY_BYTES:
            raise fault(f"'{path}' lists more arrays than a {what} has")
        stream.seek(0)
        with zipfile.ZipFile(stream) as archive:
            yield stream, archive


def _compression_message(path: Path, info: zipfile.ZipInfo, held: int) -> str:
    name, size = info.filename.removesuffix(".npy"), size_text(info.file_size)
    return (
        f"array '{name}' of '{path}' is compressed and unpacks to {size}, more than the {size_text(held)} that may be "
        "held, and only uncompressed arrays are read by piece; write it with np.savez or np.save instead of "
        "np.savez_compressed, or allow more memory"
    )


def check_growth(
    path: Path,
    packed: int,
    unpacked: int,
    fault: type[InputError],
    room: int = ALWAYS_ALLOWED_BYTES,
    *,
    held: bool = True,
) -> None:
    """Refuse an archive that unpacks to far more than it is or, where all of it is held, to more than memory has."""
    if unpacked > max(room, RATIO * packed):
        raise fault(
            f"'{path}' has {packed:,} bytes and unpacks to {unpacked:,} or more, over {RATIO} times as many; unpack it "
            "yourself if you know what it is"
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    if held and memory is not None and unpacked > memory:
        raise fault(
            f"'{path}' unpacks to {unpacked / 2**30:.1f} GiB, more than the {memory / 2**30:.1f} GiB of memory; "
            "put x.npy and y.npy into a directory instead, they are memory-mapped"
        )


def map_npy(path: Path, what: str, fault: type[InputError]) -> Array:
    """The array of an npy file, memory-mapped."""
    ordinary_file(path, what, fault)
    with parse_errors_as(f"'{path}' as npy", fault):
        with path.open("rb") as stream:
            _header(stream, path.name, os.fstat(stream.fileno()).st_size)
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return _readable(array, path.name)


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Read the array in a member of an archive, after checking its header against the member's bytes.

    Raises:
        ValueError: It is no array of numbers or text, or holds other bytes than its shape needs.
    """
    with archive.open(info) as member:
        shape, fortran, dtype, start = _header(member, info.filename, info.file_size)
        if math.prod(shape) * dtype.itemsize != info.file_size - start:
            raise ValueError(f"'{info.filename}' does not hold as many bytes as its shape needs")
        array: Array = np.empty(shape[::-1] if fortran else shape, dtype)
        view, filled = memoryview(array.reshape(-1).view(np.uint8).data) if array.size else memoryview(b""), 0
        while filled < len(view):
            read = member.readinto(view[filled:])  # type: ignore[attr-defined]  # a buffered stream has it
            if not read:
                raise ValueError(f"'{info.filename}' is cut off")
            filled += read
        if member.read(1):  # the end, where the checksum is compared
            raise ValueError(f"'{info.filename}' holds more than its shape needs")
    return _readable(array.T if fortran else array, info.filename)


def _map_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Memory-map an uncompressed member in its file, after comparing its checksum."""
    with archive.open(info) as member:
        shape, fortran, dtype, start = _header(member, info.filename, info.file_size)
        if math.prod(shape) * dtype.itemsize != info.file_size - start:
            raise ValueError(f"'{info.filename}' does not hold as many bytes as its shape needs")
        while member.read(1 << 20):  # up to the end, where the checksum is compared
            pass
    with path.open("rb") as stream:
        stream.seek(info.header_offset)
        head = stream.read(LOCAL_HEADER)
        begins = info.header_offset + LOCAL_HEADER + sum(struct.unpack("<HH", head[-4:]))
    order: Literal["C", "F"] = "F" if fortran else "C"
    array: Array = np.memmap(path, dtype, "r", begins + start, shape, order)
    return _readable(array, info.filename)


def _readable(array: Array, name: str) -> Array:
    """The array, bytes decoded; refused if it is text with numbers that are no characters."""
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    if array.dtype.kind == "U" and array.size:
        codes = np.ascontiguousarray(array).view(f"{array.dtype.byteorder}u4")
        if (codes > sys.maxunicode).any() or ((codes >= 0xD800) & (codes < 0xE000)).any():
            raise ValueError(f"'{name}' holds text with codes that are no characters")
    return array


def _header(stream: IO[bytes], name: str, size: int) -> tuple[tuple[int, ...], bool, np.dtype[np.generic], int]:
    """Shape, order, dtype and where the values start, believed only if they fit into this many bytes."""
    version = npy_format.read_magic(stream)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError(
            f"'{name}' holds Python objects, not arrays of numbers or text; save it with .astype(str), or "
            ".astype(float) if it holds numbers"
        )
    if dtype.kind not in READABLE_DTYPES or (dtype.itemsize == 0 and all(shape)):
        raise ValueError(f"'{name}' holds values of the kind '{dtype}', expected numbers or text")
    if not all(isinstance(side, int) and 0 <= side < 1 << 48 for side in shape):
        raise ValueError(f"'{name}' claims the shape {shape}")
    claimed = math.prod(side for side in shape if side) * max(dtype.itemsize, 1)
    empty = 0 in shape and claimed < MAX_EMPTY_BYTES
    if claimed > max(size, 1) and not empty:
        raise ValueError(f"'{name}' claims {claimed} bytes and has {size}, with the shape {shape}")
    return shape, fortran, dtype, stream.tell()
