"""Quantised ONNX files that torch itself exports are repaired in their own whole numbers."""

from __future__ import annotations

import warnings
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.model.values import Array

pytestmark = [pytest.mark.backend("torch"), pytest.mark.backend("onnx")]


@pytest.fixture(scope="module")
def digits() -> tuple[Array, Array]:
    with resources.files("arachne.demo").joinpath("digits.npz").open("rb") as stream, np.load(stream) as arrays:
        return arrays["x"].astype(np.float32).reshape(-1, 1, 8, 8), arrays["y"]


def train(net: Any, digits: tuple[Array, Array]) -> Any:
    """Train a network a little; return the inputs as a tensor."""
    import torch

    inputs, labels = (torch.from_numpy(np.asarray(one)) for one in digits)
    stepping = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(40):
        stepping.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), labels.long()).backward()  # type: ignore[no-untyped-call]
        stepping.step()
    return inputs


def whole_module(digits: tuple[Array, Array], *, fused: bool) -> Any:
    """A convnet that knows digits a little, quantised by `torch.ao.quantization`."""
    import torch
    import torch.ao.quantization
    from torch import nn

    quantization: Any = torch.ao.quantization  # has no types
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 12), nn.ReLU())
    net = nn.Sequential(quantization.QuantStub(), *layers, nn.Linear(12, 10), quantization.DeQuantStub())
    inputs = train(net, digits)
    net.eval().qconfig = quantization.get_default_qconfig(torch.backends.quantized.engine)
    if fused:
        quantization.fuse_modules(net, [["1", "2"], ["5", "6"]], inplace=True)
    quantization.prepare(net, inplace=True)
    net(inputs[:200])
    return quantization.convert(net, inplace=True)


@pytest.mark.parametrize("fused", [True, False])
def test_export_of_torch_ao_is_repaired_in_its_own_numbers(
    digits: tuple[Array, Array], fused: bool, tmp_path: Path
) -> None:
    import onnx
    import onnxruntime
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about the exporter and the quantiser
        net, path = whole_module(digits, fused=fused), tmp_path / "net.onnx"
        example, axes = (torch.from_numpy(digits[0][:2]),), {"x": {0: "n"}}
        torch.onnx.export(net, example, str(path), dynamo=False, input_names=["x"], dynamic_axes=axes)
    found = arachne.load(path)
    assert [(info.name, info.kind) for info in found.layers] == [("1", "conv"), ("5", "dense"), ("7", "dense")]
    assert [[one.dtype for one in info.parameters.values()] for info in found.layers] == [["int8", "int32"]] * 3
    assert not found.unreachable
    own = onnxruntime.InferenceSession(path).run(None, {"x": digits[0]})[0]
    np.testing.assert_array_equal(found.forward(digits[0]), own)
    result = arachne.repair(path, digits, "*:*", max_break=0.05, seed=0)
    assert result.evidence.held_out.repaired > 0
    result.model.save(tmp_path / "after.onnx")
    before, after = (onnx.load(one).graph.node for one in (path, tmp_path / "after.onnx"))
    differing = [one.output[0] for one, other in zip(before, after, strict=True) if one != other]
    assert differing
    assert all(one.op_type == "Constant" for one in before if one.output[0] in differing)
    assert (tmp_path / "after.onnx").stat().st_size == path.stat().st_size
    arachne.revert(result.patch, tmp_path / "after.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == path.read_bytes()


def export_pt2e(digits: tuple[Array, Array], path: Path) -> None:
    """Export a convnet that knows digits a little, quantised by torchao's `convert_pt2e`."""
    import torch
    from torch import nn

    pytest.importorskip("torchao", reason="torchao is not installed")
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer

    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(96, 12), nn.ReLU(), nn.Linear(12, 10)),
    )
    inputs = train(net, digits)
    example, sizes = (inputs[:2],), ({0: torch.export.Dim("n")},)
    quantizer = x86_inductor_quantizer.X86InductorQuantizer()
    quantizer.set_global(x86_inductor_quantizer.get_default_x86_inductor_quantization_config())
    graph = torch.export.export(net.eval(), example, dynamic_shapes=sizes).module()
    prepared = quantize_pt2e.prepare_pt2e(graph, quantizer)
    prepared(inputs[:200])
    whole = quantize_pt2e.convert_pt2e(prepared)
    torch.onnx.export(
        *(whole, example, str(path)),
        dynamo=True,
        dynamic_shapes=sizes,
        input_names=["x"],
        external_data=False,
        verbose=False,
    )


def test_export_of_torchaos_pt2e_is_repaired_in_its_own_numbers(digits: tuple[Array, Array], tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    path = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about the exporter and the quantiser
        export_pt2e(digits, path)
    found = arachne.load(path)
    assert [layer.kind for layer in found.layers] == ["conv", "dense", "dense"]
    assert all(layer.is_quantised for layer in found.layers)
    assert not found.unreachable
    own = onnxruntime.InferenceSession(path).run(None, {"x": digits[0]})[0]
    np.testing.assert_array_equal(found.forward(digits[0]), own)
    result = arachne.repair(path, digits, "*:*", max_break=0.05, seed=0)
    assert result.evidence.held_out.repaired > 0
    result.model.save(tmp_path / "after.onnx")
    before, after = (
        {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(one).graph.initializer}
        for one in (path, tmp_path / "after.onnx")
    )
    differing = {name for name, values in before.items() if not np.array_equal(values, after[name])}
    assert differing
    assert {before[name].dtype for name in differing} <= {np.dtype(np.int8), np.dtype(np.float32)}
    assert (tmp_path / "after.onnx").stat().st_size == path.stat().st_size
    arachne.revert(result.patch, tmp_path / "after.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == path.read_bytes()
