"""Elementwise functions between two layers, by the names `LayerInfo.followed_by` uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
from scipy.special import erf, expit

from arachne.model.values import Array

Function = Callable[[Array], Array]


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def _sigmoid(x: Array) -> Array:
    return np.asarray(expit(x))


def _silu(x: Array) -> Array:
    return np.asarray(x * expit(x))


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + erf(x * np.float32(np.sqrt(0.5)))))


def _softplus(x: Array) -> Array:
    return np.logaddexp(x, np.zeros((), x.dtype))


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


IDENTITY = frozenset({"identity", "linear", "flatten", "dropout"})
"""Names of steps that do nothing to a vector when a model is used rather than trained."""

FUNCTIONS: dict[str, Function] = {
    "relu": _relu,
    "relu6": _relu6,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "swish": _silu,
    "gelu": _gelu,
    "softplus": _softplus,
    "elu": _elu,
}

_DENSITY = np.float32(1 / np.sqrt(2 * np.pi))
"""The normal density at 0."""

SLOPES: dict[Function, Function] = {
    _relu: lambda x: (x > 0).astype(x.dtype),
    _relu6: lambda x: ((x > 0) & (x < 6)).astype(x.dtype),
    np.tanh: lambda x: 1 - np.tanh(x) ** 2,
    _sigmoid: lambda x: _sigmoid(x) * (1 - _sigmoid(x)),
    _silu: lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x))),
    _gelu: lambda x: 0.5 * (1 + erf(x * np.float32(np.sqrt(0.5)))) + x * np.exp(-0.5 * x * x) * _DENSITY,
    _softplus: _sigmoid,
    _elu: lambda x: np.where(x > 0, 1, np.exp(np.minimum(x, 0))).astype(x.dtype),
}
"""The derivative of each function above."""

MONOTONE = frozenset(FUNCTIONS[name] for name in ("relu", "relu6", "tanh", "sigmoid", "softplus", "elu"))
"""Functions that never decrease."""

STEEPEST = 1.13
"""The largest slope of any function above is below this (GELU's is 1.129)."""


ROUNDED = {"rounded": "identity", "rounded relu": "relu"}
"""Names of steps that round to whole numbers, with the step without its rounding."""


def chain(names: Sequence[str] | None, *, rounded: bool = False) -> tuple[Function, ...] | None:
    """Return the functions with these names, without identities; None if a name is unknown.

    Where `rounded`, steps that round are taken for what they are without it.
    """
    if rounded and names is not None:
        names = [name for name, _ in groupby(ROUNDED.get(name, name) for name in names)]
    if names is None or any(name not in FUNCTIONS and name not in IDENTITY for name in names):
        return None
    return tuple(FUNCTIONS[name] for name in names if name in FUNCTIONS)


def apply(functions: Sequence[Function], x: Array) -> Array:
    """Apply one function after the other, all in the dtype of `x`."""
    for function in functions:
        x = function(x)
    return x


def slope(functions: Sequence[Function]) -> Function | None:
    """Return the derivative of at most one function; None for a chain of several."""
    if not functions:
        return np.ones_like
    return SLOPES[functions[0]] if len(functions) == 1 else None
