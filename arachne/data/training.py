"""Check training inputs: they fit the model, and include no inputs that the repair is judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.data.run import with_model_names
from arachne.data.split import Split, overlap
from arachne.errors import DataError
from arachne.text import are, pluralise

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend


def check_training(
    backend: ModelBackend, training: LabelledData, split: Split, *, drop_overlap: bool = False
) -> LabelledData:
    """Return the training inputs after checking them against the model and the parts of the data.

    Args:
        backend: The model.
        training: Labelled inputs the model was trained on.
        split: The parts of the data; inputs held out or reserved for choosing must not be trained on.
        drop_overlap: Whether training inputs that are also there are dropped rather than refused.

    Raises:
        DataError: There are no inputs, other classes than the model's or the data's, or inputs that are held out.
    """
    if not len(training):
        raise DataError("the training data has no inputs")
    training = with_model_names(backend, training)
    names = split.seen.data.class_names
    if None not in (names, training.class_names) and names != training.class_names:
        raise DataError(
            f"the training data has other classes than the data, {_first_names(training.class_names)} instead of "
            f"{_first_names(names)}; give class names in the same order for both",
            argument="classes",
        )
    outside = np.flatnonzero((training.labels < 0) | (training.labels >= split.seen.n_classes))
    if len(outside):
        row = int(outside[0])
        raise DataError(
            f"row {row} of the training data has the label {training.labels[row]}, but the model has the classes 0 to "
            f"{split.seen.n_classes - 1}"
        )
    try:
        backend.forward(training.take([0]).inputs)
    except DataError as error:
        raise DataError(f"the training data does not fit the model: {error}") from error
    return _drop_shared(training, split, drop_overlap)


def _drop_shared(training: LabelledData, split: Split, drop_overlap: bool) -> LabelledData:
    """Return the training inputs that are neither held out nor reserved for choosing."""
    shared = np.union1d(*(overlap(part.data, training) for part in (split.held_out, split.choose)))
    if not len(shared):
        return training
    if not drop_overlap:
        raise DataError(
            f"{pluralise(len(shared), 'training input')} {are(len(shared))} also among those the repair is judged by "
            f"(first training row {shared[0]:g}); drop them, or give data the model was not trained on"
        )
    rest = np.setdiff1d(np.arange(len(training)), shared)
    if not len(rest):
        raise DataError("all training inputs are also among those the repair is judged by, so none is left to train on")
    return training.take(rest)


def _first_names(names: tuple[str, ...] | None) -> str:
    return ", ".join((names or ())[:5]) + (", …" if len(names or ()) > 5 else "")
