"""The gallery: its page is what its results say, and its inputs are what the packages' own code would make."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the gallery's models are not run: onnxruntime is not installed")

from examples.gallery.__main__ import EXHIBITS, NAMES, PAGE, load, main
from examples.gallery.exhibit import Exhibit, MissingError
from examples.gallery.file_types import read_features
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
