"""Refuse labels, targets and tasks that cannot fit before anything long begins, from the outputs of two inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.data.run import run_outputs, with_model_names
from arachne.data.targets import Target, as_target_list, parse_targets
from arachne.errors import DataError
from arachne.tasks import Task, default_task

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

N_INPUTS = 2
"""Inputs the model runs on: enough to tell the axis of inputs from the others."""

LATER = ("top:", "cause:")
"""Targets that need the model's outputs of all inputs."""


def check_first(
    backend: ModelBackend, data: LabelledData, target: str | Sequence[str], task: Task | None = None
) -> None:
    """Check all labels and the words of targets against the model's outputs, which are known by a few inputs.

    Args:
        backend: The model.
        data: The user's data.
        target: The faults to repair.
        task: Reads the outputs; None finds out which one does.

    Raises:
        DataError: The labels do not fit.
        ModelError: The outputs are of another shape than the task reads.
        UsageError: A target, a rule or a threshold names something that is not there.
    """
    data = with_model_names(backend, data)
    labels = data.labels if data.kept is None else data.labels[~data.kept]
    try:
        few = backend.forward(data.take(range(min(N_INPUTS, len(data)))).inputs)
    except DataError:
        few = run_outputs(backend, data)  # refuses them as well, with preprocessings measured on enough of them
    outputs = np.broadcast_to(few[:1], (len(labels), *few.shape[1:]))
    found = (default_task(outputs, labels) if task is None else task).resolve(few, data.class_names)
    found.check(outputs, labels)
    texts = [text for text in as_target_list(target) if isinstance(text, Target) or not text.startswith(LATER)]
    if texts:
        names = found.name_classes(data.class_names, found.n_names(outputs))
        nothing = np.zeros(0, np.int64)
        parse_targets(texts, data, nothing, len(names), nothing, class_names=names, task=found)
