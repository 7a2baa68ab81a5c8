"""Gradients of exported models against the framework they came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto
from torch import nn

from arachne.decisions.losses import cross_entropy, squared_probability_change
from arachne.model.cut import PlainCut
from arachne.model.values import Array
from arachne_onnx import OnnxBackend
from tests.backends.onnx_architectures import ARCHITECTURES, by_dynamo, by_tracing, make

pytestmark = pytest.mark.backend("onnx")

TOLERANCE = 1e-4
N_INPUTS = 5
NEWEST = 24


def autograd(network: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, tuple[Array, Array]]:
    """Every parameter of a torch network, and the gradient of the mean cross-entropy, by its name.

    Packed projections of attention are three parameters each, as they are three layers.
    """
    loss = nn.functional.cross_entropy(network(inputs), labels)
    named = dict(network.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    pairs = {
        name: (value.detach().numpy(), gradient.numpy())
        for (name, value), gradient in zip(named.items(), found, strict=True)
        if gradient is not None
    }
    for packed in [name for name in pairs if "in_proj" in name]:
        parts = zip("qkv", *(np.split(array, 3) for array in pairs.pop(packed)), strict=True)
        pairs |= {f"{packed}.{part}": (value, gradient) for part, value, gradient in parts}
    return pairs


def errors(
    backend: OnnxBackend, inputs: Array, labels: Array, wanted: dict[str, tuple[Array, Array]]
) -> dict[str, float]:
    """Relative error of every gradient that has a counterpart in torch.

    Counterparts are found by content: the exporter may have folded a batch norm into a convolution, and then each
    output channel of the weight is torch's times a factor, and its gradient torch's divided by it. A near-tie of a ReLU
    or a maximum falls to different sides in two runtimes; it moves with the inputs, a wrong rule does not, so `worst`
    takes the best of two draws.
    """
    found = {}
    largest = max(float(np.linalg.norm(gradient)) for _, gradient in wanted.values())
    for (layer, parameter), gradient in backend.weight_gradients(inputs, cross_entropy(labels)).items():
        value = backend.get_weights(layer)[parameter]
        for name, (weight, expected) in wanted.items():
            factor = channel_factor(value, weight)
            if factor is not None:
                scaled = expected / factor
                # The bias of keys shifts whole rows of a softmax: its gradient is zero but for rounding.
                zero = name.endswith((".key.bias", ".in_proj_bias.k"))
                scale = 0.0 if zero else float(np.linalg.norm(scaled))
                error = float(np.linalg.norm(gradient - scaled)) / (scale or 1e-2 * largest)
                found[f"{layer}.{parameter} = {name}"] = error
    return found


def channel_factor(value: Array, weight: Array) -> Array | None:
    """Return the factor of each output channel from one weight to the other; None if nothing does."""
    if value.shape != weight.shape:
        return None
    if np.allclose(value, weight, rtol=1e-6, atol=1e-7):
        return np.ones((1,) * value.ndim, np.float32)
    if value.ndim < 3:
        return None
    rows, others = value.reshape(len(value), -1), weight.reshape(len(weight), -1)
    factor = (rows * others).sum(1) / (others * others).sum(1)
    if not np.allclose(rows, factor[:, None] * others, rtol=1e-4, atol=1e-6):
        return None
    return np.asarray(factor.reshape(-1, *(1,) * (value.ndim - 1)))


def worst(name: str, network: nn.Module, model: ModelProto) -> tuple[float, int]:
    """The largest error over all gradients, and how many were compared."""
    backend = OnnxBackend.load(model)
    best: dict[str, float] = {}
    for seed in (1, 2):
        torch.manual_seed(seed)
        inputs, labels = ARCHITECTURES[name].inputs(N_INPUTS), torch.arange(N_INPUTS) % 5
        expected = network(inputs).detach().numpy()
        np.testing.assert_allclose(backend.forward(inputs.numpy()), expected, rtol=1e-3, atol=1e-4)
        for key, error in errors(backend, inputs.numpy(), labels.numpy(), autograd(network, inputs, labels)).items():
            best[key] = min(error, best.get(key, np.inf))
    return max(best.values()), len(best)


def weight_matrices(name: str, network: nn.Module) -> int:
    """How many kernels and matrices the scores of a network depend on; norms may be folded away."""
    found = autograd(network, ARCHITECTURES[name].inputs(2), torch.tensor([0, 1]))
    return len([key for key, (value, _) in found.items() if value.ndim > 1 and "weight" in key])


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_gradients_of_traced_exports_agree_with_autograd(name: str) -> None:
    network = make(name)
    model = by_tracing(network, ARCHITECTURES[name].inputs(3), 17)
    error, compared = worst(name, network, model)
    assert error <= TOLERANCE
    assert compared >= weight_matrices(name, network)


DYNAMO = {
    **dict.fromkeys(("cnn", "resnet18", "mobilenet_v2", "mobilenet_v3", "efficientnet", "vgg", "densenet"), 18),
    **dict.fromkeys(("gru", "bert"), 18),
    "lstm": 20,
    **dict.fromkeys(("mlp", "vit"), NEWEST),
}
"""The opset each network is exported at; a stacked LSTM and a plain RNN say nothing that these do not."""


@pytest.mark.parametrize(("name", "opset"), DYNAMO.items())
def test_gradients_of_dynamo_exports_agree_with_autograd(name: str, opset: int) -> None:
    """Every kernel and matrix is compared, also where the exporter has folded the batch norm behind it (`errors`)."""
    network = make(name)
    model = by_dynamo(network, ARCHITECTURES[name].inputs(3), opset)
    error, compared = worst(name, network, model)
    assert error <= TOLERANCE
    assert compared >= weight_matrices(name, network)


def test_layers_are_called_as_in_the_framework() -> None:
    network = make("resnet18")
    backend = OnnxBackend.load(by_tracing(network, ARCHITECTURES["resnet18"].inputs(3), 17))
    names = [info.name for info in backend.layers]
    assert names[0] == "conv1"
    assert names[-1] == "fc"
    assert "stages.2.0.conv1" in names
    assert "stages.2.0.skip.0" in names


def test_recurrent_weights_have_torch_gates_in_torch_order() -> None:
    network: Any = make("lstm_stacked")
    backend = OnnxBackend.load(by_tracing(network, ARCHITECTURES["lstm_stacked"].inputs(3), 17))
    recurrent = [info.name for info in backend.layers if info.kind == "recurrent"]
    assert recurrent == ["rnn", "rnn_reverse", "rnn_1", "rnn_1_reverse"]
    for layer, suffix in zip(recurrent, ["_l0", "_l0_reverse", "_l1", "_l1_reverse"], strict=True):
        for parameter, values in backend.get_weights(layer).items():
            np.testing.assert_array_equal(values, getattr(network.rnn, f"{parameter}{suffix}").detach().numpy())


@pytest.mark.parametrize("name", ["lstm", "gru", "vit", "bert", "resnet18"])
def test_a_cut_at_any_layer_gives_the_scores_of_the_whole_model(name: str) -> None:
    network = make(name)
    inputs = ARCHITECTURES[name].inputs(7).numpy()
    backend = OnnxBackend.load(by_tracing(network, ARCHITECTURES[name].inputs(3), 17))
    scores, rows = backend.forward(inputs), np.array([6, 0, 3, 3])
    for info in backend.layers[:: max(1, len(backend.layers) // 4)]:
        weights = {(info.name, parameter): v for parameter, v in backend.get_weights(info.name).items()}
        cut = backend.cut(inputs, [info.name])
        assert type(cut).__name__ == "OnnxCut"
        np.testing.assert_allclose(cut.scores_with(weights, rows), scores[rows], rtol=1e-4, atol=1e-5)
        if cut.continues_from_outputs:
            continued = cut.scores_from_outputs(cut.outputs(rows), rows)
            np.testing.assert_allclose(continued, scores[rows], rtol=1e-4, atol=1e-5)
        plain = PlainCut(backend, inputs, [info.name])
        loss = squared_probability_change(scores[rows, ::-1])
        found, expected = cut.weight_gradients(weights, loss, rows), plain.weight_gradients(weights, loss, rows)
        assert set(found) == set(weights)
        for place, gradient in expected.items():
            np.testing.assert_allclose(found[place], gradient, rtol=1e-3, atol=1e-5)


def test_what_leaves_a_recurrent_layer_are_its_gates_before_the_non_linearity() -> None:
    network: Any = make("lstm")
    inputs = ARCHITECTURES["lstm"].inputs(4)
    backend = OnnxBackend.load(by_tracing(network, inputs, 17))
    (use,) = backend.activations(inputs.numpy(), "rnn")
    weights = backend.get_weights("rnn")
    products = use.entering["weight_ih"] @ weights["weight_ih"].T + use.entering["weight_hh"] @ weights["weight_hh"].T
    np.testing.assert_allclose(use.leaving, products + weights["bias_ih"] + weights["bias_hh"], atol=1e-5)
    np.testing.assert_allclose(use.entering["weight_ih"], network.embedding(inputs).detach().numpy(), atol=1e-6)
    states = network.rnn(network.embedding(inputs))[0].detach().numpy()
    np.testing.assert_allclose(use.entering["weight_hh"][:, 1:], states[:, :-1], atol=1e-5)


class Looping(nn.Module):
    """A recurrence written as a loop, which TorchScript keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.recurrence, self.out = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.size(0), 5)
        for i in range(x.size(1)):
            state = torch.tanh(self.kernel(x[:, i]) + self.recurrence(state))
        scores: torch.Tensor = self.out(state)
        return scores


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_layers_inside_a_loop_that_torch_has_exported_have_torchs_gradients(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, inputs, labels = Looping(), torch.randn(N_INPUTS, 4, 3), torch.arange(N_INPUTS) % 3
    jit: Any = torch.jit
    options: Any = {"dynamo": False, "input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}, "opset_version": 17}
    torch.onnx.export(jit.script(network), (inputs[:2],), str(tmp_path / "net.onnx"), **options)
    backend = OnnxBackend.load(tmp_path / "net.onnx")
    assert {info.name: info.uses for info in backend.layers} == {"kernel": 4, "recurrence": 4, "out": 1}
    found = backend.weight_gradients(inputs.numpy(), cross_entropy(labels.numpy()))
    for name, (_, expected) in autograd(network, inputs, labels).items():
        layer, _, parameter = name.rpartition(".")
        np.testing.assert_allclose(found[layer, parameter], expected, atol=TOLERANCE, err_msg=name)
