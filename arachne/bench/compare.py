"""Run several searchers on one fault with the same split, seed and budget, and compare them on held-out inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arachne.bench.checkpoints import BenchCheckpoints
from arachne.bench.result import Comparison, Contender
from arachne.choose.budget import Budget
from arachne.data.labelled import LabelledData
from arachne.errors import (
    ArachneError,
    ClusterError,
    EnvironmentFaultError,
    NothingWithinBudgetError,
    UsageError,
)
from arachne.localise import Localiser
from arachne.model.backend import ModelBackend
from arachne.plugins.table import SEARCHERS
from arachne.results.checkpoint import Checkpoints
from arachne.results.result import RepairResult
from arachne.search import Generation, Searcher
from arachne.settings import Settings, check_uses_alpha, make_searcher, make_settings

MESSAGE_INTERVAL = 10.0
"""Seconds between two progress lines of one search."""

Tell = Callable[[str], None]


QUICK = ("auto", "bias", "erase", "gate", "last-layer", "low-rank", "margin", "margin@fisher", "margin@hidden")
"""Searchers that take seconds on a network of usual size; the others take minutes, and run when they are named."""


def usual_searchers(with_training: bool) -> list[str]:
    """List the quick searchers by name, and those that retrain a model if there is training data."""
    retraining = [name for name in SEARCHERS.ours if with_training and SEARCHERS.get(name).USES_TRAINING]
    return [*QUICK, *retraining]


@dataclass
class Bench:
    """Runs searchers one after the other on the same inputs and reports progress.

    `repair` is the engine's, called with the backend, the data and the target; `checkpoints` say how far searches are.
    """

    repair: Callable[..., RepairResult]
    backend: ModelBackend
    data: LabelledData
    target: str | Sequence[str]
    holdout: LabelledData | None
    training: LabelledData | None
    tell: Tell | None
    checkpoints: BenchCheckpoints | None = None
    name: str = ""
    step: str = ""
    start_time: float = 0.0
    last_message_time: float = 0.0
    processor_seconds: float = 0.0
    clock_start: float = 0.0

    def compare(
        self,
        searchers: Sequence[str | Searcher] | None,
        *,
        max_break: float,
        localiser: str | Localiser | None = None,
        home: ModelBackend | None = None,
        **changes: Any,
    ) -> Comparison:
        """Give every searcher a row; arguments as for `arachne.compare_searchers`.

        Args:
            searchers: Names or objects; the usual ones when None.
            max_break: The budget.
            localiser: Finds the suspects for all of them.
            home: The backend that results keep, where the one that runs the model ends with its cluster.
            **changes: Other attributes of `Settings`.
        """
        named = usual_searchers(self.training is not None) if searchers is None else list(searchers)
        named = [SEARCHERS.canonical(one) if isinstance(one, str) else one for one in named]
        if not named:
            raise UsageError("expected at least one searcher to compare, got none")
        made = [make_searcher(one) if isinstance(one, str) else one for one in named]
        if "alpha" in changes and not any(one.uses_alpha for one in made):
            check_uses_alpha(made[0])
        without_alpha = {name: value for name, value in changes.items() if name != "alpha"}
        contenders = []
        for number, one in enumerate(made):
            checkpoint = None if self.checkpoints is None else self.checkpoints.begin(number, one.name)
            self.begin(one.name, f"{number + 1} of {len(made)}")
            own_changes = changes if one.uses_alpha else without_alpha
            found = self.contender(one, localiser, {**own_changes, "budget": Budget(max_break)}, checkpoint)
            own = None if found.result is None else replace(found.result, backend=home or self.backend)
            contenders.append(replace(found, result=own))
        return Comparison(tuple(contenders), max_break, self.backend.NAME)

    def begin(self, name: str, position: str) -> None:
        """Start the clock of a searcher."""
        self.name, self.step = name, ""
        self.processor_seconds = 0.0 if self.checkpoints is None else self.checkpoints.seconds_before()
        self.start_time = self.last_message_time = time.monotonic()
        self._say(f"{position}: {name} …")

    def contender(
        self,
        one: Searcher,
        localiser: str | Localiser | None,
        changes: dict[str, Any],
        checkpoint: Checkpoints | None = None,
    ) -> Contender:
        """Run a searcher; an error after the data has been split is part of its result, any earlier one is raised."""
        result: RepairResult | None = None
        failed: str | None = None
        where = "" if localiser is None else localiser if isinstance(localiser, str) else localiser.name
        try:
            settings = make_settings(searcher=one, localiser=localiser, **changes)
            where = settings.resolve_localiser(self.backend).name
            training = self.training if settings.searcher.USES_TRAINING else None
            failed = settings.searcher.refusal(self.backend, training)
            result = None if failed else self._repair(settings, training, checkpoint)
        except NothingWithinBudgetError as error:
            result = error.result
        except Exception as error:
            if self.step in ("", "split") or isinstance(error, (ClusterError, EnvironmentFaultError)):
                raise
            failed = str(error) if isinstance(error, ArachneError) else f"{type(error).__name__}: {error}"
        finally:
            self._stop_clock()
            if self.checkpoints is not None:
                self.checkpoints.keep(self.processor_seconds)
        contender = Contender(self.name, where, result, failed, round(self.processor_seconds, 3))
        self._say(f"{self.name}: {contender.headline}, {contender.seconds:.1f} s")
        return contender

    def _repair(
        self, settings: Settings, training: LabelledData | None, checkpoint: Checkpoints | None
    ) -> RepairResult:
        return self.repair(
            self.backend,
            self.data,
            self.target,
            settings=settings,
            holdout=self.holdout,
            training=training,
            on_step=self._on_step,
            on_generation=self._on_generation,
            checkpoint=checkpoint,
        )

    def _on_step(self, name: str) -> None:
        """Count processor time from localising to choosing; splitting and the final measuring are the same for all."""
        self._stop_clock()
        self.step = name
        if name not in ("split", "measure"):
            self.clock_start = self._processor_time()

    def _stop_clock(self) -> None:
        if self.clock_start:
            self.processor_seconds += self._processor_time() - self.clock_start
            self.clock_start = 0.0

    def _processor_time(self) -> float:
        """Return the processor time so far, of this process and of remote workers."""
        remote = self.backend.remote
        return time.process_time() + (0.0 if remote is None else remote.processor)

    def _on_generation(self, at: Generation) -> None:
        if time.monotonic() - self.last_message_time > MESSAGE_INTERVAL:
            self.last_message_time = time.monotonic()
            counts = f"{at.repaired} repaired and {at.broken} broken on seen inputs"
            self._say(f"{self.name}: {self.step}, generation {at.number}, {counts}, {self._elapsed_text()} so far")

    def _elapsed_text(self) -> str:
        return f"{time.monotonic() - self.start_time:.1f} s"

    def _say(self, text: str) -> None:
        if self.tell is not None:
            self.tell(text)
