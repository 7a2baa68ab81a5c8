"""The plan of a training run: the order of its batches, and the progress that is reported for each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from arachne.errors import UsageError
from arachne.model.values import Array

OPTIMISERS = ("adam", "sgd")
"""Adam with its usual constants (0.9, 0.999, 1e-8), and plain stochastic gradient descent with momentum."""

BETAS, EPSILON, MOMENTUM = (0.9, 0.999), 1e-8, 0.9


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to train; the same plan goes through the same inputs in the same order in every framework.

    Attributes:
        epochs: Passes over the inputs.
        batch: Inputs per step; the last batch of a pass may have fewer.
        rate: The learning rate.
        optimiser: One of `OPTIMISERS`.
        seed: What the order of the inputs is drawn from.
    """

    epochs: int = 1
    batch: int = 64
    rate: float = 1e-3
    optimiser: str = "adam"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.optimiser not in OPTIMISERS:
            raise UsageError(f"optimiser must be {' or '.join(OPTIMISERS)}, got '{self.optimiser}'")
        if min(self.epochs, self.batch) < 1 or not self.rate > 0:
            raise UsageError(
                f"epochs, batch and rate of a training run are above 0, got {self.epochs}, {self.batch} and {self.rate}"
            )

    def steps(self, n: int) -> int:
        """How many steps the whole run takes over `n` inputs."""
        return self.epochs * -(-n // self.batch)

    def batches(self, n: int) -> Iterator[Array]:
        """The rows of each step, int64 `(batch,)`: every pass goes through all `n` inputs in an order of its own."""
        rng = np.random.default_rng(self.seed)
        for _ in range(self.epochs):
            order = rng.permutation(n)
            for start in range(0, n, self.batch):
                yield order[start : start + self.batch]


@dataclass(frozen=True)
class Step:
    """How far a training run is.

    Attributes:
        number: The step that was just made, from 1 on.
        steps: How many there will be.
        loss: Mean cross-entropy of its batch, before the step.
    """

    number: int
    steps: int
    loss: float


OnStep = Callable[[Step], bool | None]
"""Called after each step; True ends the training there."""
