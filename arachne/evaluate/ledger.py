"""What is known about the total deficits of candidates: two bounds, which meet where the plain evaluator was asked."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from arachne.values import Array

ENTRIES = 4096
"""How many candidates are remembered; a forgotten one is judged again when it is needed."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One candidate.

    Attributes:
        deficits: By term, int64 `(terms,)`; an estimate between the bounds unless exact.
        low: The plain evaluator's total is at least this.
        high: And at most this.
        slack: The added bands of its inputs; no number where that does not tell how sure the deficits are.
        wrong: How many inputs of each term it gets wrong `(terms,)`, where the plain evaluator was asked.
    """

    deficits: Array
    low: int
    high: int
    slack: float = math.nan
    wrong: Array | None = None

    @property
    def exact(self) -> bool:
        """Whether the deficits are the plain evaluator's own."""
        return self.low == self.high


class Ledger:
    """Entries by candidate. It holds facts alone, so that forgetting any of them costs time and nothing else."""

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}

    def __getitem__(self, trial: Array) -> Entry | None:
        return self._entries.get(trial.tobytes())

    def __setitem__(self, trial: Array, entry: Entry) -> None:
        self._entries[trial.tobytes()] = entry

    def trim(self, keep: Iterable[Array]) -> None:
        """Forget all but these candidates when there are too many."""
        if len(self._entries) > ENTRIES:
            names = {trial.tobytes() for trial in keep}
            self._entries = {name: entry for name, entry in self._entries.items() if name in names}

    def forget_estimates(self) -> None:
        """Keep only what the plain evaluator said."""
        self._entries = {name: entry for name, entry in self._entries.items() if entry.exact}


def exact_entry(deficits: Array, wrong: Array) -> Entry:
    """What the plain evaluator said about a candidate."""
    total = int(np.sum(deficits))
    return Entry(deficits, total, total, wrong=wrong)
