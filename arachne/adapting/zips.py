"""Zip archives that hold a model: checked before they are read, and changed in place without being rewritten."""

from __future__ import annotations

import contextlib
import errno
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from arachne.errors import ArachneError, ModelError, UnsafeModelError
from arachne.io.files import CHUNK, write_edited
from arachne.io.zip_directory import END, END64, MAX_DIRECTORY_BYTES, directory_size

ENCRYPTED, CHECKSUM_BEHIND = 0x01, 0x08
"""Flags of a member: its bytes are encrypted; its checksum follows them."""

UTF8 = 0x800
"""Flag of a member: its name is in UTF-8, not in the code page that zip was made for."""


@contextlib.contextmanager
def open_zip(path: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """Open an archive for reading; anything wrong with its bytes becomes an error of one sentence.

    Args:
        path: The file.
        what: What it should be, such as `a .keras archive`.

    Raises:
        ModelError: It is none, or is damaged, or lists more members than any model has.
    """
    try:
        with path.open("rb") as stream:
            if directory_size(stream) > MAX_DIRECTORY_BYTES:
                raise ModelError(f"'{path.name}' lists more members than a model has")
            with zipfile.ZipFile(stream) as file:
                yield file
    except ArachneError:
        raise
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # a disk that fails, not an offset that makes no sense
            raise
        raise _damage_error(path, what, error) from error
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, RuntimeError, ValueError,
            OverflowError, AttributeError, TypeError, MemoryError) as error:  # fmt: skip
        # zipfile believes what it reads: offsets, lengths and code pages fail wherever they are used.
        raise _damage_error(path, what, error) from error


def _damage_error(path: Path, what: str, error: Exception) -> ModelError:
    reason = f"{error}".strip() or type(error).__name__
    return ModelError(f"'{path.name}' is not {what}, or it is damaged: {reason[:160]}")


@dataclass(frozen=True)
class Zip:
    """The directory of an archive: its members and their offsets.

    Attributes:
        path: The file.
        members: What it holds, by name, in the order of its directory.
        directory: Where its directory starts.
    """

    path: Path
    members: Mapping[str, zipfile.ZipInfo]
    directory: int

    @classmethod
    def read_directory(cls, file: zipfile.ZipFile, path: Path) -> Zip:
        """Read and check the directory of an open archive; no member is read.

        Raises:
            UnsafeModelError: Names that reach outside the archive or stand twice, or members that overlap.
            ModelError: It is encrypted.
        """
        infos = file.infolist()
        for info in infos:
            name = info.filename
            if name.startswith("/") or ".." in PurePosixPath(name).parts or any(sign in name for sign in "\\:\0"):
                raise UnsafeModelError(f"'{path.name}' holds a member '{name}' that reaches outside the archive")
            if info.flag_bits & ENCRYPTED:
                raise ModelError(f"'{path.name}' is encrypted")
        if len({info.filename for info in infos}) != len(infos):
            raise UnsafeModelError(f"'{path.name}' holds two members of one name")
        _check_apart(file, path)
        return cls(path, {info.filename: info for info in infos}, file.start_dir)

    def check_checksums(self, file: zipfile.ZipFile) -> None:
        """Read every member once; how far they grow has been checked before.

        Raises:
            ModelError: A checksum is wrong.
        """
        damaged = file.testzip()
        if damaged is not None:
            raise ModelError(f"'{self.path.name}' is damaged: the checksum of '{damaged}' is wrong")

    def extent(self, member: str) -> tuple[int, int]:
        """Return where the bytes of a stored member start in the file, and how many they are.

        Raises:
            ModelError: There is no such member.
        """
        if member not in self.members:
            raise ModelError(f"'{self.path.name}' lacks its member '{member}'")
        info = self.members[member]
        with self.path.open("rb") as file:
            file.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
        return info.header_offset + 30 + name + extra, info.file_size

    def set_checksums(self, copy: IO[bytes], changed: Collection[int]) -> None:
        """Make the checksums of changed members right again, in all places where a zip keeps them.

        Args:
            copy: A copy of the archive, open for reading and writing, in which bytes of stored members were changed.
            changed: Offsets in the file: a member has changed if one of them lies in it.
        """
        entries = self._entries(copy)
        for member, info in self.members.items():
            start, size = self.extent(member)
            stored = info.compress_type == zipfile.ZIP_STORED
            if not stored or not any(start <= offset < start + size for offset in changed):
                continue
            offsets = [entries[member] + 16]
            if info.flag_bits & CHECKSUM_BEHIND:  # behind a signature that may be left out
                copy.seek(start + size)
                offsets.append(start + size + (4 if copy.read(4) == b"PK\x07\x08" else 0))
            copy.seek(info.header_offset + 14)
            if copy.read(4) != bytes(4) or not info.flag_bits & CHECKSUM_BEHIND:
                offsets.append(info.header_offset + 14)
            checksum = struct.pack("<I", _crc(copy, start, size))
            for offset in offsets:
                copy.seek(offset)
                copy.write(checksum)

    def _entries(self, file: IO[bytes]) -> dict[str, int]:
        """Return where each member's entry in the directory starts."""
        entries, position = {}, self.directory
        for member in self.members:
            entries[member] = position
            file.seek(position + 28)
            position += 46 + sum(struct.unpack("<HHH", file.read(6)))
        return entries


def write_copy(
    source: Path, destination: Path, edits: Mapping[int, bytes | bytearray], archive: Zip | None = None
) -> None:
    """Write a copy of a file with other bytes at some offsets, and set the checksums right if it is an archive."""
    finish = None if archive is None else partial(archive.set_checksums, changed=edits)
    write_edited(source, destination, edits, finish)


def _check_apart(file: zipfile.ZipFile, path: Path) -> None:
    """Refuse members that are not where the directory says, have another name there, or share a byte.

    Raises:
        UnsafeModelError: There is such a member.
    """
    behind = 0
    with path.open("rb") as stream:
        for info in sorted(file.infolist(), key=lambda info: info.header_offset):
            if info.header_offset < behind:
                raise UnsafeModelError(f"'{path.name}' holds members that overlap")
            stream.seek(info.header_offset)
            header = stream.read(30)
            if len(header) < 30 or header[:4] != b"PK\x03\x04":
                raise UnsafeModelError(f"'{path.name}' lists a member '{info.filename}' that is not there")
            named, extra = struct.unpack("<HH", header[26:])
            flags = int.from_bytes(header[6:8], "little")
            name = stream.read(named).decode("utf-8" if flags & UTF8 else "cp437", "replace")
            if name != info.orig_filename:
                raise UnsafeModelError(f"'{path.name}' calls one member '{info.filename}' and '{name}'")
            behind = info.header_offset + 30 + named + extra + info.compress_size
        if behind > file.start_dir:
            raise UnsafeModelError(f"'{path.name}' holds members that overlap")
        stream.seek(file.start_dir)
        for _ in file.infolist():
            entry = stream.read(46)
            stream.seek(sum(struct.unpack("<HHH", entry[28:34])), 1)
        if stream.read(4) not in (END, END64):
            raise ModelError(f"'{path.name}' is damaged: its directory does not end where it says")


def _crc(file: IO[bytes], start: int, size: int) -> int:
    file.seek(start)
    checksum, left = 0, size
    while left > 0:
        block = file.read(min(left, CHUNK))
        checksum, left = zlib.crc32(block, checksum), left - len(block)
    return checksum
