"""Which route candidates take: the fastest that gives the plain evaluator's scores up to rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne.dtypes import round_to
from arachne.evaluate.band import Band, differences
from arachne.evaluate.convolution import find_channels
from arachne.evaluate.cuts import Cuts
from arachne.evaluate.cutting import CutRoute
from arachne.evaluate.dense import DenseRoute
from arachne.evaluate.onward import find_onward
from arachne.evaluate.plain import PlainEvaluator
from arachne.evaluate.pooled import find_pooled
from arachne.evaluate.routes import Route
from arachne.evaluate.tail import find_tail
from arachne.evaluate.truth import ENOUGH, Truth
from arachne.suspects import Suspects
from arachne.values import Array

PROBES = 2
"""Candidates on which routes and cut are compared with the plain evaluator before anything rests on them."""

MOST_PROBES = 8
"""So many are tried where there are few inputs."""

TIMED = 2
"""So many candidates show which of several routes is fastest."""


def choose_route(plain: PlainEvaluator, cuts: Cuts, truth: Truth, original: Array, memory: int) -> tuple[Route, Band]:
    """The route, and the band that was learnt on the way; `truth` is proved with the same candidates.

    Args:
        plain: The reference.
        cuts: The model, held open.
        truth: The plain evaluator's scores.
        original: Those of the original model, `(n, classes)`.
        memory: What a route may keep, in bytes.
    """
    rng = np.random.default_rng(0)
    wanted = int(np.clip(-(-ENOUGH // original.size), PROBES, MOST_PROBES))
    probes = [plain.suspects.values, *(_probe(plain.suspects, rng) for _ in range(wanted))]
    truths = [original, *map(truth.prove, probes[1:])]
    for route in _routes(plain, cuts, original, memory):
        with np.errstate(all="ignore"):
            band = _compared(route, probes, truths, plain.stake.labels)
        if band.usable:
            return route, band
    raise ValueError("the model gives other scores each time it is asked")


def _compared(route: Route, probes: list[Array], truths: list[Array], labels: Array) -> Band:
    """What a route's differences from the plain evaluator teach; the first probe is the original."""
    found = [route.scores(probe) for probe in probes]
    if route.worst_case:
        apart = [differences(scores, truth, labels) for (scores, _), truth in zip(found, truths, strict=True)]
        route.calibrate(np.max(apart, axis=0), truths[0])
        found = [route.scores(probe) for probe in probes]
    band = Band()
    for (scores, scale), truth in zip(found, truths, strict=True):
        band.learn(scores, scale, truth, labels)
    return band


def _routes(plain: PlainEvaluator, cuts: Cuts, original: Array, memory: int) -> Iterator[Route]:
    """All that are open, the fastest first."""
    backend, stake, suspects = plain.backend, plain.stake, plain.suspects
    links = find_tail(backend, suspects)
    if links is not None:
        route = DenseRoute.of(backend, stake, links, memory // 2)
        if route is not None and route.classes == original.shape[1]:
            yield route
    pooled = find_pooled(backend, stake, suspects, memory)
    if pooled is not None and pooled.classes == original.shape[1]:
        yield pooled
    channels = find_channels(plain, cuts, original, memory)
    onward = None if channels is None else find_onward(plain, cuts, original, channels, memory)
    whole = CutRoute(plain, cuts, original)
    # All take the same decisions. Which is fastest depends on how much of the work lies behind the convolution.
    ways = [route for route in (onward, channels, whole) if route is not None]
    if len(ways) > 1:
        some = np.stack([_probe(suspects, np.random.default_rng(number)) for number in range(TIMED)])
        ways.sort(key=lambda route: route.seconds(some))
    yield from ways


def _probe(suspects: Suspects, rng: np.random.Generator) -> Array:
    """A candidate around the original values."""
    drawn = suspects.values + suspects.deviations * rng.standard_normal(len(suspects))
    rounded = [round_to(value, dtype) for value, dtype in zip(drawn, suspects.dtypes, strict=True)]
    return np.array(rounded, np.float64)
