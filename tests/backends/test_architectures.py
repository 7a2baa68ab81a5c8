"""Real architectures, small: run, differentiated, cut, and repaired."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import arachne
from arachne.data.labelled import LabelledData
from arachne.errors import NothingWithinBudgetError
from arachne.model.cut import Cut
from arachne.model.values import take
from arachne.search import DifferentialEvolution, Pool, Problem, SearchResult, effort
from arachne.search.pool import SPENT
from arachne.search.state import SearchState
from arachne_torch import TorchBackend
from tests.backends.architectures import data, images, sequences
from tests.backends.layer_checks import (
    check_cut,
    check_output_gradients,
    check_round_trip,
    check_trace,
    check_weight_gradients,
)

torch.set_num_threads(1)

pytestmark = pytest.mark.backend("torch")


@dataclass(frozen=True)
class Architecture:
    """How to make and train a network, and layers of all its kinds, early and late."""

    make: Callable[[], nn.Module]
    task: Callable[[], data.Task]
    layers: tuple[str, ...]
    epochs: int = 4
    rate: float = 5e-3


ARCHITECTURES = {
    "resnet18": Architecture(images.ResNet18, data.digits, ("conv1", "layer2.0.downsample.0", "layer4.1.bn2", "fc")),
    "mobilenet_v2": Architecture(
        images.MobileNetV2, data.digits, ("features.0", "features.4.conv.3", "features.5.conv.7", "classifier.1")
    ),
    "vgg": Architecture(images.VGG, data.digits, ("features.0", "features.7", "classifier.6"), 12, 3e-3),
    "densenet": Architecture(
        images.DenseNet, data.digits, ("features.0", "features.2.conv1", "features.8.conv2", "classifier")
    ),
    "vit": Architecture(
        images.ViT, data.digits, ("patches", "encoder.layers.0.self_attn.k", "encoder.layers.1.linear2", "head"), 8
    ),
    "text_lstm": Architecture(
        sequences.TextLSTM, data.text, ("embedding", "lstm.l0", "lstm.l0_reverse", "head"), 6, 1e-2
    ),
    "bert": Architecture(
        sequences.bert,
        data.bert_text,
        (
            "bert.embeddings.word_embeddings",
            "bert.embeddings.position_embeddings",
            "bert.encoder.layer.0.attention.self.query",
            "bert.encoder.layer.1.output.LayerNorm",
            "classifier",
        ),
        8,
    ),
    "tabular": Architecture(sequences.TabularNet, data.wine, ("category", "layers.0", "layers.1", "layers.5"), 10),
    "signals": Architecture(sequences.SignalNet, data.signals, ("features.0", "features.8", "features.9", "head"), 6),
}

NOT_REACHED = {"vit": {"token", "positions"}}
"""Parameters that are added or put before the patches, and multiply nothing."""


@functools.cache
def train_network(name: str) -> tuple[TorchBackend, data.Task]:
    own = ARCHITECTURES[name]
    torch.manual_seed(0)
    task = own.task()
    return data.train(own.make(), task, epochs=own.epochs, rate=own.rate), task


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_run_differentiated_and_cut(name: str) -> None:
    backend, task = train_network(name)
    inputs = take(task.inputs, slice(0, 6))
    labels, layers = task.labels[:6], ARCHITECTURES[name].layers
    backend.forward(inputs)
    check_round_trip(backend, inputs, layers)
    check_trace(backend, inputs, layers)
    for layer in layers:
        check_cut(backend, inputs, [layer])
    check_cut(backend, inputs, [layers[1], layers[-1]])
    # In double precision, where a step can be so small that it crosses no kink.
    exact = TorchBackend.load(copy.deepcopy(backend.native).double())
    check_weight_gradients(exact, inputs, labels, layers, step=1e-4)
    check_output_gradients(exact, inputs, layers, step=1e-4)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_parameter_is_a_layers_or_has_a_reason(name: str) -> None:
    backend, task = train_network(name)
    backend.forward(take(task.inputs, slice(0, 6)))
    sizes = sum(entry.size for info in backend.layers for entry in info.parameters.values())
    assert set(backend.unreachable) == NOT_REACHED.get(name, set())
    left = sum(backend.native.get_parameter(parameter).numel() for parameter in backend.unreachable)
    assert sizes + left == sum(parameter.numel() for parameter in backend.native.parameters())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_short_repair_improves_the_target(name: str) -> None:
    backend, task = train_network(name)
    unseen = task.unseen.take(np.arange(300))
    searcher = DifferentialEvolution(population=16, generations=10)
    wrong, right = backend.predict(unseen.inputs), unseen.labels
    shown = (right == task.target[0]) & (wrong == task.target[1])
    assert shown.sum() >= 8, "the network was not taught its mistake"
    before = {info.name: backend.get_weights(info.name) for info in backend.layers}
    result = arachne.repair(backend, unseen, f"{task.target[0]}:{task.target[1]}", seed=0, searcher=searcher)
    seen = result.evidence.seen
    assert seen is not None
    assert seen.repaired > 0
    assert seen.target_errors_after < seen.target_errors_before
    assert result.evidence.held_out.target_errors_after <= result.evidence.held_out.target_errors_before
    for layer, weights in before.items():
        for parameter, values in weights.items():
            np.testing.assert_array_equal(backend.get_weights(layer)[parameter], values)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_default_repair_stays_within_its_passes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, task = train_network(name)
    found: list[tuple[Problem, SearchState]] = []
    runs: list[tuple[tuple[str, ...], int]] = []
    monkeypatch.setattr(effort, "FREE_MULTIPLICATIONS", 0.0)  # small as it is, the network is held to 12 passes
    monkeypatch.setattr(Cut, "scores_with", count_rows(Cut.scores_with, runs, 1))
    monkeypatch.setattr(Cut, "weight_gradients", count_rows(Cut.weight_gradients, runs, 2))

    def result(pool: Pool, problem: Problem, state: SearchState) -> SearchResult:
        found.append((problem, state))
        return own(pool, problem, state)

    own = Pool.result
    monkeypatch.setattr(Pool, "result", result)
    with contextlib.suppress(NothingWithinBudgetError):
        arachne.repair(backend, LabelledData(task.inputs, task.labels), "top:1", max_break=0.05)
    problem, state = found[-1]
    spent = sum(effort.share_behind(problem, layers) * rows for layers, rows in runs) / len(problem.split.seen)
    counted = sum(float(value or 0) for key, value in state.values.items() if key.startswith(SPENT))
    assert counted <= effort.allowance(problem, "normal") == effort.EFFORTS["normal"]
    assert spent <= counted + 2  # one more pass gives the original's scores, one checks the cuts


def count_rows(run: Callable[..., Any], runs: list[tuple[tuple[str, ...], int]], times: int) -> Callable[..., Any]:
    """Wrap an operation of a cut, so that it notes its layers, and how many rows it runs."""

    def counting(cut: Cut, *given: Any) -> Any:
        rows = given[-1] if isinstance(given[-1], np.ndarray) else np.arange(cut.n)
        runs.append((tuple(cut.layers), times * len(rows)))
        return run(cut, *given)

    return counting
