"""A seeded sample of the mutations; `python -m tests.safety mutations` runs them all."""

from __future__ import annotations

import numpy as np
import pytest

from tests.safety.mutations import mutate
from tests.safety.part_mutations import one
from tests.safety.running import Servers
from tests.safety.seeds import SEEDS, Seed

MUTATED = [
    pytest.param(seed, id=seed.name, marks=pytest.mark.backend({"core": "onnx"}.get(seed.server, seed.server)))
    for seed in sorted(SEEDS, key=lambda seed: seed.server)
]


@pytest.mark.parametrize("seed", MUTATED)
def test_unchanged_file_is_read(seed: Seed, servers: Servers) -> None:
    outcome = one(servers, seed, -1, 0)
    assert (outcome.code, outcome.wrong()) == (0, []), outcome.err


@pytest.mark.parametrize("seed", MUTATED)
def test_mutated_file_is_an_error_or_a_normal_run(seed: Seed, servers: Servers) -> None:
    outcome = one(servers, seed, 0, 15)
    assert outcome.wrong() == [], outcome.err


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.backend("onnx")) for name in ("onnx", "npz", "patch in show")]
)
def test_mutated_file_is_refused_where_its_hash_is_expected(name: str, servers: Servers) -> None:
    seed = next(seed for seed in SEEDS if seed.name == name)
    assert one(servers, seed, -1, 0, expected=True).code == 0
    assert one(servers, seed, 0, 15, expected=True).wrong_for((3,)) == []


def test_mutation_always_changes_the_bytes_and_follows_its_seed() -> None:
    content = b"0123456789" * 5
    first, again = ([mutate(content, np.random.default_rng([7, n])) for n in range(200)] for _ in range(2))
    assert first == again
    assert content not in first
