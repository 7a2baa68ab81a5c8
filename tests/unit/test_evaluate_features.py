"""How a convolution's outputs become the next dense layer's inputs is found out from the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.evaluate.features import find_features
from arachne.values import Array


def pooled(outputs: Array, window: int, reduce: str) -> Array:
    n, channels, rows, columns = outputs.shape
    cut = outputs[:, :, : rows // window * window, : columns // window * window]
    tiles = cut.reshape(n, channels, rows // window, window, columns // window, window)
    return np.asarray(getattr(tiles, reduce)(axis=(3, 5)))


@pytest.mark.parametrize("channels_first", [True, False])
@pytest.mark.parametrize(("pool", "window"), [("max", 2), ("mean", 3), ("mean", 7), ("", 1)])
def test_features_are_found_from_what_enters_the_dense_layer(pool: str, window: int, channels_first: bool) -> None:
    outputs = np.random.default_rng(0).standard_normal((6, 5, 7, 7)).astype(np.float32)
    made = np.maximum(outputs, 0)
    made = pooled(made, window, pool) if pool else made
    flat = made.reshape(6, 5, -1)
    entering = (flat if channels_first else flat.transpose(0, 2, 1)).reshape(6, -1)
    found = find_features(outputs, entering)
    assert found is not None
    assert np.allclose(found.of(outputs, 2), made, atol=1e-6)
    columns = found.columns(np.array([1, 4]), 5, flat.shape[2])
    assert np.array_equal(entering[:, columns], flat[:, [1, 4]])


def test_pooling_that_overlaps_is_not_taken_for_anything_else() -> None:
    outputs = np.random.default_rng(0).standard_normal((6, 5, 7, 7)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(outputs, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    assert find_features(outputs, windows.max(axis=(4, 5)).reshape(6, -1)) is None
