"""The values a search works on and returns: candidates, its state, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from arachne.values import Address, Array

Plain = int | float | str | bool | None
"""What a state may hold beside arrays."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A patch a search looked at.

    Attributes:
        addresses: The weights it changes.
        values: Their new values, float64 `(k,)`, as the model stores them.
        deficits: What it costs, int64 `(terms,)`; None where it has not been measured.
        made_by: The name of the searcher it comes from.
        held_back: Which of the fitness inputs are right, bool `(n,)`, each judged with a sibling of this candidate that
            was fitted without it; None where a searcher holds nothing back.
    """

    addresses: tuple[Address, ...]
    values: Array
    deficits: Array | None = None
    made_by: str = ""
    held_back: Array | None = None


@dataclass(frozen=True)
class Generation:
    """The progress of a search after one generation.

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
class SearchState:
    """All a search needs to go on: named arrays and plain values, so that it can be written down and read back.

    The generator of random numbers is not part of it. Whoever runs the loop owns it, and stores
    `rng.bit_generator.state`, which is plain values too, beside the state.

    Attributes:
        arrays: Numbers by name, of any shape, such as `(candidates, weights)`; no arrays of objects.
        values: Numbers, text, booleans or None by name.
        history: Generation by generation.
        stopped: Why the search has ended; None while it goes on.
    """

    arrays: Mapping[str, Array]
    values: Mapping[str, Plain] = field(default_factory=dict)
    history: tuple[Generation, ...] = ()
    stopped: str | None = None

    def __post_init__(self) -> None:
        for name, array in self.arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype.hasobject:
                raise TypeError(f"'{name}' of a search's state should be an array of numbers, got {type(array)}")
        for name, value in self.values.items():
            if type(value) not in (int, float, str, bool, type(None)):
                raise TypeError(f"'{name}' of a search's state should be a plain value, got {type(value)}")

    def to_json(self) -> dict[str, Any]:
        """Everything but the arrays, as JSON has it."""
        history = [asdict(generation) for generation in self.history]
        return {"values": dict(self.values), "history": history, "stopped": self.stopped}

    @classmethod
    def from_json(cls, arrays: Mapping[str, Array], plain: Mapping[str, Any]) -> Self:
        """A state from its arrays, of any shape, and what `to_json` gave for the rest."""
        history = tuple(Generation(**generation) for generation in plain["history"])
        return cls(dict(arrays), dict(plain["values"]), history, plain["stopped"])


OnState = Callable[[SearchState], None]
OnGeneration = Callable[[Generation], None]


def each_generation(on_generation: OnGeneration, told: int = 0) -> OnState:
    """An `on_state` that hands on every generation of the history, once, behind the first `told`."""

    def on_state(state: SearchState) -> None:
        nonlocal told
        for generation in state.history[told:]:
            on_generation(generation)
        told = len(state.history)

    return on_state


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search found: one candidate, or several between which only the user can choose.

    Attributes:
        front: The candidates.
        chosen: The index in `front` of the one that the properties below describe.
        original: What the unchanged model costs, int64 `(terms,)`.
        total_weight: What all inputs are worth together: the largest possible fitness.
        history: Generation by generation.
        stopped: Why the search ended.
    """

    front: tuple[Candidate, ...]
    original: Array
    total_weight: float
    history: tuple[Generation, ...]
    stopped: str
    chosen: int = 0

    @property
    def candidate(self) -> Candidate:
        """The chosen candidate."""
        return self.front[self.chosen]

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The weights the chosen candidate changes; not always those the search was given."""
        return self.candidate.addresses

    @property
    def values(self) -> Array:
        """Their new values, float64 `(k,)`, as the model stores them."""
        return self.candidate.values

    @property
    def deficits(self) -> Array:
        """What the chosen candidate costs, int64 `(terms,)`."""
        if self.candidate.deficits is None:
            raise ValueError("the chosen candidate was not measured; Problem.measured does that")
        return self.candidate.deficits

    @property
    def fitness(self) -> float:
        """The paper's fitness of the chosen candidate."""
        return fitness(self.total_weight, self.deficits)

    @property
    def original_fitness(self) -> float:
        """That of the unchanged model."""
        return fitness(self.total_weight, self.original)

    @property
    def generations(self) -> int:
        """How many generations were run after the first population."""
        return self.history[-1].number if self.history else 0

    @property
    def better(self) -> bool:
        """Whether the chosen candidate beats doing nothing on the seen inputs."""
        return int(self.deficits.sum()) < int(self.original.sum())


def fitness(total_weight: float, deficits: Array) -> float:
    """The paper's fitness of a candidate with these deficits `(terms,)`."""
    from arachne.evaluate import UNIT

    return total_weight - float(deficits.sum()) / UNIT
