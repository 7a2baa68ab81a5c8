"""A patch found in one framework, applied to the same network's file in another, and taken out to the bit."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.cli import run
from arachne.errors import PatchError
from arachne.io.files import sha256_of
from arachne.model.registry import weight_file
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.patch.history import patch_state
from arachne.testing import Network, convnet, mlp, random_inputs

NETWORKS = {"mlp": mlp([6, 8, 3]), "convnet": convnet()}
Networks = Callable[[str], ModuleType]
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def some_patch(backend: Any) -> Patch:
    """A weight in every layer, by the model's own names."""
    places = [
        Address(info.name, name, (0,) * len(info.parameters[name].shape))
        for info in backend.layers
        for name in info.weights
    ]
    return Patch.between(backend, places, np.linspace(0.5, -0.5, len(places)), provenance={"target": ["*:*"]})


def small_cnn() -> Any:
    """A torch net with a batch normalisation that has seen data."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    net(torch.randn(64, 2, 8, 8) * 3 + 1)
    net.state_dict()["1.weight"].copy_(torch.tensor([0.5, -2.0, 1.5, 3.0]))
    return net.eval()


def small_lstm() -> Any:
    """A torch net whose first layer is recurrent."""
    import torch
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(5, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            steps, _ = self.lstm(inputs)
            scores: torch.Tensor = self.head(steps[:, -1])
            return scores

    torch.manual_seed(0)
    return Recurrent().eval()


def keras_cnn(net: Any) -> Any:
    """`small_cnn` in Keras, with its weights."""
    import keras
    from keras import layers as kl

    model = keras.Sequential(
        [
            keras.Input((8, 8, 2)),
            kl.Conv2D(4, 3, use_bias=False),
            kl.BatchNormalization(epsilon=1e-5),
            kl.ReLU(),
            kl.GlobalAveragePooling2D(),
            kl.Dense(3),
        ]
    )
    state = {name: values.numpy() for name, values in net.state_dict().items()}
    norm = [state[f"1.{name}"] for name in ("weight", "bias", "running_mean", "running_var")]
    model.set_weights([state["0.weight"].transpose(2, 3, 1, 0), *norm, state["5.weight"].T, state["5.bias"]])
    return model


def keras_lstm(net: Any) -> Any:
    """`small_lstm` in Keras, with its weights; Keras keeps the sum of both biases."""
    import keras
    from keras import layers as kl

    model = keras.Sequential([keras.Input((6, 5)), kl.LSTM(4), kl.Dense(3)])
    state = {name: values.numpy() for name, values in net.state_dict().items()}
    bias = state["lstm.bias_ih_l0"] + state["lstm.bias_hh_l0"]
    recurrent = [state["lstm.weight_ih_l0"].T, state["lstm.weight_hh_l0"].T, bias]
    model.set_weights([*recurrent, state["head.weight"].T, state["head.bias"]])
    return model


MADE = {"cnn": (small_cnn, keras_cnn, (2, 8, 8)), "lstm": (small_lstm, keras_lstm, (6, 5))}


@pytest.mark.backend("keras")
@pytest.mark.backend("torch")
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_patch_found_in_torch_is_applied_to_keras(network: Network, networks_in: Networks, tmp_path: Path) -> None:
    torch_model = networks_in("torch").build(network)
    networks_in("keras").model_of(network).save(tmp_path / "net.keras")
    patch = some_patch(torch_model)
    done = arachne.apply(patch, tmp_path / "net.keras", tmp_path / "p.keras")
    assert done is not None
    assert done.derived is None
    inputs = random_inputs(network, 20)
    expected = torch_model.forward(inputs)
    patch.apply(torch_model)
    found = arachne.load(tmp_path / "p.keras").forward(inputs)
    np.testing.assert_allclose(found, torch_model.forward(inputs), atol=1e-5)
    assert not np.allclose(found, expected, atol=1e-3)
    arachne.revert(patch, tmp_path / "p.keras", tmp_path / "b.keras")
    assert sha256_of(tmp_path / "b.keras") == sha256_of(tmp_path / "net.keras")
    assert patch_state(patch, weight_file(tmp_path / "p.keras")).state == "carried"


@pytest.mark.backend("keras")
@pytest.mark.backend("torch")
@pytest.mark.parametrize(("make", "convert", "shape"), MADE.values(), ids=MADE)
def test_patch_travels_between_torch_and_keras_in_both_directions(
    make: Callable[[], Any], convert: Callable[[Any], Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    import torch

    torch.save(make().state_dict(), tmp_path / "net.pt")
    convert(make()).save(tmp_path / "net.keras")
    in_torch, in_keras = arachne.load(make()), arachne.load(tmp_path / "net.keras")
    for found_in, other in ((in_torch, "net.keras"), (in_keras, "net.pt")):
        patch, patched, back = some_patch(found_in), tmp_path / f"p-{other}", tmp_path / f"b-{other}"
        done = arachne.apply(patch, tmp_path / other, patched)
        assert done is not None
        assert {pair.how for pair in done.match.pairs} <= {"content", "same"}
        assert done.written.bytes_changed is not None
        assert done.written.bytes_changed <= 4 * len(patch) + 4 * 2 * len(patch)
        arachne.revert(patch, patched, back)
        assert sha256_of(back) == sha256_of(tmp_path / other)
    inputs = np.random.default_rng(0).normal(size=(16, *shape)).astype(np.float32)
    images = inputs.transpose(0, 2, 3, 1) if len(shape) == 3 else inputs
    patch = some_patch(in_torch)
    patch.apply(in_torch)
    found = arachne.load(tmp_path / "p-net.keras").forward(images)
    np.testing.assert_allclose(found, in_torch.forward(inputs), atol=1e-5)


@pytest.mark.backend("keras")
@pytest.mark.backend("torch")
def test_diff_reads_two_frameworks(tmp_path: Path) -> None:
    import torch

    keras_cnn(small_cnn()).save(tmp_path / "net.keras")
    net = small_cnn()
    net.state_dict()["0.weight"][2, 1, 0, 0] = 0.75
    torch.save(net.state_dict(), tmp_path / "net.pt")
    made = arachne.diff(tmp_path / "net.keras", tmp_path / "net.pt")
    assert [(entry.address.index, entry.new) for entry in made.entries] == [((2, 1, 0, 0), 0.75)]
    assert made.base.file == "net.keras"


def small_resnet() -> Any:
    """ResNet-18's plan, eight channels wide."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, n_in: int, n_out: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out)
            self.conv2, self.bn2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out)
            same = stride == 1 and n_in == n_out
            skip = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))
            self.downsample = nn.Identity() if same else skip

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            inner = torch.relu(self.bn1(self.conv1(inputs)))
            return torch.relu(self.bn2(self.conv2(inner)) + self.downsample(inputs))

    torch.manual_seed(0)
    widths = [8, 8, 16, 32, 64]
    stem = [nn.Conv2d(2, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    stages = [nn.Sequential(Block(a, b, 1 if b == 8 else 2), Block(b, b, 1)) for a, b in itertools.pairwise(widths)]
    net = nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3))
    net(torch.randn(32, 2, 8, 8) * 2 + 1)
    return net.eval()


EXPORTED = {"cnn": (small_cnn, (2, 8, 8)), "lstm": (small_lstm, (6, 5)), "resnet": (small_resnet, (2, 8, 8))}


def export_torch(net: Any, shape: tuple[int, ...], path: Path, dynamo: bool) -> None:
    import torch

    example = torch.zeros(2, *shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own
        if dynamo:
            shapes = ({0: torch.export.Dim("n")},)
            torch.onnx.export(net, (example,), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
        else:
            axes = {"inputs": {0: "n"}}
            torch.onnx.export(net, (example,), path, dynamo=False, input_names=["inputs"], dynamic_axes=axes)


@pytest.mark.backend("onnx")
@pytest.mark.backend("torch")
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize(("make", "shape"), EXPORTED.values(), ids=EXPORTED)
def test_patch_found_in_torch_is_applied_to_its_onnx_export(
    make: Callable[[], Any], shape: tuple[int, ...], dynamo: bool, tmp_path: Path
) -> None:
    import torch

    before, after = make(), make()
    changed = [name for name, values in after.state_dict().items() if "weight" in name and values.ndim > 1]
    for number, name in enumerate(changed):
        values = after.state_dict()[name]
        values[(-1,) * values.ndim] = 0.3 - 0.1 * (number % 5)
    torch.save(before.state_dict(), tmp_path / "before.pt")
    torch.save(after.state_dict(), tmp_path / "after.pt")
    patch = arachne.diff(tmp_path / "before.pt", tmp_path / "after.pt")
    assert len(patch) == len(changed)
    for folder in ("model", "patched", "back"):
        (tmp_path / folder).mkdir()
    model, patched, back = (tmp_path / folder / "net.onnx" for folder in ("model", "patched", "back"))
    export_torch(before, shape, model, dynamo)

    done = arachne.apply(patch, model, patched)
    inputs = np.random.default_rng(0).normal(size=(16, *shape)).astype(np.float32)
    with torch.no_grad():
        expected = after(torch.from_numpy(inputs)).numpy()
    assert done is not None
    np.testing.assert_allclose(arachne.load(patched).forward(inputs), expected, atol=1e-4)
    assert not np.allclose(arachne.load(model).forward(inputs), expected, atol=1e-3)
    assert (done.derived is not None) == any(pair.how == "scaled" for pair in done.match.pairs)
    arachne.revert(patch, patched, back)
    for path in model.parent.iterdir():
        assert sha256_of(back.parent / path.name) == sha256_of(path)


@pytest.mark.backend("onnx")
@pytest.mark.backend("torch")
@pytest.mark.parametrize("make", [small_cnn, small_resnet])
def test_diff_sees_a_change_under_a_folded_batch_normalisation(make: Callable[[], Any], tmp_path: Path) -> None:
    import torch

    before, after = make(), make()
    after.state_dict()["0.weight"][2, 1, 0, 0] = 0.75
    torch.save(before.state_dict(), tmp_path / "before.pt")
    export_torch(before, (2, 8, 8), tmp_path / "same.onnx", dynamo=False)
    export_torch(after, (2, 8, 8), tmp_path / "after.onnx", dynamo=False)
    same = arachne.diff(tmp_path / "before.pt", tmp_path / "same.onnx")
    assert len(same) == 0  # the two predict alike
    assert "0" in same.provenance["diff"]["folded"]
    found = arachne.diff(tmp_path / "before.pt", tmp_path / "after.onnx")
    (entry,) = found.entries
    assert str(entry.address) == "0.weight[2, 1, 0, 0]"
    assert entry.new == pytest.approx(0.75, rel=1e-6)
    assert len(arachne.diff(tmp_path / "same.onnx", tmp_path / "before.pt")) == 0


@pytest.mark.backend("onnx")
@pytest.mark.backend("torch")
def test_diff_refuses_what_folding_does_not_explain(tmp_path: Path) -> None:
    import torch

    before, after = small_cnn(), small_cnn()
    after.state_dict()["0.weight"][1] += torch.randn(2, 3, 3)
    torch.save(before.state_dict(), tmp_path / "before.pt")
    export_torch(after, (2, 8, 8), tmp_path / "after.onnx", dynamo=False)
    with pytest.raises(PatchError, match=r"'0.weight' differs in most weights of row 1, and not by a factor"):
        arachne.diff(tmp_path / "before.pt", tmp_path / "after.onnx")


@pytest.mark.backend("keras")
@pytest.mark.backend("torch")
def test_diff_compares_the_sum_of_two_biases_with_one(tmp_path: Path) -> None:
    import torch

    torch.save(small_lstm().state_dict(), tmp_path / "net.pt")
    keras_lstm(small_lstm()).save(tmp_path / "net.keras")
    assert len(arachne.diff(tmp_path / "net.pt", tmp_path / "net.keras")) == 0
    assert len(arachne.diff(tmp_path / "net.keras", tmp_path / "net.pt")) == 0


@pytest.mark.backend("onnx")
@pytest.mark.backend("torch")
def test_log_finds_a_derived_patch_and_a_second_apply_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export_torch(small_cnn(), (2, 8, 8), tmp_path / "net.onnx", dynamo=False)
    patch = some_patch(arachne.load(small_cnn()))
    (tmp_path / "patches").mkdir()
    patch.save(tmp_path / "patches" / "fix.json")
    arachne.apply(patch, tmp_path / "net.onnx", tmp_path / "p.onnx")
    for model, state in (("net.onnx", "not carried"), ("p.onnx", "carried")):
        assert run(["log", str(tmp_path / model), "--patches", str(tmp_path / "patches"), "--json"]) == 0
        assert [row["state"] for row in json.loads(capsys.readouterr().out)["patches"]] == [state]
    with pytest.raises(PatchError, match=r"'p.onnx' carries this patch in a form derived for it"):
        arachne.apply(patch, tmp_path / "p.onnx", tmp_path / "q.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx", "p.onnx", "p.onnx.patch.json", "patches"]
    (tmp_path / "p.onnx.patch.json").unlink()
    with pytest.raises(PatchError, match="only the derived patch"):
        arachne.revert(patch, tmp_path / "p.onnx", tmp_path / "q.onnx")


KERAS_MADE = {"cnn": (small_cnn, keras_cnn, (8, 8, 2)), "lstm": (small_lstm, keras_lstm, (6, 5))}


@pytest.mark.backend("onnx")
@pytest.mark.backend("keras")
@pytest.mark.backend("torch")
@pytest.mark.parametrize("exporter", ["tf2onnx", "keras"])
@pytest.mark.parametrize(("make", "convert", "shape"), KERAS_MADE.values(), ids=KERAS_MADE)
def test_patch_found_in_keras_is_applied_to_its_onnx_export(
    make: Callable[[], Any], convert: Callable[[Any], Any], shape: tuple[int, ...], exporter: str, tmp_path: Path
) -> None:
    model, net, patched, back = convert(make()), *(tmp_path / f"{name}.onnx" for name in ("net", "p", "b"))
    inputs = np.random.default_rng(0).normal(size=(16, *shape)).astype(np.float32)
    model(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own
        if exporter == "keras":
            model.export(net, format="onnx", verbose=False)
        else:
            tf, tf2onnx = pytest.importorskip("tensorflow"), pytest.importorskip("tf2onnx")
            signature = [tf.TensorSpec((None, *shape), tf.float32)]
            called = tf.function(lambda inputs: model(inputs, training=False))
            tf2onnx.convert.from_function(called, input_signature=signature, output_path=str(net))
    backend = arachne.load(model)
    patch = some_patch(backend)
    arachne.apply(patch, net, patched)
    with patch.apply_temporarily(backend):
        np.testing.assert_allclose(arachne.load(patched).forward(inputs), backend.forward(inputs), atol=1e-5)
    arachne.revert(patch, patched, back)
    assert sha256_of(back) == sha256_of(net)
