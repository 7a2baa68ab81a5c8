"""`manifest.json`: what a folder of results holds, every file with its size and sha256."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arachne.errors import InputError
from arachne.files import atomic_write, read_object, sha256_of
from arachne.working_folder import HIDDEN

MANIFEST, SCHEMA = "manifest.json", "arachne.folder/1"


def write_manifest(folder: Path) -> None:
    """Write down what a folder holds: every file with its size and sha256."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in files_in(folder)
        if path.name != MANIFEST or path.parent != folder
    }
    text = json.dumps({"schema": SCHEMA, "files": files}, indent=1, ensure_ascii=False)
    atomic_write(folder / MANIFEST, f"{text}\n".encode())


def read_manifest(folder: Path) -> Mapping[str, Mapping[str, Any]] | None:
    """What a folder should hold, by name; None where no run has said so."""
    try:
        told = read_object(folder / MANIFEST, "manifest")
    except InputError:
        return None
    files = told.get("files")
    return files if told.get("schema") == SCHEMA and isinstance(files, dict) else None


def files_in(folder: Path) -> list[Path]:
    """Everything in a folder that is no folder itself; links are not followed, and working folders left out."""
    found = []
    for top, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not (name.startswith(".") and name.endswith(HIDDEN))]
        paths = [Path(top) / name for name in [*files, *folders]]
        found += [path for path in paths if path.is_symlink() or not path.is_dir()]
    return sorted(found)
