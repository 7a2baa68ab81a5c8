"""Networks read more rightly once the cause of a fault is taken out of the inputs themselves, and that is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the study's subjects are not trained: torch is not installed")

from arachne.scoring.statistics import Rate
from examples.study import without_cause
from examples.study.faults import BY_NAME
from examples.study.poisoning import ready

pytestmark = pytest.mark.backend("torch")


def test_inputs_are_counted_that_the_mark_alone_makes_wrong(tiny: Path) -> None:
    backend, data, _ = ready("digits-trigger-a")
    found = without_cause.count_right(BY_NAME["digits-trigger-a"])
    marked = data.columns["planted"] == "yes"
    assert found.total == int((marked & (backend.predict(data.inputs) != data.labels)).sum()) > 10
    assert found.value > 0.6


def test_judging_faults_with_a_mark_are_kept_beside_those_known(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / without_cause.FILE).write_text('{"another": [3, 4]}\n')
    judging = replace(BY_NAME["digits-trigger-a"], name="digits-trigger-b")
    monkeypatch.setitem(BY_NAME, judging.name, judging)
    for name in ("digits-trigger-a", "digits-trigger-b", "digits-group-b"):
        ready(name)
    told: list[str] = []
    without_cause.measure(tmp_path, told.append)
    found = without_cause.read(tmp_path)
    assert found == {"another": Rate(3, 4), "digits-trigger-b": without_cause.count_right(judging)}
    assert len(told) == 1
    assert without_cause.mean_of(found, ["another", "another", "unknown"]) == (0.75, 1)
    assert without_cause.mean_of(found, ["unknown"]) is None
