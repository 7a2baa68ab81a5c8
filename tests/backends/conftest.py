"""How a test gets the same network in any framework.

`tests/backends/<name>_networks.py` holds a function `build` from a network spec to a backend, and, where a saved file
alone does not make a model, a function `reload`. It is imported when a test first asks for it, so that a framework that
is not installed disturbs nobody.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def networks_in() -> Callable[[str], ModuleType]:
    """From the name of a backend to the module that builds its networks."""
    return _networks_in


@functools.cache
def _networks_in(name: str) -> ModuleType:
    path = Path(__file__).with_name(f"{name}_networks.py")
    spec = importlib.util.spec_from_file_location(f"{name}_networks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
