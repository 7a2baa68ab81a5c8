"""Zip archives as torch writes them: checked before anything in them is used, changed without being written anew."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from arachne.adapting.zips import Zip, open_zip
from arachne.errors import ModelError, UnsafeModelError
from arachne.io.reading import parse_json

MAX_MEMBER_BYTES = 64 * 2**20
"""Members larger than this hold weights and are never read whole."""

MAX_CODE_BYTES = 64 * 2**20
"""Bytes that all the code of a TorchScript archive may grow to; it is compressed, and never read."""


class Archive:
    """A stored (uncompressed) zip archive whose names, sizes and checksums hold.

    Attributes:
        path: The file.
        members: What the archive holds, by name.
        extent: Where a member's bytes start in the file, and how many they are.
        zip: Its directory.
    """

    def __init__(self, file: Zip) -> None:
        self.path = file.path
        self.members = file.members
        self.extent = file.extent
        self.zip = file

    @classmethod
    def open(cls, path: Path) -> Archive:
        """Check the whole archive.

        Raises:
            UnsafeModelError: Names that reach outside, or members that would grow when read.
            ModelError: No zip archive, or a damaged one.
        """
        with open_zip(path, "an archive that torch has written") as file:
            found = Zip.read_directory(file, path)
            for info in found.members.values():
                _check_stored(path, info)
            if sum(info.file_size for info in found.members.values() if _is_code(info)) > MAX_CODE_BYTES:
                raise UnsafeModelError(f"'{path.name}' holds code that would grow out of proportion")
            found.check_checksums(file)
            return cls(found)

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
        if size > MAX_MEMBER_BYTES:
            raise ModelError(f"'{self.path.name}' holds a member '{member}' of {size} bytes, too large to be read")
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(size)

    def json(self, member: str) -> Any:
        """A member that is JSON."""
        try:
            return parse_json(self.read(member), finite=False)
        except ValueError as error:
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"'{self.path.name}' holds a '{member}' that cannot be read: {error}") from error


def _is_code(info: zipfile.ZipInfo) -> bool:
    """Whether a member is source code of TorchScript, `name/code/...`."""
    return info.filename.partition("/")[2].startswith("code/")


def _check_stored(path: Path, info: zipfile.ZipInfo) -> None:
    if _is_code(info):
        return
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise UnsafeModelError(
            f"'{path.name}' holds a compressed member '{info.filename}'; torch stores its archives as they are"
        )
