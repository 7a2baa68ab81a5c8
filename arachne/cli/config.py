"""`arachne.toml`: options in a file. The command line wins over the environment, the environment over the file.

    data = "val.npz"                # for every command that takes --data
    [repair]
    target = ["6:0"]
    fail-if = ["break_rate > 0.5%"]

A file in the working folder may have come with it, so what lets code run (`trust-code`, `model`, a function as
`preprocess`) or writes outside the folder is taken only from the command line, the environment or a file that was named
with `--config`.

The environment's names are made of command and option: `ARACHNE_REPAIR_ALPHA=5`. An option that may be repeated takes
its values from there separated by spaces, `ARACHNE_REPAIR_FAIL_IF` by semicolons.
"""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from arachne.cli.file_values import as_given, check_unnamed
from arachne.cli.outputs import Command
from arachne.cli.user_only import reserved
from arachne.errors import InputError, UsageError, did_you_mean
from arachne.reading import read_text, told

if TYPE_CHECKING:
    from arachne.report.next_steps import Given

FILE = "arachne.toml"
PREFIX = "ARACHNE"
SOURCES = {
    ParameterSource.COMMANDLINE: "command line",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "file",
}
LARGEST, MOST_DOTS = 1 << 16, 1000
"""More bytes than this are no settings, nor is a line with more dots."""

LEFT_OUT = ("config", "print-config", "help")
ABOUT_OUTPUT = ("json", "quiet", "verbose", "log-file", "debug")
ABOUT_BEFORE = ("force", "resume")
"""Options about what an earlier run has left."""

OF_MODEL = ("model-file", "model", "weights", "backend", "device", "output", "trust-code", "feed")
OF_DATA = ("data", "classes", "preprocess")


class ConfiguredCommand(Command):
    """A command whose options may also come from the environment or a file; `--print-config` shows which did."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.params += [
            click.Option(
                ["--config"], type=click.Path(path_type=Path), help=f"Options in a file; ./{FILE} if it is there."
            ),
            click.Option(["--print-config"], is_flag=True, help="Show every option, its value and where it came from."),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for parameter in self.params:
            for name in names(parameter)[:1]:
                parameter.envvar = f"{PREFIX}_{called(self)}_{name}".upper().replace("-", "_")
        ctx.default_map = from_file(_chosen(args), called(self), self)
        ctx.resilient_parsing = ctx.resilient_parsing or "--print-config" in args  # nothing is missing when it is shown
        left = super().parse_args(ctx, files_together(args))
        for parameter in self.params:
            value, source = _given(ctx, parameter)
            if source == ParameterSource.ENVIRONMENT and reserved(parameter, value):
                raise UsageError(
                    f"{parameter.envvar} lets code run or files be replaced; only the command line may, or a file "
                    "named there (--config FILE)"
                )
        return left

    def invoke(self, ctx: click.Context) -> Any:
        ctx.meta["arachne.config"] = ctx.params.pop("config") or Path(FILE)
        if ctx.params.pop("print_config"):
            from arachne.report.json import escaped

            click.echo(escaped(shown(ctx, as_json=bool(ctx.params.get("as_json")))))
            return None
        return super().invoke(ctx)


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


def from_file(path: Path | None, command: str, owner: click.Command) -> dict[str, Any]:
    """The options a file holds for a command, by the names click has for them.

    Raises:
        InputError: No such file, not TOML, a value of another kind, or what only a file that was named may do.
        UsageError: An option this command does not have.
    """
    if path is None and not os.path.lexists(FILE):
        return {}
    found, path = path is None, path or Path(FILE)
    text = read_text(path, "settings", LARGEST)
    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):  # the parser takes the square of their number
        raise InputError(f"'{path}' has a line with more than {MOST_DOTS:,} dots, which no settings have")
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not TOML: {told(error)}") from error
    known = {name: parameter for parameter in owner.params for name in names(parameter)}
    common = {key: value for key, value in content.items() if not isinstance(value, Mapping) and key in known}
    own = content.get(command, {})
    if not isinstance(own, Mapping):
        raise InputError(f"'{path}' has '{command}' as a value, expected a table of options, [{command}]")
    for key in own:
        if key not in known:
            raise UsageError(f"'{path}' has the option '{key}' for {command}" + did_you_mean(key, known))
    options = {key: as_given(value, known[key], f"'{path}'", key) for key, value in {**common, **own}.items()}
    for key, value in options.items():
        if found:
            check_unnamed(path, key, value, known[key])
    return {str(known[key].name): value for key, value in options.items()}


def called(command: click.Command) -> str:
    """A command's name: that of its file, also when another command calls it."""
    return str(getattr(command.callback, "__module__", "")).rpartition(".")[2]


def names(parameter: click.Parameter) -> list[str]:
    """What a parameter is called in a file: an option by its long names, an argument by its own."""
    if isinstance(parameter, click.Argument):
        return [str(parameter.name).replace("_", "-")]
    return [name.removeprefix("--") for name in parameter.opts if name.startswith("--")]


def shown(ctx: click.Context, *, as_json: bool) -> str:
    """Every option with its value and where it came from, as TOML that can be kept, or as JSON."""
    rows = []
    for parameter in ctx.command.params:
        name = (names(parameter) or [""])[0]
        if name and name not in LEFT_OUT:
            value, source = _given(ctx, parameter)
            rows.append((name, value, SOURCES.get(source, "default")))
    if as_json:
        return json.dumps({name: {"value": value, "source": source} for name, value, source in rows}, indent=2)
    lines = [f"{'# ' if value is None else ''}{name} = {_toml(value)}  # {source}" for name, value, source in rows]
    return "\n".join([f"[{called(ctx.command)}]", *lines])


def again(ctx: click.Context) -> str:
    """The command line that gives the same run again, whatever came from the environment or a file."""
    left_out = (*LEFT_OUT, *ABOUT_OUTPUT, *ABOUT_BEFORE)
    return shlex.join(["arachne", called(ctx.command), *_words(ctx, leave_out=left_out)])


def going_on(ctx: click.Context) -> str:
    """The command line that goes on with this run once it was interrupted."""
    words = _words(ctx, leave_out=(*LEFT_OUT, *ABOUT_BEFORE))
    return shlex.join(["arachne", called(ctx.command), *words, "--resume"])


def given(ctx: click.Context) -> Given:
    """What the command line says of model and data, whatever came from the environment or a file."""
    from arachne.report.next_steps import Given

    file = ctx.params.get("weights") or ctx.params.get("model_file")
    return Given(str(file), tuple(_words(ctx, only=OF_MODEL)), tuple(_words(ctx, only=OF_DATA)))


def _words(ctx: click.Context, *, leave_out: Sequence[str] = (), only: Sequence[str] | None = None) -> list[str]:
    """The options that were given, as words of a command line."""
    words: list[str] = []
    for parameter in ctx.command.params:
        value, source = _given(ctx, parameter)
        name = (names(parameter) or [""])[0]
        if source not in SOURCES or value is None or name in leave_out or (only is not None and name not in only):
            continue
        if isinstance(parameter, click.Option) and parameter.nargs > 1:
            words += [max(parameter.opts, key=len), *map(str, value)]
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(parameter, click.Argument):
                words.append(str(one))
            elif one is not False:
                words += [max(parameter.opts, key=len)] + ([] if one is True else [str(one)])
            elif parameter.secondary_opts:
                words.append(parameter.secondary_opts[0])
    return words


def _given(ctx: click.Context, parameter: click.Parameter) -> tuple[Any, ParameterSource]:
    name = str(parameter.name)
    value = ctx.params[name] if name in ctx.params else ctx.meta.get(f"arachne.{name}")
    return _plain(value), ctx.get_parameter_source(name) or ParameterSource.DEFAULT


def _chosen(args: list[str]) -> Path | None:
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


def _toml(value: Any) -> str:
    # JSON's strings, numbers, booleans and lists of those are TOML's too.
    return json.dumps("" if value is None else value, ensure_ascii=False)
