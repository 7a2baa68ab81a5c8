"""The fast evaluator: the plain one's decisions, hundreds of times faster.

It decides (`deciding`) from facts worked out in this process (`judging.local_facts`).

Why the bounds hold
    They follow from a route's scores and the error band (`judging.bounds`): an input whose margin lies outside the band
    is right or wrong for certain; one inside it adds nothing to the lower bound and the deficit of a wrong input to the
    upper one; losses are widened by the band. This rests on two things: the plain evaluator is deterministic, and no
    score of the route is further off than the band. The band is learnt from whole passes over the inputs
    (`judging.error_band`). Every further exact evaluation checks it: a difference beyond the band widens it and puts
    all earlier bounds out of use.

Where the time goes
    Exact facts are asked about one candidate in a hundred, and where a cut gives the same bits it replaces the full
    pass (`judging.reference_scores`). Bounds are NumPy on what the candidates touch, or the backend's cut (`routes`).
"""

from __future__ import annotations

from arachne.backend import ModelBackend
from arachne.evaluate.deciding import DecidingEvaluator
from arachne.evaluate.fitness import FitnessInputs
from arachne.evaluate.judging.local_facts import LocalFacts
from arachne.lazy import MEMORY
from arachne.suspects import Suspects


class FastEvaluator(DecidingEvaluator):
    """Decides from the facts of this process.

    Args:
        backend: The model.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        memory: Budget for what is kept between candidates, in bytes.
    """

    def __init__(
        self, backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Suspects, *, memory: int = MEMORY
    ) -> None:
        self.facts = LocalFacts(backend, fitness_inputs, suspects, memory)
        super().__init__(backend, fitness_inputs, suspects, self.facts)
