"""What the decider remembers of candidates: the bounds of their totals, which meet where exact facts were asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from arachne.evaluate.judging.facts import ExactFacts
from arachne.values import Array

REMEMBERED = 4096
"""How many candidates are remembered; a forgotten one is judged again when it is needed."""

LONGEST_KEY = 1024
"""In bytes; candidates with more values than fit are remembered by a digest of 64 bytes."""


@dataclass(frozen=True, eq=False)
class KnownTotal:
    """What is known about one candidate's total.

    Attributes:
        deficits: By term, int64 `(terms,)`; estimates between the bounds unless `wrong` is known.
        low: The plain evaluator's total is at least this.
        high: And at most this.
        wrong: How many inputs of each term it gets wrong `(terms,)`; None where exact facts were not asked for.
    """

    deficits: Array
    low: int
    high: int
    wrong: Array | None = None

    @classmethod
    def exactly(cls, facts: ExactFacts) -> KnownTotal:
        """From exact facts: both bounds are the total."""
        total = int(facts.deficits.sum())
        return cls(facts.deficits, total, total, facts.wrong)

    @property
    def width(self) -> int:
        """How far the bounds are apart."""
        return self.high - self.low


def key_of(trial: Array) -> bytes:
    """A short name for a candidate's values `(k,)`: the values themselves, or their digest where they are many."""
    values = trial.tobytes()
    return values if len(values) <= LONGEST_KEY else blake2b(values).digest()


class Ledger:
    """Known totals by candidate. It holds facts alone, so that forgetting any of them costs time and nothing else."""

    def __init__(self) -> None:
        self._known: dict[bytes, KnownTotal] = {}

    def __getitem__(self, trial: Array) -> KnownTotal | None:
        return self._known.get(key_of(trial))

    def __setitem__(self, trial: Array, known: KnownTotal) -> None:
        self._known[key_of(trial)] = known

    def trim(self, keep: Iterable[Array]) -> None:
        """Forget all but these candidates when there are too many."""
        if len(self._known) > REMEMBERED:
            keys = {key_of(trial) for trial in keep}
            self._known = {key: known for key, known in self._known.items() if key in keys}

    def forget_estimates(self) -> None:
        """Keep only exact facts."""
        self._known = {key: known for key, known in self._known.items() if known.wrong is not None}
