from __future__ import annotations

import gc
import json
from pathlib import Path

import numpy as np
import pytest

import arachne
from arachne.data.labelled import LabelledData
from arachne.engine import repair
from arachne.errors import DataError, NothingToRepairError, UsageError
from arachne.localise import Bidirectional
from arachne.model.values import Array
from arachne.scoring.tail_cache import TailCache
from arachne.search import DifferentialEvolution, Generation
from arachne.search.direction_search import Material
from arachne.search.problem import Problem
from arachne.settings import Settings
from arachne.testing import ReferenceBackend

QUICK = DifferentialEvolution(population=20, generations=12)


def weights(backend: ReferenceBackend) -> dict[str, Array]:
    return {
        f"{info.name}.{name}": values
        for info in backend.layers
        for name, values in backend.get_weights(info.name).items()
    }


def test_a_repair_lowers_the_fault_on_inputs_it_never_saw(model: ReferenceBackend, digits: LabelledData) -> None:
    result = repair(model, digits, "8:1", settings=Settings(searcher=QUICK))
    assert result.evidence.seen is not None
    assert result.evidence.seen.negatives + result.evidence.held_out.negatives > 20
    assert result.evidence.held_out.target_errors_after < result.evidence.held_out.target_errors_before
    assert 0 < len(result.patch) <= len(result.localisation.suspects)


def test_the_model_is_left_as_it_was_and_the_patched_one_differs(model: ReferenceBackend, digits: LabelledData) -> None:
    before = weights(model)
    result = repair(model, digits, "8:1", settings=Settings(searcher=QUICK))
    predicted = result.model.predict(digits.inputs)
    for name, values in weights(model).items():
        np.testing.assert_array_equal(values, before[name])
    eights = (digits.labels == 8) & (model.predict(digits.inputs) == 1)
    assert (predicted[eights] == 8).sum() == sum(
        part.repaired for part in (result.evidence.seen, result.evidence.held_out) if part is not None
    )


def test_the_same_seed_gives_the_same_patch_text(model: ReferenceBackend, digits: LabelledData) -> None:
    texts = [repair(model, digits, "8:1", settings=Settings(searcher=QUICK, seed=3)).patch.to_json() for _ in range(2)]
    assert texts[0] == texts[1]
    other = repair(model, digits, "8:1", settings=Settings(searcher=QUICK, seed=4)).patch.to_json()
    assert other != texts[0]


def test_the_model_is_restored_when_the_search_is_interrupted(model: ReferenceBackend, digits: LabelledData) -> None:
    before = weights(model)

    def stop(generation: Generation) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repair(model, digits, "8:1", settings=Settings(searcher=QUICK), on_generation=stop)
    for name, values in weights(model).items():
        np.testing.assert_array_equal(values, before[name])


def test_seen_and_held_out_halves_share_no_input(model: ReferenceBackend, digits: LabelledData) -> None:
    split = repair(model, digits, "8:1", settings=Settings(searcher=QUICK)).split
    assert not set(split.seen.rows.tolist()) & set(split.held_out.rows.tolist())
    assert len(split.seen) + len(split.held_out) == len(digits)


def test_a_holdout_is_judged_and_all_the_data_is_seen(model: ReferenceBackend, digits: LabelledData) -> None:
    data, holdout = digits.take(np.arange(0, 1000)), digits.take(np.arange(1000, len(digits)))
    result = repair(model, data, "8:1", settings=Settings(searcher=QUICK), holdout=holdout)
    assert result.evidence.seen is not None
    assert result.evidence.seen.inputs == 1000
    assert result.evidence.held_out.inputs == len(digits) - 1000
    assert result.patch.provenance["holdout"] == {
        "name": holdout.source,
        "sha256": holdout.sha256(),
        "inputs": len(digits) - 1000,
        "dropped": 0,
    }


def test_held_out_inputs_that_were_dropped_are_counted_in_provenance(
    model: ReferenceBackend, digits: LabelledData
) -> None:
    data, holdout = digits.take(np.arange(0, 1000)), digits.take(np.arange(990, len(digits)))
    result = repair(model, data, "8:1", settings=Settings(searcher=QUICK, drop_overlap=True), holdout=holdout)
    told = result.patch.provenance
    assert (told["holdout"]["inputs"], told["holdout"]["dropped"]) == (len(digits) - 990, 10)
    assert told["settings"]["drop_overlap"]


def test_saved_results_rest_on_the_saved_file(model: ReferenceBackend, digits: LabelledData, tmp_path: Path) -> None:
    original = tmp_path / "digits.refnet"
    model.save(original)
    backend = ReferenceBackend.load(original)
    result = repair(backend, digits, "8:1", settings=Settings(searcher=QUICK))
    saved = result.save(tmp_path / "fix", reopen=ReferenceBackend.load)
    assert {path.name for path in (tmp_path / "fix").iterdir()} >= {"model.refnet", "patch.json", "result.json"}
    written = json.loads((tmp_path / "fix" / "result.json").read_text())
    reopened = ReferenceBackend.load(tmp_path / "fix" / "model.refnet")
    held_out = result.split.held_out
    right = reopened.predict(held_out.data.inputs) == held_out.data.labels
    assert written["held_out"]["accuracy_after"] == pytest.approx(right.mean())
    assert saved.evidence.held_out.repaired == result.evidence.held_out.repaired
    patch = arachne.Patch.load(tmp_path / "fix" / "patch.json")
    assert patch.entries == result.patch.entries
    assert patch.provenance["seed"] == 0


def test_a_faithful_repair_keeps_to_the_first_front() -> None:
    settings = Settings.faithful(seed=7)
    assert isinstance(settings.localiser, Bidirectional)
    assert isinstance(settings.searcher, DifferentialEvolution)
    assert settings.localiser.min_weights == 0
    assert (settings.searcher.clip, settings.searcher.start, settings.searcher.keep_original) == (
        False,
        "gaussian",
        False,
    )
    assert (settings.searcher.population, settings.searcher.generations, settings.searcher.patience) == (100, 100, 10)
    assert (settings.alpha, settings.seed, settings.choose) == (10.0, 7, 0.0)


def test_a_mistake_the_model_does_not_make_is_nothing_to_repair(model: ReferenceBackend, digits: LabelledData) -> None:
    with pytest.raises(NothingToRepairError, match="0:6"):
        repair(model, digits, "0:6", settings=Settings(searcher=QUICK))


def test_a_model_near_chance_is_refused_with_advice(model: ReferenceBackend, digits: LabelledData) -> None:
    raw = LabelledData(np.roll(np.asarray(digits.inputs), 29, axis=1), digits.labels)
    with pytest.raises(DataError, match="near chance"):
        repair(model, raw, "top:1", settings=Settings(searcher=QUICK))


def test_unknown_settings_are_named_with_the_likeliest_known_one(model: ReferenceBackend, digits: LabelledData) -> None:
    with pytest.raises(UsageError, match="unknown setting 'alfa'; did you mean 'alpha'"):
        arachne.repair(model, digits, "8:1", alfa=3)


def test_the_public_functions_agree_with_the_engine(model: ReferenceBackend, digits: LabelledData) -> None:
    result = arachne.repair(model, digits, "8:1", searcher=QUICK, seed=1)
    scan = arachne.scan(model, digits)
    assert scan.accuracy == pytest.approx(float((model.predict(digits.inputs) == digits.labels).mean()))
    assert next(fault.count for fault in scan.faults if fault.target == "8:1") == sum(
        part.negatives for part in (result.evidence.seen, result.evidence.held_out) if part is not None
    )
    evidence = arachne.measure(model, digits, patch=result.patch)
    for again, first in ((evidence.seen, result.evidence.seen), (evidence.held_out, result.evidence.held_out)):
        assert again is not None
        assert first is not None
        assert (again.repaired, again.broken, again.inputs) == (first.repaired, first.broken, first.inputs)
    unpatched = model.predict(digits.inputs)
    arachne.apply(result.patch, model)
    patched = model.predict(digits.inputs)
    assert (patched != unpatched).any()
    arachne.revert(result.patch, model)
    np.testing.assert_array_equal(patched, result.model.predict(digits.inputs))
    np.testing.assert_array_equal(model.predict(digits.inputs), unpatched)


def test_a_target_of_numbers_is_refused_in_words(model: ReferenceBackend, digits: LabelledData) -> None:
    with pytest.raises(UsageError, match=r"a target is a text, as in '2:4', got \(2, 4\)"):
        arachne.repair(model, digits, (2, 4))  # type: ignore[arg-type]  # what a user did


def test_a_localisation_by_itself_uses_all_the_data(model: ReferenceBackend, digits: LabelledData) -> None:
    found = arachne.localise_weights(model, digits, "8:1", localiser="gl")
    assert found.method == "gl"
    assert found.n_candidates == 64 * 24 + 24 * 10


def test_nothing_large_outlives_a_repair(model: ReferenceBackend, digits: LabelledData) -> None:
    """Python looks for cycles when many objects were made, not when large ones were."""
    gc.collect()
    gc.disable()
    try:
        repair(model, digits, "8:1")
        left = [type(one).__name__ for one in gc.get_objects() if type(one) in (Problem, TailCache, Material)]
    finally:
        gc.enable()
    assert not left
