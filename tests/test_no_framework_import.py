"""A fresh interpreter imports Arachne, and nothing heavy comes along."""

from __future__ import annotations

import json
import subprocess
import sys

FRAMEWORKS = {"torch", "keras", "tensorflow", "onnx", "onnxruntime", "jax"}
CLUSTER = {"dask", "distributed"}
HEAVY = {*FRAMEWORKS, *CLUSTER, "matplotlib", "pymoo", "numpy", "scipy", "pytest"}

REPORT = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"


def loaded_after(code: str) -> set[str]:
    """The top-level packages a fresh interpreter has loaded after running `code`."""
    done = subprocess.run([sys.executable, "-c", f"{code}\n{REPORT}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_arachne_loads_nothing_heavy() -> None:
    assert loaded_after("import arachne") & HEAVY == set()


def test_the_names_of_backends_are_known_without_their_frameworks() -> None:
    assert loaded_after("from arachne import registry; assert 'torch' in registry.names()") & FRAMEWORKS == set()


def test_the_state_of_backends_is_known_without_their_frameworks() -> None:
    assert loaded_after("from arachne import registry; assert len(registry.states()) >= 3") & FRAMEWORKS == set()


def test_the_reference_backend_needs_neither_a_framework_nor_pytest() -> None:
    assert loaded_after("from arachne.testing import ReferenceBackend, mlp") & {*FRAMEWORKS, "pytest", "pymoo"} == set()


def test_help_loads_no_numpy() -> None:
    code = "from arachne.cli import run; assert run(['--help']) == 0"
    assert loaded_after(code) & HEAVY == set()


def test_the_help_of_repair_reads_options_of_plugins_without_what_those_compute_with() -> None:
    code = "from arachne.cli import run; assert run(['repair', '--help']) == 0"
    assert loaded_after(code) & (HEAVY - {"numpy"}) == set()


def test_dask_is_loaded_only_where_a_cluster_is_asked_for() -> None:
    code = """
import numpy, arachne, arachne.cluster.backend, arachne.cluster.starting
from arachne.testing import ReferenceBackend, mlp
inputs = numpy.random.default_rng(0).random((300, 8)).astype(numpy.float32)
arachne.scan(ReferenceBackend(mlp([8, 4, 3])), (inputs, numpy.arange(300) % 3))
"""
    assert loaded_after(code) & CLUSTER == set()
