"""Gradients of a loss: one backward pass per batch, into copies of weights or inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from arachne.model.backend import LossGradient, Weights, compute_gradient
from arachne.model.values import Array, Inputs, count
from arachne_torch.parameter_slice import ParameterSlice
from arachne_torch.running import Runner, as_tensor, to_array


def pull_back(scores: Tensor, loss: LossGradient, start: int, wanted: Sequence[Tensor]) -> Array:
    """Add the gradients of one batch, whose first row is number `start`, to the gradients of the tensors.

    Returns:
        The gradient of the loss by the scores, `(rows, classes)`.
    """
    found = to_array(scores.float())
    if not len(scores):
        return found
    seed = compute_gradient(loss, found, slice(start, start + len(scores)))
    push(scores, seed, wanted)
    return seed


def push(scores: Tensor, seed: Array, wanted: Sequence[Tensor]) -> None:
    """Run a backward pass from a given gradient by the scores; a gradient of zeros is skipped."""
    if scores.requires_grad and seed.any():
        scores.backward(as_tensor(seed).to(scores), inputs=list(wanted))  # type: ignore[no-untyped-call]


def gradients_of(slices: Mapping[tuple[str, str], ParameterSlice], leaves: Mapping[str, Tensor]) -> Weights:
    """Return the accumulated gradient of each parameter as an array; leaves are given by tensor name."""
    gradients = {name: gradient(leaf) for name, leaf in leaves.items()}
    return {parameter: slice_.view(gradients[slice_.name]).numpy() for parameter, slice_ in slices.items()}


def gradient(leaf: Tensor) -> Tensor:
    """Return the accumulated gradient of a leaf, on the CPU, in float32 or wider, without a copy if possible."""
    found = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    wide = found.float() if found.dtype in (torch.bfloat16, torch.float16) else found
    return wide.detach().cpu()


def input_gradients(runner: Runner, inputs: Inputs, loss: LossGradient, start: int) -> dict[str, Array]:
    """Return the gradients of one batch of inputs by name (`` for a single input), without padded rows."""
    tensors = runner.tensors(inputs)
    named = tensors if isinstance(tensors, dict) else {"": tensors}
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in named.items()}
    # Models may work in place, which torch forbids on what is differentiated by.
    given = {name: leaf.clone() for name, leaf in leaves.items()}
    scores = runner.score_tensors(given if isinstance(tensors, dict) else given[""], count(inputs))
    pull_back(scores, loss, start, list(leaves.values()))
    return {name: gradient(leaf)[: count(inputs)].numpy() for name, leaf in leaves.items()}
