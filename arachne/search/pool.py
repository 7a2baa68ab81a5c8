"""Pool: several searchers run one after the other, and the patch is selected from all their candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from arachne.data.health import examine
from arachne.errors import UsageError
from arachne.localise.ranked import DEEP_KINDS
from arachne.model.memory import release_freed_memory
from arachne.plugins.options import option
from arachne.plugins.table import SEARCHERS
from arachne.scoring.cut import CutScorer
from arachne.search.base import Searcher
from arachne.search.cross_fit import outcomes
from arachne.search.effort import EFFORTS, MEMBER_SHARE, allowance, share_behind
from arachne.search.erase import Erase
from arachne.search.gate import Gate
from arachne.search.gates import Gates
from arachne.search.low_rank import LowRank
from arachne.search.margin import MarginConv, MarginEmbeddings, MarginFisher, MarginHidden, MarginSearch
from arachne.search.norms import Norms
from arachne.search.problem import Problem
from arachne.search.state import Candidate, SearchResult, SearchState
from arachne.search.train_on import TuneAnchored, TuneTraining
from arachne.search.weight_choice import fisher_layers, hidden_dense

LAST_RESORT = "de"
"""The searcher that runs where no member can but those in `WITHOUT_GRADIENTS`: it needs nothing but scores."""

CLOSED = (Erase.name, Gate.name)
"""Members that only try closed forms."""

WITHOUT_GRADIENTS = (*CLOSED, Gates.name)
"""Members that need no gradients from the backend."""

QUICK = ("bias", "last-layer", *CLOSED)
"""Members that take little time; their results predict the whole pool's."""

SUFFICIENT_REPAIR = {
    MarginEmbeddings.name: ((0.9, 0.01),),
    MarginConv.name: ((0.25, 0.01),),
    TuneAnchored.name: ((0.5, 0.01), (0.8, 0.03)),
}
"""Slow members, which are skipped if the members before them already repair such a share of the negatives, and break
such a share of the positives at most.

Training every weight is what large budgets are spent on, so the members before it have to be good at these too.
"""

SPENT, MOST = "passes of ", "most passes of "
"""The beginnings of the names under which a state holds the passes of each member, and what one may take of them."""

TRAINED_LAST = (TuneAnchored.name, TuneTraining.name)
"""Members that run last and may take all passes that are left."""

TOO_MANY_PASSES = "it would run the model"
"""How the reason begins why a member was left out that takes more passes than are left."""

LIMITED = "within max_weights"
"""The name under which a problem keeps itself over fewer weights."""

MAX_TRAINED = 100_000
"""The largest number of weights that members train on unasked; with training data, `tune` says how many."""


@dataclass(frozen=True, kw_only=True)
class Pool(Searcher):
    """Runs its members one after the other and puts their candidates into one front.

    A member is a searcher over a choice of weights, such as `margin@hidden`. One that cannot run here (a last layer
    without biases, a backend without gradients, no layer that the user allows) is left out, and its state says why;
    where those that need no gradients alone can, differential evolution does too. The pool's state holds the members'
    states side by side.

    Attributes:
        members: Searchers by name, in the order in which they run.
        effort: How much the members may run the model, by name of `EFFORTS`: one that would run it more takes fewer
            steps, or is left out. Small models are searched in full.
        sparse: Whether members that change whole matrices are left out, for who wants a patch of single weights.
        max_weights: The largest number of weights that a patch may change; members that change whole layers are left
            out, and the others search among that many. None without a limit.
        copies: Whether copies of right inputs that fail with a confirmed cause planted are repaired too.
    """

    name = "auto"

    LOCALISER = "contrast"
    LOOKS_AT_TAIL = True
    USES_ALPHA = False
    USES_TRAINING = True

    members: tuple[str, ...] = option(
        (
            "norms",
            "bias",
            "last-layer",
            "erase",
            "gate",
            "margin",
            "margin@hidden",
            "margin@fisher",
            "low-rank",
            "gates",
            "margin@conv",
            "margin@embeddings",
            "tune@anchored",
            "tune@training",
        ),
        "Searchers to run, by name.",
        metavar="NAME",
    )

    effort: str = option("normal", "How much members may run the model.", choices=tuple(EFFORTS))

    sparse: bool = option(False, "Change single weights alone, no whole matrices.")

    max_weights: int | None = option(None, "Weights that a patch may change, at most.", least=1)

    copies: bool = option(True, "Of a cause that an experiment confirms, repair planted copies too.")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "members", tuple(SEARCHERS.canonical(name) for name in self.members))
        if not self.members or self.name in self.members:
            raise UsageError(
                f"members must be searchers other than '{self.name}', got {', '.join(self.members) or 'none'}"
            )
        for name in self.members:
            SEARCHERS.get(name)

    @cached_property
    def searchers(self) -> dict[str, Searcher]:
        """The members by name, and `LAST_RESORT` behind them."""
        return {name: SEARCHERS.get(name)() for name in dict.fromkeys((*self.members, LAST_RESORT))}

    @property
    def uses_alpha(self) -> bool:
        return any(self.searchers[name].uses_alpha for name in self.members)

    @property
    def cross_fits(self) -> bool:
        return all(self.searchers[name].cross_fits for name in self.members)

    @property
    def most_generations(self) -> int | None:
        counts = [self.searchers[name].most_generations for name in self.members]
        return None if any(count is None for count in counts) else sum(1 + (count or 0) for count in counts) - 1

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        return self._begin_next(self._limit(problem), SearchState({}), rng=rng)

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        problem = self._limit(problem)
        name, own = list(state.members.items())[-1]
        if own.stopped is not None:
            release_freed_memory()
            return self._begin_next(problem, state, rng=rng)
        return _with_member(state, name, self._searcher(name, problem, state).step(problem, own, rng=rng))

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        problem = self._limit(problem)
        found = {name: self._member_result(name, problem, state) for name, own in state.members.items() if own.history}
        front = [
            replace(candidate, made_by=candidate.made_by or name)
            for name, one in found.items()
            for candidate in one.front
            if candidate.deficits is None or not np.array_equal(candidate.deficits, one.original)
        ]
        first = next(iter(found.values()))
        original = first.original
        if not front:
            return problem.result(state, first.candidate, original=original)
        best = int(np.argmin([int(one.deficits.sum()) for one in front if one.deficits is not None]))
        return problem.result(state, *front, original=original, chosen=best)

    def quick_front(self, problem: Problem, state: SearchState) -> tuple[Candidate, ...]:
        """Return the candidates of the quick members once all of them are done; none before, or if none could run."""
        wanted = [name for name in self.members if name in QUICK]
        if any(name not in state.members or state.members[name].stopped is None for name in wanted):
            return ()
        own = {name: state.members[name] for name in wanted if state.members[name].history}
        return self.result(problem, replace(state, members=own)).front if own else ()

    def _limit(self, problem: Problem) -> Problem:
        """Return the problem over at most `max_weights` weights; it is made once."""
        if self.max_weights is None or problem.max_weights is not None:
            return problem
        if LIMITED not in problem.shared:
            limited = replace(problem, max_weights=self.max_weights)
            problem.shared[LIMITED] = limited.with_suspects(limited.narrow(problem.suspects))
        found: Problem = problem.shared[LIMITED]
        return found

    def _begin_next(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Begin the next member that can run, or stop."""
        for name in list(self.searchers)[len(state.members) :]:
            if name not in self.members and any(
                own.history for by, own in state.members.items() if by not in WITHOUT_GRADIENTS
            ):
                break
            try:
                self._check_needed(problem, state, name)
                state = self._with_passes(problem, state, name)
                return _with_member(state, name, self._searcher(name, problem, state).begin(problem, rng=rng))
            except UsageError as error:
                state = _with_member(state, name, SearchState({}, stopped=f"left out: {error}"))
        return replace(state, stopped="all members are done")

    def _check_needed(self, problem: Problem, state: SearchState, name: str) -> None:
        """Leave out a costly member where cheaper ones reach as deep.

        Raises:
            UsageError: It is one.
        """
        if self.sparse and self.searchers[name].CHANGES_MATRICES:
            raise UsageError("it changes whole matrices, and the repair is to change single weights alone")
        if self.max_weights is not None and (self.searchers[name].CHANGES_MATRICES or name == Norms.name):
            raise UsageError(
                f"it changes whole layers, and the repair is to change {self.max_weights:,} weights at most"
            )
        if self.searchers[name].NEEDS_TRAINING and problem.training is None:
            raise UsageError("there are no training inputs")
        if name == Norms.name and not self._mends(problem):
            raise UsageError("no normalisation stores statistics that do not fit these inputs")
        last = problem.backend.layers[-1]
        ends_dense = last.kind == "dense"
        if name == MarginFisher.name and not (ends_dense and problem.allowed.allows(last.name)):
            raise UsageError("the model does not end in a dense layer to change, and a search elsewhere takes long")
        if name == MarginFisher.name and self._takes_long(problem, state):
            raise UsageError(
                f"choosing its weights takes passes, and in the same layers '{MarginSearch.name}' would take too many"
            )
        if name == MarginConv.name and self._changes_hidden(problem):
            raise UsageError("the model has hidden dense layers, and a search there takes a small part of the time")
        there = {problem.backend.info(layer).kind for layer in problem.suspects.layers}
        if name == MarginConv.name and (not ends_dense or there & set(DEEP_KINDS)):
            raise UsageError("the suspects are in these layers already")
        embeds = any(info.kind == "embedding" for info in problem.backend.layers)
        trains = name == TuneAnchored.name
        if trains and sum(shape.size for info in problem.backend.layers for shape in info.parameters.values()) > (
            MAX_TRAINED
        ):
            raise UsageError(f"the model has more than {MAX_TRAINED:,} weights, and training all of them takes long")
        with_training = problem.training is not None and TuneTraining.name in self.members
        if trains and with_training and not problem.has_objective:
            raise UsageError(f"there are training inputs, and {TuneTraining.name} trains with them too")
        costly = name == MarginConv.name or (name == MarginEmbeddings.name and embeds) or trains
        if (
            costly
            and not (trains and (problem.counts_others or problem.has_objective))
            and self._suffices(problem, state, name)
        ):
            share = SUFFICIENT_REPAIR[name][0][0]
            raise UsageError(
                f"the members before it repair at least {100 * share:g} % of the fault, and it takes many times as "
                "long as they do"
            )

    def _takes_long(self, problem: Problem, state: SearchState) -> bool:
        """Tell whether steps were left out for their passes where the Fisher ratio would be computed."""
        own = state.members.get(MarginSearch.name)
        if own is None or TOO_MANY_PASSES not in str(own.stopped):
            return False
        return share_behind(problem, fisher_layers(problem)) > 0

    def _mends(self, problem: Problem) -> bool:
        """Tell whether statistics of normalisations do not fit the seen inputs, and can be estimated again."""
        seen, known = problem.split.seen, problem.split.health
        known = known or examine(problem.backend, seen.data.inputs, seen.labels if seen.task.SINGLE else None)
        return known.mendable

    def _changes_hidden(self, problem: Problem) -> bool:
        """Tell whether there are hidden dense layers at the end to change, and a member that changes them."""
        if not {MarginSearch.name, MarginHidden.name, LowRank.name} & set(self.members):
            return False
        try:
            return bool(hidden_dense(problem))
        except UsageError:
            return False

    def _suffices(self, problem: Problem, state: SearchState, name: str) -> bool:
        """Tell whether candidates so far repair as much as a slow member is skipped for, out of fold."""
        front = self.result(problem, state).front if state.history else ()
        judged = [one.held_back for one in front if one.held_back is not None]
        if not judged:
            return False
        repaired, broken = outcomes(problem, np.stack(judged))
        negatives, positives = (problem.fitness_inputs.of_kind(kind).sum() for kind in ("negative", "positive"))
        return all(
            np.any((repaired >= share * negatives) & (broken <= most * positives))
            for share, most in SUFFICIENT_REPAIR[name]
        )

    def _with_passes(self, problem: Problem, state: SearchState, name: str) -> SearchState:
        """Note in the state how many passes a member takes that runs the model, and how many it may take.

        Raises:
            UsageError: It would take more than it may, however few steps it takes.
        """
        whole = self._whole_searcher(name, problem)
        if not (wanted := whole.passes(problem)):
            return state
        spent = sum(float(value or 0) for key, value in state.values.items() if key.startswith(SPENT))
        allowed = allowance(problem, self.effort, self.searchers[name].NEEDS_TRAINING)
        most = allowed - spent if name in TRAINED_LAST else min(MEMBER_SHARE * allowed, allowed - spent)
        found = whole if wanted <= most else whole.within(problem, most)
        if found is None:
            raise UsageError(
                f"{TOO_MANY_PASSES} {wanted:.0f} times over the seen inputs, where {most:.1f} are left at the "
                f"effort '{self.effort}'"
            )
        taken = {f"{SPENT}{name}": found.passes(problem)} | ({} if found is whole else {f"{MOST}{name}": most})
        return replace(state, values={**state.values, **taken})

    def _member_result(self, name: str, problem: Problem, state: SearchState) -> SearchResult:
        """Return the result of a member; the result of a finished one is computed once."""
        own, kept = state.members[name], problem.shared.setdefault("results of members", {})
        if name not in kept or kept[name][0] is not own:
            kept[name] = own, self._searcher(name, problem, state).result(problem, own)
        found: SearchResult = kept[name][1]
        return found

    def _searcher(self, name: str, problem: Problem, state: SearchState) -> Searcher:
        """Return a member as it runs here: with fewer steps if it may not run the model as often as it would."""
        whole, most = self._whole_searcher(name, problem), state.values.get(f"{MOST}{name}")
        return whole if most is None else whole.within(problem, float(most)) or whole

    def _whole_searcher(self, name: str, problem: Problem) -> Searcher:
        """Return a member; `margin` takes fewer steps where suspects outside the dense tail make them costly."""
        if name == MarginSearch.name and isinstance(problem.scorer, CutScorer) and not problem.is_near_end:
            return self._margin_behind_cut
        return self.searchers[name]

    @cached_property
    def _margin_behind_cut(self) -> Searcher:
        return MarginSearch(steps=MarginConv().steps, folds=MarginConv().folds)


def _with_member(state: SearchState, name: str, own: SearchState) -> SearchState:
    """Put a member's state into the pool's; the member's new generations become the pool's next."""
    before = state.members.get(name)
    new = own.history if before is None else own.history[len(before.history) :]
    numbered = (replace(one, number=number) for number, one in enumerate(new, start=len(state.history)))
    return replace(state, history=(*state.history, *numbered), members={**state.members, name: own})
