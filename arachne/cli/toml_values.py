"""The values of a settings file, given to options as the command line would give them."""

from __future__ import annotations

from typing import Any

import click

from arachne.cli.name_values import NameValues
from arachne.errors import InputError


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
