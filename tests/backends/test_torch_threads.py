"""Arachne computes with one thread in torch and NumPy, leaves the numbers of threads as they were, and gives the same
bits for any number of batches at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

import arachne
from arachne.adapting import side_by_side
from arachne.data.norm_moments import NormAccumulator, estimate_again
from arachne.decisions.losses import cross_entropy
from arachne.model.fitting import Plan
from arachne.model.values import Activation, Array
from arachne.scoring import threads
from arachne_torch.adapter import TorchBackend

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
    monkeypatch.setattr(threads, "_switches", lambda: ((lambda: now[0], lambda number: now.__setitem__(0, number)),))
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


class Noting(nn.Module):
    """A network that keeps what it computes in itself, and reads it again a moment later."""

    ran_in: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)
        self.middle = [nn.Conv2d(4, 4, 3, padding=1)]  # in a list, as torch does not find it
        self.add_module("kernel", self.middle[0])
        self.kept: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.ran_in.add(threading.current_thread().name)
        self.hidden = torch.relu(self.norm(self.first(x)))
        self.kept["pooled"] = self.middle[0](self.hidden).mean((2, 3))
        if not torch.is_grad_enabled():
            time.sleep(0.001)
        self.pooled = self.kept["pooled"] + self.hidden.mean((2, 3))
        found: Tensor = self.last(self.pooled)
        return found


class Drawing(Noting):
    """A network that draws random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(())


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> Array:
    """Make pictures, and let threads run however short a batch is."""
    monkeypatch.setattr(side_by_side, "MIN_SECONDS", 0.0)
    Noting.ran_in.clear()
    torch.manual_seed(0)
    return np.random.default_rng(0).normal(size=(90, 2, 6, 6)).astype(np.float32)


def by_batches(network: nn.Module, inputs: Array, rows: int = 8) -> TorchBackend:
    """Open a network that runs so many inputs at a time."""
    backend = arachne.load(network.eval())
    assert isinstance(backend, TorchBackend)
    backend.look(inputs)
    backend._runner.rows = backend._runner.passing_rows = rows
    return backend


def arrays_of(use: Activation | None) -> list[Array]:
    assert use is not None
    return [*use.entering.values(), use.leaving]


def test_any_number_of_batches_at_once_gives_the_same_bits(pictures: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    network, loss = Noting(), cross_entropy(rng.integers(0, 3, 90))
    backend = by_batches(network, pictures)
    kernel = backend.get_weights("kernel")["weight"] + 0.1
    found: dict[int, list[Array]] = {}
    for number in (1, 2, 4):
        monkeypatch.setenv("ARACHNE_THREADS", str(number))
        scores, (use,) = backend.forward_through(pictures, "kernel")
        cut = backend.cut(pictures, ["kernel"])
        changed = {("kernel", "weight"): kernel}
        gradients = cut.weight_gradients(changed, loss)
        found[number] = [backend.forward(pictures), scores, *arrays_of(use), *arrays_of(cut.activation(np.arange(90)))]
        found[number] += [cut.scores_with(changed), *gradients.values(), backend.cut(pictures, ["first"]).outputs()]
        assert (len(Noting.ran_in) > 1) == (number > 1)
    for number in (2, 4):
        for expected, given in zip(found[1], found[number], strict=True):
            np.testing.assert_array_equal(given, expected)
    for passed, cut_there in zip(found[1][2:4], found[1][4:6], strict=True):
        np.testing.assert_allclose(cut_there, passed, rtol=1e-5, atol=1e-6)


def test_a_repair_gives_the_same_patch_for_any_number(pictures: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Noting()
    predicted = by_batches(network, pictures).predict(pictures)
    labels = np.where(np.random.default_rng(2).random(90) < 0.3, (predicted + 1) % 3, predicted)
    patches = []
    for number in (1, 2, 4):
        monkeypatch.setenv("ARACHNE_THREADS", str(number))
        backend = by_batches(network, pictures)
        patches.append(arachne.repair(backend, (pictures, labels), "*:*", accept_near_chance=True, budget=None).patch)
    assert patches[0].changes
    assert len({patch.digest for patch in patches}) == 1
    assert len(Noting.ran_in) > 1


@pytest.mark.parametrize("kind", ["draws", "hooked", "derived"])
def test_a_model_that_cannot_be_copied_runs_in_one_thread(
    kind: str, pictures: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARACHNE_THREADS", "4")
    network = Drawing() if kind == "draws" else Noting()
    if kind == "hooked":
        network.first.register_forward_hook(lambda *_: None)
    if kind == "derived":
        torch.nn.utils.parametrizations.weight_norm(network.last)
    by_batches(network, pictures).forward(pictures)
    assert Noting.ran_in == {threading.main_thread().name}


def test_estimating_statistics_again_ends_a_pass_at_its_layer(pictures: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten()
    )
    backend = by_batches(nn.Sequential(network, nn.Linear(16, 3)), pictures)
    norms, ran = [info.name for info in backend.layers if info.kind == "norm"], []
    network[3].register_forward_hook(lambda *_: ran.append("second"))
    network[5].register_forward_hook(lambda *_: ran.append("end"))
    short = estimate_again(backend, norms, pictures)
    batches = -(-len(pictures) // 8)
    assert ran == ["second"] * batches  # the pass for the first norm ends before it, that for the second behind it
    monkeypatch.setattr(NormAccumulator, "is_enough", lambda *_: False)
    whole = estimate_again(backend, norms, pictures)
    assert "end" in ran
    assert short.keys() == whole.keys()
    for key, values in short.items():
        np.testing.assert_array_equal(values, whole[key])
