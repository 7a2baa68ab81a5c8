"""Flax NNX models for Arachne.

`layers.py` defines which layers are repaired and their layout, `running.py` makes functions of a model,
`output_head.py` removes a final softmax or sigmoid, `files.py` reads and writes weights, `cut.py` is for speed alone,
and `adapter.py` puts them together.
"""

from __future__ import annotations

from arachne_flax.adapter import FlaxBackend

__all__ = ["FlaxBackend"]
