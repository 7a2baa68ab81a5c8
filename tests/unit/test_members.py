"""Every member of the default search obeys what a user may ask of a repair: layers, limits, objectives, resuming."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.choose.budget import Budget
from arachne.choose.select import select_point
from arachne.data.labelled import LabelledData
from arachne.data.split import split_by_outcome
from arachne.errors import NothingWithinBudgetError, UsageError
from arachne.fairness import AccuracyGap
from arachne.localise import Contrast
from arachne.results.result import RepairResult
from arachne.scoring.evaluators import FastEvaluator
from arachne.search import Pool, Problem
from arachne.search.build import build_problem
from arachne.search.measured import MeasuredCandidate, count_found
from arachne.settings import Settings, make_searcher
from arachne.testing import Network, ReferenceBackend
from tests.backends.golden import data_for, network
from tests.unit.test_search_steps import written_and_read


@dataclass(frozen=True)
class Member:
    """A member, and a small repair that it can make.

    Attributes:
        kind: The network, `mlp`, `cnn`, `words` or `sick`.
        target: The mistake.
        changes: The layers it changes there.
        options: What makes it quick.
        trains: Whether it has to be given training data.
        together: Whether it changes all of these layers or none.
    """

    kind: str
    target: str
    changes: tuple[str, ...]
    options: dict[str, Any]
    trains: bool = False
    together: bool = False


SHORT: dict[str, Any] = {"steps": 24, "folds": 2}
MEMBERS = {
    "norms": Member("sick", "*:*", ("norm1", "norm2"), {"folds": 2}),
    "bias": Member("mlp", "*:8", ("head",), SHORT),
    "last-layer": Member("mlp", "*:8", ("head",), SHORT),
    "margin": Member("mlp", "*:8", ("first", "head"), SHORT),
    "margin@hidden": Member("mlp", "*:8", ("first",), SHORT),
    "margin@fisher": Member("mlp", "*:8", ("first", "head"), SHORT),
    "erase": Member("mlp", "*:8", ("first", "head"), {"strengths": 8, "folds": 2}),
    "gate": Member("mlp", "top:1", ("first", "head"), {"folds": 2}, together=True),
    "gates": Member("mlp", "*:8", ("first", "head"), SHORT, together=True),
    "low-rank": Member("mlp", "*:8", ("first", "head"), SHORT),
    "margin@conv": Member("cnn", "top:2", ("first",), SHORT),
    "margin@embeddings": Member("words", "top:2", ("table",), SHORT),
    "tune@anchored": Member("mlp", "*:8", ("first", "head"), SHORT),
    "tune@training": Member("mlp", "*:8", ("first", "head"), {**SHORT, "alone": 16}, trains=True),
}
EVERY = pytest.mark.parametrize("name", MEMBERS)


@cache
def build(kind: str) -> tuple[Network, LabelledData]:
    """A network and its data, with a group for each input."""
    data = data_for(kind)
    sides = np.where(np.arange(len(data)) % 3 == 0, "left", "right")
    return network(kind), replace(data, columns={"side": sides})


def training_of(member: Member) -> LabelledData | None:
    """Inputs like those of the data, for a member that needs them."""
    whole = build(member.kind)[1]
    return LabelledData(np.asarray(whole.inputs) + np.float32(0.01), whole.labels) if member.trains else None


def repair(name: str, **more: Any) -> RepairResult:
    """Repair by one member alone, within 5 % unless told otherwise; also where nothing is within the budget."""
    member = MEMBERS[name]
    whole, data = build(member.kind)
    allowed = {key: more.pop(key) for key in ("include", "exclude", "biases") if key in more}
    never_break = more.pop("never_break", None)
    training = training_of(member)
    settings = Settings(
        searcher=make_searcher(name, **member.options),
        localiser=Contrast(**allowed),
        budget=more.pop("budget", Budget(max_break=0.05)),
        **more,
    )
    try:
        found: RepairResult = arachne.repair(
            ReferenceBackend(whole), data, member.target, settings=settings, never_break=never_break, training=training
        )
    except NothingWithinBudgetError as error:
        found = error.result
    return found


def chosen_point(found: RepairResult) -> MeasuredCandidate:
    """The point that was chosen; there has to be one."""
    assert found.choice is not None
    assert found.choice.index is not None
    return found.points[found.choice.index]


def within_break_rate(found: RepairResult) -> list[int]:
    """The points that repair something within the break rate alone, as they were when the choice was made."""
    points = [replace(one, never_broken=0) for one in found.points[: count_found(found.points)]]
    return list(select_point(points, Budget(max_break=0.05), found.split.class_names).within)


def problem_of(name: str) -> Problem:
    """The problem that a member is given, from the seen part of the data."""
    member = MEMBERS[name]
    whole, data = build(member.kind)
    backend, rng = ReferenceBackend(whole), np.random.default_rng(0)
    split = split_by_outcome(backend, data, member.target, rng=rng)
    suspects = Contrast().localise(backend, split.seen, rng=rng).suspects
    return build_problem(backend, split, suspects, 10.0, FastEvaluator, training_of(member))


def test_every_member_is_tested() -> None:
    assert set(MEMBERS) == set(Pool().members)


@EVERY
def test_it_changes_the_included_layer_alone(name: str) -> None:
    for layer in () if MEMBERS[name].together else MEMBERS[name].changes:
        # Suspects lie in weights, of which a norm has none: there has to be another layer for them.
        found = repair(name, include=(layer, "head") if name == "norms" else (layer,))
        assert found.search.front
        assert {changed for one in found.search.front for changed in one.layers} == {layer}


@pytest.mark.parametrize("name", [name for name, member in MEMBERS.items() if member.together])
def test_it_changes_no_layer_where_it_may_not_change_the_other(name: str) -> None:
    for layer in MEMBERS[name].changes:
        with pytest.raises(UsageError, match="leave out"):
            repair(name, include=(layer,))
    found = repair(name, include=MEMBERS[name].changes)
    assert {changed for one in found.search.front for changed in one.layers} == set(MEMBERS[name].changes)


@EVERY
def test_it_leaves_an_excluded_layer_alone_or_says_that_nothing_is_left(name: str) -> None:
    for layer in MEMBERS[name].changes:
        try:
            found = repair(name, exclude=(layer,))
        except UsageError as error:
            assert "leave out" in str(error)  # noqa: PT017 - a member with other layers left may go on
        else:
            assert layer not in {changed for one in found.search.front for changed in one.layers}


@EVERY
def test_it_changes_biases_only_where_they_count_as_weights(name: str) -> None:
    front = repair(name).search.front
    changed = {address.parameter for one in front for address in one.addresses}
    changed |= {one.edit.parameter for one in front if one.edit is not None}
    both = {"weight", "bias"}
    whole = {"bias": {"bias"}, "last-layer": both, "gate": both, "gates": both, "norms": {"scale", "bias"}}
    assert changed <= whole.get(name, {"weight"})


@EVERY
def test_it_breaks_no_input_that_must_stay_right(name: str) -> None:
    whole, data = build(MEMBERS[name].kind)
    backend = ReferenceBackend(whole)
    right = np.flatnonzero(backend.predict(data.inputs) == data.labels)[:40]
    found = repair(name, never_break=LabelledData(np.asarray(data.inputs)[right], data.labels[right]))
    assert found.choice is not None
    assert all(found.points[n].never_broken == 0 for n in found.choice.within)
    refused = set(within_break_rate(found)) - set(found.choice.within)
    assert all(found.points[n].never_broken for n in refused)
    assert found.choice.within or refused


@EVERY
def test_no_class_loses_more_than_its_limit_where_the_choice_is_made(name: str) -> None:
    found = repair(name, budget=Budget(max_break=0.05, max_class_drop={"*": 0.02}))
    assert found.choice is not None
    drops = [one.selection_outcome.class_drops(10).max() for one in found.points]
    assert within_break_rate(found)
    assert [n for n in within_break_rate(found) if drops[n] <= 0.02 + 1e-12] == list(found.choice.within)


@EVERY
def test_its_candidates_are_compared_by_the_objective(name: str) -> None:
    found = repair(name, objective=AccuracyGap(group_column="side"))
    objective, choice = AccuracyGap(group_column="side"), found.choice
    assert choice is not None
    gain = chosen_point(found).selection_outcome.gain(objective)
    assert gain > 0
    assert gain >= max(found.points[n].selection_outcome.gain(objective) for n in choice.within) - 0.005


@EVERY
def test_a_search_that_was_interrupted_goes_on_to_the_same_front(name: str) -> None:
    problem, searcher = problem_of(name), make_searcher(name, **MEMBERS[name].options)
    rng = np.random.default_rng(0)
    whole = searcher.search(problem, rng=np.random.default_rng(0))
    state = searcher.begin(problem, rng=rng)
    for _ in range(2):
        state = searcher.step(problem, state, rng=rng)
    state, rng = written_and_read(state, rng)
    again = searcher.search(problem_of(name), rng=rng, state=state)
    assert len(again.front) == len(whole.front)
    for one, other in zip(again.front, whole.front, strict=True):
        assert one.values.tobytes() == other.values.tobytes()
        assert (one.edit is None) == (other.edit is None)
        if one.edit is not None and other.edit is not None:
            assert one.edit.left.tobytes() == other.edit.left.tobytes()
            assert one.edit.right.tobytes() == other.edit.right.tobytes()
