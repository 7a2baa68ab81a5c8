"""The output head: find the input of a final softmax or sigmoid, and turn it into class scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arachne.adapting.outputs import SMALLEST_PROBABILITY
from arachne.errors import ModelError

if TYPE_CHECKING:
    from arachne_torch.watch import Call

OUTPUT_HEADS = {
    "softmax": "softmax",
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "log_softmax": "softmax",
    "_log_softmax": "softmax",
    "sigmoid": "sigmoid",
}
"""Last calls of a model that take the logits."""

RESHAPES = ("squeeze", "flatten", "view", "reshape", "squeeze_")
"""Calls that may follow such a head before the output."""


MAX_SOFTMAX_AXES = 4
"""A softmax of so many axes is attention's, or over pixels, whose probabilities are taken as they are."""


def find_output_head(calls: Sequence[Call], output: Tensor) -> tuple[str, Tensor]:
    """Return the call that made the output (`softmax`, `sigmoid`, or `` for any other), and its input."""
    made = output
    for call in reversed(calls):
        if call.result is made:
            if call.name in OUTPUT_HEADS:
                return OUTPUT_HEADS[call.name], call.args[0] if call.args else call.kwargs["input"]
            if call.name not in RESHAPES:
                break
            made = call.args[0]
    return "", output


def check_output_head(output: Tensor, head: str, rows: int) -> str:
    """Return the name of the output head: `sigmoids` for one of several outputs, each by itself.

    Raises:
        ModelError: There is not one row of numbers for each input.
    """
    if not (output.ndim > 0 and len(output) == rows and output.is_floating_point()):
        raise ModelError(
            f"the model gives outputs of shape {tuple(output.shape)}, not one row of numbers for each input"
        )
    if head == "softmax" and output.ndim >= MAX_SOFTMAX_AXES:
        return "probabilities"
    return "sigmoids" if head == "sigmoid" and output.numel() != rows else head


def finish(output: Tensor, head: str | None, shape: Sequence[int] = ()) -> Tensor:
    """Turn the model's output, or the input of its last call, into class scores.

    Args:
        output: That output.
        head: The output head.
        shape: The shape of one input's outputs, as the model gives them.
    """
    if head == "sigmoid":
        logit = output.reshape(-1, 1)
        return torch.cat([torch.zeros_like(logit), logit], dim=1)
    if head in ("softmax", "sigmoids"):
        return output.reshape(len(output), *shape)
    return output.clamp_min(SMALLEST_PROBABILITY).log() if head == "probabilities" else output
