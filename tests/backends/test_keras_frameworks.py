"""One adapter for every framework Keras runs on: a part of the exported suite in a fresh interpreter on each.

The whole suite on another framework is `KERAS_BACKEND=torch pytest tests/backends/test_keras_conformance.py`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.backend("keras")

FOLDER = Path(__file__).parent
PART = "(gradients or cut or saved) and (branches or conv1d)"
QUICKLY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
"""Networks this small take JAX longer to optimise than to run."""


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_suite_passes_on_other_frameworks_too(framework: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", PART]
    done = subprocess.run(
        [*command, str(FOLDER / "test_keras_conformance.py")],
        env={**os.environ, "KERAS_BACKEND": framework, **QUICKLY}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def test_a_model_moves_between_frameworks(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
    import keras
    from keras import layers as kl

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((5, 4)), kl.GRU(3), kl.Dense(3, activation="softmax")])
    KerasBackend.load(model).save(tmp_path / "model.keras")
    code = (
        "import sys\nimport numpy as np\nfrom arachne_keras import KerasBackend\nimport keras\n"
        "inputs = np.linspace(-1, 1, 60, dtype='float32').reshape(3, 5, 4)\n"
        "print(keras.backend.backend(), *KerasBackend.load(sys.argv[1]).forward(inputs).ravel().tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.keras")],
        env={**os.environ, "KERAS_BACKEND": "torch"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    name, *scores = done.stdout.split()
    assert name == "torch"  # what the user chose, though both are installed
    assert keras.backend.backend() == os.environ.get("KERAS_BACKEND", "tensorflow")
    inputs = np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 5, 4)
    here = KerasBackend.load(tmp_path / "model.keras").forward(inputs).ravel()
    assert [float(score) for score in scores] == pytest.approx(here.tolist(), abs=5e-6)
