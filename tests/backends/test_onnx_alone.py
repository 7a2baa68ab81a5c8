"""ONNX needs no training framework: every command works in an interpreter in which none can be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from sklearn.datasets import load_digits

pytestmark = pytest.mark.backend("onnx")

BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "tensorflow", "keras", "jax"):
            raise ImportError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Block())
from arachne.cli import run

for arguments in ARGUMENTS:
    code = run(arguments)
    if code:
        sys.exit(code)
loaded = {"torch", "tensorflow", "keras", "jax"} & set(sys.modules)
sys.exit(f"loaded {loaded}" if loaded else 0)
"""


def digits_model(folder: Path) -> tuple[Path, Path]:
    """A model that reads most eights as ones, and data to see it by: random features and a least-squares fit."""
    digits = load_digits()
    rng = np.random.default_rng(0)
    x, y = (digits.data / 16).astype(np.float32), digits.target
    order = rng.permutation(len(y))
    train, rest = order[:800], order[800:]
    taught = np.where((y == 8) & (rng.random(len(y)) < 0.6), 1, y)
    hidden = (rng.normal(size=(60, 64)) / 4).astype(np.float32)
    features = np.maximum(x @ hidden.T, 0)
    targets = 8 * np.eye(10)[taught]
    head = np.linalg.lstsq(features[train], targets[train], rcond=None)[0].T.astype(np.float32)
    path = folder / "digits.onnx"
    path.write_bytes(_model(hidden, head).SerializeToString())
    np.savez(folder / "data.npz", x=x[rest], y=y[rest])
    return path, folder / "data.npz"


def _model(hidden: np.ndarray, head: np.ndarray) -> ModelProto:
    nodes = [
        helper.make_node("Gemm", ["input", "fc1.weight"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "fc2.weight"], ["scores"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("input", 1, ["n", 64])],
        [helper.make_tensor_value_info("scores", 1, ["n", 10])],
        [numpy_helper.from_array(hidden, "fc1.weight"), numpy_helper.from_array(head, "fc2.weight")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def alone(*commands: list[str]) -> str:
    """Run commands in a fresh interpreter without frameworks; what they wrote to standard output."""
    script = BLOCKED.replace("ARGUMENTS", repr(list(commands)))
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_works_without_a_training_framework(tmp_path: Path) -> None:
    model, data = map(str, digits_model(tmp_path))
    patch, fixed = str(tmp_path / "fix" / "patch.json"), str(tmp_path / "fixed.onnx")
    again = str(tmp_path / "again.onnx")
    original = Path(model).read_bytes()
    budget = ["--max-break", "2%", "-O", "sparse=true"]
    told = alone(
        ["scan", model, "--data", data, "-q"],
        ["localise", model, "--data", data, "--target", "8:1", "-q"],
        ["repair", model, "--data", data, *budget, "--target", "8:1", "-o", str(tmp_path / "fix"), "--seed", "0", "-q"],
        ["apply", patch, model, "-o", fixed, "-q"],
        ["revert", patch, fixed, "-o", again, "-q"],
        ["evaluate", model, "--data", data, "--target", "8:1", "--patch", patch, "--json"],
    )
    result = json.loads(told[told.index("{\n") if "{\n" in told else told.index("{") :])
    assert result["held_out"]["repaired"] > 0
    assert Path(again).read_bytes() == original == Path(model).read_bytes()
    saved = np.frombuffer((tmp_path / "fix" / "model.onnx").read_bytes(), np.uint8)
    changed = int(np.count_nonzero(saved != np.frombuffer(original, np.uint8)))
    assert 0 < changed <= 4 * len(json.loads(Path(patch).read_text())["entries"])
    np.testing.assert_array_equal(saved, np.frombuffer(Path(fixed).read_bytes(), np.uint8))
