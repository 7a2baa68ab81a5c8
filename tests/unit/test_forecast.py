"""The forecast before a search: high where the target lies apart, low where it looks like right inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import arachne
from arachne import engine
from arachne.causes.rules import Range
from arachne.causes.targets import CauseMembership
from arachne.choose.outlook import look_alike
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.run import whole_part
from arachne.evidence.forecast import BUDGETS, Forecast, forecast, score_out_of_fold, trade_off
from arachne.model.values import Array
from arachne.results.checkpoint import Checkpoints
from arachne.search.pool import QUICK
from arachne.settings import make_searcher
from arachne.testing import ReferenceBackend, mlp


def identity() -> ReferenceBackend:
    """A network of one dense layer whose first three inputs are its scores."""
    backend = ReferenceBackend(mlp([8, 3], seed=0))
    layer = backend.layers[-1].name
    backend.set_weights(layer, "weight", np.eye(3, 8, dtype=np.float32))
    backend.set_weights(layer, "bias", np.zeros(3, np.float32))
    return backend


def make_data(shift: float, n: int = 1500) -> tuple[ReferenceBackend, LabelledData]:
    """Inputs of class 1 of which some are read as 0, and have another sixth value, `shift` from that of others."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=n)
    inputs = rng.normal(scale=0.3, size=(n, 8)).astype(np.float32)
    inputs[np.arange(n), labels] += 3
    misread = (labels == 1) & (rng.random(n) < 0.15)
    inputs[misread, 0] += 4
    inputs[misread, 5] += shift
    return identity(), LabelledData(inputs, labels)


def part_of(backend: ReferenceBackend, data: LabelledData, target: str) -> Part:
    return whole_part(backend, data, target)


def test_a_target_that_lies_apart_is_within_reach_at_any_budget() -> None:
    backend, data = make_data(shift=9.0)
    found = forecast(backend, part_of(backend, data, "1:0"))
    assert found is not None
    assert found.reach == pytest.approx([1.0] * len(BUDGETS), abs=0.05)
    assert found.negatives == len(part_of(backend, data, "1:0").negatives)
    assert found.sentence == (
        "rough forecast: a repair may reach about 100 % of the fault if 0.5 % of what is right may break, "
        "100 % if 2 % may"
    )


def test_labels_that_are_wrong_by_chance_are_out_of_reach_and_it_says_so() -> None:
    backend, data = make_data(shift=0.0)
    rng = np.random.default_rng(1)
    labels = np.where((data.labels == 0) & (rng.random(len(data)) < 0.2), 2, data.labels)
    found = forecast(backend, part_of(backend, LabelledData(data.inputs, labels), "2:0"))
    assert found is not None
    assert found.reach[1] < 0.15
    assert found.sentence.endswith("training with more inputs of class 2 would help more")


def test_shares_are_said_as_ranges_of_whole_steps() -> None:
    few, many = (Forecast(negatives, (0.0, 0.13, 0.3, 0.45), look_alike=True) for negatives in (30, 3000))
    assert "about 5-20 % of the fault if 0.5 % of what is right may break" in few.sentence
    assert "about 10-15 % of the fault" in many.sentence
    assert ", 45 % if 2 % may; the model hardly tells" in many.sentence
    assert many.sentence.endswith("training with more such inputs would help more")


def test_quick_searches_that_reach_little_discourage_nobody_unless_the_inputs_look_alike() -> None:
    found = Forecast(100, (0.0, 0.1, 0.1, 0.1), searched=True)
    assert found.sentence.startswith("forecast: quick searches reach about 5-15 % of the fault")
    assert found.sentence.endswith("; slower ones often reach more")
    assert not replace(found, reach=(0.9,) * 4).sentence.endswith("more")
    assert "hardly tells" in replace(found, look_alike=True).sentence


@pytest.mark.parametrize(("cause", "alike"), [(False, True), (True, False)])
def test_a_target_with_a_known_cause_never_counts_as_look_alike(cause: bool, alike: bool) -> None:
    backend, data = make_data(shift=0.0)
    rng = np.random.default_rng(1)
    labels = np.where((data.labels == 0) & (rng.random(len(data)) < 0.2), 2, data.labels)
    part = part_of(backend, LabelledData(data.inputs, labels), "2:0")
    if cause:
        known = CauseMembership(Range("inputs", 0, low=0.0, high=None), backend)
        part = replace(part, targets=tuple(replace(one, membership=known) for one in part.targets))
    assert look_alike(backend, part) is alike


def test_the_reach_never_falls_with_the_budget() -> None:
    backend, data = make_data(shift=1.0)
    found = forecast(backend, part_of(backend, data, "*:*"))
    assert found is not None
    assert list(found.reach) == sorted(found.reach)
    assert [one["max_break"] for one in found.to_json()["reach"]] == list(BUDGETS)


def test_too_few_inputs_get_no_forecast() -> None:
    backend, data = make_data(shift=9.0, n=90)
    part = part_of(backend, data, "1:0")
    assert 0 < len(part.negatives) < 8
    assert forecast(backend, part) is None


def test_the_trade_off_counts_what_lies_above_the_right_inputs_that_may_break() -> None:
    caught, lost = np.array([5.0, 3.0, 1.0, 0.0]), np.array([4.0, 2.0, 0.5, -1.0])
    fixable = np.array([True, True, False, True])
    shares = trade_off(caught, fixable, lost, 400)
    assert shares[0] == (0.25, 0.25)  # 0.1 % of 400 is none: above 4
    assert shares[1] == (0.5, 0.5)  # 0.5 % of 400 is two, less caution one: above 2
    assert shares[3] == (0.75, 1.0)  # 2 % is eight: everything


def test_scores_out_of_fold_find_nothing_in_noise() -> None:
    features: Array = np.random.default_rng(0).normal(size=(400, 40))
    scores = score_out_of_fold(features, 60, np.random.default_rng(1))
    assert abs(scores[:60].mean() - scores[60:].mean()) < 0.5


def test_a_repair_and_a_scan_carry_the_forecast() -> None:
    backend, data = make_data(shift=9.0)
    told: list[str] = []
    result = engine.repair(backend, data, "1:0", on_note=told.append)
    assert result.forecast is not None
    assert result.forecast.sentence in told
    assert result.to_json()["forecast"]["reach"][1]["repaired"] == pytest.approx(result.forecast.reach[1])
    scan = arachne.scan(backend, data)
    assert scan.forecast is not None
    assert scan.forecast.negatives == scan.faults[0].count


def test_the_forecast_of_a_repair_is_what_its_quick_members_reach() -> None:
    backend, data = make_data(shift=1.0)
    whole = engine.repair(backend, data, "1:0").forecast
    quick = engine.repair(
        backend, data, "1:0", settings=arachne.Settings(searcher=arachne.Pool(members=QUICK))
    ).forecast
    assert whole is not None
    assert whole == quick
    assert list(whole.reach) == sorted(whole.reach)


def test_a_repair_by_another_search_is_forecast_too() -> None:
    backend, data = make_data(shift=9.0)
    found = engine.repair(
        backend, data, "1:0", settings=arachne.Settings(searcher=make_searcher("last-layer", steps=16))
    )
    assert found.forecast == forecast(backend, found.split.seen)


def test_a_resumed_repair_has_the_forecast(tmp_path: Path) -> None:
    backend, data = make_data(shift=1.0)
    first = engine.repair(backend, data, "1:0", checkpoint=Checkpoints(tmp_path, share=1))
    again = engine.repair(backend, data, "1:0", checkpoint=Checkpoints(tmp_path, resume=True))
    assert first.forecast is not None
    assert again.forecast == first.forecast
