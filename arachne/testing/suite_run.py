"""The conformance suite of a backend run from a program, and what it says, check by check. It needs pytest."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

import pytest

from arachne.testing.conformance import BackendConformance
from arachne.testing.model.checks import CHECKS
from arachne.testing.outcome import FAILED, PASSED, SKIPPED, Outcome

FILE = """from {module} import {name}


class TestBackend({name}):
    pass
"""


def run_suite(suite: type[BackendConformance]) -> tuple[Outcome, ...]:
    """Run a conformance suite; nothing is printed, and no settings of a project around it count.

    Raises:
        RuntimeError: Pytest could not even begin.
    """
    collected = _Collected()
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        file, settings = Path(folder) / "test_backend.py", Path(folder) / "pytest.ini"
        file.write_text(FILE.format(module=suite.__module__, name=suite.__qualname__), encoding="utf-8")
        settings.write_text("[pytest]\n", encoding="utf-8")
        options = ["-c", str(settings), "--rootdir", folder, "-p", "no:cacheprovider", "--import-mode=importlib", "-q"]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            pytest.main([*options, "--tb=short", str(file)], plugins=[collected])
    if not collected.outcomes:
        raise RuntimeError(f"the conformance suite did not run:\n{said.getvalue()}")
    return tuple(collected.outcomes)


class _Collected:
    """A plug-in of pytest that keeps what each test said."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self._about: dict[str, tuple[str, str, str | None]] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for item in items:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            check = parameters.get("check", item.function)
            owner = next(base for base in item.cls.__mro__ if item.originalname in vars(base))
            operation = next((name for name, checks in CHECKS.items() if check in checks), _plain(owner.__doc__))
            sentence = " ".join((check.__doc__ or item.originalname).split("\n\n")[0].split())
            network = parameters.get("specimen", item.callspec.id if parameters else None)
            self._about[item.nodeid] = (operation, sentence, network)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.passed:
            return
        operation, sentence, network = self._about[report.nodeid]
        state = FAILED if report.failed else SKIPPED if report.skipped else PASSED
        self.outcomes.append(Outcome(operation, sentence, state, _reason(report), network))


def _plain(docstring: str | None) -> str:
    """The operations a part of the suite is about, as its docstring lists them."""
    return (docstring or "other").splitlines()[0].replace("`", "").rstrip(".")


def _reason(report: Any) -> str:
    if report.passed:
        return ""
    if report.skipped:
        return str(getattr(report, "wasxfail", "") or report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = [line.strip() for line in str(crash.message if crash else report.longrepr).splitlines() if line.strip()]
    # NumPy tells in several lines what differs; the first says which array, one further down by how much.
    differing = [line for line in lines[1:] if line.startswith("Max absolute difference")]
    return "; ".join([*lines[:1], *differing]).removeprefix("AssertionError: ")
