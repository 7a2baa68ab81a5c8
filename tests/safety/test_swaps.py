"""A seeded sample of commands whose places are swapped while they write; `python -m tests.safety swaps` has all."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np
import pytest

from arachne import cli
from arachne.cli.outputs import OutputType
from arachne.cli.tracking import TrackType
from tests.safety.part_swaps import stages
from tests.safety.runs import Runs
from tests.safety.swaps import COMMANDS, SWAPS, prepare_swap

pytestmark = pytest.mark.backend("onnx")


SLOW = ("convert",)
"""Commands that take twenty seconds; the full run has them."""


def outputs() -> Iterator[tuple[str, list[str]]]:
    """Every command with each option that names an output, but for a folder that another library writes to."""
    for name in cli.COMMANDS:
        for parameter in importlib.import_module(f"arachne.cli.{name}").command.params:
            if isinstance(parameter.type, OutputType) and not isinstance(parameter.type, TrackType):
                yield name, parameter.opts


@pytest.mark.parametrize(("name", "options"), list(outputs()))
def test_each_output_of_each_command_is_swapped(name: str, options: list[str]) -> None:
    words = {(command.argv[0], word) for command in COMMANDS.values() for word in command.argv}
    of_all = "--log-file" in options and any(word == "--log-file" for _, word in words)  # one option, of every command
    assert of_all or any((name, option) in words for option in options)


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with Runs() as running:
        if running.library is None:
            pytest.skip("there is no C compiler to swap things with")
        yield running


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in SLOW])
def test_whatever_is_swapped_while_a_command_writes_nothing_outside_is_touched(runs: Runs, command: str) -> None:
    with prepare_swap(runs, command) as one:
        calls = one.count()
        assert calls > 1  # a log is one file that lines are added to
        rng = np.random.default_rng(list(command.encode()))
        for name in rng.choice(list(SWAPS), 3, replace=False).tolist():
            number = int(rng.choice(stages(calls, 0, COMMANDS[command].stages)))
            assert (name, number, one.attack(SWAPS[name], number)) == (name, number, [])
