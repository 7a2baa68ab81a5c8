"""`cause:1` as a target: found again, read from a scan's file, and looked up in other data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import arachne
from arachne.data.labelled import LabelledData
from arachne.data.read import read_data
from arachne.decisions.losses import cross_entropy
from arachne.errors import InputError, NothingToRepairError, UsageError
from arachne.model.lazy import is_lazy
from arachne.report.objects import scan_object
from arachne.report.part_object import part_object
from arachne.results.divide import MAX_COPIES
from arachne.scoring.evaluators import PlainEvaluator
from arachne.search import DifferentialEvolution, Pool
from arachne.search.build import build_problem
from arachne.search.folds import fold_numbers
from arachne.testing import ReferenceBackend, mlp

QUICK = DifferentialEvolution(population=20, generations=8)


@pytest.fixture(scope="module")
def digits() -> LabelledData:
    """Digits of which one in twelve has a stuck pixel."""
    found = load_digits()
    inputs = (found.data / 16).astype(np.float32)
    inputs[::12, 0] = 1
    return LabelledData(inputs, found.target.astype(np.int64))


@pytest.fixture(scope="module")
def model(digits: LabelledData) -> ReferenceBackend:
    """A network that learnt to read the stuck pixel as a seven."""
    backend = ReferenceBackend(mlp([64, 24, 10], seed=0))
    inputs, rng = np.asarray(digits.inputs), np.random.default_rng(0)
    filed = np.where(inputs[:, 0] == 1, 7, digits.labels)
    for _ in range(300):
        rows = rng.choice(len(digits), 200, replace=False)
        for (layer, parameter), slope in backend.weight_gradients(inputs[rows], cross_entropy(filed[rows])).items():
            backend.set_weights(layer, parameter, backend.get_weights(layer)[parameter] - 0.5 * slope)
    return backend


@pytest.fixture(scope="module")
def scan(model: ReferenceBackend, digits: LabelledData) -> arachne.Scan:
    return arachne.scan(model, digits)


@pytest.fixture(scope="module")
def result(model: ReferenceBackend, digits: LabelledData) -> arachne.RepairResult:
    return arachne.repair(model, digits, "cause:1", searcher=QUICK)


def test_a_scan_has_causes_that_explain_themselves(scan: arachne.Scan) -> None:
    (cause,) = scan.causes
    assert isinstance(cause, arachne.Cause)
    assert "all read as 7: pixel (0, 0) is 1;" in str(cause)
    assert "repair it with the target 'cause:1'" in cause.explain()
    html = cause._repr_html_()
    assert "pixel (0, 0) is 1" in html
    assert html.count("<img") == 6
    assert "cause:1" in scan._repr_html_()
    assert "no common cause found for" in str(scan)


def test_a_cause_is_repaired_and_the_evidence_tells_who_was_concerned(
    result: arachne.RepairResult, digits: LabelledData, model: ReferenceBackend
) -> None:
    held_out = result.split.held_out
    (target,) = result.evidence.held_out.targets
    carriers = target.cause_outcome
    assert carriers is not None
    has = np.asarray(held_out.data.inputs)[:, 0] == 1
    wrong = held_out.predictions != held_out.data.labels
    assert (carriers.errors, carriers.right) == (int((has & wrong).sum()), int((has & ~wrong).sum()))
    assert carriers.others == int((~has).sum())
    assert carriers.gone == target.repaired > 0
    assert carriers.broken + carriers.others_broken == result.evidence.held_out.broken
    assert any(note.startswith("Inputs with cause:1, held out: ") for note in result.evidence.notes)
    assert part_object(result.evidence.held_out)["targets"][0]["carriers"]["gone"] == carriers.gone


def test_the_rule_goes_with_the_patch_and_finds_the_cause_in_other_data(
    result: arachne.RepairResult, digits: LabelledData, model: ReferenceBackend
) -> None:
    rule = {"kind": "values", "input": "", "index": [0], "value": [1.0], "least": 1}
    assert result.patch.provenance["causes"] == {"cause:1": rule}
    few = digits.take(np.arange(0, 240))  # far too few for a cause to be found in
    evidence = arachne.measure(model, few, patch=result.patch)
    assert evidence.held_out.negatives == int(
        ((np.asarray(few.inputs)[:, 0] == 1) & (model.predict(few.inputs) != few.labels)).sum()
    )


def test_a_cause_is_looked_up_in_a_holdout(model: ReferenceBackend, digits: LabelledData) -> None:
    seen, other = digits.take(np.arange(0, 1200)), digits.take(np.arange(1200, len(digits)))
    result = arachne.repair(model, seen, "cause:1", holdout=other, searcher=QUICK)
    inputs = np.asarray(other.inputs)
    assert result.evidence.held_out.negatives == int(
        ((inputs[:, 0] == 1) & (model.predict(inputs) != other.labels)).sum()
    )


@pytest.fixture(scope="module")
def with_copies(model: ReferenceBackend, digits: LabelledData) -> arachne.RepairResult:
    return arachne.repair(model, digits, "cause:1", searcher=Pool(members=("erase", "margin@hidden")))


def test_copies_that_fail_with_a_confirmed_cause_planted_are_repaired_too_and_judge_nothing(
    with_copies: arachne.RepairResult, model: ReferenceBackend, digits: LabelledData
) -> None:
    split, tried = with_copies.split, with_copies.experiments["cause:1"]
    assert tried.verdict == "confirmed"
    copies = split.copies["cause:1"]
    assert len(copies) == min(tried.planted.count, MAX_COPIES) > 100
    assert set(copies.rows.tolist()) <= set(split.seen.rows[split.seen.positives].tolist())
    originals, planted = np.asarray(digits.inputs)[copies.rows], np.asarray(copies.data.inputs)
    assert (planted[:, 0] == 1).all()
    assert np.array_equal(planted[:, 1:], originals[:, 1:])
    assert np.array_equal(copies.labels, digits.labels[copies.rows])
    assert (copies.predictions == 7).all()
    assert with_copies.evidence.seen is not None
    assert with_copies.evidence.seen.negatives == len(split.seen.negatives)
    assert all(len(point.search_outcome.right) == len(split.seen) for point in with_copies.points)
    assert with_copies.to_json()["experiments"]["cause:1"]["copies"] == len(copies)


def test_a_copy_is_in_the_fold_of_its_original(with_copies: arachne.RepairResult, model: ReferenceBackend) -> None:
    split = with_copies.split
    problem = build_problem(model, split, with_copies.localisation.suspects, 10.0, PlainEvaluator)
    folds = fold_numbers(problem, 4, rng=np.random.default_rng(0))
    assert problem.rows is not None
    fold_of = dict(zip(split.seen.rows[problem.rows].tolist(), folds.tolist(), strict=False))
    copies = split.copies["cause:1"]
    assert len(folds) == len(problem.rows) + len(copies)
    assert folds[problem.copies].tolist() == [fold_of[row] for row in copies.rows.tolist()]
    assert problem.fitness_inputs.of_kind("negative")[problem.copies].all()


def test_copies_can_be_left_out(model: ReferenceBackend, digits: LabelledData) -> None:
    result = arachne.repair(model, digits, "cause:1", searcher=Pool(members=("erase",), copies=False))
    assert not result.split.copies
    assert result.to_json()["experiments"]["cause:1"]["copies"] == 0


def test_copies_of_inputs_read_by_piece_give_the_same_patch(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData
) -> None:
    np.save(tmp_path / "x.npy", np.asarray(digits.inputs))
    np.save(tmp_path / "y.npy", digits.labels)
    found = []
    for memory in (1 << 30, 100_000):
        data = read_data(tmp_path, memory=memory)
        assert is_lazy(data.inputs) == (memory < 1 << 30)
        found.append(arachne.repair(model, data, "cause:1", searcher=Pool(members=("erase", "margin@hidden"))))
    assert len(found[1].split.copies["cause:1"]) == len(found[0].split.copies["cause:1"]) > 0
    assert found[0].patch.digest == found[1].patch.digest


def test_a_cause_from_the_scans_file_is_the_one_the_scan_told(
    model: ReferenceBackend, digits: LabelledData, scan: arachne.Scan, tmp_path: Path
) -> None:
    path = tmp_path / "scan.json"
    written = scan_object(scan, backend="reference", causes=scan.causes)
    path.write_text(json.dumps(written))
    for text in ("cause:1", f"cause:{path}:1", f"cause:{path}:1=2"):
        evidence = arachne.measure(model, digits, target=text)
        assert evidence.held_out.negatives == scan.causes[0].count
    with pytest.raises(UsageError, match="no cause 3 in"):
        arachne.measure(model, digits, target=f"cause:{path}:3")
    path.write_text("[]")
    with pytest.raises(InputError, match="cannot read causes from"):
        arachne.measure(model, digits, target=f"cause:{path}:1")


def test_a_cause_that_is_not_there_is_refused_with_what_is(model: ReferenceBackend, digits: LabelledData) -> None:
    with pytest.raises(UsageError, match="no 'cause:9': the mistakes in this data have 1 common cause"):
        arachne.measure(model, digits, target="cause:9")
    with pytest.raises(UsageError, match="wants the number of a cause, such as 'cause:1', got 'one'"):
        arachne.measure(model, digits, target="cause:one")
    inputs = np.asarray(digits.inputs).copy()
    inputs[:, 0] = 0
    with pytest.raises(NothingToRepairError, match="no common cause"):
        arachne.measure(model, LabelledData(inputs, digits.labels), target="cause:1")


def test_a_group_tells_who_was_concerned_too(model: ReferenceBackend, digits: LabelledData) -> None:
    sensor = np.where(np.asarray(digits.inputs)[:, 0] == 1, "old", "new")
    data = LabelledData(digits.inputs, digits.labels, columns={"sensor": sensor})
    result = arachne.repair(model, data, "group:sensor=old", searcher=QUICK)
    assert result.evidence.held_out.targets[0].cause_outcome is not None
    assert arachne.scan(model, data).causes[0].count == result.evidence.held_out.negatives + len(
        result.split.seen.negatives
    )
