"""Ownership of folders: files in a folder that others can write to may be theirs."""

from __future__ import annotations

import os

from arachne.errors import CheckpointError
from arachne.io.folder import Folder

WRITABLE, OPEN = 0o022, 0o077
"""The permissions by which others can write to a folder, and by which they have any access."""


def check_ours_alone(folder: Folder, *, forbidden: int = WRITABLE) -> None:
    """Refuse to go on from a folder that another user, or an archive that was unpacked, may have filled.

    Args:
        folder: Where checkpoints are, or what holds that folder.
        forbidden: The permissions that nobody else may have; `OPEN` for a folder that a run has made for itself.

    Raises:
        CheckpointError: It belongs to another user, or is open to others.
    """
    found = os.fstat(folder.handle)
    if found.st_uid != os.geteuid():
        how = "belongs to another user"
    elif found.st_mode & forbidden:
        how = "is open to other users"
    else:
        return
    raise CheckpointError(
        f"'{folder.named}' {how}, so its checkpoints may be a stranger's and are not gone on from; start over",
        argument="replace",
    )
