"""The features of a model, the inputs of its last dense layer, which MODE and DeepFault use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne.errors import UsageError
from arachne.model.backend import ModelBackend
from arachne.model.sharding import read_shards
from arachne.model.values import Array, Inputs, LayerInfo


def feature_layer(backend: ModelBackend) -> LayerInfo:
    """Return the last layer, whose inputs are the features.

    Raises:
        UsageError: It is not a dense layer.
    """
    info = backend.layers[-1]
    if info.kind != "dense" or "weight" not in info.parameters:
        raise UsageError(
            f"this search looks at what enters a dense layer at the end of the model, and the model ends in "
            f"'{info.name}', a layer of the kind '{info.kind}'"
        )
    return info


def features(backend: ModelBackend, inputs: Inputs) -> Iterator[tuple[Array, Array]]:
    """Yield class scores `(m, classes)` and features `(m, in)`, piece by piece.

    Raises:
        UsageError: The last layer has no single row of features for each input.
    """
    layer = feature_layer(backend).name
    for _, piece in read_shards(inputs):
        scores, uses = backend.forward_through(piece, layer)
        entering = uses[0].entering["weight"]
        if len(uses) != 1 or entering.ndim != 2:
            raise UsageError(
                f"this search takes one row of features for each input, and '{layer}' is used on several at once"
            )
        yield scores, entering


def joined_features(backend: ModelBackend, inputs: Inputs) -> Array:
    """Return the features of a few inputs, `(n, in)`."""
    return np.concatenate([found for _, found in features(backend, inputs)])
