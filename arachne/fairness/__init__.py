"""Fairness for groups: what a repair should make fairer, counted from the values of a metadata column."""

from arachne.fairness.base import Grouped, Objective
from arachne.fairness.estimate import Estimate, estimates, slopes
from arachne.fairness.objectives import AccuracyGap, EqualisedOdds, WorstGroup

__all__ = ["AccuracyGap", "EqualisedOdds", "Estimate", "Grouped", "Objective", "WorstGroup", "estimates", "slopes"]
