"""Repairs within a budget, from the search to the saved folder and back."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.choose.budget import Budget
from arachne.data.labelled import LabelledData
from arachne.data.run import never_break_part
from arachne.engine import repair
from arachne.errors import DataError, InputError, ModelError, NothingWithinBudgetError, UsageError
from arachne.evidence import measure
from arachne.patch import Patch
from arachne.report.objects import result_schema
from arachne.results.finalise import SHRUNK
from arachne.results.front_file import FRONT, read_front, write_front
from arachne.results.reopen import open_repair, stored_front
from arachne.results.result import RepairResult
from arachne.search import DifferentialEvolution
from arachne.search.build import added_terms, fitness_inputs
from arachne.settings import Settings
from arachne.testing import ReferenceBackend
from tests.unit.fronts import STEPS, Slope

QUICK = DifferentialEvolution(population=12, generations=4)
DAMAGED = "cannot read .* as (npz|a front)"


@pytest.fixture(scope="module")
def repaired(model: ReferenceBackend, digits: LabelledData) -> RepairResult:
    return repair(model, digits, "8:1", settings=Settings(searcher=Slope(folds=True), budget=Budget(0.005)))


@pytest.fixture
def stored(model: ReferenceBackend, tmp_path: Path) -> ReferenceBackend:
    model.save(tmp_path / "digits.refnet")
    return ReferenceBackend.load(tmp_path / "digits.refnet")


def test_the_best_point_within_the_budget_becomes_the_patch(repaired: RepairResult) -> None:
    assert repaired.choice is not None
    assert repaired.choice.index == 4
    assert repaired.choice.within == (1, 2, 3, 4)
    assert repaired.search.chosen == 4
    point = repaired.points[4]
    assert repaired.evidence.seen is not None
    assert (repaired.evidence.seen.repaired, repaired.evidence.seen.broken) == (
        point.seen.repair.count,
        point.seen.breakage.count,
    )
    assert (repaired.evidence.budget, repaired.evidence.patches_compared) == (0.005, len(STEPS))
    *_, larger = repaired.points  # the point as it was before it was minimised
    assert [one.candidate.made_by for one in repaired.points] == ["slope"] * (len(STEPS) + 1)
    assert (point.minimised_from, point.minimised_for, larger.minimised_for) == (larger.weights, 0.005, None)
    assert point.weights < larger.weights


def test_points_are_measured_as_their_patches_would_be(repaired: RepairResult) -> None:
    """One cut for all candidates tells the same as a full pass with each patch in the model."""
    for point in repaired.points:
        patch = Patch.between(repaired.backend, point.candidate.addresses, point.candidate.values)
        evidence = measure(repaired.backend, patch, repaired.split)
        assert evidence.seen is not None
        assert point.held_out is not None
        for part, standing in ((evidence.seen, point.seen), (evidence.held_out, point.held_out)):
            assert (part.repaired, part.broken) == (standing.repair.count, standing.breakage.count)
        assert point.weights == len(patch)


def test_another_budget_gives_another_point_without_a_search(repaired: RepairResult) -> None:
    bolder = repaired.choose(max_break=0.05)
    assert bolder.choice is not None
    assert bolder.choice.index == 6
    assert bolder.patch.entries != repaired.patch.entries
    assert bolder.evidence.budget == 0.05
    assert bolder.patch.provenance["settings"]["budget"]["max_break"] == 0.05
    assert repaired.choose(max_break=0.005).patch.to_json() == repaired.patch.to_json()


def test_a_repair_without_a_budget_has_no_front_to_choose_from(model: ReferenceBackend, digits: LabelledData) -> None:
    result = repair(model, digits, "8:1", settings=Settings(searcher=QUICK))
    assert (result.points, result.choice) == ((), None)
    assert not {"front", "chosen", "chosen_by", "budgets"} & set(result.to_json())
    with pytest.raises(UsageError, match="left no front"):
        result.choose(max_break=0.01)


def test_several_candidates_without_a_budget_are_chosen_by_the_default_one(
    model: ReferenceBackend, digits: LabelledData
) -> None:
    result = repair(model, digits, "8:1", settings=Settings(searcher=Slope(folds=True)))
    assert result.choice is not None
    assert result.choice.budget == result.settings.budget == Budget()
    assert result.patch.provenance["settings"]["budget"] == Budget().to_json()


def test_one_candidate_with_a_budget_comes_with_shrunk_copies(model: ReferenceBackend, digits: LabelledData) -> None:
    result = repair(model, digits, "8:1", settings=Settings(searcher=QUICK, budget=Budget(0.2)))
    assert len(result.points) == 1 + len(SHRUNK)
    sizes = [point.size for point in result.points]
    assert np.allclose(np.array(sizes[1:]) / sizes[0], SHRUNK)
    assert len(result.split.choose) == pytest.approx(0.3 * len(digits) / 2, abs=10)
    assert all(point.choose is not None for point in result.points)


def test_nothing_within_the_budget_raises_with_what_was_found(model: ReferenceBackend, digits: LabelledData) -> None:
    bold = Slope(folds=True, first=5)
    with pytest.raises(NothingWithinBudgetError, match="the best beyond the budget, by slope, has 44 of 53") as caught:
        arachne.repair(model, digits, "8:1", searcher=bold, max_break=0.002, max_class_drop={"*": 0.1})
    assert caught.value.exit_code == 6
    told = caught.value.result.to_json()
    assert (told["verdict"], told["chosen"], told["weights"]) == ("nothing within the budget", None, 0)
    assert [point["out_of_fold"]["broken"] for point in told["front"]] == [8, 33, 796]
    assert told["budgets"] == {
        "max_break": 0.002,
        "confidence": None,
        "max_class_drop": {"*": 0.1},
        "max_group_drop": {},
        "never_break": None,
    }
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(told, result_schema())


def test_a_class_that_does_not_exist_is_refused_before_anything_is_searched(
    model: ReferenceBackend, digits: LabelledData
) -> None:
    with pytest.raises(UsageError, match="names the class 'eight'"):
        arachne.repair(model, digits, "8:1", searcher=Slope(), max_class_drop={"eight": 0})


def test_never_break_inputs_stay_right(model: ReferenceBackend, digits: LabelledData, repaired: RepairResult) -> None:
    bold = repaired.choose(max_break=0.05)
    assert bold.evidence.seen is not None
    damaged = digits.take(bold.evidence.seen.damaged.rows)
    golden = replace(damaged, labels=damaged.labels)
    result = arachne.repair(model, digits, "8:1", searcher=Slope(folds=True), max_break=0.05, never_break=golden)
    assert result.choice is not None
    assert result.choice.index is not None
    assert result.choice.index < 6
    assert (result.model.predict(golden.inputs) == golden.labels).all()
    assert result.evidence.never_break is not None
    assert result.evidence.never_break.broken == 0
    assert result.points[6].never_broken > 0
    assert result.patch.provenance["never_break"]["sha256"] == golden.sha256()
    assert result.to_json()["budgets"]["never_break"]["right"] == len(golden)


def test_never_break_inputs_are_a_term_of_the_fitness(model: ReferenceBackend, repaired: RepairResult) -> None:
    golden = repaired.split.held_out.data.take(np.arange(40))
    part = never_break_part(model, golden)
    split = replace(repaired.split, never_break=part)
    counted = fitness_inputs(split, split.seen.terms(10.0), list(added_terms(split, 10.0)))
    plain = fitness_inputs(repaired.split, split.seen.terms(10.0), [])
    assert counted.kinds == (*plain.kinds, "never_break")
    assert len(counted) == len(plain) + len(part.positives)
    np.testing.assert_array_equal(np.asarray(counted.inputs)[len(plain) :], np.asarray(golden.inputs)[part.positives])
    wrong = counted.wrong_by_term(model.forward(counted.inputs))
    assert wrong[-1] == 0


def test_never_break_inputs_are_not_kept_for_choosing_too(model: ReferenceBackend, digits: LabelledData) -> None:
    golden = digits.take(np.arange(300))
    settings: dict[str, Any] = {"searcher": Slope(), "max_break": 0.05, "confidence": 0.9}
    alone = arachne.repair(model, digits, "8:1", **settings).split
    split = arachne.repair(model, digits, "8:1", never_break=golden, **settings).split
    assert (alone.choose.rows < 300).any()
    np.testing.assert_array_equal(split.choose.rows, alone.choose.rows[alone.choose.rows >= 300])
    np.testing.assert_array_equal(split.held_out.rows, alone.held_out.rows)


def test_held_out_inputs_that_are_never_break_inputs_too_are_counted(
    model: ReferenceBackend, digits: LabelledData
) -> None:
    golden = digits.take(np.arange(300))
    result = arachne.repair(model, digits, "8:1", searcher=Slope(folds=True), never_break=golden)
    shared = int((result.split.held_out.rows < 300).sum())
    assert result.evidence.never_break_overlap == shared > 0
    assert f"{shared} of the {len(result.split.held_out)} held-out inputs are also never-break inputs" in str(
        result.evidence
    )


def test_never_break_inputs_that_are_all_wrong_are_refused(model: ReferenceBackend, digits: LabelledData) -> None:
    wrong = digits.take(np.flatnonzero(model.predict(digits.inputs) != digits.labels))
    with pytest.raises(DataError, match="gets none of the"):
        arachne.repair(model, digits, "8:1", searcher=Slope(), never_break=wrong)


def test_a_saved_model_that_breaks_a_never_break_input_is_not_kept(
    model: ReferenceBackend, digits: LabelledData, tmp_path: Path
) -> None:
    golden = digits.take(np.flatnonzero(model.predict(digits.inputs) == digits.labels)[:50])
    result = arachne.repair(model, digits, "8:1", searcher=Slope(folds=True), never_break=golden)

    def ruin(path: Path) -> ReferenceBackend:
        backend = ReferenceBackend.load(path)
        last = backend.layers[-1].name
        backend.set_weights(last, "weight", -backend.get_weights(last)["weight"])
        return backend

    with pytest.raises(ModelError, match=r"never-break inputs? wrong"):
        result.save(tmp_path / "fix", reopen=ruin)
    assert not list(tmp_path.glob("fix/*"))


def test_a_guarantee_keeps_inputs_from_the_search_and_counts_how_many_it_needs(
    model: ReferenceBackend, digits: LabelledData
) -> None:
    result = arachne.repair(model, digits, "8:1", searcher=Slope(), max_break=0.02, confidence=0.9)
    assert result.choice is not None
    assert len(result.split.choose.positives) >= result.choice.budget.fewest_positives == 114
    assert "p = " in result.choice.why
    with pytest.raises(
        DataError, match=r"takes 460 inputs that are right and kept from the search, and there are 2\d\d"
    ):
        arachne.repair(model, digits, "8:1", searcher=Slope(), confidence=0.9)


def test_a_guarantee_cannot_be_had_from_a_front_that_saw_everything(repaired: RepairResult) -> None:
    with pytest.raises(UsageError, match="none are left for a guarantee"):
        repaired.choose(max_break=0.02, confidence=0.9)


def test_budgets_and_settings_are_put_together_from_keywords(model: ReferenceBackend, digits: LabelledData) -> None:
    with pytest.raises(UsageError, match="give a budget or 'max_break', not both"):
        arachne.repair(model, digits, "8:1", budget=Budget(), max_break=0.1)
    with pytest.raises(UsageError, match="knows no budget"):
        arachne.repair(model, digits, "8:1", faithful=True, max_break=0.1)


def test_the_result_keeps_to_its_schema(repaired: RepairResult) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(repaired.to_json(), result_schema())
    assert repaired.to_json()["chosen_by"]["searcher"] == "slope"


def test_a_saved_front_is_read_back_bit_for_bit(repaired: RepairResult, tmp_path: Path) -> None:
    repaired.save(tmp_path / "fix")
    front, choice = stored_front(tmp_path / "fix")
    assert choice.index == 4
    for stored, point in zip(front.points, repaired.points, strict=True):
        assert stored.candidate.addresses == point.candidate.addresses
        np.testing.assert_array_equal(stored.candidate.values, point.candidate.values)
        assert (stored.weights, stored.size, stored.never_broken) == (point.weights, point.size, point.never_broken)
        for part in ("seen", "choose", "held_out", "out_of_fold"):
            one, other = getattr(stored, part), getattr(point, part)
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_array_equal(one.right, other.right)
                np.testing.assert_array_equal(one.baseline.rows, other.baseline.rows)
                np.testing.assert_array_equal(one.baseline.negative, other.baseline.negative)
    assert front.search.history == repaired.search.history
    assert front.search.fitness == repaired.search.fitness


def test_another_point_from_the_folder_is_the_one_from_memory(
    stored: ReferenceBackend, digits: LabelledData, tmp_path: Path
) -> None:
    settings = Settings(searcher=Slope(folds=True), budget=Budget(0.005))
    result = repair(stored, digits, "8:1", settings=settings).save(tmp_path / "fix", reopen=ReferenceBackend.load)
    again = open_repair(tmp_path / "fix", stored, digits)
    assert again.evidence.held_out.repaired == result.evidence.held_out.repaired
    fresh, kept = result.choose(max_break=0.05), again.choose(max_break=0.05)
    assert kept.patch.to_json() == fresh.patch.to_json()
    kept.save(tmp_path / "bold", reopen=ReferenceBackend.load)
    told = json.loads((tmp_path / "bold" / "result.json").read_text())
    assert (told["chosen"], told["budget"]) == (6, 0.05)
    assert told["held_out"]["repaired"] == fresh.evidence.held_out.repaired
    pages = [json.loads((tmp_path / name / "report.json").read_text()) for name in ("fix", "bold")]
    assert pages[0]["localisation"] == pages[1]["localisation"]


def test_a_model_or_data_that_changed_is_refused_with_both_hashes(
    stored: ReferenceBackend, digits: LabelledData, tmp_path: Path
) -> None:
    settings = Settings(searcher=Slope(folds=True), budget=Budget(0.005))
    repair(stored, digits, "8:1", settings=settings).save(tmp_path / "fix")
    other = digits.take(np.arange(len(digits) - 1))
    with pytest.raises(DataError, match=f"{other.sha256()}, expected {digits.sha256()}"):
        open_repair(tmp_path / "fix", stored, other)
    with pytest.raises(DataError, match="made without held-out data"):
        open_repair(tmp_path / "fix", stored, digits, holdout=other)
    last = stored.layers[-1].name
    stored.set_weights(last, "weight", 2 * stored.get_weights(last)["weight"])
    stored.save(tmp_path / "other.refnet")
    with pytest.raises(ModelError, match=r"is not the model that was repaired: its sha256 is .*, expected"):
        open_repair(tmp_path / "fix", ReferenceBackend.load(tmp_path / "other.refnet"), digits)


def test_a_front_may_have_held_out_data_of_its_own(
    stored: ReferenceBackend, digits: LabelledData, tmp_path: Path
) -> None:
    data, holdout = digits.take(np.arange(1000)), digits.take(np.arange(1000, len(digits)))
    settings = Settings(searcher=Slope(folds=True), budget=Budget(0.005))
    result = repair(stored, data, "8:1", settings=settings, holdout=holdout).save(tmp_path / "fix")
    again = open_repair(tmp_path / "fix", stored, data, holdout=holdout).choose(max_break=0.005)
    assert again.evidence.held_out.inputs == len(holdout)
    assert again.patch.to_json() == result.patch.to_json()
    with pytest.raises(DataError, match="the repair had held-out data"):
        open_repair(tmp_path / "fix", stored, data)


def test_a_folder_without_a_front_is_told_apart_from_one_that_is_no_result(
    model: ReferenceBackend, digits: LabelledData, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"has no result\.json"):
        stored_front(tmp_path)
    repair(model, digits, "8:1", settings=Settings(searcher=QUICK)).save(tmp_path / "plain")
    with pytest.raises(InputError, match="without a budget"):
        stored_front(tmp_path / "plain")


def rewritten(path: Path, **members: bytes | None) -> Path:
    """A copy of an archive with some members changed, or left out."""
    copy = path.with_name("copy.npz")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            content = members.get(name.removesuffix(".npy"), old.read(name))
            if content is not None:
                new.writestr(name, content)
    return copy


def test_a_stored_front_is_read_with_the_names_that_searchers_have_now(repaired: RepairResult, tmp_path: Path) -> None:
    repaired.save(tmp_path / "fix")
    front = read_front(tmp_path / "fix" / FRONT)
    old = ("keep", "last, round 2", "mine")
    points = tuple(
        replace(front.points[0], candidate=replace(front.points[0].candidate, made_by=maker)) for maker in old
    )
    search = replace(front.search, front=tuple(point.candidate for point in points), chosen=0)
    write_front(tmp_path / "old.npz", replace(front, points=points, search=search))
    found = read_front(tmp_path / "old.npz")
    assert [point.candidate.made_by for point in found.points] == ["margin", "last-layer, round 2", "mine"]


def test_damaged_fronts_are_refused_in_one_sentence(repaired: RepairResult, tmp_path: Path) -> None:
    repaired.save(tmp_path / "fix")
    path = tmp_path / "fix" / FRONT
    huge = io.BytesIO()
    np.lib.format.write_array_header_1_0(huge, {"descr": "<i8", "fortran_order": False, "shape": (1 << 60,)})
    pickled, short = io.BytesIO(), io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    np.save(short, np.zeros(3, np.int64))
    for members in (
        {"seen.rows": huge.getvalue()},
        {"seen.rows": pickled.getvalue()},
        {"seen.rows": short.getvalue()},
        {"deficits": None},
        {"about": None},
    ):
        with pytest.raises(InputError, match=DAMAGED):
            read_front(rewritten(path, **members))
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(InputError, match=DAMAGED):
        read_front(tmp_path / "text.npz")
