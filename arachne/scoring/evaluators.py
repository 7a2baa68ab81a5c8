"""Evaluation: the deficits of candidate patches, for searches that compare candidates.

There are two evaluators, and both lead to the same decisions:

    arguments   trials (trials, k): new values for the suspects; limits: totals a trial must not exceed
    result      deficits (trials, terms), int64: the gap between each trial and the perfect fitness, term by term

    search ── evaluate / compare_with_parents / outcome ──> Evaluator                   evaluator.py
                                                               │
               ┌───────────────────────────────────────────────┤
         PlainEvaluator   evaluator.py                    FastEvaluator                 fast/decide.py
         a full forward pass per candidate                is a DecidingEvaluator
                                                               │
                                    bounds(trials, ceilings)   │   bounds of all trials; where those of a trial and
                                    exact(trial)               │   its parent overlap, exact deficits
                                                               v
                                                         DeficitSource                  fast/deficits.py
                                                               │
              ┌────────────────────────────────────────────────┴───────┐
         LocalDeficits    fast/local.py                           RemoteDeficits        fast/remote.py
              │                                                   sums over shards of the inputs on other machines
              ├── BoundsFinder      fast/bounds.py                scores on a route +- the band: low <= total <= high
              │     ├── Route       fast/routes/base.py           a fast way to scores, exact up to rounding
              │     ├── ErrorBand   fast/error_band.py            how far a route may be off; learnt, always checked
              │     └── InputOrder  fast/input_order.py           hard inputs first
              └── ReferenceScores   fast/reference_scores.py      the plain evaluator's scores, bit for bit

`fitness.py` defines the terms of the fitness, and how a deficit follows from scores. `fast/route_choice.py` chooses a
route once per search: the fastest that supports the model, after a comparison with the plain evaluator.

    fast/routes/dense_tail.py                 dense layers at the end of a model, in NumPy
    fast/routes/channels_to_dense.py          a convolution, pooling and a dense tail, in NumPy
    fast/routes/channels_to_convolution.py    a convolution and the next one, in NumPy; then dense layers or the backend
    fast/routes/channels.py                   a convolution in NumPy, then the backend from its outputs on
    fast/routes/cut.py                        the backend, from the first touched layer on; supports every model

Where to extend: a faster way to scores is a new `Route`; deficits from other machines are a new `DeficitSource`;
another kind of input to count is a `Term` (`arachne.data.part`). None of them changes `DecidingEvaluator`.
"""

from __future__ import annotations

from arachne.errors import UsageError, did_you_mean
from arachne.model.backend import ModelBackend
from arachne.model.lazy import MEMORY
from arachne.scoring.evaluator import Evaluator, PlainEvaluator
from arachne.scoring.fast.decide import DecidingEvaluator, FastEvaluator
from arachne.scoring.fast.remote import RemoteDeficits
from arachne.scoring.fitness import UNIT, FitnessInputs, OutcomeCounts
from arachne.weights.selection import Selection

EVALUATORS = ("fast", "plain")


def make_evaluator(
    kind: str, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Selection, *, memory: int = MEMORY
) -> Evaluator:
    """Make the evaluator of a kind: `fast`, or `plain` for the reference; both lead to the same decisions.

    Args:
        kind: `fast` or `plain`.
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        memory: The bytes that the fast evaluator may keep between candidates.
    """
    # Routes support one label for each input, and sessions that are fed whole numbers round by a step now and then.
    unsupported = fitness_inputs.decisions is not None or any(info.is_quantised for info in backend.layers)
    if kind == "plain" or (kind == "fast" and unsupported):
        return PlainEvaluator(backend, fitness_inputs, suspects)
    if kind == "fast" and backend.remote is not None:
        source = RemoteDeficits(backend.remote, fitness_inputs, suspects, memory)
        return DecidingEvaluator(backend, fitness_inputs, suspects, source)
    if kind == "fast":
        return FastEvaluator(backend, fitness_inputs, suspects, memory=memory)
    raise UsageError(f"no evaluator named '{kind}'" + did_you_mean(kind, EVALUATORS))


__all__ = [
    "EVALUATORS",
    "MEMORY",
    "UNIT",
    "Evaluator",
    "FastEvaluator",
    "FitnessInputs",
    "OutcomeCounts",
    "PlainEvaluator",
    "make_evaluator",
]
