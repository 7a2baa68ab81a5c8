"""Where a model looks: which pixels speak for the wrong class and which for the true one, before and after a repair.

For an input of class c that is, or was, read as w, each pixel's part in the difference of the two scores is

    (pixel - its mean over the data) * d(score of w - score of c) / d(pixel)

summed over channels, the gradient being a mean over `COPIES` copies of the input with a little noise (SmoothGrad).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.data.layout import as_pictures, picture_layout
from arachne.data.lazy.memmap import gather
from arachne.errors import UsageError
from arachne.model.backend import LossGradient, ModelBackend
from arachne.model.values import Array, Inputs, by_name, map_arrays
from arachne.report.pictures import Shown, is_hidden, paint_map, picture_sample, show_pictures

if TYPE_CHECKING:
    from arachne.data.part import Part
    from arachne.evidence import PartEvidence
    from arachne.patch import Patch

MOST_FIXED, MOST_BROKEN = 8, 4
COPIES, NOISE = 8, 0.1
"""Noisy copies of each input, and their noise in deviations of the data's values."""

SAMPLE = 500
"""Inputs that means and deviations are taken from."""

COARSE = 32
"""Maps of larger pictures are means over squares, so that about so many lie along a side."""

STRONGEST = 99.5
"""The percentile of both maps of an input that is drawn in full colour."""


def saliency_objects(backend: ModelBackend, patch: Patch, part: Part, evidence: PartEvidence) -> list[dict[str, Any]]:
    """Some inputs that were fixed and some that broke, each with both maps; none where inputs are no pictures.

    Pictures that lie outside the folder of the data are left out: a map shows the picture below it.

    Args:
        backend: The model as it was; it keeps its weights.
        patch: The repair.
        part: The inputs.
        evidence: What the repair did to them.
    """
    view = _View.of(part.data.inputs)
    if view is None or not len(patch) or not part.task.SINGLE:
        return []
    fixed, damaged = evidence.fixed, evidence.damaged
    on_target = np.flatnonzero(fixed.on_target & _may_show(part, fixed.positions))[:MOST_FIXED]
    broken = np.flatnonzero(_may_show(part, damaged.positions))[:MOST_BROKEN]
    chosen = [
        ("fixed", fixed.positions[on_target], fixed.before[on_target]),
        ("broken", damaged.positions[broken], damaged.after[broken]),
    ]
    positions = np.concatenate([rows for _, rows, _ in chosen])
    if not len(positions):
        return []
    labels, wrong = part.labels[positions], np.concatenate([read_as for _, _, read_as in chosen])
    try:
        before = view.maps(backend, positions, labels, wrong)
        with patch.apply_temporarily(backend):
            after = view.maps(backend, positions, labels, wrong)
    except UsageError:  # the backend has no gradients by inputs, or inputs are whole numbers: there is nothing to show
        return []
    became = np.repeat([kind for kind, _, _ in chosen], [len(rows) for _, rows, _ in chosen])
    pictures = view.pictures(positions)
    shown = show_pictures(pictures, view.sample())
    return [
        {
            "row": int(part.rows[position]),
            "name": None if part.data.names is None else part.data.names[position],
            "label": part.data.class_name(int(labels[number])),
            "wrong": part.data.class_name(int(wrong[number])),
            "became": str(became[number]),
            "input": shown[number],
            **_draw_maps(pictures[number], before[number], after[number]),
        }
        for number, position in enumerate(positions.tolist())
    ]


def _may_show(part: Part, positions: Array) -> Array:
    """Which of some inputs may be drawn, `(n,)`."""
    return np.array([not is_hidden(part.data, int(position)) for position in positions], bool)


@dataclass(frozen=True, eq=False)
class _View:
    """The pictures among a model's inputs.

    Attributes:
        inputs: All inputs.
        name: The name of the array that holds the pictures.
        layout: How they become pictures.
        mean: The mean picture, in the inputs' shape.
        deviation: How far values lie apart.
    """

    inputs: Inputs
    name: str
    layout: tuple[int, ...]
    mean: Array
    deviation: float

    @classmethod
    def of(cls, inputs: Inputs) -> _View | None:
        """None where no input is a picture of real numbers."""
        arrays = by_name(inputs)
        if any(array.dtype.kind != "f" for array in arrays.values()):
            return None
        for name, array in arrays.items():
            sample = np.asarray(array[:: max(1, len(array) // SAMPLE)][:SAMPLE])
            layout = picture_layout(sample) if len(sample) else None
            if layout is not None:
                return cls(inputs, name, layout, sample.mean(axis=0, dtype=np.float64), float(sample.std()))
        return None

    @property
    def _array(self) -> Array:
        return by_name(self.inputs)[self.name]

    def pictures(self, positions: Array) -> Array:
        """Some of the pictures, `(n, height, width, channels)`."""
        return as_pictures(np.asarray(gather(self._array, positions)), self.layout)

    def sample(self) -> Array:
        """Pictures from all over the data, `(n, height, width, channels)`."""
        return as_pictures(picture_sample(self._array), self.layout)

    def maps(self, backend: ModelBackend, positions: Array, labels: Array, wrong: Array) -> Array:
        """How far each pixel favours the wrong class over the true one, `(n, height, width)`."""
        rng = np.random.default_rng(0)
        batch = map_arrays(lambda one: np.repeat(np.asarray(gather(one, positions)), COPIES, axis=0), self.inputs)
        mine = by_name(batch)[self.name]
        noisy = (mine + NOISE * self.deviation * rng.standard_normal(mine.shape)).astype(mine.dtype)
        loss = difference(np.repeat(wrong, COPIES), np.repeat(labels, COPIES))
        found = backend.input_gradients({**batch, self.name: noisy} if isinstance(batch, Mapping) else noisy, loss)
        parts = np.asarray(by_name(found)[self.name], np.float64) * (mine - self.mean)
        maps = as_pictures(parts, self.layout).sum(axis=-1)
        return np.asarray(maps.reshape(len(positions), COPIES, *maps.shape[1:]).mean(axis=1))


def difference(wrong: Array, labels: Array) -> LossGradient:
    """The score of one class minus that of another, `(n,)` each, summed over the inputs."""

    def loss(scores: Array, rows: slice) -> Array:
        gradient = np.zeros_like(scores)
        each = np.arange(len(scores))
        gradient[each, wrong[rows]] += 1
        gradient[each, labels[rows]] -= 1
        return gradient

    return loss


def _draw_maps(picture: Array, before: Array, after: Array) -> dict[str, Shown]:
    """Both maps of an input, coarse where it is large, in the same colours over the picture in grey."""
    side = max(1, -(-max(before.shape) // COARSE))
    maps = [_coarse(one, side) for one in (before, after)]
    strongest = float(np.percentile(np.abs(np.stack(maps)), STRONGEST)) or 1.0
    grey = picture.astype(np.float64).mean(axis=-1)
    grey = (grey - grey.min()) / (float(np.ptp(grey)) or 1.0)
    return {name: paint_map(one / strongest, grey) for name, one in zip(("before", "after"), maps, strict=True)}


def _coarse(values: Array, side: int) -> Array:
    """The mean over squares of this many pixels a side, in the shape it had."""
    if side == 1:
        return values
    height, width = values.shape
    padded = np.pad(values, ((0, -height % side), (0, -width % side)), mode="edge")
    means = padded.reshape(padded.shape[0] // side, side, -1, side).mean(axis=(1, 3))
    return np.asarray(np.kron(means, np.ones((side, side)))[:height, :width])
