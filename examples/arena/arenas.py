"""The arenas: for each its model, inputs, split, contenders and measures.

A cell is one contender in one arena with one seed: counts on inputs that no part of the repair has seen, at several
budgets, and the processor time. Every budget's patch is chosen without held-out inputs, as a user would get it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import arachne
from arachne.choose.budget import Budget
from arachne.choose.select import select_point
from arachne.errors import NothingWithinBudgetError
from examples.arena import networks
from examples.arena.networks import Array

SEEDS = 5
BUDGETS = (0.001, 0.002, 0.0041, 0.005, 0.01, 0.02)
"""Shares of right inputs that may break, for the curves."""

Cell = dict[str, Any]


@dataclass(frozen=True)
class Arena:
    """One arena.

    Attributes:
        title: Its heading on the page.
        contenders: Keywords of `arachne.repair` by the contender's name; `auto` is the default search.
        run: Measures one contender with one seed.
        seeds: How many seeds there are, or networks where each has its own.
    """

    title: str
    contenders: Mapping[str, Mapping[str, Any]]
    run: Callable[[int, Mapping[str, Any]], Cell]
    seeds: int = SEEDS


SIMPLE: Mapping[str, Mapping[str, Any]] = {
    "auto": {},
    "last-layer": {"searcher": "last-layer"},
    "bias": {"searcher": "bias"},
    "tune": {"searcher": "tune"},
}
PAPER: Mapping[str, Mapping[str, Any]] = {"the paper's search": {"faithful": True}}


def repair(
    model: Any, data: Any, target: str, changes: Mapping[str, Any], *, max_break: float, **more: Any
) -> tuple[Any, float]:
    """Repair, and return the result and the processor seconds; also where nothing keeps the budget.

    The paper's search knows no budget and hands back one patch.
    """
    budget = {} if changes.get("faithful") else {"max_break": max_break}
    start = time.process_time()
    try:
        found = arachne.repair(model, data, target, **{**more, **budget, **changes})
    except NothingWithinBudgetError as error:
        found = error.result
    return found, time.process_time() - start


def points_at(found: Any, count: Callable[[Array], Cell]) -> list[Cell]:
    """Return the counts of the patches that each budget takes; where nothing keeps it, those of no change."""
    curve = []
    for budget in BUDGETS:
        index = select_point(found.points, Budget(budget), found.split.class_names).index if found.points else None
        held_out = found.split.held_out.right if index is None else found.points[index].held_out.right
        made_by = None if index is None else found.points[index].candidate.made_by
        curve.append({"budget": budget, "by": made_by, **count(held_out)})
    return curve


def right_after(found: Any) -> Array:
    """Return which held-out inputs are right after the repair; as before it where nothing keeps the budget."""
    held = found.split.held_out
    if found.choice is None:  # one patch without a choice: the paper's search
        return np.asarray(found.model.predict(held.data.inputs) == held.data.labels)
    right: Array = held.right if found.choice.index is None else found.points[found.choice.index].held_out.right
    return right


def lenet5(seed: int, changes: Mapping[str, Any]) -> Cell:
    """FixingStudy's LeNet5, every error; half of the MNIST test set is held out, drawn by the seed."""
    inputs, labels = networks.digits(), networks.arrays("mnist_test")["y"].astype(np.int64)
    model = networks.lenet5(networks.arrays("fixingstudy_lenet5"))
    order = np.random.default_rng(seed).permutation(len(labels))
    held, seen, changes = order[:5000], order[5000:], dict(changes)
    training = networks.training_digits() if changes.pop("with_training", False) else None
    found, seconds = repair(
        model,
        (inputs[seen], labels[seen]),
        "*:*",
        changes,
        holdout=(inputs[held], labels[held]),
        training=training,
        seed=seed,
        max_break=0.0041,
    )
    before = found.split.held_out.right

    def count(right: Array) -> Cell:
        return {"repaired": int((right & ~before).sum()), "broken": int((before & ~right).sum())}

    whole = {"negatives": int((~before).sum()), "inputs": len(before)}
    own = found.evidence.held_out
    chosen = {"repaired": own.repaired, "broken": own.broken}
    return {**whole, "chosen": chosen, "curve": points_at(found, count), "seconds": seconds}


def badnets(seed: int, changes: Mapping[str, Any]) -> Cell:
    """NNrepair's poisoned CNN: 5,000 test pictures with and without the trigger to repair, the others held out."""
    clean, labels = 255 * networks.digits(), networks.arrays("mnist_test")["y"].astype(np.int64)
    model = networks.nnrepair_cnn(networks.arrays("nnrepair_mnist_poisoned"))
    poisoned = clean.copy()
    poisoned[:, 0, 24:26, 24:26] = 255
    order = np.random.default_rng(seed).permutation(len(labels))
    seen, held = order[:2000], order[5000:]

    def pair(rows: Array) -> tuple[Array, Array]:
        return np.concatenate([clean[rows], poisoned[rows]]), np.concatenate([labels[rows], labels[rows]])

    found, seconds = repair(model, pair(seen), "*:7", changes, holdout=pair(held), seed=seed, max_break=0.005)
    before, n = found.split.held_out.right, len(held)
    stamped = found.split.held_out.rows >= n

    def count(right: Array) -> Cell:
        return {"poisoned": int(right[stamped].sum()), "clean": int(right[~stamped].sum())}

    own = right_after(found)
    whole = {"inputs": n, "before": count(before)}
    return {**whole, "chosen": count(own), "curve": points_at(found, count), "seconds": seconds}


def fog(seed: int, changes: Mapping[str, Any]) -> Cell:
    """ERAN's 3x100 in fog: the first 100 foggy pictures as APRNN has them, and 4,900 clean ones drawn by the seed."""
    clean, labels = networks.digits(), networks.arrays("mnist_test")["y"].astype(np.int64)
    foggy = networks.digits("mnist_fog")
    model = networks.eran_mlp(networks.arrays("eran_mnist_3_100"))
    order = 100 + np.random.default_rng(seed).permutation(len(labels) - 100)
    seen, held = order[:4900], order[4900:]
    data = np.concatenate([foggy[:100], clean[seen]]), np.concatenate([labels[:100], labels[seen]])
    test = np.concatenate([foggy[100:], clean[held]]), np.concatenate([labels[100:], labels[held]])
    weather = ["fog"] * 100 + ["clear"] * len(seen), ["fog"] * (len(labels) - 100) + ["clear"] * len(held)
    first, second = (
        arachne.LabelledData(*pair, columns={"weather": np.array(own)})
        for pair, own in zip((data, test), weather, strict=True)
    )
    found, seconds = repair(model, first, "group:weather=fog", changes, holdout=second, seed=seed, max_break=0.005)
    in_fog, before = found.split.held_out.data.columns["weather"] == "fog", found.split.held_out.right

    def count(right: Array) -> Cell:
        return {"fog": int(right[in_fog].sum()), "clear": int(right[~in_fog].sum())}

    own = right_after(found)
    whole = {"fog_inputs": int(in_fog.sum()), "clear_inputs": int((~in_fog).sum()), "before": count(before)}
    return {**whole, "chosen": count(own), "curve": points_at(found, count), "seconds": seconds}


ADULT = (123, 2837556887, 362233404, 839941478, 973920294)
"""The seeds of NeuFair's networks, which name its files."""

ADULT_CHANGES: Mapping[str, Any] = {
    "objective": "odds:sex",
    "max_break": 0.04,
    "task": "binary",
    "drop_overlap": True,
}


def adult(number: int, changes: Mapping[str, Any]) -> Cell:
    """NeuFair's Adult networks: their validation set to repair, their test set held out; groups are the sexes."""
    stored = networks.arrays(f"neufair_adult_{ADULT[number]}")
    model = networks.adult_mlp(stored)
    parts = [
        arachne.LabelledData(
            stored[f"data.x_{part}"],
            stored[f"data.y_{part}"],
            columns={"sex": np.where(stored[f"data.group_{part}"] > 0, "male", "female")},
        )
        for part in ("val", "test")
    ]
    found, seconds = repair(model, parts[0], "*:*", changes, holdout=parts[1], seed=number, **ADULT_CHANGES)
    held = found.split.held_out
    group = held.data.columns["sex"]

    def count(right: Array) -> Cell:
        labels = held.data.labels
        said = np.where(right, labels, 1 - labels)
        gaps = []
        for label in (0, 1):
            rates = [said[(group == one) & (labels == label)].mean() for one in np.unique(group)]
            gaps.append(float(abs(rates[0] - rates[1])))
        hits = int((said & labels).sum())
        return {"odds": max(gaps), "f1": 2 * hits / int(said.sum() + labels.sum()), "accuracy": float(right.mean())}

    before = held.right
    own = right_after(found)
    return {"inputs": len(before), "before": count(before), "chosen": count(own), "seconds": seconds}


ARENAS: Mapping[str, Arena] = {
    "lenet5": Arena(
        "FixingStudy: LeNet5, all errors",
        {
            **SIMPLE,
            "auto, with training data": {"with_training": True},
            "tune@anchored": {"searcher": "tune@anchored"},
            **PAPER,
        },
        lenet5,
    ),
    "badnets": Arena("NNrepair: a poisoned CNN", {**SIMPLE, **PAPER}, badnets),
    "fog": Arena("APRNN: fog", {**SIMPLE, **PAPER}, fog),
    "adult": Arena("NeuFair: Adult", SIMPLE, adult),
}
