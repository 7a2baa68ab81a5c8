"""Both scores of every weight and bias of PyTorch networks, against a reference that takes one weight at a time.

The reference lets torch itself compute what arrives: the layer's own call on |ō| with all weights, and with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.decisions.losses import cross_entropy
from arachne.localise import Bidirectional
from arachne.localise.base import sample_positives
from arachne.model.values import Activation, Array, LayerInfo
from arachne_torch import TorchBackend

torch.set_num_threads(1)

rng = np.random.default_rng(0)


class Mixed(nn.Module):
    """A network of images with a transposed, a grouped convolution and norms."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up = nn.ConvTranspose2d(2, 4, 2, stride=2, groups=2)
        self.norm = nn.BatchNorm2d(4)
        self.conv = nn.Conv2d(4, 4, 3, stride=2, groups=2, padding=1)
        self.head = nn.Linear(4, 3)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -0.5, 0.5)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(torch.tanh(self.conv(torch.relu(self.norm(self.up(x))))).mean((2, 3)))


class Text(nn.Module):
    """Words, a recurrent layer in both directions, attention."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.table = nn.Embedding(7, 3)
        self.rnn = nn.LSTM(3, 2, bidirectional=True, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, ids: torch.Tensor) -> Any:
        y = self.rnn(self.table(ids))[0].transpose(0, 1)
        return self.head(self.norm(y + self.attention(y, y, y)[0]).mean(0) * 4)


INPUTS: dict[str, tuple[type[nn.Module], Array]] = {
    "images": (Mixed, (rng.normal(size=(60, 2, 3, 3)) * 2).astype(np.float32)),
    "text": (Text, rng.integers(0, 7, size=(60, 4))),
}


def part_of(backend: TorchBackend, inputs: Array) -> Part:
    scores = backend.forward(inputs)
    predictions = scores.argmax(axis=1)
    labels, wrong = predictions.copy(), np.bincount(predictions).argmax()
    shown = np.flatnonzero(predictions == wrong)[:6]
    right = (wrong + 1) % 3
    labels[shown] = right
    data = LabelledData(inputs, labels)
    return Part(data, np.arange(len(labels)), scores, (Target("t", label=int(right), prediction=int(wrong)),))


def arriving(info: LayerInfo, weights: Mapping[str, Array], use: Activation) -> Array:
    """Take the mean input of one use of a layer through it, in magnitudes, `(…)` as one output; without biases."""
    w = {name: torch.from_numpy(np.abs(values).astype(np.float64)) for name, values in weights.items()}
    if info.kind == "embedding":
        ids = torch.from_numpy(use.entering["weight"])
        return functional.embedding(ids, w["weight"]).mean(0).numpy()
    o = {name: torch.from_numpy(np.abs(values.mean(axis=0, dtype=np.float64))) for name, values in use.entering.items()}
    walk: dict[str, Any] = {}
    if info.geometry is not None:
        pads = tuple(before for before, _ in info.geometry.padding)
        walk = {"stride": info.geometry.stride, "padding": pads, "groups": info.geometry.groups}
    if info.kind == "conv":
        return functional.conv2d(o["weight"][None], w["weight"], **walk)[0].numpy()
    if info.kind == "conv_transpose":
        return functional.conv_transpose2d(o["weight"][None], w["weight"], **walk)[0].numpy()
    if info.kind == "norm":
        turned = w["scale"] if info.name == "norm" and o["scale"].ndim == 2 else w["scale"][:, None, None]
        return np.asarray(o["scale"] * turned)
    return np.asarray(np.sum([functional.linear(o[name], w[name]).numpy() for name in w], axis=0))


def reference(backend: TorchBackend, part: Part, rows: Array) -> dict[tuple[str, str], Array]:
    """Impact of every weight and bias for some rows, one weight at a time."""
    inputs = np.asarray(part.data.inputs)[rows]
    found: dict[tuple[str, str], Array] = {}
    for info in backend.layers:
        weights = backend.get_weights(info.name)
        main = {name: values for name, values in weights.items() if not name.startswith("bias")}
        biases = {name: values for name, values in weights.items() if name.startswith("bias")}
        (use,) = backend.activations(inputs, info.name)
        slope = np.zeros(use.leaving.shape[1:])
        for label in range(3):
            seed = np.zeros((len(rows), 3), np.float32)
            seed[:, label] = 1
            slope += np.abs(backend.output_gradients(inputs, info.name, seed)[0]).mean(axis=0)
        whole = arriving(info, main, use)
        for name, values in main.items():
            found[info.name, name] = np.zeros(values.shape)
            for index in np.ndindex(*values.shape):
                single = {other: np.zeros_like(v) for other, v in main.items()}
                single[name][index] = values[index]
                through = arriving(info, single, use)
                shares = np.divide(through, whole, out=np.zeros_like(whole), where=whole > 0)
                found[info.name, name][index] = (shares * slope).sum()
        first = whole.ndim == 3
        spread = [np.abs(b)[:, None, None] if first else np.abs(b) for b in biases.values()]
        total = whole + np.sum(spread, axis=0)
        for name, bias in zip(biases, spread, strict=True):
            shares = np.broadcast_to(bias / total * slope, whole.shape)
            found[info.name, name] = shares.sum(axis=(1, 2) if first else tuple(range(whole.ndim - 1)))
    return found


@pytest.mark.parametrize("name", list(INPUTS))
def test_both_scores_of_every_weight_and_bias_follow_the_formula(name: str) -> None:
    make, inputs = INPUTS[name]
    backend = TorchBackend.load(make())
    part = part_of(backend, inputs)
    scores = Bidirectional(biases=True).scores(backend, part, rng=np.random.default_rng(0))
    positives = sample_positives(part, rng=np.random.default_rng(0))
    above, below = (reference(backend, part, rows) for rows in (part.negatives, positives))
    losses = [
        backend.weight_gradients(inputs[rows], cross_entropy(part.data.labels[rows]))
        for rows in (part.negatives, positives)
    ]
    assert {(s.layer, s.parameter) for s in scores} == set(above)
    for score in scores:
        key = (score.layer, score.parameter)
        np.testing.assert_allclose(
            score.forward_impact, above[key] / (1 + below[key]), rtol=2e-3, atol=1e-6, err_msg=str(key)
        )
        loss = [np.abs(side[score.layer, score.parameter]) for side in losses]
        np.testing.assert_allclose(score.gradient_loss, loss[0] / (1 + loss[1]), rtol=1e-4, atol=1e-7)


def test_without_biases_the_weights_scores_are_the_same() -> None:
    make, inputs = INPUTS["text"]
    backend = TorchBackend.load(make())
    part = part_of(backend, inputs)
    few, all_of_them = (
        Bidirectional(biases=biases).scores(backend, part, rng=np.random.default_rng(0)) for biases in (False, True)
    )
    both = {(s.layer, s.parameter): s for s in all_of_them}
    assert {s.parameter for s in few} == {"weight", "weight_ih", "weight_hh"}
    assert len(few) < len(both)
    for score in few:
        other = both[score.layer, score.parameter]
        np.testing.assert_allclose(score.forward_impact, other.forward_impact, rtol=1e-5)
