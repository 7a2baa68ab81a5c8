"""Options are declared once, and checked when a localiser or a searcher is made."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest

from arachne.errors import UsageError
from arachne.localise import Bidirectional, GradientLoss, RandomChoice
from arachne.plugins.options import Configured, option, options_of
from arachne.plugins.table import LOCALISERS, SEARCHERS
from arachne.search import DifferentialEvolution


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (
            DifferentialEvolution,
            {"start": "nera"},
            "start must be auto, gaussian or near, got 'nera'; did you mean 'near'",
        ),
        (DifferentialEvolution, {"start": "x"}, "start must be auto, gaussian or near, got 'x'$"),
        (DifferentialEvolution, {"generations": -1}, "generations must be 0 or more, got -1"),
        (DifferentialEvolution, {"patience": 0}, "patience must be 1 or more, got 0"),
        (DifferentialEvolution, {"crossover": 1.5}, "crossover must be 1 or less, got 1.5"),
        (DifferentialEvolution, {"crossover": float("nan")}, "crossover must be a number, got nan"),
        (DifferentialEvolution, {"population": 10.0}, "population must be a whole number, got 10.0"),
        (DifferentialEvolution, {"population": True}, "population must be a whole number, got True"),
        (DifferentialEvolution, {"clip": 1}, "clip must be True or False, got 1"),
        (DifferentialEvolution, {"scale": 0.5}, "scale must be two numbers, got 0.5"),
        (DifferentialEvolution, {"scale": (1.0, 0.5)}, "scale must be a smaller and a larger number, got 1 and 0.5"),
        (Bidirectional, {"count": 0}, "count must be 1 or more, got 0"),
        (GradientLoss, {"count": -1}, "count must be 1 or more, got -1"),
        (RandomChoice, {"count": -1}, "count must be 1 or more, got -1"),
        (Bidirectional, {"min_weights": -1}, "min_weights must be 0 or more, got -1"),
        (Bidirectional, {"include": "fc1"}, "include must be names, got 'fc1'"),
    ],
)
def test_a_value_an_option_cannot_have_is_refused_with_what_it_can(
    kind: type[Configured], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        kind(**given)


def test_a_plugin_is_a_value() -> None:
    assert Bidirectional(include=["fc1"]) == Bidirectional(include=("fc1",)) != Bidirectional()
    with pytest.raises(FrozenInstanceError):
        Bidirectional().count = 3  # type: ignore[misc]
    assert repr(Bidirectional(min_weights=3)) == "Bidirectional(min_weights=3)"


def test_options_are_those_of_the_base_class_and_its_own() -> None:
    declared = {one.name: one for one in options_of(Bidirectional)}
    assert list(declared) == ["include", "exclude", "biases", "count", "min_weights", "every_class"]
    assert (declared["count"].kind, declared["count"].optional, declared["count"].least) == ("int", True, 1)


@pytest.mark.parametrize(
    ("kind", "name", "text", "value"),
    [
        (DifferentialEvolution, "population", "9", 9),
        (DifferentialEvolution, "crossover", "5e-1", 0.5),
        (DifferentialEvolution, "clip", "No", False),
        (DifferentialEvolution, "scale", "0.4, 0.9", (0.4, 0.9)),
        (DifferentialEvolution, "start", "near", "near"),
        (Bidirectional, "count", "none", None),
        (Bidirectional, "include", "fc*, conv1", ("fc*", "conv1")),
    ],
)
def test_an_option_is_read_from_text(kind: type[Configured], name: str, text: str, value: Any) -> None:
    assert {one.name: one for one in options_of(kind)}[name].read(text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("population", "many", "population must be a whole number, got 'many'"),
        ("population", "3", "population must be 4 or more, got 3"),
        ("clip", "maybe", "clip must be true or false, got 'maybe'"),
        ("scale", "1", r"scale must be two numbers, got \(1.0,\)"),
        ("start", "nera", "start must be auto, gaussian or near, got 'nera'; did you mean 'near'"),
        ("crossover", "nan", "crossover must be a number, got nan"),
    ],
)
def test_a_text_that_is_no_value_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        {one.name: one for one in options_of(DifferentialEvolution)}[name].read(text)


def test_every_option_of_ours_is_told_in_its_docstring() -> None:
    for table in (LOCALISERS, SEARCHERS):
        for name in table.ours:
            plugin = table.get(name)
            told = "".join(base.__doc__ or "" for base in plugin.__mro__)
            assert [one.name for one in options_of(plugin) if f"{one.name}:" not in told] == []


def test_faithful_takes_the_papers_values_and_what_is_given() -> None:
    assert Bidirectional.faithful() == Bidirectional(every_class=True)
    made = DifferentialEvolution.faithful(population=7)
    assert (made.population, made.clip, made.start, made.keep_original) == (7, False, "gaussian", False)


def test_an_option_of_a_kind_nobody_can_write_down_is_the_authors_mistake() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Odd(Configured):
        names: dict[str, int] = option(None, "Something.")  # noqa: RUF009

    with pytest.raises(TypeError, match=r"Odd\.names is a 'dict\[str, int\]', expected one of int, float"):
        Odd()
