"""How much a search may run the model, counted in passes over the seen inputs rather than in seconds.

A forward pass of one seen input through the whole model is 1 / n of a pass, and a backward one as much again. Behind a
cut only that share of it counts which the multiplications of the layers there have in those of all layers. Steps in the
dense layers at the end run in NumPy and do not count, unless they change very many weights. So a
search of the same model and inputs takes the same decisions on every machine, however busy that is.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from arachne.model.values import take
from arachne.search.folds import rows_by_kind
from arachne.search.influence import PROBED_INPUTS, SIGN_DRAWS
from arachne.search.problem import Problem

EFFORTS: dict[str, float | None] = {"quick": 4.0, "normal": 12.0, "thorough": None}
"""How many passes the members of a pool may take together; None sets no limit."""

FREE_MULTIPLICATIONS = 2.5e11
"""Multiplications that a pool may always make: some ten seconds of one processor."""

MOST_MULTIPLICATIONS = {"quick": 2e13, "normal": 5e13}
"""Multiplications that a pool may make, by effort: on large models these are fewer passes, and take some ten minutes of
two processors. Half of them go to one member at most, as of passes."""

FREE_IN_WHOLE_NUMBERS = 2e12
"""As many where hidden dense layers at the end hold whole numbers: there the runtime judges each point by a pass, while
NumPy judges those of a float model by what a few weights change. It takes a minute or two at most."""

MEASURED = 3
"""How often a point is run: by the fold that judges it, by the whole of the seen inputs, and for the choice."""

MEASURED_OF_MANY = 1.5
"""How often a point is run on average where points alone run the model: about a quarter come to the front."""

MANY_WEIGHTS = 100_000
"""Steps over so many weights count even in the dense layers at the end: each is a product with the whole matrix."""

MEMBER_SHARE = 0.5
"""The largest share of the allowance that one member may take."""


def allowance(problem: Problem, effort: str, trains: bool = False) -> float:
    """Return how many passes the members of a pool may take together.

    Who gives training inputs wants them run over as well: a member that `trains` may run as often over all that is
    given.
    """
    passes = EFFORTS[effort]
    if passes is None:
        return float("inf")
    if trains and problem.training is not None:
        passes *= 1 + len(problem.training) / len(problem.split.seen)
    per_pass = sum(multiplications(problem).values()) * len(problem.split.seen)
    passes = min(passes, MOST_MULTIPLICATIONS[effort] / max(1.0, per_pass))
    whole = problem.rounded_tail is not None and len(problem.rounded_tail.layers) > 1
    return max(passes, (FREE_IN_WHOLE_NUMBERS if whole else FREE_MULTIPLICATIONS) / max(1.0, per_pass))


def multiplications(problem: Problem) -> dict[str, float]:
    """Return the number of multiplications that each layer makes for one input, by its name in the order of layers."""
    if "multiplications" not in problem.shared:
        backend, seen = problem.backend, problem.split.seen.data.inputs
        names = [info.name for info in backend.layers]
        trace = backend.trace(take(seen, np.arange(1)), names)
        found = dict.fromkeys(names, 0.0)
        for info in backend.layers:
            size = sum(info.parameters[name].size for name in info.weights) if info.kind != "embedding" else 0
            for use in trace.activations[info.name]:
                axis = 1 if info.kind.startswith("conv") else -1
                found[info.name] += size * use.leaving.size / max(1, use.leaving.shape[axis])
        problem.shared["multiplications"] = found
    known: dict[str, float] = problem.shared["multiplications"]
    return known


def share_behind(problem: Problem, layers: Iterable[str]) -> float:
    """Return the share of a pass that lies behind a cut at the first of some layers; 0 if all are in the dense tail."""
    wanted, tail = set(layers), problem.tail if problem.fitness_inputs.decisions is None else None
    if not wanted or (tail is not None and all(layer in tail for layer in wanted)):
        return 0.0
    found, behind = multiplications(problem), False
    counted = 0.0
    for name, number in found.items():
        behind = behind or name in wanted
        counted += number if behind else 0.0
    return counted / (sum(found.values()) or 1.0)


def steps_run_model(problem: Problem, layers: Iterable[str]) -> bool:
    """Tell whether gradient steps in some layers run the model, or NumPy where dense layers at the end are rounded."""
    tail = problem.rounded_tail
    return tail is None or not all(tail.can_run_from(layer) for layer in layers)


def share_of_many(problem: Problem) -> float:
    """Return the share of a pass that a step over very many suspects in the dense tail is; 0 for fewer of them."""
    many = len(problem.suspects)
    return many / max(1.0, sum(multiplications(problem).values())) if many >= MANY_WEIGHTS else 0.0


def share_of_rows(problem: Problem, most: int, folds: int | None = None) -> float:
    """Return the share of the seen inputs that a gradient step uses, with at most `most` of each kind in it."""
    kept = 1.0 if folds is None else (folds - 1) / folds
    negative, positive, guarded = map(len, rows_by_kind(problem, np.ones(len(problem.fitness_inputs), bool)))
    rows = sum(min(most, int(kept * number)) for number in (negative, positive)) + min(most, guarded)
    return min(1.0, rows / len(problem.split.seen))


def path_passes(
    problem: Problem, steps: int, folds: int, points: int, *, behind: float, rows: float, runs: int = 1
) -> float:
    """Return the passes of cross-fitted gradient steps whose points are judged, scored and measured.

    Args:
        problem: The problem.
        steps: Gradient steps of a run.
        folds: Runs.
        points: Points of the path, counted with every share of their change.
        behind: The share of a pass behind the cut.
        rows: The share of the seen inputs that a step runs the model for; 0 where it does not run it.
        runs: How many runs estimate the size of their steps.
    """
    estimate = runs * SIGN_DRAWS * share_of_rows(problem, PROBED_INPUTS) if behind and rows else 0.0
    measured = MEASURED if rows else MEASURED_OF_MANY
    return behind * (2 * (folds * steps * rows + estimate) + measured * points)
