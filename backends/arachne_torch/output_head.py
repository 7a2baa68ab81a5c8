"""The output head: find the input of a final softmax or sigmoid, and turn it into class scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from arachne.adapting.outputs import BOX_VALUES, JOINED_BY, SMALLEST_PROBABILITY, unknown_output
from arachne.errors import ModelError, UsageError

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


def join_outputs(named: Mapping[str, Any], output: str) -> Tensor:
    """Return boxes and scores that a detector gives apart, `boxes,scores`, as one tensor `(n, anchors, 4 + classes)`.

    Raises:
        UsageError: A name that is no output.
        ModelError: They are no boxes and scores of as many anchors.
    """
    parts = [part.strip() for part in output.split(JOINED_BY)]
    for part in parts:
        if part not in named:
            raise unknown_output(part, named)
    if len(parts) != 2:
        raise UsageError(f"expected two outputs to join, boxes and scores, got {len(parts)}")
    boxes, scores = (named[part] for part in parts)
    if not all(isinstance(one, Tensor) and one.ndim == 3 for one in (boxes, scores)):
        raise ModelError(f"expected two outputs of shape (inputs, anchors, values), boxes and scores, for '{output}'")
    if boxes.shape[2] != BOX_VALUES == scores.shape[2]:
        boxes, scores = scores, boxes
    boxes = boxes.transpose(1, 2) if boxes.shape[2] != BOX_VALUES == boxes.shape[1] else boxes
    scores = scores.transpose(1, 2) if scores.shape[1] != boxes.shape[1] == scores.shape[2] else scores
    if boxes.shape[:2] != scores.shape[:2]:
        raise ModelError(f"the outputs '{output}' have {boxes.shape[1]} boxes and {scores.shape[1]} rows of scores")
    return torch.cat([boxes, scores], dim=2)
