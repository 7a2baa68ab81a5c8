"""Does a repair survive what happens to the model afterwards: export, conversion, quantisation?

What a patch does to the model it was found in is measured again where the model ends up, each time between that place's
own model without and with the patch, so that the repair is not blamed for what the conversion itself costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part
from arachne.errors import PatchError
from arachne.evidence import Evidence
from arachne.evidence.statistics import Rate
from arachne.evidence.verdict import DAMAGE, NOT_REPAIRED, REPAIRED, TOO_FEW, WORSE, percent
from arachne.patch import Patch
from arachne.patch.matching import match
from arachne.patch.travel import ModelWeights
from arachne.values import Array, Inputs

GOODNESS = {REPAIRED: 4, DAMAGE: 3, NOT_REPAIRED: 2, WORSE: 1, TOO_FEW: 0}

Scores = Callable[[Inputs], Array]


@dataclass(frozen=True)
class Survival:
    """A repair in the model it is for (here) and in the place the model ended up (there).

    Attributes:
        where: What there is: a file's name, or the kind of quantisation.
        here: What the patch does to the model it is for.
        there: What it does there, on the same inputs.
        kept: Of the inputs repaired here, how many are right there.
        note: What the model without the patch is, there.
    """

    where: str
    here: Evidence
    there: Evidence
    kept: Rate
    note: str

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from arachne.report.notebook import survival_html

        return survival_html(self)

    @property
    def survived(self) -> bool:
        """Whether the verdict there is as good as here, and here there was a repair."""
        here, there = (GOODNESS[evidence.verdict.word] for evidence in (self.here, self.there))
        return here >= GOODNESS[DAMAGE] and there >= here

    def __str__(self) -> str:
        """The sentence, and what was compared."""
        return f"{self.sentence} ({self.note})"

    @property
    def sentence(self) -> str:
        """Survived or not, with the counts."""
        here, there = self.here.held_out, self.there.held_out
        counts = (
            f"{self.kept.count} of {self.kept.total} inputs repaired here are right in {self.where}; repair rate "
            f"{percent(here.repair_rate)} here, {percent(there.repair_rate)} there, break rate "
            f"{percent(here.break_rate)} here, {percent(there.break_rate)} there"
        )
        if GOODNESS[self.here.verdict.word] < GOODNESS[DAMAGE]:
            return f"there is no repair that could survive ({self.here.verdict.word} here): {counts}"
        return f"the repair {'survived' if self.survived else 'did not survive'}: {counts}"


def scores_there(patch: Patch, other: ModelBackend) -> tuple[Scores | None, Scores, str]:
    """Scores without and with the patch in another model, and what was taken for the model without.

    The other model may or may not carry the patch; both are measured, and it keeps its weights. Where the patch's
    weights are not found in it, there is no such model without the patch: None.
    """
    try:
        found = match(patch, ModelWeights(other), exact=patch.base.backend == other.NAME)
    except PatchError:
        return None, other.forward, "compared with the model itself: the patch's weights are not found there"
    if all(pair.done for pair in found.pairs):
        undone = found.patch.inverse()
        return _with(undone, other), other.forward, "it carries the patch, which was taken out for the comparison"
    return other.forward, _with(found.patch, other), "it does not carry the patch, which was put in for the comparison"


def kept(part: Part, here: Array, there: Array) -> Rate:
    """Of the negatives right here, how many are right there; scores `(n, classes)` with the patch."""
    labels = part.data.labels[part.negatives]
    right_here = np.argmax(here[part.negatives], axis=1) == labels
    right_there = np.argmax(there[part.negatives], axis=1) == labels
    return Rate(int(np.sum(right_here & right_there)), int(np.sum(right_here)))


def _with(patch: Patch, backend: ModelBackend) -> Scores:
    def forward(inputs: Inputs) -> Array:
        with patch.applied(backend):
            return backend.forward(inputs)

    return forward
