"""Options about budgets, and what `repair` and `choose` do with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.border import harmless_option
from arachne.cli.options import SHARE, DataChoice, ModelChoice, options
from arachne.errors import NothingWithinBudgetError
from arachne.text import are, percent, pluralise

if TYPE_CHECKING:
    from arachne.choose.budget import Budget
    from arachne.cli.console import Output
    from arachne.data.part import Part

LARGE = 0.1
"""Budgets from this size on are described in words."""

choice_options = options(
    harmless_option("--max-break", type=SHARE, help="Break at most this share of what is right: 0.5% or 0.005."),
    harmless_option(
        "--max-drop",
        type=SHARE,
        help="Let accuracy on other inputs fall by at most this share: those broken less other errors fixed.",
    ),
    harmless_option(
        "--confidence",
        type=SHARE,
        help="Guarantee --max-break and --max-drop with this confidence, such as 90%; takes more data.",
    ),
    click.option(
        "--max-class-drop",
        multiple=True,
        metavar="CLASS=SHARE",
        help="How far a class's accuracy may fall: stop=0, or *=1% for every class. Repeatable.",
    ),
    click.option(
        "--max-group-drop",
        multiple=True,
        metavar="GROUP=SHARE",
        help="How far the accuracy of a group of a metadata column may fall: female=0, sex=female=0, *=1%. Repeatable.",
    ),
)
never_break_option = click.option(
    "--never-break", metavar="SOURCE", help="Labelled inputs that must stay right, read as --data is."
)
keep_option = click.option(
    "--keep-as-is",
    metavar="SOURCE",
    help="Inputs without labels that MODEL should go on reading as it does; they count as right ones.",
)
budget_options = options(choice_options, never_break_option, keep_option)


def budget_from(arguments: dict[str, Any]) -> Budget | None:
    """Take the budget's options out of a command's arguments; None when none was given."""
    from arachne.choose.budget import Budget, read_class_drop, read_group_drop

    names = ("max_break", "max_drop", "confidence", "max_class_drop", "max_group_drop")
    limits = {name: value for name in names if (value := arguments.pop(name)) not in (None, ())}
    if "max_class_drop" in limits:
        limits["max_class_drop"] = dict(read_class_drop(text) for text in limits["max_class_drop"])
    if "max_group_drop" in limits:
        limits["max_group_drop"] = dict(read_group_drop(text) for text in limits["max_group_drop"])
    return Budget(**limits) if limits else None


def tell_large(output: Output, budget: Budget | None) -> None:
    """Say how much a large budget allows: 0.5 is often meant as half a per cent."""
    largest = 0.0 if budget is None else max(budget.max_break * budget.limits_breaks, budget.max_drop or 0.0)
    if largest >= LARGE:
        output.say(f"note: this budget is {percent(largest)} of what is right; half a per cent is 0.5% or 0.005")


def sources_of(model: ModelChoice, data: DataChoice, **others: str | None) -> dict[str, Any]:
    """Sources of model and data, so that another point can be chosen later; trust in code is not recorded."""
    kept = {name: value for name, value in asdict(model).items() if name not in ("trust_code", "feeds")}
    model_options = {name: None if value is None else str(value) for name, value in kept.items()} | {
        "feeds": model.feeds
    }
    read = {name: value for name, value in asdict(data).items() if name != "memory"}  # which changes no result
    return {"model": model_options, "data": read, **others}


@contextmanager
def report_nothing_within(output: Output) -> Iterator[None]:
    """Where nothing keeps the budget, a program gets the same object as otherwise before the error."""
    try:
        yield
    except NothingWithinBudgetError as error:
        if output.as_json and error.result is not None:
            output.result("", error.result.to_json())
        elif error.result is not None:
            output.say(
                "hint: a larger --max-break repairs more; what mistakes share (arachne scan) costs less to repair"
            )
        raise


def tell_never_break(output: Output, kept: Part) -> None:
    """How many never-break inputs bind, and how many were wrong from the start."""
    wrong = len(kept) - len(kept.positives)
    more = f"; {pluralise(wrong, 'other')} {are(wrong)} wrong already and not constrained" if wrong else ""
    output.say(f"never break: {pluralise(len(kept.positives), 'input')} stayed right{more}")
