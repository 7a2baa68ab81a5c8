"""A small convolutional network on Fashion-MNIST and faults of whole pictures: what two benchmarks of them share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import arachne
from arachne.model.values import Array
from examples.study.data import fashion

CLEAN, FAULTY = 2000, 600
"""The test pictures without and with the fault that are given; as many are held out."""

TUNING_EPOCHS = 6


def train_network(pictures: Array, labels: Array, *, seed: int, epochs: int) -> torch.nn.Module:
    """Train a small convolutional network."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 8, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(3)),
        *(torch.nn.Conv2d(8, 16, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(144, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)),
    )
    train_layers(model, pictures, labels, epochs=epochs, rate=3e-3)
    return model


def fine_tune(model: torch.nn.Module, data: arachne.LabelledData, *, seed: int) -> None:
    """Train all layers on all that is given."""
    torch.manual_seed(seed)
    train_layers(model, np.asarray(data.inputs), data.labels, epochs=TUNING_EPOCHS, rate=1e-3)


def train_layers(model: torch.nn.Module, pictures: Array, labels: Array, *, epochs: int, rate: float) -> None:
    """Train all layers by cross-entropy."""
    inputs, wanted = torch.from_numpy(pictures), torch.from_numpy(labels)
    optimiser = torch.optim.Adam(model.parameters(), rate)
    model.train()
    for _ in range(epochs):
        for rows in np.array_split(torch.randperm(len(wanted)).numpy(), -(-len(wanted) // 100)):
            optimiser.zero_grad()
            torch.autograd.backward(cross_entropy(model(inputs[rows]), wanted[rows]))
            optimiser.step()
    model.eval()


def halves(plant: Callable[[Array], Array], rng: np.random.Generator) -> list[arachne.LabelledData]:
    """Return the pictures that are given and those that are held out; `kind` says which of them have the fault."""
    data = fashion()
    order = rng.permutation(len(data.test_labels))
    inputs, labels, parts = scale_pictures(data.test), data.test_labels.astype(np.int64), []
    for first in (0, CLEAN + FAULTY):
        clean, faulty = np.split(order[first : first + CLEAN + FAULTY], [CLEAN])
        values = np.concatenate([inputs[clean], plant(inputs[faulty])])
        column = np.array(["clean"] * CLEAN + ["fault"] * FAULTY)
        parts.append(arachne.LabelledData(values, labels[np.append(clean, faulty)], columns={"kind": column}))
    return parts


def find_right(model: torch.nn.Module, data: arachne.LabelledData) -> Array:
    """Tell which inputs the network reads rightly."""
    with torch.no_grad():
        read = model(torch.from_numpy(np.asarray(data.inputs))).argmax(1).numpy()
    return np.asarray(read == data.labels)


def count_right(held: arachne.LabelledData, before: Array, right: Array) -> dict[str, float]:
    """Count what is right with the fault, and what of the clean pictures broke and lost accuracy, as shares."""
    on_fault = held.columns["kind"] == "fault"
    return {
        "right": round(float(right[on_fault].mean()), 4),
        "broken": round(float((before & ~right)[~on_fault].sum() / before[~on_fault].sum()), 5),
        "drop": round(float(before[~on_fault].mean() - right[~on_fault].mean()), 5),
    }


def scale_pictures(values: Array) -> Array:
    """Return pictures as values of 0 to 1, float32 `(n, 1, 28, 28)`."""
    return np.asarray(values, np.float32).reshape(-1, 1, 28, 28) / 255
