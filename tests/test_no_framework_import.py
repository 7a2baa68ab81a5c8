"""A fresh interpreter imports Arachne, and nothing heavy comes along."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from arachne.model.registry import load
from arachne.model.values import Address
from arachne.patch import Patch

FRAMEWORKS = {"torch", "keras", "tensorflow", "onnx", "onnxruntime", "jax", "ai_edge_litert"}
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
    assert loaded_after("from arachne.model import registry; assert 'torch' in registry.names()") & FRAMEWORKS == set()


def test_the_state_of_backends_is_known_without_their_frameworks() -> None:
    assert loaded_after("from arachne.model import registry; assert len(registry.states()) >= 3") & FRAMEWORKS == set()


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


MOST_MODULES = 100


def modules_of_ours(arguments: list[str]) -> set[str]:
    """Our own modules, and the top-level packages of others, that a command loads in a fresh interpreter."""
    code = (
        f"from arachne.cli import run; assert run({arguments!r}) == 0; import json, sys; "
        "print(); print(json.dumps([n if n.startswith('arachne') else n.partition('.')[0] for n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.backend("onnx")
def test_commands_about_patches_load_what_they_need_alone(tmp_path: Path) -> None:
    model = str(resources.files("arachne.demo").joinpath("digits.onnx"))
    patch, patched, restored = (str(tmp_path / name) for name in ("patch.json", "patched.onnx", "restored.onnx"))
    backend = load(model)
    layer = backend.layers[-1].name
    Patch.between(backend, [Address(layer, "bias", (7,))], [-1.0]).save(Path(patch))
    for arguments in (
        ["apply", patch, model, "-o", patched],
        ["revert", patch, patched, "-o", restored],
        ["show", patch],
        ["log", patched, "--patches", patch],
    ):
        loaded = modules_of_ours(arguments)
        ours = {name for name in loaded if name.startswith("arachne")}
        assert len(ours) <= MOST_MODULES, (arguments[0], sorted(ours))
        assert loaded & {"scipy", "onnxruntime", "PIL", "pymoo", "jinja2"} == set(), arguments[0]
        assert not any(name.startswith(("arachne.engine", "arachne.search", "arachne.evidence")) for name in ours)


QUANTISATION = (
    "arachne_tflite",
    "arachne_onnx.quantise",
    "arachne_onnx.qoperators",
    "arachne_onnx.dynamic",
    "arachne.scoring.rounded",
    "onnxruntime.quantization",
)


@pytest.mark.backend("onnx")
def test_an_ordinary_onnx_repair_loads_nothing_of_tflite_or_quantisation(tmp_path: Path) -> None:
    code = f"""
import sys
from arachne.cli import run
assert run(["demo", "-o", {str(tmp_path / "out")!r}, "--quiet"]) == 0
found = [name for name in sys.modules if name.startswith({QUANTISATION!r})]
assert not found, found
"""
    assert loaded_after(code) & {"ai_edge_litert", "tensorflow", "torch", "keras"} == set()
