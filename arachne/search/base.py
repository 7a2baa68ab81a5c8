"""Searcher: the interface that every search implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.model.backend import ModelBackend
from arachne.plugins.options import Configured
from arachne.search.ahead import running_ahead
from arachne.search.problem import Problem
from arachne.search.state import OnState, SearchResult, SearchState


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
        with running_ahead(problem) as ahead:
            while state.stopped is None:
                state = self.step(problem, state, rng=rng)
                if not ahead.leads:
                    continue
                if state.stopped is None and stop is not None and (reason := stop()) is not None:
                    state = replace(state, stopped=reason)
                if on_state is not None:
                    on_state(state)
        return self.result(problem, state)
