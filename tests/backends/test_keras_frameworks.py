"""One adapter for every framework Keras runs on: a part of the exported suite in a fresh interpreter on each.

The whole suite on another framework is `KERAS_BACKEND=torch pytest tests/backends/test_keras_conformance.py`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.backend("keras")

FOLDER = Path(__file__).parent
PART = "(gradients or cut or saved) and (branches or conv1d)"


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_suite_passes_on_other_frameworks_too(framework: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", PART]
    done = subprocess.run(
        [*command, str(FOLDER / "test_keras_conformance.py")],
        env={**os.environ, "KERAS_BACKEND": framework}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def test_a_model_moves_between_frameworks(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    code = (
        "import sys\nimport numpy as np\n"
        "from arachne_keras import KerasBackend\nimport keras\nfrom keras import layers as kl\n"
        "path, inputs = sys.argv[1], np.linspace(-1, 1, 60, dtype='float32').reshape(3, 5, 4)\n"
        "if sys.argv[2] == 'make':\n"
        "    keras.utils.set_random_seed(0)\n"
        "    model = keras.Sequential([keras.Input((5, 4)), kl.GRU(3), kl.Dense(3, activation='softmax')])\n"
        "    KerasBackend.load(model).save(__import__('pathlib').Path(path))\n"
        "print(keras.backend.backend(), *KerasBackend.load(path).forward(inputs).ravel().tolist())"
    )
    answers = {}
    for framework, task in (("tensorflow", "make"), ("torch", "read")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "model.keras"), task],
            env={**os.environ, "KERAS_BACKEND": framework}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        name, *scores = done.stdout.split()
        assert name == framework  # what the user chose, though both are installed
        answers[framework] = [float(score) for score in scores]
    assert answers["torch"] == pytest.approx(answers["tensorflow"], abs=5e-6)
