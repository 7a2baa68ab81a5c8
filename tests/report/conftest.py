"""One small repair of a digit classifier with hostile names, shared by everything that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from arachne import engine
from arachne.choose.budget import Budget, Choice
from arachne.data.labelled import LabelledData
from arachne.results.result import RepairResult
from arachne.search import Candidate, DifferentialEvolution
from arachne.search.measured import measure_front, with_held_out
from arachne.settings import Settings
from arachne.testing import ReferenceBackend, mlp

NAMES: tuple[str, ...] = (
    "zero",
    "<script>window.hacked = 1</script>",
    "two",
    '"><img src=x onerror="window.hacked = 2">',
    "four",
)
NAMES += ("five & more", "six", "seven", "eight", "{{ 7 * 7 }}")


@pytest.fixture(scope="session")
def data() -> LabelledData:
    """897 digits, flat and 8 by 8; 60 eights look much like ones, and some ones are labelled as eights."""
    x, y = load_digits(return_X_y=True)
    x, y = x[900:].astype(np.float32) / 16, y[900:]
    eights = np.flatnonzero(y == 8)[:60]
    ones = np.flatnonzero(y == 1)[:60]
    x[eights] = 0.25 * x[eights] + 0.75 * x[ones]
    y[ones[::6]] = 8
    files = tuple(f"digits/<i>{row}</i>.png" for row in range(len(y)))
    light = np.where(np.arange(len(y)) % 3 == 0, "<b>dark</b>", "bright")
    return LabelledData(x, y, NAMES, files, {"light": light}, source="digits & more.npz")


@pytest.fixture(scope="session")
def backend() -> ReferenceBackend:
    x, y = load_digits(return_X_y=True)
    model = LogisticRegression(max_iter=300, C=0.05).fit(x[:900] / 16, y[:900])
    backend = ReferenceBackend(mlp([64, 10]))
    backend.set_weights("fc1", "weight", model.coef_.astype(np.float32))
    backend.set_weights("fc1", "bias", model.intercept_.astype(np.float32))
    return backend


@pytest.fixture(scope="session")
def settings() -> Settings:
    return Settings(seed=3, searcher=DifferentialEvolution(population=20, generations=12))


@pytest.fixture(scope="session")
def repaired(backend: ReferenceBackend, data: LabelledData, settings: Settings) -> RepairResult:
    return engine.repair(backend, data, "8:1", settings=settings)


@pytest.fixture(scope="session")
def with_front(repaired: RepairResult) -> RepairResult:
    """A repair as if the search had handed back a front: smaller changes, some of them by another searcher."""
    suspects = repaired.localisation.suspects
    step = repaired.search.values - suspects.values
    front = [
        Candidate(suspects, suspects.values + share * step, made_by=maker)
        for share, maker in ((0.2, "de"), (0.4, "<b>bias</b>"), (0.6, "de"), (0.8, "<b>bias</b>"), (1.0, "de"))
    ]
    split = repaired.split
    points = measure_front(repaired.backend, split, front, np.arange(0))
    points = with_held_out(repaired.backend, split, points)
    choice = Choice(len(front) - 1, Budget(0.02), "by hand", "it is the one that was found", (len(front) - 1,))
    return replace(repaired, points=points, choice=choice)


@pytest.fixture(scope="session")
def page_of() -> Callable[[RepairResult], dict[str, Any]]:
    def page_of(result: RepairResult) -> dict[str, Any]:
        return result.page("arachne repair digits.npz --target '8:<b>1</b>' --seed 3")

    return page_of


@pytest.fixture(scope="session")
def page(repaired: RepairResult, page_of: Callable[[RepairResult], dict[str, Any]]) -> dict[str, Any]:
    return page_of(repaired)


@pytest.fixture(scope="session")
def front_page(with_front: RepairResult, page_of: Callable[[RepairResult], dict[str, Any]]) -> dict[str, Any]:
    return page_of(with_front)
