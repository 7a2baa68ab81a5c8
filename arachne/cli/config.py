"""Options from a file or the environment. The command line wins over the environment, the environment over the file.

`arachne.cli.settings_file` reads `arachne.toml`, `arachne.cli.border` decides what it may set, and `arachne settings`
shows it.

The environment's names are made of command and option: `ARACHNE_REPAIR_ALPHA=5`. An option that may be repeated takes
its values from there separated by spaces.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from arachne.cli.border import check_source, is_refused
from arachne.cli.option_words import check_words_of_files, take_words, word_entries
from arachne.cli.outputs import Command
from arachne.cli.plugin_options import NameValues
from arachne.cli.provenance import DEFAULT, TYPED, Origin, Source, option_text, setting_names
from arachne.cli.settings_file import FILE, Setting, read_settings
from arachne.errors import InputError, UsageError
from arachne.text import printable

if TYPE_CHECKING:
    from arachne.report.next_steps import Given

PREFIX = "ARACHNE"
LEFT_OUT = ("config", "help")
ABOUT_OUTPUT = ("json", "quiet", "verbose", "log-file", "debug")
ABOUT_BEFORE = ("force", "resume")
"""Options about the files of an earlier run."""

OF_MODEL = ("model-file", "model", "weights", "backend", "device", "output", "trust-code", "feed")
OF_DATA = ("data", "classes", "preprocess", "task", "threshold", "tolerance")


class ConfiguredCommand(Command):
    """A command whose options may also come from the environment or a file."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.params.append(
            click.Option(
                ["--config"], type=click.Path(path_type=Path), help=f"Options in a file; ./{FILE} if it is there."
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        settings = [*read_settings(_config_argument(args), command_name(self), self), *_from_environment(self)]
        words = [one for one in settings if isinstance(one.parameter, NameValues)]
        settings = [one for one in settings if not isinstance(one.parameter, NameValues)]
        refused = [one for one in settings if is_refused(one.parameter, one.value, one.source)]
        if not ctx.resilient_parsing:  # as when settings are only shown
            for one in refused:
                check_source(one.parameter, one.value, one.source)
        taken = [one for one in settings if one not in refused]
        ctx.meta["arachne.refused"] = refused
        ctx.meta["arachne.settings"] = taken
        ctx.default_map = {
            str(one.parameter.name): one.value for one in taken if one.source.origin is not Origin.ENVIRONMENT
        }
        variables = {one.parameter: one.source.origin_name for one in taken if one.source.origin is Origin.ENVIRONMENT}
        for parameter in self.params:
            parameter.envvar = variables.get(parameter)
        try:
            rest = super().parse_args(ctx, files_together(args))
        except (click.BadParameter, UsageError):
            _check_values_of_files(ctx)
            raise
        for parameter in self.params:  # which plug-ins are chosen is known only now
            if isinstance(parameter, NameValues):
                take_words(ctx, parameter, words)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        ctx.meta["arachne.config"] = ctx.params.pop("config") or Path(FILE)
        _tell_found(ctx)
        try:
            return super().invoke(ctx)
        except UsageError:
            check_words_of_files(ctx)
            raise


def _check_values_of_files(ctx: click.Context) -> None:
    """Say of a value that does not fit its option where it stands, if that is a file.

    Raises:
        InputError: A file gives such a value.
    """
    settings: list[Setting] = ctx.meta["arachne.settings"]
    for one in settings:
        if ctx.get_parameter_source(str(one.parameter.name)) == ParameterSource.DEFAULT_MAP:
            try:
                one.parameter.type_cast_value(ctx, one.value)
            except (click.BadParameter, UsageError) as error:
                reason = error.message if isinstance(error, click.BadParameter) else error
                sentence = f"{one.source.text} has {option_text(one.parameter)}: {reason}"
                raise InputError(sentence.rstrip(".")) from error


def _from_environment(command: click.Command) -> list[Setting]:
    """The options that a variable of the environment sets; an empty one sets nothing."""
    found = []
    for parameter in command.params:
        for name in setting_names(parameter)[:1]:
            variable = f"{PREFIX}_{command_name(command)}_{name}".upper().replace("-", "_")
            value = os.environ.get(variable)
            if value:
                many = isinstance(parameter, click.Option) and (parameter.multiple or parameter.nargs != 1)
                words = list(parameter.type.split_envvar_value(value)) if many else value
                source = Source(Origin.ENVIRONMENT, variable)
                each = words if isinstance(parameter, NameValues) else [words]
                found += [Setting(parameter, one, source) for one in each]
    return found


def _tell_found(ctx: click.Context) -> None:
    """Say which options were set by something that is merely found, unless the user has typed `--quiet`."""
    if ctx.meta.get("arachne.quiet") and source_of(ctx, "quiet") == TYPED:
        return
    taken = [
        f"{name} = {value} ({source.text})"
        for parameter in ctx.command.params
        for name, value, source in _entries(ctx, parameter)
        if source.is_found
    ]
    if taken:
        click.echo(printable(f"found settings: {', '.join(taken)}"), err=True)


def _entries(ctx: click.Context, parameter: click.Parameter) -> list[tuple[str, Any, Source]]:
    """An option with its value and its source; `-O` has one of these for each name."""
    if isinstance(parameter, NameValues):
        return [(one.name, one.value, one.source) for one in word_entries(ctx)]
    return [((setting_names(parameter) or [""])[0], *given_value(ctx, parameter))]


def files_together(args: Sequence[str]) -> list[str]:
    """`--data a.parquet b.parquet`, which a shell makes of a pattern, as one value; a model has another ending."""
    found: list[str] = []
    for word in args:
        together = len(found) > 1 and found[-2] == "--data" and not word.startswith("-")
        ending = Path(word).suffix
        if together and ending and found[-1].endswith(ending) and os.path.isfile(word):
            found[-1] += f",{word}"
        else:
            found.append(word)
    return found


def command_name(command: click.Command) -> str:
    """A command's name: that of its file, also when another command calls it."""
    return str(getattr(command.callback, "__module__", "")).rpartition(".")[2]


def again(ctx: click.Context) -> str:
    """The command line that gives the same run again, whatever came from the environment or a file."""
    left_out = (*LEFT_OUT, *ABOUT_OUTPUT, *ABOUT_BEFORE)
    return shlex.join(["arachne", command_name(ctx.command), *_words(ctx, leave_out=left_out)])


def going_on(ctx: click.Context) -> str:
    """The command line that resumes this run after an interruption."""
    words = _words(ctx, leave_out=(*LEFT_OUT, *ABOUT_BEFORE))
    return shlex.join(["arachne", command_name(ctx.command), *words, "--resume"])


def given_sources(ctx: click.Context) -> Given:
    """The words that name model and data, also where they came from the environment or a file."""
    from arachne.report.next_steps import Given

    file = ctx.params.get("weights") or ctx.params.get("model_file")
    return Given(str(file), tuple(_words(ctx, only=OF_MODEL)), tuple(_words(ctx, only=OF_DATA)))


def _words(ctx: click.Context, *, leave_out: Sequence[str] = (), only: Sequence[str] | None = None) -> list[str]:
    """The options that were given, as words of a command line."""
    words: list[str] = []
    for parameter in ctx.command.params:
        value, source = given_value(ctx, parameter)
        name = (setting_names(parameter) or [""])[0]
        if source == DEFAULT or value is None or name in leave_out or (only is not None and name not in only):
            continue
        if isinstance(parameter, click.Option) and parameter.nargs > 1:
            words += [max(parameter.opts, key=len), *map(str, value)]
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(parameter, click.Argument):
                words.append(str(one))
            elif one is not False:
                flag = parameter.opts[0] if isinstance(parameter, NameValues) else max(parameter.opts, key=len)
                words += [flag] + ([] if one is True else [str(one)])
            elif parameter.secondary_opts:
                words.append(parameter.secondary_opts[0])
    return words


def given_value(ctx: click.Context, parameter: click.Parameter) -> tuple[Any, Source]:
    """The value of an option, and where it came from."""
    name = str(parameter.name)
    value = ctx.params[name] if name in ctx.params else ctx.meta.get(f"arachne.{name}")
    return _plain(value), source_of(ctx, name)


def source_of(ctx: click.Context, name: str) -> Source:
    """Where the value of an option came from."""
    source = ctx.get_parameter_source(name)
    if source == ParameterSource.COMMANDLINE:
        return TYPED
    if source not in (ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP):
        return DEFAULT
    environment = source == ParameterSource.ENVIRONMENT
    settings: list[Setting] = ctx.meta["arachne.settings"]
    return next(
        one.source
        for one in settings
        if one.parameter.name == name and (one.source.origin is Origin.ENVIRONMENT) == environment
    )


def _config_argument(args: list[str]) -> Path | None:
    for number, word in enumerate(args):
        if word == "--config" and number + 1 < len(args):
            return Path(args[number + 1])
        if word.startswith("--config="):
            return Path(word.partition("=")[2])
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
