"""One repair in one way, and what it did to both halves; whatever has several patches is read at many budgets."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import arachne
from arachne.choose.select import select_point
from arachne.data.targets import Target
from arachne.errors import NothingWithinBudgetError
from arachne.evidence import PartEvidence
from arachne.plugins.table import SEARCHERS
from arachne.scoring.outcome import Outcome
from arachne.search.measured import MeasuredCandidate
from arachne.settings import make_localiser, make_searcher
from examples.study.cases import open_network
from examples.study.data import scale_inputs, side_by_group, subject_data
from examples.study.poisoning import halves
from examples.study.subjects import SUBJECTS

FAITHFUL, GL, RS, DEFAULT = "faithful", "gl", "rs", "default"
PAPERS = {FAITHFUL: "bl", GL: "gl", RS: "rs"}
"""The paper's search after three ways of localising."""

BUDGETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15)
DEFAULT_BUDGET = 0.005

RUNGS = ("budget", "seen_repaired", "seen_broken", "repaired", "broken", "right", "class_a", "class_b", "weights")
"""The numbers of one rung: the first counts of the seen half, then those of the held-out one; weights changed."""

PARTS = ("bias", "last")
"""Members of the default search that are a question of their own: would so little have done the same?"""

TRAINED = ("apricot", "mode", "deepfault")
"""Rivals that train, and take training data."""

RIVALS = ("rt", "tune", *TRAINED)
OPTIONS: dict[str, dict[str, Any]] = {"apricot": {"reduced": 6, "reduced_epochs": 1, "epochs": 1}}
"""Where a rival's own settings take too long for two cores."""

TRAINING_INPUTS = 10000
"""How many training inputs the rivals that train are given, at most."""


def settings_of(way: str, backend: arachne.ModelBackend, *, seed: int, alpha: float) -> arachne.Settings:
    """How a way repairs, with this alpha if its search uses one.

    The paper's search and retraining look at dense layers alone where there are others, too.
    """
    common: dict[str, Any] = {"seed": seed, "drop_overlap": True}
    others = tuple(layer.name for layer in backend.layers if layer.kind != "dense")
    if way in PAPERS:
        localiser = make_localiser(PAPERS[way], faithful=True, exclude=others)
        return arachne.Settings.faithful(localiser=localiser, alpha=alpha, **common)
    common["budget"] = arachne.Budget(DEFAULT_BUDGET)
    if way == DEFAULT:
        return arachne.Settings(**common)
    if way == "rt":
        common["localiser"] = make_localiser("bl", exclude=others)
    searcher = make_searcher(way, **OPTIONS.get(way, {}))
    if searcher.uses_alpha:
        common["alpha"] = alpha
    return arachne.Settings(searcher=searcher, **common)


def run_repair(
    way: str,
    backend: arachne.ModelBackend,
    seen: arachne.LabelledData,
    held_out: arachne.LabelledData,
    target: str | Target,
    *,
    seed: int,
    alpha: float = 10.0,
    training: arachne.LabelledData | None = None,
) -> tuple[arachne.RepairResult, dict[str, Any]]:
    """A repair, and what is kept of it."""
    settings = settings_of(way, backend, seed=seed, alpha=alpha)
    more = {} if training is None else {"training": training}
    start = time.process_time()
    try:
        result = arachne.repair(backend, seen, target, holdout=held_out, settings=settings, **more)
        chosen = True
    except NothingWithinBudgetError as error:
        result, chosen = error.result, False
    seconds = round(time.process_time() - start, 2)
    return result, {**summarise_repair(result, chosen=chosen), "seconds": seconds}


def summarise_repair(result: arachne.RepairResult, *, chosen: bool = True) -> dict[str, Any]:
    """Summarise a repair: counts on both halves, the patch's fingerprint, and the choice at every budget."""
    evidence = result.evidence
    found: dict[str, Any] = {
        "target": ", ".join(map(str, result.split.targets)),
        "weights": len(result.patch) if chosen else 0,
        "localised": len(result.localisation.suspects),
        "generations": result.search.generations,
        "patch": fingerprint(result.patch) if chosen else None,
        "seen": side(evidence.seen, result.split.targets[0], kept=not chosen),
        "held_out": side(evidence.held_out, result.split.targets[0], kept=not chosen),
    }
    if len(result.points) > 1:
        found["ladder"] = ladder(result, result.points)
        for part in PARTS:
            maker = SEARCHERS.canonical(part)
            own = [point for point in result.points if point.candidate.made_by == maker]
            if own and any(point.candidate.made_by != maker for point in result.points):
                found[part] = ladder(result, own)
    return found


def side(told: PartEvidence, target: Target, *, kept: bool) -> dict[str, Any]:
    """Counts of one half; `kept` where nothing was chosen, so that the model is as it was."""
    pairs = {"right": (told.accuracy.before.count, told.accuracy.after.count)}
    pairs["errors"] = (told.target_errors_before, told.target_errors_after)
    for name, number in (("class_a", target.label), ("class_b", target.prediction)):
        if number is not None:
            own = told.classes[number]
            pairs[name] = (own.before.count, own.after.count)
    counts = {"inputs": told.inputs, "negatives": told.negatives, "positives": told.positives}
    changed = {"repaired": told.repaired, "broken": told.broken, "others_fixed": told.others_fixed}
    sizes = {
        f"{name}_inputs": told.classes[number].before.total
        for name, number in (("class_a", target.label), ("class_b", target.prediction))
        if number is not None
    }
    if kept:
        changed, pairs = dict.fromkeys(changed, 0), {name: (pair[0], pair[0]) for name, pair in pairs.items()}
    return {**counts, **changed, **sizes, **{name: list(pair) for name, pair in pairs.items()}}


def ladder(result: arachne.RepairResult, points: Sequence[MeasuredCandidate]) -> list[list[float | None]]:
    """Choose at every budget, `[budget, repaired, broken, ...]`: `RUNGS` names the numbers."""
    rows: list[list[float | None]] = []
    held_out, target = result.split.held_out, result.split.targets[0]
    for budget in BUDGETS:
        taken = select_point(points, arachne.Budget(budget), result.split.class_names).index
        if budget == DEFAULT_BUDGET and result.choice is not None and points is result.points:
            taken = result.choice.index
        point = None if taken is None else points[taken]
        right = np.isin(np.arange(len(held_out)), held_out.positives)
        if point is not None and point.held_out is not None:
            right = point.held_out.right
        classes = [
            None if number is None else int(right[held_out.data.labels == number].sum())
            for number in (target.label, target.prediction)
        ]
        counts = [*_counts(point and point.seen), *_counts(point and point.held_out)]
        rows.append([budget, *counts, int(right.sum()), *classes, 0 if point is None else point.weights])
    return rows


def _counts(standing: Outcome | None) -> tuple[int, int]:
    return (0, 0) if standing is None else (standing.repair.count, standing.breakage.count)


def fingerprint(patch: arachne.Patch) -> dict[str, Any]:
    """Which weights a patch changes, as a hash, and how far; the same in every framework but for rounding."""
    layers = {name: number for number, name in enumerate(dict.fromkeys(entry.address.layer for entry in patch.entries))}
    places = sorted(
        (layers[entry.address.layer], entry.address.parameter, entry.address.index) for entry in patch.entries
    )
    length = sum((entry.new - entry.old) ** 2 for entry in patch.entries) ** 0.5
    return {"places": hashlib.sha256(repr(places).encode()).hexdigest()[:12], "length": float(f"{length:.5g}")}


def open_subject(subject: str, seed: int) -> tuple[arachne.ModelBackend, arachne.LabelledData, arachne.LabelledData]:
    """A subject's network and the two halves of its test set; no person is in both."""
    backend, data = open_network(subject)
    if "person" in data.columns:
        rows = side_by_group(data.columns["person"], len(data), 0.5, np.random.default_rng(seed))
        return backend, data.take(rows[0]), data.take(rows[1])
    return backend, *halves(data, seed)


@lru_cache(maxsize=1)
def rank_confusions(subject: str, count: int = 30) -> tuple[str, ...]:
    """The most frequent confusions of a subject on its whole test set, as targets."""
    backend, data = open_network(subject)
    return tuple(f"{fault.label}:{fault.prediction}" for fault in arachne.scan(backend, data).faults[:count])


@lru_cache(maxsize=1)
def training_of(subject: str) -> arachne.LabelledData:
    """Some of what a subject was trained on, drawn at random."""
    data = subject_data(SUBJECTS[subject].data)
    rows = np.sort(np.random.default_rng(0).permutation(len(data.train_labels))[:TRAINING_INPUTS])
    return arachne.LabelledData(
        scale_inputs(data.train[rows]),
        data.train_labels[rows],
        class_names=data.class_names,
        source=f"{subject}, training",
    )
