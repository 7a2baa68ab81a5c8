"""Does the fast evaluator ever take another decision than the plain one? Thousands of small, nasty cases.

    python -m benchmarks.exactness                        three minutes on the reference backend
    python -m benchmarks.exactness --backend torch --minutes 1
    python -m benchmarks.exactness --seed 1234 --cases 1  one case again

A case is a random network, inputs, suspects and a population that is bred for a few generations: from differences as a
search does, by steps of a few roundings, by swapping and repeating members, by numbers near the end of float32. Inputs
may be repeated, whole numbers or zeros, and weights whole numbers, so that scores and totals tie. Every decision is
compared with the plain evaluator's, and so are the bounds every decision rests on, which fail long before it does.
The share `used` is how far out the worst candidate lay between its bounds, 100 % being on one of them.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Inputs, take
from arachne.scoring.evaluators import FastEvaluator, FitnessInputs, PlainEvaluator
from arachne.testing import (
    Network,
    ReferenceBackend,
    branches,
    convnet,
    mlp,
    random_inputs,
    residual,
    shared_layer,
    two_inputs,
)
from arachne.weights.selection import Selection
from tests.unit.evaluating import Lying, Plainest, Rounding, Silent, some_suspects

Build = Callable[[Network], ModelBackend]

REFERENCE: tuple[Build, ...] = (*8 * (ReferenceBackend,), Silent, Plainest, Lying, Rounding)

STEPS = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3, 0.1, 1.0)
HUGE = (1e4, 1e12, 1e20, 1e30, 1e37, 3e38, np.inf)


@dataclass
class Findings:
    """Counts of what the cases showed."""

    cases: int = 0
    decisions: int = 0
    disagreements: int = 0
    bounds: int = 0
    outside: int = 0
    used: float = 0.0
    plainly: int = 0
    routes: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """One line."""
        routes = ", ".join(f"{name} {n}" for name, n in self.routes.most_common())
        return (
            f"{self.cases} cases ({routes}), {self.decisions} decisions, {self.disagreements} disagreements; "
            f"{self.bounds} bounds, {self.outside} of them wrong, {self.used:.0%} used at most; "
            f"{self.plainly / max(1, self.decisions):.0%} decided plainly"
        )


def check(seed: int, builds: Sequence[Build], findings: Findings) -> None:
    """One case."""
    rng = np.random.default_rng(seed)
    plain, fast = evaluators(rng, builds)
    before = findings.disagreements + findings.outside
    with np.errstate(all="ignore"):
        breed(rng, plain, fast, findings)
    findings.cases += 1
    findings.plainly += fast.source.plain_evaluations
    findings.routes[fast.source.route.name] += 1
    if findings.disagreements + findings.outside > before:
        findings.failed.append(f"seed {seed}: {type(plain.backend).__name__}, {fast.source.route.name}")


def breed(rng: np.random.Generator, plain: PlainEvaluator, fast: FastEvaluator, findings: Findings) -> None:
    """A population over some generations, every decision and every bound compared."""
    members = first_population(rng, plain.suspects)
    totals = plain.evaluate(members).sum(axis=1)
    limits = fast.compare_with_parents(members, members, None).sum(axis=1)
    compare_bounds(fast, members, totals, findings)
    for _ in range(int(rng.integers(2, 6))):
        trials = round_to_stored(plain.suspects, bred(rng, members, plain.suspects))
        expected = plain.evaluate(trials).sum(axis=1)
        found = fast.compare_with_parents(trials, members, limits).sum(axis=1)
        wins = expected <= totals
        findings.decisions += len(trials)
        findings.disagreements += int(((found <= limits) != wins).sum())
        compare_bounds(fast, trials, expected, findings)
        members = np.where(wins[:, None], trials, members)
        totals, limits = np.where(wins, expected, totals), np.where(wins, found, limits)
        best = int(np.argmin(totals))
        findings.disagreements += int(limits.min() != totals[best] or int(np.argmin(limits)) != best)


def compare_bounds(fast: FastEvaluator, trials: Array, expected: Array, findings: Findings) -> None:
    """The bounds of whole candidates must enclose what the plain evaluator says."""
    found = fast.source.bounds(trials, None)
    findings.bounds += len(trials)
    findings.outside += int(((expected < found.low) | (expected > found.high)).sum())
    # Where an input lies in the band, one of the bounds is met by nature.
    sure = np.isfinite(found.slack) & (found.high - found.low > 1000)
    used = np.abs(expected - found.deficits.sum(axis=1)) / np.maximum(1, (found.high - found.low) / 2)
    findings.used = max(findings.used, float(used[sure].max(initial=0.0)))


def evaluators(rng: np.random.Generator, builds: Sequence[Build]) -> tuple[PlainEvaluator, FastEvaluator]:
    """Both evaluators on a random network, inputs and suspects."""
    network, layers = random_network(rng)
    backend = builds[int(rng.integers(len(builds)))](network)
    coarsen(rng, backend)
    n = int(rng.choice([2, 7, 40, 150, 400, 700]))
    fitness_inputs = random_fitness_inputs(rng, backend, random_inputs(network, n, seed=int(rng.integers(1 << 30))), n)
    chosen = [layers[number] for number in sorted(rng.permutation(len(layers))[: rng.choice([1, 1, 1, 2, 3])])]
    suspects = some_suspects(backend, chosen, int(rng.integers(0, 9)), seed=int(rng.integers(1 << 30)))
    return PlainEvaluator(backend, fitness_inputs, suspects), FastEvaluator(backend, fitness_inputs, suspects)


def random_network(rng: np.random.Generator) -> tuple[Network, list[str]]:
    """A small network of some kind, and its layers."""
    seed = int(rng.integers(1 << 30))
    activation = str(rng.choice(["relu", "relu", "tanh", "sigmoid"]))
    kind = int(rng.integers(12))
    if kind < 5:
        sizes = [int(size) for size in rng.integers(2, 33, size=rng.integers(2, 5))]
        network = mlp(sizes, seed=seed, activation=activation)
    elif kind < 8:
        network = convnet(channels=int(rng.integers(1, 3)), side=6, seed=seed, activation=activation)
    else:
        network = (residual, branches, shared_layer, two_inputs)[kind - 8](seed=seed, activation=activation)
    return network, list(network.layers)


def coarsen(rng: np.random.Generator, backend: ModelBackend) -> None:
    """Make weights whole numbers, large or small, so that scores tie, cancel or saturate."""
    kind = int(rng.integers(6))
    for info in backend.layers:
        for parameter, values in backend.get_weights(info.name).items():
            if kind == 0:
                values = np.rint(2 * values / max(1e-6, float(np.abs(values).max(initial=0))))
            elif kind == 1:
                values = values * np.float32(10.0 ** rng.integers(-3, 3))
            else:
                continue
            backend.set_weights(info.name, parameter, values.astype(np.float32))


def random_fitness_inputs(rng: np.random.Generator, backend: ModelBackend, inputs: Inputs, n: int) -> FitnessInputs:
    """Inputs of which some are repeated, whole numbers or zeros, and labels of which some are wrong."""
    kind = int(rng.integers(6))
    if kind == 0:
        inputs = take(inputs, np.sort(rng.integers(max(1, n // 20), size=n)))
    elif kind < 3:
        blank = rng.random(n) < (0.5 if kind == 2 else 0)
        inputs = each(inputs, lambda array: np.rint(array) if kind == 1 else np.where(blank, 0, array.T).T)
    scores = backend.forward(inputs)
    labels = np.argmax(scores, axis=1)
    negative = rng.random(n) < rng.choice([0.02, 0.1, 0.5])
    negative[rng.integers(n)] = True
    labels[negative] = (labels[negative] + rng.integers(1, scores.shape[1], size=int(negative.sum()))) % scores.shape[1]
    terms = np.where(negative, rng.integers(1, 3, size=n), 0)
    weights = np.array([1.0, rng.choice([0.0, 1.0, 10.0, 1e4]), 0.37])[terms]
    return FitnessInputs.around(
        inputs, labels, weights, terms, ("positives", "target", "other"), ("positive", "negative", "negative")
    )


def each(inputs: Inputs, change: Callable[[Array], Array]) -> Inputs:
    """The inputs with every array changed."""
    if isinstance(inputs, Mapping):
        return {name: change(array).astype(np.float32) for name, array in inputs.items()}
    return change(inputs).astype(np.float32)


def first_population(rng: np.random.Generator, suspects: Selection) -> Array:
    """Candidates around the original values, from no distance at all to the layers' Gaussians."""
    noise = rng.standard_normal((int(rng.integers(4, 13)), len(suspects)))
    step = float(rng.choice(STEPS))
    near = suspects.values * (1 + step * noise) if rng.random() < 0.5 else suspects.values + suspects.deviations * noise
    return round_to_stored(suspects, near)


def bred(rng: np.random.Generator, members: Array, suspects: Selection) -> Array:
    """Trials, one for every member."""
    n, k = members.shape
    kind = int(rng.integers(6))
    others = members[rng.integers(n, size=(3, n))]
    if kind == 0:
        return members * (1 + float(rng.choice(STEPS[:6])) * rng.standard_normal((n, k)))
    if kind == 1:
        return members[rng.permutation(n)]
    if kind == 2:
        trials = members.copy()
        trials[np.arange(n), rng.integers(k, size=n)] = rng.choice([-1, 1], size=n) * float(rng.choice(HUGE))
        return trials
    trials = others[0] + rng.uniform(0.5, 1) * (others[1] - others[2])
    return np.where(rng.random((n, k)) < 0.7, trials, members)


def round_to_stored(suspects: Selection, values: Array) -> Array:
    """As the model would store them; no candidate is no number."""
    rounded = values.astype(np.float32).astype(np.float64)
    return np.where(np.isnan(rounded), suspects.values, rounded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["reference", "torch", "onnx", "keras"], default="reference")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    builds = REFERENCE
    if args.backend != "reference":
        builds = (importlib.import_module(f"arachne_{args.backend}.conformance").build,)
    findings, start = Findings(), time.perf_counter()
    while findings.cases < args.cases and time.perf_counter() - start < 60 * args.minutes:
        check(args.seed + findings.cases, builds, findings)
    print(findings)
    for line in findings.failed[:20]:
        print(f"    {line}")
    raise SystemExit(1 if findings.failed else 0)


if __name__ == "__main__":
    main()
