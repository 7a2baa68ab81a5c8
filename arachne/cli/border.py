"""The border for settings: which source may set which option.

Words that are typed, and a file that is named with `--config`, are the user's and may set every option. The
environment, and an `arachne.toml` that lies in the working folder, are merely found and may come from a stranger. They
set an option only where it is declared by `harmless_option`; every other option, and every new one, is refused. Behind
`-O` they set the numbers, switches and choices of Arachne's own plug-ins.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from arachne.cli.plugin_options import CHOSEN_FROM, Chosen, NameValues, name_now
from arachne.cli.provenance import Origin, Source, option_text
from arachne.errors import InputError, UsageError, did_you_mean
from arachne.plugins.options import Option
from arachne.plugins.table import Table

NUMBERS = frozenset({"integer", "integer range", "float", "float range", "size", "share", "duration"})
HARMLESS_KINDS = NUMBERS | {"boolean", "choice", "plug-in"}
"""The names of the types that a harmless option may have: none of them is a text that could name a path or code."""

HARMLESS_PLUGIN_KINDS = frozenset({"int", "float", "bool", "tuple[float, float]"})
"""The kinds of a plug-in's option that are no text."""

HARMLESS_ONLY = "may only set numbers, switches and names of Arachne's own plug-ins, where they are harmless"


class PluginName(click.types.StringParamType):
    """The name of a plug-in; found settings may give those that come with Arachne."""

    name = "plug-in"

    def __init__(self, table: Table) -> None:
        self.table = table


class HarmlessOption(click.Option):
    """An option that found settings may set: no value of it connects, runs code, or reads or writes a file."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if self.type.name not in HARMLESS_KINDS:
            raise TypeError(f"{self.opts[0]} takes '{self.type.name}', which cannot be declared harmless")


harmless_option = functools.partial(click.option, cls=HarmlessOption)
"""`click.option` for an option that found settings may set."""


def may_be_found(parameter: click.Parameter) -> bool:
    """Whether found settings may set an option, or some of the names behind `-O`."""
    return isinstance(parameter, (HarmlessOption, NameValues))


def is_refused(parameter: click.Parameter, value: bool | str | Sequence[str], source: Source) -> bool:
    """Whether a value may not come from where it came from."""
    if not source.is_found:
        return False
    if isinstance(parameter.type, PluginName):
        words = [value] if isinstance(value, (bool, str)) else value
        table = parameter.type.table
        return not may_be_found(parameter) or any(name_now(table, str(word)) not in table.ours for word in words)
    return not may_be_found(parameter)


def check_source(parameter: click.Parameter, value: bool | str | Sequence[str], source: Source) -> None:
    """Refuse a value that may not come from where it came from.

    Raises:
        InputError: A file that merely lies in the folder sets it.
        UsageError: The environment sets it.
    """
    if not is_refused(parameter, value, source):
        return
    _refuse(option_text(parameter), source)


def word_may_be_found(word: str, chosen: Sequence[Chosen]) -> bool:
    """Whether found settings may give a word to `-O`: only a number, a switch or a choice of Arachne's own plug-ins.

    Args:
        word: `search.population=9`.
        chosen: The plug-ins that the command line has chosen; those of other packages take nothing that is found.
    """
    name, equals, _ = word.partition("=")
    prefix, _, name = name.strip().rpartition(".")
    name = name.replace("-", "_")
    others = [one for one in chosen if one.name not in one.table.ours]
    addressed = [one for one in (*_our_plugins(), *others) if not prefix or prefix in one.prefixes]
    owners = [one for one in addressed if name in one.options]
    ours = all(one.name in one.table.ours for one in owners)
    return bool(equals and owners) and ours and all(_is_harmless(one.options[name]) for one in owners)


def check_word(word: str, chosen: Sequence[Chosen], source: Source) -> None:
    """Refuse a word for `-O` that may not come from where it came from.

    Raises:
        InputError: A file that merely lies in the folder gives it.
        UsageError: The environment gives it.
    """
    if not source.is_found or word_may_be_found(word, chosen):
        return
    name = word.partition("=")[0].strip()
    near = did_you_mean(name, {option: None for one in _our_plugins() for option in one.options})
    known = any(name.rpartition(".")[2].replace("-", "_") in one.options for one in (*_our_plugins(), *chosen))
    _refuse(f"-O {name}", source, near if near.endswith("?") and not known else "")


@functools.cache
def _our_plugins() -> tuple[Chosen, ...]:
    return tuple(Chosen(table, name) for table in CHOSEN_FROM for name in table.ours)


def _is_harmless(option: Option) -> bool:
    return option.choices is not None or option.kind in HARMLESS_PLUGIN_KINDS


def _refuse(option: str, source: Source, hint: str = "") -> NoReturn:
    if source.origin is Origin.ENVIRONMENT:
        raise UsageError(
            f"{source.origin_name} sets {option}, and the environment {HARMLESS_ONLY}; type {option}, or put it into a "
            f"file that you name (--config FILE){hint}"
        )
    raise InputError(
        f"{source.text} sets {option}, and a file that is merely found {HARMLESS_ONLY}; type {option}, or name the "
        f"file (--config {source.origin_name}){hint}"
    )
