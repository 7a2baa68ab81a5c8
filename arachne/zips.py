"""Zip archives that hold a model: checked before anything in them is believed, changed without being rewritten."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from arachne.errors import ModelError, UnsafeModelError
from arachne.files import CHUNK

ENCRYPTED, CHECKSUM_BEHIND = 0x01, 0x08
"""Flags of a member: its bytes are encrypted; its checksum follows them."""


@dataclass(frozen=True)
class Zip:
    """Where the members of an archive lie.

    Attributes:
        path: The file.
        members: What it holds, by name, in the order of its directory.
        directory: Where its directory starts.
    """

    path: Path
    members: Mapping[str, zipfile.ZipInfo]
    directory: int

    @classmethod
    def checked(cls, file: zipfile.ZipFile, path: Path) -> Zip:
        """Check what the directory tells; no member is read.

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
        if sum(info.compress_size for info in infos) > path.stat().st_size:
            raise UnsafeModelError(f"'{path.name}' holds members that overlap")
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
        """Where the bytes of a stored member start in the file, and how many they are.

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

    def set_checksums(self, copy: IO[bytes], members: Iterable[str]) -> None:
        """Make the checksums of changed members right again, in all places where a zip keeps them.

        Args:
            copy: A copy of the archive, open for reading and writing, in which bytes of stored members were changed.
            members: The names of these members.
        """
        entries = self._entries(copy)
        for member in members:
            info, (start, size) = self.members[member], self.extent(member)
            places = [entries[member] + 16]
            if info.flag_bits & CHECKSUM_BEHIND:  # behind a signature that may be left out
                copy.seek(start + size)
                places.append(start + size + (4 if copy.read(4) == b"PK\x07\x08" else 0))
            copy.seek(info.header_offset + 14)
            if copy.read(4) != bytes(4) or not info.flag_bits & CHECKSUM_BEHIND:
                places.append(info.header_offset + 14)
            checksum = struct.pack("<I", _crc(copy, start, size))
            for place in places:
                copy.seek(place)
                copy.write(checksum)

    def _entries(self, file: IO[bytes]) -> dict[str, int]:
        """Where each member's entry in the directory starts."""
        entries, position = {}, self.directory
        for member in self.members:
            entries[member] = position
            file.seek(position + 28)
            position += 46 + sum(struct.unpack("<HHH", file.read(6)))
        return entries


def _crc(file: IO[bytes], start: int, size: int) -> int:
    file.seek(start)
    checksum, left = 0, size
    while left > 0:
        block = file.read(min(left, CHUNK))
        checksum, left = zlib.crc32(block, checksum), left - len(block)
    return checksum
