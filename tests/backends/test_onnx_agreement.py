"""One network in PyTorch and in ONNX: the same activations, gradients, suspects and, with one seed, patch.

Activations and gradients agree to 1e-5 of their scale (sums in another order). Suspects and the addresses of the patch
agree exactly; its values agree to the tolerance named below. The networks are smooth, so no ReLU is at its kink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.data.labelled import LabelledData
from arachne.decisions.losses import cross_entropy
from arachne.model.backend import ModelBackend
from arachne.testing import Network
from arachne.testing.networks import convnet, mlp, random_inputs, residual
from tests.backends.onnx_networks import build

pytestmark = [pytest.mark.backend("onnx"), pytest.mark.backend("torch")]

NETWORKS: dict[str, Callable[[], Network]] = {
    "mlp": lambda: mlp([6, 12, 4], activation="tanh"),
    "convnet": lambda: convnet(activation="tanh"),
    "residual": lambda: residual(activation="tanh"),
}


@pytest.fixture(params=sorted(NETWORKS))
def pair(request: pytest.FixtureRequest, networks_in: Callable[[str], ModuleType]) -> tuple[Any, Any, Network]:
    network = NETWORKS[request.param]()
    return networks_in("torch").build(network), build(network), network


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, float(np.abs(b).max())))


def test_scores_activations_and_gradients_agree(pair: tuple[ModelBackend, ModelBackend, Network]) -> None:
    torch_model, onnx_model, network = pair
    inputs = random_inputs(network, 20)
    labels = torch_model.predict(inputs)
    close(onnx_model.forward(inputs), torch_model.forward(inputs))
    gradients, expected = (
        onnx_model.weight_gradients(inputs, cross_entropy(labels)),
        torch_model.weight_gradients(inputs, cross_entropy(labels)),
    )
    seed = np.random.default_rng(0).normal(size=torch_model.forward(inputs).shape).astype(np.float32)
    assert [info.name for info in onnx_model.layers] == [info.name for info in torch_model.layers]
    for info in torch_model.layers:
        assert replace(onnx_model.info(info.name), followed_by=None) == replace(info, followed_by=None)
        (ours,), (theirs,) = onnx_model.activations(inputs, info.name), torch_model.activations(inputs, info.name)
        close(ours.leaving, theirs.leaving)
        close(ours.entering["weight"], theirs.entering["weight"])
        close(
            onnx_model.output_gradients(inputs, info.name, seed)[0],
            torch_model.output_gradients(inputs, info.name, seed)[0],
        )
        for parameter in info.parameters:
            close(gradients[info.name, parameter], expected[info.name, parameter])


def label_inputs(model: ModelBackend, network: Network) -> LabelledData:
    """Inputs with labels that the model mostly agrees with, and a class it often misreads."""
    inputs = random_inputs(network, 240, seed=5)
    predictions = model.predict(inputs)
    labels = predictions.copy()
    rng = np.random.default_rng(1)
    common = int(np.bincount(predictions).argmax())
    other = int(np.bincount(predictions, minlength=3).argsort()[-2])
    wrong = np.flatnonzero(predictions == common)
    labels[rng.choice(wrong, len(wrong) // 4, replace=False)] = other
    return LabelledData(inputs, labels)


def test_one_seed_gives_the_same_suspects_and_the_same_patch(pair: tuple[ModelBackend, ModelBackend, Network]) -> None:
    torch_model, onnx_model, network = pair
    data = label_inputs(torch_model, network)
    predictions = torch_model.predict(data.inputs)
    row = int(np.flatnonzero(predictions != data.labels)[0])
    target = f"{data.labels[row]}:{predictions[row]}"
    searcher = arachne.DifferentialEvolution(population=16, generations=8)
    settings = arachne.Settings(seed=3, searcher=searcher)
    patches = [arachne.repair(model, data, target, settings=settings).patch for model in (torch_model, onnx_model)]
    first, second = patches
    assert [entry.address for entry in first.entries] == [entry.address for entry in second.entries]
    assert len(first.entries) > 0
    # A trial's fitness may differ in its last digits; no accepted trial hung on them here, so values are equal.
    np.testing.assert_allclose([e.new for e in second.entries], [e.new for e in first.entries], rtol=1e-6)


def test_the_projections_of_packed_attention_are_the_same_layers_in_both() -> None:
    """Both store q, k and v as one tensor; torch its transpose."""
    from arachne_onnx import OnnxBackend
    from arachne_torch import TorchBackend
    from tests.backends.onnx_architectures import ARCHITECTURES, by_tracing, make

    network, inputs = make("vit"), ARCHITECTURES["vit"].inputs(4)
    torch_model, onnx_model = TorchBackend.load(network), OnnxBackend.load(by_tracing(network, inputs[:2], 17))
    x, labels = inputs.numpy(), np.arange(4)
    close(onnx_model.forward(x), torch_model.forward(x))
    gradients, expected = (
        onnx_model.weight_gradients(x, cross_entropy(labels)),
        torch_model.weight_gradients(x, cross_entropy(labels)),
    )
    seed = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    assert [i.name for i in onnx_model.layers] == [
        i.name for i in torch_model.layers if any(layer == i.name for layer, _ in gradients)
    ]
    for layer in [f"encoder.layers.1.self_attn.{part}" for part in "qkv"]:
        assert replace(onnx_model.info(layer), followed_by=None) == replace(torch_model.info(layer), followed_by=None)
        for parameter, weight in torch_model.get_weights(layer).items():
            np.testing.assert_array_equal(onnx_model.get_weights(layer)[parameter], weight)
            close(gradients[layer, parameter], expected[layer, parameter])
        (ours,), (theirs,) = onnx_model.activations(x, layer), torch_model.activations(x, layer)
        close(ours.leaving, theirs.leaving)
        close(ours.entering["weight"], theirs.entering["weight"])
        close(onnx_model.output_gradients(x, layer, seed)[0], torch_model.output_gradients(x, layer, seed)[0])
        cut = onnx_model.cut(x, [layer])
        close(cut.outputs(np.array([2, 0])), theirs.leaving[[2, 0]])
        changed = {(layer, "weight"): torch_model.get_weights(layer)["weight"] + np.float32(0.3)}
        close(cut.scores_with(changed), torch_model.cut(x, [layer]).scores_with(changed))


def test_a_patch_to_one_projection_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    from arachne_onnx import OnnxBackend
    from tests.backends.onnx_architectures import ARCHITECTURES, by_tracing, make

    model = OnnxBackend.load(by_tracing(make("vit"), ARCHITECTURES["vit"].inputs(2), 17))
    before = {info.name: model.get_weights(info.name) for info in model.layers}
    layer = "encoder.layers.0.self_attn.k"
    model.set_weights(layer, "weight", before[layer]["weight"] + 1)
    model.save(tmp_path / "patched.onnx")
    patched = OnnxBackend.load(tmp_path / "patched.onnx")
    assert not model.describe().notes
    for name, parameters in before.items():
        for parameter, values in parameters.items():
            moved = np.float32(1) if (name, parameter) == (layer, "weight") else np.float32(0)
            np.testing.assert_array_equal(patched.get_weights(name)[parameter], values + moved)
