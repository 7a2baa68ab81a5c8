"""Write the part of docs/reference/cli.md that lists commands, plug-ins and options, from those themselves.

python scripts/make_cli_reference.py
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from arachne.cli import COMMANDS, options
from arachne.cli.config import ConfiguredCommand
from arachne.cli.gates import gate_options
from arachne.cli.plugins import Plugin, describe, row
from arachne.cli.sections import MIN_GROUPED, group_options
from arachne.plugins.table import FINDERS, LOCALISERS, OBJECTIVES, SEARCHERS, Table

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
PLUGINS = """`arachne plugins` lists these, those of other packages and the backends; `arachne plugins NAME` shows one.

A command takes the options of the plug-ins it has chosen as `-O NAME=VALUE`, `-O search.NAME=VALUE` where a searcher
and a localiser both have one of that name, and `-O de.NAME=VALUE` for one of several that `arachne compare` runs.
Options of finders are set in Python.
"""

BEGIN, END = "<!-- begin: made by scripts/make_cli_reference.py -->\n", "<!-- end -->\n"


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def fill_page(page: str) -> str:
    """The page with its middle part as the commands are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + "\n".join(reference()) + "\n" + END + after


def reference() -> Iterable[str]:
    """The lines of all sections: options that commands share, command by command, then the plug-ins."""
    shared = {
        "Model options": _options_of(options.model_options),
        "Data options": _options_of(options.data_options),
        "Gate options": _options_of(gate_options),
        "Config options": ConfiguredCommand("none").params,
        "Output options": _options_of(options.output_options),
    }
    yield "## Options that commands share\n"
    for title, parameters in shared.items():
        yield f"### {title}\n"
        yield from _table(parameters)
    yield "## Commands\n"
    for name in COMMANDS:
        yield from _section(name, importlib.import_module(f"arachne.cli.{name}").command, shared)
    yield "## Plug-ins\n"
    yield PLUGINS
    for table in (SEARCHERS, LOCALISERS, OBJECTIVES, FINDERS):
        yield from _plugins(table)


def _section(name: str, command: click.Command, shared: dict[str, list[click.Parameter]]) -> Iterable[str]:
    yield f"### arachne {name}\n"
    usage = " ".join(["arachne", name, *(_metavar(p) for p in command.params if isinstance(p, click.Argument))])
    yield f"```text\n{usage} [OPTIONS]\n```\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    own = list(command.params)
    taken = []
    for title, parameters in shared.items():
        same = {_identity(parameter) for parameter in parameters}
        if same <= {_identity(parameter) for parameter in own}:
            own = [parameter for parameter in own if _identity(parameter) not in same]
            taken.append(f"[{title.lower()}](#{title.lower().replace(' ', '-')})")
    rows = [parameter for parameter in own if isinstance(parameter, click.Option)]
    for title, group in group_options(rows) if len(rows) >= MIN_GROUPED else [("", rows)] if rows else []:
        yield from ([f"**{title}**\n"] if title else [])
        yield from _table(group)
    if taken:
        yield f"Also: {', '.join(taken)}.\n"


def _identity(parameter: click.Parameter) -> tuple[str, ...]:
    return tuple(str(getattr(parameter, name, None)) for name in ("name", "help", "show_default"))


def _plugins(table: Table) -> Iterable[str]:
    """Arachne's own plug-ins of a kind: what each does, then every option with the plug-ins that have it."""
    found = [describe(table, name) for name in sorted(table.ours)]
    yield f"### {table.kind.capitalize()}s\n"
    yield f"| {table.kind} | what it does |\n|---|---|"
    yield from (f"| `{one.name}` | {_escape(one.summary)} |" for one in found)
    yield "\n| option | value | default | the paper's | meaning | of |\n|---|---|---|---|---|---|"
    owners: dict[tuple[str, ...], list[Plugin]] = {}
    for one in found:
        for option in one.options:
            owners.setdefault(row(option, table.kind), []).append(one)
    for cells, having in owners.items():
        written, value, default, paper, meaning = map(_escape, cells)
        of = f"every {table.kind}" if len(having) == len(found) else ", ".join(f"`{one.name}`" for one in having)
        yield f"| `{written}` | {value} | {default} | {paper} | {meaning} | {of} |"
    yield ""


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _options_of(decorate: Any) -> list[click.Parameter]:
    """List what a decorator adds to a command."""

    def nothing() -> None:
        """Take no options of its own."""

    return click.command()(decorate(nothing)).params


def _table(parameters: Iterable[click.Parameter]) -> Iterable[str]:
    yield "| option | meaning |\n|---|---|"
    for parameter in parameters:
        if isinstance(parameter, click.Option):
            yield f"| {_write_option(parameter)} | {_meaning(parameter)} |"
        else:
            yield f"| `{_metavar(parameter)}` | The model file. |"
    yield ""


def _write_option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    value = option.metavar or (
        "\\|".join(map(str, option.type.choices))
        if isinstance(option.type, click.Choice)
        else {"integer": "NUMBER", "integer range": "NUMBER", "float": "NUMBER"}.get(
            option.type.name, option.type.name.upper()
        )
    )
    return f"{names} `{value}`" if "|" not in value else f"{names} {value}"


def _meaning(option: click.Option) -> str:
    text = _escape(option.help or "")
    if option.required:
        text = f"{text} Required."
    elif isinstance(option.show_default, str):
        text = f"{text} Default: {option.show_default}."
    elif option.show_default:
        default = option.default if isinstance(option.default, tuple) else (option.default,)
        text = f"{text} Default: {' '.join(map(str, default))}."
    return text.strip()


def _metavar(parameter: click.Parameter) -> str:
    return parameter.metavar or str(parameter.name).upper()


if __name__ == "__main__":
    main()
