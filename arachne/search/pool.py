"""Several searchers, one front: cheap ones first, and the patch is chosen among all that they found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from arachne.errors import UsageError
from arachne.localise.ranked import DEEP
from arachne.options import option
from arachne.plugins import SEARCHERS
from arachne.search.base import Problem, Searcher
from arachne.search.cross_fit import outcomes
from arachne.search.state import Generation, SearchResult, SearchState
from arachne.search.tunable import BehindCut

LAST_RESORT = "de"
"""What runs where no member can: it needs nothing but scores."""


FEW = 0.01
"""The share of positives that a member may break and still count as one that repairs."""

ENOUGH = {"words": 0.5, "deep": 0.25}
"""Members that take many times as long as the others, and what share of the negatives the others have to repair for
them to be left out."""


@dataclass(frozen=True, kw_only=True)
class Pool(Searcher):
    """Runs its members one after the other and puts their candidates into one front.

    A member that cannot run here (a last layer without biases, a backend without gradients) is left out, and the reason
    is kept; where none can run, differential evolution does. The pool's state holds the members' states side by side,
    under `name/`.

    Attributes:
        members: Searchers by name, in the order in which they run.
    """

    name = "auto"

    LOCALISER = "contrast"
    LOOKS_AT_TAIL = True

    members: tuple[str, ...] = option(
        ("bias", "last", "keep", "hidden", "sparing", "wide", "deep", "words"),
        "Searchers to run, by name.",
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.members or self.name in self.members:
            raise UsageError(
                f"members must be searchers other than '{self.name}', got {', '.join(self.members) or 'none'}"
            )
        for name in self.members:
            SEARCHERS.get(name)

    @property
    def cross_fits(self) -> bool:
        return all(self._member(name).cross_fits for name in self.members)

    @property
    def _all(self) -> tuple[str, ...]:
        return self.members if LAST_RESORT in self.members else (*self.members, LAST_RESORT)

    @property
    def most_generations(self) -> int | None:
        counts = [self._member(name).most_generations for name in self.members]
        return None if any(count is None for count in counts) else sum(1 + (count or 0) for count in counts) - 1

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        return self._next(problem, SearchState({}, {"member": -1}), rng=rng)

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        name = self._all[int(state.values["member"] or 0)]
        own = _part(state, name)
        if own.stopped is not None:
            return self._next(problem, state, rng=rng)
        return self._with(state, name, self._member(name, problem).step(problem, own, rng=rng))

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        found = {
            name: self._member(name, problem).result(problem, own)
            for name in self._all
            if (own := _part(state, name)).history
        }
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

    def _next(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Begin the next member that can run, or stop."""
        for number in range(int(state.values["member"] or 0) + 1, len(self._all)):
            name = self._all[number]
            if name not in self.members and state.history:
                break
            state = replace(state, values={**state.values, "member": number})
            try:
                self._check_needed(problem, state, name)
                return self._with(state, name, self._member(name, problem).begin(problem, rng=rng))
            except UsageError as error:
                state = replace(state, values={**state.values, f"{name}/stopped": f"left out: {error}"})
        return replace(state, stopped="all members are done")

    def _check_needed(self, problem: Problem, state: SearchState, name: str) -> None:
        """Leave out a costly member where cheaper ones reach as deep.

        Raises:
            UsageError: It is one.
        """
        kinds = {info.kind for info in problem.backend.layers}
        if name == "sparing" and problem.backend.layers[-1].kind != "dense":
            raise UsageError("the model does not end in a dense layer, and a search elsewhere takes long")
        if name == "deep" and "hidden/first" in state.values:
            raise UsageError("the model has hidden dense layers, and a search there takes a small part of the time")
        there = {problem.backend.info(layer).kind for layer in problem.suspects.layers}
        if name == "deep" and (problem.backend.layers[-1].kind != "dense" or there & set(DEEP)):
            raise UsageError("the suspects are in these layers already")
        costly = name == "deep" or (name == "words" and "embedding" in kinds)
        if costly and self._suffices(problem, state, ENOUGH[name]):
            raise UsageError(
                f"the members before it repair at least {100 * ENOUGH[name]:g} % of the fault, and it takes many "
                "times as long as they do"
            )

    def _suffices(self, problem: Problem, state: SearchState, share: float) -> bool:
        """Whether a candidate so far repairs this share of the negatives and breaks almost no positive, out of fold."""
        front = self.result(problem, state).front if state.history else ()
        judged = [one.held_back for one in front if one.held_back is not None]
        if not judged:
            return False
        repaired, broken = outcomes(problem, np.stack(judged))
        negatives, positives = (problem.fitness_inputs.of_kind(kind).sum() for kind in ("negative", "positive"))
        return bool(np.any((repaired >= share * negatives) & (broken <= FEW * positives)))

    def _with(self, state: SearchState, name: str, own: SearchState) -> SearchState:
        """The pool's state with one member's in it; the member's last generation is the pool's next."""
        arrays = {f"{name}/{key}": array for key, array in own.arrays.items()}
        values = {f"{name}/{key}": value for key, value in own.values.items()}
        first = state.values.get(f"{name}/first", len(state.history))
        values |= {f"{name}/first": first, f"{name}/stopped": own.stopped}
        new = tuple(
            replace(one, number=len(state.history) + i)
            for i, one in enumerate(own.history[len(state.history) - int(first or 0) :])
        )
        return SearchState({**state.arrays, **arrays}, {**state.values, **values}, (*state.history, *new))

    def _member(self, name: str, problem: Problem | None = None) -> Searcher:
        """A member; where suspects outside the dense tail make its steps costly, with fewer of them, as `deep` has."""
        made: Searcher = SEARCHERS.get(name)()
        if name == "keep" and problem is not None and isinstance(problem.tunable, BehindCut):
            deep = SEARCHERS.get("deep")()
            return replace(made, **{setting: getattr(deep, setting) for setting in ("steps", "folds")})
        return made


def _part(state: SearchState, name: str) -> SearchState:
    """One member's state out of the pool's."""
    prefix = f"{name}/"
    arrays = {key.removeprefix(prefix): array for key, array in state.arrays.items() if key.startswith(prefix)}
    values = {key.removeprefix(prefix): value for key, value in state.values.items() if key.startswith(prefix)}
    first, stopped = values.pop("first", None), values.pop("stopped", None)
    history: tuple[Generation, ...] = () if first is None else state.history[int(first) :]
    return SearchState(arrays, values, history, None if stopped is None else str(stopped))
