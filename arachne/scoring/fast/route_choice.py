"""Choose the route of candidates: the fastest that returns the plain evaluator's scores up to rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne.errors import ModelError
from arachne.model.values import Array
from arachne.scoring.dense_layers import find_tail
from arachne.scoring.evaluator import PlainEvaluator
from arachne.scoring.fast.error_band import ErrorBand, differences
from arachne.scoring.fast.reference_scores import MIN_EQUAL_NUMBERS, ReferenceScores
from arachne.scoring.fast.routes.base import Route
from arachne.scoring.fast.routes.channels import find_channels
from arachne.scoring.fast.routes.channels_to_convolution import find_channels_to_convolution
from arachne.scoring.fast.routes.channels_to_dense import find_channels_to_dense
from arachne.scoring.fast.routes.cut import CutRoute
from arachne.scoring.fast.routes.dense_tail import DenseRoute
from arachne.scoring.fast.routes.grouped_cuts import GroupedCuts
from arachne.weights.selection import Selection

PROBES = 2
"""The number of candidates on which routes and cut are compared with the plain evaluator before they are used."""

MAX_PROBES = 8
"""The number of probes if there are few inputs."""

TIMED_CANDIDATES = 2
"""The number of candidates that time the routes."""


def choose_route(
    plain: PlainEvaluator, cuts: GroupedCuts, reference: ReferenceScores, original: Array, memory: int
) -> tuple[Route, ErrorBand]:
    """Return the route, and the band learnt from its comparison; `reference` is checked with the same candidates.

    Args:
        plain: The plain evaluator.
        cuts: Cuts of the model.
        reference: The plain evaluator's scores.
        original: The scores of the original model, `(n, classes)`.
        memory: The bytes that a route may keep.
    """
    rng = np.random.default_rng(0)
    wanted = int(np.clip(-(-MIN_EQUAL_NUMBERS // original.size), PROBES, MAX_PROBES))
    probes = [plain.suspects.values, *(_probe(plain.suspects, rng) for _ in range(wanted))]
    expected = [original, *map(reference.prove, probes[1:])]
    for route in _routes(plain, cuts, original, memory):
        with np.errstate(all="ignore"):
            band = _learn_band(route, probes, expected, plain.fitness_inputs.labels)
        if band.usable:
            return route, band
    raise ModelError(
        "expected a model that gives the same scores each time, got other ones; repair it in evaluation mode"
    )


def _learn_band(route: Route, probes: list[Array], expected: list[Array], labels: Array) -> ErrorBand:
    """Learn a band from a route's differences to the expected scores; the first probe is the original."""
    found = [route.scores(probe) for probe in probes]
    if route.worst_case:
        apart = [differences(scores, plain, labels) for (scores, _), plain in zip(found, expected, strict=True)]
        route.calibrate(np.max(apart, axis=0), expected[0])
        found = [route.scores(probe) for probe in probes]
    band = ErrorBand()
    for (scores, scale), plain in zip(found, expected, strict=True):
        band.learn(scores, scale, plain, labels)
    return band


def _routes(plain: PlainEvaluator, cuts: GroupedCuts, original: Array, memory: int) -> Iterator[Route]:
    """Yield all routes that support the model, the fastest first.

    Routes of touched channels earn their lines, by milliseconds per candidate in `benchmarks.evaluator --quick` on
    torch: before a dense tail 4.2 against the cut's 25.2 with a quarter of the inputs (FM convnet, middle convolution)
    and 4.3 against 22.6 (CIFAR); before a convolution 11.5 against 32.1 (FM convnet, first convolution). A third one,
    which let the backend continue from changed channels, did not: 1.95 times as fast as the cut at best (ResNet-18's
    last convolution), no faster in four of six rows.
    """
    backend, fitness_inputs, suspects = plain.backend, plain.fitness_inputs, plain.suspects
    tail = find_tail(backend, suspects)
    if tail is not None and len(tail[-1].weight) == original.shape[1]:  # one output stands for two classes
        route = DenseRoute.of(backend, fitness_inputs, tail, memory // 2)
        if route is not None:
            yield route
    to_dense = find_channels_to_dense(backend, fitness_inputs, suspects, memory)
    if to_dense is not None and to_dense.classes == original.shape[1]:
        yield to_dense
    channels = find_channels(plain, cuts, memory)
    to_convolution = None if channels is None else find_channels_to_convolution(plain, cuts, original, channels, memory)
    whole = CutRoute(plain, cuts, original)
    # All lead to the same decisions. Which is fastest depends on how much of the work lies behind the convolution.
    routes = [route for route in (to_convolution, whole) if route is not None]
    if len(routes) > 1:
        some = np.stack([_probe(suspects, np.random.default_rng(number)) for number in range(TIMED_CANDIDATES)])
        routes.sort(key=lambda route: route.seconds(some))
    yield from routes


def _probe(suspects: Selection, rng: np.random.Generator) -> Array:
    """Draw a random candidate around the original values."""
    return suspects.round(suspects.values + suspects.deviations * rng.standard_normal(len(suspects)))
