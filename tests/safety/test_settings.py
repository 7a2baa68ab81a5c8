"""A seeded sample of found settings, watched by strace; `python -m tests.safety settings` has every option."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from tests.safety.found import Found, cases
from tests.safety.part_settings import judge, run_watched
from tests.safety.watched import watch, why_not

pytestmark = pytest.mark.backend("onnx")


@pytest.fixture(autouse=True)
def _can_watch() -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)


def test_settings_that_are_found_connect_to_nothing_start_nothing_and_write_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        every = cases("{}:{}".format(*server.getsockname()))
        sample = random.Random(26).sample(every, 20)
        found = run_watched(sample, server)
    assert len(every) > 1000
    assert {case.name: judge(case, seen) for case, seen in zip(sample, found, strict=True)} == {
        case.name: [] for case in sample
    }


def test_a_log_that_is_typed_is_seen(tmp_path: Path) -> None:
    """Without this, silence above would prove nothing."""
    case = Found("scan", "memory", "file", "'3MB'", None, typed=("--log-file", "../elsewhere/log"))
    (seen,) = watch([case], tmp_path)
    assert seen.code == 0, seen.err
    assert any("elsewhere" in line or '"log"' in line for line in seen.calls), seen.calls
