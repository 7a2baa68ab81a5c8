"""One generation of NSGA-II, by pymoo, for the front search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.population import Population
from pymoo.core.problem import Problem as PymooProblem
from pymoo.core.termination import NoTermination

from arachne.model.values import Array


def next_generation(
    members: Array,
    goals: Array,
    limits: Array,
    evaluate: Callable[[Array], Array],
    *,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Breed offspring; return the survivors of population and offspring, and their goals.

    It depends on nothing but the arguments, so that a stored search continues exactly.

    Args:
        members: The population, `(n, k)`.
        goals: The values to minimise, `(n, goals)`.
        limits: The largest magnitude of each value, `(k,)`.
        evaluate: Computes the goals of other candidates.
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
