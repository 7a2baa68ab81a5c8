"""Detection: a decision for each anchor that stands for an object, or that is or could become a false alarm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from arachne.decisions.decisions import Array, Decisions
from arachne.errors import DataError, ModelError, UsageError, did_you_mean
from arachne.plugins.options import option
from arachne.tasks.base import Task, as_numbers
from arachne.tasks.detection.boxes import ANCHOR, BACKGROUND, BOX, CLASS, COLUMNS
from arachne.tasks.detection.candidates import add_candidates, keep_decisions
from arachne.tasks.detection.layout import BOX_VALUES, Layout, find_layout
from arachne.tasks.detection.measures import detect, tabulate_detections
from arachne.tasks.detection.sources import find_sources
from arachne.tasks.figures import Figures
from arachne.tasks.multilabel import parse_threshold

DEFAULT_THRESHOLD = 0.25
"""The probability from which on a box is shown, as Ultralytics has it."""


FORMS = ("xywh", "xyxy", "yxyx")
"""The values of a box: centre and size, or two corners."""


@dataclass(frozen=True, kw_only=True)
class Detection(Task):
    """Boxes of a detector: outputs `(n, 4 + classes, anchors)` as of YOLOv8 to v12, or `(n, anchors, 5 + classes)`.

    Boxes and scores that are given apart, as of SSD and RT-DETR, are joined by the backend: output `boxes,scores`.

    Labels are boxes, `(n, most, COLUMNS)`. A decision is about an anchor that stands for an object, or for none but
    scores near the threshold, and one more is about all other anchors of a picture. It is between background and all
    classes. `false:CLASS` and `missed:CLASS` are targets.
    Only weights that change no box are repaired.
    """

    name = "detection"
    NOUN = "anchor"
    SPARED = "boxes"
    TABULATES = True

    threshold: tuple[str, ...] = option(
        (), "Probability from which a box counts: 0.25 for all, or person=0.3,dog=0.5.", metavar="VALUE"
    )
    boxes: str | None = option(None, "The values of a box: xywh, xyxy or yxyx; guessed from their values if left out.")
    layout: Layout | None = field(default=None, repr=False)
    """Where outputs hold what, once the model is known."""

    object_names: tuple[str, ...] = field(default=(), repr=False)
    """The names of the classes of objects, once the model is known."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for word in self.threshold:
            parse_threshold(word)
        if self.boxes not in (None, *FORMS):
            raise UsageError(f"boxes are {', '.join(FORMS)}, got '{self.boxes}'")

    def resolve(self, outputs: Array, names: Sequence[str] | None) -> Self:
        layout = self.layout or find_layout(outputs, None if names is None else len(names), self.boxes)
        found = tuple(map(str, range(layout.n_objects(outputs)))) if names is None else tuple(names)
        for name, _ in map(parse_threshold, self.threshold):
            if name and name not in found:
                raise UsageError(f"a threshold is for '{name}', which is no class" + did_you_mean(name, found))
        return replace(self, layout=layout, object_names=found)

    @property
    def known_layout(self) -> Layout:
        """The layout.

        Raises:
            ModelError: Nobody has looked at the model's outputs yet.
        """
        if self.layout is None:
            raise ModelError("the layout of the detector's outputs is not known yet; call `resolve` first")
        return self.layout

    @property
    def limits(self) -> Array:
        """The probability from which a box counts, one for each class of objects."""
        given = dict(map(parse_threshold, self.threshold))
        usual = given.get("", DEFAULT_THRESHOLD)
        return np.array([given.get(name, usual) for name in self.object_names] or [usual])

    def prepare_labels(self, labels: Array, outputs: Array, inputs: Any) -> Array:
        fresh = ~labels[..., ANCHOR].any(axis=1)
        if not fresh.any():
            return labels
        found = np.array(labels, np.float64)
        if self.known_layout.in_pixels:
            height, width = picture_sides(inputs)
            found[fresh, :, BOX] *= (width, height, width, height)
        return add_candidates(self.known_layout, outputs, found, self.limits)

    def label_as_decided(self, outputs: Array) -> Array:
        return keep_decisions(self.known_layout, outputs, self.limits)

    def read(self, outputs: Array, labels: Array) -> Decisions:
        sources = find_sources(self.known_layout, outputs, labels)
        logits = self.known_layout.class_logits(outputs, sources.inputs, sources.anchors)
        limits = np.log(self.limits / (1 - self.limits)).astype(logits.dtype)
        own = sources.collect(logits) - limits
        background = np.zeros((len(own), 1), logits.dtype)
        return Decisions(np.concatenate([background, own], axis=1), sources.labels, sources.owners)

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        sources = find_sources(self.known_layout, outputs, labels)
        spread = sources.spread(gradient[:, 1:])
        return self.known_layout.pull_back(spread, outputs, sources.inputs, sources.anchors)

    def check(self, outputs: Array, labels: Array) -> None:
        if labels.ndim != 3 or labels.shape[2] != COLUMNS:
            raise DataError(
                f"expected boxes as labels, (inputs, boxes, {COLUMNS}), got labels of shape {labels.shape}; boxes come "
                "from a folder with 'images' and 'labels', or from a COCO file"
            )
        objects = self.n_names(outputs)
        kinds = np.where(labels[..., ANCHOR] == 0, labels[..., CLASS], 0)
        outside = np.argwhere((kinds < 0) | (kinds > objects))
        if len(outside):
            row = int(outside[0][0])
            number = int(labels[tuple(outside[0])][CLASS])
            raise DataError(f"row {row} has a box of class {number}, but the model has the classes 1 to {objects}")
        if not kinds.any() and not labels[..., ANCHOR].any():
            raise DataError("no picture has a labelled box, so no object can be found or lost")

    def n_classes(self, outputs: Array) -> int:
        return self.n_names(outputs) + 1

    def n_names(self, outputs: Array) -> int:
        return self.known_layout.n_objects(outputs)

    def name_classes(self, names: Sequence[str] | None, n_names: int) -> tuple[str, ...]:
        return (BACKGROUND, *(map(str, range(n_names)) if names is None else names))

    def absent_classes(self, n_classes: int) -> Mapping[int, int]:
        return dict.fromkeys(range(1, n_classes), 0)

    def convert_labels(self, values: Any, names: Sequence[str] | None, inputs: Any = None) -> Array:
        return as_numbers(values, None).astype(np.float64)

    def spared_outputs(self, outputs: Array) -> Array:
        spared = np.zeros(outputs.shape[1:], bool)
        self.known_layout.by_anchor(spared[None])[..., :BOX_VALUES] = True
        return spared

    def frame(self, outputs: Array, labels: Array, decisions: Array, inputs: Any) -> Array | None:
        sources = find_sources(self.known_layout, outputs, labels)
        of_anchor = np.full(len(sources.owners), -1)
        alone = sources.classes < 0
        of_anchor[sources.decisions[alone]] = np.flatnonzero(alone)
        known = of_anchor[decisions] >= 0
        chosen = of_anchor[decisions[known]]
        found = np.full((len(decisions), BOX_VALUES), np.nan)
        found[known] = self.known_layout.boxes(outputs)[sources.inputs[chosen], sources.anchors[chosen]]
        if self.known_layout.in_pixels:
            height, width = picture_sides(inputs)
            found /= (width, height, width, height)
        return found

    def tabulate(self, before: Array, after: Array, labels: Array) -> Figures | None:
        old, new = (detect(self.known_layout, outputs, labels) for outputs in (before, after))
        return tabulate_detections(self.object_names, old, new, self.limits)


def picture_sides(inputs: Any) -> tuple[int, int]:
    """Return height and width of pictures, whose channels come first or last.

    Raises:
        DataError: The inputs are no pictures, or several arrays.
    """
    shape = () if isinstance(inputs, Mapping) else tuple(inputs.shape)
    if len(shape) != 4:
        raise DataError(f"a detector's boxes are in pixels, so its inputs should be pictures, got inputs of {shape}")
    first = shape[1] in (1, 3, 4) and shape[3] not in (1, 3, 4)
    return (shape[2], shape[3]) if first or shape[1] < shape[3] else (shape[1], shape[2])
