"""Weights are read from a list, a checkpoint and a whole pickled module, whose code never runs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.errors import ModelError, UnsafeModelError

pytestmark = pytest.mark.backend("torch")
torch = pytest.importorskip("torch")


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch is imported only where it is
    """A class that a pickle names and that nobody looks up."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5))
        self.head = torch.nn.Linear(5, 3)

    def forward(self, inputs: Any) -> Any:
        """Class scores."""
        return self.head(torch.relu(self.body(inputs)))


def make() -> Net:
    """The factory."""
    return Net()


WAYS: dict[str, Callable[[Net], Any]] = {
    "a list": lambda net: [net.state_dict()],
    "a pair": lambda net: (net.state_dict(), {"epoch": 3}),
    "a checkpoint": lambda net: {"model": net.state_dict(), "epoch": 3},
    "a module": lambda net: net,
    "a module in a checkpoint": lambda net: {"model": net, "epoch": 3},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_weights_are_found_wherever_they_are(way: Callable[[Net], Any], tmp_path: Path) -> None:
    net, inputs = make().eval(), np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    torch.save(way(net), tmp_path / "net.pt")
    backend = arachne.load(f"{__name__}:make", weights=tmp_path / "net.pt")
    expected = net(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_allclose(backend.forward(inputs), expected, rtol=1e-5, atol=1e-6)
    head = backend.get_weights("head")["bias"]
    backend.set_weights("head", "bias", head + 1)
    backend.save(tmp_path / "new.pt")
    again = arachne.load(f"{__name__}:make", weights=tmp_path / "new.pt")
    np.testing.assert_array_equal(again.get_weights("head")["bias"], head + 1)


def test_a_module_alone_asks_for_its_class(tmp_path: Path) -> None:
    torch.save(make(), tmp_path / "net.pt")
    with pytest.raises(UnsafeModelError, match=r"give 'module:factory' as the model and this file as its weights"):
        arachne.load(tmp_path / "net.pt")


class Evil:
    """Would make a folder if it were unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, (self.path,)


def test_nothing_of_python_itself_is_let_through(tmp_path: Path) -> None:
    net = make()
    net.evil = Evil(str(tmp_path / "made"))
    torch.save(net, tmp_path / "net.pt", pickle_module=pickle)
    with pytest.raises(UnsafeModelError, match="mkdir"):
        arachne.load(f"{__name__}:make", weights=tmp_path / "net.pt")
    assert not (tmp_path / "made").exists()


def test_a_module_inside_others_in_countless_ways_is_refused(tmp_path: Path) -> None:
    net = torch.nn.Linear(1, 1)
    for _ in range(40):
        net = torch.nn.ModuleList([net, net])
    torch.save(net, tmp_path / "net.pt")
    with pytest.raises(ModelError, match="more than 100,000 modules inside each other"):
        arachne.load(f"{__name__}:make", weights=tmp_path / "net.pt")
