"""`arachne plugins`: which searchers, localisers, tasks and other plug-ins there are, and their options."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import Command
from arachne.cli.plugin_options import CHOOSERS, FLAGS
from arachne.errors import PluginUnavailableError, UsageError, did_you_mean
from arachne.localise import MIN_WEIGHTS
from arachne.plugins.options import Configured, Option, options_of
from arachne.plugins.table import BACKENDS, FINDERS, LOCALISERS, OBJECTIVES, SEARCHERS, TASKS, Table

if TYPE_CHECKING:
    from rich.console import RenderableType

LISTED = (SEARCHERS, LOCALISERS, OBJECTIVES, TASKS, FINDERS, BACKENDS)

SCHEMA = "arachne.plugins/1"


@dataclass(frozen=True)
class Plugin:
    """A plug-in as it is listed.

    Attributes:
        kind: `searcher`, `localiser`, `objective`, `task`, `finder` or `backend`.
        name: What it is called by.
        summary: What it does, one line; or why it cannot be used.
        about: What it does, in full.
        package: The distribution it comes from; None for Arachne's own.
        options: What can be set.
    """

    kind: str
    name: str
    summary: str
    about: str = ""
    package: str | None = None
    options: tuple[Option, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        names = ("name", "help", "default", "paper", "least", "most", "choices")
        options = [{"type": one.accepts, **{name: getattr(one, name) for name in names}} for one in self.options]
        own = {"kind": self.kind, "name": self.name, "summary": self.summary, "package": self.package}
        return {**own, "options": options}


def complete_plugin(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a plug-in."""
    names = dict.fromkeys(name for table in LISTED for name in table.names())
    return [name for name in names if name.startswith(incomplete)]


@click.command(cls=Command, short_help="List searchers, localisers and other plug-ins, or the options of one.")
@click.argument("name", required=False, shell_complete=complete_plugin)
@output_options
def command(name: str | None) -> None:
    """List every searcher, localiser, objective, task, finder and backend; with NAME, what one does and its options.

    An option is given with -O NAME=VALUE to a command that uses the plug-in.
    """
    from rich.console import Group

    from arachne.cli.console import Output

    output = Output()
    found = [plugin for table in LISTED for plugin in plugins_of(table, name)]
    if not found:
        known = dict.fromkeys(one for table in LISTED for one in table.names())
        raise UsageError(f"no plug-in named '{name}'" + did_you_mean(str(name), known))
    shown = listing(found) if name is None else Group(*(part for one in found for part in page(one)))
    output.result(shown, {"schema": SCHEMA, "plugins": [one.to_json() for one in found]})


def plugins_of(table: Table, name: str | None = None) -> list[Plugin]:
    """The plug-ins of a kind, or the one of that name; no framework is imported to tell of backends."""
    if table is BACKENDS:
        from arachne.model import registry

        states = [one for one in registry.states() if name in (None, one.name)]
        return [
            Plugin(table.kind, one.name, one.problem or f"{' '.join(one.suffixes)} ({one.version})") for one in states
        ]
    return [describe(table, one) for one in table.names() if name in (None, one)]


def describe(table: Table, name: str) -> Plugin:
    """A plug-in with the text of its class; one that cannot be imported says why."""
    try:
        plugin = table.get(name)
    except PluginUnavailableError as error:
        return Plugin(table.kind, name, str(error))
    text = inspect.cleandoc(plugin.__doc__ or "").partition("\n\nAttributes:")[0]
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    options = options_of(plugin) if issubclass(plugin, Configured) else ()
    return Plugin(table.kind, name, paragraphs[0], "\n\n".join(paragraphs), table.origin(plugin), options)


def listing(plugins: list[Plugin]) -> RenderableType:
    """One line for each."""
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid("kind", "name", "what it does", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for one in plugins:
        package = f" ({one.package})" if one.package else ""
        grid.add_row(one.kind, one.name, Text(one.summary + package))
    return grid


def page(plugin: Plugin) -> list[RenderableType]:
    """A page about one plug-in: its text and its options."""
    from rich.table import Table as Grid
    from rich.text import Text

    package = f", from {plugin.package}" if plugin.package else ""
    title = f"{plugin.name} ({plugin.kind}{package})"
    parts: list[RenderableType] = [Text(title), Text(plugin.about or plugin.summary)]
    if plugin.kind in CHOOSERS:
        parts.append(Text(f"\nChosen by --{CHOOSERS[plugin.kind]} {plugin.name}."))
    elif plugin.kind == FINDERS.kind:
        parts.append(Text("\nRun by every scan; its options are set in Python."))
    if not plugin.options:
        return [*parts, Text("It has no options.\n" if plugin.kind != BACKENDS.kind else "")]
    grid = Grid("option", "meaning", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for one in plugin.options:
        written, values, default, paper, meaning = row(one, plugin.kind)
        values += f"; default {default}" * bool(default) + f"; the paper's {paper}" * bool(paper)
        grid.add_row(Text(written), Text(f"{meaning} ({values})"))
    return [*parts, Text(""), grid]


def row(option: Option, kind: str) -> tuple[str, str, str, str, str]:
    """An option's spelling, values, default, the paper's value where it differs, and meaning."""
    written = option.name if kind not in CHOOSERS else f"-O {option.name}=…"
    if kind == LOCALISERS.kind and option.name in FLAGS:
        return f"--{option.name} {option.metavar}", "repeatable", "", "", option.help
    widened = f"; {MIN_WEIGHTS} in a repair" if option.name == "min_weights" else ""
    paper = "" if option.paper == option.default else value_text(option.paper)
    return written, option.accepts, value_text(option.default) + widened, paper, option.help


def value_text(value: Any) -> str:
    """A value as `-O` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)
