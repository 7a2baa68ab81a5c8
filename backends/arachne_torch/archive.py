"""Zip archives as torch writes them: checked before anything is believed, changed in place without being rewritten."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

from arachne.errors import ModelError, UnsafeModelError
from arachne.files import written

LARGEST_MEMBER_READ = 512 * 2**20
"""Members larger than this hold weights and are never read whole."""


class Archive:
    """A stored (uncompressed) zip archive whose names, sizes and checksums hold.

    Attributes:
        path: The file.
        members: What the archive holds, by name.
    """

    def __init__(self, path: Path, members: Mapping[str, zipfile.ZipInfo], directory: int) -> None:
        self.path = path
        self.members = members
        self._directory = directory

    @classmethod
    def open(cls, path: Path) -> Archive:
        """Check the whole archive.

        Raises:
            UnsafeModelError: Names that reach outside, or members that would grow when read.
            ModelError: No zip archive, or a damaged one.
        """
        try:
            with zipfile.ZipFile(path) as file:
                infos = file.infolist()
                if any(info.filename.endswith("/constants.pkl") for info in infos):
                    raise ModelError(f"'{path.name}' is TorchScript; save the state dict of the module it was made of")
                for info in infos:
                    _check_member(path, info)
                if sum(info.file_size for info in infos) > path.stat().st_size:
                    raise UnsafeModelError(f"'{path.name}' holds members that overlap")
                if len({info.filename for info in infos}) != len(infos):
                    raise UnsafeModelError(f"'{path.name}' holds two members of one name")
                damaged = file.testzip()
                if damaged is not None:
                    raise ModelError(f"'{path.name}' is damaged: the checksum of '{damaged}' is wrong")
                return cls(path, {info.filename: info for info in infos}, file.start_dir)
        except (zipfile.BadZipFile, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            if isinstance(error, ModelError):
                raise
            raise ModelError(
                f"'{path.name}' is no archive that torch has written, or is damaged: {error}; save it again with a "
                "current torch"
            ) from error

    def root(self) -> str:
        """The one folder that everything lies in."""
        roots = {name.partition("/")[0] for name in self.members}
        if len(roots) != 1:
            raise ModelError(f"'{self.path.name}' is no archive that torch has written: it has no single root folder")
        return roots.pop()

    def require_little_endian(self) -> None:
        """Big-endian archives exist; their bytes would be read the wrong way round."""
        member = f"{self.root()}/byteorder"
        if member in self.members and self.read(member).strip() != b"little":
            raise ModelError(f"'{self.path.name}' was written on a big-endian machine; save it again on this one")

    def read(self, member: str) -> bytes:
        """The bytes of a member that holds no weights."""
        start, size = self.extent(member)
        if size > LARGEST_MEMBER_READ:
            raise ModelError(f"'{self.path.name}' holds a member '{member}' of {size} bytes, too large to be read")
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(size)

    def json(self, member: str) -> Any:
        """A member that is JSON."""
        try:
            return json.loads(self.read(member))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"'{self.path.name}' holds a '{member}' that cannot be read: {error}") from error

    def extent(self, member: str) -> tuple[int, int]:
        """Where a member's bytes start in the file, and how many they are."""
        if member not in self.members:
            raise ModelError(f"'{self.path.name}' lacks its member '{member}'")
        info = self.members[member]
        with self.path.open("rb") as file:
            file.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
        return info.header_offset + 30 + name + extra, info.file_size

    def repair_checksums(self, file: IO[bytes], edited: Mapping[int, bytes | bytearray]) -> None:
        """Set the checksum of every member that an edit fell into, in all places where a zip keeps it."""
        entries = self._directory_entries(file)
        for member, info in self.members.items():
            start, size = self.extent(member)
            if not any(start <= offset < start + size for offset in edited):
                continue
            checksum = struct.pack("<I", _crc(file, start, size))
            places = [entries[member] + 16]
            if info.flag_bits & 0x08:  # the checksum follows the data, behind a signature that may be left out
                file.seek(start + size)
                places.append(start + size + (4 if file.read(4) == b"PK\x07\x08" else 0))
            file.seek(info.header_offset + 14)
            if file.read(4) != bytes(4):
                places.append(info.header_offset + 14)
            for place in places:
                file.seek(place)
                file.write(checksum)

    def _directory_entries(self, file: IO[bytes]) -> dict[str, int]:
        """Where each member's entry in the central directory starts."""
        entries, position = {}, self._directory
        for member in self.members:
            file.seek(position)
            entry = file.read(46)
            entries[member] = position
            position += 46 + sum(struct.unpack("<HHH", entry[28:34]))
        return entries


def _check_member(path: Path, info: zipfile.ZipInfo) -> None:
    name = info.filename
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or "\\" in name or ":" in name or "\0" in name:
        raise UnsafeModelError(f"'{path.name}' holds a member '{name}' that reaches outside the archive")
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise UnsafeModelError(
            f"'{path.name}' holds a compressed member '{name}'; torch stores its archives as they are"
        )
    if info.flag_bits & 0x01:
        raise ModelError(f"'{path.name}' is encrypted")


def _crc(file: IO[bytes], start: int, size: int) -> int:
    file.seek(start)
    checksum, left = 0, size
    while left > 0:
        block = file.read(min(left, 2**20))
        checksum, left = zlib.crc32(block, checksum), left - len(block)
    return checksum


def write_copy(
    source: Path, destination: Path, edits: Mapping[int, bytes | bytearray], archive: Archive | None = None
) -> None:
    """A copy of a file with other bytes at some offsets, and the checksums of its archive set right."""
    with written(destination, source) as temporary:
        shutil.copyfile(source, temporary)
        with temporary.open("r+b") as file:
            for offset, data in edits.items():
                file.seek(offset)
                file.write(data)
            file.flush()
            if archive is not None:
                archive.repair_checksums(file, edits)
