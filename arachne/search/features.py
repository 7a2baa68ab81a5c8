"""The features of a model: what enters its last dense layer, which MODE and DeepFault look at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne.backend import ModelBackend
from arachne.errors import UsageError
from arachne.shards import pieces
from arachne.values import Array, Inputs, LayerInfo


def feature_layer(backend: ModelBackend) -> LayerInfo:
    """The last layer, whose inputs are the features.

    Raises:
        UsageError: It is no dense layer.
    """
    info = backend.layers[-1]
    if info.kind != "dense" or "weight" not in info.parameters:
        raise UsageError(
            f"this search looks at what enters a dense layer at the end of the model, and the model ends in "
            f"'{info.name}', a layer of the kind '{info.kind}'"
        )
    return info


def features(backend: ModelBackend, inputs: Inputs) -> Iterator[tuple[Array, Array]]:
    """Piece by piece, class scores `(m, classes)` and features `(m, in)`.

    Raises:
        UsageError: The last layer has no single row of features for each input.
    """
    layer = feature_layer(backend).name
    for _, piece in pieces(inputs):
        scores, uses = backend.forward_through(piece, layer)
        entering = uses[0].entering["weight"]
        if len(uses) != 1 or entering.ndim != 2:
            raise UsageError(
                f"this search takes one row of features for each input, and '{layer}' is used on several at once"
            )
        yield scores, entering


def joined_features(backend: ModelBackend, inputs: Inputs) -> Array:
    """The features of a few inputs, `(n, in)`."""
    return np.concatenate([found for _, found in features(backend, inputs)])
