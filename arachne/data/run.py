"""Run the original model over data, once, and check its outputs: a `Part` with or without targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from arachne.data.chance import advice, compare_preprocessings
from arachne.data.classes import check_names
from arachne.data.keeping import label_kept
from arachne.data.labelled import LabelledData
from arachne.data.part import ActivationCache, Part
from arachne.data.targets import Target, parse_targets
from arachne.errors import DataError, ModelError, did_you_mean
from arachne.model.values import Array, Inputs
from arachne.tasks import SINGLE_LABEL, Task, default_task
from arachne.text import percent, pluralise

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

RunModel = Callable[[Inputs], tuple[Array, ActivationCache | None]]
"""Runs the original model: returns raw outputs `(n, ...)`, and the activations it cached."""

Causes = Callable[[str | Target | Sequence[str | Target], LabelledData, Array], Sequence[str | Target]]
"""Resolves `cause:` targets, from the targets, the data and the model's predictions."""


def never_break_part(
    backend: ModelBackend, data: LabelledData, *, run: RunModel | None = None, task: Task = SINGLE_LABEL
) -> Part:
    """Make the part of inputs that must not become wrong; this runs the original model over them.

    Raises:
        DataError: The model gets none of them right, so none can stay right.
    """
    part = run_part(backend, with_model_names(backend, data), run, task)
    if not len(part.positives):
        raise DataError(f"the model gets none of the {len(part)} never-break inputs right, so none can be kept right")
    return part


def whole_part(
    backend: ModelBackend,
    data: LabelledData,
    target: str | Target | Sequence[str | Target],
    *,
    causes: Causes | None = None,
    run: RunModel | None = None,
    task: Task | None = SINGLE_LABEL,
) -> Part:
    """Make one part of all of the data; this runs the original model over it."""
    part = run_part(backend, with_model_names(backend, data), run, task)
    if causes is not None and part.task.no_causes is None:
        target = causes(target, part.data, part.predictions)
    names = None if part.task.SINGLE else part.class_names
    found = parse_targets(
        target,
        part.data,
        part.prediction_classes,
        len(part.class_names),
        part.label_classes,
        class_names=names,
        task=part.task,
    )
    return replace(part, targets=found)


def run_part(
    backend: ModelBackend, data: LabelledData, run: RunModel | None = None, task: Task | None = SINGLE_LABEL
) -> Part:
    """Make a part of data without targets; this runs the original model over it, checked by `run_checked`."""
    outputs, cached, found = run_checked(backend, data, run, task)
    data = label_kept(data, outputs, found)
    labels = found.prepare_labels(data.labels, outputs, data.inputs)
    data = data if labels is data.labels else replace(data, labels=labels)
    return Part(data, np.arange(len(data)), outputs, (), cached if found.SINGLE else None, found)


def with_model_names(backend: ModelBackend, data: LabelledData) -> LabelledData:
    """Give the data the model's class names, unless the user gave some, and renumber labels by name if it has its own.

    Raises:
        DataError: The model does not have a class of the data.
    """
    if backend.class_names is None or not (data.class_names is None or data.names_assumed):
        return data
    names = tuple(backend.class_names)
    if data.class_names is None:
        return replace(data, class_names=names)
    for name in data.class_names:
        if name not in names:
            raise DataError(f"the model has no class '{name}'{did_you_mean(name, names)}")
    numbers = np.array([names.index(name) for name in data.class_names])
    return replace(data, labels=numbers[data.labels], class_names=names, names_assumed=False)


def run_checked(
    backend: ModelBackend, data: LabelledData, run: RunModel | None = None, task: Task | None = SINGLE_LABEL
) -> tuple[Array, ActivationCache | None, Task]:
    """Run the model, and check that its scores are numbers and that the labels fit its classes.

    Returns:
        The raw outputs, what was cached on the way, and the task that reads them: the default one where none is given.

    Raises:
        DataError: There are no inputs, a label has no class, or there is not one name for each class.
        ModelError: Scores are NaN.
    """
    if not len(data):
        raise DataError("the data has no inputs")
    outputs, cached = _run_model(backend, data, run)
    unknown = np.flatnonzero(np.isnan(outputs).reshape(len(outputs), -1).any(axis=1))
    if len(unknown):
        raise ModelError(
            f"the model's scores are not numbers (NaN) for {pluralise(len(unknown), 'input')}, first row {unknown[0]}"
        )
    given = data.labels if data.kept is None else data.labels[~data.kept]
    task = (default_task(outputs, given) if task is None else task).resolve(outputs, data.class_names)
    if task.SINGLE and backend.separate_outputs:
        raise ModelError(
            "the model ends in a sigmoid for each class, so it marks several classes at once, not one", argument="task"
        )
    n_names = task.n_names(outputs)
    if data.class_names is not None:
        check_names(data.class_names, n_names, assumed=data.names_assumed)
    if data.names_assumed and backend.class_names not in (None, data.class_names):
        raise DataError(
            "the model's class names are in another order than the data's; give them in order", argument="classes"
        )
    task.check(outputs, label_kept(data, outputs, task).labels)
    return outputs, cached, task


def run_outputs(backend: ModelBackend, data: LabelledData) -> Array:
    """Return the model's raw outputs `(n, ...)`; an input that does not fit is refused with preprocessings that would.

    Raises:
        DataError: The model does not take the inputs.
    """
    return _run_model(backend, data, None)[0]


def _run_model(backend: ModelBackend, data: LabelledData, run: RunModel | None) -> tuple[Array, ActivationCache | None]:
    try:
        return (backend.forward(data.inputs), None) if run is None else run(data.inputs)
    except DataError as error:
        if data.labels.ndim != 1:  # preprocessings are compared by one label for each input
            raise
        trials = compare_preprocessings(backend, data.inputs, data.labels, data.preprocessing)
        fit = any(not trial.text and trial.accuracy is not None for trial in trials)  # as they are
        if fit or trials[0].accuracy is None:  # the best comes first
            raise
        accuracy = percent(trials[0].accuracy)
        hint = f"{error}; the preprocessing '{trials[0].text}' makes them fit, with an accuracy of {accuracy}"
        message, table = advice(trials, hint)
        raise DataError(message, argument="preprocess", below=table) from error
