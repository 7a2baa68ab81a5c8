"""Write the part of docs/reference/cli.md that lists commands and plug-ins, from those themselves.

python scripts/make_cli_reference.py
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Iterable
from pathlib import Path

import click

from arachne.cli import COMMANDS
from arachne.cli.sections import RARE, long_name
from arachne.plugins.table import FINDERS, LOCALISERS, OBJECTIVES, SEARCHERS, Table

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
PLUGINS = """`arachne plugins` says in a line what each of these does, and lists those of others; `arachne plugins NAME`
shows one, with the meaning and the default of every option.

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
    """The lines of all sections: the commands, then the plug-ins."""
    yield "## Commands\n"
    yield "`arachne COMMAND --help` has the options of one, with their meanings and defaults.\n"
    yield "| command | what it does |\n|---|---|"
    for name in COMMANDS:
        command = importlib.import_module(f"arachne.cli.{name}").command
        arguments = (_metavar(one) for one in command.params if isinstance(one, click.Argument))
        summary = inspect.cleandoc(command.help or "").split("\n\n")[0]
        yield f"| `{' '.join(['arachne', name, *arguments])}` | {_escape(' '.join(summary.split()))} |"
    yield ""
    yield "## Rarely needed options\n"
    yield "Those that `arachne repair --help` only names.\n"
    yield "| option | meaning |\n|---|---|"
    for option in repair_options():
        if long_name(option) in RARE:
            yield f"| `{max(option.opts, key=len)}` | {_escape(' '.join((option.help or '').split()))} |"
    yield ""
    yield "## Plug-ins\n"
    yield PLUGINS
    for table in (SEARCHERS, LOCALISERS, OBJECTIVES, FINDERS):
        yield from _plugins(table)


def repair_options() -> list[click.Option]:
    """Options of `arachne repair`."""
    command = importlib.import_module("arachne.cli.repair").command
    return [one for one in command.params if isinstance(one, click.Option)]


def _plugins(table: Table) -> Iterable[str]:
    """The names of Arachne's own plug-ins of a kind."""
    yield f"### {table.kind.capitalize()}s\n"
    yield textwrap.fill(", ".join(f"`{name}`" for name in sorted(table.ours)), 120, break_on_hyphens=False) + "\n"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _metavar(parameter: click.Parameter) -> str:
    return parameter.metavar or str(parameter.name).upper()


if __name__ == "__main__":
    main()
