"""Options of localisers, searchers and objectives are given with `-O`, and a command line is settings."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import click
import pytest

from arachne.cli.config import again
from arachne.cli.options import DataChoice, ModelChoice
from arachne.cli.plugin_options import Chosen, given_options, spelling_of
from arachne.cli.repair import command, settings_from
from arachne.errors import UsageError
from arachne.fairness import AccuracyGap
from arachne.localise import MIN_WEIGHTS, Bidirectional, Contrast, GradientLoss
from arachne.plugins.options import Configured, option
from arachne.plugins.table import LOCALISERS, OBJECTIVES, SEARCHERS, Table
from arachne.search import DifferentialEvolution, Pool
from arachne.settings import Settings

WHAT = ("model.onnx", "--data", "val.npz", "--target", "6:0")
OF_THE_COMMAND = (
    "targets",
    "out",
    "holdout",
    "training",
    "workers",
    "cluster",
    "never_break",
    "keep_as_is",
    "conditions",
    "junit",
    "tracks",
    "config",
    "no_cache",
)


def parse(*words: str) -> tuple[click.Context, Settings]:
    """A command line's context and the settings it asks for."""
    context = command.make_context("repair", [*WHAT, *words])
    arguments: dict[str, Any] = {name: value for name, value in context.params.items() if name not in OF_THE_COMMAND}
    ModelChoice.taken_from(arguments)
    DataChoice.taken_from(arguments)
    return context, settings_from(arguments)


def test_a_command_line_without_options_is_our_settings_or_the_papers() -> None:
    assert parse()[1] == Settings()
    assert parse("--faithful")[1] == Settings.faithful()


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (
            ("--search", "de", "-O", "population=9", "-O", "scale=0.4,0.9", "-O", "clip=false", "-O", "start=near"),
            Settings(searcher=DifferentialEvolution(population=9, scale=(0.4, 0.9), clip=False, start="near")),
        ),
        (
            ("--faithful", "-O", "clip=true", "-O", "min-weights=3", "--alpha", "2"),
            Settings(
                localiser=Bidirectional.faithful(min_weights=3),
                searcher=DifferentialEvolution.faithful(clip=True),
                alpha=2.0,
            ),
        ),
        (
            ("--localiser", "gl", "--include", "fc*", "--include", "conv1", "-O", "biases=yes", "-O", "count=7"),
            Settings(localiser=GradientLoss(include=["fc*", "conv1"], biases=True, count=7, min_weights=MIN_WEIGHTS)),
        ),
        (
            ("-O", "search.members=bias,last", "-O", "localiser.count=16", "-O", "auto.members=bias,ridge"),
            Settings(searcher=Pool(members=("bias", "ridge")), localiser=Contrast(count=16)),
        ),
        (
            ("--objective", "gap:sex", "-O", "group_size=20"),
            Settings(objective=AccuracyGap(group_column="sex", group_size=20)),
        ),
    ],
)
def test_options_reach_the_plugins_they_are_given_to(words: tuple[str, ...], settings: Settings) -> None:
    context, made = parse(*words)
    assert made == settings
    repeated = shlex.split(again(context))
    assert repeated[:2] == ["arachne", "repair"]
    where = repeated.index("model.onnx")
    assert parse(*repeated[2:where], *repeated[where + 1 :])[1] == settings


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--localiser", "rs", "-O", "min_weights=3"),
            "min_weights is an option of the localisers 'bl' and 'gl', not of the searcher 'auto' or the loc",
        ),
        (("-O", "count=0"), "count must be 1 or more, got 0"),
        (("--search", "de", "-O", "population=3"), "population must be 4 or more, got 3"),
        (("--search", "de", "-O", "populaton=9"), "neither .* has an option 'populaton'; did you mean 'population'"),
        (("--search", "xy"), "no searcher named 'xy'; available: apricot, auto, bias, de"),
        (("-O", "search.count=1"), "the searcher 'auto' has no option 'count'; available: members"),
        (("-O", "de.population=9"), "is for the searcher 'de', which is not chosen; see --search"),
        (("-O", "objective.group_size=9"), "is for an objective, and none is chosen; see --objective"),
        (("-O", "serch.members=bias"), "begins with 'serch', which is no plug-in here; did you mean 'search'"),
        (("-O", "count"), "-O takes an option's name and its value, such as steps=64, got 'count'"),
        (("-O", "include=fc1"), "include has a flag of its own: --include LAYER"),
        (("--alpha", "10"), "the search 'auto' finds the same patch with any alpha; leave it out, or search with .*de"),
        (("--search", "margin", "--alpha", "3"), "the search 'margin' finds the same patch with any alpha"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse(*words)


@dataclass(frozen=True, kw_only=True)
class Twin(Configured):
    """Stands for a searcher and for a localiser that have an option in common."""

    name = "twin-a@b"
    depth: int = option(1, "How deep.")


def test_an_option_of_two_kinds_needs_a_prefix_and_names_may_have_dashes_and_at_signs() -> None:
    place = {Twin.name: f"{Twin.__module__}:Twin"}
    both = [Chosen(Table("searcher", "none", place), Twin.name), Chosen(Table("localiser", "none", place), Twin.name)]
    with pytest.raises(UsageError, match=r"both have the option 'depth': write -O search\.depth=VALUE or -O loc"):
        given_options(["depth=2"], both)
    assert list(given_options(["search.depth=2", "localiser.depth=3"], both).values()) == [{"depth": 2}, {"depth": 3}]
    assert list(given_options(["twin-a@b.depth=4"], both[:1]).values()) == [{"depth": 4}]


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--population", "--population is an option of the searchers 'de' and 'front': write -O population=VALUE"),
        ("--no-clip", "--no-clip is an option of the searcher 'de': write -O clip=false"),
        ("--min-weights", "--min-weights is an option of the localisers 'bl' and 'gl': write -O min_weights=VALUE"),
        ("--populations", None),
    ],
)
def test_a_plugins_option_typed_as_a_flag_is_answered_with_its_spelling(flag: str, sentence: str | None) -> None:
    assert spelling_of(flag) == sentence


def test_no_option_of_ours_is_a_flag_too() -> None:
    flags = {str(name) for parameter in command.params for name in (parameter.name, *parameter.opts)}
    for table in (LOCALISERS, SEARCHERS, OBJECTIVES):
        for name in table.ours:
            assert not flags & set(Chosen(table, name).options)
