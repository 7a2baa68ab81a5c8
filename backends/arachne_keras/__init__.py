"""The Keras backend."""

from __future__ import annotations

from arachne_keras import environment  # isort: skip  # first: it settles what Keras reads when it is imported
from arachne_keras.adapter import KerasBackend

__all__ = ["KerasBackend"]

del environment
