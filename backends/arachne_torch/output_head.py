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


def check_output_head(output: Tensor, head: str, rows: int) -> None:
    """Refuse outputs that are not one row of class scores per input.

    Raises:
        ModelError: Regression, detection, several labels at once.
    """
    scores = output.ndim > 0 and len(output) == rows and output.is_floating_point()
    if scores and head == "sigmoid" and output.numel() != rows:
        raise ModelError("the model ends in a sigmoid for each class, so it marks several classes at once, not one")
    if not scores or (head != "sigmoid" and (output.ndim != 2 or output.shape[1] < 2)):
        raise ModelError(f"the model gives outputs of shape {tuple(output.shape)}, not class scores (n, classes)")


def finish(output: Tensor, head: str | None) -> Tensor:
    """Turn the model's output, or the input of its last call, into class scores."""
    if head == "sigmoid":
        logit = output.reshape(-1, 1)
        return torch.cat([torch.zeros_like(logit), logit], dim=1)
    if head == "softmax":
        return output.flatten(1)
    return output.clamp_min(SMALLEST_PROBABILITY).log() if head == "probabilities" else output
