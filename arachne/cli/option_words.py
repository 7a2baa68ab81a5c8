"""The words of `-O NAME=VALUE`, put together name by name from a file, the environment and the command line."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click
from click.core import ParameterSource

from arachne.cli.border import check_word, word_may_be_found
from arachne.cli.plugin_options import Chosen, NameValues, chosen_plugins, given_options
from arachne.cli.provenance import DEFAULT, TYPED, Origin, Source
from arachne.cli.settings_file import Setting
from arachne.errors import InputError, UsageError

CLICK_SOURCES = {Origin.TYPED: ParameterSource.COMMANDLINE, Origin.ENVIRONMENT: ParameterSource.ENVIRONMENT}
"""Where click says that a value came from; all others come from its default map."""


@dataclass(frozen=True)
class WordEntry:
    """A name behind `-O`, as settings are shown.

    Attributes:
        name: `option.population`, which is also its key in a file.
        value: What it is set to; None where every source was refused.
        source: Where the value came from.
        may_be_found: Whether found settings may set it.
        refused: The sources that may not set it, and tried.
    """

    name: str
    value: bool | float | str | None
    source: Source
    may_be_found: bool
    refused: tuple[str, ...] = ()


def take_words(ctx: click.Context, parameter: NameValues, settings: Sequence[Setting]) -> None:
    """Merge the words for `-O` from a file, the environment and the command line.

    For each name, the command line wins over the environment and the environment over the file.

    Raises:
        InputError: A file that merely lies in the folder gives a word that it may not.
        UsageError: The environment does.
    """
    name = str(parameter.name)
    typed = [Setting(parameter, str(word), TYPED) for word in ctx.params.get(name) or ()]
    if not settings and not typed:
        return
    chosen = chosen_plugins(ctx.params)
    taken: list[Setting] = []
    refused: list[Setting] = []
    for one in settings:
        if not ctx.resilient_parsing:  # as when settings are only shown
            check_word(str(one.value), chosen, one.source)
        allowed = not one.source.is_found or word_may_be_found(str(one.value), chosen)
        (taken if allowed else refused).append(one)
    words = latest_words([*taken, *typed])
    ctx.meta["arachne.refused"] += refused
    ctx.meta["arachne.settings"] += taken
    ctx.meta["arachne.words"] = _entries(words, refused, chosen)
    ctx.params[name] = tuple(str(one.value) for one in words)
    if words:
        ctx.set_parameter_source(name, CLICK_SOURCES.get(words[-1].source.origin, ParameterSource.DEFAULT_MAP))


def check_words_of_files(ctx: click.Context) -> None:
    """Say of a word that the plug-ins of this run do not take where it stands, if that is a file.

    Raises:
        InputError: A file gives such a word.
    """
    for one in ctx.meta["arachne.settings"]:
        if isinstance(one.parameter, NameValues) and one.source.origin in (Origin.NAMED, Origin.FOUND):
            try:
                given_options([str(one.value)], chosen_plugins(ctx.params))
            except UsageError as error:
                raise InputError(f"{one.source.text} has -O {one.value}: {error}") from error


def latest_words(words: Iterable[Setting]) -> list[Setting]:
    """The last word for each name, in the order in which they were given."""
    latest: dict[str, Setting] = {}
    for one in words:
        name = _name_in(one)
        latest.pop(name, None)
        latest[name] = one
    return list(latest.values())


def word_entries(ctx: click.Context) -> list[WordEntry]:
    """Every name that `-O` gives a value in this run, or that a source tried to give one."""
    found: list[WordEntry] = ctx.meta.get("arachne.words", [])
    return found


def _entries(words: Sequence[Setting], refused: Sequence[Setting], chosen: Sequence[Chosen]) -> list[WordEntry]:
    entries = {}
    for one in words:
        word = str(one.value)
        value, harmless = plain_value(word.partition("=")[2].strip()), word_may_be_found(word, chosen)
        entries[_name_in(one)] = WordEntry(f"option.{_name_in(one)}", value, one.source, harmless)
    stopped: dict[str, tuple[str, ...]] = {}
    for one in refused:
        stopped[_name_in(one)] = (*stopped.get(_name_in(one), ()), one.source.text)
    for name, sources in stopped.items():
        known = entries.get(name, WordEntry(f"option.{name}", None, DEFAULT, may_be_found=False))
        entries[name] = WordEntry(known.name, known.value, known.source, may_be_found=False, refused=sources)
    return list(entries.values())


def _name_in(setting: Setting) -> str:
    """The name in `search.min-weights=5`, spelt as the plug-in declares it."""
    prefix, dot, option = str(setting.value).partition("=")[0].strip().rpartition(".")
    return prefix + dot + option.replace("-", "_")


def plain_value(text: str) -> bool | float | str:
    """The number or the truth that a text is written as; any other text as it is."""
    for kind in (int, float):
        with contextlib.suppress(ValueError, OverflowError):
            value = kind(text)
            if str(value) == text and math.isfinite(value):
                return value
    return {"true": True, "false": False}.get(text, text)
