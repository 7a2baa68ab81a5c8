"""Rebuild an earlier split from its row numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.run import Causes, RunModel, never_break_part, run_part, whole_part, with_model_names
from arachne.data.split import Split
from arachne.errors import DataError
from arachne.model.values import Array
from arachne.tasks import Task

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend


def split_by_rows(
    backend: ModelBackend,
    data: LabelledData,
    targets: Sequence[str],
    rows: Mapping[str, Array],
    *,
    holdout: LabelledData | None = None,
    never_break: LabelledData | None = None,
    task: Task | None = None,
    causes: Causes | None = None,
    run: RunModel | None = None,
) -> Split:
    """Divide the data as an earlier repair did.

    Args:
        backend: The original model.
        data: The data of that repair.
        targets: The targets of that repair.
        rows: Row numbers of `seen`, `choose` and `held_out`; the last are of `holdout` if that is given.
        holdout: The held-out data of that repair.
        never_break: The never-break inputs of that repair.
        task: Reads the model's outputs; None finds out which one does.
        causes: Turns targets such as `cause:1` into targets with rows.
        run: Runs the original model; a plain pass when None.

    Raises:
        DataError: The data does not have these rows.
    """
    whole = whole_part(backend, data, list(targets), causes=causes, run=run, task=task)
    judged = whole
    if holdout is not None:
        other = with_model_names(backend, holdout)
        elsewhere = tuple(target.for_other_data(other) for target in whole.targets)
        judged = replace(run_part(backend, other, run, whole.task), targets=elsewhere)
    return Split(
        seen=_rows_of(whole, rows["seen"]),
        choose=_rows_of(whole, rows["choose"]),
        held_out=_rows_of(judged, rows["held_out"]),
        targets=whole.targets,
        never_break=None if never_break is None else never_break_part(backend, never_break, run=run, task=whole.task),
    )


def _rows_of(whole: Part, rows: Array) -> Part:
    if len(rows) and rows.max() >= len(whole):
        raise DataError(f"the front has a row {rows.max()}, and the data only {len(whole)} rows")
    return whole.take(rows)
