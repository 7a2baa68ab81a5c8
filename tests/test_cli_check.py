"""`arachne backends --check`: does a backend keep the contract, on the suite's networks or on a model?"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from arachne.plugins.table import CONFORMANCE
from tests.commands import Ran, arachne

pytestmark = pytest.mark.backend("onnx")


def backends(*arguments: str) -> Ran:
    """The command, and what it printed."""
    return arachne("backends", *arguments, cwd=Path.cwd())


@pytest.fixture
def model() -> str:
    return str(resources.files("arachne.demo").joinpath("digits.onnx"))


def test_a_model_is_checked_operation_by_operation(model: str) -> None:
    ran = backends("--check", "onnx", model)
    assert ran.code == 0, ran.out
    assert "checked on 16 random inputs" in ran.err
    assert "weight_gradients: ok (3 passed)" in ran.out
    value = json.loads(backends("--check", "onnx", model, "--json").out)
    assert (value["schema"], value["failed"], value["backend"]) == ("arachne.check/1", 0, "onnx")
    assert {check["operation"] for check in value["checks"]} >= {"forward", "cut", "save", "weight_file"}


def test_what_fails_is_said_and_ends_with_exit_code_1(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from arachne_onnx import OnnxBackend

    right = OnnxBackend._weight_gradients
    monkeypatch.setattr(
        OnnxBackend, "_weight_gradients", lambda *given: {place: 2 * g for place, g in right(*given).items()}
    )
    ran = backends("--check", "onnx", model)
    assert ran.code == 1
    assert "FAILED: Gradients with respect to weights agree with finite differences of the scores." in ran.out
    assert "the gradient says" in ran.out
    assert "error: backend 'onnx' fails 3 of 22 checks" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--check", "onx"], 2, "no backend named 'onx'; did you mean 'onnx'?"),
        (["digits.onnx"], 2, "a model is looked at with --check NAME; without it the backends are listed"),
        (["--check", "onnx", "--data", "x.npz"], 2, "--data goes with a MODEL to check"),
        (["--check", "onnx", "nowhere.onnx"], 3, "model 'nowhere.onnx' does not exist"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(arguments: list[str], code: int, sentence: str) -> None:
    ran = backends(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err == f"error: {sentence}\n"


def test_a_backend_without_a_suite_is_told_how_to_bring_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(CONFORMANCE), "names", lambda self: [])
    ran = backends("--check", "onnx")
    assert ran.code == 2
    assert "brings no conformance suite (an entry point 'onnx' in the group 'arachne.conformance')" in ran.err


def test_without_pytest_the_suite_says_what_to_install(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pytest" else find(name, *rest)
    )
    ran = backends("--check", "onnx")
    assert ran.code == 4
    assert "(pytest): pip install pytest; checking a MODEL does without" in ran.err


def test_the_suite_of_an_installed_backend_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.unit.test_model_checks import SmallSuite

    monkeypatch.setattr(type(CONFORMANCE), "get", lambda self, name: SmallSuite)
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))
    ran = backends("--check", "onnx")
    assert ran.code == 1
    assert ran.out.startswith("backend 'onnx' on the networks of the suite: ")
    assert "Changing what came out changes nothing in the model." in ran.out
