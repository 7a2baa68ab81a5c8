"""Patches in PyTorch's files: what differs, byte by byte, and that it goes back to the bit."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import arachne
from arachne.cli import run
from arachne.errors import PatchError
from arachne.io.files import sha256_of
from arachne.model.registry import weight_file
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.weights.storage import BFLOAT16

pytestmark = pytest.mark.backend("torch")
torch.set_num_threads(1)

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


def small_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)).eval()


def save(path: Path, dtype: str) -> None:
    net = small_net().to(DTYPES[dtype])
    if path.suffix == ".safetensors":
        save_file(net.state_dict(), path)
    elif path.suffix == ".pt":
        torch.save(net.state_dict(), path)
    else:
        example = torch.zeros(2, 1, 8, 8, dtype=DTYPES[dtype])
        batch = ({0: torch.export.Dim("n")},)
        torch.export.save(torch.export.export(net, (example,), dynamic_shapes=batch), path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A small net in a file of any kind and dtype, made once."""
    folder = tmp_path_factory.mktemp("nets")

    def make(suffix: str, dtype: str) -> Path:
        path = folder / f"{dtype}{suffix}"
        if not path.exists():
            save(path, dtype)
        return path

    return make


@pytest.mark.parametrize("suffix", [".pt", ".pt2"])
def test_other_members_of_an_archive_are_untouched(
    saved: Callable[[str, str], Path], suffix: str, tmp_path: Path
) -> None:
    model = saved(suffix, "float32")
    patch = Patch.between(arachne.load(small_net()), [Address("3", "weight", (3, 5))], [0.25])
    patch.apply_file(weight_file(model), tmp_path / f"p{suffix}", reopen=weight_file)
    with zipfile.ZipFile(model) as before, zipfile.ZipFile(tmp_path / f"p{suffix}") as after:
        changed = [name for name in before.namelist() if before.read(name) != after.read(name)]
        assert after.testzip() is None
        assert after.namelist() == before.namelist()
    assert len(changed) == 1


def test_patched_files_are_what_torch_reads(saved: Callable[[str, str], Path], tmp_path: Path) -> None:
    patch = Patch.between(arachne.load(small_net()), [Address("3", "weight", (3, 5))], [0.25])
    arachne.apply(patch, saved(".pt", "float32"), tmp_path / "p.pt")
    arachne.apply(patch, saved(".pt2", "float32"), tmp_path / "p.pt2")
    state = torch.load(tmp_path / "p.pt", weights_only=True)
    expected = small_net()
    expected.state_dict()["3.weight"][3, 5] = 0.25
    assert all(torch.equal(state[name], values) for name, values in expected.state_dict().items())
    inputs = torch.randn(2, 1, 8, 8)
    assert torch.equal(torch.export.load(tmp_path / "p.pt2").module()(inputs), expected(inputs))


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(torch.relu(self.first(inputs)))
        return result


def test_shared_weight_changes_under_both_names(tmp_path: Path) -> None:
    net = Tied()
    torch.save(net.state_dict(), tmp_path / "tied.pt")
    patch = Patch.between(arachne.load(net), [Address("first", "weight", (0, 1))], [2.0])
    arachne.apply(patch, tmp_path / "tied.pt", tmp_path / "p.pt")
    state = torch.load(tmp_path / "p.pt", weights_only=True)
    assert state["first.weight"][0, 1] == state["second.weight"][0, 1] == 2.0
    arachne.revert(patch, tmp_path / "p.pt", tmp_path / "b.pt")
    assert sha256_of(tmp_path / "b.pt") == sha256_of(tmp_path / "tied.pt")


def test_changed_old_value_is_refused_in_every_format_of_the_same_framework(tmp_path: Path) -> None:
    patch = Patch.between(arachne.load(small_net()), [Address("3", "weight", (3, 5))], [0.25])
    net = small_net()
    weight = net.state_dict()["3.weight"]
    weight[3, 5] = torch.nextafter(weight[3, 5], torch.tensor(9.0))
    save_file(net.state_dict(), tmp_path / "m.safetensors")
    with pytest.raises(PatchError, match=r"expects 3.weight\[3, 5\] to be"):
        arachne.apply(patch, tmp_path / "m.safetensors", tmp_path / "p.safetensors")
    assert os.listdir(tmp_path) == ["m.safetensors"]


def fold_norm(model: nn.Sequential) -> nn.Sequential:
    """A convolution and its batch normalisation as one, as exporters write it."""
    conv, norm = model[0], model[1]
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    return nn.Sequential(torch.nn.utils.fusion.fuse_conv_bn_eval(conv, norm), *list(model)[2:]).eval()


def test_patch_follows_a_folded_batch_normalisation(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    net(torch.randn(64, 1, 8, 8) * 3 + 1)
    net.eval()
    net.state_dict()["1.weight"].copy_(torch.tensor([0.5, -2.0, 1.5, 3.0]))
    save_file(fold_norm(net).state_dict(), tmp_path / "folded.safetensors")
    patch = Patch.between(arachne.load(net), [Address("0", "weight", (1, 0, 1, 1))], [0.5])
    mapping = {"0": "0"}  # a mapping allows what files of the patch's own framework must not do unasked
    with pytest.raises(PatchError):
        arachne.apply(patch, tmp_path / "folded.safetensors", tmp_path / "p.safetensors")
    done = arachne.apply(patch, tmp_path / "folded.safetensors", tmp_path / "p.safetensors", mapping=mapping)
    assert done is not None
    assert done.derived == tmp_path / "p.safetensors.patch.json"
    net.state_dict()["0.weight"][1, 0, 1, 1] = 0.5
    kernel = weight_file(tmp_path / "p.safetensors").read("0", "weight")
    np.testing.assert_allclose(kernel, fold_norm(net).state_dict()["0.weight"].numpy(), rtol=1e-6)
    arachne.revert(patch, tmp_path / "p.safetensors", tmp_path / "b.safetensors")
    assert sha256_of(tmp_path / "b.safetensors") == sha256_of(tmp_path / "folded.safetensors")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save(tmp_path / "net.pt", "float32")
    patch = Patch.between(arachne.load(small_net()), [Address("3", "weight", (3, 5))], [0.25])
    patch.save(tmp_path / "patch.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_apply_diff_log_and_revert(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["apply", "patch.json", "net.pt", "-o", "p.pt", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["weights"], told["path"], told["derived"]) == (1, "p.pt", None)
    assert run(["diff", "net.pt", "p.pt", "-o", "diff.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] == json.loads(Path("patch.json").read_text())["entries"]
    for model, state in (("net.pt", "not carried"), ("p.pt", "carried")):
        assert run(["log", model, "--patches", ".", "--json"]) == 0
        assert [row["state"] for row in json.loads(capsys.readouterr().out)["patches"]] == [state, state]
    assert run(["revert", "patch.json", "p.pt", "-o", "back.pt"]) == 0
    assert sha256_of("back.pt") == sha256_of("net.pt")
    assert "restored: 1 weight " in capsys.readouterr().out


def test_commands_show_and_stack(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Patch.between(arachne.load(small_net()), [Address("0", "bias", (1,))], [2.0])
    other.save("other.json")
    assert run(["show", "patch.json"]) == 0
    assert "3.weight, float32 (10, 144), 1 of 1,440 weights\n  [3, 5]  " in capsys.readouterr().out
    assert run(["stack", "patch.json", "other.json", "-o", "both.json"]) == 0
    assert len(Patch.load("both.json")) == 2
    assert capsys.readouterr().out == "2 weights in 2 tensors; to see them: arachne show both.json\n"
    assert run(["stack", "both.json", "--without", "patch.json", "-o", "left.json"]) == 0
    assert Patch.load("left.json").entries == other.entries
    Patch.between(arachne.load(small_net()), [Address("0", "bias", (1,))], [3.0]).save("rival.json")
    capsys.readouterr()
    assert run(["stack", "other.json", "rival.json", "-o", "no.json"]) == 3
    told = capsys.readouterr().err
    assert "cannot add 'rival.json': the patches conflict: they give different values to 1 weight: 0.bias[1] " in told
    assert "(2.0 or 3.0); apply the first, and repair the second mistake in the patched model" in told
    assert not Path("no.json").exists()


def test_a_patch_of_a_stack_is_refused_with_the_way_out_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Patch.between(arachne.load(small_net()), [Address("3", "weight", (0, 0))], [2.0]).save("same.json")
    assert run(["stack", "patch.json", "same.json", "-o", "st.json"]) == 0
    assert run(["apply", "st.json", "net.pt", "-o", "st.pt"]) == 0
    capsys.readouterr()
    assert run(["revert", "patch.json", "st.pt", "-o", "rest.pt"]) == 3
    told = capsys.readouterr().err
    assert "others differ; the model was changed further: revert first what was applied later; of a stack" in told
    assert "arachne stack STACK --without patch.json -o REST" in told
    assert run(["revert", "st.json", "st.pt", "-o", "whole.pt"]) == 0  # the advice, step by step
    assert run(["stack", "st.json", "--without", "patch.json", "-o", "rest.json"]) == 0
    assert run(["apply", "rest.json", "whole.pt", "-o", "rest.pt"]) == 0
    assert run(["apply", "same.json", "net.pt", "-o", "same.pt"]) == 0
    assert sha256_of("rest.pt") == sha256_of("same.pt")
    capsys.readouterr()
    assert run(["revert", "patch.json", "net.pt", "-o", "no.pt"]) == 3
    assert "changed further" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("promised", "sentence"),
    [
        ([0.9, 1.0], "as the patch promised"),
        ([0.0, 0.1], "not as the patch promised: repair rate"),
        (None, "the patch promises nothing"),
    ],
)
def test_apply_with_data_measures_the_copy_beside_the_promise(
    promised: list[float] | None, sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(Path("net.pt2"), "float32")
    backend = arachne.load("net.pt2")
    inputs = np.random.default_rng(0).normal(size=(200, 1, 8, 8)).astype(np.float32)
    most = int(np.bincount(backend.predict(inputs)).argmax())
    row = [Address("3", "weight", (most, column)) for column in range(144)]
    evidence = {"held_out": {"repair_rate": promised[0], "repair_interval": promised}} if promised else {}
    values = -backend.get_weights("3")["weight"][most]
    patch = Patch.between(backend, row, values, provenance={"target": [f"*:{most}"]}, evidence=evidence)
    patch.save("fix.json")
    with patch.apply_temporarily(backend):
        labels = backend.predict(inputs)
    np.savez("d.npz", x=inputs, y=labels)
    assert run(["apply", "fix.json", "net.pt2", "-o", "p.pt2", "--data", "d.npz", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["promise"].startswith(sentence)
    assert told["measured"]["held_out"]["accuracy_after"] == 1.0
    assert told["measured"]["held_out"]["repair_rate"] == 1.0
    assert Path("p.pt2").exists()


def test_nothing_is_written_when_the_data_cannot_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(Path("net.pt2"), "float32")
    assert run(["apply", "patch.json", "net.pt2", "-o", "p.pt2", "--data", "missing.npz"]) == 3
    assert not Path("p.pt2").exists()


REFUSED = {
    "no such patch": ["apply", "missing.json", "net.pt", "-o", "p.pt"],
    "a truncated patch": ["apply", "cut.json", "net.pt", "-o", "p.pt"],
    "an unpatched model": ["revert", "patch.json", "net.pt", "-o", "p.pt"],
    "an unknown layer": ["apply", "patch.json", "net.pt", "-o", "p.pt", "--map", "3=9"],
}


@pytest.mark.parametrize("output", ["net.pt", "link.pt"])
def test_the_input_is_no_output(output: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.symlink("net.pt", "link.pt")
    before = sha256_of("net.pt")
    assert run(["apply", "patch.json", "net.pt", "-o", output]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sha256_of("net.pt") == before


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
def test_refusal_is_exit_3_one_sentence_and_no_file(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cut.json").write_text(Path("patch.json").read_text()[:-40])
    before = {path: sha256_of(path) for path in sorted(os.listdir())}
    assert run(arguments) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert {path: sha256_of(path) for path in sorted(os.listdir())} == before


def test_bfloat16_is_rounded_as_torch_rounds() -> None:
    numbers = torch.randn(1000, dtype=torch.float64) * torch.logspace(-40, 38, 1000, dtype=torch.float64)
    assert np.array_equal(BFLOAT16.round(numbers.numpy()), numbers.to(torch.bfloat16).float().numpy())
