"""The adapters have the same shape, so that one can be read beside another; without a check they drift apart."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import itertools
from pathlib import Path

import pytest

from arachne import registry
from arachne.backend import ModelBackend

FILES = ("__init__", "adapter", "layers", "cut", "io")

ADAPTERS = sorted(
    entry.module for entry in importlib.metadata.entry_points(group=registry.GROUP) if entry.name in registry.KNOWN
)

CONTRACT = [
    name
    for name, member in vars(ModelBackend).items()
    if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, (classmethod, property)))
]


def folder(adapter: str) -> Path:
    """Where an adapter's sources are; finding them imports nothing."""
    spec = importlib.util.find_spec(adapter)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def backend_class(adapter: str) -> ast.ClassDef:
    """The class in `adapter.py`, as source; no framework is needed to read it."""
    tree = ast.parse((folder(adapter) / "adapter.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    (found,) = [node for node in classes if any(getattr(base, "id", "") == "ModelBackend" for base in node.bases)]
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
    assert [name for name in FILES if not (folder(adapter) / f"{name}.py").is_file()] == []
    assert (folder(adapter) / "py.typed").is_file()


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_is_called_after_its_framework(adapter: str) -> None:
    framework = adapter.removeprefix("arachne_")
    assert backend_class(adapter).name == f"{framework.capitalize()}Backend"


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_methods_stand_in_the_order_of_the_contract(adapter: str) -> None:
    found = [name for name in methods(adapter) if name in CONTRACT]
    assert found == [name for name in CONTRACT if name in found]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_defines_every_abstract_operation(adapter: str) -> None:
    assert sorted(ModelBackend.__abstractmethods__ - set(methods(adapter))) == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_adds_no_public_methods_of_its_own(adapter: str) -> None:
    extras = [name for name in methods(adapter) if not name.startswith("_") and name not in CONTRACT]
    assert extras == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_no_adapter_knows_another(adapter: str) -> None:
    others = {name for name in ADAPTERS if name != adapter}
    for path in folder(adapter).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {name.partition(".")[0] for name in names} & others, path.name


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_peculiarities_are_told_under_the_same_headings(adapter: str) -> None:
    assert headings(adapter) == headings("arachne_torch")
    assert "Training mode" in headings(adapter)
