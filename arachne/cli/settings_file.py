"""A settings file as it is read: which options it sets for a command, and in which line.

data = "val.npz"                # for every command that takes --data
[repair]
target = ["6:0"]
fail-if = ["break_rate > 0.5%"]
[repair.option]                 # for the searcher, the localiser and the objective, as -O
steps = 64
"""

from __future__ import annotations

import importlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from arachne.cli.plugin_options import NameValues, plugin_table_hint
from arachne.cli.provenance import Origin, Source, setting_names
from arachne.errors import InputError, did_you_mean
from arachne.io.reading import error_text, read_text

FILE = "arachne.toml"
MAX_BYTES, MAX_DOTS = 1 << 16, 1000
"""More bytes than this are no settings, nor is a line with more dots."""


@dataclass(frozen=True)
class Setting:
    """A value that a file or the environment gives an option.

    Attributes:
        parameter: The option.
        value: As the command line would give it; of `-O`, one word.
        source: Where it stands.
    """

    parameter: click.Parameter
    value: bool | str | list[str]
    source: Source


def read_settings(named: Path | None, command: str, owner: click.Command) -> list[Setting]:
    """Read what a file sets for a command.

    Args:
        named: The file the user names; None for the one in the working folder, if there is one.
        command: The command's name, and that of its table.
        owner: The command.

    Raises:
        InputError: No such file, not TOML, a value of another kind, or an option that the command, or for one above all
            tables every command, does not have.
    """
    if named is None and not os.path.lexists(FILE):
        return []
    path, origin = (Path(FILE), Origin.FOUND) if named is None else (named, Origin.NAMED)
    text = read_text(path, "settings", MAX_BYTES)
    content = _parse(path, text)
    known = {name: parameter for parameter in owner.params for name in setting_names(parameter)}
    own = content.get(command, {})
    if not isinstance(own, Mapping):
        raise InputError(f"'{path}' has '{command}' as a value, expected a table of options, [{command}]")
    lines = lines_of_keys(text)
    for key in own:
        if key not in known:
            where = Source(origin, str(path), lines.get((command, key))).text
            hint = plugin_table_hint(owner, command, key) or did_you_mean(key, known)
            raise InputError(f"{where} has the option '{key}' for {command}" + hint)
    common = {key: value for key, value in content.items() if not isinstance(value, Mapping) and key in known}
    for key in content.keys() - known.keys():
        _check_known_elsewhere(
            key, Source(origin, str(path), lines.get((key,))), table=isinstance(content[key], Mapping)
        )
    found = []
    for key, value in {**common, **own}.items():
        line = lines.get((command, key), lines.get((command,))) if key in own else lines.get((key,))
        source = Source(origin, str(path), line)
        given = as_given(value, known[key], source.text, key)
        if isinstance(known[key], NameValues) and isinstance(given, list):
            found += _word_settings(known[key], given, source, lines, (command, key))
        else:
            found.append(Setting(known[key], given, source))
    return found


def _check_known_elsewhere(key: str, source: Source, *, table: bool) -> None:
    """Refuse a table that is no command's, or an option above all tables that no command has.

    Raises:
        InputError: Nothing is called so.
    """
    from arachne.cli import COMMANDS

    if table:
        if key not in COMMANDS:
            raise InputError(f"{source.text} has the table [{key}], which is no command{did_you_mean(key, COMMANDS)}")
        return
    names: dict[str, None] = {}
    for command in sorted(COMMANDS, key="repair".__ne__):  # it has most of them
        owner: click.Command = importlib.import_module(f"arachne.cli.{command}").command
        names |= dict.fromkeys(name for parameter in owner.params for name in setting_names(parameter))
        if key in names:
            return
    raise InputError(f"{source.text} has the option '{key}', which no command has{did_you_mean(key, names)}")


def _word_settings(
    parameter: click.Parameter,
    words: list[str],
    source: Source,
    lines: Mapping[tuple[str, ...], int],
    table: tuple[str, str],
) -> list[Setting]:
    """One setting for each word of `-O`, with the line of its name where it has one of its own."""
    own = {".".join(key[2:]): line for key, line in lines.items() if key[:2] == table and len(key) > 2}
    return [
        Setting(parameter, word, replace(source, line=own.get(word.partition("=")[0], source.line))) for word in words
    ]


def lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """The line in which each key of a TOML file first stands, by the tables that lead to it."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            table = _key_in(line) or table
        elif "=" in line:
            key = _key_in(line.partition("=")[0] + "= 0")
            if key:
                lines.setdefault((*table, *key), number)
    return lines


def _key_in(line: str) -> tuple[str, ...]:
    """The dotted key of one line; none where the line is the middle of a longer value."""
    try:
        content: Any = tomllib.loads(line)
    except (ValueError, RecursionError):
        return ()
    key: tuple[str, ...] = ()
    while isinstance(content, dict) and content:
        name, content = next(iter(content.items()))
        key += (name,)
    return key


def _parse(path: Path, text: str) -> dict[str, Any]:
    if any(line.count(".") > MAX_DOTS for line in text.splitlines()):  # the parser takes the square of their number
        raise InputError(f"'{path}' has a line with more than {MAX_DOTS:,} dots, which no settings have")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not TOML: {error_text(error)}") from error


def as_given(value: Any, parameter: click.Parameter, where: str, key: str) -> bool | str | list[str]:
    """A value of a file as the command line would give it: words, and truth for flags."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        if not isinstance(value, bool):
            raise InputError(f"{where} has {_toml_kind(value)} for '{key}', expected true or false")
        return value
    if isinstance(parameter, NameValues) and isinstance(value, dict):
        return _table_words(value, where, key)
    many = parameter.nargs != 1 or (isinstance(parameter, click.Option) and parameter.multiple)
    if many and isinstance(value, list):
        return [_word(one, where, key) for one in value]
    word = _word(value, where, key)
    return [word] if many and parameter.nargs == 1 else word


def _word(value: Any, where: str, key: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InputError(f"{where} has {_toml_kind(value)} for '{key}', expected a text or a number")
    text = str(value)
    if "\0" in text:
        raise InputError(f"{where} has a text with a zero byte for '{key}'")
    return text


def _table_words(table: dict[str, Any], where: str, key: str, prefix: str = "") -> list[str]:
    """A table such as `[repair.option]` as the words of a command line: `steps=64`, `localiser.count=16`."""
    words = []
    for name, value in table.items():
        if isinstance(value, dict):
            words += _table_words(value, where, key, f"{prefix}{name}.")
            continue
        parts = value if isinstance(value, list) else [value]
        texts = [str(one).lower() if isinstance(one, bool) else _word(one, where, f"{key}.{name}") for one in parts]
        words.append(f"{prefix}{name}={','.join(texts)}")
    return words


def _toml_kind(value: Any) -> str:
    kinds = {bool: "true or false", list: "a list", dict: "a table", str: "a text", int: "a number", float: "a number"}
    return kinds.get(type(value), "a date or time")
