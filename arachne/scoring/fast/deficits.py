"""DeficitSource: the interface that computes bounds and exact deficits of candidates, for an evaluator to decide with.

All numbers are whole and add up over the inputs, so the deficits over parts of the inputs sum up to the deficits over
all of them, wherever they are computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from arachne.model.values import Array


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of the plain evaluator's total deficits of some candidates.

    Attributes:
        deficits: Estimates by term, int64 `(candidates, terms)`; their sum lies between the bounds.
        low: Lower bounds of the totals, int64 `(candidates,)`; also of candidates that were dropped.
        high: Upper bounds of the totals, int64 `(candidates,)`; valid only where `complete`.
        complete: Whether all inputs were scored, bool `(candidates,)`.
    """

    deficits: Array
    low: Array
    high: Array
    complete: Array


@dataclass(frozen=True, eq=False)
class ExactDeficits:
    """The plain evaluator's deficits of one candidate.

    Attributes:
        deficits: By term, int64 `(terms,)`.
        wrong: The number of inputs of each term it gets wrong, `(terms,)`.
    """

    deficits: Array
    wrong: Array


class DeficitSource(ABC):
    """Computes bounds and exact deficits of candidates over some inputs. It decides nothing."""

    @property
    @abstractmethod
    def revision(self) -> int:
        """A number that changes when earlier bounds may no longer hold. Exact deficits always hold."""

    @abstractmethod
    def bounds(self, trials: Array, ceilings: Array | None) -> Bounds:
        """Return bounds of candidates `(candidates, k)`. Called for whole generations, and therefore hot.

        Args:
            trials: The candidates, float64.
            ceilings: int64 `(candidates,)`: a candidate whose lower bound passes its ceiling may be dropped there. None
                asks for complete bounds of all candidates.
        """

    @abstractmethod
    def exact(self, trial: Array) -> ExactDeficits:
        """Return the exact deficits of one candidate `(k,)`. Called where bounds leave a decision open."""

    @abstractmethod
    def scores(self, trial: Array) -> Array:
        """Return the plain evaluator's class scores of one candidate `(k,)` for every input, `(n, classes)`."""

    def next_generation(self) -> None:
        """Learn from the deficits of a generation; called after its bounds."""
        return
