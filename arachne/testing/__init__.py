"""For authors of backends and tasks, and for tests: a reference network, and the suites that these must pass.

`BackendConformance` needs pytest; nothing else here does, so it is fetched when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arachne.testing.networks import (
    Network,
    UnsupportedNetworkError,
    branches,
    convnet,
    mlp,
    random_inputs,
    residual,
    shared_layer,
    two_inputs,
)
from arachne.testing.reference import ReferenceBackend
from arachne.testing.tasks import TaskConformance

if TYPE_CHECKING:
    from arachne.testing.conformance import BackendConformance

__all__ = [
    "BackendConformance",
    "Network",
    "ReferenceBackend",
    "TaskConformance",
    "UnsupportedNetworkError",
    "branches",
    "convnet",
    "mlp",
    "random_inputs",
    "residual",
    "shared_layer",
    "two_inputs",
]


def __getattr__(name: str) -> Any:
    if name == "BackendConformance":
        from arachne.testing.conformance import BackendConformance

        return BackendConformance
    raise AttributeError(f"module 'arachne.testing' has no attribute '{name}'")
