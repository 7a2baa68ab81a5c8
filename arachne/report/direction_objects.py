"""The directions of a low-rank patch for the page: what each reads, as a picture too, and which outputs it moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.data.layout import as_pictures, picture_layout
from arachne.evidence.connections import array_read_by, name_inputs
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, by_name
from arachne.report.direction_rows import Direction, Ends, directions_of
from arachne.report.pictures import Shown, paint_map, picture_sample

if TYPE_CHECKING:
    from arachne.patch import Patch


def direction_objects(
    backend: ModelBackend, patch: Patch, data: LabelledData, classes: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Describe the directions of each matrix that a patch changes.

    Args:
        backend: The model.
        patch: The patch.
        data: Some data, of which a few inputs are run.
        classes: The names of the classes that the model tells apart, which are the outputs of its last layer.
    """
    found = []
    for change in patch.low_rank:
        layer, directions = change.tensor.layer, directions_of(change)
        read = [position for one in directions for position, _ in one.largest_inputs]
        named = name_inputs(backend, layer, data, sorted(set(read)))
        is_last = layer == backend.layers[-1].name and change.tensor.shape[0] == len(classes)
        outputs = dict(enumerate(classes)) if is_last else {}
        sample = _pictures_read(backend, layer, data)
        found += [
            {
                "tensor": change.tensor.name,
                "number": one.number,
                "of": change.edit.rank,
                "size": one.size,
                "reads": _name_ends(one.largest_inputs, {**_own_names(one), **named}),
                "moves": _name_ends(one.largest_outputs, outputs),
                **({} if sample is None else {"picture": _draw(one.detector, sample)}),
            }
            for one in directions
        ]
    return found


def _own_names(direction: Direction) -> dict[int, str]:
    return {position: direction.input_name(position) for position, _ in direction.largest_inputs}


def _name_ends(ends: Ends, names: dict[int, str]) -> list[dict[str, Any]]:
    return [{"name": names.get(position, str(position)), "part": part} for position, part in ends]


def _pictures_read(backend: ModelBackend, layer: str, data: LabelledData) -> Array | None:
    """Return some of the pictures that a dense layer reads as they are; None if it reads something else."""
    info = backend.info(layer)
    name = array_read_by(backend, info, data) if info.kind == "dense" and len(data) else None
    return None if name is None else picture_sample(by_name(data.inputs)[name])


def _draw(detector: Array, sample: Array) -> Shown | None:
    """Draw what a direction reads over the mean picture; None where the layer's inputs are no pictures."""
    layout = picture_layout(sample)
    if layout is None:
        return None
    parts = as_pictures(detector.reshape(1, *sample.shape[1:]), layout)[0]
    strongest = np.take_along_axis(parts, np.abs(parts).argmax(axis=-1)[..., None], axis=-1)[..., 0]
    grey = as_pictures(sample, layout).astype(np.float64).mean(axis=(0, 3))
    grey = (grey - grey.min()) / (float(np.ptp(grey)) or 1.0)
    return paint_map(strongest / (float(np.abs(strongest).max()) or 1.0), grey)
