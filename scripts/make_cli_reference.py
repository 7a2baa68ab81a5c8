"""Write the part of docs/reference/cli.md that lists commands, plug-ins and options, from those themselves.

python scripts/make_cli_reference.py
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path

import click

from arachne.cli import COMMANDS
from arachne.cli.plugins import describe
from arachne.plugins.table import FINDERS, LOCALISERS, OBJECTIVES, SEARCHERS, Table

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
PLUGINS = """`arachne plugins` lists these, those of other packages and the backends; `arachne plugins NAME` shows one,
with the meaning and the default of every option.

A command takes the options of the plug-ins it has chosen as `-O NAME=VALUE`, `-O search.NAME=VALUE` where a searcher
and a localiser both have one of that name, and `-O de.NAME=VALUE` for one of several that `arachne compare` runs.
Options of finders are set in Python.
"""

MOST_NAMED = 5
"""Commands that are named beside an option they take; of more it is said that most take it."""

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
    """The lines of all sections: the commands, each option once, then the plug-ins."""
    commands = {name: importlib.import_module(f"arachne.cli.{name}").command for name in COMMANDS}
    yield "## Commands\n"
    for name, command in commands.items():
        yield from _section(name, command)
    yield "## Options\n"
    yield "Each option once, by name; `arachne COMMAND --help` groups those of one command.\n"
    yield from _options(commands)
    yield "## Plug-ins\n"
    yield PLUGINS
    for table in (SEARCHERS, LOCALISERS, OBJECTIVES, FINDERS):
        yield from _plugins(table)


def _section(name: str, command: click.Command) -> Iterable[str]:
    """One command: how it is called, and what it does."""
    yield f"### arachne {name}\n"
    usage = " ".join(["arachne", name, *(_metavar(p) for p in command.params if isinstance(p, click.Argument))])
    yield f"```text\n{usage} [OPTIONS]\n```\n"
    yield inspect.cleandoc(command.help or "") + "\n"


def _options(commands: dict[str, click.Command]) -> Iterable[str]:
    """Every option with its meaning; one that means something else in another command has a row for each."""
    owners: dict[tuple[str, str], list[str]] = {}
    for name, command in commands.items():
        for option in command.params:
            if isinstance(option, click.Option):
                owners.setdefault((_write_option(option), _meaning(option)), []).append(name)
    yield "| option | meaning | of |\n|---|---|---|"
    for (written, meaning), names in sorted(owners.items(), key=lambda item: item[0][0].split("`--")[-1].lower()):
        of = "most commands" if len(names) > MOST_NAMED else ", ".join(names)
        yield f"| {written} | {meaning} | {of} |"
    yield ""


def _plugins(table: Table) -> Iterable[str]:
    """Arachne's own plug-ins of a kind, and what each does."""
    yield f"### {table.kind.capitalize()}s\n"
    yield f"| {table.kind} | what it does |\n|---|---|"
    for one in (describe(table, name) for name in sorted(table.ours)):
        yield f"| `{one.name}` | {_escape(one.summary)} |"
    yield ""


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


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
