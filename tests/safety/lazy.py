"""Frameworks that are imported when they are first used: every process lists all cases, and makes only some."""

from __future__ import annotations

import importlib
from typing import Any


class Lazy:
    """Stands for a module until something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)
