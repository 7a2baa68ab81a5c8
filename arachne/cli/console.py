"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from arachne.search.base import Generation

WIDTH = 80


class Output:
    """What a command says, and where.

    Args:
        as_json: Whether standard output is for one JSON object.
        quiet: Whether to say nothing but the result.
    """

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._out = _console(sys.stdout)
        self._err = _console(sys.stderr)

    def say(self, text: str) -> None:
        """A line about what is going on."""
        if not self.quiet:
            self._err.print(text, markup=False, highlight=False, soft_wrap=True)

    def result(self, renderable: RenderableType, value: Any) -> None:
        """The result: a table for people, or one object for programs."""
        if self.as_json:
            from arachne.report.json import dumps

            sys.stdout.write(dumps(value) + "\n")
            sys.stdout.flush()
        else:
            self._out.print(renderable)

    def step(self, name: str) -> None:
        """A step of a longer run begins."""
        if not self.quiet and self._err.is_terminal:
            self._err.print(f"{name} …", style="dim", highlight=False)

    @contextmanager
    def search_progress(self, generations: int) -> Iterator[Any]:
        """A bar with the best fitness, the negatives repaired and the positives broken; yields its callback."""
        columns = (
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(compact=True),
        )
        hidden = self.quiet or not self._err.is_terminal
        with Progress(*columns, console=self._err, transient=True, disable=hidden) as progress:
            task = progress.add_task("", total=generations, visible=False)

            def on_generation(at: Generation) -> None:
                text = f"fitness {at.fitness:.2f}, {at.repaired} repaired, {at.broken} broken"
                progress.update(task, completed=at.number, description=text, visible=True)

            yield on_generation


def _console(stream: Any) -> Console:
    console = Console(file=stream)
    return console if console.is_terminal else Console(file=stream, width=WIDTH, color_system=None)
