"""Write the part of docs/reference/cli.md that lists commands and options, from the commands themselves.

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
from arachne.cli.gating import gate_options
from arachne.cli.plugin_flags import localiser_flags, repair_flags

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
BEGIN, END = "<!-- begin: made by scripts/make_cli_reference.py -->\n", "<!-- end -->\n"


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def filled(page: str) -> str:
    """The page with its middle part as the commands are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + "\n".join(reference()) + "\n" + END + after


def reference() -> Iterable[str]:
    """The lines of both sections: options that commands share, then command by command."""
    shared = {
        "Model options": _options_of(options.model_options),
        "Data options": _options_of(options.data_options),
        "Localiser options": _both(_options_of(localiser_flags), _options_of(repair_flags)),
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
    if rows:
        yield from _table(rows)
    yield f"Also: {', '.join(taken)}.\n"


def _identity(parameter: click.Parameter) -> tuple[str, ...]:
    return tuple(str(getattr(parameter, name, None)) for name in ("name", "help", "show_default"))


def _both(first: list[click.Parameter], second: list[click.Parameter]) -> list[click.Parameter]:
    """The options of the first list that the second has too."""
    others = {_identity(parameter) for parameter in second}
    return [parameter for parameter in first if _identity(parameter) in others]


def _options_of(decorate: Any) -> list[click.Parameter]:
    """What a decorator adds to a command."""

    def nothing() -> None:
        """Take no options of its own."""

    return click.command()(decorate(nothing)).params


def _table(parameters: Iterable[click.Parameter]) -> Iterable[str]:
    yield "| option | meaning |\n|---|---|"
    for parameter in parameters:
        if isinstance(parameter, click.Option):
            yield f"| {_written(parameter)} | {_meaning(parameter)} |"
        else:
            yield f"| `{_metavar(parameter)}` | The model file. |"
    yield ""


def _written(option: click.Option) -> str:
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
    text = (option.help or "").replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
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
