"""Count separately what a repair did to inputs with a cause or of a group, and to all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.model.values import Array
from arachne.text import pluralise


@dataclass(frozen=True)
class CauseOutcome:
    """Outcome on the inputs that a `cause:` or `group:` target is limited to, and on the rest.

    Attributes:
        errors: Errors among the inputs with the cause, before.
        gone: How many of those are right now.
        right: Inputs with the cause that were right.
        broken: How many of those are wrong now.
        others: Inputs without the cause.
        others_fixed: How many of those were wrong and are right now.
        others_broken: How many of those were right and are wrong now.
    """

    errors: int
    gone: int
    right: int
    broken: int
    others: int
    others_fixed: int
    others_broken: int

    @classmethod
    def of(cls, target: Target, part: Part, was_right: Array, is_right: Array) -> CauseOutcome | None:
        """Count for a target of a cause or a group; None for any other target.

        Args:
            target: The target.
            part: The inputs.
            was_right: Which were right before, bool `(n,)`.
            is_right: Which are right after, bool `(n,)`.
        """
        if target.rows is None or (target.column is None and target.membership is None):
            return None
        has = np.isin(part.decision_rows, np.asarray(target.rows, dtype=np.int64))
        fixed, broken = ~was_right & is_right, was_right & ~is_right
        counts = (has & ~was_right, has & fixed, has & was_right, has & broken, ~has, ~has & fixed, ~has & broken)
        return cls(*(int(one.sum()) for one in counts))

    def sentence(self, target: str) -> str:
        """Describe the counts."""
        became = "none became wrong" if not self.broken else f"{self.broken} became wrong"
        right = f"; of {self.right:,} that were right {became}" if self.right else ""
        return (
            f"Inputs with {target}, held out: {self.gone} of {pluralise(self.errors, 'error')} gone{right}. Of "
            f"{pluralise(self.others, 'input')} without it {self.others_fixed} became right and {self.others_broken} "
            "wrong."
        )
