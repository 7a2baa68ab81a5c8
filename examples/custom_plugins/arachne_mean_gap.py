"""An objective: the mean distance of groups from the best one."""

from dataclasses import dataclass

from arachne import Objective


@dataclass(frozen=True, kw_only=True)
class MeanGap(Objective):
    """How far groups are from the best one, on average."""

    name = "mean-gap"
    WORDS = "mean gap"

    def value(self, right, totals):
        accuracies = right.sum(axis=-1) / totals.sum(axis=-1).clip(1)
        return accuracies.max(axis=-1) - accuracies.mean(axis=-1)
