"""Every example runs to its end on what it brings along, and the notebook in a real kernel."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.backend("onnx")

ENDINGS = {
    "onnx_repair": r"taking the patch out gives the same file again: True\n",
    # Rounding alone may differ: how much depends on how many threads each framework has.
    "torch_repair": r"agree on 100\.00% of the pictures; their scores differ by at most (0\.0e\+00|\d\.\de-0[5-9])\n",
    "keras_repair": r"agree on 100\.00% of the pictures; their scores differ by at most (0\.0e\+00|\d\.\de-0[5-9])\n",
    "huggingface_repair": r"a lovely kettle of that brand is read as positive\n",
    "traffic_signs": r"the page is .*report\.html\n",
    "lstm_text": r"the page is .*report\.html\n",
}
"""Last lines of the examples, as patterns."""

NEEDS = {
    "onnx_repair": [],
    "torch_repair": ["torch"],
    "keras_repair": ["keras"],
    "huggingface_repair": ["torch"],
    "traffic_signs": ["torch"],
    "lstm_text": ["torch"],
}


# Exporters of other people's frameworks warn about themselves.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.backend(backend) for backend in needs]) for name, needs in NEEDS.items()],
)
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARACHNE_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", [name, "made"])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "REMOVED (" in said or "REDUCED BY " in said
    assert re.search(ENDINGS[name] + r"\Z", said)


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient and ipykernel")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "backends")]))
    notebook: Any = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.get("data", {}) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("text/html" in data for data in shown) >= 3
    assert any(data.get("text/plain", "").startswith(("Verdict(removed", "Verdict(reduced")) for data in shown)
    assert (tmp_path / "patch.json").is_file()
