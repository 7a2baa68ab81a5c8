"""A backend by somebody else is really installed, and comes through the same door as ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROBE = """
import json, sys
import numpy as np
from arachne.model import registry

before = registry.names()
backend = registry.load(sys.argv[1])
print(json.dumps({
    "names": before,
    "class": type(backend).__module__ + "." + type(backend).__name__,
    "scores": backend.forward(np.array([[1.0, 10.0]], np.float32)).tolist(),
    "frameworks": sorted({"torch", "keras", "tensorflow", "onnx", "onnxruntime"} & set(sys.modules)),
}))
"""


def run(code: str, *arguments: str, site: Path) -> str:
    """Run code in a fresh interpreter with `site` on its path, and return its output."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_plugin_is_found_and_loads_its_files(plugin_site: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.tally"
    model.write_text("1 2\n3 4\n")
    printed = json.loads(run(PROBE, str(model), site=plugin_site))
    assert "tally" in printed["names"]
    assert printed["class"] == "arachne_tally.TallyBackend"
    assert printed["scores"] == [[21.0, 43.0]]


def test_loading_through_a_plugin_imports_no_other_framework(plugin_site: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.tally"
    model.write_text("1 2\n3 4\n")
    assert json.loads(run(PROBE, str(model), site=plugin_site))["frameworks"] == []


def test_a_plugin_is_gone_when_it_is_not_installed(tmp_path: Path) -> None:
    printed = run("from arachne.model import registry; print(registry.names())", site=tmp_path)
    assert "tally" not in printed
