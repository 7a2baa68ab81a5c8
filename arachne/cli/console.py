"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from arachne.cli.progress_log import Heartbeat
from arachne.io.places import environment_faults, open_log
from arachne.report.console import Ink, SafeConsole
from arachne.report.printable import printable

if TYPE_CHECKING:
    from arachne.search.state import Generation

WIDTH = 80


class Output:
    """The output of a command: results, notes and progress.

    Args:
        as_json: Whether standard output is for one JSON object.
        quiet: Whether to say nothing but the result.
    """

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        context = click.get_current_context(silent=True)
        meta = {} if context is None else context.meta
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = bool(meta.get("arachne.verbose")) and not quiet
        self._out = _console(sys.stdout)
        self._err = _console(sys.stderr)
        self._began = time.perf_counter()
        self._log: TextIO | None = None
        self._heartbeat: Heartbeat | None = None
        if context is not None and meta.get("arachne.log_file") is not None:
            path = Path(meta["arachne.log_file"])
            with environment_faults(path):
                self._log = context.with_resource(open_log(path))

    @property
    def seconds(self) -> float:
        """How long the command has been running."""
        return time.perf_counter() - self._began

    def say(self, text: str) -> None:
        """A line about what is going on."""
        self._note(text)
        if not self.quiet:
            self._err.print(text, soft_wrap=True)

    def detail(self, text: str) -> None:
        """A line for those who asked for every step."""
        self._note(text)
        if self.verbose:
            self._err.print(text, soft_wrap=True)

    def _note(self, text: str) -> None:
        if self._log is not None:
            self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(text)}\n")
            self._log.flush()

    def result(self, renderable: RenderableType, value: Any) -> None:
        """The result: a table for people, or one object for programs."""
        if self.as_json:
            from arachne.report.json import dumps

            sys.stdout.write(dumps(value) + "\n")
            sys.stdout.flush()
        else:
            if isinstance(renderable, str):  # paths in it stay whole, and nothing is read as markup
                self._out.print(Ink(self._out.options.ascii_only).text(renderable), soft_wrap=True)
            else:
                self._out.print(renderable)

    def answer(self, text: str) -> None:
        """A sentence that was asked for: part of the result, unless that is one JSON object."""
        if self.as_json:
            self.say(text)
        else:
            self._out.print(Text(text), soft_wrap=True)
            self._note(text)

    def step(self, name: str) -> None:
        """A step of a longer run begins."""
        if self._heartbeat is not None:
            self._heartbeat.step(name)
        self._note(f"{name} …")
        if not self.quiet:
            self._err.print(f"{name} …", style="dim" if self._err.is_terminal else None)

    @contextmanager
    def search_progress(self, generations: int | None) -> Iterator[Any]:
        """A bar with the best fitness, the negatives repaired and the positives broken; yields its callback.

        Without a terminal there is no bar but a line every half minute.

        Args:
            generations: How many there are at most; the bar only moves when that is not known.
        """
        columns = (
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(compact=True),
        )
        hidden = self.quiet or not self._err.is_terminal
        self._heartbeat = Heartbeat(self.say, generations)
        beating = nullcontext() if self.quiet or self._err.is_terminal else self._heartbeat
        with beating, Progress(*columns, console=self._err, transient=True, disable=hidden) as progress:
            task = progress.add_task("", total=generations, visible=False)

            def on_generation(at: Generation) -> None:
                text = f"fitness {at.fitness:.2f}, {at.repaired} repaired, {at.broken} broken"
                self.detail(f"generation {at.number}: {text}")
                if self._heartbeat is not None:
                    self._heartbeat.generation(at)
                progress.update(task, completed=at.number, description=text, visible=True)

            yield on_generation


class _Console(SafeConsole):
    """A console that tells when its reader has gone away; rich would end the process with 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _console(stream: Any) -> SafeConsole:
    console = _Console(file=stream)
    return console if console.is_terminal else _Console(file=stream, width=WIDTH, color_system=None)
