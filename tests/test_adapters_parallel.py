"""The adapters have the same shape, so that one can be read beside another; without a check they drift apart."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from arachne.adapting.backend import RunnerBackend
from arachne.model.backend import ModelBackend
from arachne.model.files import ModelFiles
from arachne.model.inputs import ModelInputs
from arachne.model.weights import ModelWeights
from arachne.plugins.table import BACKENDS

SHARED: Mapping[str, Sequence[str]] = {
    "__init__": (),
    "adapter": ("{}Backend",),
    "archive": ("Archive",),
    "bounds": ("ALWAYS_ALLOWED_BYTES", "PROPORTION"),
    "conformance": ("{}Conformance", "build"),
    "cut": ("{}Cut",),
    "output_head": ("check_output_head", "find_output_head"),
    "export": ("example_inputs", "export_onnx"),
    "fitting": ("fit_weights",),
    "batch_axis": ("find_batch_axis", "guess_batch_axis"),
    "following_ops": ("NAMES", "op_name"),
    "gradients": ("gradients_of",),
    "graph": ("Graph",),
    "io": ("LoadedModel", "open_model", "save"),
    "kinds": ("Kind",),
    "layers": ("KINDS", "Layer"),
    "names": ("layer_name",),
    "unsupported": ("UNUSED", "unreached_parameters"),
    "recurrent": ("Recurrent",),
    "running": ("Runner",),
    "parameter_slice": ("ParameterSlice",),
    "trace": ("{}Trace",),
    "watch": ("Watch",),
    "weights": ("{}WeightFile",),
}
"""The files of several adapters, and the names that each of them has there; `{}` stands for the framework."""

EVERYWHERE = (
    *(
        "__init__",
        "adapter",
        "conformance",
        "cut",
        "output_head",
        "following_ops",
        "gradients",
        "io",
        "kinds",
        "layers",
        "names",
        "unsupported",
    ),
    *("parameter_slice", "running", "trace", "weights"),
)
"""The files that every adapter has."""

OWN: Mapping[str, tuple[str, str]] = {
    "as_found": ("torch", "modules and settings of torch that a pass leaves as they were"),
    "attention": ("torch", "one torch call hides the four dense maps of attention; here it is written out"),
    "autodiff": ("keras", "Keras leaves gradients to the framework below it, of which there are three"),
    "channels": ("onnx", "a session of its own for the few channels of a convolution that a candidate changes"),
    "checks": ("onnx", "a protobuf message is believed only after it has been walked through"),
    "config": ("keras", "a .keras file names classes to build, which are checked against a list"),
    "convolution": ("keras", "Keras has four classes of convolutions, with channels first or last"),
    "derivative": ("onnx", "the gradient of a graph is a graph too"),
    "derived": ("torch", "weights that modules compute from parameters, as weight norm does"),
    "environment": ("keras", "what Keras reads from the environment when it is imported"),
    "expressions": ("torch", "exported programs hold symbolic sizes, which SymPy would work out at any price"),
    "functional": ("keras", "graphs of functional models, and of those that hide theirs"),
    "hdf5": ("keras", "the HDF5 files in which Keras keeps weights"),
    "cut_cache": ("onnx", "what crosses a cut is kept of two graphs, the forward and the differentiable one"),
    "tensor_ids": ("torch", "a torch pass is seen call by call, so tensors are known by their identity"),
    "layout": ("keras", "each class of Keras layers stores its variables in an order of its own"),
    "legacy": ("torch", "files from before torch wrote archives"),
    "support_vectors": ("onnx", "support vector machines, which give scores and hold no layers"),
    "trees": ("onnx", "decision trees, which give scores and hold no layers"),
    "lstm": ("torch", "the steps of an LSTM with a derivative of their own: recorded one by one, they are slow"),
    "normalise": ("onnx", "exporters write the same network in many ways"),
    "operators": ("torch", "exported programs name operators, which are checked against a list"),
    "order": ("onnx", "nodes out of order, and branches that are always taken"),
    "pickles": ("torch", "state dicts are pickles, read without running them"),
    "program": ("torch", "exported programs are checked before torch builds them"),
    "file": ("tflite", "the tables of a flatbuffer as tensors and operators, all checked"),
    "flatbuffer": ("tflite", "offsets of a stranger's file are followed within bounds only"),
    "threads": ("torch", "the threads of torch spin at the end of every operator"),
    "translations": ("tflite", "one rule for each operator: how ONNX writes it"),
    "schema": ("tflite", "the tables of the format"),
    "translate": ("tflite", "the graph of a file as ONNX"),
    "dynamic": ("onnx", "onnxruntime rounds activations while it runs, by the batch"),
    "fused": ("onnx", "onnxruntime fuses operators, and writes the result into files"),
    "whole_ends": ("onnx", "tf2onnx writes files that take and give int8"),
    "graph_inputs": ("onnx", "a graph declares the types and sizes of its inputs, which data are checked against"),
    "grids": ("onnx", "stored whole numbers that stand for weights"),
    "qoperators": ("onnx", "operators on whole numbers, written as float operators between quantisations"),
    "joined_outputs": ("onnx", "nodes that join outputs; suppression is a node of the graph"),
    "quantise": ("onnx", "onnxruntime quantises"),
    "reader": ("onnx", "weights stand behind nodes that only move them"),
    "replay": ("torch", "TorchScript computes where no call can be watched, so its graph is walked through"),
    "rules": ("onnx", "ONNX has no gradients: one rule for each operator"),
    "weight_readers": ("torch", "formats of weights that torch and its users have written"),
    "script": ("torch", "TorchScript files, whose tensors are read and whose code is not"),
    "sessions": ("onnx", "onnxruntime's sessions and devices"),
    "surgery": ("onnx", "a protobuf message changed byte by byte"),
    "swapping": ("keras", "attributes of Keras objects that are something else for a while"),
    "tape": ("torch", "a recorded pass that can be run again"),
    "recorder": ("torch", "how such a recording is made of two passes"),
    "unrolling": ("onnx", "layers inside the bodies of loops"),
}
"""The files, or folders, that one adapter has alone, and what of its framework they are for."""

BUILT_ON: Mapping[str, tuple[str, str]] = {
    "arachne_tflite": ("arachne_onnx", "a TFLite graph is translated to ONNX, whose gradients and cuts serve it"),
}
"""Adapters that take files and operations from another one, and why."""

ADAPTERS = sorted(place.partition(":")[0] for place in BACKENDS.ours.values())

CLASSES = [
    [
        name
        for name, member in vars(one).items()
        if not name.startswith("__") and (inspect.isfunction(member) or isinstance(member, (classmethod, property)))
    ]
    for one in (ModelFiles, ModelWeights, ModelInputs, ModelBackend)
]
"""The operations of a backend and the parts of them that an adapter writes, in the order in which they stand."""

CONTRACT = [name for one in CLASSES for name in one]

FINAL = [name for name in CONTRACT if getattr(getattr(ModelBackend, name), "__final__", False)]


def folder(adapter: str) -> Path:
    """Where an adapter's sources are; finding them imports nothing."""
    spec = importlib.util.find_spec(adapter)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def base_of(adapter: str) -> str | None:
    """The adapter that another one is built on."""
    return BUILT_ON[adapter][0] if adapter in BUILT_ON else None


def modules(adapter: str) -> set[str]:
    """The names of an adapter's files and folders of files."""
    return {path.stem for path in folder(adapter).iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}


def defined_names(adapter: str, module: str) -> set[str]:
    """The public names that a file defines itself."""
    found: set[str] = set()
    for node in ast.parse((folder(adapter) / f"{module}.py").read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def bound_names(adapter: str, module: str) -> set[str]:
    """The public names of a file, those it takes from another file of its adapter included."""
    taken = {
        alias.asname or alias.name
        for node in ast.parse((folder(adapter) / f"{module}.py").read_text()).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(adapter)
        for alias in node.names
    }
    return defined_names(adapter, module) | taken


def backend_class(adapter: str) -> ast.ClassDef:
    """The class in `adapter.py`, as source; no framework is needed to read it."""
    tree = ast.parse((folder(adapter) / "adapter.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    base = base_of(adapter)
    parent = "RunnerBackend" if base is None else backend_class(base).name
    (found,) = [node for node in classes if any(getattr(one, "id", "") == parent for one in node.bases)]
    return found


def methods(adapter: str) -> list[str]:
    """The names of the class's methods, in the order in which they stand."""
    return [node.name for node in backend_class(adapter).body if isinstance(node, ast.FunctionDef)]


def headings(adapter: str) -> list[str]:
    """The headings in the docstring of `adapter.py`: lines with an indented one below them."""
    lines = (ast.get_docstring(ast.parse((folder(adapter) / "adapter.py").read_text())) or "").splitlines()
    return [line for line, below in itertools.pairwise(lines) if below.startswith("    ") and not line.startswith(" ")]


def test_there_is_an_adapter_to_look_at() -> None:
    assert "arachne_torch" in ADAPTERS


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_has_the_same_files(adapter: str) -> None:
    base = base_of(adapter)
    there = modules(adapter) | (set() if base is None else modules(base))
    assert [name for name in EVERYWHERE if name not in there] == []
    assert (folder(adapter) / "py.typed").is_file()


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_file_is_shared_or_is_named_for_what_only_its_framework_has(adapter: str) -> None:
    framework = adapter.removeprefix("arachne_")
    own = {name for name, (owner, _) in OWN.items() if owner == framework}
    assert modules(adapter) - set(SHARED) == own


def test_a_shared_file_is_in_several_adapters() -> None:
    assert [name for name in SHARED if sum(name in modules(adapter) for adapter in ADAPTERS) < 2] == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_shared_file_holds_the_same_names_in_every_adapter(adapter: str) -> None:
    framework = adapter.removeprefix("arachne_").capitalize()
    for name in modules(adapter) & set(SHARED):
        wanted = {one.format(framework) for one in SHARED[name]}
        assert wanted - bound_names(adapter, name) == set(), name


@pytest.mark.parametrize("file", sorted(SHARED))
def test_what_two_adapters_call_alike_in_one_file_is_listed(file: str) -> None:
    """A name that all adapters with a file have come to share belongs into the table above."""
    holders = [adapter for adapter in ADAPTERS if file in modules(adapter)]
    common = set.intersection(*(defined_names(adapter, file) for adapter in holders))
    assert {name for name in common if not name.isupper()} - set(SHARED[file]) == set()


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_is_called_after_its_framework(adapter: str) -> None:
    framework = adapter.removeprefix("arachne_")
    assert backend_class(adapter).name == f"{framework.capitalize()}Backend"


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_methods_stand_in_the_order_of_the_contract(adapter: str) -> None:
    for one in CLASSES:
        found = [name for name in methods(adapter) if name in one]
        assert found == [name for name in one if name in found]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_defines_every_abstract_operation(adapter: str) -> None:
    base = base_of(adapter)
    defined = [*methods(adapter), *([] if base is None else methods(base))]
    assert sorted(RunnerBackend.__abstractmethods__ - set(defined)) == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_leaves_the_checks_to_the_base_class(adapter: str) -> None:
    assert "forward" in FINAL
    assert [name for name in methods(adapter) if name in FINAL] == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_adds_no_public_methods_of_its_own(adapter: str) -> None:
    extras = [name for name in methods(adapter) if not name.startswith("_") and name not in CONTRACT]
    assert extras == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_no_adapter_knows_another_than_the_one_it_is_built_on(adapter: str) -> None:
    others = {name for name in ADAPTERS if name not in (adapter, base_of(adapter))}
    for path in folder(adapter).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {name.partition(".")[0] for name in names} & others, path.name


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_peculiarities_are_told_under_the_same_headings(adapter: str) -> None:
    assert headings(adapter) == headings("arachne_torch")
    assert "Training mode" in headings(adapter)
