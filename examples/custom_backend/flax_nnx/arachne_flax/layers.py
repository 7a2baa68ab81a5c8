"""The Flax layers that are repaired, and the conversion of their weights to the canonical layout.

Flax puts channels last: a kernel is `(in, out)` or `(*window, in / groups, out)`, an image `(*positions, channels)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from arachne.model.values import Geometry, LayerInfo, ParameterInfo

Layout = Callable[[Any], Any]


@dataclass(frozen=True)
class Kind:
    """A class of layers.

    Attributes:
        kind: Its kind in `LayerInfo`.
        attributes: The attribute of each canonical parameter.
        weight_to: Converts the stored weight to the canonical one.
        weight_from: Converts the canonical weight to the stored one.
        channels: Whether inputs and outputs have channels, which Arachne wants on axis 1.
    """

    kind: str
    attributes: Mapping[str, str]
    weight_to: Layout = lambda values: values
    weight_from: Layout = lambda values: values
    channels: bool = False


def _kernel_to(values: Any) -> Any:
    return jnp.moveaxis(values, (-1, -2), (0, 1))


def _kernel_from(values: Any) -> Any:
    return jnp.moveaxis(values, (0, 1), (-1, -2))


KERNEL = {"weight": "kernel", "bias": "bias"}
SCALE = {"scale": "scale", "bias": "bias"}
KINDS: Mapping[type[nnx.Module], Kind] = {
    nnx.Linear: Kind("dense", KERNEL, jnp.transpose, jnp.transpose),
    nnx.Conv: Kind("conv", KERNEL, _kernel_to, _kernel_from, channels=True),
    nnx.Embed: Kind("embedding", {"weight": "embedding"}),
    nnx.BatchNorm: Kind("norm", SCALE, channels=True),
    nnx.LayerNorm: Kind("norm", SCALE),
}


def kind_of(layer: nnx.Module) -> Kind | None:
    """Return the kind of a layer; None if it cannot be repaired."""
    for base, kind in KINDS.items():
        if isinstance(layer, base) and type(layer).__call__ is base.__call__:
            return None if "kernel" in kind.attributes.values() and problem_of(layer) else kind
    return None


def problem_of(layer: nnx.Module) -> str | None:
    """Say why a layer of a known class cannot be repaired; None if it can."""
    if isinstance(layer, nnx.Conv) and isinstance(layer.padding, str) and layer.padding not in ("SAME", "VALID"):
        return f"a convolution that pads with '{layer.padding}'"
    if isinstance(layer, nnx.Conv) and layer.mask is not None:
        return "a convolution with a mask"
    return None


def layers_of(model: nnx.Module) -> Iterator[tuple[str, nnx.Module, Kind]]:
    """Yield the layers that are repaired, by their paths: `blocks.0.linear`."""
    for path, layer in nnx.iter_modules(model):
        kind = kind_of(layer)
        if kind is not None and parameters_of(layer, kind):
            yield ".".join(map(str, path)), layer, kind


def parameters_of(layer: nnx.Module, kind: Kind) -> dict[str, Any]:
    """Flax' variables of a layer by canonical names, weights first."""
    found = {name: getattr(layer, attribute, None) for name, attribute in kind.attributes.items()}
    return {name: variable for name, variable in found.items() if variable is not None}


def to_canonical(kind: Kind, parameter: str, values: Any) -> Any:
    """Convert a parameter to the canonical layout, bfloat16 to float32."""
    values = kind.weight_to(values) if parameter == "weight" else values
    return values.astype(jnp.float32) if values.dtype == jnp.bfloat16 else values


def to_stored(kind: Kind, parameter: str, values: Any) -> Any:
    """Convert a parameter to Flax' layout."""
    return kind.weight_from(values) if parameter == "weight" else values


def channels_second(kind: Kind, values: Any) -> Any:
    """Move channels, if any, to axis 1: `(n, channels, *positions)`."""
    return jnp.moveaxis(values, -1, 1) if kind.channels else values


def channels_last(kind: Kind, values: Any) -> Any:
    """Move channels, if any, to the last axis: `(n, *positions, channels)`."""
    return jnp.moveaxis(values, 1, -1) if kind.channels else values


def info_of(name: str, layer: nnx.Module, kind: Kind, uses: int, entering: tuple[int, ...] | None) -> LayerInfo:
    """Describe a layer.

    Args:
        name: Its name.
        layer: The layer.
        kind: Its kind.
        uses: How often the model calls it.
        entering: The shape of its input; None before the model has run.
    """
    infos = {}
    for parameter, variable in parameters_of(layer, kind).items():
        shape = jax.eval_shape(lambda values, p=parameter: to_canonical(kind, p, values), variable[...]).shape
        infos[parameter] = ParameterInfo(shape, str(variable[...].dtype))
    geometry = _geometry(layer, entering and entering[1:-1]) if isinstance(layer, nnx.Conv) else None
    return LayerInfo(name, kind.kind, infos, geometry, uses)


def _geometry(layer: nnx.Conv, positions: tuple[int, ...] | None) -> Geometry | None:
    axes = len(layer.kernel_size)
    stride, dilation = _each(layer.strides, axes), _each(layer.kernel_dilation, axes)
    padding = layer.padding
    if isinstance(padding, str):
        if positions is None and padding == "SAME" and set(stride) != {1}:
            return None  # depends on the lengths
        window = [spread * (size - 1) + 1 for size, spread in zip(layer.kernel_size, dilation, strict=True)]
        padding = jax.lax.padtype_to_pads(positions or window, window, stride, padding)
    elif isinstance(padding, int):
        padding = [padding] * axes
    pairs = tuple((each, each) if isinstance(each, int) else (int(each[0]), int(each[1])) for each in padding)
    return Geometry(stride, pairs, dilation, layer.feature_group_count)


def _each(number: Any, axes: int) -> tuple[int, ...]:
    return tuple(number) if isinstance(number, (tuple, list)) else (number or 1,) * axes
