"""Flags for choosing a localiser or a searcher, and for all that those declare as their options.

An option of ours is a flag of the same name. One that several plug-ins declare alike is one flag. Any other option of a
third party has the plug-in's name before it, `--tally-rounds`, so that it never collides with ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from arachne.cli.options import Command, complete_names, options
from arachne.errors import PluginUnavailableError, UsageError
from arachne.localise import MIN_WEIGHTS
from arachne.options import Configured, Option, options_of
from arachne.plugins import LOCALISERS, OBJECTIVES, SEARCHERS, Table

if TYPE_CHECKING:
    from arachne.fairness import Objective

CHOOSERS = {"localiser": "localiser", "searcher": "search", "objective": "objective"}
"""The option that chooses a plug-in of a kind."""

PAPERS = ("bl", "de")
"""The localiser and the searcher of the paper."""

SHOWN = {
    "localiser": "contrast; bl with --search de or rt, all with tune, apricot, deepfault or mode",
    "searcher": "auto; de when faithful",
}
"""What a repair takes when neither is named."""

WIDENED = {"min_weights": f"{MIN_WEIGHTS}; 0 when faithful"}
"""What a repair takes where it differs from the option's own default."""

TYPES: Mapping[str, Any] = {"int": click.INT, "float": click.FLOAT, "tuple[float, float]": click.FLOAT}


@dataclass(frozen=True)
class Flag:
    """An option on the command line.

    Attributes:
        name: As click has it.
        option: What it sets, as the first of its owners declares it.
        owners: The plug-ins that have this option.
        default: What it is when left out, where all owners agree.
    """

    name: str
    option: Option
    owners: tuple[str, ...]
    default: Any

    def shared_with(self, owner: str, other: Option) -> Flag:
        """The same flag for one more plug-in."""
        same = self.default == other.default
        return replace(self, owners=(*self.owners, owner), default=self.default if same else None)

    def decorator(self, *, faithful: bool) -> Callable[[Command], Command]:
        """The flag as click's decorator; with `faithful` for a command that can follow the paper."""
        option, default = self.option, self.default
        dash = "--" + self.name.replace("_", "-")
        more: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "show_default": True}
        if faithful and option.name in WIDENED:
            default, more["show_default"] = None, WIDENED[option.name]
        elif faithful and option.paper != option.default:
            shown = f"{_shown(default)}; {_shown(option.paper)} when faithful"
            default, more["show_default"] = None, shown
        if option.kind == "bool":
            flags = dash if option.default is False else f"{dash}/--no-{dash[2:]}"
            return click.option(flags, self.name, is_flag=True, default=default, **_plain(more, default))
        if option.kind == "tuple[str, ...]":
            more["help"] += " Repeatable."
            return click.option(dash, self.name, multiple=True, **more | {"show_default": False})
        if option.kind == "tuple[float, float]":
            more |= {"nargs": 2, "metavar": option.metavar or "LOW HIGH"}
        kind = click.Choice(option.choices) if option.choices else TYPES.get(option.kind, click.STRING)
        return click.option(dash, self.name, type=kind, default=default, **_plain(more, default))


def flags_of(table: Table) -> list[Flag]:
    """All flags of the plug-ins of a kind; those that cannot be imported have none."""
    flags: dict[str, Flag] = {}
    for owner in [*table.ours, *table.third_party()]:
        try:
            plugin = table.get(owner)
        except PluginUnavailableError:
            continue
        for option in options_of(plugin) if issubclass(plugin, Configured) else ():
            known = flags.get(option.name)
            if known is not None and (known.option.kind, known.option.choices) == (option.kind, option.choices):
                flags[option.name] = known.shared_with(owner, option)
            else:
                name = option.name if known is None and owner in table.ours else f"{owner}_{option.name}"
                flags[name] = Flag(name.replace("-", "_"), option, (owner,), option.default)
    return list(flags.values())


def plugin_flags(table: Table, *, faithful: bool = False) -> Callable[[Command], Command]:
    """The flag that chooses a plug-in of a kind, and those of all their options."""
    names = [f"{name} (the paper's)" if name in PAPERS else name for name in table.names()]
    listed = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
    usual: dict[str, Any] = {"show_default": SHOWN[table.kind]} if faithful else {"default": "bl", "show_default": True}
    choose = click.option(
        f"--{CHOOSERS[table.kind]}", metavar="NAME", help=f"{listed}.", shell_complete=complete_names(table), **usual
    )
    return options(choose, *(flag.decorator(faithful=faithful) for flag in flags_of(table)))


def option_flags(table: Table) -> Callable[[Command], Command]:
    """The flags of all options of the plug-ins of a kind, for a command that takes several of them."""
    return options(*(flag.decorator(faithful=False) for flag in flags_of(table)))


def given_options(
    context: click.Context, table: Table, arguments: dict[str, Any], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Take the options of a kind's plug-ins out of a command's arguments: those given, by the plug-ins that have them.

    Raises:
        UsageError: An option belongs to none of these plug-ins.
    """
    given: dict[str, dict[str, Any]] = {name: {} for name in names}
    for flag in flags_of(table):
        value = arguments.pop(flag.name)
        if context.get_parameter_source(flag.name) in (None, ParameterSource.DEFAULT):
            continue
        owners = [name for name in names if name in flag.owners]
        if not owners:
            dash = flag.name.replace("_", "-")
            known = " and ".join(f"'{owner}'" for owner in flag.owners)
            raise UsageError(f"--{dash} is an option of the {table.kind} {known}, which is not compared")
        for name in owners:
            given[name][flag.option.name] = value
    return given


def taken_options(context: click.Context, table: Table, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Take the chosen plug-in and the options given for it out of a command's arguments.

    Raises:
        UsageError: There is no such plug-in, or an option belongs to another one.
    """
    chosen = str(arguments.pop(CHOOSERS[table.kind]))
    given: dict[str, Any] = {}
    name = chosen if chosen in table.names() else chosen.lower()
    table.get(name)
    for flag in flags_of(table):
        value = arguments.pop(flag.name)
        if context.get_parameter_source(flag.name) in (None, ParameterSource.DEFAULT):
            continue
        if name not in flag.owners:
            owners = " and ".join(f"'{owner}'" for owner in flag.owners)
            raise UsageError(
                f"--{flag.name.replace('_', '-')} is an option of the {table.kind} {owners}, not of '{name}'; "
                f"--{CHOOSERS[table.kind]} {flag.owners[0]} chooses it"
            )
        given[flag.option.name] = value
    return name, given


def taken_objective(context: click.Context, arguments: dict[str, Any]) -> Objective | None:
    """Take the objective and its options out of a command's arguments; None when none is named.

    Raises:
        UsageError: There is no such objective, or an option is given without one.
    """
    from arachne.settings import make_objective

    text = arguments.pop("objective")
    name = "" if text is None else text.partition(":")[0].strip()
    if name:
        OBJECTIVES.get(name)
    given: dict[str, Any] = {}
    for flag in flags_of(OBJECTIVES):
        value = arguments.pop(flag.name)
        if context.get_parameter_source(flag.name) in (None, ParameterSource.DEFAULT):
            continue
        if name not in flag.owners:
            owner = f"not of '{name}'" if name else "which --objective names"
            raise UsageError(f"--{flag.name.replace('_', '-')} is an option of an objective, {owner}")
        given[flag.option.name] = value
    if text is not None and ":" in text and "group_column" in given:
        raise UsageError(f"--objective {text} and --group-column both name a column; leave out one of them")
    return None if text is None else make_objective(text, **given)


def _plain(more: dict[str, Any], default: Any) -> dict[str, Any]:
    """Without a default to show where there is none."""
    if more["show_default"] is True and (default is None or default is False):
        more["show_default"] = False
    return more


def _shown(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


localiser_flags = plugin_flags(LOCALISERS)
objective_flags = options(
    click.option(
        "--objective",
        metavar="NAME[:COLUMN]",
        help="What to make fairer between the groups of a metadata column, instead of repairing as much as possible: "
        f"{', '.join(OBJECTIVES.names())}.",
    ),
    option_flags(OBJECTIVES),
)
repair_flags = options(plugin_flags(LOCALISERS, faithful=True), plugin_flags(SEARCHERS, faithful=True), objective_flags)
