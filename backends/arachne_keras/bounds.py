"""A model from a file is built only as large as the weights beside its description are.

Keras makes every weight a description asks for, and fills it with numbers, before it looks at the file's weights.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import keras

from arachne.errors import UnsafeModelError

SMALL = 128 * 2**20
PROPORTION = 256
"""Bytes that a run's results may always take for each input, and how many times the bytes of the weights."""

SLACK = 1 << 20
"""Bytes of weights that a description may ask for beyond twice those that are stored."""


@contextlib.contextmanager
def bounded_weights(stored: int, name: str) -> Iterator[None]:
    """While it is entered, layers cannot make more weights than a file has.

    Args:
        stored: Bytes of the weights in the file.
        name: The file's name, for the message.

    Raises:
        UnsafeModelError: A layer asks for more.
    """
    left = 2 * stored + SLACK
    plain = keras.layers.Layer.add_weight

    def add_weight(layer: Any, shape: Any = None, *given: Any, **named: Any) -> Any:
        nonlocal left
        sizes = [shape] if isinstance(shape, int) else shape or ()
        left -= 4 * math.prod(abs(int(size)) for size in sizes if size is not None)
        if left < 0:
            raise UnsafeModelError(f"'{name}' describes a layer '{layer.name}' that is larger than its weights")
        return plain(layer, shape, *given, **named)

    with swapped_class(keras.layers.Layer, "add_weight", add_weight):
        yield


@contextlib.contextmanager
def swapped_class(owner: type, name: str, value: Any) -> Iterator[None]:
    """Let another function stand in for a class's own."""
    kept = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def check_sizes(model: Any, stored: int, name: str) -> None:
    """Refuse a model whose layers give far more numbers for an input than it has weights.

    Raises:
        UnsafeModelError: It has such a layer.
    """
    left = max(SMALL, PROPORTION * stored)
    for layer in model._flatten_layers():
        for node in layer._inbound_nodes:
            for tensor in node.output_tensors:
                left -= 4 * math.prod(size for size in tensor.shape if size is not None)
        if left < 0:
            raise UnsafeModelError(
                f"'{name}' has a layer '{layer.name}' that gives out of proportion to the model's weights"
            )
