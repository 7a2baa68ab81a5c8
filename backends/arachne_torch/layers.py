"""From torch calls to layers: which calls are layers, their names, and where their weights are stored.

A layer is recognised by the *call* that uses its weight (`linear(x, weight, bias)`), not by the class of a module: so
modules, functional code, shared weights and exported programs are one case. `KINDS` tells for each call which kind of
layer it is; a new kind of layer is a new entry there and, if it stores or multiplies differently, a new
subclass of `Kind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from arachne.model.values import LayerInfo, ParameterInfo
from arachne_torch.attention import multi_head_attention_forward
from arachne_torch.kinds import Convolution, Dense, Embedding, Kind, LayerUse, Norm
from arachne_torch.parameter_slice import ParameterSlice
from arachne_torch.recurrent import Cell, Recurrent, one_by_one
from arachne_torch.tensor_ids import SLICES, TRANSPOSES, TensorIds, operation


@dataclass(frozen=True)
class Layer:
    """A repairable layer: its `LayerInfo`, and where its parameters are stored."""

    info: LayerInfo
    stored: Mapping[str, ParameterSlice]


_CONV = "input weight bias stride padding dilation groups"
_TRANSPOSED = "input weight bias stride padding output_padding groups dilation"
_ANY_CONV = "input weight bias stride padding dilation transposed output_padding groups"
_BATCH_NORM = "input weight bias running_mean running_var training momentum eps cudnn_enabled"
_INSTANCE_NORM = "input weight bias running_mean running_var use_input_stats momentum eps cudnn_enabled"
_LAYER_NORM = "input normalized_shape weight bias eps cudnn_enable"
_GROUP_NORM = "input num_groups weight bias eps cudnn_enabled"
_CELL = "input hx weight_ih weight_hh bias_ih bias_hh"

KINDS: Mapping[str, tuple[Kind, ...]] = {
    "linear": (Dense("dense", "input weight bias"),),
    "addmm": (Dense("dense", "bias input weight", transposed=True),),
    "mm": (Dense("dense", "input weight", transposed=True),),
    "matmul": (Dense("dense", "input weight", transposed=True),),
    "__matmul__": (Dense("dense", "input weight", transposed=True),),
    "conv1d": (Convolution("conv", _CONV),),
    "conv2d": (Convolution("conv", _CONV),),
    "conv3d": (Convolution("conv", _CONV),),
    "conv_transpose1d": (Convolution("conv_transpose", _TRANSPOSED),),
    "conv_transpose2d": (Convolution("conv_transpose", _TRANSPOSED),),
    "conv_transpose3d": (Convolution("conv_transpose", _TRANSPOSED),),
    **dict.fromkeys(
        ("convolution", "_convolution"), (Convolution("conv", _ANY_CONV), Convolution("conv_transpose", _ANY_CONV))
    ),
    "lstm": (Recurrent("recurrent", ""),),
    "gru": (Recurrent("recurrent", ""),),
    "rnn_tanh": (Recurrent("recurrent", ""),),
    "rnn_relu": (Recurrent("recurrent", ""),),
    "lstm_cell": (Cell("recurrent", _CELL),),
    "gru_cell": (Cell("recurrent", _CELL),),
    "rnn_tanh_cell": (Cell("recurrent", _CELL),),
    "rnn_relu_cell": (Cell("recurrent", _CELL),),
    "embedding": (Embedding("embedding", "weight input padding_idx scale_grad_by_freq sparse"),),
    "batch_norm": (Norm("norm", _BATCH_NORM, weight="scale"),),
    "instance_norm": (Norm("norm", _INSTANCE_NORM, weight="scale"),),
    "layer_norm": (Norm("norm", _LAYER_NORM, weight="scale"),),
    "group_norm": (Norm("norm", _GROUP_NORM, weight="scale"),),
    "rms_norm": (Norm("norm", "input normalized_shape weight eps", weight="scale"),),
    "native_layer_norm": (Norm("norm", "input normalized_shape weight bias eps", weight="scale"),),
    "_native_batch_norm_legit_no_training": (
        Norm("norm", "input weight bias running_mean running_var momentum eps", weight="scale"),
    ),
}
"""The calls that are layers. A call not listed here passes through unseen."""


def written_out(call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], Any] | None:
    """Rewrite a call that hides several layers as calls that show them; None for any other call."""
    if call is functional.multi_head_attention_forward and not kwargs.get("training", len(args) > 13 and args[13]):
        return lambda: multi_head_attention_forward(*args, **kwargs)
    kind = KINDS.get(operation(call), (None,))[0]
    if isinstance(kind, Recurrent):
        bound = kind.bind(call, args, kwargs)
        if int(bound["num_layers"]) > 1 and not (bound["train"] and bound["dropout"]):
            return lambda: one_by_one(call, args, kwargs)
    return None


def recognise(
    call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], tensor_ids: TensorIds
) -> tuple[LayerUse, ...]:
    """The uses of layers that a call is, if any."""
    for kind in KINDS.get(operation(call), ()):
        found = kind.find(call, kind.bind(call, args, kwargs), tensor_ids)
        if found:
            return found
    return ()


def parameter_info(stored: ParameterSlice, tensor: Tensor) -> ParameterInfo:
    """Shape in the canonical layout, and the dtype as NumPy calls it."""
    return ParameterInfo(tuple(stored.view(tensor).shape), str(tensor.dtype).removeprefix("torch."))


def gather(uses: Iterable[LayerUse], tensors: Mapping[str, Tensor]) -> dict[str, Layer]:
    """The layers behind some uses, each listed once at its first use; a tensor belongs to the first layer using it."""
    layers: dict[str, Layer] = {}
    taken: set[tuple[str, tuple[int, int] | None]] = set()
    for use in uses:
        seen = layers.get(use.layer)
        if seen is not None:
            layers[use.layer] = replace(seen, info=replace(seen.info, uses=seen.info.uses + 1))
            continue
        stored = {name: slice_ for name, slice_ in use.owned.items() if (slice_.name, slice_.rows) not in taken}
        taken.update((slice_.name, slice_.rows) for slice_ in stored.values())
        parameters = {name: parameter_info(slice_, tensors[slice_.name]) for name, slice_ in stored.items()}
        info = LayerInfo(use.layer, use.kind.name, parameters, use.kind.geometry(use.bound))
        layers[use.layer] = Layer(info, stored)
    return layers


def declared_uses(module: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[LayerUse]:
    """Yield the uses known without running the model: all of an exported program, else one per module.

    Args:
        module: The model.
        tensors: Its tensors by name.
    """
    tensor_ids = TensorIds(tensors)
    if isinstance(module, fx.GraphModule):
        yield from _in_graph(module, tensor_ids)
        return
    for part in module.modules():
        if isinstance(part, nn.RNNBase):
            kind = KINDS["lstm"][0]
            settings = (part.bias, part.num_layers, 0.0, False, part.bidirectional, part.batch_first)
            bound = kind.bind(torch.lstm, (None, None, part._flat_weights, *settings), {})
            yield from kind.find(torch.lstm, bound, tensor_ids)
        elif isinstance(part, nn.MultiheadAttention):
            yield from _projections(part, tensor_ids)
        else:
            call = next((call for kinds, call in _MODULES if isinstance(part, kinds)), None)
            if call is not None:
                yield from recognise(call, (), _arguments(part), tensor_ids)


_MODULES: Sequence[tuple[tuple[type[nn.Module], ...], Callable[..., Any]]] = (
    ((nn.Linear,), functional.linear),
    ((nn.Conv1d, nn.Conv2d, nn.Conv3d), torch.conv2d),
    ((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), torch.conv_transpose2d),
    ((nn.Embedding,), functional.embedding),
    ((nn.RNNCellBase,), torch.lstm_cell),
    ((nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm), torch.batch_norm),
)


def _arguments(part: nn.Module) -> dict[str, Any]:
    """The arguments a module will give its call that a layer's description needs."""
    if isinstance(part, nn.RNNCellBase):
        return {name: getattr(part, name, None) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    given: dict[str, Any] = {"weight": part.weight, "bias": getattr(part, "bias", None)}
    if isinstance(part, nn.modules.conv._ConvNd):
        padding = part.padding if part.padding_mode == "zeros" else 0
        given |= {"stride": part.stride, "padding": padding, "dilation": part.dilation, "groups": part.groups}
    if isinstance(part, nn.Embedding):
        given["max_norm"] = part.max_norm
    return given


def _projections(part: nn.MultiheadAttention, tensor_ids: TensorIds) -> Iterator[LayerUse]:
    weights: Sequence[Tensor] = [part.q_proj_weight, part.k_proj_weight, part.v_proj_weight]
    biases: Sequence[Tensor | None] = [None] * 3
    with torch.no_grad():
        if part.in_proj_weight is not None:
            weights = part.in_proj_weight.chunk(3)
            tensor_ids.note(Tensor.chunk, [part.in_proj_weight], weights)
        if part.in_proj_bias is not None:
            biases = part.in_proj_bias.chunk(3)
            tensor_ids.note(Tensor.chunk, [part.in_proj_bias], biases)
    for weight, bias in zip(weights, biases, strict=True):
        yield from recognise(functional.linear, (), {"weight": weight, "bias": bias}, tensor_ids)


def _in_graph(module: fx.GraphModule, tensor_ids: TensorIds) -> Iterator[LayerUse]:
    parameters = dict(module.named_parameters())
    values: dict[fx.Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.target in parameters:
            values[node] = parameters[node.target]
        elif node.op == "call_function":
            args = fx.map_arg(node.args, lambda arg: values.get(arg, arg))
            name = operation(node.target)
            if args and isinstance(args[0], (Tensor, tuple, list)) and name in (*TRANSPOSES, *SLICES):
                if not any(isinstance(arg, fx.Node) for arg in args):
                    with torch.no_grad():
                        values[node] = node.target(*args)
                    tensor_ids.note(node.target, args, values[node])
            else:
                yield from recognise(node.target, args, node.kwargs, tensor_ids)
