"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click
from rich.console import RenderableType
from rich.text import Text

from arachne.cli.progress_log import Heartbeat
from arachne.io.output_paths import environment_faults, open_log
from arachne.report.console import Ink, SafeConsole
from arachne.text import pluralise, printable

if TYPE_CHECKING:
    from arachne.search.state import Generation

WIDTH = 80


class Output:
    """The output of a command, as its `output_options` say: results, notes and progress.

    Attributes:
        as_json: Whether standard output is for one JSON object.
        quiet: Whether to say nothing but the result.
        verbose: Whether to tell every step.
    """

    def __init__(self) -> None:
        context = click.get_current_context(silent=True)
        meta = {} if context is None else context.meta
        self.as_json, self.quiet = bool(meta.get("arachne.as_json")), bool(meta.get("arachne.quiet"))
        self.verbose = bool(meta.get("arachne.verbose")) and not self.quiet
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
        """Print a line about the current work."""
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

    def tell_written(self, folder: Path | None) -> None:
        """Print what a repair has written, and which file to open."""
        from arachne.report.folder import PAGE

        if folder is None:
            self.say("nothing was written; -o FOLDER keeps the patch, the patched model and a page to look at")
            return
        names = sorted(path.name for path in folder.iterdir())
        self.detail(f"wrote {', '.join(names)} to '{folder}'")
        look = f"; open {folder / PAGE} in a browser" if PAGE in names else ""
        self.say(f"wrote {pluralise(len(names), 'file')} to '{folder}'{look}")

    def step(self, name: str) -> None:
        """Announce a step of a longer run; inside `progress` the sign of life names it too."""
        if self._heartbeat is not None:
            self._heartbeat.step(name)
            self.detail(f"{name} …")
            return
        self._note(f"{name} …")
        if not self.quiet:
            self._err.print(f"{name} …", style="dim" if self._err.is_terminal else None)

    @contextmanager
    def progress(self, step: str, generations: int | None = None) -> Iterator[Callable[[Generation], None]]:
        """Show that a run lives: beside a spinner on a terminal, elsewhere by a line every half minute.

        Args:
            step: What is done first.
            generations: How many a search has at most, where that is known.

        Yields:
            A function to call after each generation of a search.
        """
        heart = self._heartbeat = Heartbeat(self.say, generations)
        heart.step(step)
        shown: AbstractContextManager[object] = heart
        if self.quiet:
            shown = nullcontext()
        elif self._err.is_terminal:
            shown = self._err.status(_Line(heart))

        def on_generation(at: Generation) -> None:
            self.detail(f"generation {at.number}: fitness {at.fitness:.2f}, {at.repaired} repaired, {at.broken} broken")
            heart.generation(at)

        try:
            with shown:
                yield on_generation
        finally:
            self._heartbeat = None


@dataclass(frozen=True)
class _Line:
    """The line of a heartbeat, made anew whenever the terminal is drawn."""

    heart: Heartbeat

    def __rich__(self) -> Text:
        return Text(self.heart.line(), no_wrap=True, overflow="ellipsis", style="dim")


class _Console(SafeConsole):
    """A console that tells when its reader has gone away; rich would end the process with 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _console(stream: Any) -> SafeConsole:
    console = _Console(file=stream)
    return console if console.is_terminal else _Console(file=stream, width=WIDTH, color_system=None)
