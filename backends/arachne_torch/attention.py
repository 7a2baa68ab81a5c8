"""Attention written out: the call behind `nn.MultiheadAttention` in terms of calls that show its four dense maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute torch's function of this name in evaluation mode; q, k and v are three calls of `linear`."""
    batched = query.dim() == 3
    if not batched:
        query, key, value = (tensor.unsqueeze(1) for tensor in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    steps, n, width = query.shape
    weights: Sequence[Tensor | None] = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight and in_proj_weight is not None:
        weights = in_proj_weight.chunk(3)
    biases: Sequence[Tensor | None] = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (
        functional.linear(tensor, weight, bias)  # type: ignore[arg-type]  # torch has them all or none
        for tensor, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    if bias_k is not None and bias_v is not None:
        k, v = (torch.cat([tensor, bias.repeat(1, n, 1)]) for tensor, bias in ((k, bias_k), (v, bias_v)))
    heads = [tensor.reshape(len(tensor), n, num_heads, -1).permute(1, 2, 0, 3) for tensor in (q, k, v)]
    for at, static in ((1, static_k), (2, static_v)):
        if static is not None:
            heads[at] = static.reshape(n, num_heads, *static.shape[1:])
    if add_zero_attn:
        heads[1:] = [torch.cat([tensor, torch.zeros_like(tensor[:, :, :1])], 2) for tensor in heads[1:]]
    mask = _mask(attn_mask, key_padding_mask, heads[0], heads[1])
    if need_weights:
        attention = heads[0] @ heads[1].transpose(-2, -1) / math.sqrt(heads[0].shape[-1])
        attention = (attention if mask is None else attention + mask).softmax(-1)
        mixed = attention @ heads[2]
    else:
        causal = bool(is_causal and mask is None)
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], attn_mask=mask, is_causal=causal)
    joined = mixed.permute(2, 0, 1, 3).reshape(steps, n, width)
    output = functional.linear(joined, out_proj_weight, out_proj_bias)
    if not batched:
        output = output.squeeze(1)
    if not need_weights:
        return output, None
    shown = attention.mean(1) if average_attn_weights else attention
    return output, shown if batched else shown.squeeze(0)


def _mask(attn_mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Add both masks up to one for scores `(n, heads, steps, keys)`, and widen it for appended keys."""
    n, heads, steps, _ = q.shape
    total: Any = None
    for mask, shape in ((attn_mask, None), (padding, (n, 1, 1, -1))):
        if mask is None:
            continue
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask, float("-inf"))
        if shape is None:
            shape = (
                (n, heads, steps, -1) if mask.dim() == 3 and len(mask) == n * heads else (-1, 1, steps, mask.shape[-1])
            )
        mask = mask.reshape(shape)
        mask = functional.pad(mask, (0, k.shape[2] - mask.shape[-1]))
        total = mask if total is None else total + mask
    return total  # type: ignore[no-any-return]  # a tensor, or None where there is no mask
