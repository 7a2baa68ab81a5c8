"""Which route candidates take: the fastest that gives the plain evaluator's scores up to rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne.dtypes import round_to
from arachne.errors import ModelError
from arachne.evaluate.judging.error_band import ErrorBand, differences
from arachne.evaluate.judging.reference_scores import ENOUGH, ReferenceScores
from arachne.evaluate.plain import PlainEvaluator
from arachne.evaluate.routes.base import Route
from arachne.evaluate.routes.channels import find_channels
from arachne.evaluate.routes.channels_to_convolution import find_channels_to_convolution
from arachne.evaluate.routes.channels_to_dense import find_channels_to_dense
from arachne.evaluate.routes.cut import CutRoute
from arachne.evaluate.routes.dense_tail import DenseRoute
from arachne.evaluate.routes.grouped_cuts import GroupedCuts
from arachne.evaluate.routes.tail_layers import find_tail
from arachne.suspects import Suspects
from arachne.values import Array

PROBES = 2
"""How many candidates routes and cut are compared with the plain evaluator on, before they are relied on."""

MOST_PROBES = 8
"""The same where there are few inputs."""

TIMED = 2
"""How many candidates show which of several routes is fastest."""


def choose_route(
    plain: PlainEvaluator, cuts: GroupedCuts, reference: ReferenceScores, original: Array, memory: int
) -> tuple[Route, ErrorBand]:
    """The route, and the band learnt from comparing it; `reference` is proved with the same candidates.

    Args:
        plain: The plain evaluator.
        cuts: The model, held open.
        reference: The plain evaluator's scores.
        original: Those of the original model, `(n, classes)`.
        memory: What a route may keep, in bytes.
    """
    rng = np.random.default_rng(0)
    wanted = int(np.clip(-(-ENOUGH // original.size), PROBES, MOST_PROBES))
    probes = [plain.suspects.values, *(_probe(plain.suspects, rng) for _ in range(wanted))]
    expected = [original, *map(reference.prove, probes[1:])]
    for route in _routes(plain, cuts, original, memory):
        with np.errstate(all="ignore"):
            band = _compared(route, probes, expected, plain.fitness_inputs.labels)
        if band.usable:
            return route, band
    raise ModelError(
        "expected a model that gives the same scores each time, got other ones; repair it in evaluation mode"
    )


def _compared(route: Route, probes: list[Array], expected: list[Array], labels: Array) -> ErrorBand:
    """The band learnt from a route's differences from the expected scores; the first probe is the original."""
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
    """All routes that are open, the fastest first."""
    backend, fitness_inputs, suspects = plain.backend, plain.fitness_inputs, plain.suspects
    tail = find_tail(backend, suspects)
    if tail is not None:
        route = DenseRoute.of(backend, fitness_inputs, tail, memory // 2)
        if route is not None and route.classes == original.shape[1]:
            yield route
    to_dense = find_channels_to_dense(backend, fitness_inputs, suspects, memory)
    if to_dense is not None and to_dense.classes == original.shape[1]:
        yield to_dense
    channels = find_channels(plain, cuts, original, memory)
    to_convolution = None if channels is None else find_channels_to_convolution(plain, cuts, original, channels, memory)
    whole = CutRoute(plain, cuts, original)
    # All lead to the same decisions. Which is fastest depends on how much of the work lies behind the convolution.
    routes = [route for route in (to_convolution, channels, whole) if route is not None]
    if len(routes) > 1:
        some = np.stack([_probe(suspects, np.random.default_rng(number)) for number in range(TIMED)])
        routes.sort(key=lambda route: route.seconds(some))
    yield from routes


def _probe(suspects: Suspects, rng: np.random.Generator) -> Array:
    """A random candidate around the original values."""
    drawn = suspects.values + suspects.deviations * rng.standard_normal(len(suspects))
    for place in suspects.places:
        drawn[place.numbers] = round_to(drawn[place.numbers], suspects.dtypes[place.numbers.start])
    return np.asarray(drawn, np.float64)
