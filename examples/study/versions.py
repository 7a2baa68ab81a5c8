"""Versions of the software that a result was made with."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import arachne


@cache
def versions() -> dict[str, str]:
    """Of the packages, and a hash of arachne's own sources, which change more often than its version."""
    packages = {"arachne": "arachne-repair", "torch": "torch", "numpy": "numpy"}
    digest = hashlib.sha256()
    for path in sorted(Path(arachne.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    told = {name: version(package) for name, package in packages.items()}
    return {**told, "python": platform.python_version(), "sources": digest.hexdigest()[:16]}
