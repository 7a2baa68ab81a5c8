"""`--backend` and `--require-backend`, on a real run of pytest with a backend whose framework is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.backend("reference")
def test_on_reference():
    assert True

@pytest.mark.backend("absent")
def test_on_absent():
    assert True

def test_on_none():
    assert True
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with our `conftest.py`, three tests, and a backend that needs a package nobody has."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path / "conftest.py")
    (tmp_path / "test_three.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra -p no:cacheprovider\n")
    (tmp_path / "arachne_absent.py").write_text("import a_framework_nobody_has\n")
    info = tmp_path / "absent-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: absent\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[arachne.backends]\nabsent = arachne_absent:AbsentBackend\n")
    return tmp_path


def run(project: Path, *options: str) -> tuple[int, str]:
    """pytest's exit code and what it said."""
    paths = [str(project), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_missing_backend_is_a_skip_that_says_what_is_missing(project: Path) -> None:
    code, said = run(project)
    assert code == 0
    assert "2 passed, 1 skipped" in said
    assert "backend 'absent' needs a package that is not installed (a_framework_nobody_has)" in said


def test_a_required_backend_that_is_missing_fails(project: Path) -> None:
    code, said = run(project, "--require-backend", "absent")
    assert code == 1
    assert "2 passed, 1 error" in said
    assert "a_framework_nobody_has" in said


def test_a_chosen_backend_leaves_the_tests_of_others_out(project: Path) -> None:
    code, said = run(project, "--backend", "reference")
    assert code == 0
    assert "2 passed, 1 deselected" in said


def test_an_unknown_backend_is_refused_by_name(project: Path) -> None:
    code, said = run(project, "--require-backend", "absend")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "no backend named 'absend'; did you mean 'absent'?" in said
