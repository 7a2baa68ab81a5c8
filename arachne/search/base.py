"""Problem, the input of a search, and Searcher, the interface that every search implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from arachne.data.grouping import groups_in
from arachne.data.labelled import LabelledData
from arachne.data.split import Split
from arachne.errors import UsageError
from arachne.localise.base import EVERY_LAYER, LayerFilter
from arachne.model.backend import ModelBackend
from arachne.model.passes import resuming_passes
from arachne.model.values import Array, LayerInfo
from arachne.plugins.options import Configured
from arachne.search.state import Candidate, OnState, SearchResult, SearchState, fitness
from arachne.weights.edit import LowRankEdit
from arachne.weights.selection import Selection

if TYPE_CHECKING:
    from arachne.scoring.base import Scorer
    from arachne.scoring.cut import Cuts
    from arachne.scoring.evaluator import Evaluator
    from arachne.scoring.fitness import FitnessInputs
    from arachne.scoring.tail_cache import TailCache

MakeEvaluator = Callable[[ModelBackend, "FitnessInputs", Selection], "Evaluator"]


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a search may use.

    Attributes:
        backend: The model; a search leaves it as it was.
        split: The parts of the data; a search never uses `held_out`.
        suspects: The weights it may change (a searcher may return others).
        fitness_inputs: The inputs the fitness counts, with their weights; all from the seen part.
        make_evaluator: Makes the evaluator of this problem, when it is first needed.
        training: Training inputs, where the user gave them.
        rows: The rows of the seen part that `fitness_inputs` begins with, int64 `(m,)`; a fairness objective reads the
            groups of these rows.
        allowed: The layers that the user lets a repair change; a searcher that selects other weights than the suspects
            calls `allowed_layers`.
        shared: A cache that problems over other weights of the same model and inputs share.
    """

    backend: ModelBackend
    split: Split
    suspects: Selection
    fitness_inputs: FitnessInputs
    make_evaluator: MakeEvaluator
    training: LabelledData | None = None
    rows: Array | None = None
    allowed: LayerFilter = EVERY_LAYER
    shared: dict[str, Any] = field(default_factory=dict, repr=False)

    def allowed_layers(self, layers: Sequence[LayerInfo], called: str) -> list[LayerInfo]:
        """Return the layers among these that the user lets a repair change.

        Args:
            layers: The layers that a searcher would change.
            called: A name for all of them in the error message: `the hidden dense layers`.

        Raises:
            UsageError: The user allows none of them.
        """
        found = [info for info in layers if self.allowed.allows(info.name)]
        if not found:
            raise UsageError(
                f"the layers to include or exclude leave out {called}, and this search changes nothing else"
            )
        return found

    @cached_property
    def evaluator(self) -> Evaluator:
        """The evaluator of candidates; made on first use, because making a fast one takes several passes."""
        return self.make_evaluator(self.backend, self.fitness_inputs, self.suspects)

    @cached_property
    def scorer(self) -> Scorer:
        """Scores and gradients of the fitness inputs by the suspects' values; made on first use."""
        from arachne.scoring.cut import Cuts
        from arachne.scoring.dense_tail import make_scorer

        counted = self.fitness_inputs
        if counted.decisions is not None:
            cuts = self.shared.setdefault("cuts of decisions", Cuts(self.backend, counted.inputs))
            return make_scorer(self.backend, counted.inputs, self.suspects, None, (cuts, None), counted.decisions)
        return make_scorer(self.backend, counted.inputs, self.suspects, self.tail, self._own_cuts)

    def low_rank_scorer(self, layer: str, parameter: str, right: Array) -> Scorer:
        """Make the scorer of `W + left rightᵀ` by the values of `left`, flattened; `right` is float32 `(in, rank)`."""
        from arachne.scoring.low_rank import make_low_rank_scorer

        return make_low_rank_scorer(
            self.backend, self.tail, self._own_cuts[0], (layer, parameter), right, self._own_cuts[1]
        )

    def edited_scores(self, edits: Sequence[LowRankEdit]) -> Iterator[Array]:
        """Give the scores of all fitness inputs with each of some edits, `(n, classes)`, those of a layer in a row."""
        from arachne.scoring.low_rank import edited_scores

        cuts, numbers = self._own_cuts
        return edited_scores(self.backend, self.tail, cuts, edits, np.arange(len(self.fitness_inputs)), numbers)

    @property
    def _own_cuts(self) -> tuple[Cuts, Array | None]:
        """Cuts that hold the fitness inputs, and the numbers of these in them `(n,)`; None if they hold no others."""
        from arachne.scoring.cut import Cuts

        counted, numbers = self.fitness_inputs, self.rows
        if numbers is not None and len(numbers) == len(counted):
            return self.cuts, numbers
        if "cuts of fitness inputs" not in self.shared:  # never-break inputs are not in the seen part
            self.shared["cuts of fitness inputs"] = Cuts(self.backend, counted.inputs, counted.terms)
        return self.shared["cuts of fitness inputs"], None

    @property
    def cuts(self) -> Cuts:
        """The unchanged model held open at any layers, for the inputs of the seen part."""
        from arachne.scoring.cut import Cuts

        if "cuts" not in self.shared:
            groups = np.full(len(self.split.seen), -1)
            if self.rows is not None:
                groups[self.split.seen.decisions.inputs[self.rows]] = self.fitness_inputs.terms[: len(self.rows)]
            self.shared["cuts"] = Cuts(self.backend, self.split.seen.data.inputs, groups)
        found: Cuts = self.shared["cuts"]
        return found

    @property
    def tail(self) -> TailCache | None:
        """The activations of the dense layers at the end of the model; None if it does not end in a dense layer."""
        from arachne.scoring.tail_cache import TailCache

        if "tail" not in self.shared:
            self.shared["tail"] = TailCache.of(self.backend, self.fitness_inputs.inputs)
        found: TailCache | None = self.shared["tail"]
        return found

    @cached_property
    def original_scores(self) -> Array:
        """The unchanged model's scores of the fitness inputs `(n, classes)`."""
        return self.scorer.scores(self.suspects.values, np.arange(len(self.fitness_inputs)))

    @cached_property
    def originally_right(self) -> Array:
        """Which of the fitness inputs the unchanged model classifies correctly, bool `(n,)`."""
        return self.fitness_inputs.correct(self.original_scores)

    @cached_property
    def margin_unit(self) -> float:
        """The unit of margins: the median margin of the positives in the unchanged model."""
        found = self.fitness_inputs.task.margins(self.original_scores, self.fitness_inputs.labels)
        positive = found[self.fitness_inputs.of_kind("positive")]
        return float(np.median(positive if len(positive) else np.abs(found))) or 1.0

    @property
    def has_objective(self) -> bool:
        """Whether a fairness objective is set."""
        return self.split.objective is not None and self.rows is not None

    def objective_costs(self, right: Array) -> Array:
        """Return the objective's costs of candidates, `(n,)`, smaller is better, from `right` `(n, fitness inputs)`.

        Errors off the target, which are not among the fitness inputs, count as wrong.
        """
        objective = self.split.objective
        if objective is None or self.rows is None:
            return np.zeros(len(right))
        whole = groups_in(self.split.seen, str(objective.group_column))
        return objective.cost(whole.take(self.rows).right(right[:, : len(self.rows)]), whole.totals)

    def score(self, candidate: Candidate) -> Candidate:
        """Return a candidate for the suspects with its deficits, from the scores of `scorer`."""
        scores = self.scorer.scores(candidate.values, np.arange(len(self.fitness_inputs)))
        return replace(candidate, deficits=self.fitness_inputs.deficits_by_term(scores))

    def with_selection(self, key: str, suspects: Callable[[], Selection]) -> Problem:
        """Return the problem over other weights; it is built once for each key, because its caches are costly."""
        if key not in self._others:
            with resuming_passes(self.backend, key):
                self._others[key] = self.with_suspects(suspects())
        return self._others[key]

    @cached_property
    def _others(self) -> dict[str, Problem]:
        return {}

    def with_suspects(self, suspects: Selection) -> Problem:
        """Return the problem over other weights, with a new evaluator."""
        return replace(self, suspects=suspects)

    def fitness(self, deficits: Array) -> float:
        """Return the paper's fitness of a candidate with these deficits `(terms,)`."""
        return fitness(self.fitness_inputs.total_weight(), deficits)

    def round_to_storage(self, values: Array) -> Array:
        """Return the nearest values that the model can store for the suspects, float64 `(..., k)`."""
        return self.suspects.round(values)

    def score_exactly(self, candidate: Candidate) -> Candidate:
        """Score a candidate for any weights by a full pass, with its values rounded to what the model stores."""
        from arachne.scoring.evaluators import PlainEvaluator
        from arachne.scoring.plain import forward_with_weights

        selection, inputs = candidate.selection, self.fitness_inputs
        if candidate.edit is not None:
            outputs = forward_with_weights(self.backend, candidate.whole_parameters(self.backend), inputs.padded)
            scores = outputs[: len(inputs)] if inputs.decisions is None else inputs.read(outputs, None)
            return replace(candidate, deficits=inputs.deficits_by_term(scores))
        values = selection.round(candidate.values)
        deficits = PlainEvaluator(self.backend, self.fitness_inputs, selection).evaluate(values[None])[0]
        return Candidate(selection, values, deficits)

    def result(
        self, state: SearchState, *front: Candidate, original: Array | None = None, chosen: int = 0
    ) -> SearchResult:
        """Build the result of a search that has stopped.

        Args:
            state: Its last state.
            *front: The candidates; those without deficits are scored here.
            original: The deficits of the unchanged model, int64 `(terms,)`; computed when None.
            chosen: The index in `front` of the best candidate.
        """
        if original is None:
            original = self.score_exactly(Candidate(self.suspects, self.suspects.values)).deficits
        candidates = tuple(one if one.deficits is not None else self.score_exactly(one) for one in front)
        if original is None or not candidates:
            raise ValueError("a search hands back one candidate at least")
        stopped = state.stopped or "interrupted"
        return SearchResult(candidates, original, self.fitness_inputs.total_weight(), state.history, stopped, chosen)


@dataclass(frozen=True, kw_only=True)
class Searcher(Configured, ABC):
    """Looks for new values of the suspects, step by step.

    A search is a value, its `SearchState`: `begin` makes the first one, `step` makes the next one of it, and `result`
    reads the patch from any of them. A searcher keeps nothing between the calls, so a stored state continues in another
    process exactly as it would have here, if the random generator is restored with it:

        state = searcher.begin(problem, rng=rng)
        while state.stopped is None:
            state = searcher.step(problem, state, rng=rng)
        found = searcher.result(problem, state)

    The caller of that loop owns `rng`, and stores `rng.bit_generator.state` beside the state to continue later.

    Options are fields declared with `arachne.option`; a searcher with options is a frozen dataclass too.
    """

    LOCALISER: ClassVar[str] = "bl"
    """The localiser that finds its suspects unless the user names another."""

    CROSS_FITS: ClassVar[bool] = False
    """Whether its candidates have `held_back`, so that no inputs have to be set aside for selecting among them."""

    LOOKS_AT_TAIL: ClassVar[bool] = False
    """Whether it uses the activations of a model's dense tail, which the first pass then caches."""

    USES_TRAINING: ClassVar[bool] = False
    """Whether it uses `Problem.training`."""

    NEEDS_TRAINING: ClassVar[bool] = False
    """Whether it cannot run without training data."""

    USES_ALPHA: ClassVar[bool] = True
    """Whether its result depends on alpha, the weight of a negative; otherwise an alpha is refused."""

    NEEDS_SINGLE_LABEL: ClassVar[bool] = False
    """Whether it only works with one label for each input; other tasks are refused."""

    CHANGES_MATRICES: ClassVar[bool] = False
    """Whether its candidates change whole matrices or kernels: by low-rank edits, or every weight of them."""

    KEPT_BY_THE_MEAN: ClassVar[float] = 1.0
    """The share of inputs broken out of fold that the patch itself breaks, if clearly below 1. Asked of ours alone."""

    NEEDS_FIT: ClassVar[bool] = False
    """Whether it cannot run without `ModelBackend.fit`."""

    @property
    def cross_fits(self) -> bool:
        """`CROSS_FITS` for this instance, with its options."""
        return self.CROSS_FITS

    @property
    def uses_alpha(self) -> bool:
        """`USES_ALPHA` for this instance, with its options."""
        return self.USES_ALPHA

    @property
    def most_generations(self) -> int | None:
        """The number of the last generation a search can reach, for showing progress; None when it is not known."""
        return None

    def refusal(self, backend: ModelBackend, training: LabelledData | None) -> str | None:
        """Say in one sentence why it cannot run on a model; None if it can. Called before everything else.

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

    def passes(self, problem: Problem) -> float:
        """Return how many passes over the seen inputs it takes (`arachne.search.effort`); 0 if it runs no model.

        Raises:
            UsageError: It cannot run on this problem.
        """
        return 0.0

    def within(self, problem: Problem, most: float) -> Searcher | None:
        """Return a variant that takes at most so many passes, itself if it does; None if there is none."""
        return self if self.passes(problem) <= most else None

    @abstractmethod
    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        """Make the state before the first step. Called once per search, after localisation.

        Args:
            problem: What to repair.
            rng: Where all randomness comes from.
        """

    @abstractmethod
    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Make the next state; its `stopped` says whether the search has ended. Called until it has.

        The history usually grows by one generation, which is shown to the user.

        Args:
            problem: The problem that `begin` was called with.
            state: The state that `begin` or the last `step` returned, perhaps read back from a file. It is not changed.
            rng: Where all randomness comes from.
        """

    @abstractmethod
    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        """Return the candidates found so far. Called once, when the search has stopped, perhaps before its end."""

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
        """Find a patch: begin, step until the state or `stop` ends the search, and read the result.

        Args:
            problem: What to repair.
            rng: Where all randomness comes from.
            state: Where to go on; from the beginning when None.
            on_state: Called with the first state and after each step; an exception in it ends the search.
            stop: Called after each step; a returned reason ends the search with the candidates found so far.
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
