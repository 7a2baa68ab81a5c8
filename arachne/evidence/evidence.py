"""The evidence of a repair: every part of the data before and after, and the verdict from the part it never saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from arachne.backend import ModelBackend
from arachne.data.seen import ALL, HELD_OUT, SEEN, UNKNOWN
from arachne.data.split import Part, Split, overlap
from arachne.evidence.measures import PartEvidence
from arachne.evidence.statistics import LEVEL, holm
from arachne.evidence.verdict import BREAK_BUDGET, KINDS, NOTHING_WITHIN, Verdict, judge, p_value
from arachne.evidence.who_pays import sentences
from arachne.fairness import Objective
from arachne.values import Array

if TYPE_CHECKING:
    from arachne.patch import Patch


@dataclass(frozen=True)
class Evidence:
    """What a repair did, and what to think of it.

    Attributes:
        held_out: The inputs the repair never saw: the verdict comes from here.
        seen: The inputs it worked on; None when a finished patch is evaluated.
        choose: The inputs on which candidate patches were compared; None when there were none.
        budget: The break rate the repair may cost.
        patches_compared: How many finished patches were compared before this one was taken.
        never_break: The inputs that had to stay right; None when there were none.
        watched: How many held-out inputs are never-break inputs too, so that the repair could see them.
        nothing_within: Why no patch was taken, where a budget allowed none.
        simpler: A sentence where something simpler would have done as well.
        basis: What the inputs of `held_out` are to the repair, one of `data.seen.BASES`; only a finished patch can be
            measured on inputs that are not held out.
    """

    held_out: PartEvidence
    seen: PartEvidence | None = None
    choose: PartEvidence | None = None
    budget: float = BREAK_BUDGET
    patches_compared: int = 1
    never_break: PartEvidence | None = None
    watched: int = 0
    nothing_within: str | None = None
    simpler: str | None = None
    basis: str = HELD_OUT

    def __str__(self) -> str:
        """The verdict, and what a careful reader should know beside it."""
        return "\n".join((str(self.verdict), *self.notes))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from arachne.report.notebook import result_html

        return result_html(self)

    @cached_property
    def verdict(self) -> Verdict:
        """One of six words, and why."""
        if self.nothing_within is not None:
            return Verdict(NOTHING_WITHIN, self.nothing_within)
        return judge(self.held_out, self.budget, KINDS[self.basis])

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a careful reader should know beside the verdict, in whole sentences."""
        if self.nothing_within is not None:
            return ()
        simpler = () if self.simpler is None else (self.simpler,)
        fairness = () if self.held_out.fairness is None else sentences(self.held_out.fairness)
        few = (
            *_basis(self),
            *fairness,
            *_moved(self.held_out, KINDS[self.basis]),
            *simpler,
            *_several_targets(self.held_out),
        )
        return (*few, *_with_causes(self.held_out), *_several_patches(self), *_watched(self))


@dataclass(frozen=True)
class SplitScores:
    """Class scores `(n, classes)` of every part of a split."""

    held_out: Array
    seen: Array
    choose: Array
    never_break: Array | None = None


def parts_of(split: Split) -> list[Part]:
    """Every part of the data, in the order of `SplitScores`."""
    return [split.held_out, split.seen, split.choose, *([] if split.never_break is None else [split.never_break])]


def score(backend: ModelBackend, split: Split, run: Callable[[Part], Array] | None = None) -> SplitScores:
    """The scores of every part of the data: from one pass of the model over it, unless `run` tells otherwise."""
    run = run or (lambda part: backend.forward(part.data.inputs))
    return SplitScores(*(run(part) if len(part) else part.scores for part in parts_of(split)))


def before(split: Split) -> SplitScores:
    """The original model's scores, as the split has them."""
    kept = None if split.never_break is None else split.never_break.scores
    return SplitScores(split.held_out.scores, split.seen.scores, split.choose.scores, kept)


def compare(split: Split, after: SplitScores, *, budget: float = BREAK_BUDGET, patches_compared: int = 1) -> Evidence:
    """The evidence from a patched model's scores; the split holds the original model's."""
    kept = split.never_break
    return Evidence(
        held_out=PartEvidence.measure(split.held_out, after.held_out, split.objective),
        seen=_unless_empty(split.seen, after.seen, split.objective),
        choose=_unless_empty(split.choose, after.choose, split.objective),
        budget=budget,
        patches_compared=patches_compared,
        never_break=None
        if kept is None or after.never_break is None
        else PartEvidence.measure(kept, after.never_break),
        watched=0 if kept is None else len(overlap(kept.data, split.held_out.data)),
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
    """Run a model with a patch over every part of the data; the model keeps its weights.

    Args:
        backend: The model.
        patch: The patch.
        split: The parts, with the original model's scores.
        budget: The break rate the repair may cost.
        patches_compared: How many finished patches were compared before this one was taken.
        run: Gives the patched model's scores of a part, called while it has the patch; one pass when None.
    """
    if not len(patch):  # nothing is changed, so the scores before are the scores after
        return compare(split, before(split), budget=budget, patches_compared=patches_compared)
    with patch.applied(backend):
        return compare(split, score(backend, split, run), budget=budget, patches_compared=patches_compared)


def _unless_empty(part: Part, after: Array, objective: Objective | None) -> PartEvidence | None:
    return PartEvidence.measure(part, after, objective) if len(part) else None


def _basis(evidence: Evidence) -> tuple[str, ...]:
    if evidence.basis == UNKNOWN:
        return ("Whether the repair has seen these inputs is not known, so they are not called held out.",)
    if evidence.basis in (HELD_OUT, ALL):
        return ()
    seen = "all" if evidence.basis == SEEN else "some"
    return (f"The repair has seen {seen} of these inputs: they cannot show whether it generalises.",)


def _moved(held_out: PartEvidence, kind: str) -> tuple[str, ...]:
    moved = held_out.target.gone - held_out.repaired
    if not moved:
        return ()
    verbs = ("shows", "is") if moved == 1 else ("show", "are")
    whole = f"{moved} of the {held_out.negatives} {kind}negatives"
    return (f"{whole} no longer {verbs[0]} the fault but {verbs[1]} wrong in another way.",)


def _with_causes(held_out: PartEvidence) -> tuple[str, ...]:
    return tuple(one.carriers.sentence(one.target) for one in held_out.targets if one.carriers is not None)


def _several_targets(held_out: PartEvidence) -> tuple[str, ...]:
    if len(held_out.targets) < 2:
        return ()
    corrected = holm([target.sign_p for target in held_out.targets])
    each = ", ".join(f"{target.target} {p_value(p)}" for target, p in zip(held_out.targets, corrected, strict=True))
    shown = sum(p < LEVEL for p in corrected)
    return (
        f"{len(held_out.targets)} faults were tested at once, so each one's p-value is corrected by Holm's method: "
        f"{each}; {shown} of them changed beyond chance.",
    )


def _several_patches(evidence: Evidence) -> tuple[str, ...]:
    if evidence.patches_compared < 2:
        return ()
    return (
        f"{evidence.patches_compared} patches were compared and the best was taken on inputs the repair could see. Its "
        "numbers on those inputs flatter it; the held-out numbers do not, because they played no part in the choice.",
    )


def _watched(evidence: Evidence) -> tuple[str, ...]:
    if not evidence.watched:
        return ()
    return (
        f"{evidence.watched} of the {evidence.held_out.inputs} held-out inputs are also never-break inputs, which the "
        "repair could see: the held-out break rate is a little too good.",
    )
