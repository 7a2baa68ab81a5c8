"""Training with early stop: one-cycle Adam on one core, the best epoch on a part set aside is kept."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from examples.study.data import Array, side_by_group

ASIDE = 0.1
"""The share of the training data that decides when to stop; groups stay on one side."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes:
        epochs: The longest it may take; the learning rate is planned for all of them.
        rate: The highest learning rate of the cycle.
        batch: Inputs per step.
        decay: Decoupled weight decay.
        patience: Epochs without gain after which it stops.
        mirrored: Whether pictures are flipped left to right at random.
        shifted: By how many pixels pictures are moved at random, at most.
        smoothing: Label smoothing.
        bfloat16: Whether products are summed in bfloat16, on channels-last memory: half the time for convolutions.
    """

    epochs: int
    rate: float = 2e-3
    batch: int = 128
    decay: float = 1e-4
    patience: int = 3
    mirrored: bool = False
    shifted: int = 0
    smoothing: float = 0.0
    bfloat16: bool = False


@dataclass(frozen=True)
class Trained:
    """The result of training.

    Attributes:
        network: In evaluation mode, with the weights of its best epoch.
        epochs: How many it ran.
        accuracy_aside: Of the best epoch, on the part set aside, with the labels as they were filed.
        seconds: Of processor time.
    """

    network: nn.Module
    epochs: int
    accuracy_aside: float
    seconds: float


def train(
    make: Callable[[], nn.Module],
    inputs: Array,
    labels: Array,
    recipe: Recipe,
    *,
    seed: int,
    groups: Array | None = None,
    say: Say = print,
) -> Trained:
    """Train a network the same way every time.

    Args:
        make: Makes it, with random weights.
        inputs: uint8 `(n, channels, height, width)`, or word numbers, int64 `(n, steps)`.
        labels: int64 `(n,)`.
        recipe: How.
        seed: Of the weights, the order of the inputs and the part set aside.
        groups: `(n,)`; no group is trained on and set aside. None where every input stands for itself.
        say: Told a line after every epoch.
    """
    start, processor = time.perf_counter(), time.process_time()
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    fit, aside = side_by_group(groups, len(labels), ASIDE, rng)
    network = make()
    if recipe.bfloat16:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch types no kwarg
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=recipe.rate, weight_decay=recipe.decay, fused=recipe.bfloat16
    )
    steps = recipe.epochs * -(-len(fit) // recipe.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.rate, total_steps=steps, pct_start=0.25)
    best, best_state, best_epoch, epoch = -1.0, network.state_dict(), 0, 0
    for epoch in range(1, recipe.epochs + 1):
        network.train()
        _one_epoch(network, inputs, labels, rng.permutation(fit), recipe, optimiser, schedule, rng)
        accuracy = float(np.mean(predict_classes(network, inputs[aside]) == labels[aside]))
        if accuracy > best:
            best, best_state, best_epoch = accuracy, copy.deepcopy(network.state_dict()), epoch
        passed = time.perf_counter() - start
        left = passed / epoch * (recipe.epochs - epoch)
        say(f"epoch {epoch}/{recipe.epochs}: {accuracy:.4f} aside, {passed:.0f} s, at most {left:.0f} s left")
        if epoch - best_epoch >= recipe.patience:
            break
    network.load_state_dict(best_state)
    return Trained(network.eval(), epoch, best, time.process_time() - processor)


def predict_classes(network: nn.Module, inputs: Array, batch: int = 1000) -> Array:
    """The predicted class of every input, int64 `(n,)`, in evaluation mode."""
    network.eval()
    with torch.inference_mode():
        parts = [network(_tensor(inputs[at : at + batch])).argmax(1).numpy() for at in range(0, len(inputs), batch)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _one_epoch(
    network: nn.Module,
    inputs: Array,
    labels: Array,
    order: Array,
    recipe: Recipe,
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.OneCycleLR,
    rng: np.random.Generator,
) -> None:
    for at in range(0, len(order), recipe.batch):
        rows = order[at : at + recipe.batch]
        pictures = _vary(inputs[rows], recipe, rng) if recipe.mirrored or recipe.shifted else inputs[rows]
        x = _tensor(pictures)
        if recipe.bfloat16:
            x = x.contiguous(memory_format=torch.channels_last)
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bfloat16):
            scores = network(x)
        loss = nn.functional.cross_entropy(
            scores.float(), torch.from_numpy(labels[rows]), label_smoothing=recipe.smoothing
        )
        loss.backward()
        optimiser.step()
        schedule.step()


def _tensor(inputs: Array) -> Tensor:
    given = torch.from_numpy(np.ascontiguousarray(inputs))
    return given.to(torch.float32).div_(255) if given.dtype == torch.uint8 else given


def _vary(pictures: Array, recipe: Recipe, rng: np.random.Generator) -> Array:
    """Pictures flipped and moved at random; what is moved in repeats the border's mirror image."""
    n, _, height, width = pictures.shape
    flips = rng.random(n) < 0.5 if recipe.mirrored else np.zeros(n, bool)
    reach = recipe.shifted
    wide = np.pad(pictures, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="reflect")
    down, right = rng.integers(0, 2 * reach + 1, (2, n))
    result = np.empty_like(pictures)
    for i in range(n):
        piece = wide[i, :, down[i] : down[i] + height, right[i] : right[i] + width]
        result[i] = piece[:, :, ::-1] if flips[i] else piece
    return result
