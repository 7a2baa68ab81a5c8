"""Flax NNX models for Arachne.

`layers.py` tells what of a model is repaired and how it is laid out, `running.py` makes functions of a model,
`ending.py` looks behind a final softmax or sigmoid, `files.py` reads and writes weights, `cut.py` is for speed alone,
and `adapter.py` puts them together.
"""

from __future__ import annotations

from arachne_flax.adapter import FlaxBackend

__all__ = ["FlaxBackend"]
