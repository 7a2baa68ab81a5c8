"""How a test gets the same network in any framework.

The `conformance.py` of an adapter has a function `build` from a network spec to a backend. It is imported when a test
first asks for it, so that a framework that is not installed disturbs nobody.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def networks_in() -> Callable[[str], ModuleType]:
    """From the name of a backend to the module that builds its networks."""
    return _networks_in


@functools.cache
def _networks_in(name: str) -> ModuleType:
    if name == "torch":
        import torch

        torch.set_num_threads(1)
    return importlib.import_module(f"arachne_{name}.conformance")
