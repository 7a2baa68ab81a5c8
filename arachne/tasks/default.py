"""The task of a model and data that nobody has named one for: a single label, or binary where that is unambiguous."""

from __future__ import annotations

import numpy as np

from arachne.decisions.decisions import Array
from arachne.errors import ModelError
from arachne.tasks.base import Task
from arachne.tasks.binary import Binary, is_one_number
from arachne.tasks.single_label import SINGLE_LABEL

_TASKS = {3: "detection if it is a detector, tokens if each token has a label", 4: "segmentation if each pixel has one"}
"""Tasks that outputs of so many axes may belong to."""


def default_task(outputs: Array, labels: Array) -> Task:
    """Return the task that raw outputs `(n, ...)` and labels `(n, ...)` leave no doubt about.

    Raises:
        ModelError: There is a doubt: the model gives something else than class scores.
    """
    if is_one_number(outputs):
        if labels.ndim == 1 and np.isin(labels, (0, 1)).all():
            return Binary()
        raise ModelError(
            "the model gives one number for each input, and the labels are not 0 and 1; name the task, such as "
            "regression with a tolerance",
            argument="task",
        )
    if outputs.ndim != 2:
        raise ModelError(
            f"expected class scores of shape (inputs, classes) from the model, got outputs of shape {outputs.shape}; "
            f"name the task that reads them, {_TASKS.get(outputs.ndim, 'or a model of your own')}",
            argument="task",
        )
    return SINGLE_LABEL
