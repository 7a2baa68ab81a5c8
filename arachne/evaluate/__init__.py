"""Evaluation: what does a candidate patch cost?

A search asks, an evaluator answers. There are two, and both take the same decisions:

    question   trials (trials, k): new values for the suspects; limits: totals a trial must not exceed
    answer     deficits (trials, terms), int64: what each trial falls short of the perfect fitness, term by term

    search ── evaluate / challenge / outcome ──> Evaluator                              base.py
                                                    │
               ┌────────────────────────────────────┴──────────┐
         PlainEvaluator   plain.py                        FastEvaluator                 fast.py
         a full forward pass per candidate                is a DecidingEvaluator        deciding.py
                                                               │
                                    bounds(trials, ceilings)   │   bounds of all trials; where those of a trial and
                                    exact(trial)               │   its parent overlap, exact facts about them
                                                               v
                                                             Facts                      judging/facts.py
                                                               │
              ┌────────────────────────────────────────────────┴───────┐
         LocalFacts       judging/local_facts.py                  SharedFacts           judging/shared_facts.py
              │                                                   those of shards that are elsewhere, added up
              ├── BoundsFinder      judging/bounds.py             scores on a route +- the band: low <= total <= high
              │     ├── Route       routes/base.py                a fast way to scores, right up to rounding
              │     ├── ErrorBand   judging/error_band.py         how far a route may be off; learnt, always checked
              │     └── HardFirst   judging/input_order.py        which inputs to look at first
              └── ReferenceScores   judging/reference_scores.py   the plain evaluator's scores, bit for bit

What the fitness counts, and how a deficit follows from scores, is in `fitness.py`. Which route is taken is chosen once
per search (`judging/route_choice.py`): the fastest that is open, after a comparison with the plain evaluator.

    routes/dense_tail.py                  dense layers at the end of a model, in NumPy
    routes/channels_to_dense.py           a convolution, pooling and a dense tail, in NumPy
    routes/channels_to_convolution.py     a convolution and the next one, in NumPy; then dense layers or the backend
    routes/channels.py                    a convolution in NumPy, then the backend from its outputs on
    routes/cut.py                         the backend, from the first touched layer on; open for every model

Where to add: a faster way to scores is a new `Route`; facts from other machines are a new `Facts`; another thing to
count is a `Term` (`arachne.data.split`). None of them changes who decides.
"""

from __future__ import annotations

from arachne.backend import ModelBackend
from arachne.errors import UsageError, did_you_mean
from arachne.evaluate.base import Evaluator
from arachne.evaluate.deciding import DecidingEvaluator
from arachne.evaluate.fast import FastEvaluator
from arachne.evaluate.fitness import UNIT, FitnessInputs, Outcome
from arachne.evaluate.judging.shared_facts import SharedFacts
from arachne.evaluate.plain import PlainEvaluator
from arachne.lazy import MEMORY
from arachne.suspects import Suspects

EVALUATORS = ("fast", "plain")


def make_evaluator(
    kind: str, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Suspects, *, memory: int = MEMORY
) -> Evaluator:
    """The evaluator of a kind: `fast`, or `plain` for the reference; both take the same decisions.

    Args:
        kind: `fast` or `plain`.
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        memory: What the fast one may keep between candidates, in bytes.
    """
    if kind == "plain":
        return PlainEvaluator(backend, fitness_inputs, suspects)
    if kind == "fast" and backend.elsewhere is not None:
        facts = SharedFacts(backend.elsewhere, fitness_inputs, suspects, memory)
        return DecidingEvaluator(backend, fitness_inputs, suspects, facts)
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
    "Outcome",
    "PlainEvaluator",
    "make_evaluator",
]
