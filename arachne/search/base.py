"""What a search is given and what it hands back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.labelled import LabelledData
from arachne.data.split import Split
from arachne.dtypes import round_to
from arachne.evaluate.base import UNIT, Evaluator
from arachne.suspects import Suspects
from arachne.values import Address, Array


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a search may use.

    Attributes:
        backend: The model; a search leaves it as it was.
        split: The parts of the data; a search never looks at `held_out`.
        suspects: The weights it may change (a searcher may return others).
        evaluator: What a candidate costs on the seen part.
        training: Training inputs, where the user gave them.
    """

    backend: ModelBackend
    split: Split
    suspects: Suspects
    evaluator: Evaluator
    training: LabelledData | None = None

    def fitness(self, deficits: Array) -> float:
        """The paper's fitness of a candidate with these deficits `(terms,)`."""
        return self.evaluator.stake.total_weight() - float(deficits.sum()) / UNIT

    def stored(self, values: Array) -> Array:
        """The nearest values the model can store, float64 `(..., k)`."""
        columns = [round_to(values[..., number], dtype) for number, dtype in enumerate(self.suspects.dtypes)]
        return np.stack(columns, axis=-1).astype(np.float64)


@dataclass(frozen=True)
class Generation:
    """How far a search was after one generation.

    Attributes:
        number: 0 is the first population.
        fitness: Of the best candidate so far.
        repaired: Negatives it gets right.
        broken: Positives it gets wrong.
        evaluations: Candidates evaluated so far.
        replaced: How many members of the population this generation replaced.
    """

    number: int
    fitness: float
    repaired: int
    broken: int
    evaluations: int
    replaced: int


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best candidate of a search.

    Attributes:
        addresses: The weights it changes.
        values: Their new values, float64 `(k,)`, as the model stores them.
        deficits: What it costs, int64 `(terms,)`.
        original: What the unchanged model costs, int64 `(terms,)`.
        fitness: Its fitness.
        original_fitness: That of the unchanged model.
        history: Generation by generation.
        stopped: Why the search ended.
    """

    addresses: tuple[Address, ...]
    values: Array
    deficits: Array
    original: Array
    fitness: float
    original_fitness: float
    history: tuple[Generation, ...]
    stopped: str

    @property
    def generations(self) -> int:
        """How many generations were run after the first population."""
        return self.history[-1].number if self.history else 0

    @property
    def better(self) -> bool:
        """Whether the candidate beats doing nothing on the seen inputs."""
        return int(self.deficits.sum()) < int(self.original.sum())


OnGeneration = Callable[[Generation], None]


class Searcher(ABC):
    """Looks for new values of the suspects."""

    name: str

    @abstractmethod
    def search(
        self,
        problem: Problem,
        *,
        rng: np.random.Generator,
        start: Array | None = None,
        on_generation: OnGeneration | None = None,
    ) -> SearchResult:
        """Find a patch. Called once per repair, after localisation.

        Args:
            problem: What to repair.
            rng: Where all randomness comes from.
            start: Candidates to start from, `(m, k)`, instead of the searcher's own.
            on_generation: Called after each generation; what it raises ends the search.
        """
