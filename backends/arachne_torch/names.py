"""From the names of stored tensors to addresses: which layer and parameter a tensor is, or which parts of it are.

torch stores a recurrent layer's matrices as `lstm.weight_ih_l0_reverse` and packs the three projections of attention
into `attention.in_proj_weight`. One canonical layer stands for each recurrent layer and direction (`lstm.l0_reverse`),
one for each projection (`attention.q`, `attention.k`, `attention.v`), and one for the map behind an LSTM with
projections (`lstm.l0.projection`), which multiplies the new state and is therefore a dense layer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from arachne_torch.parameter_slice import ParameterSlice

ROOT = "model"
"""The name of a layer that is the whole model, which has no name in torch."""

MEMBERS = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
"""Tensors that belong to the module before their last dot; any other name is a layer by itself."""

PACKED = {"in_proj_weight": "weight", "in_proj_bias": "bias"}
"""Tensors that hold the projections q, k and v one after the other."""

SEPARATE = {"q_proj_weight": "q", "k_proj_weight": "k", "v_proj_weight": "v"}

_RECURRENT = re.compile(r"(weight|bias)_(ih|hh|hr)_(l\d+(?:_reverse)?)")


def layer_name(tensor: str, part: int = 0) -> str:
    """The layer a tensor of the state dict belongs to: `fc1` for `fc1.weight`; of a packed one, its part's."""
    module, _, member = tensor.rpartition(".")
    module = module or ROOT
    recurrent = _RECURRENT.fullmatch(member)
    if recurrent:
        return f"{module}.{recurrent[3]}" + (".projection" if recurrent[2] == "hr" else "")
    if member in PACKED:
        return f"{module}.{'qkv'[part]}"
    if member in SEPARATE:
        return f"{module}.{SEPARATE[member]}"
    return module if member in MEMBERS or member.startswith(("weight_", "bias_")) else tensor


def packed_parts(tensor: str, rows: int) -> list[tuple[int, int]]:
    """The row ranges of q, k and v in a tensor that holds all three; none for any other."""
    if tensor.rpartition(".")[2] not in PACKED or rows % 3:
        return []
    third = rows // 3
    return [(start, start + third) for start in range(0, rows, third)]


def addresses(
    tensor: str, shape: Sequence[int], bias_shape: Sequence[int] | None
) -> list[tuple[tuple[str, str], ParameterSlice]]:
    """The `(layer, parameter)` pairs a tensor of a bare state dict holds, and where each lies in it.

    Args:
        tensor: Its name.
        shape: Its shape.
        bias_shape: The shape of the bias beside it, if there is one; a norm's is that of its scale.
    """
    member = tensor.rpartition(".")[2]
    parts = packed_parts(tensor, shape[0]) if shape else []
    if parts:
        return [
            ((layer_name(tensor, part), PACKED[member]), ParameterSlice(tensor, rows=rows))
            for part, rows in enumerate(parts)
        ]
    return [((layer_name(tensor), _parameter(tensor, member, shape, bias_shape)), ParameterSlice(tensor))]


def _parameter(tensor: str, member: str, shape: Sequence[int], bias_shape: Sequence[int] | None) -> str:
    recurrent = _RECURRENT.fullmatch(member)
    if recurrent:
        return "weight" if recurrent[2] == "hr" else f"{recurrent[1]}_{recurrent[2]}"
    if member == "weight" and (len(shape) == 1 or (bias_shape is not None and tuple(shape) == tuple(bias_shape))):
        return "scale"
    return "weight" if member in SEPARATE or layer_name(tensor) == tensor else member
