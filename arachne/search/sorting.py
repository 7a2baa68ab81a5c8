"""What pymoo does of the front search: NSGA-II makes one generation out of another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.population import Population
from pymoo.core.problem import Problem as PymooProblem
from pymoo.core.termination import NoTermination

from arachne.values import Array


def next_generation(
    members: Array,
    goals: Array,
    limits: Array,
    evaluate: Callable[[Array], Array],
    *,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """The survivors of a population and its offspring, and their goals.

    Everything comes from the arguments, so that a search that was stored goes on as if nothing had happened.

    Args:
        members: The population, `(n, k)`.
        goals: What is to become small, `(n, goals)`.
        limits: How far from zero each value may lie, `(k,)`.
        evaluate: The goals of other candidates.
        rng: Where all randomness comes from.
    """
    algorithm = NSGA2(pop_size=len(members), output=None)
    problem = PymooProblem(n_var=members.shape[1], n_obj=goals.shape[1], xl=-limits, xu=limits)
    algorithm.setup(problem, termination=NoTermination())
    algorithm.random_state = rng
    algorithm.tell(infills=Population.new("X", members, "F", goals))
    offspring = algorithm.ask()
    offspring.set("F", evaluate(offspring.get("X")))
    algorithm.tell(infills=offspring)
    return np.array(algorithm.pop.get("X")), np.array(algorithm.pop.get("F"))
