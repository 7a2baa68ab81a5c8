"""A searcher: a random change of the best patch so far is kept when it is better."""

from dataclasses import dataclass

from arachne import Candidate, Generation, Searcher, SearchState, option


@dataclass(frozen=True, kw_only=True)
class HillClimbing(Searcher):
    """Keeps a random change of the best patch so far when it is better."""

    name = "hill"

    tries: int = option(200, "How many changes to try.", least=1)
    reach: float = option(0.3, "Size of a change, in deviations of the layer.", least=0)

    def begin(self, problem, *, rng):
        values = problem.suspects.values
        deficits = problem.evaluator.evaluate(values[None])[0]
        return self._state(problem, values, deficits, ())

    def step(self, problem, state, *, rng):
        values, deficits = state.arrays["values"], state.arrays["deficits"]
        change = self.reach * problem.suspects.deviations * rng.standard_normal(len(values))
        trial = problem.round_to_storage(values + change)
        cost = problem.evaluator.evaluate(trial[None])[0]
        if cost.sum() < deficits.sum():
            values, deficits = trial, cost
        return self._state(problem, values, deficits, state.history)

    def result(self, problem, state):
        found = Candidate(problem.suspects, state.arrays["values"], state.arrays["deficits"])
        return problem.result(state, found)

    @property
    def most_generations(self):
        return self.tries

    def _state(self, problem, values, deficits, history):
        number = len(history)
        outcome = problem.evaluator.outcome(values)
        at = Generation(number, problem.fitness(deficits), outcome.repaired, outcome.broken, number + 1, 0)
        stopped = "all tries are used up" if number == self.tries else None
        return SearchState({"values": values, "deficits": deficits}, {}, (*history, at), stopped)
