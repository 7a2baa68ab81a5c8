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
from arachne.choose.budget import Budget
from arachne.data.labelled import LabelledData
from arachne.localise import Bidirectional, GradientLoss, RandomChoice
from arachne.model.backend import ModelBackend
from arachne.results.result import RepairResult
from arachne.search import DifferentialEvolution
from arachne.settings import Settings, make_localiser, make_searcher
from arachne.testing import Network, ReferenceBackend
from arachne.testing.networks import conv, dense
from arachne.testing.nodes import BatchNorm, Embedding, Flatten, MaxPool, Relu

FILE = Path(__file__).with_name("golden_patches.json")

QUICK: dict[str, Any] = {"population": 30, "generations": 25}

SHORT: dict[str, Any] = {"steps": 24, "folds": 2}


FEW_WEIGHTS = ("bias", "last-layer", "erase", "margin", "margin@hidden", "margin@fisher", "low-rank")
"""The default pool without members for other layers, and without those that change every weight."""


def search_with(name: str, **options: Any) -> Settings:
    """A repair with one searcher within 5 % of damage."""
    return Settings(searcher=make_searcher(name, **options), budget=Budget(max_break=0.05))


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
    "cnn-auto": ("cnn", "top:2", Settings(budget=Budget(max_break=0.05))),
    "words-auto": ("words", "top:2", Settings(budget=Budget(max_break=0.05))),
    "mlp-margin": ("mlp", "*:8", search_with("margin")),
    "mlp-margin-hidden": ("mlp", "*:8", search_with("margin@hidden", **SHORT)),
    "mlp-margin-fisher": ("mlp", "*:8", search_with("margin@fisher", **SHORT)),
    "mlp-margin-wide": ("mlp", "*:8", search_with("margin@wide", wide_weights=20, **SHORT)),
    "cnn-margin-conv": ("cnn", "top:2", search_with("margin@conv", **SHORT)),
    "words-margin-embeddings": ("words", "top:2", search_with("margin@embeddings", **SHORT)),
    "mlp-bias": ("mlp", "*:8", search_with("bias")),
    "mlp-last-layer": ("mlp", "*:8", search_with("last-layer")),
    "mlp-ridge": ("mlp", "*:8", search_with("ridge")),
    "mlp-rt": ("mlp", "*:8", search_with("rt")),
    "mlp-front": ("mlp", "*:8", search_with("front", population=8, generations=3)),
    "mlp-tune": (
        "mlp",
        "*:8",
        Settings(
            searcher=make_searcher("tune", steps=64, folds=2),
            localiser=make_localiser("gl", count=40),
            budget=Budget(max_break=0.05),
        ),
    ),
    "mlp-erase": ("mlp", "*:8", search_with("erase", strengths=16)),
    "mlp-gate": ("mlp", "top:1", search_with("gate")),
    "mlp-gates": ("mlp", "top:1", search_with("gates", **SHORT)),
    "mlp-low-rank": ("mlp", "*:8", search_with("low-rank", steps=64, folds=2)),
    "sick-norms": ("sick", "*:*", search_with("norms")),
    "mlp-rounds": (
        "mlp",
        "*:8",
        Settings(searcher=make_searcher("auto", members=FEW_WEIGHTS), budget=Budget(max_break=0.05), rounds=2, seed=4),
    ),
}
"""Name of a repair: its network, target and settings."""

DIFFERENT = {("torch", "cnn-margin-conv"), ("torch", "cnn-auto")}
"""Backend and repair whose patch is another than the reference backend's: convolutions round otherwise there."""


def digits() -> LabelledData:
    """scikit-learn's digits as pictures, `(1797, 1, 8, 8)`."""
    found = load_digits()
    return LabelledData((found.images / 16).astype(np.float32)[:, None], found.target.astype(np.int64))


def data_for(kind: str) -> LabelledData:
    """Digits as a network of this kind reads them: pictures, or for `words` 64 numbers from 0 to 16."""
    if kind != "words":
        return digits()
    found = load_digits()
    return LabelledData(found.data.astype(np.int64), found.target.astype(np.int64))


def network(kind: str) -> Network:
    """A network that knows digits; `mlp`, `cnn`, `words`, or `sick`, whose batch normalisations store nonsense."""
    data, rng = data_for(kind), np.random.default_rng(5)
    body = {
        "mlp": [Flatten("flat", "input"), dense("first", "flat", 64, 24, rng), Relu("act", "first")],
        "cnn": [
            conv("first", "input", 1, 6, (3, 3), rng),
            Relu("act", "first"),
            MaxPool("pool", "act", (2, 2)),
            Flatten("flat", "pool"),
        ],
        "words": [
            Embedding("table", "input", rng.standard_normal((17, 3)).astype(np.float32)),
            Flatten("flat", "table"),
        ],
        "sick": [
            conv("first", "input", 1, 6, (3, 3), rng),
            batch_norm("norm1", "first", 6),
            Relu("act1", "norm1"),
            conv("second", "act1", 6, 6, (3, 3), rng),
            batch_norm("norm2", "second", 6),
            Relu("act2", "norm2"),
            Flatten("flat", "act2"),
        ],
    }[kind]
    width = {"mlp": 24, "cnn": 54, "sick": 96, "words": 192}[kind]
    last = body[-1].name
    whole = Network({"input": np.asarray(data.inputs).shape[1:]}, (*body, dense("head", last, width, 10, rng)))
    backend = ReferenceBackend(whole)
    norms = [node for node in whole.nodes if isinstance(node, BatchNorm)]
    for node in norms:
        entering = backend.activations(data.inputs, node.name)[0].entering["scale"]
        node.mean[...], node.variance[...] = (one((0, 2, 3)).round(3) for one in (entering.mean, entering.var))
    features = backend.activations(data.inputs, "head")[0].entering["weight"].astype(np.float64)
    wanted = 10.0 * (np.arange(10) == data.labels[:, None])
    fitted = np.linalg.lstsq(np.hstack([features, np.ones((len(data), 1))]), wanted, rcond=None)[0].round(3)
    head = whole.layers["head"].parameters
    head["weight"][...] = fitted[:-1].T
    head["bias"][...] = fitted[-1]
    for node in norms:
        node.mean[...] += (-1.0) ** np.arange(len(node.mean)) * np.sqrt(node.variance)
        node.variance[...] *= np.geomspace(0.3, 2, len(node.variance))
    return whole


def batch_norm(name: str, source: str, channels: int) -> BatchNorm:
    """Build a batch normalisation with scales other than 1 and biases other than 0."""
    scale = np.linspace(0.5, 1.5, channels, dtype=np.float32)
    flat = np.zeros(channels, np.float32)
    return BatchNorm(name, source, scale, 0.2 * scale, flat, flat + 1)


def patch_of(case: str, build: Callable[[Network], ModelBackend]) -> list[list[Any]]:
    """Repair a network in some framework and list the weights that the patch changes, as `entries` does."""
    kind, target, settings = CASES[case]
    return entries(arachne.repair(build(network(kind)), data_for(kind), target, settings=settings))


def entries(result: RepairResult) -> list[list[Any]]:
    """Place, parameter, index and new value (exact bits) of every weight a repair changes; or the vectors of a matrix.

    A layer is given by its place in the order of execution: frameworks name layers differently.
    """
    order = [info.name for info in result.backend.layers]
    edit = result.search.candidate.edit
    if edit is not None:
        sides = {"left": edit.left, "right": edit.right}
        return [
            [order.index(edit.layer), edit.parameter, side, [float(value).hex() for value in vectors.ravel()]]
            for side, vectors in sides.items()
        ]
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
