"""A seeded sample of the hostile files; `python -m tests.safety hostile` runs them all."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

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
