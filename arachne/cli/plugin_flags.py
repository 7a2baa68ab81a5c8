"""The flags that choose a localiser, a searcher or an objective, and `-O` for the options of those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.border import PluginName, harmless_option
from arachne.cli.options import Command, complete_names, options
from arachne.cli.plugin_options import Chosen, NameValues, chosen_plugins, given_options
from arachne.errors import UsageError
from arachne.plugins.table import LOCALISERS, OBJECTIVES, SEARCHERS, TASKS, Table

if TYPE_CHECKING:
    from arachne.fairness import Objective

PAPERS = ("bl", "de")
"""The localiser and the searcher of the paper."""

REPAIR_LOCALISER = "the one the search is made for: contrast for auto, bl for de"
REPAIR_SEARCHER = "auto; de when faithful"
"""The localiser and the searcher of a repair that names neither."""


def names_listed(table: Table) -> str:
    """`bl (the paper's), contrast or gl`."""
    names = [f"{name} (the paper's)" if name in PAPERS else name for name in table.names()]
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]


def complete_option(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete an option of the chosen plug-ins, or behind `=` its value."""
    written, equals, _ = incomplete.partition("=")
    prefix, _, name = written.rpartition(".")
    lead = f"{prefix}." if prefix else ""
    chosen = [one for one in chosen_plugins(context.params) if not prefix or prefix in one.prefixes]
    known = {option.name: option for one in chosen for option in one.options.values()}
    if equals:
        option = known.get(name.replace("-", "_"))
        words = [f"{written}={value}" for value in (option.values if option else ())]
    else:
        words = [f"{lead}{option}=" for option in sorted(known)]
    return [word for word in words if word.startswith(incomplete)]


def plugin_option(*kinds: str) -> Callable[[Command], Command]:
    """`-O`, for a command that chooses plug-ins of these kinds."""
    example = (
        "steps=64"
        if "searcher" in kinds
        else "count=16"
        if "localiser" in kinds
        else "group_size=20"
        if "objective" in kinds
        else "ignore_index=0"
    )
    owner = f"{', '.join(kinds[:-1])} or {kinds[-1]}" if len(kinds) > 1 else kinds[0]
    return click.option(
        "-O",
        "--option",
        "plugin_options",
        cls=NameValues,
        multiple=True,
        metavar="NAME=VALUE",
        help=f"An option of the {owner}, such as {example}; 'arachne plugins NAME' lists them. Repeatable.",
        shell_complete=complete_option,
    )


localiser_option = harmless_option(
    "--localiser",
    type=PluginName(LOCALISERS),
    metavar="NAME",
    show_default="bl; contrast for other tasks than a single label",
    help=f"{names_listed(LOCALISERS)}.",
    shell_complete=complete_names(LOCALISERS),
)
layer_options = options(
    click.option("--include", multiple=True, metavar="LAYER", help="Look only at these layers (* works). Repeatable."),
    click.option("--exclude", multiple=True, metavar="LAYER", help="Leave these layers out. Repeatable."),
)
objective_option = harmless_option(
    "--objective",
    type=PluginName(OBJECTIVES),
    metavar="NAME[:COLUMN]",
    help="Choose the repair that is fairest to the groups of a metadata column, not the one that repairs most: "
    f"{', '.join(OBJECTIVES.names())}.",
    shell_complete=complete_names(OBJECTIVES),
)
search_options = options(
    harmless_option(
        "--search",
        type=PluginName(SEARCHERS),
        metavar="NAME",
        show_default=REPAIR_SEARCHER,
        help=f"{names_listed(SEARCHERS)}.",
        shell_complete=complete_names(SEARCHERS),
    ),
    harmless_option(
        "--localiser",
        type=PluginName(LOCALISERS),
        metavar="NAME",
        show_default=REPAIR_LOCALISER,
        help=f"{names_listed(LOCALISERS)}.",
        shell_complete=complete_names(LOCALISERS),
    ),
    layer_options,
    plugin_option("searcher", "localiser", "objective", "task"),
)
localiser_flags = options(localiser_option, layer_options, plugin_option("localiser", "task"))
objective_flags = options(objective_option, plugin_option("objective", "task"))


def pop_layers(arguments: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Take `--include` and `--exclude` out of a command's arguments and return those that were given."""
    return {name: value for name in ("include", "exclude") if (value := arguments.pop(name))}


def chosen_objective(text: str | None) -> list[Chosen]:
    """The objective that `--objective` names, if any, for `given_options`."""
    return [] if text is None else [Chosen.of(OBJECTIVES, text.partition(":")[0].strip())]


def make_chosen_objective(text: str | None, given: dict[str, Any]) -> Objective | None:
    """The objective of `--objective` with its options; None when none is named.

    Raises:
        UsageError: Its column is given twice.
    """
    from arachne.settings import make_objective

    if text is not None and ":" in text and "group_column" in given:
        raise UsageError(f"--objective {text} and -O group_column both name a column; leave out one of them")
    return None if text is None else make_objective(text, **given)


def pop_objective(
    arguments: dict[str, Any], tasks: Sequence[Chosen] = ()
) -> tuple[Objective | None, dict[Chosen, dict[str, Any]]]:
    """Take the objective and the words of `-O` out of a command's arguments.

    Returns:
        The objective with its options, None when none is named; and what `-O` gives to each plug-in.

    Raises:
        UsageError: There is no such objective, or an option is given without one.
    """
    text, words = arguments.pop("objective"), arguments.pop("plugin_options")
    chosen = chosen_objective(text)
    given = given_options(words, [*chosen, *tasks], [OBJECTIVES, TASKS])
    return make_chosen_objective(text, given[chosen[0]] if chosen else {}), given
