"""The evidence of a repair: every part of the data before and after, and the verdict from the held-out part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from arachne.choose.budget import BREAK_BUDGET, NO_BREAK_LIMIT
from arachne.data.part import Part
from arachne.data.seen import ALL, HELD_OUT, SEEN, UNKNOWN
from arachne.data.split import Split, overlap
from arachne.evidence.coverage import coverage_notes
from arachne.evidence.grade import NOTHING_WITHIN
from arachne.evidence.group_summary import sentences
from arachne.evidence.limits import LimitOutcome, accuracy_limit, break_limit, drop_limits
from arachne.evidence.measure_part import measure_part
from arachne.evidence.part_evidence import PartEvidence
from arachne.evidence.verdict import BASIS_WORDS, Verdict, judge
from arachne.fairness import Objective
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.plugins.drawing import Drawable
from arachne.scoring.predicted import predict_changed, verify_scores
from arachne.scoring.statistics import LEVEL, holm
from arachne.tasks import Figures
from arachne.text import Brief, p_value

if TYPE_CHECKING:
    from arachne.patch import Patch


MIN_KEPT = 0.9
"""A note says that the last fit lost the repair where a patch repairs less than this share of what it promised."""


@dataclass(frozen=True)
class Evidence(Drawable):
    """The measured effect of a repair, and the verdict on it.

    Attributes:
        held_out: The inputs the repair never saw; the verdict comes from these.
        seen: The inputs it worked on; None when a finished patch is evaluated.
        choose: The inputs on which candidate patches were compared; None when there were none.
        budget: The largest break rate allowed; `NO_BREAK_LIMIT` if there is none.
        patches_compared: How many finished patches were compared before this one was taken.
        repaired_in_trials: How many seen negatives the fits repaired that this patch was chosen by, each of them on
            inputs it had not been given; None where it was chosen by its own numbers.
        never_break: The inputs that had to stay right; None when there were none.
        never_break_overlap: How many held-out inputs are also never-break inputs, which the repair could see.
        nothing_within: Why no patch was taken, if none was within the budget.
        simpler: A sentence if a simpler searcher would have done as well.
        class_limits: How far the accuracy of classes may fall, by name, where the budget says so.
        group_limits: How far the accuracy of groups may fall, by column and value.
        basis: Whether the repair has seen the inputs of `held_out`, one of `data.seen.BASES`; only a finished patch can
            be measured on inputs that are not held out.
        figures: What people read of the task besides its decisions, on the inputs of `held_out`.
        max_drop: How far the accuracy on all inputs but the negatives may fall; None without a limit.
    """

    held_out: PartEvidence
    seen: PartEvidence | None = None
    choose: PartEvidence | None = None
    budget: float = BREAK_BUDGET
    patches_compared: int = 1
    never_break: PartEvidence | None = None
    never_break_overlap: int = 0
    nothing_within: str | None = None
    simpler: str | None = None
    basis: str = HELD_OUT
    class_limits: Mapping[str, float] = field(default_factory=dict)
    group_limits: Mapping[tuple[str, str], float] = field(default_factory=dict)
    figures: Figures | None = None
    max_drop: float | None = None
    repaired_in_trials: int | None = None

    def __str__(self) -> str:
        """The verdict and the notes."""
        return "\n".join((str(self.verdict), *self.notes))

    @property
    def headline(self) -> str:
        """`reduced: 34 of 54 repaired, 1 of 825 broken`."""
        return f"{self.verdict.word}: {self.held_out.headline}"

    @cached_property
    def verdict(self) -> Verdict:
        """One of six words, and the reason."""
        if self.nothing_within is not None:
            return Verdict(NOTHING_WITHIN, self.nothing_within)
        return judge(self.held_out, kind=BASIS_WORDS[self.basis], limits=self.limits)

    @cached_property
    def limits(self) -> tuple[LimitOutcome, ...]:
        """The outcome of every limit: first broken inputs, then accuracy, then classes and groups."""
        drops = drop_limits(self.class_limits, self.group_limits, self.held_out, self.seen)
        breaks = [break_limit(self.budget, self.held_out, self.seen)] if self.budget < NO_BREAK_LIMIT else []
        lower = [] if self.max_drop is None else [accuracy_limit(self.max_drop, self.held_out, self.seen)]
        return (*breaks, *lower, *drops)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Caveats and details beside the verdict, as whole sentences."""
        if self.nothing_within is not None:
            return ()
        simpler = () if self.simpler is None else (self.simpler,)
        fairness = () if self.held_out.fairness is None else sentences(self.held_out.fairness)
        few = (
            *_basis_note(self),
            *fairness,
            *_still_wrong_note(self.held_out, BASIS_WORDS[self.basis]),
            *simpler,
            *_targets_note(self.held_out),
        )
        unseen = coverage_notes(self.held_out, self.seen, self.budget, BASIS_WORDS[self.basis])
        return (*few, *_cause_notes(self.held_out), *unseen, *_patches_note(self), *_overlap_note(self))


@dataclass(frozen=True)
class SplitScores(Brief):
    """Class scores `(n, classes)` of every part of a split, and what people read of the task besides them."""

    held_out: Array
    seen: Array
    choose: Array
    never_break: Array | None = None
    figures: Figures | None = None


def score(backend: ModelBackend, split: Split, run: Callable[[Part], Array] | None = None) -> SplitScores:
    """Score every part of the data in one pass of the model, or by `run`."""
    run = run or (lambda part: part.read(backend.forward(part.data.inputs)).scores)
    scores = [run(part) if len(part) else part.scores for part in split.parts]
    found = SplitScores(scores[0], scores[1], scores[2], scores[3] if len(scores) > 3 else None)
    part = split.held_out
    if not part.task.TABULATES or not len(part):
        return found
    return replace(found, figures=tabulate(part, backend.forward(part.data.inputs)))


def tabulate(part: Part, after: Array) -> Figures | None:
    """Count what people read of the part's task besides decisions, on the inputs that somebody has labelled.

    Args:
        part: The inputs, with the original model's outputs.
        after: Raw outputs with the patch, `(n, ...)`.
    """
    after = after if part.data.kept is None else after[~part.data.kept]
    labelled = part.labelled_part
    return part.task.tabulate(labelled.outputs, after, labelled.data.labels)


def original_scores(split: Split) -> SplitScores:
    """Return the original model's scores, which the split holds."""
    never_break = None if split.never_break is None else split.never_break.scores
    return SplitScores(split.held_out.scores, split.seen.scores, split.choose.scores, never_break)


def compare(split: Split, after: SplitScores, *, budget: float = BREAK_BUDGET, patches_compared: int = 1) -> Evidence:
    """Make the evidence from a patched model's scores; the split holds the original model's."""
    never_break = split.never_break
    return Evidence(
        held_out=measure_part(split.held_out, after.held_out, split.objective),
        seen=_unless_empty(split.seen, after.seen, split.objective),
        choose=_unless_empty(split.choose, after.choose, split.objective),
        budget=budget,
        patches_compared=patches_compared,
        never_break=None
        if never_break is None or after.never_break is None
        else measure_part(never_break, after.never_break),
        never_break_overlap=0 if never_break is None else len(overlap(never_break.data, split.held_out.data)),
        figures=after.figures,
    )


def measure(
    backend: ModelBackend,
    patch: Patch,
    split: Split,
    *,
    budget: float = BREAK_BUDGET,
    patches_compared: int = 1,
    run: Callable[[Part], Array] | None = None,
) -> Evidence:
    """Measure a patch on every part of the data; the model keeps its weights.

    Args:
        backend: The model.
        patch: The patch.
        split: The parts, with the original model's scores.
        budget: The largest break rate allowed.
        patches_compared: How many finished patches were compared before this one was taken.
        run: Returns the patched model's scores of a part, called while the patch is applied; when None, they are
            predicted from the activations that the part holds and verified, or come from a pass.
    """
    if not len(patch):  # nothing is changed, so the scores before are the scores after
        return compare(split, original_scores(split), budget=budget, patches_compared=patches_compared)
    predicted = {part: predict_patched(backend, part, patch) for part in split.parts} if run is None else {}
    run = run or (lambda part: verify_scores(backend, part, predicted[part]))
    with patch.apply_temporarily(backend):
        return compare(split, score(backend, split, run), budget=budget, patches_compared=patches_compared)


def predict_patched(backend: ModelBackend, part: Part, patch: Patch) -> Array | None:
    """Predict the scores `(n, classes)` of a part with a patch, from activations it holds; None if a pass is needed."""
    keys = [change.key for change in patch.changes]
    return predict_changed(backend, part, keys, patch.apply_temporarily(backend))


def _unless_empty(part: Part, after: Array, objective: Objective | None) -> PartEvidence | None:
    return measure_part(part, after, objective) if len(part) else None


def _basis_note(evidence: Evidence) -> tuple[str, ...]:
    if evidence.basis == UNKNOWN:
        return ("Whether the repair has seen these inputs is not known, so they are not called held out.",)
    if evidence.basis in (HELD_OUT, ALL):
        return ()
    seen = "all" if evidence.basis == SEEN else "some"
    return (f"The repair has seen {seen} of these inputs: they cannot show whether it generalises.",)


def _still_wrong_note(held_out: PartEvidence, kind: str) -> tuple[str, ...]:
    still_wrong = held_out.target.gone - held_out.repaired
    if not still_wrong:
        return ()
    verbs = ("shows", "is") if still_wrong == 1 else ("show", "are")
    whole = f"{still_wrong} of the {held_out.negatives} {kind}negatives"
    return (f"{whole} no longer {verbs[0]} the fault but {verbs[1]} wrong in another way.",)


def _cause_notes(held_out: PartEvidence) -> tuple[str, ...]:
    return tuple(one.cause_outcome.sentence(one.target) for one in held_out.targets if one.cause_outcome is not None)


def _targets_note(held_out: PartEvidence) -> tuple[str, ...]:
    if len(held_out.targets) < 2:
        return ()
    corrected = holm([target.sign_p for target in held_out.targets])
    each = ", ".join(f"{target.target} {p_value(p)}" for target, p in zip(held_out.targets, corrected, strict=True))
    shown = sum(p < LEVEL for p in corrected)
    return (
        f"{len(held_out.targets)} faults were tested at once, so each one's p-value is corrected by Holm's method: "
        f"{each}; {shown} of them changed beyond chance.",
    )


def _patches_note(evidence: Evidence) -> tuple[str, ...]:
    if evidence.patches_compared < 2:
        return ()
    seen, promised = evidence.seen, evidence.repaired_in_trials or 0
    if seen is not None and seen.repaired < MIN_KEPT * promised:
        return (
            f"It is the best of {evidence.patches_compared} patches by trial fits, which repaired {promised:,} of the "
            f"{seen.negatives:,} seen negatives; the fit to all of them repairs {seen.repaired:,}. Another seed, or "
            "another patch of the front, may do better.",
        )
    return (
        f"It is the best of {evidence.patches_compared} patches on seen inputs, so its numbers there flatter it; the "
        "held-out numbers played no part in the choice.",
    )


def _overlap_note(evidence: Evidence) -> tuple[str, ...]:
    if not evidence.never_break_overlap:
        return ()
    shared, total = evidence.never_break_overlap, evidence.held_out.inputs
    worth = "says nothing about new inputs" if 2 * shared > total else "is a little too good"
    return (
        f"{shared} of the {total} held-out inputs are also never-break inputs, which the repair was made to keep: the "
        f"held-out break rate {worth}.",
    )
