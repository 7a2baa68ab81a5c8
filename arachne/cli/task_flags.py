"""The flags that choose a task: how the model's outputs are read as decisions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.border import PluginName, harmless_option
from arachne.cli.options import complete_names, options
from arachne.cli.plugin_options import Chosen, given_options
from arachne.errors import InputError, UsageError
from arachne.plugins.table import TASKS

if TYPE_CHECKING:
    from arachne.patch import Patch
    from arachne.tasks import Task

MAX_THRESHOLD_BYTES = 1 << 20
"""The largest file of thresholds."""

task_options = options(
    harmless_option(
        "--task",
        type=PluginName(TASKS),
        metavar="NAME",
        show_default="single-label; binary where the model gives one number",
        help=f"How outputs are read: {', '.join(TASKS.names())}.",
        shell_complete=complete_names(TASKS),
    ),
    click.option(
        "--threshold", metavar="VALUE", help="What counts as found: 0.5, a=0.3,b=0.7, or a file with a line for each."
    ),
    harmless_option("--tolerance", type=float, help="How far a predicted number may be off, for --task regression."),
)


@dataclass(frozen=True)
class TaskChoice:
    """The options of the command line about the task."""

    task: str | None = None
    threshold: str | None = None
    tolerance: float | None = None

    @classmethod
    def taken_from(cls, arguments: dict[str, Any]) -> TaskChoice:
        """Take the task's options out of a command's arguments."""
        return cls(**{name: arguments.pop(name) for name in cls.__dataclass_fields__})

    @property
    def plugins(self) -> list[Chosen]:
        """The task that is named, if any, for `given_options`."""
        return [] if self.task is None else [Chosen.of(TASKS, self.task)]

    def make(self, given: Mapping[Chosen, Mapping[str, Any]], patch: Patch | None = None) -> Task | None:
        """The task that is named, with its options; else that of a patch; None where neither tells one.

        Args:
            given: What `-O` gives to each chosen plug-in.
            patch: A patch whose provenance may tell the task.

        Raises:
            UsageError: An option without a task that has it.
        """
        from arachne.settings import make_task, task_from

        flags = {"threshold": self.threshold, "tolerance": self.tolerance}
        named = {flag: str(value) for flag, value in flags.items() if value is not None}
        if self.task is None:
            if named:
                raise UsageError(f"--{next(iter(named))} goes with a task that has it; name one with --task")
            return None if patch is None else task_from(patch.provenance)
        ((chosen, options),) = [(one, values) for one, values in given.items() if one.table is TASKS]
        for flag, text in named.items():
            name = next((one for one in (flag, f"{flag}s") if one in chosen.options), None)
            if name is None:
                raise UsageError(f"the task '{chosen.name}' has no {flag}; leave out --{flag}")
            if name in options:
                raise UsageError(f"--{flag} and -O {name} say the same; leave out one of them")
            options = {**options, name: chosen.options[name].read(read_value(text))}
        return make_task(chosen.name, **options)

    def make_alone(self, words: Sequence[str] = (), patch: Patch | None = None) -> Task | None:
        """The task of a command whose `-O` is for tasks alone."""
        return self.make(given_options(words, self.plugins, [TASKS]), patch)


def read_value(text: str) -> str:
    """Return a value as it is typed, or the lines of a file, such as `threat=0.3`, joined by commas.

    What is a value is none, whatever files the folder has: a number, or a number for a label.

    Raises:
        InputError: The file cannot be read, or holds something else than thresholds.
    """
    from arachne.io.reading import read_text
    from arachne.tasks.multilabel import parse_threshold

    if not os.path.isfile(text) or _is_number(text.rpartition("=")[2]):
        return text
    lines = read_text(text, "list of thresholds", MAX_THRESHOLD_BYTES).splitlines()
    found = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not found:
        raise InputError(f"'{text}' holds no threshold, expected lines such as threat=0.3")
    values = ["=".join(part.strip() for part in line.replace(",", "=").split("=")) for line in found]
    for value in values:
        try:
            parse_threshold(value)
        except UsageError as error:
            raise InputError(f"'{text}' holds another line than thresholds: {error}") from error
    return ",".join(values)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
