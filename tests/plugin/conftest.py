"""The plug-ins of this folder, really installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def plugin_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder the distribution is installed into; it is built from a copy, so that nothing is left behind here."""
    pytest.importorskip("setuptools", reason="the plug-in is built with setuptools, which is not installed")
    pytest.importorskip("pip", reason="the plug-in is installed with pip, which is not installed")
    source = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "--target", str(target), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target
