"""`arachne settings`: every option of a command, its value, and where that came from."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import click

from arachne.cli.border import may_be_found
from arachne.cli.config import LEFT_OUT, ConfiguredCommand, command_name, given_value
from arachne.cli.option_words import word_entries
from arachne.cli.plugin_options import NameValues
from arachne.cli.provenance import setting_names
from arachne.cli.settings_file import Setting
from arachne.errors import UsageError, did_you_mean

WORDS = {True: "may be found", False: "typed or named only"}


@click.command(
    short_help="Show every option of a command, and what has set it.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output; goes before COMMAND.")
@click.argument("name", metavar="[COMMAND]", required=False)
@click.argument("words", metavar="[ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
def command(as_json: bool, name: str | None, words: tuple[str, ...]) -> None:
    """Show every option of COMMAND with its value, its source, and whether a source that is merely found may set it.

    The source is a file with its line, a variable of the environment, what was typed as ARGUMENTS, or the default.
    Without COMMAND, all commands that take settings are shown.
    """
    from arachne.cli import COMMANDS
    from arachne.report.json import escape_unprintable

    if name is not None and name not in COMMANDS:
        raise UsageError(f"no command named '{name}'{did_you_mean(name, COMMANDS)}")
    commands = [importlib.import_module(f"arachne.cli.{one}").command for one in ([name] if name else COMMANDS)]
    shown = [one for one in commands if name or isinstance(one, ConfiguredCommand)]
    contexts = [one.make_context(command_name(one), list(words), resilient_parsing=True) for one in shown]
    if as_json:
        value = {command_name(one.command): {row.pop("name"): row for row in rows_of(one)} for one in contexts}
        click.echo(escape_unprintable(json.dumps(value[name] if name else value, indent=2)))
    else:
        click.echo(escape_unprintable("\n\n".join(map(as_toml, contexts))))


def rows_of(ctx: click.Context) -> list[dict[str, Any]]:
    """Every option of a command with its value, its source, and who may set it."""
    rows = []
    refused: list[Setting] = ctx.meta.get("arachne.refused", [])
    for parameter in ctx.command.params:
        name = (setting_names(parameter) or [""])[0]
        if not name or name in LEFT_OUT:
            continue
        if isinstance(parameter, NameValues) and word_entries(ctx):
            rows += word_rows(ctx)
            continue
        value, source = given_value(ctx, parameter)
        row = {"name": name, "value": value, "origin": source.origin.value, "source": source.text}
        found = isinstance(ctx.command, ConfiguredCommand) and may_be_found(parameter)
        stopped = [one.source.text for one in refused if one.parameter is parameter]
        rows.append({**row, "may_be_found": found, "refused": stopped})
    return rows


def word_rows(ctx: click.Context) -> list[dict[str, Any]]:
    """Every name behind `-O`, as a row of its own."""
    return [
        {
            "name": one.name,
            "value": one.value,
            "origin": one.source.origin.value,
            "source": one.source.text,
            "may_be_found": one.may_be_found,
            "refused": list(one.refused),
        }
        for one in word_entries(ctx)
    ]


def as_toml(ctx: click.Context) -> str:
    """The settings as TOML that can be kept and named with `--config`."""
    lines = [f"[{command_name(ctx.command)}]"]
    for row in rows_of(ctx):
        # JSON's strings, numbers, booleans and lists of those are TOML's too.
        value = json.dumps("" if row["value"] is None else row["value"], ensure_ascii=False)
        text = f"{'# ' if row['value'] is None else ''}{_toml_key(row['name'])} = {value}"
        text += f"  # {row['source']}; {WORDS[row['may_be_found']]}"
        lines.append(text + (f"; refused from {' and '.join(row['refused'])}" if row["refused"] else ""))
    return "\n".join(lines)


def _toml_key(name: str) -> str:
    """A dotted name as a key; a part such as `hill@2` is quoted."""
    bare = re.compile(r"[A-Za-z0-9_-]+")
    return ".".join(part if bare.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in name.split("."))
