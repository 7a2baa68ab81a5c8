"""Networks and repairs whose patches are pinned in `golden_patches.json`.

Hidden weights are random, the last layer is a least-squares fit rounded to three decimals: the same numbers on every
machine, without a training run. After a change that is meant to change patches, write the file anew and say why:

    python -m tests.backends.golden
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import arachne
from arachne.backend import ModelBackend
from arachne.data.labelled import LabelledData
from arachne.localise import Bidirectional, GradientLoss, RandomChoice
from arachne.search import DifferentialEvolution
from arachne.search.budget import Budget
from arachne.settings import Settings
from arachne.testing import Network, ReferenceBackend
from arachne.testing.networks import conv, dense
from arachne.testing.nodes import Flatten, MaxPool, Relu

FILE = Path(__file__).with_name("golden_patches.json")

QUICK: dict[str, Any] = {"population": 30, "generations": 25}

CASES: dict[str, tuple[str, str, Settings]] = {
    "mlp-default": (
        "mlp",
        "top:1",
        Settings(localiser=Bidirectional(min_weights=5), searcher=DifferentialEvolution(**QUICK)),
    ),
    "mlp-faithful": ("mlp", "top:1", Settings.faithful(seed=3, searcher=DifferentialEvolution.faithful(**QUICK))),
    "mlp-many": (
        "mlp",
        "*:8",
        Settings(seed=1, alpha=2.0, localiser=GradientLoss(count=16), searcher=DifferentialEvolution(**QUICK)),
    ),
    "cnn-first": (
        "cnn",
        "top:1",
        Settings(seed=2, localiser=RandomChoice(count=6, include=("first",)), searcher=DifferentialEvolution(**QUICK)),
    ),
    "cnn-default": (
        "cnn",
        "top:2",
        Settings(localiser=Bidirectional(min_weights=5), searcher=DifferentialEvolution(**QUICK)),
    ),
    "mlp-auto": ("mlp", "*:8", Settings(budget=Budget(max_break=0.05))),
}
"""Name of a repair: its network, target and settings."""


def digits() -> LabelledData:
    """scikit-learn's digits as pictures, `(1797, 1, 8, 8)`."""
    found = load_digits()
    return LabelledData((found.images / 16).astype(np.float32)[:, None], found.target.astype(np.int64))


def network(kind: str) -> Network:
    """A network that knows digits; `mlp` or `cnn`."""
    data, rng = digits(), np.random.default_rng(5)
    body = {
        "mlp": [Flatten("flat", "input"), dense("first", "flat", 64, 24, rng), Relu("act", "first")],
        "cnn": [
            conv("first", "input", 1, 6, (3, 3), rng),
            Relu("act", "first"),
            MaxPool("pool", "act", (2, 2)),
            Flatten("flat", "pool"),
        ],
    }[kind]
    width = {"mlp": 24, "cnn": 54}[kind]
    last = body[-1].name
    whole = Network({"input": (1, 8, 8)}, (*body, dense("head", last, width, 10, rng)))
    backend = ReferenceBackend(whole)
    features = backend.activations(data.inputs, "head")[0].entering["weight"].astype(np.float64)
    wanted = 10.0 * (np.arange(10) == data.labels[:, None])
    fitted = np.linalg.lstsq(np.hstack([features, np.ones((len(data), 1))]), wanted, rcond=None)[0].round(3)
    head = whole.layers["head"].parameters
    head["weight"][...] = fitted[:-1].T
    head["bias"][...] = fitted[-1]
    return whole


def patch_of(case: str, build: Callable[[Network], ModelBackend]) -> list[list[Any]]:
    """Place, parameter, index and new value (exact bits) of every weight a repair changes.

    Layers are told by their place in the order of execution: frameworks name them differently.
    """
    kind, target, settings = CASES[case]
    backend = build(network(kind))
    result = arachne.repair(backend, digits(), target, settings=settings)
    order = [info.name for info in backend.layers]
    return [
        [order.index(address.layer), address.parameter, list(address.index), float(value).hex()]
        for address, value in zip(result.search.addresses, result.search.values.tolist(), strict=True)
    ]


def main() -> None:
    """Write the file anew, from the reference backend."""
    patches = {case: patch_of(case, ReferenceBackend) for case in CASES}
    FILE.write_text(json.dumps(patches, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
