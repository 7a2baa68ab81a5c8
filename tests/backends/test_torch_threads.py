"""Arachne computes with one thread in torch and NumPy, and leaves the numbers of threads as they were."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

import arachne
from arachne.decisions.losses import cross_entropy
from arachne.model.fitting import Plan
from arachne.scoring import threads

pytestmark = pytest.mark.backend("torch")
BEFORE = 3


class Telling(nn.Module):
    """A network that notes how many threads it runs with, forwards and backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.seen: set[int] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add(torch.get_num_threads())
        hidden = torch.relu(self.first(x))
        if hidden.requires_grad:
            hook = lambda gradient: self.seen.add(torch.get_num_threads())  # noqa: E731
            hidden.register_hook(hook)  # type: ignore[no-untyped-call]  # torch has no type for it
        found: Tensor = self.last(hidden)
        return found


@pytest.fixture
def network() -> Iterator[Telling]:
    before = torch.get_num_threads()
    torch.set_num_threads(BEFORE)
    torch.manual_seed(0)
    yield Telling()
    assert torch.get_num_threads() == BEFORE
    torch.set_num_threads(before)


def test_every_operation_runs_on_one_thread(network: Telling) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 6)).astype(np.float32), rng.integers(0, 3, 12)
    backend, loss = arachne.load(network), cross_entropy(y)
    backend.forward(x)
    backend.activations(x, "first")
    backend.forward_through(x, "first")
    backend.weight_gradients(x, loss)
    backend.input_gradients(x, loss)
    backend.output_gradients(x, "first", np.ones((12, 3), np.float32))
    backend.trace(x, ["first"]).output_gradients(np.ones((12, 3), np.float32))
    backend.fit(x, y, Plan(epochs=1, seed=0), on_step=lambda step: False)
    cut = backend.cut(x, ["first"])
    cut.outputs()
    cut.scores_with({})
    cut.weight_gradients({}, loss)
    assert network.seen == {1}


def test_the_number_is_restored_after_an_error(network: Telling) -> None:
    with pytest.raises(arachne.ArachneError):
        arachne.load(network).forward(np.zeros((2, 5), np.float32))


def test_a_repair_has_one_thread_for_numpy_and_gives_the_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [4]
    monkeypatch.setattr(threads, "_switch", lambda: (lambda: now[0], lambda number: now.__setitem__(0, number)))
    seen: set[int] = set()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 6)).astype(np.float32)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    predicted = arachne.load(network).forward(x).argmax(axis=1)
    y = np.where(rng.random(200) < 0.2, (predicted + 1) % 3, predicted)
    arachne.repair(network, (x, y), "top:1", on_step=lambda step: seen.add(now[0]), accept_near_chance=True)
    assert seen == {1}
    assert now == [4]
