"""Torch files of other people: from before the archives, whole pickled modules, TorchScript."""

from __future__ import annotations

import pickle
import struct
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from arachne.decisions.losses import cross_entropy
from arachne.errors import ModelError, UnsafeModelError
from arachne.model.values import Array
from arachne_torch import TorchBackend
from arachne_torch.legacy import START

torch.set_num_threads(1)

jit: Any = torch.jit  # whose functions have no types

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.drop = nn.Dropout()
        self.lstm = nn.LSTM(4, 5, batch_first=True)
        self.heads = nn.ModuleList([nn.Linear(5, 6), nn.Linear(6, 3)])
        self.rounds = 2

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(torch.relu(self.norm(self.conv(x)))).mean(1)
        states, _last = self.lstm(y)
        out = states[:, -1]
        for head in self.heads:
            out = head(out)
        for _round in range(self.rounds):
            out = out + 0.5
        if out.size(0) > 1000:
            out = out * 0.0
        return torch.log_softmax(out, 1)


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def images(n: int = 5) -> Array:
    return np.random.default_rng(0).normal(size=(n, 1, 6, 6)).astype(np.float32)


def write_old(content: Any, path: Path) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


@pytest.fixture
def factory(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys.modules[__name__], "make", Net, raising=False)
    return f"{__name__}:make"


def test_a_checkpoint_from_before_the_archives_opens_and_is_patched_in_place(tmp_path: Path, factory: str) -> None:
    model = net()
    source = tmp_path / "old.pth"
    write_old({"epoch": 3, "state_dict": model.state_dict(), "seen": Counter(a=1), "best": np.float64(0.9)}, source)
    assert source.read_bytes().startswith(START)
    backend = TorchBackend.load(factory, weights=source)
    np.testing.assert_array_equal(backend.forward(images()), TorchBackend.load(model).forward(images()))
    bias = backend.get_weights("heads.1")["bias"]
    bias[1] = 0.25
    backend.set_weights("heads.1", "bias", bias)
    backend.save(tmp_path / "new.pth")
    one, other = source.read_bytes(), (tmp_path / "new.pth").read_bytes()
    assert len(one) == len(other)
    assert 0 < sum(a != b for a, b in zip(one, other, strict=True)) <= 4
    state = torch.load(tmp_path / "new.pth", weights_only=False)["state_dict"]
    np.testing.assert_array_equal(state["heads.1.bias"], bias)
    assert torch.equal(state["conv.weight"], model.state_dict()["conv.weight"])


def test_views_and_tied_tensors_of_an_old_file_lie_where_they_are(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    state = {"a.weight": base, "b.weight": base, "c.weight": base.t(), "d.weight": base[1:, 1:3], "n": torch.tensor(3)}
    write_old(state, tmp_path / "old.pt")
    file = TorchBackend.weight_file(tmp_path / "old.pt")
    np.testing.assert_array_equal(file.read("c", "weight"), base.t())
    values = file.read("d", "weight")
    values[0, 1] = 99
    file.rewrite(tmp_path / "new.pt", {("d", "weight"): values})
    state = torch.load(tmp_path / "new.pt")
    assert state["a.weight"][1, 2] == state["b.weight"][1, 2] == state["c.weight"][2, 1] == 99


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_an_old_file_keeps_its_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    weight = torch.randn(3, 4, dtype=dtype)
    write_old({"fc.weight": weight, "steps": torch.arange(3)}, tmp_path / "old.pt")
    file = TorchBackend.weight_file(tmp_path / "old.pt")
    assert file.dtype("fc", "weight") == str(dtype).removeprefix("torch.")
    np.testing.assert_array_equal(file.read("fc", "weight"), weight.float() if dtype == torch.bfloat16 else weight)


def damage(change: str, data: bytes) -> bytes:
    match change:
        case "cut short":
            return data[:-20]
        case "bytes follow":
            return data + b"more"
        case "huge storage":
            return data[: -(24 + 8)] + struct.pack("<q", 1 << 60) + data[-24:]
        case _:
            return data[: -(24 + 8)] + struct.pack("<q", -1) + data[-24:]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("cut short", "cut short"),
        ("bytes follow", "bytes follow"),
        ("huge storage", "cut short"),
        ("less", "cut short"),
    ],
)
def test_a_damaged_old_file_is_refused(tmp_path: Path, change: str, told: str) -> None:
    path = tmp_path / "old.pt"
    write_old({"fc.weight": torch.ones(2, 3)}, path)
    path.write_bytes(damage(change, path.read_bytes()))
    with pytest.raises(ModelError, match=told):
        TorchBackend.weight_file(path)


def test_every_shortened_old_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    write_old({"fc.weight": torch.ones(2, 3)}, path)
    data = path.read_bytes()
    for length in range(len(START), len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            TorchBackend.weight_file(path)


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("content", [Bomb(), {"fc.weight": torch.ones(2), "args": Bomb()}])
def test_nothing_of_an_old_pickle_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_old(content, tmp_path / "old.pt")
    with pytest.raises(UnsafeModelError, match=r"would run code; save model\.state_dict"):
        TorchBackend.weight_file(tmp_path / "old.pt")
    assert not (tmp_path / "exploded").exists()


def test_a_state_dict_that_lies_in_itself_is_refused(tmp_path: Path) -> None:
    content: dict[str, Any] = {}
    content["model"] = content
    write_old(content, tmp_path / "old.pt")
    with pytest.raises(ModelError, match="holds no state dict"):
        TorchBackend.weight_file(tmp_path / "old.pt")


Write = Callable[[Any, Path], None]


@pytest.mark.parametrize("write", [write_old, torch.save])
def test_a_whole_module_says_what_it_is_and_how_to_get_its_weights(tmp_path: Path, write: Write, factory: str) -> None:
    path = tmp_path / "whole.pt"
    write(net(), path)
    advice = r"whole pickled module.*torch\.save\(torch\.load\('whole\.pt', weights_only=False\)\.state_dict\(\)"
    old = write is write_old  # whose weights are not read
    for source, weights in ((path, None), (factory, path))[: 1 + old]:
        with pytest.raises(UnsafeModelError, match=advice) as caught:
            TorchBackend.load(source, weights=weights)
        assert caught.value.exit_code == 3
    torch.save(torch.load(path, weights_only=False).state_dict(), tmp_path / "weights.pt")
    expected = TorchBackend.load(net()).forward(images())
    np.testing.assert_array_equal(
        TorchBackend.load(factory, weights=tmp_path / "weights.pt").forward(images()), expected
    )
    np.testing.assert_array_equal(TorchBackend.load(path, trust_code=True).forward(images()), expected)


def test_a_plain_pickle_is_no_torch_file(tmp_path: Path) -> None:
    (tmp_path / "net.pt").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ModelError, match="not an archive that torch has written"):
        TorchBackend.weight_file(tmp_path / "net.pt")


def save_script(path: Path, how: str) -> nn.Module:
    model = net()
    made = jit.script(model) if how == "script" else jit.trace(model, torch.from_numpy(images(2)))
    made.save(str(path))
    return model


HOW = pytest.mark.parametrize("how", ["script", "trace"])


@HOW
def test_torchscript_gives_its_weights_to_a_factory_without_being_run(tmp_path: Path, how: str, factory: str) -> None:
    model = save_script(tmp_path / "net.pt", how)
    backend = TorchBackend.load(factory, weights=tmp_path / "net.pt")
    np.testing.assert_array_equal(backend.forward(images()), TorchBackend.load(model).forward(images()))
    with pytest.raises(ModelError, match=r"is TorchScript.*'module:factory'.*or trust the code"):
        TorchBackend.load(tmp_path / "net.pt")


@HOW
def test_a_trusted_torchscript_model_is_repaired_as_the_module_is(tmp_path: Path, how: str) -> None:
    model = save_script(tmp_path / "net.pt", how)
    ours, theirs = TorchBackend.load(tmp_path / "net.pt", trust_code=True), TorchBackend.load(model)
    x, labels = images(), np.array([0, 1, 2, 0, 1])
    np.testing.assert_allclose(ours.forward(x), theirs.forward(x), atol=1e-6)
    assert {info.name: info.kind for info in ours.layers} == {info.name: info.kind for info in theirs.layers}
    one, other = (backend.weight_gradients(x, cross_entropy(labels)) for backend in (ours, theirs))
    for address in other:
        np.testing.assert_allclose(one[address], other[address], atol=1e-5, err_msg=str(address))
    bias = ours.get_weights("heads.1")["bias"] + np.float32(0.5)
    ours.set_weights("heads.1", "bias", bias)
    ours.save(tmp_path / "new.pt")
    again = jit.load(tmp_path / "new.pt")
    np.testing.assert_array_equal(again.state_dict()["heads.1.bias"], bias)
    with torch.no_grad():
        np.testing.assert_allclose(again(torch.from_numpy(x)).argmax(1), ours.predict(x))


def test_a_scripted_object_in_memory_is_opened(tmp_path: Path) -> None:
    model = net()
    found = TorchBackend.load(jit.script(model)).forward(images())
    np.testing.assert_allclose(found, TorchBackend.load(model).forward(images()), atol=1e-6)


def test_frozen_torchscript_says_that_its_weights_have_no_names(tmp_path: Path) -> None:
    jit.freeze(jit.script(net())).save(str(tmp_path / "net.pt"))
    with pytest.raises(ModelError, match="frozen into its code"):
        TorchBackend.weight_file(tmp_path / "net.pt")
