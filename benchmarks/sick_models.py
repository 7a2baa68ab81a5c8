"""Scan 20 sick and 20 healthy small networks of scikit-learn's digits, and count what is said of them.

python -m benchmarks.sick_models            # about two minutes; writes benchmarks/results/sick_models.json

Five sicknesses, each in four networks: two seeds, as PyTorch modules and as ONNX files. Healthy are the same networks
before they were made sick. The thresholds were written down before these networks were made.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import arachne
from arachne.data.chance import find_misreading
from arachne.data.class_order import other_order
from arachne.data.health import examine
from arachne.data.labelled import LabelledData
from arachne.data.run import whole_part
from arachne.model.backend import ModelBackend
from arachne.model.values import Array

RESULT = Path(__file__).parent / "results" / "sick_models.json"
SEEDS = (0, 1)
TRAINED = 1000
"""Inputs that networks are trained on; the others are scanned."""

NORMS, PREPROCESSING, ORDER, SATURATED, DEAD = "normalisation", "preprocessing", "class order", "saturated", "dead"


@dataclass(frozen=True)
class Patient:
    """A network with its inputs.

    Attributes:
        name: Framework, kind and seed.
        sickness: One of the five; empty for a healthy one.
        backend: The model.
        inputs: The inputs `(n, 1, 8, 8)` or `(n, 8, 8, 1)`.
        labels: Their labels `(n,)`.
    """

    name: str
    sickness: str
    backend: ModelBackend
    inputs: Array
    labels: Array


def digits() -> tuple[Array, Array]:
    """Return pictures `(n, 1, 8, 8)` of low contrast, from 0.4 to 0.7, and labels."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return (0.4 + 0.3 * x[order].reshape(-1, 1, 8, 8) / 16).astype(np.float32), y[order]


def network(function: type[nn.Module], norm: bool) -> nn.Sequential:
    """Return a small convolutional network, with or without batch normalisation.

    It stands behind the function: exporters fold one before it into the convolution, where its statistics are gone.
    """
    between: list[nn.Module] = [nn.BatchNorm2d(12)] if norm else []
    last: list[nn.Module] = [nn.Linear(12 * 36, 32), function(), nn.Linear(32, 10)]
    return nn.Sequential(nn.Conv2d(1, 12, 3), function(), *between, nn.Flatten(), *last)


def train(net: Any, x: Array, y: Array, seed: int) -> None:
    """Train a network for a few epochs."""
    torch.manual_seed(seed)
    for module in net.children():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    net.train()
    for _ in range(12):
        order: Any = torch.randperm(len(x))
        for rows in order.split(50):
            optimiser.zero_grad()
            loss: Any = nn.functional.cross_entropy(net(torch.tensor(x)[rows]), torch.tensor(y)[rows])
            loss.backward()
            optimiser.step()
    net.eval()


def spoil(net: Any, sickness: str) -> None:
    """Make a network sick in place, if the sickness is one of its weights."""
    with torch.no_grad():
        if sickness == NORMS:
            norm: Any = next(module for module in net if isinstance(module, nn.BatchNorm2d))
            norm.running_mean += 2 * norm.running_var.sqrt()
            norm.running_var *= 9
        if sickness == SATURATED:
            net[0].weight *= 200
        if sickness == DEAD:
            net[0].bias -= 100


def patients() -> Iterator[Patient]:
    """Train every network and yield it, sick or healthy."""
    x, y = digits()
    kinds: tuple[tuple[type[nn.Module], bool, tuple[str, ...]], ...] = (
        (nn.ReLU, True, (NORMS, PREPROCESSING, ORDER)),
        (nn.Tanh, False, (SATURATED,)),
        (nn.ReLU, False, (DEAD,)),
    )
    for seed in SEEDS:
        for function, norm, sicknesses in kinds:
            net = network(function, norm)
            shown = (x - x.mean()) / x.std()
            train(net, shown[:TRAINED], y[:TRAINED], seed)
            for sickness in (*sicknesses, *("" for _ in sicknesses)):
                yield from in_frameworks(net, sickness, x if sickness == PREPROCESSING else shown, y, seed)


def in_frameworks(net: nn.Sequential, sickness: str, x: Array, y: Array, seed: int) -> Iterator[Patient]:
    """Yield a network as a PyTorch module and as an ONNX file."""
    stored = io.BytesIO()
    torch.save(net.state_dict(), stored)
    spoil(net, sickness)
    labels = y[TRAINED:]
    if sickness == ORDER:
        labels = (labels + 1) % 10
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        arachne.load(net).export_onnx(path, inputs=x[:2])
        for kind, model in (("torch", net), ("onnx", path)):
            yield Patient(f"{kind} {type(net[-2]).__name__} {seed}", sickness, arachne.load(model), x[TRAINED:], labels)
    net.load_state_dict(torch.load(io.BytesIO(stored.getvalue()), weights_only=True))


def diagnose(patient: Patient) -> str:
    """Return what a scan says of a network: one of the five, or nothing."""
    part = whole_part(patient.backend, LabelledData(patient.inputs, patient.labels), "*:*")
    if other_order(patient.labels, part.predictions, part.n_classes) is not None:
        return ORDER
    accuracy = float(np.mean(part.right))
    health = examine(patient.backend, patient.inputs, patient.labels)
    misread = find_misreading(patient.backend, part, accuracy)
    if misread is not None and misread.cured:
        return PREPROCESSING
    signs: tuple[tuple[Any, str], ...] = ((health.shifted, NORMS), (health.dead, DEAD), (health.saturated, SATURATED))
    return next((name for sign, name in signs if sign), PREPROCESSING if misread is not None else "")


def main(say: Callable[[str], None] = print) -> dict[str, Any]:
    """Scan every network and write what was said."""
    rows = []
    for patient in patients():
        said = diagnose(patient)
        rows.append({"network": patient.name, "sickness": patient.sickness, "said": said})
        say(f"{patient.name}: {patient.sickness or 'healthy'}, said {said or 'nothing'}")
    sick = [row for row in rows if row["sickness"]]
    healthy = [row for row in rows if not row["sickness"]]
    result = {
        "sick": len(sick),
        "named": sum(row["said"] == row["sickness"] for row in sick),
        "healthy": len(healthy),
        "suspected": sum(row["said"] != "" for row in healthy),
        "networks": rows,
    }
    say(f"{result['named']} of {result['sick']} named, {result['suspected']} of {result['healthy']} healthy suspected")
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
