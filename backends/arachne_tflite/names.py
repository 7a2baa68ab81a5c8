"""Name layers as their authors called them: TFLite keeps names of tensors, made of those of the original graph."""

from __future__ import annotations

import re
from collections.abc import Sequence

_GENERATED = re.compile(r"^(arith\.constant|tfl\.pseudo_q?const|tensor_)\d*$|^\d+$")
"""Names that converters make up."""

_ROLES = re.compile(
    r"^(MatMul|Conv\d?D|BiasAdd|ReadVariableOp|Tensordot|depthwise|separable_conv2d|convolution|transpose|kernel|bias|weights?"
    r"|Relu6?|Softmax|Add|FusedBatchNormV3|Const|Reshape|ExpandDims)?(_\d+)?$"
)
"""The last part of a name, if it says what a tensor is in its layer."""


def layer_name(operator: str, names: Sequence[str]) -> str:
    """Name a layer after the first of some tensors whose name nobody made up, otherwise after its operator."""
    for name in names:
        first = name.split(";")[0].removesuffix(":0")
        if _GENERATED.match(first):
            continue
        parts = [part for part in first.split("/") if part]
        while len(parts) > 1 and _ROLES.match(parts[-1]):
            parts.pop()
        if parts:
            return ".".join(re.sub(r"[^\w\-]+", "_", part).strip("_") or "_" for part in parts)[:80]
    return operator.lower()
