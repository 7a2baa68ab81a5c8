"""Every searcher side by side on one fault: the same split, seed and budget, judged on inputs none of them saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arachne import engine
from arachne.backend import ModelBackend
from arachne.cluster.starting import on_cluster
from arachne.comparison import Comparison, Contender
from arachne.data.labelled import LabelledData
from arachne.data.readers import read_data
from arachne.errors import ArachneError, ClusterError, NothingWithinBudgetError, UsageError
from arachne.evidence.verdict import BREAK_BUDGET
from arachne.localise import Localiser
from arachne.plugins import SEARCHERS
from arachne.registry import load
from arachne.result import RepairResult
from arachne.search import Generation, Searcher
from arachne.search.budget import Budget
from arachne.settings import Settings, make_settings

PATIENCE = 10.0
"""Seconds between two lines about a search that goes on."""

Tell = Callable[[str], None]


def compare_searchers(
    model: Any,
    data: Any,
    target: str | Sequence[str],
    *,
    searchers: Sequence[str | Searcher] | None = None,
    max_break: float = BREAK_BUDGET,
    localiser: str | Localiser | None = None,
    holdout: Any = None,
    training: Any = None,
    tell: Tell | None = None,
    workers: int | None = None,
    cluster: Any = None,
    **changes: Any,
) -> Comparison:
    """Repair one mistake with every searcher, and measure them all on the same inputs that none of them saw.

    A searcher that cannot run here, fails, or finds nothing within the budget has a row that says so.

    Args:
        model: A model file, a framework's model object, or a backend; it is left as it was.
        data: Whatever `read_data` takes; inputs the model was not trained on.
        target: The mistake, such as `6:0`.
        searchers: Which, by name or as objects; when None all of Arachne's own, those that retrain the model only where
            `training` is given.
        max_break: The largest share of inputs that were right and may become wrong.
        localiser: Finds the suspects for all of them; when None, each has the one it is meant for.
        holdout: Other data for the verdict; half of `data` when None.
        training: What the model was trained on, for searchers that retrain it.
        tell: Called with a line about how far it is.
        workers: How many processes of this machine share the inputs; the patches are the same with any number.
        cluster: The dask cluster that shares them instead, as `arachne.repair` has it.
        **changes: Other attributes of `Settings`, such as `seed`.

    Raises:
        NothingToRepairError: The model does not make this mistake.
    """
    named = usual_searchers(training is not None) if searchers is None else list(searchers)
    if not named:
        raise UsageError("expected at least one searcher to compare, got none")
    others = {"holdout": holdout, "training": training}
    read = {name: None if source is None else read_data(source) for name, source in others.items()}
    backend, contenders = load(model), []
    with on_cluster(backend, workers=workers, cluster=cluster, tell=tell) as shared:
        run = _Run(shared, read_data(data), target, read["holdout"], read["training"], tell)
        for number, one in enumerate(named):
            run.begin(one if isinstance(one, str) else one.name, f"{number + 1} of {len(named)}")
            found = run.contender(one, localiser, {**changes, "budget": Budget(max_break)})
            own = None if found.result is None else replace(found.result, backend=backend)
            contenders.append(replace(found, result=own))
    return Comparison(tuple(contenders), max_break, backend.NAME)


def usual_searchers(with_training: bool) -> list[str]:
    """Arachne's own searchers by name; those that retrain a model only with training data."""
    return [name for name in SEARCHERS.ours if with_training or not SEARCHERS.get(name).USES_TRAINING]


@dataclass
class _Run:
    """One searcher after the other on the same inputs, with lines about how far it is."""

    backend: ModelBackend
    data: LabelledData
    target: str | Sequence[str]
    holdout: LabelledData | None
    training: LabelledData | None
    tell: Tell | None
    name: str = ""
    step: str = ""
    started: float = 0.0
    said: float = 0.0
    worked: float = 0.0
    since: float = 0.0

    def begin(self, name: str, place: str) -> None:
        """Start the clock of a searcher."""
        self.name, self.step, self.worked = name, "", 0.0
        self.started = self.said = time.monotonic()
        self._say(f"{place}: {name} …")

    def contender(self, one: str | Searcher, localiser: str | Localiser | None, changes: dict[str, Any]) -> Contender:
        """Run a searcher; what goes wrong once the data has been split is its own, and part of the answer."""
        result: RepairResult | None = None
        failed: str | None = None
        where = "" if localiser is None else localiser if isinstance(localiser, str) else localiser.name
        try:
            settings = make_settings(searcher=one, localiser=localiser, **changes)
            where = settings.finder(self.backend).name
            training = self.training if settings.searcher.USES_TRAINING else None
            failed = settings.searcher.refusal(self.backend, training)
            result = None if failed else self._repair(settings, training)
        except NothingWithinBudgetError as error:
            result = error.result
        except Exception as error:
            if self.step in ("", "split") or isinstance(error, ClusterError):
                raise
            failed = str(error) if isinstance(error, ArachneError) else f"{type(error).__name__}: {error}"
        self._stop()
        contender = Contender(self.name, where, result, failed, round(self.worked, 3))
        self._say(f"{self.name}: {contender.headline}, {self._so_far()}")
        return contender

    def _repair(self, settings: Settings, training: LabelledData | None) -> RepairResult:
        return engine.repair(
            self.backend,
            self.data,
            self.target,
            settings=settings,
            holdout=self.holdout,
            training=training,
            on_step=self._on_step,
            on_generation=self._on_generation,
        )

    def _on_step(self, name: str) -> None:
        """Processor time counts from localising to choosing; splitting and the final measuring are the same for all."""
        self._stop()
        self.step = name
        if name not in ("split", "measure"):
            self.since = self._processor()

    def _stop(self) -> None:
        if self.since:
            self.worked += self._processor() - self.since
            self.since = 0.0

    def _processor(self) -> float:
        """Processor time so far, here and elsewhere."""
        elsewhere = self.backend.elsewhere
        return time.process_time() + (0.0 if elsewhere is None else elsewhere.processor)

    def _on_generation(self, at: Generation) -> None:
        if time.monotonic() - self.said > PATIENCE:
            self.said = time.monotonic()
            told = f"{at.repaired} repaired and {at.broken} broken on seen inputs"
            self._say(f"{self.name}: {self.step}, generation {at.number}, {told}, {self._so_far()} so far")

    def _so_far(self) -> str:
        return f"{time.monotonic() - self.started:.1f} s"

    def _say(self, text: str) -> None:
        if self.tell is not None:
            self.tell(text)
