"""Layers of a PyTorch model, and what is none, with the reason; names in files; unusual outputs and inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from arachne.errors import ModelError, UsageError
from arachne_torch import TorchBackend
from tests.backends.layer_checks import check_all

torch.set_num_threads(1)

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
LABELS = np.arange(5) % 3


class Odd(nn.Module):
    """Weights in all the places where they cannot be repaired."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(4, 4)
        self.normed = parametrizations.orthogonal(nn.Linear(4, 4))
        self.pair = nn.Bilinear(4, 4, 4)
        self.gain = nn.Parameter(torch.ones(4))
        self.unused = nn.Linear(4, 2)
        self.mixer = nn.Linear(5, 5)
        self.register_parameter("codes", nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.normed(torch.tanh(self.fc(x))) * self.gain
        return self.head(self.pair(x, x))


def test_what_cannot_be_repaired_is_told_with_the_reason() -> None:
    backend = TorchBackend.load(Odd())
    assert "codes" in backend.unreachable
    backend.forward(X)
    assert [info.name for info in backend.layers] == ["fc", "head"]
    reasons = backend.unreachable
    assert "remove_parametrizations" in reasons["normed.parametrizations.weight.original"]
    assert "'bilinear'" in reasons["pair.weight"]
    assert "'mul'" in reasons["gain"]
    assert reasons["unused.weight"] == "no call of the forward pass uses it"
    assert "int8" in reasons["codes"]
    stored = {f"{info.name}.{name}" for info in backend.layers for name in info.parameters}
    assert stored | set(reasons) == {name for name, _ in Odd().named_parameters()}


def test_a_layer_that_mixes_the_inputs_of_a_batch_is_left_out() -> None:
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Any:
            alike = x @ x.T  # (n, n): what each input is to each other
            rows = alike[:, :, None].expand(-1, -1, 4)
            return self.head(x) + self.fc(rows).mean() * 0

    backend = TorchBackend.load(Mixing())
    backend.forward(X)
    assert [info.name for info in backend.layers] == ["head"]
    assert "mixes the inputs" in backend.unreachable["fc.weight"]


def test_a_model_without_any_layer_says_why() -> None:
    backend = TorchBackend.load(parametrizations.spectral_norm(nn.Linear(4, 3)))
    with pytest.raises(ModelError, match=r"no layer that can be repaired: .* parametrisation"):
        backend.forward(X)


def test_a_decoder_tied_to_its_encoder_tells_the_use_that_is_turned() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.encoder, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Any:
            return self.head(functional.linear(torch.tanh(self.encoder(x)), self.encoder.weight.t()))

    backend = TorchBackend.load(Tied())
    first, second = backend.activations(X, "encoder")
    assert (first.transposed, second.transposed) == (False, True)
    np.testing.assert_allclose(
        second.leaving, second.entering["weight"] @ backend.get_weights("encoder")["weight"], atol=1e-6
    )
    check_all(backend, X, LABELS)


@dataclass
class Answer:
    """A model's answer with more in it than scores."""

    logits: Tensor
    attention: Tensor


@pytest.mark.parametrize("form", ["softmax", "log_softmax", "dict", "dataclass", "tuple"])
def test_every_form_of_output_is_read(form: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.rnn, self.head = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Any:
            logits = self.head(self.rnn(x.reshape(len(x), 2, 2))[0][:, -1])
            if form in ("softmax", "log_softmax"):
                return getattr(functional, form)(logits, dim=1)
            forms: dict[str, Any] = {
                "dict": {"scores": logits, "extra": x},
                "dataclass": Answer(logits, x),
                "tuple": (x, logits),
            }
            return forms[form]

    output = {"dict": "scores", "tuple": "1"}.get(form)
    backend = TorchBackend.load(Model(), output=output)
    plain = Model()
    with torch.no_grad():
        expected = plain.head(plain.rnn(torch.from_numpy(X).reshape(5, 2, 2))[0][:, -1]).numpy()
    np.testing.assert_allclose(backend.forward(X), expected, atol=1e-6)
    check_all(backend, X, LABELS)
    if output is not None:
        with pytest.raises(ModelError, match="2 outputs, name one"):
            TorchBackend.load(Model()).forward(X)
        with pytest.raises(UsageError, match="no output 'logit'"):
            TorchBackend.load(Model(), output="logit").forward(X)


class Reading(nn.Module):
    """Recurrence and attention in one model, for files and programs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = nn.LSTM(3, 4, batch_first=True, num_layers=2, bidirectional=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        y, _ = self.rnn(x)
        return self.head(self.attention(y, y, y, need_weights=False)[0].mean(1))


SEQUENCES = np.random.default_rng(1).normal(size=(5, 6, 3)).astype(np.float32)


def test_files_and_models_have_the_same_addresses(tmp_path: Path) -> None:
    model = Reading()
    safetensors.torch.save_file(model.state_dict(), tmp_path / "net.safetensors")
    backend = TorchBackend.load(model)
    file = TorchBackend.weight_file(tmp_path / "net.safetensors")
    addresses = {(info.name, name) for info in backend.layers for name in info.parameters}
    assert set(file.parameters()) == addresses
    for layer, parameter in addresses:
        np.testing.assert_array_equal(file.read(layer, parameter), backend.get_weights(layer)[parameter])


def test_parts_of_one_stored_tensor_are_rewritten_together(tmp_path: Path) -> None:
    backend = TorchBackend.load(Reading())
    safetensors.torch.save_file(Reading().state_dict(), tmp_path / "net.safetensors")
    file = TorchBackend.weight_file(tmp_path / "net.safetensors")
    changed = {
        (f"attention.{part}", name): backend.get_weights(f"attention.{part}")[name] + 1
        for part in "qv"
        for name in ("weight", "bias")
    }
    changed["rnn.l1_reverse", "weight_hh"] = backend.get_weights("rnn.l1_reverse")["weight_hh"] + 1
    file.rewrite(tmp_path / "new.safetensors", changed)
    again = TorchBackend.weight_file(tmp_path / "new.safetensors")
    for layer, parameter in file.parameters():
        expected = changed.get((layer, parameter), file.read(layer, parameter))
        np.testing.assert_array_equal(again.read(layer, parameter), expected)


@pytest.mark.filterwarnings("ignore:The tensor attributes self.rnn._flat_weights")
def test_an_exported_program_has_the_layers_of_its_module(tmp_path: Path) -> None:
    model = Reading().eval()
    batch = torch.export.Dim("n", min=2, max=64)
    x = torch.from_numpy(SEQUENCES)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "net.pt2")
    exported, own = TorchBackend.load(tmp_path / "net.pt2"), TorchBackend.load(model)
    listed = {info.name: dict(info.parameters) for info in exported.layers}
    np.testing.assert_allclose(exported.forward(SEQUENCES), own.forward(SEQUENCES), atol=1e-5)
    assert {info.name: dict(info.parameters) for info in own.layers} == listed
    assert {info.name: dict(info.parameters) for info in exported.layers} == listed
    for info in own.layers:
        (ours,), (theirs,) = exported.activations(SEQUENCES, info.name), own.activations(SEQUENCES, info.name)
        np.testing.assert_allclose(ours.leaving, theirs.leaving, atol=1e-5)
    check_all(exported, SEQUENCES, LABELS)
