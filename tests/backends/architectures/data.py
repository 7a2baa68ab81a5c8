"""Small data sets with a planted mistake, and just enough training to make a network that has it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_digits, load_wine
from torch import Tensor, nn

from arachne.data.labelled import LabelledData
from arachne.model.values import Array, Inputs, count, take
from arachne_torch import TorchBackend


@dataclass(frozen=True)
class Task:
    """Inputs and labels that a network is trained on and repaired with.

    Attributes:
        inputs: All inputs.
        labels: Their true labels.
        target: The planted mistake, `a:b`: most of a was labelled b in training.
        train: How many of the first inputs are for training.
        wrong: Share of the target's class that is mislabelled in training.
    """

    inputs: Inputs
    labels: Array
    target: tuple[int, int]
    train: int
    wrong: float = 0.55

    @property
    def unseen(self) -> LabelledData:
        """Inputs the network was not trained on, with true labels."""
        rows = np.arange(self.train, len(self.labels))
        return LabelledData(take(self.inputs, rows), self.labels[rows])

    @property
    def training_labels(self) -> Array:
        """The labels in training, `(train,)`."""
        labels = self.labels[: self.train].copy()
        shown = np.flatnonzero(labels == self.target[0])
        labels[shown[np.random.default_rng(1).random(len(shown)) < self.wrong]] = self.target[1]
        return labels


def digits(train: int = 700) -> Task:
    """Pictures of handwritten digits, 8 x 8, real."""
    x, y = load_digits(return_X_y=True)
    return Task((x / 8 - 1).reshape(-1, 1, 8, 8).astype(np.float32), y.astype(np.int64), (3, 5), train)


def wine() -> Task:
    """Thirteen measurements of wines, real, several times over with a little noise, and a category that says little."""
    x, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    rows = rng.permutation(np.arange(4 * len(y)) % len(y))
    x = (x - x.mean(0)) / x.std(0)
    noisy = (x[rows] + 0.3 * rng.normal(size=(len(rows), x.shape[1]))).astype(np.float32)
    category = np.where(rng.random(len(rows)) < 0.2, y[rows], rng.integers(0, 4, len(rows)))
    return Task({"numbers": noisy, "category": category}, y[rows].astype(np.int64), (1, 0), 400)


def signals(n: int = 900) -> Task:
    """Sine, square and sawtooth waves of any phase, with noise."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, n)
    phase = (np.arange(48)[None] / 48 * rng.uniform(2, 4, (n, 1)) + rng.random((n, 1))) % 1
    waves = np.stack([np.sin(2 * np.pi * phase), np.sign(phase - 0.5), 2 * phase - 1])[labels, np.arange(n)]
    noisy = waves + 0.25 * rng.normal(size=waves.shape)
    return Task(noisy[:, None].astype(np.float32), labels, (1, 2), 500)


def text(n: int = 900, steps: int = 10, words: int = 30) -> Task:
    """Sentences of different lengths; each class prefers some words."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, n)
    lengths = rng.integers(3, steps + 1, n)
    telling = 1 + labels[:, None] * 6 + rng.integers(0, 6, (n, steps))
    ids = np.where(rng.random((n, steps)) < 0.4, telling, rng.integers(19, words, (n, steps)))
    ids[np.arange(steps)[None] >= lengths[:, None]] = 0
    return Task({"ids": ids, "lengths": lengths}, labels, (1, 2), 500)


def bert_text() -> Task:
    """Sentences with an attention mask, as a tokeniser gives them."""
    task = text()
    assert isinstance(task.inputs, dict)
    ids = task.inputs["ids"]
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64)}
    return Task(inputs, task.labels, task.target, task.train, wrong=0.45)


def train(model: nn.Module, task: Task, *, epochs: int, rate: float = 5e-3) -> TorchBackend:
    """A few epochs of Adam; the backend's own way from arrays to class scores is used."""
    torch.manual_seed(0)
    backend = TorchBackend.load(model)
    backend.forward(take(task.inputs, slice(0, 4)))
    runner, labels = backend._runner, torch.from_numpy(task.training_labels)
    optimiser = torch.optim.Adam(model.parameters(), rate)
    rng = np.random.default_rng(0)
    model.train()
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(task.train), task.train // 50):
            loss = nn.functional.cross_entropy(_logits(model, runner.tensors(take(task.inputs, rows))), labels[rows])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
            optimiser.step()
    model.eval()
    assert count(task.inputs) == len(task.labels)
    return TorchBackend.load(model)


def _logits(model: nn.Module, tensors: Tensor | dict[str, Tensor]) -> Tensor:
    answer = model(**tensors) if isinstance(tensors, dict) else model(tensors)
    if isinstance(answer, Tensor):
        return answer
    chosen: Tensor = answer["logits"]
    return chosen
