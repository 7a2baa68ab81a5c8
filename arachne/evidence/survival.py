"""Measure whether a repair survives export, conversion or quantisation of the model.

The effect of the patch is measured again in the converted model, without and with the patch, so that the repair is not
blamed for the cost of the conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from arachne.data.part import Part
from arachne.errors import PatchError
from arachne.evidence import Evidence
from arachne.evidence.grade import OVERRUN, REDUCED, VERDICTS
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Inputs
from arachne.patch import Patch
from arachne.patch.matching import match
from arachne.patch.transfer import WeightsInMemory, derived_for
from arachne.plugins.drawing import Drawable
from arachne.scoring.plain import forward_with
from arachne.scoring.statistics import Rate

SURVIVING_SHARE = 0.9
"""A repair also survives with a lower verdict, if at least this share of its repaired inputs is right in the copy."""

Scores = Callable[[Inputs], Array]


@dataclass(frozen=True)
class Survival(Drawable):
    """A repair in the model it was made for (here) and in a converted copy (there).

    Attributes:
        where: The name of the copy: a file's name, or the kind of quantisation.
        here: The evidence in the model the patch is for.
        there: The evidence in the copy, on the same inputs.
        still_repaired: Of the inputs repaired here, how many are right there.
        note: Which model stands for the copy without the patch.
    """

    where: str
    here: Evidence
    there: Evidence
    still_repaired: Rate
    note: str

    @property
    def survives(self) -> bool:
        """Whether the copy reduces the fault as the repaired model does, and overruns no limit that this one keeps."""
        here, there = (VERDICTS.index(evidence.verdict.word) for evidence in (self.here, self.there))
        if min(here, there) < VERDICTS.index(REDUCED):
            return False
        overrun_there_alone = self.there.verdict.limit_state == OVERRUN != self.here.verdict.limit_state
        return not overrun_there_alone and (there >= here or self.still_repaired.value >= SURVIVING_SHARE)

    def __str__(self) -> str:
        """The sentence and the note."""
        return f"{self.sentence} ({self.note})"

    @property
    def headline(self) -> str:
        """The sentence."""
        return self.sentence

    @property
    def sentence(self) -> str:
        """Whether the repair survived, with the count, and the verdict there in the words of a repair."""
        repaired, there = self.still_repaired, self.there.verdict
        counts = (
            f"{repaired.count} of {repaired.total} inputs repaired here are right in {self.where}; "
            f"there it is {there.heading.upper()}: {there.sentence}"
        )
        if there.balance:
            counts += f"; {there.balance}"
        if VERDICTS.index(self.here.verdict.word) < VERDICTS.index(REDUCED):
            return f"there is no repair that could survive ({self.here.verdict.word} here): {counts}"
        return f"the repair {'survived' if self.survives else 'did not survive'}: {counts}"


def scores_there(patch: Patch, other: ModelBackend) -> tuple[Scores | None, Scores, str]:
    """Return functions that score another model without and with the patch, and a note on the model without it.

    The other model may or may not carry the patch, and keeps its weights. A patch in its own numbers, which `apply` has
    written beside its file, is the one it carries. The first function is None if the patch cannot be in the model.
    """
    stored = WeightsInMemory(other)
    own = derived_for(patch, stored.path)
    try:
        found = match(own or patch, stored, exact=own is not None or patch.base.backend == other.NAME)
    except PatchError as error:
        return None, other.forward, f"compared with the model itself, as the patch does not fit the copy: {error}"
    if all(pair.done for pair in found.pairs):
        undone = found.patch.inverse()
        return (
            _patched_forward(undone, other),
            other.forward,
            "it carries the patch, which was taken out for the comparison",
        )
    return (
        other.forward,
        _patched_forward(found.patch, other),
        "it does not carry the patch, which was put in for the comparison",
    )


def count_still_repaired(part: Part, here: Array, there: Array) -> Rate:
    """Count the negatives right here that are also right there; raw outputs `(n, ...)` with the patch."""
    labels = part.labels[part.negatives]
    right_here, right_there = (
        part.task.correct(part.read(outputs).scores[part.negatives], labels) for outputs in (here, there)
    )
    return Rate(int(np.sum(right_here & right_there)), int(np.sum(right_here)))


def _patched_forward(patch: Patch, backend: ModelBackend) -> Scores:
    def forward(inputs: Inputs) -> Array:
        return forward_with(backend, patch.apply_temporarily(backend), inputs)

    return forward
