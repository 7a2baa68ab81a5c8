"""Where a command writes: every output is checked against every input, and against the others, before any work.

An option is an output by its type: `OUT_FILE`, `OUT_FOLDER` or `LOG_FILE`. All other options that lead to a file or
folder are inputs. A command of the class `Command` with an output has `--force`, and is checked before it runs.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.exit import report_closed_pipe
from arachne.cli.sections import write_sections
from arachne.errors import EnvironmentFaultError, UsageError
from arachne.io.expected import expecting
from arachne.io.files import same_file, sha256_of
from arachne.io.identity import check_sha256, expecting_hashes
from arachne.io.output_paths import check_room, environment_faults

if TYPE_CHECKING:
    from arachne.results.folder import ResultFolder

MIN_FREE_BYTES = 1 << 20
"""Bytes that must be free where a file is to be written; what a model takes is added where one is."""

TIMESTAMP = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
"""The beginning of every line of a log."""


class OutputType(click.Path):
    """A path that a command writes to.

    Args:
        beside: The other files that are written with it.
        makes_folders: Whether folders above it are made.
    """

    def __init__(
        self, *, beside: Callable[[Path], Iterable[Path]] = lambda path: (), makes_folders: bool = False
    ) -> None:
        super().__init__(path_type=Path)
        self.beside = beside
        self.makes_folders = makes_folders

    def paths(self, value: Any) -> Iterable[Path]:
        """The paths that a value of the option names."""
        return _paths(value)

    def check(self, path: Path, *, force: bool) -> None:
        """Refuse a path that cannot be written, or that holds something that may not be replaced."""
        if not os.path.lexists(path):
            return
        if path.is_dir():
            raise UsageError(f"'{path}' is a directory, expected the name of a file")
        if (path.exists() and not path.is_file()) or path.absolute().is_relative_to("/dev"):
            raise UsageError(f"'{path}' is no ordinary file, and nothing is written over it")
        if not force:
            raise UsageError(f"'{path}' is there already; choose another name, or replace it", argument="replace")


class FolderType(OutputType):
    """A folder of results, which appears as a whole."""

    name = "directory"

    def __init__(self) -> None:
        super().__init__(makes_folders=True)

    def check(self, path: Path, *, force: bool) -> None:
        from arachne.io.manifest import read_manifest
        from arachne.results.folder import can_resume, check_result_path

        if is_resuming() and not can_resume(path) and read_manifest(path) is not None and not force:
            raise UsageError(
                f"'{path}' holds the results of a run that has ended: there is nothing to resume; replace them",
                argument="replace",
            )
        check_result_path(path, replace=force or (is_resuming() and can_resume(path)))


class LogType(OutputType):
    """A file that lines are added to."""

    def check(self, path: Path, *, force: bool) -> None:
        if not os.path.lexists(path):
            return
        super().check(path, force=True)
        with environment_faults(path), path.open("rb") as stream:
            start = stream.read(20)
        if start and not TIMESTAMP.match(start):
            raise UsageError(
                f"'{path}' is no log of an earlier run, to which lines could be added; choose another name"
            )


OUT_FILE = OutputType()
OUT_FOLDER = FolderType()
LOG_FILE = LogType()


@dataclass(frozen=True)
class Named:
    """A path and the option that leads to it."""

    option: str
    path: Path


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    ctx.meta[f"arachne.{parameter.name}"] = value
    return value


remembered_option = partial(click.option, expose_value=False, callback=_remember)
"""`click.option` for an option that is no argument of the command: the context has it as `arachne.NAME`."""

expect_option = remembered_option(
    "--expect-sha256",
    multiple=True,
    metavar="[FILE=]HEX",
    help="Read MODEL, or the input FILE, only if it has this hash. Repeatable.",
)
force_option = remembered_option(
    "--force", is_flag=True, help="Replace outputs that are there already; inputs never are."
)
resume_option = remembered_option(
    "--resume", is_flag=True, help="Go on with a run into the same folder that was interrupted."
)


class Command(click.Command):
    """A command that checks where it writes before it does anything."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if any(isinstance(parameter, click.Argument) for parameter in self.params):
            expect_option(self)
        if any(isinstance(one.type, OutputType) and not isinstance(one.type, LogType) for one in self.params):
            force_option(self)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_sections(self.get_params(ctx), ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra" in error.message and any("--data" in one.opts for one in self.params):
                raise click.UsageError(f"{error.message}; data comes behind --data", ctx) from error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        with report_closed_pipe(), expecting_hashes(check_expected(ctx)), expecting(check_outputs(ctx)):
            return super().invoke(ctx)


def is_resuming() -> bool:
    """Whether an interrupted run is to be resumed."""
    return bool(click.get_current_context().meta.get("arachne.resume"))


def is_forced() -> bool:
    """Whether an existing output may be replaced."""
    return bool(click.get_current_context().meta.get("arachne.force"))


def check_expected(ctx: click.Context) -> dict[Path, str]:
    """Refuse inputs that are not the files the user expects; what is expected of the model is checked again with it.

    Returns:
        The expected hashes by path.

    Raises:
        UsageError: It is not said of which file, or it is none of the inputs.
        ModelError: One has another hash.
    """
    from arachne.model.registry import existing_file, files_beside

    found: dict[Path, str] = {}
    for text in ctx.meta.get("arachne.expect_sha256") or ():
        name, _, digest = text.rpartition("=")
        model = ctx.params.get("weights") or ctx.params.get("model_file") or _first(ctx)
        meant = name or model
        if meant is None:
            raise UsageError("--expect-sha256 does not say of which file; give FILE=HEX")
        path = existing_file(meant, "file")
        inputs = [named.path for named in _inputs(ctx)]
        if not any(same_file(path, one) for one in inputs):
            beside = (other for one in inputs if one.is_file() for other in files_beside(one))
            if not any(same_file(path, other) for other in beside):
                raise UsageError(f"--expect-sha256 names '{name}', which is no input of this command")
        check_sha256(path, digest, sha256_of(path))
        found[path] = digest
    return found


def check_outputs(ctx: click.Context) -> list[Path]:
    """Refuse outputs that are inputs, that are named twice, or that exist and may not be replaced.

    Returns:
        The files that will be written.

    Raises:
        UsageError: The command line asks for it.
        EnvironmentFaultError: A path cannot be written, or its disk is full.
    """
    outputs = [
        (Named(_name(parameter), path), parameter.type)
        for parameter in ctx.command.params
        if isinstance(parameter.type, OutputType)
        for path in parameter.type.paths(_value(ctx, parameter))
    ]
    inputs = _inputs(ctx)
    written = [
        Named(output.option, path) for output, kind in outputs for path in (output.path, *kind.beside(output.path))
    ]
    for number, output in enumerate(written):
        for named in inputs:
            _check_input(output, named)
        for other in written[:number]:
            _check_other(output, other)
        _check_results(output)
    for output, kind in outputs:
        for path in (output.path, *kind.beside(output.path)):
            kind.check(path, force=bool(ctx.meta.get("arachne.force")))
        _check_writable(output.path, makes_folders=kind.makes_folders)
    return [output.path for output in written]


def folder_for(out: Path | None, *private: str | Path | None) -> AbstractContextManager[ResultFolder | None]:
    """Reserve the path of a command's folder, from before the work until it is done.

    Args:
        out: Where it goes; None when nothing is to be written.
        private: Model and data, which the results tell about; the first is the model, of which a copy is written.
    """
    from arachne.data.readers.multi_file import files_of
    from arachne.results.folder import result_folder

    if out is None and is_resuming():
        raise UsageError("--resume goes on with a run into a folder; name it with --out")
    if out is None:
        return nullcontext()
    given = [path for path in private if path is not None]
    named = [file for path in given for file in (files_of(path) if not os.path.isdir(path) else None) or [Path(path)]]
    files = [path for path in named if os.path.exists(path)]
    for path in files:
        _check_input(Named("--out", out), Named(str(path), path))
    room = MIN_FREE_BYTES + sum(path.stat().st_size for path in files[:1])
    return result_folder(out, replace=is_forced(), resume=is_resuming(), private=files, room=room)


def _check_input(output: Named, given: Named) -> None:
    destination, source = output.path.resolve(), given.path.resolve()
    if same_file(output.path, given.path):
        how = "is an input"
    elif given.path.is_dir() and destination.is_relative_to(source) and os.path.lexists(output.path):
        how = "lies in an input"
    elif source.is_relative_to(destination):
        how = "holds an input"
    else:
        return
    raise UsageError(
        f"'{output.path}' ({output.option}) {how} ({given.option}), and inputs are never written over; choose another "
        "name"
    )


def _check_other(output: Named, other: Named) -> None:
    one, two = output.path.resolve(), other.path.resolve()
    if same_file(output.path, other.path) or one.is_relative_to(two) or two.is_relative_to(one):
        raise UsageError(
            f"'{output.path}' ({output.option}) and '{other.path}' ({other.option}) are one place, or one lies in the "
            "other; choose another name"
        )


def _check_results(output: Named) -> None:
    from arachne.io.manifest import read_manifest

    for parent in list(output.path.resolve().parents)[:3]:
        if read_manifest(parent) is not None:
            raise UsageError(
                f"'{output.path}' lies in '{parent.name}', a folder of results, which only changes as a whole; choose "
                "another place"
            )


def _check_writable(path: Path, *, makes_folders: bool) -> None:
    folder = path.absolute().parent
    while makes_folders and not os.path.lexists(folder):
        folder = folder.parent
    with environment_faults(path):
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise NotADirectoryError(20, "Not a directory")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EnvironmentFaultError(f"cannot write '{path}': no permission to write to '{folder}'")
    check_room(folder, MIN_FREE_BYTES)


def _inputs(ctx: click.Context) -> list[Named]:
    """Everything on the command line that leads to a file or folder and is no output."""
    return [
        Named(_name(parameter), path)
        for parameter in ctx.command.params
        if not isinstance(parameter.type, OutputType)
        for path in _paths(_value(ctx, parameter))
        if os.path.exists(path)
    ]


def _first(ctx: click.Context) -> Path | None:
    """The first argument that is a file."""
    arguments = [one for one in ctx.command.params if isinstance(one, click.Argument)]
    paths = (path for parameter in arguments for path in _paths(_value(ctx, parameter)))
    return next((path for path in paths if path.is_file()), None)


def _value(ctx: click.Context, parameter: click.Parameter) -> Any:
    name = str(parameter.name)
    return ctx.params[name] if name in ctx.params else ctx.meta.get(f"arachne.{name}")


def _name(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name.strip("[]")


def _paths(value: Any) -> Iterator[Path]:
    """Every path that a value of the command line may lead to: itself, or behind a colon, as in `rows:bad.csv=3`."""
    if isinstance(value, (list, tuple)):
        for entry in value:
            yield from _paths(entry)
    elif isinstance(value, Path):
        yield value
    elif isinstance(value, str):
        behind = value.partition(":")[2]
        for text in (value, behind, behind.rpartition("=")[0]):
            if text and "\0" not in text and len(text) < 4096:
                yield Path(text)
