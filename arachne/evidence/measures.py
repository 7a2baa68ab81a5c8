"""What a patch did to one part of the data: counts, rates with their intervals, tests, and the inputs themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from arachne.data.grouping import MOST_GROUPS
from arachne.data.split import Part
from arachne.errors import DataError
from arachne.evidence.carriers import Carriers
from arachne.evidence.confidence import Confidence, confidences_of
from arachne.evidence.fairness import Fairness
from arachne.evidence.statistics import Rate, mcnemar, sign_test
from arachne.fairness import Objective
from arachne.values import Array


@dataclass(frozen=True)
class Accuracy:
    """How many inputs of one class or group were right before and are right after."""

    name: str
    total: int
    right_before: int
    right_after: int

    @property
    def before(self) -> Rate:
        """Accuracy before the repair."""
        return Rate(self.right_before, self.total)

    @property
    def after(self) -> Rate:
        """Accuracy after the repair."""
        return Rate(self.right_after, self.total)

    @property
    def change(self) -> float:
        """Accuracy after minus before; NaN if there are no inputs."""
        return (self.right_after - self.right_before) / self.total if self.total else float("nan")


@dataclass(frozen=True)
class TargetEvidence:
    """What became of one target: how many inputs show it, before and after.

    Attributes:
        target: The target as the user wrote it.
        errors_before: Inputs that showed it.
        errors_after: Inputs that show it now, whether they did before or not.
        repaired: Inputs that showed it and are right now.
        gone: Inputs that showed it and do not now, right or not.
        new: Inputs that show it only now.
        carriers: Of a cause or a group: what became of the inputs that have it, and of the others.
    """

    target: str
    errors_before: int
    errors_after: int
    repaired: int
    gone: int
    new: int
    carriers: Carriers | None = None

    @property
    def sign_p(self) -> float:
        """Sign test on the net change."""
        return sign_test(self.gone, self.new)


@dataclass(frozen=True)
class Changed:
    """Inputs whose outcome changed, those the model is now surest of first; all arrays `(k,)`.

    Attributes:
        rows: Row numbers in the user's data.
        positions: Row numbers in the part.
        labels: True classes.
        before: Predicted classes before.
        after: Predicted classes after.
        confidence_before: Probability of the class predicted before, by the model as it was.
        confidence_after: Probability of the class predicted now, by the patched model.
        on_target: Whether the input showed a target before.
    """

    rows: Array
    positions: Array
    labels: Array
    before: Array
    after: Array
    confidence_before: Array
    confidence_after: Array
    on_target: Array

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class PartEvidence:
    """What a patch did to one part of the data.

    Attributes:
        inputs: How many inputs the part has.
        negatives: Inputs that showed the fault before (without a target: every error).
        positives: Inputs that were right before.
        repaired: Negatives that are right now.
        broken: Positives that are wrong now.
        others_fixed: Other errors that are right now.
        target: What became of the fault as a whole.
        targets: What became of each target, in the user's order.
        classes: Accuracy of each class, by label.
        groups: Accuracy of each group, by metadata column.
        confusion_before: `(classes, classes)` counts, rows are true classes, columns predictions.
        confusion_after: The same with the patch.
        fixed: Inputs that were wrong and are right.
        damaged: Inputs that were right and are wrong.
        confidence_before: How sure the model was, and whether it was right to be.
        confidence_after: The same with the patch.
        fairness: What became of the groups, where something was to become fairer.
    """

    inputs: int
    negatives: int
    positives: int
    repaired: int
    broken: int
    others_fixed: int
    target: TargetEvidence
    targets: tuple[TargetEvidence, ...]
    classes: tuple[Accuracy, ...]
    groups: Mapping[str, tuple[Accuracy, ...]]
    confusion_before: Array
    confusion_after: Array
    fixed: Changed
    damaged: Changed
    confidence_before: Confidence
    confidence_after: Confidence
    fairness: Fairness | None = None

    @property
    def repair(self) -> Rate:
        """Repaired negatives: RR."""
        return Rate(self.repaired, self.negatives)

    @property
    def breakage(self) -> Rate:
        """Broken positives: BR."""
        return Rate(self.broken, self.positives)

    @property
    def repair_rate(self) -> float:
        """The paper's RR: `repaired / negatives`; NaN without negatives."""
        return self.repair.value

    @property
    def break_rate(self) -> float:
        """The paper's BR: `broken / positives`; NaN without positives."""
        return self.breakage.value

    @property
    def target_errors_before(self) -> int:
        """The paper's net count before."""
        return self.target.errors_before

    @property
    def target_errors_after(self) -> int:
        """The paper's net count after; it can rise where the fault was not seen before."""
        return self.target.errors_after

    @property
    def accuracy(self) -> Accuracy:
        """Accuracy over all inputs."""
        right = (int(np.trace(self.confusion_before)), int(np.trace(self.confusion_after)))
        return Accuracy("all", self.inputs, *right)

    @property
    def accuracy_before(self) -> float:
        """Share of all inputs that was right."""
        return self.accuracy.before.value

    @property
    def accuracy_after(self) -> float:
        """Share of all inputs that is right."""
        return self.accuracy.after.value

    @property
    def mcnemar_p(self) -> float:
        """McNemar's exact test on all inputs: is the patched model better or worse at all?"""
        return mcnemar(self.repaired + self.others_fixed, self.broken)

    @property
    def sign_p(self) -> float:
        """Sign test on the fault's net errors: what the verdict rests on."""
        return self.target.sign_p

    @classmethod
    def measure(cls, part: Part, after: Array, objective: Objective | None = None) -> PartEvidence:
        """Compare class scores `(n, classes)` for the inputs of a part with those of the original model.

        Raises:
            DataError: Scores of another shape than before, or scores that are NaN.
        """
        labels = np.asarray(part.data.labels)
        before = part.scores
        _check(before, after)
        old, new = part.predictions, after.argmax(axis=1)
        was_right, is_right = old == labels, new == labels
        shown = [(t.shows(labels, old, part.rows), t.shows(labels, new, part.rows)) for t in part.targets]
        showed = np.logical_or.reduce([pair[0] for pair in shown]) if shown else ~was_right
        shows = np.logical_or.reduce([pair[1] for pair in shown]) if shown else ~is_right
        names = [part.data.class_name(label) for label in range(before.shape[1])]
        changes = _Changes(part, labels, old, new, before, after, showed)
        return cls(
            inputs=len(labels),
            negatives=int(showed.sum()),
            positives=int(was_right.sum()),
            repaired=int((showed & is_right).sum()),
            broken=int((was_right & ~is_right).sum()),
            others_fixed=int((~was_right & ~showed & is_right).sum()),
            target=_target(", ".join(t.text for t in part.targets) or "*:*", showed, shows, is_right),
            targets=tuple(
                _target(t.text, *pair, is_right, Carriers.of(t, part, was_right, is_right))
                for t, pair in zip(part.targets, shown, strict=True)
            ),
            classes=tuple(_accuracy(name, labels == label, was_right, is_right) for label, name in enumerate(names)),
            groups={
                column: groups
                for column, values in part.data.columns.items()
                if (groups := _groups(np.asarray(values), was_right, is_right))
            },
            confusion_before=_confusion(labels, old, before.shape[1]),
            confusion_after=_confusion(labels, new, before.shape[1]),
            fixed=changes.take(~was_right & is_right),
            damaged=changes.take(was_right & ~is_right),
            confidence_before=Confidence.measure(confidences_of(before, old), was_right),
            confidence_after=Confidence.measure(confidences_of(after, new), is_right),
            fairness=None if objective is None else Fairness.measure(objective, part, was_right, is_right),
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

    def take(self, chosen: Array) -> Changed:
        positions = np.flatnonzero(chosen)
        confidence = confidences_of(self.after[positions], self.new[positions])
        order = np.lexsort((positions, -np.round(confidence, 6)))  # the last bits differ from machine to machine
        positions = positions[order]
        return Changed(
            rows=np.asarray(self.part.rows)[positions],
            positions=positions,
            labels=self.labels[positions],
            before=self.old[positions],
            after=self.new[positions],
            confidence_before=confidences_of(self.before[positions], self.old[positions]),
            confidence_after=confidence[order],
            on_target=self.showed[positions],
        )


def _target(
    text: str, showed: Array, shows: Array, is_right: Array, carriers: Carriers | None = None
) -> TargetEvidence:
    return TargetEvidence(
        target=text,
        errors_before=int(showed.sum()),
        errors_after=int(shows.sum()),
        repaired=int((showed & is_right).sum()),
        gone=int((showed & ~shows).sum()),
        new=int((~showed & shows).sum()),
        carriers=carriers,
    )


def _accuracy(name: str, members: Array, was_right: Array, is_right: Array) -> Accuracy:
    return Accuracy(name, int(members.sum()), int((members & was_right).sum()), int((members & is_right).sum()))


def _groups(values: Array, was_right: Array, is_right: Array) -> tuple[Accuracy, ...]:
    names = np.unique(values)
    if len(names) > MOST_GROUPS:
        return ()
    return tuple(_accuracy(str(name), values == name, was_right, is_right) for name in names)


def _confusion(labels: Array, predictions: Array, classes: int) -> Array:
    return np.bincount(labels * classes + predictions, minlength=classes * classes).reshape(classes, classes)


def _check(before: Array, after: Array) -> None:
    if before.shape != after.shape:
        raise DataError(f"expected scores of shape {before.shape}, as before the repair, got {after.shape}")
    for name, scores in (("before", before), ("after", after)):
        unknown = int(np.isnan(scores).any(axis=1).sum())
        if unknown:
            raise DataError(f"the scores {name} the repair are not numbers for {unknown} of {len(scores)} inputs")
