"""`manifest.json`: the files of a folder of results, each with its size and sha256.

It also says what may be replaced or removed: ordinary files that have this size and this hash, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arachne.errors import EnvironmentFaultError, InputError, UsageError
from arachne.io.files import atomic_write
from arachne.io.folder import Folder
from arachne.io.readers import Found, hash_file, list_files, read_object

MANIFEST, SCHEMA = "manifest.json", "arachne.folder/1"

Entries = Mapping[str, Mapping[str, Any]]
"""Size and sha256 of files, by name."""


def write_manifest(folder: Path) -> None:
    """Write the manifest of a folder: every file with its size and sha256.

    Raises:
        EnvironmentFaultError: It holds a link, or something else that is no file.
    """
    with Folder.open(folder) as held:
        found = [one for one in list_files(held, hashed=True) if one.name != MANIFEST]
        strange = [one.name for one in found if not one.ordinary]
        if strange:
            raise EnvironmentFaultError(f"'{held.named / strange[0]}' is no ordinary file; nothing was written")
        _write(folder, {one.name: _entry(one) for one in found})


def update_manifest(folder: Path, name: str) -> None:
    """Update the entry of one file in a folder's manifest; the other entries stay."""
    known = read_manifest(folder)
    if known is None:
        return
    with Folder.open(folder) as held:
        found = held.stat(name)
        entry = {} if found is None else {name: {"bytes": found.st_size, "sha256": hash_file(held, name)}}
    _write(folder, {**known, **entry})


def read_manifest(folder: Path) -> Entries | None:
    """Read which files a folder should hold, by name; None if no run has written a manifest."""
    try:
        stored = read_object(folder / MANIFEST, "manifest")
    except InputError:
        return None
    files = stored.get("files")
    if stored.get("schema") != SCHEMA or not isinstance(files, dict):
        return None
    return files if all(isinstance(entry, dict) for entry in files.values()) else None


def files_in(folder: Path) -> list[Path]:
    """All files in a folder and its folders; links are not followed."""
    with Folder.open(folder) as held:
        return sorted(folder / found.name for found in list_files(held))


def check_made_by_run(folder: Folder, named: Path) -> Entries:
    """Refuse a folder with files that differ, by hash, from its manifest.

    Args:
        folder: The folder, open.
        named: What it is called in messages.

    Raises:
        UsageError: It has no manifest, or a file was added, changed or replaced by a link.
    """
    known = read_manifest(folder.path)
    for found in list_files(folder, hashed=known is not None):
        if found.name == MANIFEST and known is not None:
            continue
        entry = (known or {}).get(found.name)
        if known is None or entry is None:
            raise not_ours(named, found.name if known is not None else "")
        if not found.ordinary or _entry(found) != {key: entry.get(key) for key in ("bytes", "sha256")}:
            raise UsageError(
                f"'{named / found.name}' is not the file a run has written there: it was changed or replaced since; "
                "choose another folder, or move that file away"
            )
    return known or {}


def not_ours(named: Path, name: str) -> UsageError:
    """The error for a folder with files that no run has made."""
    which = f", such as '{name}'" if name else ""
    return UsageError(f"'{named}' holds what no repair has put there{which}; choose another folder")


def remove_listed(folder: Folder, known: Entries) -> None:
    """Remove the files of a folder that were checked, and the folders that are then empty; anything else stays."""
    for top, folders, files, handle in os.fwalk(".", topdown=False, dir_fd=folder.handle):
        for name in files:
            path = os.path.normpath(os.path.join(top, name)).replace(os.sep, "/")
            if path == MANIFEST or path in known:
                os.unlink(name, dir_fd=handle)
        for name in folders:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=handle)


def _entry(found: Found) -> dict[str, Any]:
    return {"bytes": found.stat.st_size, "sha256": found.sha256}


def _write(folder: Path, entries: Entries) -> None:
    text = json.dumps({"schema": SCHEMA, "files": dict(sorted(entries.items()))}, indent=1, ensure_ascii=False)
    atomic_write(folder / MANIFEST, f"{text}\n".encode())
