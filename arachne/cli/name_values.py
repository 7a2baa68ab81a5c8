"""`-O NAME=VALUE`: a repeatable option that gives options of plug-ins their values."""

from __future__ import annotations

import click

from arachne.errors import UsageError


class NameValues(click.Option):
    """An option of the form NAME=VALUE, whose words `arachne.cli.option_words` puts together from all sources."""


def split_word(word: str) -> tuple[str, str, str]:
    """The prefix, the option's name and the value of `search.min-weights=5`; the prefix is empty without a dot.

    Raises:
        UsageError: It is of another form.
    """
    name, equals, value = word.partition("=")
    prefix, _, option = name.strip().rpartition(".")
    if not equals or not option:
        raise UsageError(f"-O takes an option's name and its value, such as steps=64, got '{word}'")
    return prefix, option.replace("-", "_"), value.strip()
