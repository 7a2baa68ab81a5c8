"""`module:factory` from the command line: what fails in the user's code is told as the user's, not as a bug of ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.commands import Ran, arachne

BACKENDS = [pytest.param(name, marks=pytest.mark.backend(name)) for name in ("torch", "keras")]

FACTORIES = """
def raises():
    raise ValueError("first line\\nno such size: 7")

def misses():
    import a_package_nobody_has

def hints():
    raise ImportError("this factory requires a_package_nobody_has; pip install it")

def leaves():
    raise SystemExit("not today")

def gives():
    return 3

number = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Factories that fail in every way we know of, and data for a model that is never made."""
    (tmp_path / "failing_nets.py").write_text(FACTORIES)
    (tmp_path / "broken_nets.py").write_text("import a_package_nobody_has\n")
    (tmp_path / "wrong_nets.py").write_text("1 / 0\n")
    np.savez(tmp_path / "val.npz", x=np.zeros((4, 3), np.float32), y=np.arange(4) % 2)
    yield tmp_path
    for name in ("failing_nets", "broken_nets", "wrong_nets"):
        sys.modules.pop(name, None)


def run_scan(source: str, backend: str, folder: Path) -> Ran:
    ran = arachne("scan", "--model", source, "--backend", backend, "--data", "val.npz", cwd=folder)
    assert "bug in Arachne" not in ran.err
    assert ran.err.count("\n") == 1
    return ran


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("failing_nets:raises", "the factory 'failing_nets:raises' failed (ValueError: no such size: 7)"),
        ("failing_nets:leaves", "the factory 'failing_nets:leaves' failed (SystemExit: not today)"),
        ("failing_nets:number", "the factory 'failing_nets:number' failed (TypeError: 'int' object is not callable)"),
        ("failing_nets:gives", "'failing_nets:gives' gives a 'int', expected a"),
        ("failing_nets:rases", "module 'failing_nets' has no factory 'rases'; did you mean 'raises'?"),
        ("wrong_nets:make", "module 'wrong_nets' failed (ZeroDivisionError: division by zero)"),
        ("absent_nets:make", "no module 'absent_nets' in"),
    ],
)
def test_a_factory_that_fails_is_bad_input_with_its_last_line(
    folder: Path, backend: str, source: str, told: str
) -> None:
    ran = run_scan(source, backend, folder)
    assert ran.code == 3
    assert told in ran.err


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("source", ["failing_nets:misses", "failing_nets:hints", "broken_nets:make"])
def test_a_package_that_a_factory_misses_is_the_environments_fault(folder: Path, backend: str, source: str) -> None:
    ran = run_scan(source, backend, folder)
    assert ran.code == 4
    assert "needs a package that is not installed here" in ran.err
    assert "a_package_nobody_has" in ran.err


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_text_that_can_name_no_code_is_a_wrong_call(folder: Path, backend: str) -> None:
    ran = run_scan("not-a-module:make", backend, folder)
    assert ran.code == 2
    assert "expected a factory as 'package.module:factory'" in ran.err


@pytest.mark.backend("torch")
def test_trusted_code_in_a_file_that_fails_is_bad_input(folder: Path) -> None:
    import torch
    from torch import nn

    module = type(sys)("gone_nets")
    module.Net = type("Net", (nn.Linear,), {"__module__": "gone_nets"})  # type: ignore[attr-defined]  # made on the spot
    sys.modules["gone_nets"] = module
    torch.save(module.Net(3, 2), folder / "net.pt")
    del sys.modules["gone_nets"]
    ran = arachne("scan", "net.pt", "--trust-code", "--data", "val.npz", cwd=folder)
    assert ran.code == 4
    assert "the code in 'net.pt' needs a package that is not installed here (ModuleNotFoundError" in ran.err
