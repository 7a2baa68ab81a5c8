"""Options of localisers, searchers, objectives and tasks on the command line: `-O NAME=VALUE`.

A name is looked up among the plug-ins that the command line has chosen. Where two of them have it, the kind or the
plug-in's own name stands before it: `-O search.depth=2`, `-O hill.depth=2`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click

from arachne.errors import PluginUnavailableError, UsageError, did_you_mean
from arachne.plugins.options import Configured, Option, options_of
from arachne.plugins.table import LOCALISERS, OBJECTIVES, SEARCHERS, TASKS, Table

CHOOSERS = {"localiser": "localiser", "searcher": "search", "objective": "objective", "task": "task"}
"""The flag that chooses a plug-in of a kind."""

CHOSEN_FROM = (SEARCHERS, LOCALISERS, OBJECTIVES, TASKS)

MAX_NAMED = 3
"""More chosen plug-ins than this are not named one by one in a message."""

FLAGS = ("include", "exclude")
"""Options that all localisers have, and that have a flag of their own."""

REMOVED_FLAGS = {
    "--evaluator": "both evaluators take the same decisions, so there is nothing to choose; "
    "in Python Settings(evaluator='plain') runs the slow one",
}
"""Flags that are gone for good, and why."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """A plug-in that a command line has chosen, by flag or by default."""

    table: Table
    name: str

    @classmethod
    def of(cls, table: Table, name: str) -> Chosen:
        """The plug-in of that name.

        Raises:
            UsageError: There is none.
            PluginUnavailableError: It cannot be imported.
        """
        found = cls(table, name_now(table, name))
        table.get(found.name)
        return found

    @property
    def title(self) -> str:
        """`the searcher 'de'`."""
        return f"the {self.table.kind} '{self.name}'"

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The words that may stand before the name of one of its options."""
        before = [old for old, now in self.table.aliases.items() if now == self.name]
        return CHOOSERS[self.table.kind], self.table.kind, self.name, *before

    @cached_property
    def options(self) -> dict[str, Option]:
        """Its options that have no flag, by name."""
        return plugin_options(self.table, self.name)


def name_now(table: Table, name: str) -> str:
    """The name of the plug-in that a word chooses, however it is capitalised and also by a name it had before."""
    known = table.canonical(name)
    return known if known in table.names() else known.lower()


def plugin_options(table: Table, name: str) -> dict[str, Option]:
    """The options of a plug-in that are given with `-O`; none where it cannot be imported."""
    try:
        plugin = table.get(name)
    except PluginUnavailableError:
        return {}
    found = options_of(plugin) if issubclass(plugin, Configured) else ()
    return {option.name: option for option in found if option.name not in FLAGS}


def given_options(
    words: Sequence[str], chosen: Sequence[Chosen], tables: Sequence[Table] = CHOSEN_FROM
) -> dict[Chosen, dict[str, Any]]:
    """The values that `-O` gives to the options of each chosen plug-in.

    Of several plug-ins of one kind, each that has an option gets its value.

    Args:
        words: What stands behind `-O`.
        chosen: The plug-ins that the command line has chosen.
        tables: The kinds that the command has flags to choose from.

    Raises:
        UsageError: None of them has such an option, two kinds have it, or it cannot have that value.
    """
    given: dict[Chosen, dict[str, Any]] = {one: {} for one in chosen}
    for word in words:
        prefix, name, text = split_word(word)
        if name in FLAGS:
            raise UsageError(f"{name} has a flag of its own: --{name} LAYER instead of -O {word}")
        addressed = _plugins_for_prefix(prefix, word, chosen, tables)
        owners = [one for one in addressed if name in one.options]
        if not owners:
            raise UsageError(_nobody_has(name, addressed, () if prefix else tables))
        if len({one.table.kind for one in owners}) > 1:
            spellings = " or ".join(f"-O {one.prefixes[0]}.{name}=VALUE" for one in owners)
            titles = " and ".join(one.title for one in owners)
            raise UsageError(f"{titles} both have the option '{name}': write {spellings}")
        for one in owners:
            given[one][name] = one.options[name].read(text)
    return given


def _plugins_for_prefix(prefix: str, word: str, chosen: Sequence[Chosen], tables: Sequence[Table]) -> list[Chosen]:
    """The plug-ins that a prefix stands for; all of them where it is empty."""
    found = [one for one in chosen if not prefix or prefix in one.prefixes]
    if found or not prefix:
        return found
    for table in tables:
        flag = CHOOSERS[table.kind]
        if prefix in table.names():
            raise UsageError(f"-O {word} is for the {table.kind} '{prefix}', which is not chosen; see --{flag}")
        if prefix in (table.kind, flag):
            raise UsageError(f"-O {word} is for {_a(table.kind)}, and none is chosen; see --{flag}")
    known = dict.fromkeys(prefix for one in chosen for prefix in one.prefixes)
    raise UsageError(f"-O {word} begins with '{prefix}', which is no plug-in here" + did_you_mean(prefix, known))


def _nobody_has(name: str, addressed: Sequence[Chosen], tables: Sequence[Table]) -> str:
    """The reason why an option cannot be given: it belongs to another plug-in, or to none."""
    titles = [one.title for one in addressed] if len(addressed) <= MAX_NAMED else ["those that are chosen"]
    for table in tables:
        owners = owners_of(name, table)
        if owners:
            others = f", not of {' or '.join(titles)}" if titles else ""
            choose = f"--{CHOOSERS[table.kind]} {owners[0]} chooses {'one' if len(owners) > 1 else 'it'}"
            return f"{name} is an option of {_list_names(table, owners)}{others}; {choose}"
    known = dict.fromkeys(option for one in addressed for option in one.options)
    if len(addressed) > MAX_NAMED or not addressed:
        subject = "no plug-in that is chosen here has an"
    else:
        subject = f"neither {' nor '.join(titles)} has an" if len(titles) > 1 else f"{titles[0]} has no"
    return f"{subject} option '{name}'" + did_you_mean(name, known)


def owners_of(name: str, table: Table) -> list[str]:
    """The plug-ins of a kind that have an option of this name."""
    return [owner for owner in table.names() if name in plugin_options(table, owner)]


def spelling_of(flag: str, command: click.Command | None = None) -> str | None:
    """How an option that is written as a flag is given; None if no plug-in that the command chooses has it.

    `--population` and `--no-clip` were flags of Arachne's own plug-ins, `--hill-tries` one of another package's `hill`.
    """
    if flag in REMOVED_FLAGS:
        return f"there is no {flag}: {REMOVED_FLAGS[flag]}"
    written = flag.removeprefix("--").replace("-", "_")
    flags = None if command is None else {word for one in command.params for word in one.opts}
    tables = [table for table in CHOSEN_FROM if flags is None or f"--{CHOOSERS[table.kind]}" in flags]
    for name, off in ((written, False), (written.removeprefix("no_"), True)):
        for table in tables:
            owners = owners_of(name, table)
            if owners:
                option = plugin_options(table, owners[0])[name]
                value = "false" if off else "true" if option.kind == "bool" else "VALUE"
                return f"{flag} is an option of {_list_names(table, owners)}: write -O {name}={value}"
    return _prefixed_spelling(flag, written)


def _prefixed_spelling(flag: str, written: str) -> str | None:
    """How `--hill-tries` is given, where another package has a plug-in `hill` with the option `tries`."""
    for table in CHOSEN_FROM:
        for owner in table.third_party():
            name = written.removeprefix(owner.replace("-", "_") + "_")
            if name != written and name in plugin_options(table, owner):
                return f"{flag} is an option of {_list_names(table, [owner])}: write -O {owner}.{name}=VALUE"
    return None


def plugin_table_hint(command: click.Command, title: str, key: str) -> str | None:
    """Where a plug-in's option belongs that stands among a command's own in a file; None for any other word."""
    name = key.replace("-", "_")
    if not any(isinstance(one, NameValues) for one in command.params):
        return None
    owned = any(owners_of(name, table) for table in CHOSEN_FROM)
    return f", which is a plug-in's: give it in the table [{title}.option]" if owned else None


def _list_names(table: Table, names: Iterable[str]) -> str:
    """`the searchers 'de' and 'front'`."""
    quoted = [f"'{name}'" for name in names]
    if len(quoted) == 1:
        return f"the {table.kind} {quoted[0]}"
    return f"the {table.kind}s {', '.join(quoted[:-1])} and {quoted[-1]}"


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def chosen_plugins(values: Mapping[str, Any]) -> list[Chosen]:
    """The plug-ins that a command's options choose, by flag or by default; those that do not exist are left out."""
    names = [str(name) for name in values.get("searchers") or ()]
    if "search" in values:
        names = [values["search"] or ("de" if values.get("faithful") else "auto")]
    found = _existing(SEARCHERS, *names)
    localiser = values.get("localiser")
    if localiser is None and "search" in values and found:
        localiser = SEARCHERS.get(found[0].name).LOCALISER
    objective = (values.get("objective") or "").partition(":")[0].strip()
    tasks = _existing(TASKS, values.get("task") or "")
    return found + _existing(LOCALISERS, localiser or "") + _existing(OBJECTIVES, objective) + tasks


def _existing(table: Table, *names: str) -> list[Chosen]:
    """The plug-ins of a kind that these words choose."""
    known = table.names()
    return [Chosen(table, now) for now in (name_now(table, name) for name in names) if now in known]


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
