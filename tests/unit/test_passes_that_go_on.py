"""A localisation that was ended in the middle goes on from the shards that were done, and ends as if it never had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne import engine
from arachne.data.labelled import LabelledData
from arachne.errors import NothingWithinBudgetError
from arachne.io.arrays import read_arrays, write_arrays
from arachne.localise import Bidirectional, Contrast, Fisher, Localiser
from arachne.localise.spectrum import Spectrum
from arachne.model import sharding
from arachne.model.backend import Seeds
from arachne.model.values import Inputs
from arachne.results.checkpoint import Checkpoints
from arachne.results.checkpoint.passes import PASS
from arachne.results.result import RepairResult
from arachne.search import DifferentialEvolution, Pool
from arachne.settings import Settings
from arachne.testing import ReferenceBackend

SHARD = 16
SEARCH = DifferentialEvolution(population=8, generations=2)
LOCALISERS = [
    Bidirectional(),
    Contrast(depth="all"),
    Fisher(depth="all"),
    Spectrum(),
]


class Killed(BaseException):
    """Ends a run in these tests."""


class Mortal(ReferenceBackend):
    """Counts the shards that it computes for localisers, and dies before one of them."""

    shards = 0
    dies_before: int | None = None

    def _count(self) -> None:
        if self.pass_keeper is None or self.pass_keeper.block is None:
            return
        self.shards += 1
        if self.shards == self.dies_before:
            raise Killed

    def _weight_gradients(self, inputs: Inputs, *rest: Any) -> Any:
        self._count()
        return super()._weight_gradients(inputs, *rest)

    def _observe(self, inputs: Inputs, layers: Sequence[str], observer: Any, seeds: Seeds | None) -> None:
        self._count()
        super()._observe(inputs, layers, observer, seeds)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "SHARD", SHARD)


@pytest.fixture
def mortal(model: ReferenceBackend) -> Callable[[], Mortal]:
    def make() -> Mortal:
        made = object.__new__(Mortal)
        made.__dict__.update(model.__dict__)
        return made

    return make


def run_repair(model: Mortal, digits: LabelledData, settings: Settings, **more: Any) -> RepairResult:
    try:
        return engine.repair(model, digits, "*:1", settings=settings, **more)
    except NothingWithinBudgetError as nothing:
        found: RepairResult = nothing.result
        return found


@pytest.mark.parametrize("localiser", LOCALISERS, ids=lambda one: str(one.name))
def test_a_localisation_that_was_ended_anywhere_goes_on_from_there(
    tmp_path: Path, mortal: Callable[[], Mortal], digits: LabelledData, localiser: Localiser
) -> None:
    settings = Settings(searcher=SEARCH, localiser=localiser)
    whole = run_repair(counted := mortal(), digits, settings, checkpoint=Checkpoints(tmp_path / "whole", share=1))
    assert counted.shards > 4
    for last in {2, counted.shards // 2, counted.shards}:
        killed, folder = mortal(), tmp_path / str(last)
        killed.dies_before = last
        with pytest.raises(Killed):
            run_repair(killed, digits, settings, checkpoint=Checkpoints(folder, share=1))
        told: list[str] = []
        resumed = run_repair(
            again := mortal(), digits, settings, checkpoint=Checkpoints(folder, resume=True, tell=told.append)
        )
        assert told == ["resumed in the localisation"]
        assert again.shards == counted.shards - (last - 1)
        assert resumed.patch.to_json() == whole.patch.to_json()
        assert resumed.localisation.suspects.addresses == whole.localisation.suspects.addresses
        for mine, theirs in zip(resumed.localisation.scores, whole.localisation.scores, strict=True):
            np.testing.assert_array_equal(mine.gradient_loss, theirs.gradient_loss)
            np.testing.assert_array_equal(mine.forward_impact, theirs.forward_impact)


def test_a_localisation_that_is_interrupted_writes_the_pass_under_way(
    tmp_path: Path, mortal: Callable[[], Mortal], digits: LabelledData
) -> None:
    settings = Settings(searcher=SEARCH, localiser=Bidirectional())
    interrupted, checkpoint = mortal(), Checkpoints(tmp_path / "kept", share=0)

    def pause() -> None:
        if interrupted.shards == 3:
            raise KeyboardInterrupt

    checkpoint.pause = pause
    with pytest.raises(KeyboardInterrupt):
        run_repair(interrupted, digits, settings, checkpoint=checkpoint)
    assert checkpoint.has_files
    assert checkpoint.resumable
    assert checkpoint.progress == "a part of the localisation"
    assert interrupted.pass_keeper is None
    whole = run_repair(mortal(), digits, settings)
    resumed = run_repair(mortal(), digits, settings, checkpoint=Checkpoints(tmp_path / "kept", resume=True))
    assert resumed.patch.to_json() == whole.patch.to_json()


def test_the_localisation_of_a_member_of_the_pool_goes_on_too(
    tmp_path: Path, mortal: Callable[[], Mortal], digits: LabelledData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "LOOKS_AT_TAIL", False)  # with activations of the first pass there is none to keep
    settings = Settings(searcher=Pool(members=("bias", "margin@fisher")), localiser=Contrast(count=10))
    whole = run_repair(counted := mortal(), digits, settings)
    first = run_repair(counted, digits, settings, checkpoint=Checkpoints(tmp_path / "whole", share=1))
    assert first.patch.to_json() == whole.patch.to_json()
    killed = mortal()
    killed.dies_before = counted.shards - 2
    assert killed.dies_before > 4
    with pytest.raises(Killed):
        run_repair(killed, digits, settings, checkpoint=Checkpoints(tmp_path / "kept", share=1))
    again = mortal()
    resumed = run_repair(again, digits, settings, checkpoint=Checkpoints(tmp_path / "kept", resume=True))
    assert again.shards == 3
    assert resumed.patch.to_json() == whole.patch.to_json()


def test_a_pass_that_does_not_fit_begins_anew(
    tmp_path: Path, mortal: Callable[[], Mortal], digits: LabelledData
) -> None:
    settings = Settings(searcher=SEARCH, localiser=Bidirectional())
    whole = run_repair(counted := mortal(), digits, settings, checkpoint=Checkpoints(tmp_path / "whole", share=1))
    killed = mortal()
    killed.dies_before = counted.shards
    with pytest.raises(Killed):
        run_repair(killed, digits, settings, checkpoint=Checkpoints(tmp_path / "kept", share=1))
    kept = sorted((tmp_path / "kept").glob("pass-*.npz"))
    assert len(kept) == 4
    for number, path in enumerate(kept):
        arrays, about = read_arrays(path, PASS)
        if number == 0:
            path.write_bytes(path.read_bytes()[:-7])
        elif number == 1:
            write_arrays(path, {name: values for name, values in arrays.items() if values.ndim}, about)
        elif number == 2:
            write_arrays(path, {"other": np.zeros(3)}, about)
        else:
            write_arrays(path, arrays, {**about, "sha256": "0" * 64})
    told: list[str] = []
    again = run_repair(
        mortal(), digits, settings, checkpoint=Checkpoints(tmp_path / "kept", resume=True, tell=told.append)
    )
    assert sum(sentence.endswith("; this pass begins anew") for sentence in told) >= 2
    assert again.patch.to_json() == whole.patch.to_json()


def test_passes_are_forgotten_when_the_localisation_is_kept(
    tmp_path: Path, mortal: Callable[[], Mortal], digits: LabelledData
) -> None:
    settings = Settings(searcher=SEARCH, localiser=Bidirectional())

    def stop(at: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        run_repair(mortal(), digits, settings, on_generation=stop, checkpoint=Checkpoints(tmp_path, share=1))
    assert not list(tmp_path.glob("pass-*"))
    assert (tmp_path / "localised.npz").is_file()


def test_no_more_is_kept_than_fits(
    tmp_path: Path, mortal: Callable[[], Mortal], digits: LabelledData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arachne.results.checkpoint.passes.MAX_BYTES", 10)
    killed = mortal()
    killed.dies_before = 4
    with pytest.raises(Killed):
        run_repair(
            killed,
            digits,
            Settings(searcher=SEARCH, localiser=Bidirectional()),
            checkpoint=Checkpoints(tmp_path, share=1),
        )
    assert not list(tmp_path.iterdir())
