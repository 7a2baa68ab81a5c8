"""Provenance: how a patch came about, enough to make it again."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np

from arachne.causes.targets import cause_rules
from arachne.data.keeping import attach_kept
from arachne.data.labelled import LabelledData, number_alike
from arachne.data.seen import seen_record
from arachne.data.split import Split
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Inputs
from arachne.settings import Settings

RawInputs = Callable[[], tuple[Inputs, Array]]


@dataclass(frozen=True)
class Sources:
    """Everything a user gives a repair beside the model and the settings.

    Attributes:
        data: Labelled inputs the model was not trained on.
        target: The mistake, such as `6:0`.
        holdout: Other data for the verdict; half of `data` when None.
        never_break: Inputs that must stay right, where the original model gets them right.
        training: What the model was trained on, for searchers that retrain it.
        keep_as_is: Inputs without labels that the model must go on reading as it does.
        raw: Gives the inputs before preprocessing and their labels, for advice when the model is near chance.
    """

    data: LabelledData
    target: str | Sequence[str]
    holdout: LabelledData | None = None
    never_break: LabelledData | None = None
    training: LabelledData | None = None
    raw: RawInputs | None = None
    keep_as_is: LabelledData | None = None

    def __post_init__(self) -> None:
        for name in ("holdout", "never_break", "training"):
            object.__setattr__(self, name, number_alike(self.data, getattr(self, name)))

    @cached_property
    def joined_data(self) -> tuple[LabelledData, LabelledData | None]:
        """The data and the holdout, with the inputs to keep as they are behind them."""
        return attach_kept(self.data, self.holdout, self.keep_as_is)


def make_provenance(backend: ModelBackend, sources: Sources, split: Split, settings: Settings) -> dict[str, Any]:
    """Describe how a patch comes about, as plain values."""
    holdout, never_break, training = sources.holdout, sources.never_break, sources.training
    judged: dict[str, Any] | None = None
    if holdout is not None:
        judged = {**_identify(holdout), "dropped": len(sources.joined_data[1] or holdout) - len(split.held_out)}
    causes = cause_rules(split.targets)
    return {
        "target": [str(target) for target in split.targets],
        **({"causes": causes} if causes else {}),
        "seed": settings.seed,
        "settings": settings.to_json(),
        "data": {**_identify(sources.data), "seen": _seen_record(sources, split)},
        "holdout": judged,
        **({} if never_break is None else {"never_break": _identify(never_break)}),
        **({} if training is None else {"training": _identify(training)}),
        **({} if sources.keep_as_is is None else {"keep_as_is": _identify(sources.keep_as_is)}),
        **({"trusted_code": True} if backend.trusted_code else {}),
        "versions": {
            "arachne": version("arachne-repair"),
            "numpy": np.__version__,
            "pymoo": version("pymoo"),
            "framework": backend.describe().framework,
            "python": platform.python_version(),
        },
    }


def _seen_record(sources: Sources, split: Split) -> dict[str, Any]:
    rows = np.concatenate([split.seen.rows, split.choose.rows])
    return seen_record(rows, sources.joined_data[0], () if sources.never_break is None else [sources.never_break])


def _identify(data: LabelledData) -> dict[str, Any]:
    return {"name": data.source, "sha256": data.sha256(), "inputs": len(data)}
