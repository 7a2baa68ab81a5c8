"""From a pull to gradients: one backward pass per batch, into tensors that stand in for weights or inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from arachne.backend import Pull, Weights, pulled
from arachne.values import Array, Inputs, count
from arachne_torch.running import Runner, as_tensor, to_array
from arachne_torch.stored import Stored


def pull_back(scores: Tensor, pull: Pull, start: int, wanted: Sequence[Tensor]) -> Array:
    """Add the gradients of one batch, whose first row is number `start`, to those the tensors hold already.

    Returns:
        How the loss pulls at the scores, `(rows, classes)`.
    """
    found = to_array(scores.float())
    if not len(scores):
        return found
    seed = pulled(pull, found, slice(start, start + len(scores)))
    push(scores, seed, wanted)
    return seed


def push(scores: Tensor, seed: Array, wanted: Sequence[Tensor]) -> None:
    """The same where it is known how the loss pulls; where it does not at all, nothing is added."""
    if scores.requires_grad and seed.any():
        scores.backward(as_tensor(seed).to(scores), inputs=list(wanted))  # type: ignore[no-untyped-call]


def gradients_of(places: Mapping[tuple[str, str], Stored], leaves: Mapping[str, Tensor]) -> Weights:
    """What was added up for each parameter, from the leaves its stored tensor stands in by name, as arrays."""
    gradients = {name: gradient(leaf) for name, leaf in leaves.items()}
    return {parameter: place.view(gradients[place.name]).numpy() for parameter, place in places.items()}


def gradient(leaf: Tensor) -> Tensor:
    """What was added up for a leaf, on the CPU and no less precise than float32; not copied unless it must be."""
    found = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    wide = found.float() if found.dtype in (torch.bfloat16, torch.float16) else found
    return wide.detach().cpu()


def input_gradients(runner: Runner, inputs: Inputs, pull: Pull, start: int) -> dict[str, Array]:
    """The gradients of one batch of inputs by name (`` for a single one); rows that fill the batch are cut off."""
    tensors = runner.tensors(inputs)
    named = tensors if isinstance(tensors, dict) else {"": tensors}
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in named.items()}
    # Models may work in place, which torch forbids on what is differentiated by.
    given = {name: leaf.clone() for name, leaf in leaves.items()}
    scores = runner.scored(given if isinstance(tensors, dict) else given[""], count(inputs))
    pull_back(scores, pull, start, list(leaves.values()))
    return {name: gradient(leaf)[: count(inputs)].numpy() for name, leaf in leaves.items()}
