"""How a convolution's outputs become the next dense layer's inputs is found out from the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.model.values import Array
from arachne.scoring.fast.routes.features import find_features


def pool_windows(outputs: Array, window: int, reduce: str) -> Array:
    n, channels, rows, columns = outputs.shape
    cut = outputs[:, :, : rows // window * window, : columns // window * window]
    tiles = cut.reshape(n, channels, rows // window, window, columns // window, window)
    return np.asarray(getattr(tiles, reduce)(axis=(3, 5)))


@pytest.mark.parametrize("flatten", ["flatten", "flatten_last"])
@pytest.mark.parametrize(
    ("pool", "window", "name"),
    [("max", 2, "max_pool"), ("mean", 3, "average_pool"), ("mean", 7, "global_average_pool"), ("", 1, "identity")],
)
def test_features_are_found_from_what_enters_the_dense_layer(pool: str, window: int, name: str, flatten: str) -> None:
    outputs = np.random.default_rng(0).standard_normal((40, 5, 7, 7)).astype(np.float32)
    made = np.maximum(outputs, 0)
    made = pool_windows(made, window, pool) if pool else made
    flat = made.reshape(40, 5, -1)
    entering = (flat if flatten == "flatten" else flat.transpose(0, 2, 1)).reshape(40, -1)
    found = find_features(("relu", name, flatten), outputs, entering)
    assert found is not None
    assert np.allclose(found.of(outputs, 2), made, atol=1e-6)
    columns = found.columns(np.array([1, 4]), 5, flat.shape[2])
    assert np.array_equal(entering[:, columns], flat[:, [1, 4]])


@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 1), (2, 2)), ((0, 1), (1, 0))])
@pytest.mark.parametrize(("pool", "window", "name"), [("max", 2, "max_pool"), ("mean", 3, "average_pool"), ("", 1, "")])
def test_features_are_found_from_what_enters_another_convolution(
    pool: str, window: int, name: str, padding: tuple[tuple[int, int], ...]
) -> None:
    outputs = np.random.default_rng(0).standard_normal((40, 5, 8, 7)).astype(np.float32)
    made = np.tanh(outputs)
    made = pool_windows(made, window, pool) if pool else made
    entering = np.pad(made, [(0, 0), (0, 0), *padding])
    names = [word for word in ("tanh", name) if word]
    found = find_features([*names, "zero_pad"], outputs, entering)
    assert found is not None
    assert found.padding == padding
    assert np.allclose(found.of(outputs, 2), made, atol=1e-6)
    assert (find_features(names, outputs, entering) is None) == bool(np.any(padding))


def test_padding_before_a_pooling_or_a_dense_layer_is_not_gone_through() -> None:
    outputs = np.random.default_rng(0).standard_normal((40, 5, 6, 6)).astype(np.float32)
    made = pool_windows(np.pad(outputs, [(0, 0), (0, 0), (1, 1), (1, 1)]), 2, "max")
    assert find_features(("zero_pad", "max_pool"), outputs, made) is None
    assert find_features(("max_pool", "zero_pad", "flatten"), outputs, made.reshape(40, -1)) is None


def test_pooling_that_overlaps_is_not_taken_for_anything_else() -> None:
    outputs = np.random.default_rng(0).standard_normal((40, 5, 7, 7)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(outputs, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    overlapping = windows.max(axis=(4, 5)).reshape(40, -1)
    assert find_features(("max_pool", "flatten"), outputs, overlapping) is None


def test_blank_inputs_tell_nothing_of_a_pooling() -> None:
    outputs = np.ones((40, 5, 6, 6), np.float32)
    assert find_features(("max_pool", "flatten"), outputs, np.ones((40, 5 * 9), np.float32)) is None


@pytest.mark.parametrize("names", [None, ("batch_norm", "relu", "flatten"), ("max_pool", "max_pool", "flatten")])
def test_what_is_not_told_or_not_known_is_not_guessed(names: tuple[str, ...] | None) -> None:
    outputs = np.random.default_rng(0).standard_normal((40, 5, 6, 6)).astype(np.float32)
    assert find_features(names, outputs, outputs.reshape(40, -1)) is None
