"""What a search is given, and what a searcher has to define."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.grouping import groups_in
from arachne.data.labelled import LabelledData
from arachne.data.split import Split
from arachne.dtypes import round_to
from arachne.losses import margins
from arachne.options import Configured
from arachne.search.state import Candidate, OnState, SearchResult, SearchState, fitness
from arachne.suspects import Suspects
from arachne.values import Array

if TYPE_CHECKING:
    from arachne.evaluate.base import Evaluator
    from arachne.evaluate.fitness import FitnessInputs
    from arachne.search.tail_inputs import TailInputs
    from arachne.search.tunable import Cuts, Tunable

MakeEvaluator = Callable[[ModelBackend, "FitnessInputs", Suspects], "Evaluator"]


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a search may use.

    Attributes:
        backend: The model; a search leaves it as it was.
        split: The parts of the data; a search never looks at `held_out`.
        suspects: The weights it may change (a searcher may return others).
        fitness_inputs: The inputs the fitness counts, with their weights; all from the seen part.
        make_evaluator: Makes the evaluator of this problem, when it is first needed.
        training: Training inputs, where the user gave them.
        rows: The rows of the seen part that `fitness_inputs` begins with, int64 `(m,)`; what is made fairer between
            groups is looked up there.
        shared: What problems over other weights of the same model and inputs have in common, once it was computed.
    """

    backend: ModelBackend
    split: Split
    suspects: Suspects
    fitness_inputs: FitnessInputs
    make_evaluator: MakeEvaluator
    training: LabelledData | None = None
    rows: Array | None = None
    shared: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def evaluator(self) -> Evaluator:
        """What a candidate costs; made on first use, since a fast one takes several passes to make."""
        return self.make_evaluator(self.backend, self.fitness_inputs, self.suspects)

    @cached_property
    def tunable(self) -> Tunable:
        """Scores and gradients of the fitness inputs by the suspects' values; made on first use."""
        from arachne.search.dense_tunable import make_tunable
        from arachne.search.tunable import Cuts

        counted, numbers = self.fitness_inputs, self.rows
        if numbers is None or len(numbers) < len(counted):  # others than those of the seen part
            cuts, numbers = Cuts(self.backend, counted.inputs, counted.terms), None
        else:
            cuts = self.cuts
        return make_tunable(self.backend, counted.inputs, self.suspects, self.tail, (cuts, numbers))

    @property
    def cuts(self) -> Cuts:
        """The unchanged model held open at any layers, for the inputs of the seen part."""
        from arachne.search.tunable import Cuts

        if "cuts" not in self.shared:
            groups = np.full(len(self.split.seen), -1)
            if self.rows is not None:
                groups[self.rows] = self.fitness_inputs.terms[: len(self.rows)]
            self.shared["cuts"] = Cuts(self.backend, self.split.seen.data.inputs, groups)
        found: Cuts = self.shared["cuts"]
        return found

    @property
    def tail(self) -> TailInputs | None:
        """What flows through the dense layers at the end of the model; None where it does not end in one."""
        from arachne.search.tail_inputs import TailInputs

        if "tail" not in self.shared:
            self.shared["tail"] = TailInputs.of(self.backend, self.fitness_inputs.inputs)
        found: TailInputs | None = self.shared["tail"]
        return found

    @cached_property
    def original_scores(self) -> Array:
        """The unchanged model's scores of the fitness inputs `(n, classes)`."""
        return self.tunable.scores(self.suspects.values, np.arange(len(self.fitness_inputs)))

    @cached_property
    def originally_right(self) -> Array:
        """Which of the fitness inputs the unchanged model classifies correctly, bool `(n,)`."""
        return np.asarray(np.argmax(self.original_scores, axis=1) == self.fitness_inputs.labels)

    @cached_property
    def unit(self) -> float:
        """The median margin of the positives in the unchanged model: what margins are measured in."""
        found = margins(self.original_scores, self.fitness_inputs.labels)
        positive = found[self.fitness_inputs.of_kind("positive")]
        return float(np.median(positive if len(positive) else np.abs(found))) or 1.0

    @property
    def fair(self) -> bool:
        """Whether something is to become fairer between groups, and `costs` says how much it is."""
        return self.split.objective is not None and self.rows is not None

    def costs(self, right: Array) -> Array:
        """What the objective says of candidates, `(n,)`, smaller is better, from `right` `(n, fitness inputs)`.

        Errors off the target, which are not among the fitness inputs, count as wrong.
        """
        objective = self.split.objective
        if objective is None or self.rows is None:
            return np.zeros(len(right))
        whole = groups_in(self.split.seen, str(objective.group_column))
        return objective.cost(whole.take(self.rows).right(right[:, : len(self.rows)]), whole.totals)

    def tuned(self, candidate: Candidate) -> Candidate:
        """A candidate for the suspects with its deficits, from what `tunable` computes."""
        scores = self.tunable.scores(candidate.values, np.arange(len(self.fitness_inputs)))
        return replace(candidate, deficits=self.fitness_inputs.deficits_by_term(scores))

    def elsewhere(self, name: str, suspects: Callable[[], Suspects]) -> Problem:
        """The same problem over other weights, made once for each name: what it holds is costly to make."""
        if name not in self._others:
            self._others[name] = self.with_suspects(suspects())
        return self._others[name]

    @cached_property
    def _others(self) -> dict[str, Problem]:
        return {}

    def with_suspects(self, suspects: Suspects) -> Problem:
        """The same problem over other weights, with an evaluator of its own."""
        return replace(self, suspects=suspects)

    def fitness(self, deficits: Array) -> float:
        """The paper's fitness of a candidate with these deficits `(terms,)`."""
        return fitness(self.fitness_inputs.total_weight(), deficits)

    def stored(self, values: Array) -> Array:
        """The nearest values the model can store for the suspects, float64 `(..., k)`."""
        found = np.empty(values.shape)
        dtypes = np.array(self.suspects.dtypes)
        for dtype in dict.fromkeys(self.suspects.dtypes):
            found[..., dtypes == dtype] = round_to(values[..., dtypes == dtype], dtype)
        return found

    def measured(self, candidate: Candidate) -> Candidate:
        """A candidate for any weights with its deficits, from one full pass; its values as the model stores them."""
        from arachne.evaluate import PlainEvaluator

        suspects = Suspects.of(self.backend, candidate.addresses)
        place = {address: number for number, address in enumerate(candidate.addresses)}
        values = candidate.values[[place[address] for address in suspects.addresses]]
        values = self.with_suspects(suspects).stored(values)
        deficits = PlainEvaluator(self.backend, self.fitness_inputs, suspects).evaluate(values[None])[0]
        return Candidate(suspects.addresses, values, deficits)

    def result(
        self, state: SearchState, *front: Candidate, original: Array | None = None, chosen: int = 0
    ) -> SearchResult:
        """The result of a search that has stopped.

        Args:
            state: Its last state.
            *front: The candidates; those without deficits are measured.
            original: What the unchanged model costs, int64 `(terms,)`; measured when None.
            chosen: Which of the candidates to take.
        """
        if original is None:
            original = self.measured(Candidate(self.suspects.addresses, self.suspects.values)).deficits
        candidates = tuple(one if one.deficits is not None else self.measured(one) for one in front)
        if original is None or not candidates:
            raise ValueError("a search hands back one candidate at least")
        stopped = state.stopped or "interrupted"
        return SearchResult(candidates, original, self.fitness_inputs.total_weight(), state.history, stopped, chosen)


@dataclass(frozen=True, kw_only=True)
class Searcher(Configured, ABC):
    """Looks for new values of the suspects, step by step.

    A search is a value, its `SearchState`: `begin` makes the first one, `step` makes the next one of it, and `result`
    reads the patch from any of them. A searcher keeps nothing of its own between the calls, so a state that was stored
    goes on in another process as if nothing had happened, given a generator in the state it had then:

        state = searcher.begin(problem, rng=rng)
        while state.stopped is None:
            state = searcher.step(problem, state, rng=rng)
        found = searcher.result(problem, state)

    Whoever runs that loop owns `rng`, and stores `rng.bit_generator.state` beside the state to continue later.

    Options are fields declared with `arachne.option`; a searcher with options is a frozen dataclass too.
    """

    LOCALISER: ClassVar[str] = "bl"
    """The localiser that finds its suspects unless the user names another."""

    CROSS_FITS: ClassVar[bool] = False
    """Whether its candidates have `held_back`, so that no inputs have to be kept for choosing between them."""

    LOOKS_AT_TAIL: ClassVar[bool] = False
    """Whether it works on what flows through a model's dense tail, which is then kept of the first pass."""

    USES_TRAINING: ClassVar[bool] = False
    """Whether it looks at `Problem.training`."""

    NEEDS_TRAINING: ClassVar[bool] = False
    """Whether it cannot do without."""

    NEEDS_FIT: ClassVar[bool] = False
    """Whether it cannot do without `ModelBackend.fit`."""

    @property
    def cross_fits(self) -> bool:
        """The same of this very searcher, with its options."""
        return self.CROSS_FITS

    @property
    def most_generations(self) -> int | None:
        """The number of the last generation a search can reach, for showing progress; None when it is not known."""
        return None

    def refusal(self, backend: ModelBackend, training: LabelledData | None) -> str | None:
        """Why it cannot run on a model at all, in one sentence; None if it can. Called before everything else.

        Args:
            backend: The model.
            training: Training inputs, where the user gave them.
        """
        if training is not None and not self.USES_TRAINING:
            return f"the search '{self.name}' does not use training data; leave it out, or take one that retrains"
        if self.NEEDS_TRAINING and training is None:
            return f"the search '{self.name}' retrains the model and needs the data that it was trained on"
        if self.NEEDS_FIT and not backend.SUPPORTS_FIT:
            return (
                f"the search '{self.name}' trains with the model's own framework, and backend '{backend.NAME}' has no "
                "training loop; open the model in the framework it was trained with"
            )
        return None

    @abstractmethod
    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        """The state before the first step. Called once per search, after localisation.

        Args:
            problem: What to repair.
            rng: Where all randomness comes from.
        """

    @abstractmethod
    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """The next state; its `stopped` says when the search has ended. Called until it does.

        The history usually grows by one generation, which is what the user sees of the search.

        Args:
            problem: The same as before.
            state: What `begin` or the last `step` gave, or the same read back from a file. It is not changed.
            rng: Where all randomness comes from.
        """

    @abstractmethod
    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        """What the search has found so far. Called once, when it has stopped, perhaps before its end."""

    @final
    def search(
        self,
        problem: Problem,
        *,
        rng: np.random.Generator,
        state: SearchState | None = None,
        on_state: OnState | None = None,
        stop: Callable[[], str | None] | None = None,
    ) -> SearchResult:
        """Find a patch: begin, step until the state says stop or somebody else does, and read the result.

        Args:
            problem: What to repair.
            rng: Where all randomness comes from.
            state: Where to go on; from the beginning when None.
            on_state: Called with the first state and after each step; what it raises ends the search.
            stop: Asked after each step; a reason ends the search with what it has found by then.
        """
        if state is None:
            state = self.begin(problem, rng=rng)
            if on_state is not None:
                on_state(state)
        while state.stopped is None:
            state = self.step(problem, state, rng=rng)
            if state.stopped is None and stop is not None and (reason := stop()) is not None:
                state = replace(state, stopped=reason)
            if on_state is not None:
                on_state(state)
        return self.result(problem, state)
