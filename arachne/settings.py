"""How to repair: every choice a user has, with our defaults and the paper's."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import Any

from arachne.errors import UsageError
from arachne.evaluate import MEMORY
from arachne.localise import Bidirectional, Localiser, localiser_named
from arachne.search import DifferentialEvolution, Searcher

MIN_WEIGHTS = 5
"""With fewer suspects than this the search has too little to trade with, and the next fronts are added."""


@dataclass(frozen=True)
class Settings:
    """How to repair; the defaults are ours, `Settings.faithful()` is the paper to the letter.

    Attributes:
        alpha: How much a negative counts against a positive.
        seed: What all randomness starts from.
        localiser: Finds the suspects.
        searcher: Finds their new values.
        evaluator: `fast`, or `plain` for the reference; both accept the same candidates.
        memory: What the fast evaluator may keep between candidates, in bytes.
        choose: Share of the seen part kept for choosing between patches.
        drop_overlap: Whether held-out inputs that are also in the data are dropped rather than refused.
        group_by: A metadata column whose values stay on one side of the split.
        accept_near_chance: Whether to go on with a model that is hardly better than guessing.
    """

    alpha: float = 10.0
    seed: int = 0
    localiser: Localiser = field(default_factory=lambda: Bidirectional(min_weights=MIN_WEIGHTS))
    searcher: Searcher = field(default_factory=DifferentialEvolution)
    evaluator: str = "fast"
    memory: int = MEMORY
    choose: float = 0.0
    drop_overlap: bool = False
    group_by: str | None = None
    accept_near_chance: bool = False

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise UsageError(f"alpha must be above 0, got {self.alpha}")
        if self.seed < 0:
            raise UsageError(f"a seed is 0 or more, got {self.seed}")
        if not isinstance(self.localiser, Localiser):
            raise UsageError(f"expected a localiser such as arachne.Bidirectional(), got {self.localiser!r}")
        if not isinstance(self.searcher, Searcher):
            raise UsageError(f"expected a searcher such as arachne.DifferentialEvolution(), got {self.searcher!r}")

    @classmethod
    def faithful(cls, **changes: Any) -> Settings:
        """BL's first front, its Gaussians, no clipping, no widening, no inner split."""
        paper = {"localiser": Bidirectional(), "searcher": DifferentialEvolution.faithful()}
        return cls(**{**paper, **changes})

    def to_json(self) -> dict[str, Any]:
        """What goes into provenance: names and plain values."""
        return {
            "alpha": self.alpha,
            "localiser": {"name": self.localiser.name, **vars(self.localiser)},
            "searcher": {"name": self.searcher.name, **vars(self.searcher)},
            "choose": self.choose,
            "group_by": self.group_by,
        }


def make_localiser(name: str, *, faithful: bool = False, min_weights: int | None = None, **where: Any) -> Localiser:
    """A localiser by its short name: `bl` and its kin widen a small front unless told otherwise or faithful."""
    kind = localiser_named(name)
    if issubclass(kind, Bidirectional):
        where["min_weights"] = (0 if faithful else MIN_WEIGHTS) if min_weights is None else min_weights
    return kind(**where)


def make_settings(base: Settings | None = None, *, faithful: bool = False, **changes: Any) -> Settings:
    """Settings from keywords, the localiser perhaps by its short name.

    Args:
        base: What the keywords change; our defaults, or the paper's when `faithful`, if None.
        faithful: Whether to start from the paper's settings.
        **changes: Attributes of `Settings`.

    Raises:
        UsageError: No such setting; it says where one of the localiser or of the searcher goes.
    """
    if base is not None and faithful:
        raise UsageError("give settings or faithful, not both; arachne.Settings.faithful() makes faithful settings")
    for name in changes:
        if name not in Settings.__dataclass_fields__:
            raise UsageError(f"unknown setting '{name}'; {_home(name)}")
    if isinstance(changes.get("localiser"), str):
        changes["localiser"] = make_localiser(changes["localiser"], faithful=faithful)
    if base is not None:
        return replace(base, **changes)
    return Settings.faithful(**changes) if faithful else Settings(**changes)


def _home(name: str) -> str:
    for part, kind in (("searcher", DifferentialEvolution), ("localiser", Bidirectional)):
        if name in inspect.signature(kind).parameters:
            return f"it is the {part}'s: {part}=arachne.{kind.__name__}({name}=…)"
    return f"available: {', '.join(Settings.__dataclass_fields__)}"
