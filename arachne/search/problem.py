"""Problem: everything that a search may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import escape
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.data.grouping import groups_in
from arachne.data.labelled import LabelledData
from arachne.data.split import Split
from arachne.errors import UsageError
from arachne.fairness import Grouped, slopes
from arachne.localise.base import EVERY_LAYER, LayerFilter
from arachne.localise.fisher import Fisher
from arachne.localise.ranked import first_largest
from arachne.model.backend import ModelBackend
from arachne.model.passes import resuming_passes
from arachne.model.values import Activation, Array, LayerInfo
from arachne.search.state import Candidate, SearchResult, SearchState, fitness
from arachne.tasks import margins
from arachne.text import Brief
from arachne.weights.edit import LowRankEdit
from arachne.weights.selection import Selection

if TYPE_CHECKING:
    from arachne.scoring.base import Scorer
    from arachne.scoring.cut import Cuts
    from arachne.scoring.evaluator import Evaluator
    from arachne.scoring.fitness import FitnessInputs
    from arachne.scoring.tail_cache import TailCache

FITTED_TO = "directions"
"""The name under which problems share what layers are fitted to."""

MakeEvaluator = Callable[[ModelBackend, "FitnessInputs", Selection], "Evaluator"]


@dataclass(frozen=True, eq=False)
class Problem(Brief):
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
        max_weights: The largest number of weights that a search may change; None without a limit.
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
    max_weights: int | None = None

    def forget(self) -> None:
        """Empty the shared cache, whose entries refer to this problem; large arrays would outlive the repair."""
        self.shared.clear()

    def forget_fits(self) -> None:
        """Drop what searches fit layers to, which the candidates do not need."""
        self.shared.pop(FITTED_TO, None)

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
        return make_scorer(
            self.backend, counted.inputs, self.suspects, self.tail, self._own_cuts, rounded=self.rounded_tail
        )

    def low_rank_scorer(self, layer: str, parameter: str, right: Array) -> Scorer:
        """Make the scorer of `W + left rightᵀ` by the values of `left`, flattened; `right` is float32 `(in, rank)`."""
        from arachne.scoring.low_rank import make_low_rank_scorer

        return make_low_rank_scorer(
            self.backend,
            self.tail,
            self._own_cuts[0],
            (layer, parameter),
            right,
            self._own_cuts[1],
            self.rounded_tail,
        )

    def activation_at(self, layer: str, rows: Array) -> Activation | None:
        """Return what enters and leaves a layer for fitness inputs `rows` `(k,)`; None if no cut tells it."""
        cuts, numbers = self._own_cuts
        return cuts.at([layer]).activation((cuts.positions if numbers is None else cuts.positions[numbers])[rows])

    def edited_scores(self, edits: Sequence[LowRankEdit]) -> Iterator[Array]:
        """Yield the scores `(n, classes)` of all fitness inputs with each edit; edits of one layer come together."""
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

    @property
    def rounded_tail(self) -> TailCache | None:
        """The activations of dense layers of whole numbers at the end, for gradients; None if there are none."""
        from arachne.scoring.tail_cache import TailCache

        if "rounded tail" not in self.shared:
            wanted = any(info.is_quantised for info in self.backend.layers) and self.fitness_inputs.decisions is None
            inputs = self.fitness_inputs.inputs
            self.shared["rounded tail"] = TailCache.of(self.backend, inputs, rounded=True) if wanted else None
        found: TailCache | None = self.shared["rounded tail"]
        return found

    def is_near(self, info: LayerInfo) -> bool:
        """Tell whether a layer is one of the dense layers at the end: of the tail, or of whole numbers."""
        from arachne.scoring.low_rank import is_in_tail

        if is_in_tail(self.tail, (info.name, "weight")):
            return True
        dense = takewhile(lambda one: one.kind == "dense" and one.uses == 1, reversed(self.backend.layers))
        return info.is_quantised and info.name in {one.name for one in dense}

    @cached_property
    def is_near_end(self) -> bool:
        """Whether all suspects lie in the dense layers at the end, so that a step runs no more than these."""
        return all(self.is_near(self.backend.info(layer)) for layer in self.suspects.layers)

    @cached_property
    def steps_in_numpy(self) -> bool:
        """Whether steps over the suspects run in NumPy alone, on arrays in memory."""
        from arachne.scoring.dense_tail import DenseTailScorer

        return self.is_tail_at_hand and isinstance(self.scorer, DenseTailScorer)

    @property
    def is_tail_at_hand(self) -> bool:
        """Whether the model has a dense tail, whose activations are in this process's memory."""
        return self.tail is not None and not self.tail.is_in_file and self.backend.remote is None

    @cached_property
    def original_scores(self) -> Array:
        """The unchanged model's scores of the fitness inputs `(n, classes)`."""
        return self.scorer.scores(self.suspects.values, np.arange(len(self.fitness_inputs)))

    @cached_property
    def originally_right(self) -> Array:
        """Which of the fitness inputs the unchanged model classifies correctly, bool `(n,)`."""
        return self.fitness_inputs.correct(self.original_scores)

    @cached_property
    def original_margins(self) -> Array:
        """How far the true class is above the best other one in the unchanged model, for each fitness input `(n,)`."""
        return margins(self.original_scores, self.fitness_inputs.labels)

    @cached_property
    def margin_unit(self) -> float:
        """The unit of margins: the median margin of the positives in the unchanged model."""
        found = self.fitness_inputs.task.margins(self.original_scores, self.fitness_inputs.labels)
        positive = found[self.fitness_inputs.of_kind("positive")]
        return float(np.median(positive if len(positive) else np.abs(found))) or 1.0

    @property
    def counts_others(self) -> bool:
        """Whether errors off the target count too: accuracy is limited, and not what breaks."""
        return "other" in self.fitness_inputs.kinds

    @property
    def copies(self) -> slice:
        """The fitness inputs that are copies with a cause planted; they come after those of the seen part."""
        first = len(self.fitness_inputs) if self.rows is None else len(self.rows)
        return slice(first, first + sum(map(len, self.split.copies.values())))

    @property
    def has_objective(self) -> bool:
        """Whether a fairness objective is set."""
        return self.split.objective is not None and self.rows is not None

    def objective_costs(self, right: Array) -> Array:
        """Return the objective's costs of candidates, `(n,)`, smaller is better, from `right` `(n, fitness inputs)`.

        Errors off the target count as wrong, unless they are among the fitness inputs.
        """
        objective = self.split.objective
        if objective is None or self.rows is None:
            return np.zeros(len(right))
        whole = groups_in(self.split.seen, str(objective.group_column))
        return objective.cost(whole.take(self.rows).right(right[:, : len(self.rows)]), whole.totals)

    def objective_slopes(self, right: Array, weights: Array, rows: Array) -> Array:
        """Return how the objective's cost changes with each of some fitness inputs becoming right, `(rows,)`.

        Args:
            right: How far each of them is right, from 0 to 1, `(rows,)`.
            weights: How many fitness inputs each of them stands for, `(rows,)`.
            rows: Their numbers, int64 `(rows,)`; those that must never break are in no group.
        """
        objective = self.split.objective
        if objective is None or self.rows is None:
            return np.zeros(len(rows))
        if "groups" not in self.shared:
            self.shared["groups"] = groups_in(self.split.seen, str(objective.group_column))
        whole: Grouped = self.shared["groups"]
        grouped, known = whole.take(self.rows[np.minimum(rows, len(self.rows) - 1)]), rows < len(self.rows)
        among = known & (grouped.members >= 0)
        cells = grouped.members[among], grouped.labels[among]
        sums = np.zeros((2, *whole.totals.shape))
        np.add.at(sums[0], cells, (weights * right)[among])
        np.add.at(sums[1], cells, weights[among])
        counts = whole.take(self.rows).totals * sums[0] / np.maximum(sums[1], 1e-12)
        found = np.zeros(len(rows))
        found[among] = slopes(objective, counts, whole.totals)[cells]
        return found

    def score(self, candidate: Candidate) -> Candidate:
        """Return a candidate for the suspects with its deficits, from the scores of `scorer`."""
        scores = self.scorer.scores(candidate.values, np.arange(len(self.fitness_inputs)))
        return replace(candidate, deficits=self.fitness_inputs.deficits_by_term(scores))

    def with_selection(self, key: str, suspects: Callable[[], Selection]) -> Problem:
        """Return the problem over other weights; it is built once for each key, because its caches are costly."""
        if key not in self._others:
            with resuming_passes(self.backend, key):
                self._others[key] = self.with_suspects(self.narrow(suspects()))
        return self._others[key]

    @cached_property
    def _others(self) -> dict[str, Problem]:
        return {}

    def narrow(self, suspects: Selection) -> Selection:
        """Return the weights among these that a search may change: `max_weights` with the largest Fisher ratio."""
        most = self.max_weights
        if most is None or len(suspects) <= most:
            return suspects
        localiser = Fisher(include=tuple(escape(layer) for layer in suspects.layers), biases=True)
        scores = localiser.scores(self.backend, self.split.seen, rng=np.random.default_rng(0))
        own = np.concatenate([scores[slice_.key].ravel()[slice_.flat] for slice_ in suspects.slices])
        return suspects.take(np.sort(first_largest(own, most)))

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
