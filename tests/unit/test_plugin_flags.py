"""What localisers and searchers declare are flags of the commands, and a command line is settings."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest

from arachne.cli.config import again
from arachne.cli.options import DataChoice, ModelChoice
from arachne.cli.plugin_flags import flags_of
from arachne.cli.repair import command, settings_from
from arachne.errors import UsageError
from arachne.localise import MIN_WEIGHTS, Bidirectional, GradientLoss
from arachne.options import options_of
from arachne.plugins import LOCALISERS, SEARCHERS
from arachne.search import DifferentialEvolution
from arachne.settings import Settings

WHAT = ("model.onnx", "--data", "val.npz", "--target", "6:0")
OF_THE_COMMAND = (
    "as_json",
    "quiet",
    "debug",
    "targets",
    "out",
    "holdout",
    "training",
    "workers",
    "cluster",
    "never_break",
    "conditions",
    "junit",
    "tracks",
    "config",
    "print_config",
)


def parsed(*words: str) -> tuple[click.Context, Settings]:
    """A command line's context and the settings it asks for."""
    context = command.make_context("repair", [*WHAT, *words])
    arguments: dict[str, Any] = {name: value for name, value in context.params.items() if name not in OF_THE_COMMAND}
    ModelChoice.taken_from(arguments)
    DataChoice.taken_from(arguments)
    return context, settings_from(context, arguments)


def test_a_command_line_without_options_is_our_settings_or_the_papers() -> None:
    assert parsed()[1] == Settings()
    assert parsed("--faithful")[1] == Settings.faithful()


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (
            ("--search", "de", "--population", "9", "--scale", "0.4", "0.9", "--no-clip", "--start", "near"),
            Settings(searcher=DifferentialEvolution(population=9, scale=(0.4, 0.9), clip=False, start="near")),
        ),
        (
            ("--faithful", "--clip", "--min-weights", "3"),
            Settings(
                localiser=Bidirectional.faithful(min_weights=3), searcher=DifferentialEvolution.faithful(clip=True)
            ),
        ),
        (
            ("--localiser", "gl", "--include", "fc*", "--include", "conv1", "--biases", "--count", "7"),
            Settings(localiser=GradientLoss(include=["fc*", "conv1"], biases=True, count=7, min_weights=MIN_WEIGHTS)),
        ),
    ],
)
def test_flags_set_the_options_they_are_named_for(words: tuple[str, ...], settings: Settings) -> None:
    context, made = parsed(*words)
    assert made == settings
    repeated = shlex.split(again(context))
    assert repeated[:2] == ["arachne", "repair"]
    where = repeated.index("model.onnx")
    assert parsed(*repeated[2:where], *repeated[where + 1 :])[1] == settings


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--localiser", "rs", "--min-weights", "3"),
            "--min-weights is an option of the localiser 'bl' and 'gl', not of 'rs'",
        ),
        (("--count", "0"), "count must be 1 or more, got 0"),
        (("--search", "de", "--population", "3"), "population must be 4 or more, got 3"),
        (("--search", "xy"), "no searcher named 'xy'; available: apricot, auto, bias, de"),
    ],
)
def test_flags_that_make_no_sense_are_refused(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parsed(*words)


def test_every_option_of_ours_has_a_flag_of_its_own_name() -> None:
    for table in (LOCALISERS, SEARCHERS):
        flags = {flag.name: flag for flag in flags_of(table)}
        for name in table.ours:
            assert [one.name for one in options_of(table.get(name)) if name not in flags[one.name].owners] == []
    names = [parameter.name for parameter in command.params]
    assert len(set(names)) == len(names)
