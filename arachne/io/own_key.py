"""The key of this user: a file that nobody else can read, with which checkpoints are marked.

A folder that others can write to may be filled by them (`check_ours_alone`). Its owner and permissions do not tell
whether its files came out of an archive that was unpacked there; a mark made with a key that never left the user's
state folder does.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from arachne.errors import CheckpointError, EnvironmentFaultError
from arachne.io.folder import Folder
from arachne.io.moving import put_new

STATE, NAME = "XDG_STATE_HOME", "checkpoint-key"
KEY_BYTES = 32

WRITABLE, OPEN = 0o022, 0o077
"""The permissions by which others can write to a folder, and by which they have any access."""


def key_path() -> Path:
    """The file of the key, in the folder where programs of this user keep their state.

    Raises:
        EnvironmentFaultError: There is no such folder: this user has no home.
    """
    named = os.environ.get(STATE, "")
    try:
        state = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise EnvironmentFaultError(f"this user has no home for a key; set {STATE} to a folder of yours") from error
    return state / "arachne" / NAME


def read_own_key() -> bytes:
    """Read the key, which is made when it is first needed.

    Raises:
        EnvironmentFaultError: It can be neither read nor made, or others could have read or written it.
    """
    path = key_path()
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        with Folder.open(path.parent.parent) as state:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path.parent.name, 0o700, dir_fd=state.handle)
            with state.enter(path.parent.name) as folder:
                if folder.stat(NAME) is None:
                    _make(folder)
                return _read(folder, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise EnvironmentFaultError(
            f"the key '{path}' can be neither read nor made: {reason}; set {STATE} to a folder of yours"
        ) from error


def make_mark(key: bytes, content: bytes) -> bytes:
    """Make the mark of some bytes."""
    return hmac.digest(key, content, "sha256")


def fits_mark(key: bytes, content: bytes, mark: bytes) -> bool:
    """Tell whether a mark was made with this key for these bytes."""
    return hmac.compare_digest(make_mark(key, content), mark)


def _make(folder: Folder) -> None:
    """Put a new key into the folder, whole; that of a run which was faster stays."""
    draft = f".{NAME}.{secrets.token_hex(8)}"
    try:
        folder.write_file(draft, secrets.token_bytes(KEY_BYTES), 0o600)
        put_new(folder, draft, folder, NAME)
        folder.sync()
    except EnvironmentFaultError:  # it is there by now
        return
    finally:
        folder.remove(draft)


def _read(folder: Folder, path: Path) -> bytes:
    with folder.open_file(NAME) as stream:
        found, above = os.fstat(stream.fileno()), os.fstat(folder.handle)
        content = stream.read(KEY_BYTES + 1)
    private = not stat.S_IMODE(found.st_mode) & 0o077 and not stat.S_IMODE(above.st_mode) & 0o022
    if {found.st_uid, above.st_uid} != {os.geteuid()} or not private or found.st_nlink > 1 or len(content) != KEY_BYTES:
        raise EnvironmentFaultError(
            f"'{path}' is no key that is yours alone to read and write; remove it, and runs make a new one"
        )
    return content


def check_ours_alone(folder: Folder, *, forbidden: int = WRITABLE) -> None:
    """Refuse to resume from a folder that another user, or an unpacked archive, may have filled.

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
