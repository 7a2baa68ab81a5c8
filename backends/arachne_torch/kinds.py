"""The kinds of layers: the parameters, inputs and geometry of a call.

`Kind` describes a layer whose outputs are the results of one torch call. Recurrent layers, whose calls compute many
steps and show none of them, are in `recurrent.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, ClassVar

import torch
from torch import Tensor

from arachne.model.values import Geometry
from arachne_torch.names import PACKED, layer_name, packed_parts
from arachne_torch.parameter_slice import ParameterSlice
from arachne_torch.tensor_ids import TensorIds

Bound = Mapping[str, Any]
"""A call's arguments by name."""


@dataclass(frozen=True, eq=False)
class LayerUse:
    """One use of a layer by a call; a call can be several.

    Attributes:
        kind: What kind of layer it is.
        layer: The layer's name: that of its first parameter.
        owned: The tensors of the model it is given, by canonical parameter name.
        call: The torch function.
        bound: Its arguments by name.
        columns: The part of the result's last axis that is this layer's, where the call computes several layers.
        way: Which of the layers and directions of a recurrent call it is.
    """

    kind: Kind
    layer: str
    owned: Mapping[str, ParameterSlice]
    call: Callable[..., Any]
    bound: Bound
    columns: tuple[int, int] | None = None
    way: int = 0

    def part(self, result: Any) -> Tensor:
        """Select this layer's output from the call's result."""
        whole: Tensor = result[0] if isinstance(result, tuple) else result
        return whole if self.columns is None else whole[..., self.columns[0] : self.columns[1]]


@dataclass(frozen=True, eq=False)
class ObservedUse:
    """The tensors of one use of a layer.

    Attributes:
        use: The use.
        entering: The tensor that each weight parameter is multiplied with.
        leaving: The layer's output before the non-linearity.
        handle: The tensor of the graph whose gradient is that of `leaving`, `columns` of it.
        by_input: Whether all of these are `(n, ...)` already, wherever the model has its batch axis.
    """

    use: LayerUse
    entering: Mapping[str, Tensor]
    leaving: Tensor
    handle: Tensor
    by_input: bool = False


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of layer.

    Attributes:
        name: The kind's name in `LayerInfo`.
        arguments: The names of a call's positional arguments, for calls without a signature.
        weight: The canonical name of the tensor torch calls `weight`.
        transposed: Whether the call takes its weight as `(in, out)`.
    """

    name: str
    arguments: str
    weight: str = "weight"
    transposed: bool = False

    continues: ClassVar[bool] = True
    """Whether the call's result is the layer's output, so that a pass can continue from it."""

    def bind(self, call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
        """The arguments by name."""
        names = call.__code__.co_varnames if isinstance(call, FunctionType) else self.arguments.split()
        return {**dict(zip(names, args, strict=False)), **kwargs}

    def find(self, call: Callable[..., Any], bound: Bound, tensor_ids: TensorIds) -> tuple[LayerUse, ...]:
        """The uses of layers that a call is."""
        weight = tensor_ids.slice_of(bound.get("weight"))
        if weight is None or not self.accepts(bound):
            return ()
        if self.transposed:
            weight = ParameterSlice(weight.name, not weight.transposed, weight.rows)
        return self.uses(call, bound, weight, tensor_ids)

    def uses(
        self, call: Callable[..., Any], bound: Bound, weight: ParameterSlice, tensor_ids: TensorIds
    ) -> tuple[LayerUse, ...]:
        """One use, unless the weight is a part of a tensor."""
        bias = tensor_ids.slice_of(bound.get("bias"))
        if weight.rows is not None:
            return ()
        owned = {self.weight: weight} | ({} if bias is None else {"bias": bias})
        return (LayerUse(self, layer_name(weight.name), owned, call, bound),)

    def accepts(self, bound: Bound) -> bool:
        """Whether this call is a layer of the kind at all."""
        return True

    def geometry(self, bound: Bound) -> Geometry | None:
        """Return stride, padding, dilation and groups, if the layer has them."""
        return None

    def entering(self, use: LayerUse) -> Mapping[str, Tensor]:
        """Return the tensor that each weight parameter is multiplied with."""
        return {"weight": use.bound["input"]}

    def watch(
        self, uses: Sequence[LayerUse], compute: Callable[[], Any], tensor_ids: TensorIds, *, probed: bool
    ) -> tuple[Any, list[ObservedUse]]:
        """Run the call and return its result and the tensors of its uses.

        Args:
            uses: Those uses of the call that are asked for.
            compute: Runs the call.
            tensor_ids: The model's tensors by identity.
            probed: Whether gradients will be asked for, so that handles have to be part of the graph.
        """
        result = compute()
        with torch.no_grad():
            entering = [self.entering(use) for use in uses]
        whole = result[0] if isinstance(result, tuple) else result
        return result, [ObservedUse(use, e, use.part(result), whole) for use, e in zip(uses, entering, strict=True)]


class Dense(Kind):
    """`linear`, or a product with a matrix of the model. One with packed projections is as many uses as it computes."""

    def accepts(self, bound: Bound) -> bool:
        """Products of two activations, or with a batch of matrices, are no layers."""
        return bool(bound["weight"].ndim == 2)

    def uses(
        self, call: Callable[..., Any], bound: Bound, weight: ParameterSlice, tensor_ids: TensorIds
    ) -> tuple[LayerUse, ...]:
        """One use, or one for each of q, k and v that the matrix covers."""
        if weight.name.rpartition(".")[2] not in PACKED:
            return super().uses(call, bound, weight, tensor_ids)
        bias = tensor_ids.slice_of(bound.get("bias"))
        if weight.transposed:
            return ()
        rows = tensor_ids.rows(weight.name)
        first, last = weight.rows or (0, rows)
        found = []
        for part, (start, stop) in enumerate(packed_parts(weight.name, rows)):
            if first <= start and stop <= last:
                owned = {"weight": ParameterSlice(weight.name, rows=(start, stop))}
                if bias is not None and bias.name.rpartition(".")[2] in PACKED:
                    owned["bias"] = ParameterSlice(bias.name, rows=(start, stop))
                columns = None if (first, last) == (start, stop) else (start - first, stop - first)
                found.append(LayerUse(self, layer_name(weight.name, part), owned, call, bound, columns))
        return tuple(found)


class Convolution(Kind):
    """`conv1d`, `conv2d`, `conv3d`, also grouped and depthwise.

    A padding mode other than zeros is a separate call before the convolution, so the padding is part of its input.
    Transposed convolutions are stored as the convolution they are the gradient of, and walk as that one does.
    """

    def accepts(self, bound: Bound) -> bool:
        """In decomposed programs both kinds share a call."""
        return bool(bound.get("transposed", self.name == "conv_transpose")) == (self.name == "conv_transpose")

    def geometry(self, bound: Bound) -> Geometry:
        """Stride, padding, dilation and groups as the call has them."""
        kernel = tuple(bound["weight"].shape[2:])
        return walk(kernel, *(bound.get(name) for name in ("stride", "padding", "dilation", "groups")))


class Embedding(Kind):
    """Rows of a table; the inputs are row numbers."""

    def accepts(self, bound: Bound) -> bool:
        """A table with `max_norm` is changed by torch whenever it is read."""
        return bound.get("max_norm") is None


class Norm(Kind):
    """Batch, layer, group and instance norm: a scale and a bias for each channel."""

    def entering(self, use: LayerUse) -> Mapping[str, Tensor]:
        """Return the normalised input, which the scale is multiplied with."""
        plain = {name: None if name in ("weight", "bias") else value for name, value in use.bound.items()}
        if isinstance(use.call, FunctionType):
            result = use.call(**plain)
        else:  # torch's own calls know no names
            result = use.call(*(plain[name] for name in self.arguments.split() if name in plain))
        return {"scale": result[0] if isinstance(result, tuple) else result}


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
