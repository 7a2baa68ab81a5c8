"""At a Python prompt every public value is one short line, and so is all that hangs on it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.data.labelled import LabelledData
from arachne.errors import ArachneError
from arachne.evidence import Flips, Rate
from arachne.evidence.survival import Survival
from arachne.search import Problem, SearchState
from arachne.testing import ReferenceBackend
from arachne.text import Brief

MOST = 300
"""Characters of one line."""

PROPERTIES = (property, cached_property)

REACHED = (
    "Address Budget Candidate Comparison Contrast Evidence Flips Generation LabelledData LayerInfo Localisation Patch "
    "PatchedModel Pool Problem RepairResult Scan SearchResult SearchState Settings Survival"
)
"""The public classes that the walk below meets, so that it cannot pass by looking at nothing."""


@pytest.fixture(scope="module")
def result(model: ReferenceBackend, digits: LabelledData) -> arachne.RepairResult:
    return arachne.repair(model, digits, "8:1")


def values_in(value: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """All values of Arachne that attributes, properties and the first items of containers lead to, each once."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, Mapping):
        inside = list(value.values())[:3]
    elif isinstance(value, (tuple, list)):
        inside = list(value[:3])
    elif type(value).__module__.startswith("arachne.") and not type(value).__module__.startswith("arachne.testing"):
        yield value
        inside = list(attributes(value))
    else:
        inside = []
    for one in inside:
        yield from values_in(one, seen)


def attributes(value: Any) -> Iterator[Any]:
    for name in dir(value):
        found = inspect.getattr_static(value, name)
        if not name.startswith("_") and (isinstance(found, PROPERTIES) or name in getattr(value, "__dict__", {})):
            with suppress(ValueError, LookupError, ArachneError):  # a property that does not apply here
                yield getattr(value, name)


def test_every_value_of_a_repair_is_one_short_line(
    model: ReferenceBackend, digits: LabelledData, result: arachne.RepairResult, problem: Problem
) -> None:
    evidence, outputs = result.evidence, model.forward(digits.inputs)
    roots = [
        result,
        arachne.scan(model, digits),
        arachne.compare_searchers(model, digits, "8:1", searchers=["bias", "norms"]),
        Flips.measure(outputs, result.model.forward(digits.inputs)),
        Survival("int8", evidence, evidence, Rate(0, 100), "a note"),
        SearchState({"values": np.zeros((50, 50))}),
        problem,
        model.layers,
    ]
    seen: dict[int, Any] = {}
    lines = {repr(value): type(value) for root in roots for value in values_in(root, seen)}
    assert [line for line in lines if len(line) >= MOST or "\n" in line or "array(" in line] == []
    public = {kind.__name__ for kind in lines.values() if getattr(arachne, kind.__name__, None) is kind}
    assert set(REACHED.split()) - public == set()


def test_a_repair_says_its_verdict_and_its_counts(result: arachne.RepairResult) -> None:
    held_out, word = result.evidence.held_out, result.evidence.verdict.word
    counts = f"{held_out.repaired} of {held_out.negatives} repaired, {held_out.broken} of {held_out.positives} broken"
    assert held_out.repaired > 0
    assert repr(result.evidence) == f"Evidence({word}: {counts})"
    assert repr(result) == f"RepairResult({word}: {counts}, {len(result.patch)} weights changed)"
    assert repr(result.evidence.verdict).startswith(
        f"Verdict({result.evidence.verdict.heading}: {held_out.repaired} of"
    )


def test_attributes_that_differ_from_their_defaults_are_told() -> None:
    assert repr(arachne.Settings()) == "Settings()"
    settings = arachne.Settings(seed=3, searcher=arachne.DifferentialEvolution(population=9))
    assert repr(settings) == "Settings(seed=3, searcher=DifferentialEvolution(population=9))"


def test_a_line_stays_one_short_line_whatever_is_in_it() -> None:
    names = tuple(f"class\x1b\n{'x' * 90}{number}" for number in range(9))
    line = repr(LabelledData(np.zeros((9, 4)), np.arange(9), names))
    assert line.startswith("LabelledData(9 inputs (4,), 9 classes: class")
    assert line.endswith("…)")
    assert line.isprintable()
    assert len(line) < MOST


def test_a_class_may_have_a_line_of_its_own() -> None:
    @dataclass(frozen=True)
    class Own(Brief):
        numbers: tuple[int, ...] = ()

        def __repr__(self) -> str:
            return "mine"

    @dataclass(frozen=True)
    class Derived(Own):
        more: int = 0

    assert (repr(Own((1,))), repr(Derived((1,), 2))) == ("mine", "mine")
