"""Find the groups that a fairness objective compares, in each part of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.data.part import Part, Term
from arachne.data.split import Split
from arachne.data.targets import Target
from arachne.errors import DataError, UsageError, did_you_mean
from arachne.fairness.base import Grouped, Objective
from arachne.model.values import Array

MAX_GROUPS = 50
"""The most different values of a metadata column that is used for grouping."""


def with_objective(split: Split, objective: Objective | None) -> Split:
    """Add an objective to a split, with its column, after checking that its groups are large enough in every part.

    Raises:
        UsageError: No column is named and no target is of a group, or the data has no such column.
        DataError: The groups cannot be compared.
    """
    if objective is None:
        return split
    objective = with_column(objective, split.targets, split.seen.data.columns)
    column = str(objective.group_column)
    if column not in split.held_out.data.columns:
        choices = did_you_mean(column, split.held_out.data.columns)
        raise DataError(f"the held-out data has no column '{column}' for objective '{objective.name}'{choices}")
    names = groups_in(split.seen, column).names
    objective.check(groups_in(split.seen, column).totals, names, "seen")
    held_out = groups_in(split.held_out, column)
    names = tuple(sorted({*names, *held_out.names}))
    objective.check(groups_in(split.held_out, column, names).totals, names, "held-out")
    return replace(split, objective=objective)


def objective_for_part(objective: Objective, part: Part) -> Objective:
    """Return the objective with its column, after checking the groups of a part; errors as for `with_objective`."""
    objective = with_column(objective, part.targets, part.data.columns)
    grouped = groups_in(part, str(objective.group_column))
    objective.check(grouped.totals, grouped.names, "labelled")
    return objective


def with_column(objective: Objective, targets: Sequence[Target], columns: Mapping[str, Array]) -> Objective:
    """Return the objective with its column: its own, or else that of the targets' group.

    Raises:
        UsageError: No column is known, or the data has no such column.
    """
    column = objective.group_column
    if column is None:
        named = list(dict.fromkeys(target.column for target in targets if target.column is not None))
        if len(named) != 1:
            raise UsageError(_no_column_message(objective, named, columns))
        column = named[0]
    if column not in columns:
        have = did_you_mean(column, columns) if columns else ", and this data has none"
        raise UsageError(f"objective '{objective.name}' needs the metadata column '{column}'{have}")
    values = len(np.unique(np.asarray(columns[column]).astype(str)))
    if values > MAX_GROUPS:
        raise UsageError(
            f"column '{column}' has {values:,} different values; an objective compares at most {MAX_GROUPS} groups"
        )
    return replace(objective, group_column=column)


def groups_in(part: Part, column: str, names: tuple[str, ...] | None = None) -> Grouped:
    """Group the inputs of a part; `names` if they are known from other parts."""
    return Grouped.by(part.by_decision(part.data.columns[column]), part.label_classes, len(part.class_names), names)


def groups_by_column(data: LabelledData) -> dict[str, tuple[str, ...]]:
    """List the groups of every metadata column that has at most `MAX_GROUPS`."""
    found = {name: np.unique(np.asarray(column).astype(str)) for name, column in data.columns.items()}
    return {name: tuple(values.tolist()) for name, values in found.items() if len(values) <= MAX_GROUPS}


def balanced_terms(split: Split, terms: Sequence[Term]) -> tuple[Term, ...]:
    """Split the positives of the terms by group if there is an objective.

    The positives of every group get the same total weight, so that a search does not protect a large group at the cost
    of a small one; positives of no group keep their weight.
    """
    if split.objective is None:
        return tuple(terms)
    grouped = groups_in(split.seen, str(split.objective.group_column))
    found: list[Term] = []
    for term in terms:
        found += [term] if term.kind != "positive" else _split_by_group(term, grouped)
    return tuple(found)


def _split_by_group(term: Term, grouped: Grouped) -> list[Term]:
    members = grouped.members[term.rows]
    numbers, sizes = np.unique(members[members >= 0], return_counts=True)
    apart = [
        Term(
            f"{term.name}, {grouped.names[number]}",
            term.rows[members == number],
            term.weight * float(sizes.sum()) / (len(numbers) * float(size)),
            term.kind,
        )
        for number, size in zip(numbers.tolist(), sizes.tolist(), strict=True)
    ]
    rest = term.rows[members < 0]
    return [*apart, Term(term.name, rest, term.weight, term.kind)] if len(rest) else apart


def _no_column_message(objective: Objective, named: Sequence[str], columns: Mapping[str, Array]) -> str:
    start = f"objective '{objective.name}' compares the groups of one metadata column"
    if len(named) > 1:
        return f"{start}, and the targets are of several ({', '.join(named)}): write '{objective.name}:{named[0]}'"
    if not columns:
        return f"{start}, and this data has none"
    first = next(iter(columns))
    return f"{start}: write '{objective.name}:{first}' or give a target of a group; columns: {', '.join(columns)}"
