"""From torch calls to layers: which calls are layers, what they are called, and how their weights lie.

A layer is recognised by the *call* that uses its weight (`linear(x, weight, bias)`), not by the class of a module: so
modules, functional code, shared weights and exported programs are one case. `KINDS` tells for each call which kind of
layer it is; a new kind of layer is a new entry there and, if it stores or multiplies in a way of its own, a new
subclass of `Kind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, fx, nn

from arachne.values import Geometry, LayerInfo, ParameterInfo

ROOT = "model"
"""What a layer is called that is itself the whole model, and therefore has no name in torch."""

MEMBERS = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
"""Tensors that belong to the module before their last dot; any other name is a layer by itself."""


@dataclass(frozen=True)
class Stored:
    """Where a parameter is stored: a tensor of the model, and how the canonical layout is seen in it.

    Attributes:
        name: The tensor's name in the state dict.
        transposed: Whether the canonical layout is the transpose of what is stored (`x @ weight`).
    """

    name: str
    transposed: bool = False

    def view(self, tensor: Tensor) -> Tensor:
        """The canonical layout as a view: writing to it writes to the tensor."""
        return tensor.t() if self.transposed else tensor


@dataclass(frozen=True)
class Layer:
    """A repairable layer: what the engine is told, and where its parameters are stored."""

    info: LayerInfo
    stored: Mapping[str, Stored]


@dataclass(frozen=True, eq=False)
class Use:
    """One call that uses a layer.

    Attributes:
        kind: What kind of layer it is.
        owned: The tensors of the model it is given, by canonical parameter name.
        call: The torch function.
        bound: Its arguments by name.
    """

    kind: Kind
    call: Callable[..., Any]
    owned: Mapping[str, Stored]
    bound: Mapping[str, Any]

    @property
    def layer(self) -> str:
        """The name of the layer: that of its first parameter's module."""
        return layer_name(next(iter(self.owned.values())).name)


class Kind:
    """A kind of layer: what its calls are given, what enters its weights, how it walks.

    Args:
        name: The kind's name in `LayerInfo`.
        arguments: The names of a call's positional arguments, where torch does not tell them.
        weight: The canonical name of the tensor torch calls `weight`.
        transposed: Whether the call takes its weight as `(in, out)`.
    """

    def __init__(self, name: str, arguments: str, *, weight: str = "weight", transposed: bool = False) -> None:
        self.name = name
        self.arguments = tuple(arguments.split())
        self.parameters = {weight: "weight", "bias": "bias"}
        self.transposed = transposed

    def accepts(self, bound: Mapping[str, Any]) -> bool:
        """Whether this call is a layer of the kind at all."""
        return True

    def geometry(self, bound: Mapping[str, Any]) -> Geometry | None:
        """How it walks over its input."""
        return None

    def entering(self, use: Use) -> Mapping[str, Tensor]:
        """What each weight parameter is multiplied with."""
        return {"weight": use.bound["input"]}


class Dense(Kind):
    """`linear`, or a product with a matrix of the model."""

    def accepts(self, bound: Mapping[str, Any]) -> bool:
        """Products of two activations, or with a batch of matrices, are no layers."""
        return bool(bound["weight"].ndim == 2)


class Convolution(Kind):
    """`conv1d`, `conv2d`, `conv3d`, also grouped and depthwise; what enters is what the kernel walks over.

    A padding mode other than zeros is a call of its own before the convolution, so its padding is part of what enters.
    """

    def accepts(self, bound: Mapping[str, Any]) -> bool:
        """Transposed convolutions share a call with the plain ones in decomposed programs."""
        return not bound.get("transposed", False)

    def geometry(self, bound: Mapping[str, Any]) -> Geometry:
        """Stride, padding, dilation and groups as the call has them."""
        kernel = tuple(bound["weight"].shape[2:])
        return walk(kernel, *(bound.get(name) for name in ("stride", "padding", "dilation", "groups")))


class Norm(Kind):
    """Batch, layer, group and instance norm: a scale and a bias for each channel."""

    def entering(self, use: Use) -> Mapping[str, Tensor]:
        """The normalised input, which is what the scale is multiplied with."""
        plain = {name: None if name in ("weight", "bias") else value for name, value in use.bound.items()}
        if isinstance(use.call, FunctionType):
            result = use.call(**plain)
        else:  # torch's own calls know no names
            result = use.call(*(plain[name] for name in self.arguments if name in plain))
        return {"scale": result[0] if isinstance(result, tuple) else result}


_CONV = "input weight bias stride padding dilation groups"
_BATCH_NORM = "input weight bias running_mean running_var training momentum eps cudnn_enabled"
_INSTANCE_NORM = "input weight bias running_mean running_var use_input_stats momentum eps cudnn_enabled"
_LAYER_NORM = "input normalized_shape weight bias eps cudnn_enable"
_GROUP_NORM = "input num_groups weight bias eps cudnn_enabled"

KINDS: Mapping[str, Kind] = {
    "linear": Dense("dense", "input weight bias"),
    "addmm": Dense("dense", "bias input weight", transposed=True),
    "mm": Dense("dense", "input weight", transposed=True),
    "matmul": Dense("dense", "input weight", transposed=True),
    "__matmul__": Dense("dense", "input weight", transposed=True),
    "conv1d": Convolution("conv", _CONV),
    "conv2d": Convolution("conv", _CONV),
    "conv3d": Convolution("conv", _CONV),
    "convolution": Convolution("conv", "input weight bias stride padding dilation transposed output_padding groups"),
    "batch_norm": Norm("norm", _BATCH_NORM, weight="scale"),
    "instance_norm": Norm("norm", _INSTANCE_NORM, weight="scale"),
    "layer_norm": Norm("norm", _LAYER_NORM, weight="scale"),
    "group_norm": Norm("norm", _GROUP_NORM, weight="scale"),
    "rms_norm": Norm("norm", "input normalized_shape weight eps", weight="scale"),
    "native_layer_norm": Norm("norm", "input normalized_shape weight bias eps", weight="scale"),
    "_native_batch_norm_legit_no_training": Norm(
        "norm", "input weight bias running_mean running_var momentum eps", weight="scale"
    ),
}
"""The calls that are layers. A call not listed here passes through unseen."""

TRANSPOSES = ("t", "transpose", "permute", "T", "mT", "numpy_T", "matrix_H")
"""Calls that hand on a matrix of the model the other way round."""

Owners = dict[int, Stored]
"""Which tensor of the model an object is, by its identity."""


def operation(call: Callable[..., Any]) -> str:
    """The name of a torch call without its overload: `conv2d` for both `torch.conv2d` and `aten.conv2d.default`."""
    name = str(getattr(call, "__name__", ""))
    if name == "__get__":  # an attribute such as `weight.T`
        return str(getattr(getattr(call, "__self__", None), "__name__", ""))
    return name.partition(".")[0]


def recognise(call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], owners: Owners) -> Use | None:
    """The use of a layer that a call is, or None."""
    kind = KINDS.get(operation(call))
    if kind is None:
        return None
    names = call.__code__.co_varnames if isinstance(call, FunctionType) else kind.arguments
    bound = {**dict(zip(names, args, strict=False)), **kwargs}
    owned = {}
    for canonical, argument in kind.parameters.items():
        stored = owners.get(id(bound.get(argument)))
        if stored is not None:
            flip = kind.transposed and argument == "weight"
            owned[canonical] = Stored(stored.name, stored.transposed != flip)
    if not owned or next(iter(kind.parameters)) not in owned or not kind.accepts(bound):
        return None
    return Use(kind, call, owned, bound)


def note_transpose(call: Callable[..., Any], args: Sequence[Any], result: Any, owners: Owners) -> None:
    """Remember that a result is a matrix of the model the other way round."""
    if args and operation(call) in TRANSPOSES:
        stored = owners.get(id(args[0]))
        if stored is not None and isinstance(result, Tensor) and result.shape == args[0].shape[::-1]:
            owners[id(result)] = Stored(stored.name, not stored.transposed)


def walk(
    kernel: tuple[int, ...], stride: Any = None, padding: Any = None, dilation: Any = None, groups: Any = None
) -> Geometry:
    """A convolution's geometry from torch's arguments: one number for all axes, one for each, or a word."""
    steps = _each(stride, 1, kernel)
    dilations = _each(dilation, 1, kernel)
    if padding == "same":
        totals = [step * (size - 1) for step, size in zip(dilations, kernel, strict=True)]
        pads = tuple((total // 2, total - total // 2) for total in totals)
    else:
        pads = tuple((pad, pad) for pad in _each(0 if padding == "valid" else padding, 0, kernel))
    return Geometry(steps, pads, dilations, 1 if groups is None else int(groups))


def _each(value: Any, default: int, kernel: tuple[int, ...]) -> tuple[int, ...]:
    if value is None:
        value = default
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(int(v) for v in values) * (len(kernel) if len(values) == 1 and len(kernel) > 1 else 1)


def layer_name(tensor: str) -> str:
    """The layer a tensor of the state dict belongs to: `fc1` for `fc1.weight`."""
    module, _, member = tensor.rpartition(".")
    if member not in MEMBERS and not member.startswith(("weight_", "bias_")):
        return tensor
    return module or ROOT


def parameter_name(tensor: str, shape: Sequence[int], bias_shape: Sequence[int] | None) -> str:
    """The canonical parameter a tensor of a bare state dict is.

    Args:
        tensor: Its name.
        shape: Its shape.
        bias_shape: The shape of the bias beside it, if there is one; a norm's is that of its scale.
    """
    member = tensor.rpartition(".")[2]
    if member == "weight" and (len(shape) == 1 or (bias_shape is not None and tuple(shape) == tuple(bias_shape))):
        return "scale"
    return "weight" if layer_name(tensor) == tensor else member


def parameter_info(stored: Stored, tensor: Tensor) -> ParameterInfo:
    """Shape in the canonical layout, and the dtype as NumPy calls it."""
    return ParameterInfo(tuple(stored.view(tensor).shape), str(tensor.dtype).removeprefix("torch."))


def gather(uses: Iterable[Use], tensors: Mapping[str, Tensor]) -> dict[str, Layer]:
    """The layers behind some uses, each listed once at its first use; a tensor belongs to the first layer using it."""
    layers: dict[str, Layer] = {}
    taken: set[str] = set()
    for use in uses:
        known = layers.get(use.layer)
        if known is not None:
            layers[use.layer] = replace(known, info=replace(known.info, uses=known.info.uses + 1))
            continue
        stored = {name: place for name, place in use.owned.items() if place.name not in taken}
        taken.update(place.name for place in stored.values())
        parameters = {name: parameter_info(place, tensors[place.name]) for name, place in stored.items()}
        info = LayerInfo(use.layer, use.kind.name, parameters, use.kind.geometry(use.bound))
        layers[use.layer] = Layer(info, stored)
    return layers


def declared(module: nn.Module) -> Iterator[Use]:
    """The uses one can tell without running the model: an exported program's all, else one per module, in its order."""
    owners = {id(tensor): Stored(name) for name, tensor in module.named_parameters()}
    if isinstance(module, fx.GraphModule):
        yield from _in_graph(module, owners)
        return
    for part in module.modules():
        call = next((call for kinds, call in _MODULES if isinstance(part, kinds)), None)
        if call is not None:
            extra = {}
            if isinstance(part, nn.modules.conv._ConvNd):
                padding = part.padding if part.padding_mode == "zeros" else 0
                extra = {"stride": part.stride, "padding": padding, "dilation": part.dilation, "groups": part.groups}
            use = recognise(call, (), {"weight": part.weight, "bias": getattr(part, "bias", None), **extra}, owners)
            if use is not None:
                yield use


_MODULES: Sequence[tuple[tuple[type[nn.Module], ...], Callable[..., Any]]] = (
    ((nn.Linear,), torch.nn.functional.linear),
    ((nn.Conv1d, nn.Conv2d, nn.Conv3d), torch.conv2d),
    ((nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm), torch.batch_norm),
)


def _in_graph(module: fx.GraphModule, owners: Owners) -> Iterator[Use]:
    parameters = dict(module.named_parameters())
    values: dict[fx.Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.target in parameters:
            values[node] = parameters[node.target]
        elif node.op == "call_function":
            args = [values.get(arg, arg) if isinstance(arg, fx.Node) else arg for arg in node.args]
            if args and isinstance(args[0], Tensor) and operation(node.target) in TRANSPOSES:
                values[node] = args[0].t()
                note_transpose(node.target, args, values[node], owners)
            use = recognise(node.target, args, node.kwargs, owners)
            if use is not None:
                yield use
