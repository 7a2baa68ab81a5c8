"""Onnxruntime tells nobody about models: its telemetry is off, and leaves nothing in the user's home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.backend("onnx")

PROGRAM = "from arachne_onnx import OnnxBackend; import onnxruntime, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"


@pytest.mark.parametrize(("given", "found"), [(None, "1"), ("0", "0")])
def test_telemetry_is_off_unless_the_user_has_set_it(tmp_path: Path, given: str | None, found: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "CI": ""}
    environment |= {} if given is None else {"ORT_DISABLE_TELEMETRY": given}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == found
    if given is None:
        assert list(tmp_path.rglob("*")) == []
