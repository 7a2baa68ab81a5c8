"""A seeded sample of the hostile files; `python -m tests.safety hostile` runs them all."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.safety import valid
from tests.safety.case import Case, all_cases
from tests.safety.running import Servers

LARGE = ("gigabytes", "thousand", "million")
"""In the names of those whose files take seconds to make; the full run has them."""


def _sample() -> list[Case]:
    """One of each kind and class of attack."""
    groups = defaultdict(list)
    for case in all_cases().values():
        if not any(word in case.name for word in LARGE):
            groups[case.kind, case.attack].append(case)
    chosen = random.Random(15)
    return [case for group in groups.values() for case in chosen.sample(group, 1)]


def _parameters() -> list[object]:
    marks = {name: [pytest.mark.backend(name)] for name in ("torch", "keras", "tflite")}
    return [
        pytest.param(case, id=case.name, marks=marks.get(case.server, [pytest.mark.backend("onnx")]))
        for case in sorted(_sample(), key=lambda case: case.server)
    ]


@pytest.mark.parametrize("case", _parameters())
def test_hostile_file_gets_one_sentence_and_runs_nothing(case: Case, servers: Servers) -> None:
    outcome = servers.case(case)
    assert outcome.wrong_for(case.exits) == [], outcome.err[-2000:]


def _of_every_other_kind() -> list[Case]:
    """One case of each of a dozen kinds that need no other framework than ONNX."""
    kinds = {case.kind: case for case in _sample() if case.server == "core" and case.kind != "checkpoint"}
    return [kinds[kind] for kind in sorted(kinds)][::2]


@pytest.mark.backend("onnx")
@pytest.mark.parametrize("case", _of_every_other_kind(), ids=lambda case: case.name)
def test_a_forked_child_ends_as_a_process_of_its_own_does(
    case: Case, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = servers.case(case)
    here = tmp_path / "case"
    here.mkdir()
    monkeypatch.setenv(valid.CACHE, str(tmp_path))
    monkeypatch.chdir(here)
    argv = case.make(here)
    alone = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    plain = subprocess.run(
        [sys.executable, "-m", "arachne", *argv], cwd=here, env=alone, capture_output=True, check=False, timeout=300
    )
    assert plain.returncode == forked.code, plain.stderr[-2000:]
    assert plain.stderr.decode().strip().splitlines()[-1:] == forked.err.strip().splitlines()[-1:]
