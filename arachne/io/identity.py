"""FileIdentity: the files a model was read from, by their hashes, so that a changed or replaced file is noticed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from arachne.errors import ModelError, UsageError
from arachne.io.files import sha256_of

_wanted: ContextVar[Mapping[Path, str]] = ContextVar("wanted", default=MappingProxyType({}))


@contextmanager
def expecting_hashes(hashes: Mapping[Path, str]) -> Iterator[None]:
    """Expect these hashes of files for the length of the block; a model that has one of them has no other files."""
    token = _wanted.set(hashes)
    try:
        yield
    finally:
        _wanted.reset(token)


@dataclass(frozen=True)
class FileIdentity:
    """Files with the hashes they had when they were read.

    Attributes:
        files: The sha256 of each, by its path.
        stamps: What the system said of each when it was hashed: which file it is, its size and its times.
    """

    files: Mapping[Path, str]
    stamps: Mapping[Path, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Iterable[Path]) -> FileIdentity:
        """Hash files that are about to be read."""
        stamps = {path.absolute(): _stamp(path) for path in paths}
        return cls({path: sha256_of(path) for path in stamps}, stamps)

    def extended_by(self, paths: Iterable[Path]) -> FileIdentity:
        """Return these files and others, which are hashed now."""
        more = FileIdentity.of(paths)
        return FileIdentity({**self.files, **more.files}, {**self.stamps, **more.stamps})

    def sha256(self, path: Path) -> str | None:
        """The hash a file had, if it is one of these."""
        return self.files.get(path.absolute())

    def check_expected(self, hashes: Mapping[Path, str] | None = None) -> None:
        """Refuse files one of which has an expected hash, unless each of them has.

        Args:
            hashes: Expected hashes by path, besides those of `expecting_hashes`.

        Raises:
            UsageError: What is expected is no sha256.
            ModelError: Nothing is expected of one, or something else.
        """
        wanted = {path.resolve(): digest for path, digest in {**_wanted.get(), **(hashes or {})}.items()}
        known = {path: wanted.get(path.resolve()) for path in self.files}
        if all(expected is None for expected in known.values()):
            return
        for path, expected in known.items():
            if expected is None:
                raise ModelError(
                    f"'{next(iter(known)).name}' keeps weights in other files, and no sha256 is expected of "
                    f"'{path.name}'; expect one of each file"
                )
            check_sha256(path, expected, self.files[path])

    def check_untouched(self) -> None:
        """Refuse files that anybody has written to while they were being read.

        Raises:
            ModelError: One was.
        """
        for path, stamp in self.stamps.items():
            if _stamp(path) != stamp:
                raise ModelError(f"'{path.name}' was changed while it was being read; try again when it is whole")

    def check(self) -> None:
        """Refuse files that hold something else than they did.

        Raises:
            ModelError: One does, or is gone.
        """
        for path, digest in self.files.items():
            if not path.is_file() or sha256_of(path) != digest:
                raise ModelError(
                    f"'{path.name}' is not the file any more that was opened: it was changed, replaced or removed "
                    "meanwhile; nothing is written"
                )


def check_sha256(path: Path, expected: str, found: str) -> None:
    """Refuse a file that is not the expected one.

    Args:
        path: The file.
        expected: The sha256 it should have, in hex.
        found: The one it has.

    Raises:
        UsageError: What is expected is no sha256.
        ModelError: It is another file.
    """
    wanted = expected.strip().lower()
    if len(wanted) != 64 or set(wanted) - set("0123456789abcdef"):
        raise UsageError(f"'{expected}' is no sha256, expected 64 hexadecimal digits")
    if wanted != found:
        raise ModelError(f"'{path}' is not the expected file: its sha256 is {found}, expected {wanted}")


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        now = os.stat(path)
    except OSError:
        return ()
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
