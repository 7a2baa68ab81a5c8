"""Remembers the files in the places of a command's outputs when it begins; those that come later are kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from arachne.io.folder import Folder, Identity, identity

_seen: ContextVar[dict[Path, Identity | None] | None] = ContextVar("seen", default=None)


@contextmanager
def expecting(outputs: Iterable[Path]) -> Iterator[None]:
    """Remember, for the length of the block, the files that lie at these paths now."""
    token = _seen.set({path.absolute(): _identity_of(path) for path in outputs})
    try:
        yield
    finally:
        _seen.reset(token)


def expected_at(destination: Path, parent: Folder) -> Identity | None:
    """Say which file an output may replace; None where nothing may be there.

    Args:
        destination: The output.
        parent: The folder it goes to, open.
    """
    seen = _seen.get() or {}
    place = destination.absolute()
    return seen.pop(place) if place in seen else parent.identity_of(place.name)


def _identity_of(path: Path) -> Identity | None:
    try:
        return identity(os.lstat(path))
    except OSError:
        return None
