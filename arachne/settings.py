"""How to repair: every choice a user has, with our defaults and the paper's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from arachne.evaluate import MEMORY
from arachne.localise import Bidirectional, Localiser
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
