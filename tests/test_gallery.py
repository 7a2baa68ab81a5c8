"""The gallery: its page is what its results say, and its inputs are what the packages' own code would make."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the gallery's models are not run: onnxruntime is not installed")

import arachne
from arachne.localise.sparing import layers_behind
from arachne.tasks import Detection
from examples.gallery.__main__ import EXHIBITS, NAMES, PAGE, load, main
from examples.gallery.exhibit import Exhibit, MissingError, package_folder
from examples.gallery.file_types import read_features
from examples.gallery.openings import FILES
from examples.gallery.wake_words import SAMPLES, place_in_noise

README = Path(__file__).parent.parent / "README.md"
pytestmark = pytest.mark.backend("onnx")


def test_the_page_is_what_the_results_say() -> None:
    assert main(["report", "--check"]) == 0, "run: python -m examples.gallery report"
    assert all(load(name) for name in NAMES)


@pytest.mark.parametrize("exhibit", EXHIBITS.values(), ids=list(EXHIBITS))
def test_the_page_has_every_figure(exhibit: Exhibit) -> None:
    fix = load(exhibit.name)["repair"]
    text = PAGE.read_text("utf-8")
    assert f"| {fix['broken']} of {fix['positives']:,} |" in text
    assert f"| {fix['negatives']} | {fix['negatives'] - fix['repaired']} |" in text


def test_the_figures_of_the_readme_are_those_of_the_gallery() -> None:
    record = load("magika")
    fix, bias, text = record["repair"], record["bias"], README.read_text("utf-8")
    rows = [
        f"| Perl read as Prolog | {fix['negatives']} | {fix['negatives'] - fix['repaired']} |",
        f"| right before, wrong now | | {fix['broken']} of {fix['positives']:,} |",
        f"| weights changed | | {fix['weights']} |",
    ]
    assert [row for row in rows if row not in text] == []
    assert f"{bias['repaired']} of {bias['negatives']}" in text


@pytest.mark.parametrize("content", [b"  print 1;\n" * 3, bytes(range(256)) * 40, b"\n\n" + b"a" * 5000 + b" \n"])
def test_features_of_a_file_are_those_that_magika_makes(content: bytes, tmp_path: Path) -> None:
    magika = pytest.importorskip("magika", reason="magika is not installed; the gallery says how")
    seekable = pytest.importorskip("magika.types.seekable", reason="this magika has no such module")
    (tmp_path / "file").write_bytes(content)
    theirs = magika.Magika._extract_features_from_seekable(
        seekable.Seekable(io.BytesIO(content)),
        1024,
        0,
        1024,
        padding_token=256,
        block_size=4096,
        use_inputs_at_offsets=False,
    )
    assert read_features(tmp_path / "file").tolist() == [*theirs.beg, *theirs.end]


def test_a_clip_ends_in_the_window_whatever_its_length() -> None:
    rng = np.random.default_rng(0)
    for samples in (100, SAMPLES, 3 * SAMPLES):
        sound = place_in_noise(np.full(samples, 1000.0), rng)
        assert sound.shape == (SAMPLES,)
        assert np.abs(sound).max() > 900


def test_what_is_missing_is_named_with_how_to_install_it(capsys: pytest.CaptureFixture[str]) -> None:
    exhibit = Exhibit("none", "", "no-such-package", "pip install x", "no_such_module/m.onnx", dict, "", "0:1")
    with pytest.raises(MissingError, match="pip install x"):
        exhibit.find_model()
    with pytest.raises(MissingError, match="pip install x"):
        _ = exhibit.version


def test_a_yolov8_export_of_a_package_has_its_class_head_in_reach_and_takes_a_patch(tmp_path: Path) -> None:
    file = "nudenet/320n.onnx"
    try:
        path = package_folder("nudenet", FILES[file]) / "320n.onnx"
    except MissingError as missing:
        pytest.skip(str(missing))
    backend = arachne.load(path)
    inputs = np.random.default_rng(0).random((2, 3, 320, 320), np.float32)
    outputs, task = backend.forward(inputs), Detection()
    task = task.resolve(outputs, None)
    assert task.n_names(outputs) == 18
    spared = task.spared_outputs(outputs)
    behind = layers_behind(backend, inputs, spared)
    free = {layer.name for layer in backend.layers} - behind
    assert free == {f"model.22.cv3.{scale}.{part}" for scale in range(3) for part in ("0.conv", "1.conv", "2")}

    layer = "model.22.cv3.1.2"
    bias = backend.get_weights(layer)["bias"]
    changed = bias.copy()
    changed[4] -= 1.0
    backend.set_weights(layer, "bias", changed)
    backend.save(tmp_path / "other.onnx")
    patch = arachne.diff(path, tmp_path / "other.onnx")
    arachne.apply(patch, path, tmp_path / "fixed.onnx")
    before, after = path.read_bytes(), (tmp_path / "fixed.onnx").read_bytes()
    places = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    start = before.index(bias.tobytes())
    assert 0 < len(places) <= 4
    assert all(start + 16 <= at < start + 20 for at in places)
    boxes = np.broadcast_to(spared, outputs.shape)
    after_outputs = arachne.load(tmp_path / "fixed.onnx").forward(inputs)
    assert np.array_equal(after_outputs[boxes], outputs[boxes])
    assert not np.array_equal(after_outputs, outputs)
