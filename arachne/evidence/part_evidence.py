"""Evidence on one part of the data: counts, rates with their intervals, tests, and the changed inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from arachne.data.confusions import PairCounts
from arachne.evidence.by_cause import CauseOutcome
from arachne.evidence.confidence import Confidence
from arachne.evidence.fairness import Fairness
from arachne.evidence.grade import Counts
from arachne.model.values import Array
from arachne.scoring.by_input import paired_p, rate_of
from arachne.scoring.statistics import Drop, Rate, mcnemar, sign_test
from arachne.tasks.words import WORDS, Words
from arachne.text import Brief


@dataclass(frozen=True)
class Accuracy:
    """How many inputs of one class or group were right before and are right after.

    Attributes:
        name: The class or group.
        total: Its inputs.
        right_before: How many were right.
        right_after: How many are right with the patch.
        draws: How many independent decisions they are worth, where inputs have several; None where each is one draw.
    """

    name: str
    total: int
    right_before: int
    right_after: int
    draws: float | None = None

    @property
    def before(self) -> Rate:
        """Accuracy before the repair."""
        return Rate(self.right_before, self.total, self.draws)

    @property
    def after(self) -> Rate:
        """Accuracy after the repair."""
        return Rate(self.right_after, self.total, self.draws)

    @property
    def change(self) -> float:
        """Accuracy after minus before; NaN if there are no inputs."""
        return (self.right_after - self.right_before) / self.total if self.total else float("nan")


@dataclass(frozen=True)
class TargetEvidence(Brief):
    """Outcome for one target: how many inputs show it, before and after.

    Attributes:
        target: The target as the user wrote it.
        errors_before: Inputs that showed it.
        errors_after: Inputs that show it now, whether they did before or not.
        repaired: Inputs that showed it and are right now.
        gone: Inputs that showed it and do not now, right or not.
        new: Inputs that show it only now.
        cause_outcome: For a cause or a group: the outcome on the inputs that have it, and on the others.
        p_by_input: The test of the net change that counts an input as one draw; None where no input has several
            decisions.
        repair_p_by_input: The same of repaired inputs against those that show it only now.
    """

    target: str
    errors_before: int
    errors_after: int
    repaired: int
    gone: int
    new: int
    cause_outcome: CauseOutcome | None = None
    p_by_input: float | None = None
    repair_p_by_input: float | None = None

    @property
    def sign_p(self) -> float:
        """Sign test on the net change."""
        return sign_test(self.gone, self.new) if self.p_by_input is None else self.p_by_input


@dataclass(frozen=True)
class ByInput:
    """How sure the counts of a part are, where inputs have several decisions (`arachne.scoring.by_input`).

    Attributes:
        inputs: Inputs with a decision.
        negatives: Inputs with a decision that showed the fault.
        repair_draws: How many independent decisions the negatives are worth, for the interval of the repair rate.
        break_draws: How many the positives are worth, for the interval of the break rate.
        fault_draws: How many all decisions are worth, for the interval of the share that shows the fault now.
        accuracy_draws: How many all decisions are worth, for the interval of the accuracy with the patch.
        accuracy_p: The test of any change in accuracy.
    """

    inputs: int
    negatives: int
    repair_draws: float
    break_draws: float
    fault_draws: float
    accuracy_draws: float
    accuracy_p: float

    @classmethod
    def measure(
        cls, owners: Array, was_right: Array, is_right: Array, showed: Array, shows: Array, labelled: Array
    ) -> ByInput:
        """Measure from the input of each decision, its outcomes before and after, and who has labels, all `(m,)`."""
        shares = (is_right, showed), (~is_right, was_right), (shows, labelled), (is_right, labelled)
        repair, breakage, fault, accuracy = (rate_of(hit, among, owners).draws or 0.0 for hit, among in shares)
        p = paired_p(~was_right & is_right, was_right & ~is_right, owners)
        inputs, negatives = len(np.unique(owners)), len(np.unique(owners[showed]))
        return cls(inputs, negatives, repair, breakage, fault, accuracy, p)


@dataclass(frozen=True)
class ChangedInputs(Brief):
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
        frames: Where in a picture each is: left, top, right and bottom as shares, `(k, 4)`, NaN where it is nowhere;
            None where the task does not tell.
    """

    rows: Array
    positions: Array
    labels: Array
    before: Array
    after: Array
    confidence_before: Array
    confidence_after: Array
    on_target: Array
    frames: Array | None = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class PartEvidence(Brief):
    """Effect of a patch on one part of the data.

    Attributes:
        inputs: How many inputs the part has.
        negatives: Inputs that showed the fault before (without a target: every error).
        positives: Inputs that were right before.
        repaired: Negatives that are right now.
        broken: Positives that are wrong now.
        others_fixed: Other errors that are right now.
        target: The outcome for all targets together.
        targets: The outcome for each target, in the user's order.
        classes: Accuracy of each class, by label.
        groups: Accuracy of each group, by metadata column.
        pairs_before: Counts of (true class, predicted class) before; only the pairs that occur.
        pairs_after: Counts of (true class, predicted class) with the patch.
        fixed: Inputs that were wrong and are right.
        damaged: Inputs that were right and are wrong.
        confidence_before: Confidence and calibration of the model before.
        confidence_after: Confidence and calibration with the patch.
        fairness: The outcome for the groups, if there is a fairness objective.
        by_input: How sure the counts are, where inputs have several decisions; counts are then of decisions.
        noun: The thing that one decision is about, which counts are of: an input, a label, a token.
        kept: How many of the decisions that had to stay as they were changed; None if there are none. They count as
            positives, and not for the accuracy.
        words: How sentences call what is repaired and broken.
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
    pairs_before: PairCounts
    pairs_after: PairCounts
    fixed: ChangedInputs
    damaged: ChangedInputs
    confidence_before: Confidence
    confidence_after: Confidence
    fairness: Fairness | None = None
    by_input: ByInput | None = None
    noun: str = "input"
    kept: Rate | None = None
    words: Words = WORDS

    @property
    def headline(self) -> str:
        """`34 of 54 repaired, 1 of 825 broken`."""
        repaired = f"{self.repaired:,} of {self.negatives:,} repaired"
        return f"{repaired}, {self.broken:,} of {self.positives:,} broken"

    @property
    def repair(self) -> Rate:
        """Repaired negatives: RR."""
        return Rate(self.repaired, self.negatives, None if self.by_input is None else self.by_input.repair_draws)

    @property
    def breakage(self) -> Rate:
        """Broken positives: BR."""
        return Rate(self.broken, self.positives, None if self.by_input is None else self.by_input.break_draws)

    @property
    def drop(self) -> Drop:
        """How far the accuracy on all inputs but the negatives fell."""
        return Drop(self.broken, self.others_fixed, self.inputs - self.negatives, self.breakage.design_effect)

    @property
    def faulty_inputs(self) -> int:
        """How many inputs showed the fault; an input counts once, however many of its decisions did."""
        return self.negatives if self.by_input is None else self.by_input.negatives

    @property
    def counts(self) -> Counts:
        """The counts that a verdict rests on."""
        counts = Counts(
            self.negatives, self.repaired, self.target.new, self.positives, self.broken, others_fixed=self.others_fixed
        )
        if self.by_input is None:
            return counts
        return replace(
            counts,
            faulty_inputs=self.by_input.negatives,
            draws=self.by_input.repair_draws,
            repair_p=self.target.repair_p_by_input,
            accuracy_p=self.by_input.accuracy_p,
        )

    @property
    def reduction(self) -> Rate:
        """Share of the fault that is gone: repaired inputs less those that show it only now, of the negatives."""
        return self.counts.reduction

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
    def confusion_before(self) -> Array:
        """Confusion matrix before, `(classes, classes)`: rows are true classes; not for thousands of classes."""
        return self.pairs_before.dense()

    @property
    def confusion_after(self) -> Array:
        """Confusion matrix with the patch, `(classes, classes)`."""
        return self.pairs_after.dense()

    @property
    def accuracy(self) -> Accuracy:
        """Accuracy over all inputs."""
        labelled = self.inputs - (0 if self.kept is None else self.kept.total)
        draws = None if self.by_input is None else self.by_input.accuracy_draws
        return Accuracy("all", labelled, self.pairs_before.right, self.pairs_after.right, draws)

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
        """McNemar's exact test on all inputs, of any change in accuracy."""
        if self.by_input is not None:
            return self.by_input.accuracy_p
        return mcnemar(self.repaired + self.others_fixed, self.broken)

    @property
    def sign_p(self) -> float:
        """Sign test on the fault's net errors, on which the verdict rests."""
        return self.target.sign_p
