"""Where a patch changes each layer of a model: single weights as dots, a change of a whole matrix as shades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from arachne.model.values import Array, LayerInfo
from arachne.patch import Patch
from arachne.report.patch_rows import change_of
from arachne.weights.edit import LowRankEdit

MOST_MARKS = 1000
MOST_SHADES = (16, 28)
"""The rows and columns of the coarse picture of a matrix, at most."""


def layer_maps(layers: Sequence[LayerInfo], patch: Patch | None) -> list[dict[str, Any]]:
    """Describe the layers, with what is drawn of the parameter that the patch changes."""
    entries = [] if patch is None else sorted(patch.entries, key=lambda entry: -abs(change_of(entry)))
    whole = {} if patch is None else {change.tensor.layer: change for change in patch.low_rank}
    drawn = []
    for info in layers:
        marks = [entry.address for entry in entries if entry.address.layer == info.name]
        edited = whole.get(info.name)
        main = next(iter(info.parameters), None)
        if edited is not None or marks:
            main = edited.tensor.parameter if edited is not None else marks[0].parameter
        drawn.append(
            {
                "name": info.name,
                "kind": info.kind,
                "size": sum(parameter.size for parameter in info.parameters.values()),
                "parameter": main,
                "shape": info.parameters[main].shape if main else (),
                "changed": len(marks) + (edited.weights if edited is not None else 0),
                "marks": [
                    (address.index[0], _column(address.index, info.parameters[address.parameter].shape))
                    for address in marks[:MOST_MARKS]
                    if address.parameter == main
                ],
                "shades": [] if edited is None else shades_of(edited.edit).round(3).tolist(),
                "followed_by": info.followed_by or (),
            }
        )
    return drawn


def shades_of(edit: LowRankEdit) -> Array:
    """Return the length of the change in each cell of a coarse grid over the matrix, as shares of the largest.

    The matrix itself is not computed: the squares of a cell add up to a product of two small matrices.
    """
    rows, columns = (_squares(side, most) for side, most in zip((edit.left, edit.right), MOST_SHADES, strict=True))
    lengths = np.sqrt(np.maximum(np.einsum("gab,hab->gh", rows, columns), 0.0))
    return np.asarray(lengths / (lengths.max() or 1.0))


def _squares(side: Array, most: int) -> Array:
    """Return the products of the vectors `(n, rank)` with each other in each of at most so many groups of rows."""
    groups = np.array_split(side.astype(np.float64), min(most, len(side)))
    return np.stack([group.T @ group for group in groups])


def _column(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Where a weight stands in its row when everything behind the first axis is laid out flat."""
    return int(np.ravel_multi_index(index[1:], shape[1:])) if len(shape) > 1 else 0
