"""Weight files of PyTorch: read without running code, rewritten byte by byte."""

from __future__ import annotations

import pickle
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from arachne.errors import EnvironmentFaultError, ModelError, UnknownLayerError, UnsafeModelError, WeightShapeError
from arachne.model.values import Array
from arachne_torch import TorchBackend

torch.set_num_threads(1)

Write = Callable[[dict[str, Any], Path], None]


def write_safetensors(state: dict[str, Any], path: Path) -> None:
    safetensors.torch.save_file(state, path, metadata={"made by": "a test"})


def write_pt(state: dict[str, Any], path: Path) -> None:
    torch.save(OrderedDict(state), path)


FORMATS = pytest.mark.parametrize(
    ("suffix", "write"), [(".safetensors", write_safetensors), (".pt", write_pt), (".pth", write_pt)]
)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(conv=nn.Conv2d(1, 2, 3), norm=nn.BatchNorm2d(2), flat=nn.Flatten(), fc=nn.Linear(18, 3))
    )


def images() -> Array:
    return np.random.default_rng(0).normal(size=(4, 1, 5, 5)).astype(np.float32)


def differing(one: Path, other: Path) -> list[int]:
    first, second = one.read_bytes(), other.read_bytes()
    assert len(first) == len(second)
    return [at for at, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]


@FORMATS
def test_a_state_dict_is_read_by_address(tmp_path: Path, suffix: str, write: Write) -> None:
    model = net()
    write(model.state_dict(), tmp_path / f"net{suffix}")
    file = TorchBackend.weight_file(tmp_path / f"net{suffix}")
    assert {("conv", "weight"), ("norm", "scale"), ("norm", "bias"), ("fc", "bias")} <= set(file.parameters())
    assert ("norm", "num_batches_tracked") not in file.parameters()
    np.testing.assert_array_equal(file.read("conv", "weight"), model.state_dict()["conv.weight"])
    np.testing.assert_array_equal(file.read("norm", "scale"), model.state_dict()["norm.weight"])
    assert file.dtype("fc", "weight") == "float32"
    with pytest.raises(UnknownLayerError, match="did you mean 'conv'"):
        file.read("convv", "weight")


@FORMATS
def test_a_rewritten_file_differs_in_the_changed_weight_and_checksums_only(
    tmp_path: Path, suffix: str, write: Write
) -> None:
    source, destination = tmp_path / f"net{suffix}", tmp_path / f"new{suffix}"
    write(net().state_dict(), source)
    original = source.read_bytes()
    file = TorchBackend.weight_file(source)
    values = file.read("fc", "weight")
    values[1, 2] = 0.12345
    file.rewrite(destination, {("fc", "weight"): values})
    assert source.read_bytes() == original
    assert len(differing(source, destination)) <= (4 if suffix == ".safetensors" else 12)
    state = safetensors.torch.load_file(destination) if suffix == ".safetensors" else torch.load(destination)
    np.testing.assert_array_equal(state["fc.weight"], values)
    if suffix != ".safetensors":
        assert zipfile.ZipFile(destination).testzip() is None
    back = tmp_path / f"back{suffix}"
    TorchBackend.weight_file(destination).rewrite(back, {("fc", "weight"): file.read("fc", "weight")})
    assert back.read_bytes() == original


@FORMATS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes_keep_theirs(tmp_path: Path, suffix: str, write: Write, dtype: torch.dtype) -> None:
    source, destination = tmp_path / f"net{suffix}", tmp_path / f"new{suffix}"
    weight = torch.randn(3, 4, dtype=dtype)
    write({"fc.weight": weight}, source)
    file = TorchBackend.weight_file(source)
    assert file.dtype("fc", "weight") == str(dtype).removeprefix("torch.")
    values = file.read("fc", "weight")
    np.testing.assert_array_equal(values, weight.float() if dtype == torch.bfloat16 else weight)
    values[0, 0] = 1.00390625 + 2**-9  # between two neighbours in bfloat16
    file.rewrite(destination, {("fc", "weight"): values})
    expected = weight.clone()
    expected[0, 0] = float(values[0, 0])
    again = TorchBackend.weight_file(destination).read("fc", "weight")
    np.testing.assert_array_equal(again, expected.float() if dtype == torch.bfloat16 else expected)


def test_views_tied_and_strided_tensors_are_written_where_they_lie(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    state = {"a.weight": base, "b.weight": base, "c.weight": base.t(), "d.weight": base[1:, 1:3]}
    torch.save(state, tmp_path / "net.pt")
    file = TorchBackend.weight_file(tmp_path / "net.pt")
    np.testing.assert_array_equal(file.read("c", "weight"), base.t())
    values = file.read("d", "weight")
    values[0, 1] = 99
    file.rewrite(tmp_path / "new.pt", {("d", "weight"): values})
    state = torch.load(tmp_path / "new.pt")
    assert state["a.weight"][1, 2] == state["b.weight"][1, 2] == state["c.weight"][2, 1] == 99
    assert torch.equal(state["a.weight"].flatten()[:6], base.flatten()[:6])
    with pytest.raises(ModelError, match="shares its bytes"):
        file.rewrite(tmp_path / "no.pt", {("a", "weight"): base.numpy() + 1, ("b", "weight"): base.numpy() + 2})
    assert not (tmp_path / "no.pt").exists()


def test_a_tensor_that_repeats_one_number_is_not_written(tmp_path: Path) -> None:
    torch.save({"a.weight": torch.ones(1, 1).expand(3, 4)}, tmp_path / "net.pt")
    file = TorchBackend.weight_file(tmp_path / "net.pt")
    with pytest.raises(ModelError, match="one number for many weights"):
        file.rewrite(tmp_path / "new.pt", {("a", "weight"): np.zeros((3, 4))})


def test_a_checkpoint_with_a_state_dict_inside_is_opened(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "state_dict": net().state_dict(), "lr": 0.1}, tmp_path / "net.pt")
    assert ("fc", "weight") in TorchBackend.weight_file(tmp_path / "net.pt").parameters()


@FORMATS
def test_a_factory_takes_its_weights_from_the_file_and_saves_a_copy_of_it(
    tmp_path: Path, suffix: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = net()
    source, destination = tmp_path / f"net{suffix}", tmp_path / f"new{suffix}"
    write(model.state_dict(), source)
    (tmp_path / "my_nets.py").write_text(
        "from collections import OrderedDict\nfrom torch import nn\n\n\ndef make():\n"
        "    return nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 2, 3), norm=nn.BatchNorm2d(2), flat=nn.Flatten(), "
        "fc=nn.Linear(18, 3)))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    path_before = list(sys.path)
    backend = TorchBackend.load("my_nets:make", weights=source)
    assert sys.path == path_before
    np.testing.assert_allclose(backend.forward(images()), TorchBackend.load(model).forward(images()), atol=1e-6)
    assert backend.describe().source == str(source)
    assert backend.suffix == suffix
    bias = backend.get_weights("norm")["bias"]
    bias[0] = 2.5
    backend.set_weights("norm", "bias", bias)
    backend.save(destination)
    assert len(differing(source, destination)) <= 12
    again = TorchBackend.load("my_nets:make", weights=destination)
    np.testing.assert_array_equal(again.forward(images()), backend.forward(images()))
    with pytest.raises(ModelError, match="never overwritten"):
        backend.save(source)
    (tmp_path / f"link{suffix}").symlink_to(source)
    with pytest.raises(ModelError, match="never overwritten"):
        backend.save(tmp_path / f"link{suffix}")
    with pytest.raises(ModelError, match="so it is saved as"):
        backend.save(tmp_path / "new.pt2")
    with pytest.raises(ModelError, match=r"has no factory 'mak'; did you mean 'make'"):
        TorchBackend.load("my_nets:mak", weights=source)
    with pytest.raises(ModelError, match="no module 'your_nets'"):
        TorchBackend.load("your_nets:make", weights=source)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_an_object_is_saved_as_a_state_dict(tmp_path: Path, suffix: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.second = nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Any:
            return self.second(self.first(x))

    backend = TorchBackend.load(Tied())
    backend.save(tmp_path / f"net{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == [f"net{suffix}"]
    module = sys.modules[__name__]
    module.tied = Tied  # type: ignore[attr-defined]  # a factory for one test
    again = TorchBackend.load(f"{__name__}:tied", weights=tmp_path / f"net{suffix}")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(again.forward(x), backend.forward(x))
    with pytest.raises(ModelError, match=r"saved as a state dict, '\.safetensors' or '\.pt', not as '\.pt2'"):
        backend.save(tmp_path / "net.pt2")
    with pytest.raises(EnvironmentFaultError, match="cannot write"):
        backend.save(tmp_path / "missing" / f"net{suffix}")


def test_weights_that_do_not_fit_the_model_are_refused(tmp_path: Path) -> None:
    def open_state(state: dict[str, Tensor]) -> TorchBackend:
        write_safetensors(state, tmp_path / "net.safetensors")
        return TorchBackend.load(net(), weights=tmp_path / "net.safetensors")

    state = dict(net().state_dict())
    missing = {name: tensor for name, tensor in state.items() if name != "fc.bias"}
    with pytest.raises(ModelError, match=r"lacks 1 weights of the model, the first is 'fc\.bias'"):
        open_state(missing)
    with pytest.raises(ModelError, match=r"'module\.' before each name, as DataParallel and torch\.compile save them"):
        open_state({f"module.{name}": tensor for name, tensor in state.items()})
    with pytest.raises(ModelError, match=r"'fc\.bia'; did you mean 'fc\.bias'"):
        open_state({**state, "fc.bia": torch.zeros(3)})
    with pytest.raises(ModelError, match=r"'fc\.bias' of shape \(4,\), the model expects \(3,\)"):
        open_state({**state, "fc.bias": torch.zeros(4)})


def test_a_state_dict_alone_says_that_it_needs_a_factory(tmp_path: Path) -> None:
    for suffix, write in ((".safetensors", write_safetensors), (".pt", write_pt)):
        write(net().state_dict(), tmp_path / f"net{suffix}")
        with pytest.raises(ModelError, match="needs the code that makes the model: give 'module:factory'"):
            TorchBackend.load(tmp_path / f"net{suffix}")


def test_a_pickled_module_is_refused_unless_its_code_is_trusted(tmp_path: Path) -> None:
    torch.save(net(), tmp_path / "net.pt")
    with pytest.raises(UnsafeModelError, match="opening it would run code: it is a whole pickled module"):
        TorchBackend.load(tmp_path / "net.pt")
    assert TorchBackend.load(tmp_path / "net.pt", trust_code=True).forward(images()).shape == (4, 3)


class Exploit:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_hostile_pickles_run_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    torch.save({"fc.weight": torch.ones(2, 2), "extra": Exploit(mark)}, tmp_path / "zip.pt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Exploit(mark)))
    with zipfile.ZipFile(tmp_path / "prefixed.pt", "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({}))
    (tmp_path / "prefixed.pt").write_bytes(pickle.dumps(Exploit(mark)) + (tmp_path / "prefixed.pt").read_bytes())
    for name in ("zip.pt", "raw.pt", "prefixed.pt"):
        with pytest.raises(ModelError):
            TorchBackend.weight_file(tmp_path / name)
        with pytest.raises(ModelError):
            TorchBackend.load(net(), weights=tmp_path / name)
    assert not mark.exists()


def _bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\0" * 10**6)


def _outside(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/../../data.pkl", b"")


def _damage(path: Path) -> None:
    torch.save({"fc.weight": torch.full((8, 8), 3.0)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(struct.pack("<f", 3.0) * 8)] ^= 1
    path.write_bytes(data)


def _cut_off(path: Path) -> None:
    torch.save(net().state_dict(), path)
    path.write_bytes(path.read_bytes()[:-100])


def _far_offset(path: Path) -> None:
    torch.save({"fc.weight": torch.ones(2, 2)}, path)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data[:4] if "data/0" in name else data)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_bomb, "compressed member"),
        (_outside, "reaches outside"),
        (_damage, "checksum"),
        (_cut_off, "damaged"),
        (_far_offset, "lies outside its storage"),
        (lambda path: path.write_bytes(b""), "not an archive"),
        (lambda path: torch.save([1, 2], path), "holds no state dict"),
    ],
)
def test_spoilt_archives_are_refused_in_one_sentence(
    tmp_path: Path, spoil: Callable[[Path], object], sentence: str
) -> None:
    spoil(tmp_path / "net.pt")
    with pytest.raises(ModelError, match=sentence) as caught:
        TorchBackend.weight_file(tmp_path / "net.pt")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 10**9) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 67) + b'{"a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,9999999]}}'[:67],
        struct.pack("<Q", 62) + b'{"a.weight":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}' + b"\0" * 4,
        struct.pack("<Q", 62) + b'{"a.weight":{"dtype":"F99","shape":[01],"data_offsets":[0,4]}}' + b"\0" * 4,
    ],
)
def test_spoilt_safetensors_are_refused_in_one_sentence(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "net.safetensors").write_bytes(data)
    with pytest.raises(ModelError, match="no safetensors file") as caught:
        TorchBackend.weight_file(tmp_path / "net.safetensors")
    assert "\n" not in str(caught.value)


def test_values_of_another_shape_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    write_pt(net().state_dict(), tmp_path / "net.pt")
    with pytest.raises(WeightShapeError, match=r"has shape \(3,\), got values of shape \(4,\)"):
        TorchBackend.weight_file(tmp_path / "net.pt").rewrite(tmp_path / "new.pt", {("fc", "bias"): np.zeros(4)})
    assert [path.name for path in tmp_path.iterdir()] == ["net.pt"]
