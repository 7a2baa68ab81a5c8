"""The networks and data of the benchmark: the shapes of the paper's subjects.

Fashion-MNIST is the real one where Debian's package `dataset-fashion-mnist` is installed, and the networks for it
are trained for some seconds. All else is made up: random features, a last layer fitted by least squares, and the inputs
the network is least sure of get the class it puts second. So most inputs are classified correctly, some barely, and
some not at all, which is what the speed of an evaluator depends on.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from arachne.data.labelled import LabelledData
from arachne.model.values import Array

CLASSES = 10

FITTED = 1500
"""How many other inputs the last layer is fitted to, at most."""

MISTAKES = 0.08
"""The share of made-up inputs that are classified wrongly."""

PICTURES = Path("/usr/share/datasets/fashion-mnist")


@dataclass(frozen=True)
class Subject:
    """A network, the shape of its inputs, how many there are and how noisy, and what candidates touch in turn.

    `trained` is how many pictures of Fashion-MNIST it is trained on, and how often; nothing for made-up data.
    """

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    inputs: int
    noise: float
    touched: dict[str, tuple[str, ...]]
    trained: tuple[int, int] = (0, 0)
    target: str = "*:*"


class Residual(nn.Module):
    """A basic block of ResNet-18."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.skip: nn.Module | None = None
        if stride > 1:
            self.skip = nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.skip is None else self.skip(x)))


def resnet18() -> nn.Module:
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    widths += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    ending = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES)]
    return nn.Sequential(*stem, *itertools.starmap(Residual, widths), *ending)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, CLASSES))


def fm_convnet() -> nn.Module:
    first = [nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(3136, 1024), nn.ReLU(), nn.Linear(1024, CLASSES))


def cifar_net() -> nn.Module:
    conv = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*conv, nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, CLASSES))


class Lstm(nn.Module):
    """An LSTM over the rows of a picture, read at its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(28, 256, batch_first=True)
        self.head = nn.Linear(256, CLASSES)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


SUBJECTS = (
    Subject(
        "FM MLP",
        mlp,
        (784,),
        5000,
        2.5,
        {"last": ("2",), "last two": ("0", "2"), "first": ("0",)},
        (20000, 4),
        "top:1",
    ),
    Subject(
        "FM convnet",
        fm_convnet,
        (1, 28, 28),
        2000,
        1.8,
        {"last": ("9",), "last two": ("7", "9"), "middle conv": ("3",), "first conv": ("0",)},
        (3000, 1),
        "top:1",
    ),
    Subject(
        "CIFAR conv16+fc512",
        cifar_net,
        (3, 32, 32),
        5000,
        2.0,
        {"last": ("6",), "last two": ("4", "6"), "first conv": ("0",)},
    ),
    Subject(
        "ResNet-18, 64×64",
        resnet18,
        (3, 64, 64),
        400,
        1.2,
        {"last": ("14",), "last conv": ("11.conv2",), "middle conv": ("8.conv1",), "first conv": ("0",)},
    ),
    Subject("LSTM-256", Lstm, (28, 28), 2000, 2.0, {"last": ("head",), "kernel": ("lstm",)}, (6000, 3), "top:1"),
)


def make_subject(subject: Subject, n: int | None = None, *, seed: int = 0) -> tuple[nn.Module, LabelledData]:
    """The network, and data for it."""
    torch.manual_seed(seed)
    module = subject.make().eval()
    if subject.trained[0] and PICTURES.exists():
        return on_pictures(module, subject.shape, n or subject.inputs, trained=subject.trained)
    rng = np.random.default_rng(seed)
    n = n or subject.inputs
    centres = smooth(rng.standard_normal((CLASSES, *subject.shape)))
    fitted = min(n, FITTED)
    labels = rng.integers(CLASSES, size=n + fitted)
    data = centres[labels] + subject.noise * smooth(rng.standard_normal((n + fitted, *subject.shape)))
    data = data.astype(np.float32)
    fit_last(module, data[n:], labels[n:])
    return module, LabelledData(data[:n], second_where_unsure(module, data[:n]))


def on_pictures(
    module: nn.Module, shape: tuple[int, ...], n: int, *, trained: tuple[int, int]
) -> tuple[nn.Module, LabelledData]:
    """Fashion-MNIST: trained on some pictures; the data are the test pictures, or all others where more are wanted."""
    size, epochs = trained
    x, y = _pictures("train", shape)
    _train(module, x[:size], y[:size], epochs)
    x, y = (x, y) if n > 10000 else _pictures("t10k", shape)
    return module, LabelledData(x[:n], y[:n])


def _pictures(part: str, shape: tuple[int, ...]) -> tuple[Array, Array]:
    raw = [
        gzip.decompress((PICTURES / f"{part}-{kind}-ubyte.gz").read_bytes()) for kind in ("images-idx3", "labels-idx1")
    ]
    images = np.frombuffer(raw[0], np.uint8, offset=16).reshape(-1, *shape)
    return images.astype(np.float32) / 255, np.frombuffer(raw[1], np.uint8, offset=8).astype(np.int64)


def _train(module: nn.Module, inputs: Array, labels: Array, epochs: int) -> None:
    x, y = torch.from_numpy(inputs), torch.from_numpy(labels)
    optimiser = torch.optim.Adam(module.parameters(), 1e-3)
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for start in range(0, len(x), 64):
            rows = order[start : start + 64]
            optimiser.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(module(x[rows]), y[rows]))
            optimiser.step()
    module.requires_grad_(False)


def second_where_unsure(module: nn.Module, inputs: Array) -> Array:
    """Return the class the network says, or the one it says second where it is least sure."""
    with torch.no_grad():
        scores = torch.cat([module(torch.from_numpy(part)) for part in np.array_split(inputs, len(inputs) // 25 + 1)])
    best, order = scores.topk(2)
    unsure = (best[:, 0] - best[:, 1]).argsort()[: int(MISTAKES * len(inputs))]
    labels = order[:, 0].clone()
    labels[unsure] = order[unsure, 1]
    return labels.numpy()


def smooth(images: Array) -> Array:
    """Neighbours made alike, as in pictures, and all values of about size 1."""
    for axis in range(1, images.ndim):
        images = images + np.roll(images, 1, axis) + np.roll(images, 2, axis)
    return np.asarray(images / images.std())


def fit_last(module: nn.Module, inputs: Array, labels: Array, classes: int = CLASSES) -> None:
    """Least squares for the last dense layer, by what enters it."""
    last = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
    entering: list[torch.Tensor] = []
    handle = last.register_forward_pre_hook(lambda _, given: entering.append(given[0]))
    with torch.no_grad():
        for start in range(0, len(inputs), 50):
            module(torch.from_numpy(inputs[start : start + 50]))
        handle.remove()
        x = torch.cat(entering).double()
        x = torch.cat([x, torch.ones(len(x), 1, dtype=torch.double)], 1)
        ridge = 1e-1 * x.square().mean() * len(x) / x.shape[1]
        y = 10.0 * torch.nn.functional.one_hot(torch.from_numpy(labels), classes).double()
        if x.shape[1] <= len(x):
            solved = torch.linalg.solve(x.T @ x + ridge * torch.eye(x.shape[1], dtype=torch.double), x.T @ y).float()
        else:  # the same, by the products of inputs, which are fewer
            solved = (x.T @ torch.linalg.solve(x @ x.T + ridge * torch.eye(len(x), dtype=torch.double), y)).float()
        last.weight.copy_(solved[:-1].T)
        last.bias.copy_(solved[-1])
