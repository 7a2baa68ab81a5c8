"""Train copies of the parameters with torch's own optimisers; the model keeps its weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from arachne.errors import UsageError
from arachne.model.backend import Weights
from arachne.model.fitting import BETAS, EPSILON, MOMENTUM, OnStep, Plan, Step
from arachne.model.values import Array, Inputs, count, read, take
from arachne_torch.parameter_slice import ParameterSlice
from arachne_torch.running import Runner, as_tensor, to_array


def fit_weights(
    runner: Runner,
    slices: Mapping[tuple[str, str], ParameterSlice],
    inputs: Inputs,
    labels: Array,
    plan: Plan,
    on_step: OnStep,
) -> Weights:
    """Train and return the weights in the canonical layout; a batch too large for memory is run in parts."""
    leaves = {name: tensor.detach().clone() for name, tensor in runner.parameters.items()}
    wanted = {slice_.name for slice_ in slices.values()} - _frozen(runner)
    if not wanted:
        raise UsageError("every weight of the model is frozen (requires_grad=False), so there is nothing to train")
    optimiser = _optimiser([leaves[name].requires_grad_() for name in leaves if name in wanted], plan)
    steps, answers = plan.steps(count(inputs)), as_tensor(labels).to(runner.device)
    with runner.swap_parameters(leaves), torch.enable_grad():
        for number, rows in enumerate(plan.batches(count(inputs)), start=1):
            optimiser.zero_grad()
            loss, done = 0.0, 0
            for part in runner.batches(read(take(inputs, rows)), gradients=True):
                own = answers[torch.from_numpy(rows[done : done + count(part)])]
                mean = nn.functional.cross_entropy(runner.scores(part), own, reduction="sum") / len(rows)
                mean.backward()  # type: ignore[no-untyped-call]
                loss, done = loss + float(mean.detach()), done + count(part)
            optimiser.step()
            if on_step(Step(number, steps, loss)):
                break
    return {key: to_array(stored.view(leaves[stored.name].detach())) for key, stored in slices.items()}


def _optimiser(tensors: list[Tensor], plan: Plan) -> torch.optim.Optimizer:
    if plan.optimiser == "sgd":
        return torch.optim.SGD(tensors, lr=plan.rate, momentum=MOMENTUM)
    return torch.optim.Adam(tensors, lr=plan.rate, betas=BETAS, eps=EPSILON)


def _frozen(runner: Runner) -> set[str]:
    """The parameters that the model's author has excluded from training."""
    return {
        name
        for name, tensor in runner.parameters.items()
        if isinstance(tensor, nn.Parameter) and not tensor.requires_grad
    }
