"""A run that ends early goes on from its checkpoint, and a checkpoint that does not fit is refused."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne import engine
from arachne.data.labelled import LabelledData
from arachne.errors import CheckpointError, EnvironmentFaultError, InputError, NothingWithinBudgetError, UsageError
from arachne.io.arrays import read_arrays, write_arrays
from arachne.io.own_key import make_mark, read_own_key
from arachne.localise import Bidirectional
from arachne.results.checkpoint import Checkpoints
from arachne.results.checkpoint.files import (
    LOCALISED,
    STATE,
    Saved,
    read_localisation,
    read_saved,
    write_localisation,
    write_saved,
)
from arachne.results.result import RepairResult
from arachne.rivals import DeepFault, Ridge, Tune
from arachne.search import DifferentialEvolution, Erase, LowRank, MarginSearch, Pool, Searcher
from arachne.search.front import Front
from arachne.settings import Settings
from arachne.testing import ReferenceBackend

SMALL_SEARCH = Settings(searcher=DifferentialEvolution(population=12, generations=8))
SEARCHERS = [
    DifferentialEvolution(population=12, generations=8),
    MarginSearch(steps=16, folds=2),
    Front(population=8, generations=3),
    Ridge(strengths=3),
    Tune(steps=32, folds=2),
    DeepFault(synthesised=100, epochs=2, train_batch=8),
    Erase(strengths=6, folds=2),
    LowRank(steps=32, folds=2),
    Pool(members=("bias", "ridge", "de")),
]


class Stopped(BaseException):
    """Ends a run in these tests."""


def run_repair(
    model: ReferenceBackend, digits: LabelledData, settings: Settings = SMALL_SEARCH, **more: Any
) -> RepairResult:
    try:
        return engine.repair(model, digits, "8:1", settings=settings, **more)
    except NothingWithinBudgetError as nothing:
        found: RepairResult = nothing.result
        return found


def stop_after(
    folder: Path, generation: int, model: ReferenceBackend, digits: LabelledData, settings: Settings = SMALL_SEARCH
) -> None:
    """Run until a generation is over, as if somebody had interrupted it then."""

    def stop(at: arachne.Generation) -> None:
        if at.number == generation:
            raise Stopped

    with pytest.raises(Stopped):
        run_repair(model, digits, settings, on_generation=stop, checkpoint=Checkpoints(folder, share=1))


@pytest.mark.parametrize("searcher", SEARCHERS, ids=lambda one: str(one.name))
def test_a_run_that_was_stopped_anywhere_ends_as_one_that_was_not(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData, searcher: Searcher
) -> None:
    settings = replace(SMALL_SEARCH, searcher=searcher)
    whole = run_repair(model, digits, settings)
    for generation in (0, whole.search.generations // 2, whole.search.generations):
        folder = tmp_path / str(generation)
        stop_after(folder, generation, model, digits, settings)
        told: list[str] = []
        seen: list[arachne.Generation] = []
        again = run_repair(
            model,
            digits,
            settings,
            on_generation=seen.append,
            checkpoint=Checkpoints(folder, resume=True, tell=told.append),
        )
        assert again.patch.to_json() == whole.patch.to_json()
        assert (again.search.history, again.search.stopped) == (whole.search.history, whole.search.stopped)
        assert again.localisation.suspects.addresses == whole.localisation.suspects.addresses
        for mine, theirs in zip(again.localisation.scores, whole.localisation.scores, strict=True):
            np.testing.assert_array_equal(mine.gradient_loss, theirs.gradient_loss)
            np.testing.assert_array_equal(mine.forward_impact, theirs.forward_impact)
        assert tuple(seen) == whole.search.history[generation + 1 :]
        assert told[0].startswith("resumed after")


def test_no_more_than_two_checkpoints_are_kept(tmp_path: Path, model: ReferenceBackend, digits: LabelledData) -> None:
    stop_after(tmp_path, 5, model, digits)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "localised.npz",
        "search-000005.npz",
        "search-000006.npz",
    ]


def test_a_step_is_not_written_while_that_would_cost_too_much(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData
) -> None:
    run_repair(model, digits, checkpoint=Checkpoints(tmp_path / "kept", share=0))
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("name", ["localised.npz", "search-000004.npz"])
def test_a_damaged_file_is_told_and_done_without(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData, name: str
) -> None:
    whole = run_repair(model, digits)
    stop_after(tmp_path, 3, model, digits)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    told: list[str] = []
    again = run_repair(model, digits, checkpoint=Checkpoints(tmp_path, resume=True, tell=told.append))
    assert again.patch.to_json() == whole.patch.to_json()
    assert again.search.history == whole.search.history
    told_of = [text for text in told if name in text]
    assert len(told_of) == 1
    assert "cannot be used: it is no archive, or it was cut short; the " in told_of[0]


def test_two_damaged_checkpoints_end_the_run(tmp_path: Path, model: ReferenceBackend, digits: LabelledData) -> None:
    stop_after(tmp_path, 3, model, digits)
    for path in tmp_path.glob("search-*"):
        path.write_bytes(b"PK")
    with pytest.raises(CheckpointError, match=r"^no checkpoint is whole: .*; start over$"):
        run_repair(model, digits, checkpoint=Checkpoints(tmp_path, resume=True))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 5}, "'seed' was 0 there and is 5 now"),
        ({"alpha": 2.0}, "'alpha' was 10.0 there and is 2.0 now"),
        (
            {"searcher": DifferentialEvolution(population=13, generations=8)},
            "'searcher.population' was 12 there and is 13 now",
        ),
        ({"localiser": Bidirectional(count=3)}, "'localiser.count' was nothing there and is 3 now"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_another_setting_is_refused_by_name_with_both_values(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData, changes: dict[str, Any], told: str
) -> None:
    stop_after(tmp_path, 1, model, digits, replace(SMALL_SEARCH, localiser=Bidirectional()))
    settings = replace(SMALL_SEARCH, **{"localiser": Bidirectional(), **changes})
    with pytest.raises(CheckpointError, match=told):
        run_repair(model, digits, settings, checkpoint=Checkpoints(tmp_path, resume=True))
    assert (tmp_path / "search-000002.npz").is_file()


def test_other_data_and_another_model_are_refused(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData
) -> None:
    stop_after(tmp_path, 1, model, digits)
    other = LabelledData(np.asarray(digits.inputs) * np.float32(1.001), digits.labels)
    with pytest.raises(CheckpointError, match=r"'data.sha256' was '[0-9a-f]{64}' there and is '[0-9a-f]{64}' now"):
        run_repair(model, other, checkpoint=Checkpoints(tmp_path, resume=True))
    layer = model.layers[0].name
    weights = model.get_weights(layer)["weight"]
    nudged = weights.copy()
    nudged[0, 0] = np.nextafter(nudged[0, 0], np.float32(9))
    model.set_weights(layer, "weight", nudged)
    try:
        with pytest.raises(CheckpointError, match=r"'model.weights' was '.*' there and is '.*' now"):
            run_repair(model, digits, checkpoint=Checkpoints(tmp_path, resume=True))
    finally:
        model.set_weights(layer, "weight", weights)


def test_another_version_is_refused(tmp_path: Path, model: ReferenceBackend, digits: LabelledData) -> None:
    stop_after(tmp_path, 1, model, digits)
    for path in tmp_path.glob("search-*"):
        arrays, about = read_arrays(path, STATE)
        about["fields"]["versions.numpy"] = "1.0"
        write_arrays(path, arrays, about)
    with pytest.raises(CheckpointError, match=r"'numpy' was '1.0' there and is '\d+\..*' now; give what it was, or"):
        run_repair(model, digits, checkpoint=Checkpoints(tmp_path, resume=True))


@pytest.mark.parametrize(
    ("searcher", "field", "old"),
    [
        (MarginSearch(steps=16, folds=2), "settings.searcher.name", "keep"),
        (Pool(members=("bias", "last-layer")), "settings.searcher.members", ["bias", "last"]),
    ],
    ids=["one searcher", "a pool"],
)
def test_names_that_searchers_had_before_are_no_other_run(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData, searcher: Searcher, field: str, old: Any
) -> None:
    settings = replace(SMALL_SEARCH, searcher=searcher)
    stop_after(tmp_path, 3, model, digits, settings)
    for path in tmp_path.glob("search-*"):
        arrays, about = read_arrays(path, STATE)
        assert about["fields"][field] != old
        about["fields"][field] = old
        write_arrays(path, arrays, about)
    again = run_repair(model, digits, settings, checkpoint=Checkpoints(tmp_path, resume=True))
    assert again.patch.to_json() == run_repair(model, digits, settings).patch.to_json()


def test_a_checkpoint_nobody_asked_to_resume_is_not_overwritten(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData
) -> None:
    stop_after(tmp_path, 1, model, digits)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CheckpointError, match="holds the checkpoint of a run that has not ended; resume it, or start"):
        run_repair(model, digits, checkpoint=Checkpoints(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_resuming_nothing_starts_from_the_beginning_and_says_so(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData
) -> None:
    told: list[str] = []
    found = run_repair(model, digits, checkpoint=Checkpoints(tmp_path / "new", resume=True, tell=told.append))
    assert found.patch.to_json() == run_repair(model, digits).patch.to_json()
    assert told == [f"'{tmp_path / 'new'}' holds no checkpoint yet: the run starts from the beginning"]


def test_an_interrupted_repair_in_python_goes_on(tmp_path: Path, model: ReferenceBackend, digits: LabelledData) -> None:
    before = {info.name: dict(model.get_weights(info.name)) for info in model.layers}
    whole = arachne.repair(model, digits, "8:1", settings=SMALL_SEARCH)

    def interrupt(at: arachne.Generation) -> None:
        if at.number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        arachne.repair(model, digits, "8:1", settings=SMALL_SEARCH, on_generation=interrupt, checkpoint=tmp_path)
    for layer, weights in before.items():
        for parameter, values in weights.items():
            np.testing.assert_array_equal(model.get_weights(layer)[parameter], values)
    assert read_saved(max(tmp_path.glob("search-*"))).progress == "generation 4"
    again = arachne.repair(model, digits, "8:1", settings=SMALL_SEARCH, checkpoint=tmp_path, resume=True)
    assert again.patch.to_json() == whole.patch.to_json()
    with pytest.raises(UsageError, match="name its folder as checkpoint"):
        arachne.repair(model, digits, "8:1", resume=True)


def test_a_finished_localisation_is_not_done_again(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(tmp_path, 0, model, digits)
    (tmp_path / "search-000001.npz").unlink()
    whole = run_repair(model, digits)
    monkeypatch.setattr(Bidirectional, "localise", None)
    again = run_repair(model, digits, checkpoint=Checkpoints(tmp_path, resume=True))
    assert again.patch.to_json() == whole.patch.to_json()


@pytest.mark.parametrize(("repeat", "told"), [("parameter", "stands twice"), ("weight", "one of them twice")])
def test_a_localisation_with_a_suspect_twice_is_refused(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData, repeat: str, told: str
) -> None:
    found = run_repair(model, digits).localisation
    path, random = tmp_path / "localised.npz", np.random.default_rng(0).bit_generator.state
    write_localisation(path, found, random, {})
    assert read_localisation(path, model, {})[0].suspects == found.suspects
    arrays, about = read_arrays(path, LOCALISED)
    if repeat == "parameter":
        arrays[f"index{len(about['parameters'])}"] = arrays["index0"]
        about["parameters"].append(about["parameters"][0])
    else:
        arrays["index0"] = np.concatenate([arrays["index0"], arrays["index0"][:1]])
    write_arrays(path, arrays, about)
    with pytest.raises(CheckpointError, match=told):
        read_localisation(path, model, {})


def test_a_checkpoint_that_cannot_be_written_ends_the_run_and_leaves_the_one_before(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_at_four(path: Path, saved: Saved) -> None:
        if saved.progress == "generation 4":
            raise EnvironmentFaultError("cannot write: no space left on device")
        write_saved(path, saved)

    monkeypatch.setattr("arachne.results.checkpoint.keeper.write_saved", full_at_four)
    with pytest.raises(EnvironmentFaultError, match="no space left"):
        run_repair(model, digits, checkpoint=Checkpoints(tmp_path, share=1))
    monkeypatch.undo()
    assert read_saved(max(tmp_path.glob("search-*"))).progress == "generation 3"
    again = run_repair(model, digits, checkpoint=Checkpoints(tmp_path, resume=True))
    assert again.patch.to_json() == run_repair(model, digits).patch.to_json()


def lacks_members(arrays: dict[str, Any], about: dict[str, Any]) -> None:
    del arrays["state/members"]


def other_shape(arrays: dict[str, Any], about: dict[str, Any]) -> None:
    arrays["state/members"] = arrays["state/members"][:, :1]


def huge_and_empty(arrays: dict[str, Any], about: dict[str, Any]) -> None:
    arrays["state/members"] = np.zeros((1 << 40, 0))


def text_for_a_number(arrays: dict[str, Any], about: dict[str, Any]) -> None:
    about["state"]["history"][0]["repaired"] = "5"


def list_for_a_value(arrays: dict[str, Any], about: dict[str, Any]) -> None:
    about["state"]["values"]["unchanged"] = [1]


def other_generator(arrays: dict[str, Any], about: dict[str, Any]) -> None:
    about["random"]["bit_generator"] = "MT19937"


def no_history(arrays: dict[str, Any], about: dict[str, Any]) -> None:
    about["state"]["history"] = []


def endless_time(arrays: dict[str, Any], about: dict[str, Any]) -> None:
    about["seconds"]["search"] = float("inf")


def no_fields(arrays: dict[str, Any], about: dict[str, Any]) -> None:
    about["fields"] = 7


@pytest.mark.parametrize(
    "change",
    [
        lacks_members,
        other_shape,
        huge_and_empty,
        text_for_a_number,
        list_for_a_value,
        other_generator,
        no_history,
        endless_time,
        no_fields,
    ],
    ids=lambda change: str(change.__name__),
)
def test_a_checkpoint_that_somebody_made_up_is_refused_in_one_sentence(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData, change: Any
) -> None:
    stop_after(tmp_path, 2, model, digits)
    for path in tmp_path.glob("search-*"):
        arrays, about = read_arrays(path, STATE)
        change(arrays, about)
        write_arrays(path, arrays, about)
    with pytest.raises(CheckpointError):
        run_repair(model, digits, checkpoint=Checkpoints(tmp_path, resume=True))


def test_every_changed_byte_is_found_or_changes_nothing(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData
) -> None:
    stop_after(tmp_path, 1, model, digits)
    path = tmp_path / "search-000002.npz"
    whole, content = read_saved(path), path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.choice(len(content), 300, replace=False).tolist():
        path.write_bytes(content[:place] + bytes([content[place] ^ int(rng.integers(1, 256))]) + content[place + 1 :])
        try:
            found = read_saved(path)
        except InputError:
            refused += 1
            continue
        assert found.state.to_json() == whole.state.to_json()
        assert (found.fields, found.random, found.seconds) == (whole.fields, whole.random, whole.seconds)
        for name, array in whole.state.arrays.items():
            np.testing.assert_array_equal(found.state.arrays[name], array)
    assert refused > 200


def test_packed_and_pickled_members_are_not_read(tmp_path: Path) -> None:
    packed, pickled = tmp_path / "packed.npz", tmp_path / "pickled.npz"
    text = np.frombuffer(json.dumps({"schema": STATE, "arrays": {"a": "x"}}).encode(), np.uint8)
    np.savez_compressed(packed, about=text, a=np.zeros(10))
    with pytest.raises(InputError, match="its members are packed or encrypted"):
        read_arrays(packed, STATE)
    mark = np.frombuffer(make_mark(read_own_key(), text.tobytes()), np.uint8)
    np.savez(pickled, about=text, mark=mark, a=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="holds Python objects, not arrays of numbers"):
        read_arrays(pickled, STATE)
    with zipfile.ZipFile(pickled, "a") as file:
        file.writestr("about.txt", "x")
    with pytest.raises(InputError, match="it holds something else than arrays"):
        read_arrays(pickled, STATE)
    shutil.rmtree(tmp_path)
    with pytest.raises(InputError, match="there is no such file"):
        read_arrays(packed, STATE)
