"""DeficitCache: the `[low, high]` bounds of candidates' totals; equal once the deficits are exact."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from arachne.model.values import Array
from arachne.scoring.fast.deficits import ExactDeficits

MAX_CANDIDATES = 4096
"""The number of candidates in the cache; an evicted one is evaluated again when it is needed."""

MAX_KEY_BYTES = 1024
"""The largest key in bytes; longer candidates are cached under a digest of 64 bytes."""


@dataclass(frozen=True, eq=False)
class KnownTotal:
    """The bounds of one candidate's total.

    Attributes:
        deficits: By term, int64 `(terms,)`; estimates between the bounds unless `wrong` is known.
        low: The lower bound of the plain evaluator's total.
        high: The upper bound.
        wrong: The number of inputs of each term it gets wrong `(terms,)`; None if the deficits are not exact.
    """

    deficits: Array
    low: int
    high: int
    wrong: Array | None = None

    @classmethod
    def exactly(cls, exact: ExactDeficits) -> KnownTotal:
        """Make both bounds equal to the exact total."""
        total = int(exact.deficits.sum())
        return cls(exact.deficits, total, total, exact.wrong)

    @property
    def width(self) -> int:
        """The difference of the bounds."""
        return self.high - self.low


def key_of(trial: Array) -> bytes:
    """Return a short key of a candidate's values `(k,)`: their bytes, or a digest if they are many."""
    values = trial.tobytes()
    return values if len(values) <= MAX_KEY_BYTES else blake2b(values).digest()


class DeficitCache:
    """Known totals by candidate. Evicting an entry costs time, but never changes a decision."""

    def __init__(self) -> None:
        self._known: dict[bytes, KnownTotal] = {}

    def __getitem__(self, trial: Array) -> KnownTotal | None:
        return self._known.get(key_of(trial))

    def __setitem__(self, trial: Array, known: KnownTotal) -> None:
        self._known[key_of(trial)] = known

    def trim(self, keep: Iterable[Array]) -> None:
        """Evict all but these candidates if there are too many."""
        if len(self._known) > MAX_CANDIDATES:
            keys = {key_of(trial) for trial in keep}
            self._known = {key: known for key, known in self._known.items() if key in keys}

    def forget_estimates(self) -> None:
        """Evict everything but exact totals."""
        self._known = {key: known for key, known in self._known.items() if known.wrong is not None}
