from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.evidence import Evidence, PartEvidence, measure_part
from arachne.evidence.scan import Scan
from arachne.model.values import Array
from arachne.report.json import clean, dumps
from arachne.report.objects import patch_evidence, result_object, result_schema, scan_object
from arachne.report.part_object import MAX_LISTED_INPUTS, part_object

PART_KEYS = {
    "negatives",
    "positives",
    "repaired",
    "broken",
    "repair_rate",
    "break_rate",
    "target_errors_before",
    "target_errors_after",
    "accuracy_before",
    "accuracy_after",
}


def one_hot(predictions: Array, classes: int = 3) -> Array:
    return np.eye(classes, dtype=np.float32)[predictions] * 4


def part(n: int = 300, seed: int = 0, repaired: float = 0.6) -> PartEvidence:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    before = np.where(rng.random(n) < 0.7, labels, (labels + 1) % 3)
    after = np.where((before != labels) & (rng.random(n) < repaired), labels, before)
    after[:3] = (labels[:3] + 2) % 3
    data = LabelledData(np.zeros((n, 1)), labels, ("cat", "dog", "<b>"), columns={"side": labels % 2})
    targets = (Target("cat:dog", label=0, prediction=1), Target("dog:*", label=1))
    return measure_part(Part(data, np.arange(n), one_hot(before), targets), one_hot(after))


def repair_object(evidence: Evidence) -> dict[str, Any]:
    return result_object(
        evidence,
        command="repair",
        seed=7,
        backend="reference",
        weights=4,
        generations=31,
        seconds={"localise": 0.1, "search": 2.5},
    )


def test_a_repairs_result_has_every_promised_key_and_fits_the_schema() -> None:
    result = repair_object(Evidence(held_out=part(seed=1), seen=part(seed=0)))
    promised = {
        "schema",
        "verdict",
        "target",
        "seed",
        "backend",
        "accuracy",
        "weights",
        "generations",
        "seen",
        "held_out",
    }
    assert promised | {"seconds"} <= set(result)
    assert set(result["seconds"]) >= {"localise", "search"}
    assert set(result["seen"]) >= PART_KEYS
    assert set(result["held_out"]) >= PART_KEYS
    assert result["accuracy"] == result["held_out"]["accuracy_after"]
    jsonschema.Draft202012Validator.check_schema(result_schema())
    jsonschema.validate(result, result_schema(), jsonschema.Draft202012Validator)


def test_an_evaluations_result_has_no_seen_generations_or_seconds() -> None:
    result = result_object(Evidence(held_out=part()), command="evaluate", seed=None, backend="reference", weights=0)
    assert not {"seen", "generations", "seconds"} & set(result)
    jsonschema.validate(result, result_schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("key", ["seen", "generations", "seconds", "verdict", "held_out"])
def test_the_schema_refuses_a_repair_that_lacks_a_key(key: str) -> None:
    result = repair_object(Evidence(held_out=part(), seen=part()))
    del result[key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(result, result_schema(), jsonschema.Draft202012Validator)


def test_rates_of_no_inputs_are_null() -> None:
    empty = LabelledData(np.zeros((0, 1)), np.zeros(0))
    nothing = measure_part(Part(empty, np.zeros(0, int), np.zeros((0, 3)), ()), np.zeros((0, 3)))
    result = repair_object(Evidence(held_out=nothing, seen=part()))
    assert result["held_out"]["repair_rate"] is None
    assert result["accuracy"] is None
    jsonschema.validate(json.loads(dumps(result)), result_schema(), jsonschema.Draft202012Validator)


def test_rows_are_listed_up_to_a_limit_and_counted_beyond_it() -> None:
    evidence = part(n=9000, repaired=1.0)
    written = clean(part_object(evidence))
    assert len(evidence.fixed) > MAX_LISTED_INPUTS == len(written["rows_fixed"])
    assert written["repaired"] + written["others_fixed"] == len(evidence.fixed)
    assert written["rows_fixed"][0]["row"] == int(evidence.fixed.rows[0])


def test_a_file_reads_back_as_it_was_written() -> None:
    result = repair_object(Evidence(held_out=part(seed=1), seen=part(seed=0)))
    text = dumps(result)
    assert json.loads(text) == result
    assert max(map(len, text.splitlines())) <= 300
    assert '{"name": "<b>", "inputs"' in text


def test_clean_leaves_only_json() -> None:
    value = {"a": np.float32(1.5), 2: (np.int64(3), math.nan, math.inf), "c": np.array([1.0, np.nan]), "d": object}
    assert clean(value) == {"a": 1.5, "2": [3, None, None], "c": [1.0, None], "d": "<class 'object'>"}
    assert clean([True, None, np.bool_(False)]) == [True, None, False]


def test_a_patch_keeps_the_numbers_it_was_accepted_with() -> None:
    evidence = Evidence(held_out=part(seed=1), seen=part(seed=0))
    short, result = patch_evidence(evidence), repair_object(evidence)
    assert short["verdict"] == result["verdict"]
    assert set(short["held_out"]) >= PART_KEYS
    for name in ("seen", "held_out"):
        assert short[name].items() <= result[name].items()
    assert "rows_fixed" not in short["held_out"]


def test_a_scan_lists_faults_with_count_and_share() -> None:
    labels, predictions = np.array([0, 0, 0, 1, 2, 2]), np.array([1, 1, 0, 0, 2, 2])
    found = Scan(LabelledData(np.zeros((6, 1), np.float32), labels), predictions, 3)
    scan = scan_object(found, backend="reference")
    assert scan["accuracy"] == 0.5
    assert scan["faults"] == [
        {"target": "0:1", "count": 2, "share": 2 / 3, "share_of_class": 2 / 3},
        {"target": "1:0", "count": 1, "share": 1 / 3, "share_of_class": 1.0},
    ]
