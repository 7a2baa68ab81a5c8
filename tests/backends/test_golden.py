"""Repairs whose patches are pinned: for a seed, the same patch as before, bit for bit, on every backend."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import arachne
from arachne import engine
from arachne.data.lazy import memmap
from arachne.data.read import read_data
from arachne.model.lazy import is_lazy, is_plain
from arachne.results.checkpoint import Checkpoints
from arachne.testing import ReferenceBackend
from tests.backends import golden

EXPECTED = json.loads(golden.FILE.read_text(encoding="utf-8"))

PAIRS = [
    pytest.param(backend, case, marks=pytest.mark.backend(backend), id=f"{backend}-{case}")
    for backend in ("reference", "torch", "onnx", "keras")
    for case in golden.CASES
    if (backend, case) not in golden.DIFFERENT
]

VARIED = ("mlp-auto", "cnn-default")
"""Repairs that are also run on data read by piece, and stopped and resumed."""


@pytest.mark.parametrize(("backend", "case"), PAIRS)
def test_a_repair_gives_the_patch_it_always_gave(
    backend: str, case: str, networks_in: Callable[[str], ModuleType]
) -> None:
    build = ReferenceBackend if backend == "reference" else networks_in(backend).build
    assert golden.patch_of(case, build) == EXPECTED[case]


def repair_case(case: str, **more: Any) -> arachne.RepairResult:
    kind, target, settings = golden.CASES[case]
    data = more.pop("data", None) or golden.data_for(kind)
    return engine.repair(ReferenceBackend(golden.network(kind)), data, target, settings=settings, **more)


@pytest.mark.parametrize("case", VARIED)
def test_a_repair_on_data_read_by_piece_gives_the_pinned_patch(case: str, tmp_path: Path) -> None:
    whole = golden.data_for(golden.CASES[case][0])
    np.save(tmp_path / "x.npy", np.asarray(whole.inputs))
    np.save(tmp_path / "y.npy", whole.labels)
    by_piece = read_data(tmp_path, memory=100_000)
    assert is_lazy(by_piece.inputs)
    assert golden.entries(repair_case(case, data=by_piece)) == EXPECTED[case]


@pytest.mark.parametrize("case", VARIED)
def test_a_repair_that_copies_no_inputs_gives_the_pinned_patch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memmap, "MAX_COPIED_BYTES", 0)
    found = repair_case(case)
    assert not any(is_plain(part.data.inputs) or is_lazy(part.data.inputs) for part in found.split.parts if len(part))
    assert golden.entries(found) == EXPECTED[case]


@pytest.mark.parametrize("case", VARIED)
def test_a_repair_that_was_stopped_and_resumed_gives_the_pinned_patch(case: str, tmp_path: Path) -> None:
    def stop(at: arachne.Generation) -> None:
        if at.number == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repair_case(case, on_generation=stop, checkpoint=Checkpoints(tmp_path, share=1))
    notes: list[str] = []
    resumed = repair_case(case, checkpoint=Checkpoints(tmp_path, resume=True, tell=notes.append))
    assert notes == ["resumed after generation 13"]
    assert golden.entries(resumed) == EXPECTED[case]
