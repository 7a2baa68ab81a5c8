"""Split the data: seen by the repair, reserved for choosing between candidates, held out for the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from arachne.data.health import Health
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.run import Causes, RunModel, run_part, whole_part, with_model_names
from arachne.data.strata import divide
from arachne.data.targets import Target
from arachne.errors import DataError, NothingToRepairError, UsageError, did_you_mean
from arachne.fairness.base import Objective
from arachne.model.values import Array
from arachne.tasks import SINGLE_LABEL, Task
from arachne.text import Brief, are

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

DUPLICATES = "duplicates"
"""A value of `group_by`: inputs of the same content are one group."""


@dataclass(frozen=True, eq=False)
class Split(Brief):
    """The three parts, and the targets they were made for.

    Attributes:
        seen: The inputs the repair works on.
        choose: The inputs reserved for comparing candidates; may be empty.
        held_out: The inputs the verdict comes from.
        targets: The faults to repair.
        never_break: Inputs of the user's choice; those the original model gets right must stay right.
        objective: The fairness objective, with its column.
        health: Signs of a sick model on the seen inputs; None where nobody has looked.
        copies: Copies of seen right inputs with a target's cause planted that fail, by the target's text. Their `rows`
            are those of the inputs they were made of. A search repairs them too; nothing is judged by them.
    """

    seen: Part
    choose: Part
    held_out: Part
    targets: tuple[Target, ...]
    never_break: Part | None = None
    objective: Objective | None = None
    health: Health | None = None
    copies: Mapping[str, Part] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """`898 inputs seen, 899 held out, 0 to choose by; 8:1`."""
        counts = f"{len(self.seen):,} inputs seen, {len(self.held_out):,} held out, {len(self.choose):,} to choose by"
        return f"{counts}; {', '.join(target.text for target in self.targets)}"

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of the data: held out, seen, reserved for choosing, and never to break if there is one."""
        never_break = () if self.never_break is None else (self.never_break,)
        return (self.held_out, self.seen, self.choose, *never_break)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of every class of the model, or its number as text."""
        return self.seen.class_names


def split_by_outcome(
    backend: ModelBackend,
    data: LabelledData,
    target: str | Target | Sequence[str | Target],
    *,
    rng: np.random.Generator,
    holdout: LabelledData | None = None,
    choose: float = 0.0,
    drop_overlap: bool = False,
    group_by: str | Array | None = None,
    causes: Causes | None = None,
    run: RunModel | None = None,
    task: Task | None = SINGLE_LABEL,
) -> Split:
    """Divide the data into a part that the repair sees and a part for the verdict.

    Halves are stratified by (label, prediction), as in the paper; the same generator state gives the same halves.

    Args:
        backend: The original model.
        data: The user's data.
        target: The faults to repair.
        rng: The source of randomness.
        holdout: Other data for the verdict; all of `data` is then seen.
        choose: Share of the seen part taken out for choosing between candidates.
        drop_overlap: Whether inputs of `holdout` that are also in `data` are dropped rather than refused.
        group_by: A metadata column, one value per input `(n,)`, or `duplicates`: inputs with the same value stay on
            one side.
        causes: Resolves targets such as `cause:1`.
        run: Runs the original model; `backend.forward` when None.
        task: Reads the model's outputs; None finds out which one does.

    Raises:
        NothingToRepairError: No seen input shows a target.
        DataError: The data has no inputs, or labels the model does not have, or the holdout overlaps with it.
    """
    if not 0 <= choose < 1:
        raise UsageError(f"expected a share from 0 to below 1 for choosing, got {choose:g}")
    whole = whole_part(backend, data, target, causes=causes, run=run, task=task)
    groups = None if group_by is None else groups_of(whole.data, group_by)
    if holdout is None:
        in_seen = divide(_outcomes(whole), 0.5, rng=rng, groups=groups)
        seen, held_out = whole.rows[in_seen], whole.take(whole.rows[~in_seen])
    else:
        held_out = _holdout(backend, whole, with_model_names(backend, holdout), drop_overlap, run)
        seen = whole.rows
    in_choose = np.zeros(len(seen), dtype=bool)
    if choose > 0:
        part_groups = None if groups is None else groups[seen]
        in_choose = ~divide(_outcomes(whole)[seen], 1 - choose, rng=rng, groups=part_groups)
    split = Split(whole.take(seen[~in_choose]), whole.take(seen[in_choose]), held_out, whole.targets)
    if not len(split.seen.negatives):
        raise NothingToRepairError(_nothing_message(whole, holdout is not None))
    return split


def groups_of(data: LabelledData, group_by: str | Array) -> Array:
    """Number the group of each input, int64 `(n,)`.

    Args:
        data: The data.
        group_by: A metadata column, one value per input, or `duplicates`.
    """
    values: Array
    if not isinstance(group_by, str):
        values = np.asarray(group_by)
    elif group_by in data.columns:
        values = data.columns[group_by]
    elif group_by == DUPLICATES:
        values = np.array([digest.hex() for digest in data.hashes])
    else:
        choices = did_you_mean(group_by, [*data.columns, DUPLICATES])
        raise UsageError(f"no metadata column named '{group_by}' to group by{choices}")
    if values.shape != (len(data),):
        raise DataError(f"expected one group per input, {len(data)} in all, got an array of shape {values.shape}")
    return np.unique(values.astype(str), return_inverse=True)[1].astype(np.int64)


def overlap(data: LabelledData, holdout: LabelledData) -> Array:
    """Find the rows of the holdout whose inputs are also in the data, by content."""
    known = set(data.hashes)
    return np.flatnonzero([digest in known for digest in holdout.hashes])


def _outcomes(part: Part) -> Array:
    """Return the stratum of each input `(n,)`: label and prediction of its first wrong decision, else of its first."""
    labels, predictions = part.label_classes, part.prediction_classes.astype(np.int64)
    outcomes: Array = labels * (predictions.max(initial=0) + 1) + predictions
    if part.kept_decisions is not None:
        outcomes = 2 * outcomes + part.kept_decisions
    if part.task.SINGLE:
        return outcomes
    found = np.full(len(part), -1, np.int64)
    order = np.lexsort((np.arange(len(labels)), part.right))[::-1]  # the last write wins
    found[part.decisions.inputs[order]] = outcomes[order]
    return found


def _holdout(
    backend: ModelBackend, whole: Part, holdout: LabelledData, drop_overlap: bool, run: RunModel | None
) -> Part:
    shared = overlap(whole.data, holdout)
    rows = np.arange(len(holdout))
    if len(shared):
        if not drop_overlap:
            first = ", ".join(map(str, shared[:5].tolist())) + (", …" if len(shared) > 5 else "")
            raise DataError(
                f"{len(shared)} of {len(holdout)} held-out inputs {are(len(shared))} also in the data (held-out rows "
                f"{first}) and cannot show whether the repair generalises; drop them or hold out others"
            )
        rows = np.setdiff1d(rows, shared)
        if not len(rows):
            raise DataError(f"all {len(holdout)} held-out inputs are also in the data, so none is left to judge by")
    targets = tuple(target.for_other_data(holdout) for target in whole.targets)
    part = replace(run_part(backend, holdout, run, whole.task), targets=targets)
    return part.take(rows) if len(shared) else part


def _other_way(whole: Part) -> str:
    """Say how many inputs show the target with its two classes exchanged."""
    (target, *more) = whole.targets
    classes = target.label, target.prediction
    if more or not whole.task.SINGLE or None in classes or target.rows is not None:
        return ""
    turned = replace(target, label=target.prediction, prediction=target.label)
    shown = int(turned.shows(whole.labels, whole.predictions, whole.rows).sum())
    text = ":".join(reversed(target.text.split(":")))
    return f"; {shown:,} {'shows' if shown == 1 else 'show'} '{text}'" if shown else ""


def _nothing_message(whole: Part, all_seen: bool) -> str:
    texts = ", ".join(f"'{target.text}'" for target in whole.targets)
    if not len(whole.negatives) and not whole.task.NEEDS_LABELS:
        return f"no negative inputs: all {len(whole.labelled_part)} inputs keep {texts}, so there is nothing to repair"
    if len(whole.positives) == len(whole.decisions):
        return (
            f"no negative inputs: the model classifies all {len(whole)} inputs correctly, so there is nothing to repair"
        )
    if not len(whole.negatives) or all_seen:
        other_way = _other_way(whole)
        return (
            f"no negative inputs: none of {len(whole)} inputs shows {texts}, so there is nothing to repair{other_way}"
        )
    return (
        f"no negative inputs seen: all inputs that show {texts}, {len(whole.negatives)} of {len(whole)}, are "
        "outside the part the repair sees; give more data"
    )
