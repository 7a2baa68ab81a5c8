"""A page that cannot be drawn costs the page: the patch, the model and the result are there, with a note."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arachne.errors import InputError
from arachne.report import folder as report_folder
from arachne.report import html, page, saliency
from arachne.report.pictures import NOT_SHOWN
from arachne.results.result import RepairResult
from tests.commands import arachne

BIAS = ("--target", "*:7", "--search", "bias")
ALL = {
    *("patch.json", "model.onnx", "result.json", "history.csv", "MODEL_CARD.md", "manifest.json", "report.json"),
    *("report.html", "front.npz"),
}


def fail(*arguments: object, **options: object) -> str:
    raise ValueError("no ink\nat all")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("digits.onnx", "digits.npz"):
        (tmp_path / name).write_bytes(resources.files("arachne.demo").joinpath(name).read_bytes())
    return tmp_path


def digits() -> tuple[np.ndarray, np.ndarray]:
    with np.load(str(resources.files("arachne.demo").joinpath("digits.npz"))) as stored:
        return stored["x"], stored["y"]


@pytest.mark.backend("onnx")
def test_pictures_that_come_with_texts_are_shown_as_pictures_in_the_maps(folder: Path) -> None:
    x, y = digits()
    np.savez(folder / "texts.npz", x=x, y=y, text=np.array([f"digit {n}" for n in range(len(y))]))
    ran = arachne("repair", "digits.onnx", "--data", "texts.npz", *BIAS, "-o", "fix", cwd=folder)
    assert ran.code == 0, ran.err
    page = json.loads((folder / "fix" / "report.json").read_text())
    assert page["saliency"]
    assert {one["input"]["kind"] for one in page["saliency"]} == {"image"}
    assert {one["input"]["kind"] for one in page["gallery"]["fixed"]["cards"]} == {"text"}
    assert (folder / "fix" / "report.html").is_file()


@pytest.mark.backend("onnx")
def test_pictures_outside_the_folder_of_the_data_have_no_maps(folder: Path) -> None:
    x, y = digits()
    for name in ("data", "private"):
        (folder / name).mkdir()
    rows = []
    for number, (picture, label) in enumerate(zip(x.reshape(-1, 8, 8), y.tolist(), strict=True)):
        place = "../private" if number % 2 else "."
        pixels = np.round(255 * picture).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "data" / place / f"{number}.png")
        rows.append(f"{place}/{number}.png,{label}\n")
    (folder / "data" / "a.csv").write_text("path,label\n" + "".join(rows))
    given = ("--data", "data/a.csv", "--preprocess", "grey scale=1/255 layout=nchw")
    ran = arachne("repair", "digits.onnx", *given, *BIAS, "-o", "fix", cwd=folder)
    assert ran.code == 0, ran.err
    page = json.loads((folder / "fix" / "report.json").read_text())
    cards = [card for gallery in page["gallery"].values() for card in gallery["cards"]]
    assert any(card["input"].get("text") == NOT_SHOWN for card in cards)
    assert not any("private" in one["name"] for one in page["saliency"])


@pytest.mark.backend("onnx")
@pytest.mark.parametrize(
    ("where", "name", "missing", "note"),
    [
        (
            report_folder,
            "render",
            {"report.html"},
            "the page could not be drawn: no ink; `arachne report fix` tries again",
        ),
        (report_folder, "model_card", {"MODEL_CARD.md"}, "the model card could not be written: no ink"),
        (report_folder, "history_csv", {"history.csv"}, "history.csv could not be written: no ink"),
        (page, "_gallery", {"report.html", "report.json"}, "the page could not be drawn: no ink"),
        (
            saliency,
            "saliency_objects",
            set(),
            "the page could not be drawn with maps of what the model looks at: no ink",
        ),
    ],
)
def test_what_cannot_be_drawn_is_left_out_with_a_note(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: ModuleType, name: str, missing: set[str], note: str
) -> None:
    monkeypatch.setattr(where, name, fail)
    ran = arachne("repair", "digits.onnx", "--data", "digits.npz", *BIAS, "-o", "fix", cwd=folder)
    assert ran.code == 0, ran.err
    assert f"note: {note}\n" in ran.err
    assert {path.name for path in (folder / "fix").iterdir()} == ALL - missing
    assert set(json.loads((folder / "fix" / "manifest.json").read_text())["files"]) == ALL - missing - {"manifest.json"}
    monkeypatch.undo()
    if missing == {"report.html"}:
        assert arachne("report", "fix", cwd=folder).code == 0
        assert {path.name for path in (folder / "fix").iterdir()} == ALL
    assert arachne("repair", "digits.onnx", "--data", "digits.npz", *BIAS, "-o", "fix", "--force", cwd=folder).code == 0


@pytest.mark.backend("onnx")
def test_a_page_of_a_scan_or_an_evaluation_that_cannot_be_drawn_leaves_the_result(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "environment", fail)
    for command, option in (("scan", "--page"), ("evaluate", "--report")):
        ran = arachne(command, "digits.onnx", "--data", "digits.npz", option, "a.html", "--json", cwd=folder)
        assert (ran.code, "the page could not be drawn: no ink" in ran.err) == (0, True)
        assert ran.json["inputs" if command == "scan" else "held_out"]
        assert not (folder / "a.html").exists()


@pytest.mark.parametrize("address", ["http://127.0.0.1/a.png", "file:///etc/passwd", "javascript:alert(1)"])
def test_maps_hold_no_address_that_leads_elsewhere(
    repaired: RepairResult, page_of: Callable[[RepairResult], dict[str, Any]], address: str
) -> None:
    shown = page_of(repaired)
    shown["saliency"][0]["before"]["src"] = address
    with pytest.raises(InputError, match="shows only what a repair has drawn"):
        html.render(shown)
