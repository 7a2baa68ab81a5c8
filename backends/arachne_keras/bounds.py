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

ALWAYS_ALLOWED_BYTES = 128 * 2**20
PROPORTION = 256
"""Results per input may take this many bytes, or this many times the bytes of the weights if that is more."""

EXTRA_WEIGHT_BYTES = 1 << 20
"""Bytes of weights that a description may ask for beyond twice those that are stored."""


@contextlib.contextmanager
def limit_weights(stored: int, name: str) -> Iterator[None]:
    """Stop layers that would create more weights than a file has.

    Args:
        stored: Bytes of the weights in the file.
        name: The file's name, for the message.

    Raises:
        UnsafeModelError: A layer asks for more.
    """
    left = 2 * stored + EXTRA_WEIGHT_BYTES
    plain = keras.layers.Layer.add_weight

    def add_weight(layer: Any, shape: Any = None, *given: Any, **named: Any) -> Any:
        nonlocal left
        sizes = [shape] if isinstance(shape, int) else shape or ()
        left -= 4 * math.prod(abs(int(size)) for size in sizes if size is not None)
        if left < 0:
            raise UnsafeModelError(f"'{name}' describes a layer '{layer.name}' that is larger than its weights")
        return plain(layer, shape, *given, **named)

    with swap_class_attribute(keras.layers.Layer, "add_weight", add_weight):
        yield


@contextlib.contextmanager
def swap_class_attribute(owner: type, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a class for a while."""
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
    left = max(ALWAYS_ALLOWED_BYTES, PROPORTION * stored)
    for layer in model._flatten_layers():
        for node in layer._inbound_nodes:
            for tensor in node.output_tensors:
                left -= 4 * math.prod(size for size in tensor.shape if size is not None)
        if left < 0:
            raise UnsafeModelError(
                f"'{name}' has a layer '{layer.name}' that gives out of proportion to the model's weights"
            )
