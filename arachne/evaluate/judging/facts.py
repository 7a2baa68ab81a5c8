"""What is known about candidates, apart from who decides with it: bounds of their totals, and exact deficits.

Facts may be worked out anywhere. All of them are whole numbers that add up over the inputs, so the facts about some
inputs and those about the others make the facts about all of them (`SummedFacts`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne.values import Array


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of the plain evaluator's total deficits of some candidates.

    Attributes:
        deficits: Estimates by term, int64 `(candidates, terms)`; their sum lies between the bounds.
        low: The totals are at least these, int64 `(candidates,)`; of candidates that were given up too.
        high: The totals are at most these, int64 `(candidates,)`; only where `complete`.
        complete: Whether all inputs were looked at, bool `(candidates,)`.
    """

    deficits: Array
    low: Array
    high: Array
    complete: Array


@dataclass(frozen=True, eq=False)
class ExactFacts:
    """What the plain evaluator says about one candidate.

    Attributes:
        deficits: By term, int64 `(terms,)`.
        wrong: How many inputs of each term it gets wrong, `(terms,)`.
    """

    deficits: Array
    wrong: Array


class Facts(ABC):
    """Answers questions about candidates over some inputs. It decides nothing."""

    @property
    @abstractmethod
    def revision(self) -> int:
        """Changes when bounds that were given before may no longer hold. Exact facts hold for ever."""

    @abstractmethod
    def bounds(self, trials: Array, ceilings: Array | None) -> Bounds:
        """Bounds of candidates `(candidates, k)`. Called for whole generations, and therefore hot.

        Args:
            trials: The candidates, float64.
            ceilings: int64 `(candidates,)`: a candidate whose lower bound passes its ceiling may be given up there.
                None asks for complete bounds of all.
        """

    @abstractmethod
    def exact(self, trial: Array) -> ExactFacts:
        """Exact deficits of one candidate `(k,)`. Called where bounds leave a decision open."""

    @abstractmethod
    def scores(self, trial: Array) -> Array:
        """The plain evaluator's class scores of one candidate `(k,)` for every input, `(n, classes)`."""

    def next_generation(self) -> None:
        """Called after the bounds of each generation: a chance to learn from what its candidates cost."""
        return


class SummedFacts(Facts):
    """Facts about all inputs, from the facts about parts of them. The inputs are those of the parts, one after another.

    Args:
        parts: The facts about each part; all for the same suspects and the same terms.
    """

    def __init__(self, parts: Sequence[Facts]) -> None:
        self._parts = tuple(parts)

    @property
    def revision(self) -> int:
        return sum(part.revision for part in self._parts)

    def bounds(self, trials: Array, ceilings: Array | None) -> Bounds:
        # No deficit is negative, so a candidate above its ceiling on one part alone is above it on all inputs.
        found = [part.bounds(trials, ceilings) for part in self._parts]
        return Bounds(
            deficits=np.sum([part.deficits for part in found], axis=0),
            low=np.sum([part.low for part in found], axis=0),
            high=np.sum([part.high for part in found], axis=0),
            complete=np.all([part.complete for part in found], axis=0),
        )

    def exact(self, trial: Array) -> ExactFacts:
        found = [part.exact(trial) for part in self._parts]
        return ExactFacts(
            np.sum([part.deficits for part in found], axis=0), np.sum([part.wrong for part in found], axis=0)
        )

    def scores(self, trial: Array) -> Array:
        return np.concatenate([part.scores(trial) for part in self._parts])

    def next_generation(self) -> None:
        for part in self._parts:
            part.next_generation()
