"""The options of a command in named groups, as `--help` and the reference show them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import click

SECTIONS = {
    "Model": ("model", "weights", "backend", "device", "output", "trust-code", "input-shape", "expect-sha256"),
    "Data": (
        "data",
        "classes",
        "preprocess",
        "task",
        "threshold",
        "tolerance",
        "memory",
        "holdout",
        "training",
        "group-by",
        "drop-overlap",
        "accept-near-chance",
    ),
    "Target": ("target", "objective"),
    "Budget": ("max-break", "max-drop", "confidence", "max-class-drop", "max-group-drop", "never-break", "keep-as-is"),
    "Search": ("search", "localiser", "include", "exclude", "option", "alpha", "faithful", "rounds", "seed"),
    "Output": ("out", "force", "json", "quiet", "verbose", "log-file", "fail-if", "junit", "debug"),
    "Long runs": ("time-limit", "resume", "track", "no-cache"),
    "Cluster": ("workers", "cluster"),
    "Settings": ("config", "help"),
}
"""Where an option stands that several commands have; a command's own come first."""

MAX_LISTED = 45
"""A command with more options than this names the rare ones at the end, without their help."""

RARE = (
    "input-shape",
    "output",
    "threshold",
    "tolerance",
    "training",
    "drop-overlap",
    "accept-near-chance",
    "no-cache",
    "log-file",
    "debug",
)
"""Options that an error message names when they are needed, or that help to look for the cause of one."""

MIN_GROUPED = 16
"""A command with fewer options shows them as one list."""


def long_name(option: click.Option) -> str:
    """`data` for `--data`."""
    return max(option.opts, key=len).lstrip("-")


def group_options(parameters: Iterable[click.Parameter]) -> Iterator[tuple[str, list[click.Option]]]:
    """The options under the heading of their group, those of no group first, as `Options`."""
    left = {long_name(one): one for one in parameters if isinstance(one, click.Option) and not one.hidden}
    groups = {title: [left.pop(name) for name in names if name in left] for title, names in SECTIONS.items()}
    for title, group in {"Options": list(left.values()), **groups}.items():
        if group:
            yield title, group


def write_sections(parameters: Sequence[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the options into a command's help."""
    listed = [one for one in parameters if isinstance(one, click.Option) and not one.hidden]
    rare = [one for one in listed if len(listed) > MAX_LISTED and long_name(one) in RARE]
    listed = [one for one in listed if one not in rare]
    groups = group_options(listed) if len(listed) >= MIN_GROUPED else [("Options", listed)]
    for title, group in groups:
        with formatter.section(title):
            formatter.write_dl([record for one in group if (record := one.get_help_record(ctx)) is not None])
    if rare:
        formatter.write_paragraph()
        names = [max(one.opts, key=len) for one in rare]
        text = f"Rarely needed: {', '.join(names[:-1])} and {names[-1]}; the command-line reference explains them."
        formatter.write(textwrap.fill(text, formatter.width, break_on_hyphens=False) + "\n")
