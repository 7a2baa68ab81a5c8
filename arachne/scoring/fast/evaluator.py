"""FastEvaluator: the plain evaluator's decisions, hundreds of times faster.

It decides (`decide`) from bounds and exact deficits computed in this process (`local`).

Why the bounds hold
    They follow from a route's scores and the error band (`bounds`): an input whose margin lies outside the band is
    right or wrong for certain; one inside it adds nothing to the lower bound and the deficit of a wrong input to the
    upper one; losses are widened by the band. This rests on two assumptions: the plain evaluator is deterministic, and
    no score of the route is further off than the band. The band is learnt from whole passes over the inputs
    (`error_band`). Every further exact evaluation checks it: a difference beyond the band widens it and invalidates all
    earlier bounds.

Where the time goes
    One candidate in a hundred needs exact deficits, and if a cut returns the same bits it replaces the full pass
    (`reference_scores`). Bounds are computed in NumPy from the touched weights, or by the backend's cut (`routes`).
"""

from __future__ import annotations

from arachne.model.backend import ModelBackend
from arachne.model.lazy import MEMORY
from arachne.scoring.fast.decide import DecidingEvaluator
from arachne.scoring.fast.local import LocalDeficits
from arachne.scoring.fitness import FitnessInputs
from arachne.weights.selection import Selection


class FastEvaluator(DecidingEvaluator):
    """Decides from bounds and exact deficits computed in this process.

    Args:
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        memory: The bytes that may be kept between candidates.
    """

    def __init__(
        self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Selection, *, memory: int = MEMORY
    ) -> None:
        self.source = LocalDeficits(backend, fitness_inputs, suspects, memory)
        super().__init__(backend, fitness_inputs, suspects, self.source)
