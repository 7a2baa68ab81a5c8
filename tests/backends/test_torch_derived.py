"""Weights that torch modules compute from parameters: weight norm, old and new, and parametrisations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from arachne.decisions.losses import cross_entropies, cross_entropy
from arachne.model.values import Array
from arachne_torch import TorchBackend
from tests.commands import arachne

torch.set_num_threads(1)

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")

Norm = Callable[..., Any]
NORMS = pytest.mark.parametrize("norm", [parametrizations.weight_norm, nn.utils.weight_norm], ids=["new", "old"])


class Net(nn.Module):
    def __init__(self, norm: Norm) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = norm(nn.Conv2d(1, 3, 3))
        self.lstm = norm(nn.LSTM(4, 5, batch_first=True), "weight_hh_l0")
        self.whole = norm(nn.Linear(5, 6), dim=None)
        self.columns = norm(nn.Linear(6, 3), dim=1)
        self.cell = norm(nn.GRUCell(3, 3), "weight_ih")

    def forward(self, x: Tensor) -> Any:
        states, _ = self.lstm(torch.relu(self.conv(x)).mean(1))
        return 3 * self.cell(self.columns(torch.tanh(self.whole(states[:, -1]))))


def images(n: int = 6) -> Array:
    return np.random.default_rng(0).normal(size=(n, 1, 6, 6)).astype(np.float32)


def outputs(model: nn.Module) -> Array:
    with torch.no_grad():
        return np.asarray(model(torch.from_numpy(images())))


@NORMS
def test_weights_of_weight_norm_are_layers_like_others(norm: Norm) -> None:
    model = Net(norm).eval()
    backend = TorchBackend.load(model)
    names = ["conv", "lstm.l0", "whole", "columns", "cell"]
    assert [info.name for info in backend.layers] == names
    np.testing.assert_array_equal(backend.forward(images()), outputs(model))
    assert [info.name for info in backend.layers] == names
    assert backend.unreachable == {}
    np.testing.assert_array_equal(backend.get_weights("conv")["weight"], model.conv.weight.detach())


@NORMS
def test_gradients_of_weight_norm_agree_with_finite_differences(norm: Norm) -> None:
    backend, x, labels = TorchBackend.load(Net(norm).double()), images().astype(np.float64), np.arange(6) % 3
    rng = np.random.default_rng(1)
    for (layer, parameter), gradient in backend.weight_gradients(x, cross_entropy(labels)).items():
        weights = backend.get_weights(layer)[parameter]
        for _ in range(3):
            place = tuple(int(rng.integers(size)) for size in weights.shape)
            losses = []
            for sign in (1, -1):
                moved = weights.copy()
                moved[place] += sign * 1e-3
                backend.set_weights(layer, parameter, moved)
                losses.append(float(cross_entropies(backend.forward(x).astype(np.float64), labels).mean()))
            backend.set_weights(layer, parameter, weights)
            expected = (losses[0] - losses[1]) / 2e-3
            assert gradient[place] == pytest.approx(expected, rel=1e-2, abs=3e-4), (layer, parameter, place)


@NORMS
def test_setting_a_weight_sets_what_it_is_made_from_and_back_again(norm: Norm) -> None:
    model = Net(norm).eval()
    backend = TorchBackend.load(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rng = np.random.default_rng(2)
    for layer, parameter in (("conv", "weight"), ("lstm.l0", "weight_hh"), ("whole", "weight"), ("columns", "weight")):
        weights = backend.get_weights(layer)[parameter]
        moved = weights.copy()
        moved.flat[3] += 0.5
        moved[0] = 0
        moved[1] = rng.normal(size=moved[1].shape)
        backend.set_weights(layer, parameter, moved)
        np.testing.assert_array_equal(backend.get_weights(layer)[parameter], moved)
        np.testing.assert_array_equal(backend.forward(images()), outputs(model))
        assert np.isfinite(backend.forward(images())).all()
        backend.set_weights(layer, parameter, weights)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@NORMS
def test_traces_and_cuts_see_the_weight(norm: Norm) -> None:
    backend = TorchBackend.load(Net(norm).eval())
    x = images()
    trace = backend.trace(x, ["conv", "whole"])
    weights = backend.get_weights("whole")
    (seen,) = trace.activations["whole"]
    leaving = seen.entering["weight"] @ weights["weight"].T + weights["bias"]
    np.testing.assert_allclose(seen.leaving, leaving, atol=1e-5)
    cut = backend.cut(x, ["whole"])
    changed = weights["weight"] * np.float32(1.5)
    found = cut.scores_with({("whole", "weight"): changed})
    backend.set_weights("whole", "weight", changed)
    np.testing.assert_array_equal(found, backend.forward(x))


@NORMS
def test_a_weight_file_has_the_weight_and_takes_it(tmp_path: Path, norm: Norm) -> None:
    model = Net(norm).eval()
    backend = TorchBackend.load(model)
    torch.save(model.state_dict(), tmp_path / "net.pt")
    file = TorchBackend.weight_file(tmp_path / "net.pt")
    addresses = {(info.name, parameter) for info in backend.layers for parameter in info.parameters}
    assert addresses == set(file.parameters())
    for layer, parameter in addresses:
        np.testing.assert_array_equal(file.read(layer, parameter), backend.get_weights(layer)[parameter])
    weights = file.read("conv", "weight")
    weights[1, 0, 2, 2] = 1.25
    file.rewrite(tmp_path / "new.pt", {("conv", "weight"): weights})
    np.testing.assert_array_equal(TorchBackend.weight_file(tmp_path / "new.pt").read("conv", "weight"), weights)
    state = torch.load(tmp_path / "new.pt")
    same = [name for name, tensor in model.state_dict().items() if torch.equal(state[name], tensor)]
    assert len(same) == len(state) - 2
    lengths = next(name for name in state if name.startswith("conv") and name not in same)
    assert torch.equal(state[lengths][[0, 2]], model.state_dict()[lengths][[0, 2]])
    model.load_state_dict(state)
    np.testing.assert_array_equal(TorchBackend.load(model).get_weights("conv")["weight"], weights)


def test_a_patch_found_on_weight_norm_travels_to_an_onnx_export(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    norm = parametrizations.weight_norm
    torch.manual_seed(0)
    layers = OrderedDict(flat=nn.Flatten(), hidden=norm(nn.Linear(36, 8)), relu=nn.ReLU(), scores=norm(nn.Linear(8, 3)))
    model = nn.Sequential(layers).eval()
    backend = TorchBackend.load(model)
    backend.forward(images())
    backend.save(tmp_path / "before.pt")
    backend.export_onnx(tmp_path / "net.onnx", inputs=images(2))
    weights = backend.get_weights("hidden")["weight"]
    weights[2, 5] += 0.5
    backend.set_weights("hidden", "weight", weights)
    backend.save(tmp_path / "after.pt")
    made = arachne("diff", "before.pt", "after.pt", "-o", "patch.json", "--json", cwd=tmp_path)
    assert made.code == 0, made.err
    assert "1 weight in 1 tensor" in arachne("show", "patch.json", cwd=tmp_path).out
    for name in ("before.pt", "net.onnx"):
        applied = arachne("apply", "patch.json", name, "-o", f"patched{Path(name).suffix}", cwd=tmp_path)
        assert applied.code == 0, applied.err
    onnx = pytest.importorskip("arachne_onnx").OnnxBackend.load(tmp_path / "patched.onnx")
    np.testing.assert_allclose(onnx.forward(images()), backend.forward(images()), atol=1e-5)
    reverted = arachne("revert", "patch.json", "patched.pt", "-o", "reverted.pt", cwd=tmp_path)
    assert reverted.code == 0, reverted.err
    first, last = (TorchBackend.weight_file(tmp_path / name) for name in ("before.pt", "reverted.pt"))
    np.testing.assert_array_equal(first.read("hidden", "weight"), last.read("hidden", "weight"))


class Doubled(nn.Module):
    def forward(self, original: Tensor) -> Tensor:
        return 2 * original

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight / 2


class Symmetric(nn.Module):
    def forward(self, original: Tensor) -> Tensor:
        return original.triu() + original.triu(1).T


def parametrise(step: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(OrderedDict(flat=nn.Flatten(), fc=nn.Linear(36, 36), out=nn.Linear(36, 3)))
    parametrize.register_parametrization(model.get_submodule("fc"), "weight", step)
    return model


def test_a_parametrisation_of_ones_own_with_an_inverse_is_repaired() -> None:
    model = parametrise(Doubled())
    backend = TorchBackend.load(model)
    weights = backend.get_weights("fc")["weight"] + np.float32(0.25)
    backend.set_weights("fc", "weight", weights)
    np.testing.assert_array_equal(model.get_parameter("fc.parametrizations.weight.original").detach() * 2, weights)
    np.testing.assert_array_equal(backend.forward(images()), outputs(model))


@pytest.mark.parametrize("kind", ["spectral", "orthogonal", "symmetric", "old spectral"])
def test_a_parametrisation_that_allows_only_some_weights_is_explained(kind: str) -> None:
    if kind == "symmetric":
        model = parametrise(Symmetric())
    else:
        model = nn.Sequential(OrderedDict(flat=nn.Flatten(), fc=nn.Linear(36, 36), out=nn.Linear(36, 3)))
        wrap: Any = {"spectral": parametrizations.spectral_norm, "orthogonal": parametrizations.orthogonal}.get(
            kind, nn.utils.spectral_norm
        )
        wrap(model.fc)
    backend = TorchBackend.load(model)
    backend.forward(images())
    assert [info.name for info in backend.layers] == ["out"]
    reason = next(reason for name, reason in backend.unreachable.items() if "orig" in name)
    assert "allows only some weights" in reason
    assert "remove_" in reason
