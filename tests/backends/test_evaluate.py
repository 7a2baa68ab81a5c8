"""The fast evaluator accepts the plain one's trials, generation by generation, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from arachne.scoring.evaluators import FastEvaluator, PlainEvaluator
from arachne.scoring.fast.routes.channels_to_convolution import NextConvolutionRoute
from arachne.scoring.fast.routes.cut import CutRoute
from arachne.testing import Network, convnet, mlp, random_inputs, residual
from benchmarks.exactness import Findings, check
from tests.unit.evaluating import assert_same_search, fitness_inputs_of, some_suspects
from tests.unit.two_convolutions import two_convolutions

BACKENDS = [pytest.param(name, marks=pytest.mark.backend(name)) for name in ("torch", "onnx", "keras")]

CHANNELS = {"channels, dense tail", "cut"}
"""Which it is depends on how a framework flattens, and on what is faster."""

SUBJECTS = {
    "mlp, last layer": (mlp([30, 40, 6], seed=1), ["fc2"], {"dense tail"}),
    "mlp, last two": (mlp([30, 40, 6], seed=1), ["fc1", "fc2"], {"dense tail"}),
    "tanh, all three": (mlp([12, 20, 16, 4], seed=2, activation="tanh"), ["fc1", "fc2", "fc3"], {"dense tail"}),
    "convnet, dense tail": (convnet(seed=3), ["fc1", "fc2"], {"dense tail"}),
    "convnet, first convolution": (convnet(seed=3), ["conv1"], {"channels, convolution", "cut"}),
    "convnet, second convolution": (convnet(seed=3), ["conv2"], CHANNELS),
    "convnet, convolution and tail": (convnet(seed=3), ["conv2", "fc2"], CHANNELS),
    "residual, inside the block": (residual(seed=4), ["inner1"], {"cut"}),
}


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
def test_searches_accept_the_same_trials(name: str, subject: str, networks_in: Callable[[str], ModuleType]) -> None:
    network: Network = SUBJECTS[subject][0]
    _, layers, routes = SUBJECTS[subject]
    backend = networks_in(name).build(network)
    fitness_inputs = fitness_inputs_of(backend, random_inputs(network, 300, seed=5), 300)
    suspects = some_suspects(backend, layers, 5)
    fast = FastEvaluator(backend, fitness_inputs, suspects)
    assert fast.source.route.name in routes
    assert_same_search(PlainEvaluator(backend, fitness_inputs, suspects), fast, population=16, generations=8)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
def test_searches_through_two_convolutions_accept_the_same_trials(
    name: str, seed: int, networks_in: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CutRoute, "seconds", lambda self, trials: float(not isinstance(self, NextConvolutionRoute)))
    network = two_convolutions(seed, third=seed % 2 == 1)
    backend = networks_in(name).build(network)
    fitness_inputs = fitness_inputs_of(backend, random_inputs(network, 200, seed=seed), 200)
    suspects = some_suspects(backend, ["conv1"], 6, seed=seed)
    fast = FastEvaluator(backend, fitness_inputs, suspects)
    assert fast.source.route.name == "channels, convolution"
    assert_same_search(PlainEvaluator(backend, fitness_inputs, suspects), fast, population=10, generations=6)


NASTY = {
    "torch": (147, 1000, 1001, 1002, 1003),
    "onnx": (71, 625, 1839, 2757, 1000),  # weights as they were, few changed channels, few inputs to compare
    "keras": (22, 48, 1429),  # numbers that overflow, few inputs
}


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
def test_nasty_candidates_get_the_same_decisions(name: str, networks_in: Callable[[str], ModuleType]) -> None:
    findings = Findings()
    for seed in NASTY[name]:
        check(seed, (networks_in(name).build,), findings)
    assert findings.decisions > 50
    assert not findings.failed, findings
