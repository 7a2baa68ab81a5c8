"""Ratios of the ONNX backend, all measured in one run: gradients against autograd, candidates against new sessions.

    python -m benchmarks.onnx            everything, about a minute
    python -m benchmarks.onnx gradients  only one of: gradients, candidates, recurrent

Both sides of a ratio run on one processor and take the least of a few repetitions, in turns. Times are the processor's,
so that other programs on the machine do not count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn

from arachne.adapting.side_by_side import allowed_threads
from arachne.decisions.losses import cross_entropy
from arachne.model.values import Array
from arachne_onnx import OnnxBackend
from arachne_onnx.running import Runner
from benchmarks.timing import clock, least
from tests.backends.onnx_architectures import Recurrent, ResNet18, by_tracing, shake_weights


def mlp() -> nn.Module:
    """The paper's network for Fashion-MNIST."""
    return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


def cnn() -> nn.Module:
    """Two convolutions and two dense layers on 28 × 28."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 49, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


SUBJECTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "MLP": (mlp, (784,), 1024),
    "CNN": (cnn, (1, 28, 28), 128),
    "ResNet-18": (lambda: ResNet18(64, 10), (3, 64, 64), 16),
}
"""Network, shape of one input, inputs per gradient."""


def main(parts: list[str]) -> None:
    """Print one line per ratio."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(allowed_threads())
    torch.manual_seed(0)
    for name, part in {"gradients": gradients, "candidates": candidates, "recurrent": recurrent}.items():
        if not parts or name in parts:
            part()


def gradients() -> None:
    """The gradient of all weights, one batch."""
    for name, (make, shape, n) in SUBJECTS.items():
        network = shake_weights(make())
        x, y = torch.randn(n, *shape), torch.arange(n) % 10
        backend = OnnxBackend.load(by_tracing(network, x[:2], 17))
        parameters = list(network.parameters())
        ours = partial(backend.weight_gradients, x.numpy(), cross_entropy(y.numpy()))
        a, b = least(ours, partial(autograd, network, parameters, x, y))
        print(f"gradient of all weights, {name}: {a * 1e3:.1f} ms, {a / b:.2f} x torch autograd (at most 1.5)")


def autograd(network: nn.Module, parameters: list[nn.Parameter], x: torch.Tensor, y: torch.Tensor) -> object:
    """Take the gradient in torch."""
    return torch.autograd.grad(nn.functional.cross_entropy(network(x), y), parameters)


def candidates() -> None:
    """A candidate that touches one layer, against a new session for its weights."""
    wanted = {"MLP": (5000, "2", 50), "CNN": (2000, "9", 300), "ResNet-18": (64, "stages.3.1.conv2", 5)}
    for name, (n, layer, goal) in wanted.items():
        make, shape, _ = SUBJECTS[name]
        network = shake_weights(make())
        x = torch.randn(n, *shape).numpy()
        backend = OnnxBackend.load(by_tracing(network, torch.zeros(2, *shape), 17))
        weight = backend.get_weights(layer)["weight"]
        weight.reshape(-1)[:: weight.size // 8] += np.float32(0.1)  # as many as a search changes
        weights = {(layer, "weight"): weight}
        cut = backend.cut(x, [layer])

        a, b = least(partial(cut.scores_with, weights), partial(scores_of_a_new_session, backend._runner, x))
        print(f"candidate at '{layer}', {name}, {n} inputs: {a * 1e3:.2f} ms, {b / a:.0f} x faster (at least {goal})")


def scores_of_a_new_session(runner: Runner, inputs: Array) -> Array:
    """Run a candidate without a cut: a session with its weights, and all inputs through it."""
    program = runner.whole(runner.graph, [runner.graph.scores])
    parts = [program.run(feeds)[runner.graph.scores][:n] for feeds, n in runner.batches(inputs)]
    return np.concatenate(parts)


def recurrent() -> None:
    """The time to build the gradient session of an LSTM does not depend on its steps."""
    seconds = {}
    for steps in (12, 100):
        network = Recurrent(nn.LSTM).eval()
        x = torch.randint(0, 30, (8, steps))
        backend = OnnxBackend.load(by_tracing(network, x, 17))
        backend.forward(x.numpy())
        start = clock()
        backend.weight_gradients(x.numpy(), cross_entropy(np.arange(8) % 5))
        seconds[steps] = clock() - start
    print(
        f"LSTM, first gradient with its session: {seconds[100] / seconds[12]:.2f} x for 100 steps against 12 (under 3)"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
