"""`--help` shows a command's options in groups."""

from __future__ import annotations

import importlib
import re

import click
import pytest

from arachne.cli import COMMANDS
from arachne.cli.sections import MAX_LISTED, SECTIONS, long_name

NEW_OPTION = re.compile(r"^  (?:-\w, )?--([\w-]+)", re.MULTILINE)


def read_help(name: str) -> tuple[click.Command, str]:
    """A command and its help."""
    command = importlib.import_module(f"arachne.cli.{name}").command
    return command, command.get_help(click.Context(command, info_name=name, help_option_names=["-h", "--help"]))


def test_a_repair_shows_at_most_45_options_under_named_headings() -> None:
    command, text = read_help("repair")
    listed = NEW_OPTION.findall(text)
    assert len(listed) <= 45
    assert re.findall(r"^([A-Z][\w ]+):$", text, re.MULTILINE) == list(SECTIONS)
    last = text.rpartition("Rarely needed:")[2]
    left_out = [long_name(one) for one in command.params if isinstance(one, click.Option)]
    assert [name for name in left_out if name not in listed and f"--{name}" not in last] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_shown_once(name: str) -> None:
    command, text = read_help(name)
    listed = NEW_OPTION.findall(text)
    own = [one for one in command.params if isinstance(one, click.Option)]
    assert len(listed) == len(set(listed)) == min(len(own) + 1, MAX_LISTED)
