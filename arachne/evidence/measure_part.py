"""Measure a patch on one part of the data: from class scores before and after to `PartEvidence`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne.data.confusions import PairCounts
from arachne.data.grouping import MAX_GROUPS
from arachne.data.part import Part
from arachne.errors import DataError
from arachne.evidence.by_cause import CauseOutcome
from arachne.evidence.confidence import Confidence, confidences_of
from arachne.evidence.fairness import Fairness
from arachne.evidence.part_evidence import Accuracy, ByInput, ChangedInputs, PartEvidence, TargetEvidence
from arachne.fairness import Objective
from arachne.model.values import Array
from arachne.scoring.by_input import paired_p, rate_of


def measure_part(part: Part, after: Array, objective: Objective | None = None) -> PartEvidence:
    """Compare class scores `(m, classes)` of the decisions of a part with those of the original model.

    Raises:
        DataError: Scores of another shape than before, or scores that are NaN.
    """
    labels, old = part.label_classes, part.prediction_classes
    before = part.scores
    _check_scores(before, after)
    new = part.classes_of(part.task.decide(after))
    was_right, is_right = part.right, part.task.correct(after, part.labels)
    own = np.ones(len(labels), bool) if part.kept_decisions is None else ~part.kept_decisions
    shown = [(part.shows(t), part.shows(t, new)) for t in part.targets]
    showed = np.logical_or.reduce([pair[0] for pair in shown]) if shown else ~was_right & own
    shows = np.logical_or.reduce([pair[1] for pair in shown]) if shown else ~is_right & own
    names = part.class_names
    changes = _Changes(part, labels, old, new, before, after, showed)
    owners = part.repeated_inputs
    return PartEvidence(
        inputs=len(labels),
        negatives=int(showed.sum()),
        positives=int(was_right.sum()),
        repaired=int((showed & is_right).sum()),
        broken=int((was_right & ~is_right).sum()),
        others_fixed=int((~was_right & ~showed & is_right).sum()),
        target=_target(", ".join(t.text for t in part.targets) or "*:*", showed, shows, is_right, owners),
        targets=tuple(
            _target(t.text, *pair, is_right, owners, CauseOutcome.of(t, part, was_right, is_right))
            for t, pair in zip(part.targets, shown, strict=True)
        ),
        classes=_classes(names, labels[own], was_right[own], is_right[own]) if part.task.WORDS.classes else (),
        groups={
            column: groups
            for column, values in part.data.columns.items()
            if (groups := _groups(part.by_decision(np.asarray(values))[own], was_right[own], is_right[own]))
        },
        pairs_before=PairCounts.of(labels[own], old[own], len(names)),
        pairs_after=PairCounts.of(labels[own], new[own], len(names)),
        fixed=changes.take(~was_right & is_right),
        damaged=changes.take(was_right & ~is_right),
        confidence_before=Confidence.measure(_confidences(part, before[own]), was_right[own]),
        confidence_after=Confidence.measure(_confidences(part, after[own]), is_right[own]),
        fairness=None if objective is None else Fairness.measure(objective, part, was_right, is_right),
        by_input=None if owners is None else ByInput.measure(owners, was_right, is_right, showed, shows, own),
        kept=None if part.kept_decisions is None else rate_of(~is_right, ~own, owners),
        words=part.task.WORDS,
        noun=part.task.NOUN,
    )


@dataclass(frozen=True)
class _Changes:
    part: Part
    labels: Array
    old: Array
    new: Array
    before: Array
    after: Array
    showed: Array

    def take(self, chosen: Array) -> ChangedInputs:
        positions = np.flatnonzero(chosen)
        confidence = _confidences(self.part, self.after[positions])
        order = np.lexsort((positions, -np.round(confidence, 6)))  # the last bits differ from machine to machine
        if not self.part.task.SINGLE:
            order = order[np.argsort(_repeats(self.part.decisions.inputs[positions[order]]), kind="stable")]
        positions = positions[order]
        return ChangedInputs(
            rows=np.asarray(self.part.decision_rows)[positions],
            positions=positions if self.part.task.SINGLE else self.part.decisions.inputs[positions],
            labels=self.labels[positions],
            before=self.old[positions],
            after=self.new[positions],
            confidence_before=_confidences(self.part, self.before[positions]),
            confidence_after=confidence[order],
            on_target=self.showed[positions],
            frames=self.part.task.frame(self.part.outputs, self.part.data.labels, positions, self.part.data.inputs),
        )


def _repeats(owners: Array) -> Array:
    """Return how often the input of each decision has come before it, `(k,)`."""
    order = np.argsort(owners, kind="stable")
    ordered = owners[order]
    found = np.empty(len(owners), np.int64)
    found[order] = np.arange(len(owners)) - np.searchsorted(ordered, ordered)
    return found


def _confidences(part: Part, scores: Array) -> Array:
    """Return how sure a model is of each decision, `(m,)`, from class scores `(m, classes)`."""
    return confidences_of(scores, part.task.decide(scores))


def _target(
    text: str,
    showed: Array,
    shows: Array,
    is_right: Array,
    owners: Array | None,
    cause_outcome: CauseOutcome | None = None,
) -> TargetEvidence:
    gone, new = showed & ~shows, ~showed & shows
    return TargetEvidence(
        target=text,
        errors_before=int(showed.sum()),
        errors_after=int(shows.sum()),
        repaired=int((showed & is_right).sum()),
        gone=int(gone.sum()),
        new=int(new.sum()),
        cause_outcome=cause_outcome,
        p_by_input=None if owners is None else paired_p(gone, new, owners),
        repair_p_by_input=None if owners is None else paired_p(showed & is_right, new, owners),
    )


def _accuracy(name: str, members: Array, was_right: Array, is_right: Array) -> Accuracy:
    return Accuracy(name, int(members.sum()), int((members & was_right).sum()), int((members & is_right).sum()))


def _groups(values: Array, was_right: Array, is_right: Array) -> tuple[Accuracy, ...]:
    names = np.unique(values)
    if len(names) > MAX_GROUPS:
        return ()
    return tuple(_accuracy(str(name), values == name, was_right, is_right) for name in names)


def _classes(names: Sequence[str], labels: Array, was_right: Array, is_right: Array) -> tuple[Accuracy, ...]:
    counts = (np.bincount(labels[chosen], minlength=len(names)).tolist() for chosen in (..., was_right, is_right))
    return tuple(Accuracy(*one) for one in zip(names, *counts, strict=True))


def _check_scores(before: Array, after: Array) -> None:
    if before.shape != after.shape:
        raise DataError(f"expected scores of shape {before.shape}, as before the repair, got {after.shape}")
    for name, scores in (("before", before), ("after", after)):
        unknown = int(np.isnan(scores).any(axis=1).sum())
        if unknown:
            raise DataError(f"the scores {name} the repair are not numbers for {unknown} of {len(scores)} inputs")
