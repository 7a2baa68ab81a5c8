"""Where memory does not suffice, batches get smaller before a search, and a search ends so that it can go on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.engine import repair
from arachne.errors import DataError, OutOfMemoryError, is_out_of_memory
from arachne.model.memory import memory_faults
from arachne.model.values import Array, Inputs
from arachne.results.checkpoint import Checkpoints
from arachne.scoring.evaluators import FastEvaluator
from arachne.search import DifferentialEvolution
from arachne.settings import Settings
from arachne.testing import ReferenceBackend

SMALL_SEARCH = Settings(searcher=DifferentialEvolution(population=12, generations=6))


class Cramped(ReferenceBackend):
    """Has memory for so many inputs at a time."""

    fits = 100

    def _run(self, values: Any) -> Any:
        rows = len(next(iter(values.values())))
        if rows > self.fits:
            raise RuntimeError(f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {rows} bytes")
        return super()._run(values)


def cramp_memory(model: ReferenceBackend, fits: int) -> Cramped:
    backend = Cramped(model.native)
    backend.fits = fits
    for info in model.layers:
        for parameter, values in model.get_weights(info.name).items():
            backend.set_weights(info.name, parameter, values)
    return backend


def test_batches_are_halved_until_they_fit_and_the_patch_is_the_same(
    model: ReferenceBackend, digits: LabelledData
) -> None:
    told: list[str] = []
    backend = cramp_memory(model, 100)
    found = repair(backend, digits, "8:1", settings=SMALL_SEARCH, on_note=told.append)
    told = [note for note in told if "forecast" not in note]
    assert told[0] == f"not enough memory: the model runs on {told[0].split()[7]} inputs at a time from now on"
    assert int(told[-1].split()[7]) <= 100
    assert len(told) == len(set(told)) > 1
    assert found.patch.entries == repair(model, digits, "8:1", settings=SMALL_SEARCH).patch.entries


def test_one_input_that_does_not_fit_ends_the_run(model: ReferenceBackend, digits: LabelledData) -> None:
    with pytest.raises(OutOfMemoryError, match=r"^not enough memory; use fewer inputs, or a machine with more$"):
        repair(cramp_memory(model, 0), digits, "8:1", settings=SMALL_SEARCH)


def test_a_search_that_runs_out_of_memory_can_go_on(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = repair(model, digits, "8:1", settings=SMALL_SEARCH)
    compare, calls = FastEvaluator.compare_with_parents, 0

    def at_the_fourth(self: FastEvaluator, *arguments: Any) -> Array:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise MemoryError("Unable to allocate 7.45 GiB for an array")
        return compare(self, *arguments)

    monkeypatch.setattr(FastEvaluator, "compare_with_parents", at_the_fourth)
    with pytest.raises(OutOfMemoryError) as caught:
        repair(model, digits, "8:1", settings=SMALL_SEARCH, checkpoint=Checkpoints(tmp_path))
    assert caught.value.exit_code == 4
    found = repair(model, digits, "8:1", settings=SMALL_SEARCH, checkpoint=Checkpoints(tmp_path, resume=True))
    assert calls > 4
    assert found.patch.to_json() == whole.patch.to_json()
    assert found.search.history == whole.search.history


@pytest.mark.parametrize(
    "text",
    [
        "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you tried",
        "CUDA out of memory. Tried to allocate 20.00 MiB",
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer of size 4096",
        "std::bad_alloc",
        "OOM when allocating tensor with shape [1] RESOURCE_EXHAUSTED",
        "can't start new thread",
        "libzstd-40ad5e7e.so.1.5.7: failed to map segment from shared object",
    ],
)
def test_every_framework_is_understood(text: str) -> None:
    error = DataError(f"the model does not take these inputs: {text}")
    with pytest.raises(OutOfMemoryError), memory_faults():
        raise error
    assert is_out_of_memory(error)


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(DataError, match=r"^the model does not take these$"), memory_faults():
        raise DataError("the model does not take these")


@pytest.mark.backend("torch")
def test_torch_batches_are_halved_down_to_one() -> None:
    import torch

    from arachne_torch import TorchBackend

    backend = TorchBackend.load(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 3)))
    inputs: Inputs = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    scores = backend.forward(inputs)
    sizes: list[int] = []
    while (rows := backend.halve_batches()) is not None:
        sizes.append(rows)
    assert sizes[-1] == 1
    assert all(later == earlier // 2 for earlier, later in pairwise(sizes))
    np.testing.assert_allclose(backend.forward(inputs), scores, rtol=1e-5)
