"""The values of a settings file: given to options as the command line would give them, and not believed further.

A file in the working folder may have come with it, from anybody. What lets code run or files be replaced it may not
set, nor may it name a place outside its folder to write to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from arachne.cli.outputs import OutputType
from arachne.cli.user_only import reserved
from arachne.errors import InputError


def as_given(value: Any, parameter: click.Parameter, where: str, key: str) -> bool | str | list[str]:
    """A value of a file as the command line would give it: words, and truth for flags."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        if not isinstance(value, bool):
            raise InputError(f"{where} has {_toml_kind(value)} for '{key}', expected true or false")
        return value
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


def _toml_kind(value: Any) -> str:
    kinds = {bool: "true or false", list: "a list", dict: "a table", str: "a text", int: "a number", float: "a number"}
    return kinds.get(type(value), "a date or time")


def check_unnamed(path: Path, key: str, value: bool | str | list[str], parameter: click.Parameter) -> None:
    """Refuse what a file that merely lies in the folder must not do.

    Raises:
        InputError: It lets code run or files be replaced, or writes elsewhere; the sentence tells how to allow it.
    """
    words = [str(word) for word in (value if isinstance(value, list) else [value])]
    factory = key == "model-file" and any(":" in word and not Path(word).exists() for word in words)
    if factory or reserved(parameter, value):
        raise InputError(
            f"'{path}' sets '{key}', which lets code run or files be replaced; only the command line may, or a file "
            f"named there (--config {path})"
        )
    here = Path.cwd().resolve()
    for word in words if isinstance(parameter.type, OutputType) else ():
        if not (here / word).resolve().is_relative_to(here):
            raise InputError(
                f"'{path}' lets '{key}' write to '{word}', outside its folder; only the command line may, or a file "
                f"named there (--config {path})"
            )
