"""A scan: the mistakes a model makes on labelled data, and their causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from arachne.causes import Cause, find_causes, try_causes
from arachne.data.confusions import Confusion, confusions, wildcards
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.run import RunModel, run_part, with_model_names
from arachne.data.targets import parse_targets
from arachne.evidence.batch_dependence import BatchDependent, batch_dependent
from arachne.evidence.forecast import Forecast, forecast
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.plugins.drawing import TEXT, Drawable, draw
from arachne.tasks import SINGLE_LABEL, Task


@dataclass(frozen=True, eq=False)
class Scan(Drawable):
    """The mistakes a model makes on some data.

    Attributes:
        data: The data.
        predictions: The predicted class of each input `(n,)`.
        n_classes: How many classes the model has.
        backend: The model; None if only its predictions are known.
        scores: Its scores `(n, classes)`, if they are known.
        labels: The true class of each decision `(m,)`, where that is not the data's label; predictions
            are `(m,)` then.
        class_names: The names of all classes that decisions are between; the data's when None.
        task: Reads the model's outputs.
    """

    data: LabelledData
    predictions: Array
    n_classes: int
    backend: ModelBackend | None = None
    scores: Array | None = None
    labels: Array | None = None
    class_names: tuple[str, ...] | None = None
    task: Task = SINGLE_LABEL

    @classmethod
    def of(
        cls, backend: ModelBackend, data: LabelledData, task: Task | None = None, run: RunModel | None = None
    ) -> Self:
        """Run a model on labelled data, with the classes' names it may know itself.

        Args:
            backend: The model.
            data: The data.
            task: Reads the model's outputs; None decides it by the outputs and labels.
            run: Runs the model; `backend.forward` when None.
        """
        return cls.of_part(run_part(backend, with_model_names(backend, data), run, task), backend)

    @classmethod
    def of_part(cls, part: Part, backend: ModelBackend | None = None) -> Self:
        """Return the scan of a part of the data; without the model, causes are found by the inputs alone."""
        if part.task.SINGLE:
            scores = None if backend is None else part.scores
            return cls(part.data, part.predictions, part.n_classes, backend, scores)
        return cls(
            part.data,
            part.prediction_classes,
            len(part.class_names),
            backend,
            labels=part.label_classes,
            class_names=part.class_names,
            task=part.task,
        )

    @property
    def headline(self) -> str:
        """The accuracy, and the most frequent mistake."""
        first = f", most often {self.faults[0].target} ({self.faults[0].count:,})" if self.faults else ""
        wrong = sum(fault.count for fault in self.faults)
        return f"{wrong:,} of {len(self.predictions):,} wrong{first}"

    @property
    def true_classes(self) -> Array:
        """The true class of each decision `(m,)`."""
        return self.data.labels if self.labels is None else self.labels

    @property
    def accuracy(self) -> float:
        """Share of decisions that are right."""
        return float(np.mean(self.predictions == self.true_classes))

    @cached_property
    def faults(self) -> Sequence[Confusion]:
        """Every confusion of two classes, the most frequent first; `target` is what `repair` takes."""
        names = self.class_names or self.data.class_names
        return confusions(self.true_classes, self.predictions, self.n_classes, names, self.task)

    @cached_property
    def wildcards(self) -> Sequence[Confusion]:
        """Targets of one class (`a:*`, `*:b`) with more mistakes than the most frequent confusion of two classes."""
        if not self.task.SINGLE and self.task.absent_classes(self.n_classes):
            return ()
        if self.faults and ":" not in self.faults[0].target:
            return ()
        names = self.class_names or self.data.class_names
        return wildcards(self.true_classes, self.predictions, self.n_classes, names)

    @cached_property
    def causes(self) -> Sequence[Cause]:
        """The causes of the mistakes, each tried by experiment, that of most errors first; found on first access.

        Experiments read a model's outputs as class scores, so one raw output has none.
        """
        if self.task.no_causes is not None:
            return ()
        found = find_causes(self.backend, self.data, self.predictions)
        return try_causes(found, self.backend) if self.backend is not None and self.task.SINGLE else found

    @cached_property
    def forecast(self) -> Forecast | None:
        """The share of the most frequent confusion that a repair may reach; None if nothing can be said."""
        if self.backend is None or self.scores is None or not self.faults:
            return None
        part = Part(self.data, np.arange(len(self.data)), self.scores, ())
        target = parse_targets(self.faults[0].target, self.data, part.predictions, part.n_classes, part.labels)
        return forecast(self.backend, replace(part, targets=target))

    @cached_property
    def batch_dependent(self) -> BatchDependent | None:
        """Inputs whose class depends on how many are run at once; None if the model or its scores are not known."""
        if self.backend is None or self.scores is None:
            return None
        return batch_dependent(self.backend, self.data, self.scores)

    def __str__(self) -> str:
        """The causes and the faults as plain text."""
        return draw(self, TEXT)
