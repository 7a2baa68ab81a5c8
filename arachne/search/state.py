"""The values a search works on and returns: candidates, its state, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

import numpy as np

from arachne.io.stored_values import real, whole
from arachne.model.values import Address, Array
from arachne.text import Brief, pluralise
from arachne.weights.edit import LowRankEdit
from arachne.weights.selection import Selection, WeightSource

Plain = int | float | str | bool | None
"""The values that a state may hold beside arrays."""

MEMBER_PREFIX = "member/"
"""The prefix of a member's arrays in a file."""


@dataclass(frozen=True, eq=False)
class Candidate(Brief):
    """A patch that a search considered.

    Attributes:
        selection: The single weights it changes, shared by the candidates of one search; none with an `edit`.
        values: Their new values, float64 `(k,)`, as the model stores them.
        deficits: Its deficits, int64 `(terms,)`; None if it has not been scored.
        made_by: The name of the searcher it comes from.
        held_back: Which of the fitness inputs are right, bool `(n,)`, each judged with a sibling of this candidate that
            was fitted without it; None if the searcher is not cross-fitted.
        edit: The change of a whole matrix or kernel, if it is one; the patch then holds its vectors.
    """

    selection: Selection
    values: Array
    deficits: Array | None = None
    made_by: str = ""
    held_back: Array | None = None
    edit: LowRankEdit | None = None

    @classmethod
    def at(cls, source: WeightSource, addresses: Sequence[Address], values: Array) -> Self:
        """Make a candidate of addresses in any order and their new values `(k,)`."""
        selection = Selection.of(source, addresses)
        ordered = np.empty(len(selection))
        ordered[selection.numbers_of(addresses)] = values
        return cls(selection, ordered)

    @classmethod
    def of_edit(
        cls, edit: LowRankEdit, deficits: Array | None = None, made_by: str = "", held_back: Array | None = None
    ) -> Self:
        """Make a candidate that changes a whole matrix or kernel.

        Args:
            edit: The change.
            deficits: The deficit of each term, int64 `(terms,)`.
            made_by: The searcher.
            held_back: Whether runs that had not seen an input get it right, bool `(inputs,)`.
        """
        return cls(Selection((), np.zeros(0)), np.zeros(0), deficits, made_by, held_back, edit)

    @property
    def headline(self) -> str:
        """`35 weights in fc1, by low-rank`."""
        made = f", by {self.made_by}" if self.made_by else ""
        return f"{pluralise(self.changed_weights, 'weight')} in {', '.join(self.layers) or 'no layer'}{made}"

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The single weights it changes, as `Address` objects."""
        return self.selection.addresses

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers it changes, each once."""
        return self.selection.layers if self.edit is None else (self.edit.layer,)

    @property
    def changed_weights(self) -> int:
        """How many weights it changes."""
        if self.edit is not None:
            return self.edit.changed_weights
        return int(np.count_nonzero(self.values != self.selection.values))

    @property
    def size(self) -> float:
        """The Euclidean length of the change."""
        return float(np.linalg.norm(self.values - self.selection.values)) if self.edit is None else self.edit.size

    def whole_parameters(self, source: WeightSource) -> dict[tuple[str, str], Array]:
        """Return copies of the whole parameters it changes, out of a model, with the change in them.

        Each is an array of the parameter's canonical shape `(...)`, by layer and parameter.
        """
        if self.edit is not None:
            return {self.edit.key: self.edit.add(source.read_weights(self.edit.layer)[self.edit.parameter])}
        return self.selection.put(self.values, self.selection.whole_parameters(source))


@dataclass(frozen=True)
class Generation:
    """The progress of a search after one generation.

    Attributes:
        number: 0 is the first population.
        fitness: The fitness of the best candidate so far.
        repaired: Negatives that candidate gets right.
        broken: Positives it gets wrong.
        evaluations: Candidates evaluated so far.
        replaced: The number of members of the population that this generation replaced.
    """

    number: int
    fitness: float
    repaired: int
    broken: int
    evaluations: int
    replaced: int

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Make a generation of an object with exactly these attributes.

        Raises:
            ValueError: The object has other attributes.
        """
        names = [one.name for one in fields(cls)]
        if not isinstance(document, Mapping) or set(document) != set(names):
            raise ValueError("a generation is not as it should be")
        numbers = {name: whole(document[name], name) for name in names if name != "fitness"}
        return cls(fitness=real(document["fitness"], "fitness"), **numbers)


@dataclass(frozen=True, eq=False)
class SearchState(Brief):
    """Everything a search needs to continue: named arrays and plain values, which can be written to a file.

    The generator of random numbers is not part of it. The caller of the loop owns it, and stores
    `rng.bit_generator.state`, which is plain values too, beside the state.

    Attributes:
        arrays: Arrays of numbers by name, of any shape, such as `(candidates, weights)`; no arrays of objects.
        values: Numbers, text, booleans or None by name.
        history: Generation by generation.
        stopped: The reason why the search has ended; None while it continues.
        members: The states of the searches that it runs, by name, in the order in which they began.
    """

    arrays: Mapping[str, Array]
    values: Mapping[str, Plain] = field(default_factory=dict)
    history: tuple[Generation, ...] = ()
    stopped: str | None = None
    members: Mapping[str, SearchState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, array in self.arrays.items():
            if name.startswith(MEMBER_PREFIX):
                raise TypeError(f"'{name}' of a search's state should not begin with '{MEMBER_PREFIX}'")
            if not isinstance(array, np.ndarray) or array.dtype.hasobject:
                raise TypeError(f"'{name}' of a search's state should be an array of numbers, got {type(array)}")
        for name, value in self.values.items():
            if type(value) not in (int, float, str, bool, type(None)):
                raise TypeError(f"'{name}' of a search's state should be a plain value, got {type(value)}")

    def to_json(self) -> dict[str, Any]:
        """Return everything but the arrays, as JSON values."""
        history = [asdict(generation) for generation in self.history]
        members = [[name, one.to_json()] for name, one in self.members.items()]
        return {"values": dict(self.values), "history": history, "stopped": self.stopped, "members": members}

    @classmethod
    def from_json(cls, arrays: Mapping[str, Array], plain: Mapping[str, Any]) -> Self:
        """Make a state of its arrays, of any shape and named as in `all_arrays`, and of the result of `to_json`."""
        history = tuple(map(Generation.from_json, plain["history"]))
        own = {name: array for name, array in arrays.items() if not name.startswith(MEMBER_PREFIX)}
        members = {}
        for number, (name, one) in enumerate(plain.get("members", ())):
            prefix = f"{MEMBER_PREFIX}{number}/"
            inside = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            members[name] = cls.from_json(inside, one)
        return cls(own, dict(plain["values"]), history, plain["stopped"], members)

    @property
    def all_arrays(self) -> dict[str, Array]:
        """The arrays, of any shape, of this state and of its members, under unique names for a file."""
        found = dict(self.arrays)
        for number, one in enumerate(self.members.values()):
            found |= {f"{MEMBER_PREFIX}{number}/{name}": array for name, array in one.all_arrays.items()}
        return found


OnState = Callable[[SearchState], None]
OnGeneration = Callable[[Generation], None]


def each_generation(on_generation: OnGeneration, reported: int = 0) -> OnState:
    """Return an `on_state` that reports every generation of the history once, after the first `reported`."""

    def on_state(state: SearchState) -> None:
        nonlocal reported
        for generation in state.history[reported:]:
            on_generation(generation)
        reported = len(state.history)

    return on_state


@dataclass(frozen=True, eq=False)
class SearchResult(Brief):
    """The result of a search: one candidate, or a front of several.

    Attributes:
        front: The candidates.
        chosen: The index in `front` of the candidate that the properties below describe.
        original: The deficits of the unchanged model, int64 `(terms,)`.
        total_weight: The largest possible fitness: the sum of all inputs' weights.
        history: Generation by generation.
        stopped: The reason why the search ended.
    """

    front: tuple[Candidate, ...]
    original: Array
    total_weight: float
    history: tuple[Generation, ...]
    stopped: str
    chosen: int = 0

    @property
    def headline(self) -> str:
        """The number of candidates, and why the search ended."""
        return f"{pluralise(len(self.front), 'candidate')}, {self.stopped}; chosen: {self.candidate.headline}"

    @property
    def candidate(self) -> Candidate:
        """The chosen candidate."""
        return self.front[self.chosen]

    @property
    def selection(self) -> Selection:
        """The single weights the chosen candidate changes; not always those the search was given."""
        return self.candidate.selection

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The single weights the chosen candidate changes; not always those the search was given."""
        return self.candidate.addresses

    @property
    def values(self) -> Array:
        """Their new values, float64 `(k,)`, as the model stores them."""
        return self.candidate.values

    @property
    def deficits(self) -> Array:
        """The deficits of the chosen candidate, int64 `(terms,)`."""
        if self.candidate.deficits is None:
            raise ValueError("the chosen candidate has no deficits; call Problem.score_exactly first")
        return self.candidate.deficits

    @property
    def fitness(self) -> float:
        """The paper's fitness of the chosen candidate."""
        return fitness(self.total_weight, self.deficits)

    @property
    def original_fitness(self) -> float:
        """The paper's fitness of the unchanged model."""
        return fitness(self.total_weight, self.original)

    @property
    def generations(self) -> int:
        """The number of generations after the first population."""
        return self.history[-1].number if self.history else 0

    @property
    def better(self) -> bool:
        """Whether the chosen candidate beats doing nothing on the seen inputs."""
        return int(self.deficits.sum()) < int(self.original.sum())


def fitness(total_weight: float, deficits: Array) -> float:
    """Return the paper's fitness of a candidate with these deficits `(terms,)`."""
    from arachne.scoring.evaluators import UNIT

    return total_weight - float(deficits.sum()) / UNIT
