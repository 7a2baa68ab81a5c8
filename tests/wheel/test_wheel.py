"""Checks of the installed distribution; `scripts/wheel` runs this far from the sources."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

import arachne
from arachne.cli import run
from arachne.model import registry
from arachne.testing import BackendConformance, Network, ReferenceBackend


class TestReferenceFromTheWheel(BackendConformance):
    """The suite a plug-in author subclasses is shipped, and the reference backend passes it."""

    @pytest.fixture
    def make_backend(self) -> Callable[[Network], ReferenceBackend]:
        return ReferenceBackend


def test_the_entry_points_are_registered() -> None:
    assert {"keras", "onnx", "tflite", "torch"} <= set(registry.names())


@pytest.mark.parametrize("package", ["arachne", "arachne_torch", "arachne_onnx", "arachne_keras", "arachne_tflite"])
def test_every_package_is_typed_and_shipped(package: str) -> None:
    files = importlib.metadata.files("arachne-repair") or []
    names = {str(file) for file in files}
    if not any(name.startswith("arachne/") for name in names):
        pytest.skip("an editable install lists no files")
    assert f"{package}/py.typed" in names


def test_schemas_templates_and_the_demo_are_package_data() -> None:
    for package, name in (("arachne.demo", "digits.onnx"), ("arachne.patch", "schema.json")):
        assert resources.files(package).joinpath(name).is_file()


def test_the_demo_repairs_its_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "-o", str(tmp_path / "demo"), "--quiet"]) == 0
    assert "REMOVED" in capsys.readouterr().out
    patch = arachne.Patch.load(tmp_path / "demo" / "fix" / "patch.json")
    assert 0 < len(patch) < 40
