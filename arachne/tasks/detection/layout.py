"""Layout: where a detector's outputs hold boxes and class scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.decisions.decisions import Array
from arachne.errors import DataError, ModelError
from arachne.tasks.detection.boxes import corners

BOX_VALUES = 4

LARGEST_SHARE = 4.0
"""Boxes with larger values than this are in pixels."""

MOSTLY, NEAR_ONE = 0.99, 1e-3
"""The share of boxes that have to look like two corners; how far from 1 a sum of probabilities may be."""

HIGHEST, LOWEST = 1 - 2.0**-23, 1e-30
"""The probabilities between which a logit is taken: a float32 sigmoid reaches 0 and 1."""


@dataclass(frozen=True)
class Layout:
    """How the outputs of a detector are laid out.

    Attributes:
        anchors_first: Whether outputs are `(n, anchors, values)`, as YOLOv5 and v7 export them, rather than
            `(n, values, anchors)`, as YOLOv8 to v12 do.
        objectness: Whether a fifth value says that there is an object at all; a class's probability is their product.
        logits: Whether class scores are logits rather than probabilities.
        in_pixels: Whether boxes are in pixels of the model's inputs rather than shares of them.
        form: The four values of a box: `xywh` (centre and size), `xyxy` or `yxyx` (two corners).
        background: Whether the value before the classes is the probability of background, as behind a softmax.
    """

    anchors_first: bool
    objectness: bool
    logits: bool
    in_pixels: bool = True
    form: str = "xywh"
    background: bool = False

    @property
    def first_class(self) -> int:
        """The position of the first class among an anchor's values."""
        return BOX_VALUES + (self.objectness or self.background)

    def by_anchor(self, outputs: Array) -> Array:
        """View outputs as `(n, anchors, values)`."""
        return outputs if self.anchors_first else outputs.swapaxes(1, 2)

    def n_objects(self, outputs: Array) -> int:
        """Return the number of classes of objects, background not counted."""
        return int(self.by_anchor(outputs).shape[2]) - self.first_class

    def boxes(self, outputs: Array) -> Array:
        """Return left, top, right and bottom of every anchor's box, `(n, anchors, 4)`."""
        found = self.by_anchor(outputs)[..., :BOX_VALUES]
        if self.form == "xywh":
            return corners(found)
        return found if self.form == "xyxy" else found[..., [1, 0, 3, 2]]

    def probabilities(self, outputs: Array) -> Array:
        """Return the probability of each class at every anchor, `(n, anchors, objects)`."""
        values = self.by_anchor(outputs)
        found: Array = values[..., self.first_class :]
        if self.logits:
            found = _sigmoid(found)
        if self.objectness:
            sure = values[..., BOX_VALUES, None]
            found = found * (_sigmoid(sure) if self.logits else sure)
        return found

    def highest_anchors(self, outputs: Array, open_to: Array) -> Array:
        """Return the anchor with the highest score for each class, `(n, objects)`.

        Args:
            outputs: Raw outputs, `(n, ...)`.
            open_to: Which anchors are compared for which class, bool `(n, anchors, objects)`; at least one for each.
        """
        if self.logits and not self.objectness:
            scores = self.by_anchor(outputs)[..., self.first_class :]
        else:
            scores = self.probabilities(outputs)
        return np.asarray(np.where(open_to, scores, -np.inf).argmax(axis=1))

    def class_logits(self, outputs: Array, inputs: Array, anchors: Array) -> Array:
        """Return the logit of each class's probability at some anchors of some inputs, both `(m,)`: `(m, objects)`."""
        values = self.by_anchor(outputs)[inputs, anchors]
        if self.logits and not self.objectness:
            return values[:, self.first_class :]
        return _logit(self.probabilities(values[None] if self.anchors_first else values.T[None])[0])

    def pull_back(self, gradient: Array, outputs: Array, inputs: Array, anchors: Array) -> Array:
        """Carry d loss / d logits `(m, objects)`, of `class_logits`, back to d loss / d outputs."""
        found = np.zeros_like(outputs)
        values, first = self.by_anchor(outputs)[inputs, anchors], self.first_class
        back = np.zeros_like(values)
        if self.logits and not self.objectness:
            back[:, first:] = gradient
        else:
            start = BOX_VALUES if self.objectness else first
            back[:, start:] = self._through_probabilities(gradient, values[:, start:])
        np.add.at(self.by_anchor(found), (inputs, anchors), back)
        return found

    def _through_probabilities(self, gradient: Array, values: Array) -> Array:
        """Carry d loss / d logits of p back to the values p is made of: objectness (if there is one) and classes."""
        parts = _sigmoid(values) if self.logits else values
        classes = parts[:, 1:] if self.objectness else parts
        whole = classes * parts[:, :1] if self.objectness else classes
        inside = (whole >= LOWEST) & (whole <= HIGHEST)
        kept = np.clip(whole, LOWEST, HIGHEST)
        slope = np.where(inside, gradient / (kept * (1 - kept)), 0)  # d loss / d p
        back = slope
        if self.objectness:
            back = np.concatenate([(slope * classes).sum(axis=1, keepdims=True), slope * parts[:, :1]], axis=1)
        return back * parts * (1 - parts) if self.logits else back


def find_layout(outputs: Array, n_objects: int | None, form: str | None = None) -> Layout:
    """Tell the layout of a detector's outputs from their shape and values.

    Args:
        outputs: Of the original model.
        n_objects: How many classes of objects there are, if known.
        form: The form of boxes, if known.

    Raises:
        ModelError: No known layout.
    """
    if outputs.ndim != 3 or min(outputs.shape[1:]) <= BOX_VALUES:
        raise ModelError(
            "expected a detector's outputs (n, 4 + classes, anchors) or (n, anchors, 5 + classes), got outputs of "
            f"shape {outputs.shape}; choose the output before non-maximum suppression, or two outputs, boxes and "
            "scores",
            argument="output",
        )
    anchors_first = _has_anchors_first(outputs.shape[1:], n_objects)
    values = outputs if anchors_first else outputs.swapaxes(1, 2)
    objectness = anchors_first if n_objects is None else values.shape[2] == BOX_VALUES + 1 + n_objects
    found = values[..., BOX_VALUES + objectness :]
    if n_objects is not None and found.shape[2] != n_objects:
        raise DataError(
            f"expected 4 + {n_objects} or 5 + {n_objects} values for each anchor, one for each class of the data, got "
            f"outputs of shape {outputs.shape}",
            argument="classes",
        )
    logits = bool(found.size) and bool((found.min() < 0) | (found.max() > 1))
    in_pixels = bool(outputs.size) and float(np.abs(values[..., :BOX_VALUES]).max()) > LARGEST_SHARE
    background = objectness and not logits and _sums_to_one(values[..., BOX_VALUES:])
    form = form or _find_form(values[..., :BOX_VALUES])
    return Layout(anchors_first, objectness and not background, logits, in_pixels, form, background)


def _sums_to_one(probabilities: Array) -> bool:
    """Tell whether background is one of the classes: all of them together are certain, at every anchor."""
    return bool(probabilities.size) and bool(np.abs(probabilities.sum(axis=-1) - 1).max() < NEAR_ONE)


def _find_form(boxes: Array) -> str:
    """Tell two corners from centre and size: the second corner is right of and below the first."""
    ordered = (boxes[..., 2] > boxes[..., 0]) & (boxes[..., 3] > boxes[..., 1])
    return "xyxy" if ordered.size and ordered.mean() >= MOSTLY else "xywh"


def _has_anchors_first(shape: tuple[int, ...], n_objects: int | None) -> bool:
    """Whether the first of two axes counts anchors: the other fits the classes, or is the shorter one."""
    if n_objects is not None:
        fits = [side in (BOX_VALUES + n_objects, BOX_VALUES + 1 + n_objects) for side in shape]
        if fits[0] != fits[1]:
            return fits[1]
    return shape[0] > shape[1]


def _sigmoid(logits: Array) -> Array:
    with np.errstate(over="ignore"):
        found: Array = 1 / (1 + np.exp(-logits))
    return found


def _logit(probabilities: Array) -> Array:
    kept = np.clip(probabilities, LOWEST, HIGHEST)
    found: Array = np.log(kept / (1 - kept)).astype(probabilities.dtype)
    return found
