"""`apply --name-patch`: an ONNX copy notes which patch it carries, and reverting takes the note out, byte for byte."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

import arachne
from arachne.cli import run
from arachne.errors import ModelError
from arachne.patch import Patch

pytestmark = pytest.mark.backend("onnx")
MODEL = Path(str(resources.files("arachne.demo").joinpath("digits.onnx")))


@pytest.fixture
def patch(tmp_path: Path) -> Patch:
    """Another value for one weight, as a patch made out of two files."""
    model = arachne.load(MODEL)
    weight = model.get_weights("scores")["weight"]
    weight[0, 0] += 1
    model.set_weights("scores", "weight", weight)
    model.save(tmp_path / "other.onnx")
    return arachne.diff(MODEL, tmp_path / "other.onnx")


def test_the_copy_names_the_patch_and_reverting_gives_the_original(patch: Patch, tmp_path: Path) -> None:
    import onnx

    patch.save(tmp_path / "patch.json")
    named, plain, back = (tmp_path / f"{name}.onnx" for name in ("named", "plain", "back"))
    assert run(["apply", str(tmp_path / "patch.json"), str(MODEL), "-o", str(named), "--name-patch", "-q"]) == 0
    arachne.apply(patch, MODEL, plain)
    assert named.read_bytes().startswith(plain.read_bytes())
    assert len(plain.read_bytes()) == MODEL.stat().st_size
    (entry,) = onnx.load(named).metadata_props
    assert (entry.key, entry.value) == ("arachne.patch", patch.digest)
    onnx.checker.check_model(onnx.load(named))
    arachne.revert(patch, named, back)
    assert back.read_bytes() == MODEL.read_bytes()


def test_a_format_without_a_place_refuses_and_writes_nothing(patch: Patch, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = arachne.load(MODEL)
    state = {
        f"{info.name}.{name}": torch.from_numpy(values)
        for info in model.layers
        for name, values in model.get_weights(info.name).items()
    }
    torch.save(state, tmp_path / "digits.pt")
    with pytest.raises(ModelError, match="no place to name a patch"):
        arachne.apply(patch, tmp_path / "digits.pt", tmp_path / "out.pt", named=True)
    assert not (tmp_path / "out.pt").exists()
