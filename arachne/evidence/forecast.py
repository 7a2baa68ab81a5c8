"""Forecast without a search what share of a target is within reach at several budgets of damage.

A repair forecasts better, from its first candidates (`arachne.choose.outlook`). This is for scans, which search
nothing, and for searches other than the default: the best linear rule on the last features tells the target's inputs
from right inputs that are read as the same class. At every threshold it gives up some right inputs and gets hold of
some of the target; that trade-off, measured out of fold, is what a repair moves along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.causes import Cases
from arachne.data.part import Part
from arachne.model.backend import ModelBackend
from arachne.model.lazy import is_lazy
from arachne.model.values import Array
from arachne.scoring.tail_cache import TailCache

BUDGETS = (0.001, 0.005, 0.01, 0.02)
"""Shares of right inputs that may break."""

MIN_NEGATIVES = 8
"""The fewest inputs read as one class that a rule is fitted to."""

MAX_INPUTS = 2000
"""The most right inputs that a rule is fitted to."""

MAX_FEATURES = 4096
"""A layer with more inputs than this is too wide for a forecast in a second."""

FOLDS = 4

RIDGE = 0.03
"""Added to the covariance of the features, in mean variances."""

CAUTION = 0.7
"""A choice keeps broken + 0.7 √broken within the budget, so the forecast does too."""

LITTLE = 0.25
"""Below this share at 0.5 %, inputs of the target look like right ones, and more data would help more than a repair."""

MOST_OF_IT = 0.75
"""From this share at 0.5 % on, the hint that slower searches may reach more is left out."""

SAID = (0.005, 0.02)
"""The budgets that the sentence names."""

STEP = 0.05
"""Shares are said in whole steps: a forecast is not more exact than this."""

MOSTLY = 0.6
"""A class is named where so large a share of the target is of it."""


@dataclass(frozen=True)
class Forecast:
    """The share of a target that is within reach at several budgets.

    Attributes:
        negatives: Inputs that show the target.
        reach: Shares of them that a repair may be expected to put right, one for each of `BUDGETS`.
        mostly: The true class of most of them, by name; None where they are of many.
        searched: Whether quick searches have reached these shares, so that slower ones may reach more.
        look_alike: Whether the model's last layer hardly tells these inputs from right ones.
    """

    negatives: int
    reach: tuple[float, ...]
    mostly: str | None = None
    searched: bool = False
    look_alike: bool = False

    @property
    def sentence(self) -> str:
        """The forecast in one line."""
        first, *others = SAID
        said = (
            "rough forecast: a repair may reach about" if not self.searched else "forecast: quick searches reach about"
        )
        said += f" {self._range(first)} of the fault if {100 * first:g} % of what is right may break"
        said += "".join(f", {self._range(budget)} if {100 * budget:g} % may" for budget in others)
        if self.look_alike:
            whose = "such inputs" if self.mostly is None else f"inputs of class {self.mostly}"
            said += f"; the model hardly tells these inputs from right ones, training with more {whose} would help more"
        elif self.searched and self.reach[BUDGETS.index(first)] < MOST_OF_IT:
            said += "; slower ones often reach more"
        return said

    def _range(self, budget: float) -> str:
        """Return the share at a budget, give or take a deviation of its count: `10-15 %`, or `45 %`."""
        share = self.reach[BUDGETS.index(budget)]
        spread = (share * (1 - share) / max(1, self.negatives)) ** 0.5
        low, high = (round(max(0.0, min(1.0, one)) / STEP) * STEP for one in (share - spread, share + spread))
        return f"{100 * low:.0f}-{100 * high:.0f} %" if high > low else f"{100 * high:.0f} %"

    def to_json(self) -> dict[str, Any]:
        """Return the object that `result.json` and `scan --json` hold."""
        reach = [{"max_break": budget, "repaired": one} for budget, one in zip(BUDGETS, self.reach, strict=True)]
        return {"negatives": self.negatives, "reach": reach, "sentence": self.sentence}


def forecast(backend: ModelBackend, part: Part, *, seed: int = 0) -> Forecast | None:
    """Forecast what a repair of the part's targets can reach; None without a dense layer or with too few inputs."""
    if not part.task.SINGLE:
        return None
    groups = [rows for rows in _by_prediction(part) if len(rows) >= MIN_NEGATIVES]
    if not groups:
        return None
    rng = np.random.default_rng(seed)
    caught: list[Array] = []
    fixable: list[Array] = []
    lost: list[Array] = []
    for negatives in groups:
        read_as = part.predictions[negatives[0]]
        positives = rng.permutation(part.positives[part.predictions[part.positives] == read_as])[:MAX_INPUTS]
        rows = np.concatenate([negatives, positives])
        features = last_features(backend, part, rows)
        if features is None or len(positives) < FOLDS:
            return None
        others = part.scores[rows].astype(np.float64)
        others[:, read_as] = -np.inf
        margin = part.scores[rows, read_as] - others.max(axis=1)
        scores = score_out_of_fold(np.column_stack([features, margin]), len(negatives), rng)
        caught.append(scores[: len(negatives)])
        fixable.append((part.task.decide(others) == part.labels[rows])[: len(negatives)])
        lost.append(scores[len(negatives) :])
    wanted = np.concatenate(groups)
    reach = trade_off(np.concatenate(caught), np.concatenate(fixable), np.concatenate(lost), len(part.positives))
    shares = [max(second, usual_accuracy(part, wanted) * above) for second, above in reach]
    found = np.maximum.accumulate([share * len(wanted) / len(part.negatives) for share in shares])
    alike = bool(found[BUDGETS.index(SAID[0])] < LITTLE)
    return Forecast(len(part.negatives), tuple(found.tolist()), frequent_class(part), look_alike=alike)


def usual_accuracy(part: Part, rows: Array) -> float:
    """Return how often other inputs of the same true classes are right, weighted as some rows `(k,)` are."""
    others = np.setdiff1d(np.arange(len(part.labels)), part.negatives)
    size = int(part.labels.max()) + 1
    right = np.bincount(part.labels[part.positives], minlength=size)
    accuracy = right / np.maximum(1, np.bincount(part.labels[others], minlength=size))
    return float(accuracy[part.labels[rows]].mean())


def frequent_class(part: Part) -> str | None:
    """Return the name of the class that most of the target is of; None if there is none."""
    if not part.task.ONE_LABEL:
        return None
    classes, counts = np.unique(part.labels[part.negatives], return_counts=True)
    most = int(counts.argmax())
    return part.class_names[int(classes[most])] if counts[most] >= MOSTLY * counts.sum() else None


def _by_prediction(part: Part) -> list[Array]:
    read_as = part.predictions[part.negatives]
    return [part.negatives[read_as == one] for one in np.unique(read_as)]


def last_features(backend: ModelBackend, part: Part, rows: Array) -> Array | None:
    """Return what enters the last dense layer `(len(rows), width)`, from the first pass if that is cached."""
    dense = [info for info in backend.layers if info.kind == "dense"]
    if not dense or dense[-1].parameters["weight"].shape[-1] > MAX_FEATURES:
        return None
    cached = part.cached_activations
    if isinstance(cached, TailCache) and dense[-1].name in cached:
        return np.asarray(cached.take(rows).entering(dense[-1].name))
    if is_lazy(part.data.inputs):
        return None
    return Cases.of(part.data, part.predictions, backend).take(rows).hidden_activations(dense[-1].name)


def score_out_of_fold(features: Array, negatives: int, rng: np.random.Generator) -> Array:
    """Score rows by linear rules that were fitted to other rows, in standard deviations of right inputs `(n,)`.

    Args:
        features: `(n, width)`; the first `negatives` rows are the target's.
        negatives: How many of them.
        rng: Draws the folds.
    """
    target = np.arange(len(features)) < negatives
    fold = np.zeros(len(features), dtype=np.int64)
    for kind in (target, ~target):
        fold[rng.permutation(np.flatnonzero(kind))] = np.arange(int(kind.sum())) % FOLDS
    features = (features - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-6)
    found = np.zeros(len(features))
    for number in range(FOLDS):
        own, others = features[(fold != number) & target], features[(fold != number) & ~target]
        spread = (np.cov(own.T) + np.cov(others.T)) / 2
        spread.flat[:: len(spread) + 1] += RIDGE * np.trace(spread) / len(spread) + 1e-9
        rule = np.linalg.solve(spread, own.mean(axis=0) - others.mean(axis=0))
        along = others @ rule
        here = fold == number
        found[here] = (features[here] @ rule - along.mean()) / max(float(along.std()), 1e-12)
    return found


def trade_off(caught: Array, fixable: Array, lost: Array, positives: int) -> list[tuple[float, float]]:
    """Return two shares of the target for each budget: caught and right then by the next best score, and caught.

    Args:
        caught: Out-of-fold scores of the target's inputs `(k,)`.
        fixable: Which of them are right once they are not read as they are now, bool `(k,)`.
        lost: Scores of right inputs read as the same classes `(m,)`.
        positives: How many inputs are right, of any class.
    """
    lost = np.append(np.sort(lost)[::-1], -np.inf)
    counts = np.arange(len(lost))
    found = []
    for budget in BUDGETS:
        allowed = int(np.flatnonzero(counts + CAUTION * np.sqrt(counts) <= budget * positives)[-1])
        above = caught > lost[allowed]
        found.append((float((above & fixable).mean()), float(above.mean())))
    return found
