"""Import libraries that would obey a file of the working folder: they are imported from elsewhere.

matplotlib reads a `matplotlibrc` of the working folder. A stranger's lets LaTeX be started, and one that is a pipe is
waited for. Keras imports it for drawings that Arachne has no use for, and it would look for fonts with a program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

LOOK_HERE = ("matplotlib",)
"""Packages that look into the working folder when they are imported."""

UNUSED_BY = {"matplotlib": "keras"}
"""Packages that another one does without where they are not installed, as while that one is imported."""


def import_from_elsewhere() -> None:
    """Let every later import of these packages happen in another folder than the working one, or not for others."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in UNUSED_BY and _is_being_imported(UNUSED_BY[fullname]):
            raise ModuleNotFoundError(f"no module named '{fullname}' is wanted here", name=fullname)
        found = PathFinder.find_spec(fullname, path, target) if fullname in LOOK_HERE else None
        if found is not None and found.loader is not None:
            found.loader = _Elsewhere(found.loader)
        return found


def _is_being_imported(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


class _Elsewhere(Loader):
    """A loader whose module runs in the root folder."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        with _root_folder():
            self._loader.exec_module(module)


@contextmanager
def _root_folder() -> Iterator[None]:
    here = os.open(".", os.O_RDONLY)  # which has no path any more where somebody has removed it
    try:
        os.chdir(os.sep)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
