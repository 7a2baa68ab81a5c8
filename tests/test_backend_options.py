"""Options our `conftest.py` adds to pytest, on real runs of it with a backend whose framework is missing."""

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
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra -p no:cacheprovider\ntestpaths = .\n")
    (tmp_path / "arachne_absent.py").write_text("import a_framework_nobody_has\n")
    info = tmp_path / "absent-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: absent\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[arachne.backends]\nabsent = arachne_absent:AbsentBackend\n")
    return tmp_path


def run(project: Path, *options: str, processors: int | None = None) -> tuple[int, str]:
    """pytest's exit code and what it said, with no plug-ins but those named and on no more than so many processors."""
    paths = [str(project), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=project,
        preexec_fn=None if processors is None else lambda: os.sched_setaffinity(0, usable()[:processors]),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
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


def usable() -> list[int]:
    """The processors this process may use, where the system tells."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def shared_out(said: str) -> bool:
    return "created: 2/2 workers" in said


@pytest.fixture
def two() -> int:
    """Two processors and a way to use them."""
    pytest.importorskip("xdist", reason="the suite runs in one process: pytest-xdist is not installed")
    if len(usable()) < 2:
        pytest.skip("the suite is not shared out here: there are no two processors to choose")
    return 2


def test_the_whole_suite_is_shared_out_among_processes_of_one_thread(project: Path, two: int) -> None:
    (project / "test_thread.py").write_text("import os\ndef test(): assert os.environ['OMP_NUM_THREADS'] == '1'\n")
    code, said = run(project, "-p", "xdist", "--require-backend", "absent", processors=two)
    assert shared_out(said)
    assert code == 1
    assert "3 passed, 1 error" in said
    assert "a_framework_nobody_has" in said


@pytest.mark.parametrize("options", [["test_three.py"], ["-n", "0"], ["-s"], ["--pdb"]])
def test_a_named_file_and_what_needs_the_terminal_stay_in_one_process(
    project: Path, two: int, options: list[str]
) -> None:
    code, said = run(project, "-p", "xdist", *options, processors=two)
    assert (code, shared_out(said)) == (0, False)
    assert "2 passed, 1 skipped" in said


def test_one_processor_is_not_shared(project: Path, two: int) -> None:
    code, said = run(project, "-p", "xdist", processors=two - 1)
    assert (code, shared_out(said)) == (0, False)
    assert "2 passed, 1 skipped" in said
