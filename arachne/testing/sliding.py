"""Windows that slide over spatial axes: convolution and pooling in any number of them, forward and backward.

Everything is one loop over the elements of the kernel. Element k of every window, for all windows at once, is a strided
slice of the padded input, so a convolution is a sum of small matrix products, its gradients are the same products with
two of the three factors, and nothing depends on the number of axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from arachne.model.values import Array, Geometry


def positions(shape: Sequence[int], kernel: Sequence[int], geometry: Geometry) -> tuple[int, ...]:
    """How many windows fit along each spatial axis of inputs of `shape`, `(n, channels, *axes)`."""
    return tuple(
        (length + before + after - dilation * (size - 1) - 1) // stride + 1
        for length, size, stride, (before, after), dilation in zip(
            shape[2:], kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True
        )
    )


def convolve(x: Array, weight: Array, geometry: Geometry) -> Array:
    """`(n, in, *axes)` and `(out, in / groups, *kernel)` give `(n, out, *positions)`."""
    padded, kernel = _pad(x, geometry), weight.shape[2:]
    spots = positions(x.shape, kernel, geometry)
    z = np.zeros((len(x), geometry.groups, weight.shape[0] // geometry.groups, int(np.prod(spots))), x.dtype)
    for element, window in _elements(kernel, spots, geometry):
        z += _by_group(weight[element], geometry) @ _columns(padded[window], geometry)
    return z.reshape(len(x), weight.shape[0], *spots)


def weight_gradient(gradient: Array, x: Array, shape: Sequence[int], geometry: Geometry) -> Array:
    """Gradient with respect to the kernel of `shape`, given the one with respect to `(n, out, *positions)`."""
    padded, dz = _pad(x, geometry), _columns(gradient, geometry)
    result = np.zeros(shape, gradient.dtype)
    for element, window in _elements(shape[2:], gradient.shape[2:], geometry):
        product = dz @ _columns(padded[window], geometry).swapaxes(-1, -2)
        result[element] = product.sum(axis=0).reshape(shape[:2])
    return result


def input_gradient(gradient: Array, shape: Sequence[int], weight: Array, geometry: Geometry) -> Array:
    """Gradient with respect to inputs of `shape`, given the one with respect to `(n, out, *positions)`."""
    spots, dz = gradient.shape[2:], _columns(gradient, geometry)
    padded = _padded_zeros(shape, geometry, gradient.dtype)
    for element, window in _elements(weight.shape[2:], spots, geometry):
        product = _by_group(weight[element], geometry).swapaxes(-1, -2) @ dz
        padded[window] += product.reshape(len(gradient), shape[1], *spots)
    return _unpad(padded, shape, geometry)


def windows(x: Array, size: Sequence[int], geometry: Geometry) -> Array:
    """Every element of every window, `(elements, n, channels, *positions)`."""
    spots = positions(x.shape, size, geometry)
    return np.stack([x[window] for _, window in _elements(size, spots, geometry)])


def scatter(shares: Array, shape: Sequence[int], size: Sequence[int], geometry: Geometry) -> Array:
    """The reverse of `windows`: `shares` `(elements, n, channels, *positions)` summed where they came from."""
    result = np.zeros(shape, shares.dtype)
    for share, (_, window) in zip(shares, _elements(size, shares.shape[3:], geometry), strict=True):
        result[window] += share
    return result


def per_channel(values: Array, ndim: int) -> Array:
    """`(channels,)` as `(channels, 1, ...)`, to be added to an array of `ndim` axes."""
    return values.reshape(-1, *(1,) * (ndim - 2))


Index = tuple[slice | int, ...]


def _elements(kernel: Sequence[int], spots: Sequence[int], geometry: Geometry) -> Iterator[tuple[Index, Index]]:
    """For each element of the kernel: its index in a weight, and where it lies in the padded input for all windows."""
    for element in np.ndindex(*kernel):
        starts = [k * dilation for k, dilation in zip(element, geometry.dilation, strict=True)]
        window = tuple(
            slice(start, start + (spot - 1) * stride + 1, stride)
            for start, spot, stride in zip(starts, spots, geometry.stride, strict=True)
        )
        yield (slice(None), slice(None), *element), (slice(None), slice(None), *window)


def _by_group(weight: Array, geometry: Geometry) -> Array:
    """`(out, in / groups)` as `(groups, out / groups, in / groups)`."""
    return weight.reshape(geometry.groups, -1, weight.shape[1])


def _columns(x: Array, geometry: Geometry) -> Array:
    """`(n, channels, *positions)` as `(n, groups, channels / groups, all positions)`."""
    return x.reshape(len(x), geometry.groups, x.shape[1] // geometry.groups, int(np.prod(x.shape[2:])))


def _pad(x: Array, geometry: Geometry) -> Array:
    return np.pad(x, ((0, 0), (0, 0), *geometry.padding))


def _padded_zeros(shape: Sequence[int], geometry: Geometry, dtype: np.dtype[np.generic]) -> Array:
    lengths = [length + sum(both) for length, both in zip(shape[2:], geometry.padding, strict=True)]
    return np.zeros((shape[0], shape[1], *lengths), dtype)


def _unpad(padded: Array, shape: Sequence[int], geometry: Geometry) -> Array:
    inner = tuple(
        slice(before, before + length) for length, (before, _) in zip(shape[2:], geometry.padding, strict=True)
    )
    return padded[(slice(None), slice(None), *inner)]
