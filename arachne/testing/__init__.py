"""For authors of backends and for tests: a reference network in NumPy, and the suite every backend must pass."""

from __future__ import annotations

from arachne.testing.networks import (
    Network,
    branches,
    convnet,
    mlp,
    random_inputs,
    residual,
    shared,
    two_inputs,
)
from arachne.testing.reference import ReferenceBackend

__all__ = [
    "Network",
    "ReferenceBackend",
    "branches",
    "convnet",
    "mlp",
    "random_inputs",
    "residual",
    "shared",
    "two_inputs",
]
