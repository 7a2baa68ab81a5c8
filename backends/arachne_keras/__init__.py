"""The Keras backend."""

from __future__ import annotations

from arachne_keras import environment  # noqa: F401  # isort: skip  # first: it settles what Keras reads when imported
from arachne_keras.adapter import KerasBackend

__all__ = ["KerasBackend"]
