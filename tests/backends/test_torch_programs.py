"""Exported programs: opened from what was checked, repaired like modules, rewritten member by member."""

from __future__ import annotations

import copy
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from arachne.decisions.losses import cross_entropy
from arachne.errors import DataError, ModelError, UnsafeModelError
from arachne.model.cut import PlainCut
from arachne.model.values import Array
from arachne_torch import TorchBackend
from arachne_torch.cut import TorchCut

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 3, 3, padding=1, padding_mode="reflect")
        self.norm = nn.BatchNorm2d(3)
        self.drop = nn.Dropout(0.5)
        self.shared = nn.Linear(3, 3)

    def forward(self, image: Tensor) -> Any:
        x = torch.relu(self.norm(self.conv(image))) + image
        x = self.shared(self.drop(x).mean((2, 3)))
        return torch.softmax(self.shared(x), dim=-1)


def images(n: int = 6) -> Array:
    return np.random.default_rng(0).normal(size=(n, 1, 5, 5)).astype(np.float32)


def export(model: nn.Module, path: Path, *, rows: int = 2, dynamic: bool = True) -> Path:
    shapes = ({0: torch.export.Dim("batch")},) if dynamic else None
    torch.export.save(torch.export.export(model, (torch.zeros(rows, 1, 5, 5),), dynamic_shapes=shapes), path)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(Net().eval(), tmp_path_factory.mktemp("program") / "net.pt2")


def test_a_program_is_the_model_it_was_exported_from(program: Path) -> None:
    ours, module = TorchBackend.load(program), TorchBackend.load(Net())
    assert [info.name for info in ours.layers] == ["conv", "norm", "shared"]  # known before any input
    for n in (0, 1, 6):
        np.testing.assert_allclose(ours.forward(images(n)), module.forward(images(n)), atol=1e-6)
    for one, other in zip(ours.layers, module.layers, strict=True):
        assert one == other
    labels = np.arange(6) % 3
    gradients, expected = (
        ours.weight_gradients(images(), cross_entropy(labels)),
        module.weight_gradients(images(), cross_entropy(labels)),
    )
    for place, values in expected.items():
        np.testing.assert_allclose(gradients[place], values, atol=1e-6)
    assert ours.describe().format == "exported program"


def test_a_program_is_cut_like_a_module(program: Path) -> None:
    backend = TorchBackend.load(program)
    for layers in (["norm"], ["shared"]):
        fast, plain = backend.cut(images(), layers), PlainCut(backend, images(), layers)
        assert isinstance(fast, TorchCut)
        changed = {(layers[0], "bias"): np.array([0.5, -1, 2], np.float32)}
        np.testing.assert_allclose(fast.scores_with(changed), plain.scores_with(changed), atol=1e-6)


def test_a_saved_program_differs_in_one_member_only(program: Path, tmp_path: Path) -> None:
    backend = TorchBackend.load(program)
    scale = backend.get_weights("norm")["scale"]
    scale[1] = 0.75
    backend.set_weights("norm", "scale", scale)
    backend.save(tmp_path / "new.pt2")
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(tmp_path / "new.pt2") as new:
        assert new.testzip() is None
        assert old.namelist() == new.namelist()
        assert len([name for name in old.namelist() if old.read(name) != new.read(name)]) == 1
    again = torch.export.load(tmp_path / "new.pt2").module()
    scores = torch.from_numpy(backend.forward(images())).softmax(1)
    torch.testing.assert_close(again(torch.from_numpy(images())), scores)
    file = TorchBackend.weight_file(tmp_path / "new.pt2")
    np.testing.assert_array_equal(file.read("norm", "scale"), scale)
    file.rewrite(tmp_path / "back.pt2", {("norm", "scale"): TorchBackend.weight_file(program).read("norm", "scale")})
    assert (tmp_path / "back.pt2").read_bytes() == program.read_bytes()
    with pytest.raises(ModelError, match="never overwritten"):
        backend.save(program)


@pytest.mark.parametrize("rows", [1, 2, 4, 9])
def test_a_fixed_batch_is_padded_and_the_padding_taken_off(tmp_path: Path, rows: int) -> None:
    backend = TorchBackend.load(export(Net().eval(), tmp_path / "net.pt2", rows=rows, dynamic=False))
    module = TorchBackend.load(Net())
    labels = np.arange(6) % 3
    np.testing.assert_allclose(backend.forward(images()), module.forward(images()), atol=1e-6)
    np.testing.assert_allclose(
        backend.weight_gradients(images(), cross_entropy(labels))["conv", "weight"],
        module.weight_gradients(images(), cross_entropy(labels))["conv", "weight"],
        atol=1e-6,
    )
    seed = np.eye(3)[labels]
    ours, theirs = (one.output_gradients(images(), "norm", seed)[0] for one in (backend, module))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert backend.activations(images(), "shared")[0].leaving.shape == (6, 3)
    assert not backend.cut(images(), ["norm"]).continues_from_outputs
    assert any("one batch size" in note for note in backend.describe().notes)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_program_exported_in_training_mode_loses_its_dropout_or_is_refused(tmp_path: Path) -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(25, 3)
            self.drop = nn.Dropout(0.9)

        def forward(self, x: Tensor) -> Any:
            return self.fc(self.drop(x.flatten(1)))

    backend = TorchBackend.load(export(Dropping().train(), tmp_path / "drop.pt2"))
    np.testing.assert_array_equal(backend.forward(images()), backend.forward(images()))
    assert any("dropout is turned off" in note for note in backend.describe().notes)
    with pytest.raises(ModelError, match=r"call model\.eval\(\) before"):
        TorchBackend.load(export(Net().train(), tmp_path / "norm.pt2"))


def test_wrong_shapes_are_the_datas_fault(program: Path) -> None:
    with pytest.raises(DataError, match=r"inputs of shape \(4, 2, 5, 5\)"):
        TorchBackend.load(program).forward(np.zeros((6, 2, 5, 5), np.float32))


def test_an_exported_program_in_hand_is_opened_but_not_saved(program: Path, tmp_path: Path) -> None:
    backend = TorchBackend.load(torch.export.load(program))
    np.testing.assert_allclose(backend.forward(images()), TorchBackend.load(program).forward(images()), atol=1e-6)
    with pytest.raises(ModelError, match=r"torch\.export\.save"):
        backend.save(tmp_path / "new.pt2")


class Exploit:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def rewritten(source: Path, path: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """A copy of an archive with some members changed."""
    with zipfile.ZipFile(source) as file:
        members = {name.partition("/")[2]: file.read(name) for name in file.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(f"net/{name}", data)
    return path


def in_description(*keys: Any, value: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        description = json.loads(members["models/model.json"])
        part = description
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = value
        members["models/model.json"] = json.dumps(description).encode()

    return change


def in_table(part: str, entry: dict[str, Any]) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        name = f"data/{part}/model_{part}_config.json"
        table = json.loads(members[name])
        first = copy.deepcopy(
            next(iter(json.loads(members["data/weights/model_weights_config.json"])["config"].values()))
        )
        table["config"]["extra"] = {**first, **entry}
        members[name] = json.dumps(table).encode()
        members[f"data/{part}/{entry['path_name']}"] = b""

    return change


GRAPH = ("graph_module", "graph")
CODE = "__import__('pathlib').Path('ran').touch()"


@pytest.mark.parametrize(
    "change",
    [
        in_description(*GRAPH, "nodes", 0, "target", value="torch.os.system"),
        in_description(*GRAPH, "nodes", 0, "target", value="torch.ops.load_library.__func__.__call__"),
        in_description(*GRAPH, "nodes", 0, "target", value="torch.ops.aten.from_file.default"),
        in_description(*GRAPH, "nodes", 0, "target", value="_operator.attrgetter"),
        in_description(*GRAPH, "inputs", -1, "as_tensor", "name", value=f"image={CODE}"),
        in_description(*GRAPH, "nodes", 0, "name", value=f"x\n{CODE}"),
        in_description(
            *GRAPH, "tensor_values", "image", "sizes", 0, value={"as_expr": {"expr_str": CODE, "hint": None}}
        ),
        in_description(
            *GRAPH, "tensor_values", "image", "sizes", 0, value={"as_expr": {"expr_str": "eval('x')", "hint": None}}
        ),
        in_description(
            "graph_module", "module_call_graph", 0, "signature", "in_spec", value=f'[1, {{"type": "{CODE}"}}]'
        ),
        in_description(
            "graph_module", "signature", "input_specs", 0, "parameter", "parameter_name", value=f'a"+{CODE}'
        ),
        in_table("weights", {"path_name": "weight_99", "use_pickle": True}),
        in_table("constants", {"path_name": "custom_obj_0", "use_pickle": True, "tensor_meta": None}),
        lambda members: members.update({"data/aotinductor/model/model.so": b""}),
        lambda members: members.update({"data/weights/model.pt": b""}),
    ],
)
def test_a_program_that_could_run_code_is_refused(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, bytes]], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    hostile = rewritten(program, tmp_path / "net.pt2", change)
    with pytest.raises(UnsafeModelError) as caught:
        TorchBackend.load(hostile)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_sample_inputs_and_guards_are_never_run(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(members: dict[str, bytes]) -> None:
        members["data/sample_inputs/model.pt"] = pickle.dumps(Exploit(tmp_path / "ran"))
        in_description("guards_code", value=[CODE])(members)

    monkeypatch.chdir(tmp_path)
    hostile = rewritten(program, tmp_path / "net.pt2", change)
    expected = TorchBackend.load(program).forward(images())
    np.testing.assert_array_equal(TorchBackend.load(hostile).forward(images()), expected)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members.pop("models/model.json"),
        lambda members: members.pop("data/weights/weight_0"),
        lambda members: members.update({"models/model.json": b"{"}),
        lambda members: members.update({"models/model.json": b"{}"}),
        lambda members: members.update({"data/weights/model_weights_config.json": b"[]"}),
        lambda members: members.update({"data/weights/weight_0": b"\0" * 4}),
        lambda members: members.update({"byteorder": b"big"}),
    ],
)
def test_a_damaged_program_is_refused_in_one_sentence(
    program: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], object]
) -> None:
    damaged = rewritten(program, tmp_path / "net.pt2", change)
    with pytest.raises(ModelError) as caught:
        TorchBackend.load(damaged)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_mapping_feeds_a_program_of_several_inputs(tmp_path: Path, by_name: bool) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Linear(3, 4)
            self.right = nn.Linear(2, 4)

        def forward(self, x: Tensor, y: Tensor) -> Any:
            return {"logits": self.left(x) + self.right(y), "sum": x.sum(1)}

    model, batch = Two(), torch.export.Dim("batch")
    given = {"x": torch.zeros(2, 3), "y": torch.zeros(2, 2)}
    exported = torch.export.export(
        model,
        () if by_name else tuple(given.values()),
        given if by_name else None,
        dynamic_shapes={"x": {0: batch}, "y": {0: batch}},
    )
    torch.export.save(exported, tmp_path / "two.pt2")
    rng = np.random.default_rng(0)
    inputs: dict[str, Array] = {
        name: rng.normal(size=(5, width)).astype(np.float32) for name, width in (("y", 2), ("x", 3))
    }
    backend = TorchBackend.load(tmp_path / "two.pt2")
    np.testing.assert_allclose(backend.forward(inputs), TorchBackend.load(model).forward(inputs), atol=1e-6)
    assert isinstance(backend.cut(inputs, ["right"]), TorchCut)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, in run_decompositions
def test_a_decomposed_program_has_the_same_layers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    ).eval()
    exported = torch.export.export(model, (torch.zeros(2, 1, 5, 5),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(exported.run_decompositions(), tmp_path / "net.pt2")
    ours, module = TorchBackend.load(tmp_path / "net.pt2"), TorchBackend.load(model)
    np.testing.assert_allclose(ours.forward(images()), module.forward(images()), atol=1e-6)
    for one, other in zip(ours.layers, module.layers, strict=True):
        assert (one.name, one.kind, one.parameters, one.geometry) == (
            other.name,
            other.kind,
            other.parameters,
            other.geometry,
        )
        for mine, theirs in zip(
            ours.activations(images(), one.name), module.activations(images(), one.name), strict=True
        ):
            np.testing.assert_allclose(mine.leaving, theirs.leaving, atol=1e-6)
