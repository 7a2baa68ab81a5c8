"""Localisation for the page: the suspects one by one, all other weights as counts on a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.model.values import Array, batches

if TYPE_CHECKING:
    from arachne.localise.base import Localisation

CELLS = (64, 44)
"""Columns and rows of the grid that all weights are counted on, however large the model is."""

BLOCK = 1 << 20
"""Weights looked at together, so that a large layer needs little memory beside its scores."""

_SCORES = ("gradient_loss", "forward_impact")


def localisation_object(found: Localisation) -> dict[str, Any]:
    """Describe the suspects by their scores, and all weights by how many have which."""
    scores = [found.score(address) for address in found.suspects.addresses] if found.scores else []
    points = np.array(scores).reshape(-1, 2)
    return {
        "method": found.method,
        "candidates": found.n_candidates,
        "weights": len(found.suspects),
        "front": found.front,
        "suspects": [
            {"address": str(address), "gradient_loss": loss, "forward_impact": impact, "on_front": bool(front)}
            for address, (loss, impact), front in zip(
                found.suspects.addresses if scores else (), scores, _not_dominated(points), strict=True
            )
        ],
        "cloud": _cloud(found) if found.scores else None,
    }


def _not_dominated(points: Array) -> Array:
    """Which suspects no other suspect dominates. That is the first front, because all of it is among the suspects."""
    at_least: Array = np.all(points[None] >= points[:, None], axis=2)
    above: Array = np.any(points[None] > points[:, None], axis=2)
    return np.asarray(~np.any(at_least & above, axis=1))


def _cloud(found: Localisation) -> dict[str, Any]:
    """How many weights have which scores: counts on a grid over eight decades below the largest, zeros in cell 0."""
    tops = [max(float(np.max(getattr(part, name), initial=0)) for part in found.scores) for name in _SCORES]
    highs = [np.log10(top) if top > 0 else 0.0 for top in tops]
    decades = 8
    counts = np.zeros((CELLS[0], CELLS[1]), dtype=np.int64)
    for part in found.scores:
        losses, impacts = part.gradient_loss.ravel(), part.forward_impact.ravel()
        for block in batches(len(part), BLOCK):
            column = _cell(losses[block], highs[0], decades, CELLS[0])
            row = _cell(impacts[block], highs[1], decades, CELLS[1])
            counts += np.bincount(column * CELLS[1] + row, minlength=counts.size).reshape(counts.shape)
    columns, rows = np.nonzero(counts)
    return {
        "high": highs,
        "decades": decades,
        "cells": CELLS,
        "counts": np.stack([columns, rows, counts[columns, rows]], axis=1),
    }


def _cell(scores: Array, high: float, decades: float, cells: int) -> Array:
    logs = np.full(scores.shape, -np.inf)
    np.log10(scores, out=logs, where=scores > 0)
    share = np.maximum((logs - (high - decades)) / decades, 0)
    numbers = np.clip(np.floor(share * (cells - 1)) + 1, 1, cells - 1).astype(np.int64)
    return np.asarray(numbers * (scores > 0))
