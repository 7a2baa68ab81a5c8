"""A scan: the mistakes a model makes on labelled data, and their causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from arachne.causes import Cause, find_causes, try_causes
from arachne.data.confusions import Confusion, confusions, wildcards
from arachne.data.labelled import LabelledData
from arachne.data.split import checked_scores, with_model_names
from arachne.evidence.batch_dependence import BatchDependent, batch_dependent
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.plugins.drawing import TEXT, Drawable, draw
from arachne.tasks import decide


@dataclass(frozen=True, eq=False)
class Scan(Drawable):
    """The mistakes a model makes on some data.

    Attributes:
        data: The data.
        predictions: The predicted class of each input `(n,)`.
        n_classes: How many classes the model has.
        backend: The model; None if only its predictions are known.
        scores: Its scores `(n, classes)`, if they are known.
    """

    data: LabelledData
    predictions: Array
    n_classes: int
    backend: ModelBackend | None = None
    scores: Array | None = None

    @classmethod
    def of(cls, backend: ModelBackend, data: LabelledData) -> Self:
        """Run a model on labelled data, with the classes' names it may know itself."""
        labelled = with_model_names(backend, data)
        scores = checked_scores(backend, labelled)
        return cls(labelled, decide(scores), scores.shape[1], backend, scores)

    @property
    def accuracy(self) -> float:
        """Share of inputs classified correctly."""
        return float(np.mean(self.predictions == self.data.labels))

    @cached_property
    def faults(self) -> Sequence[Confusion]:
        """Every confusion of two classes, the most frequent first; `target` is what `repair` takes."""
        return confusions(self.data.labels, self.predictions, self.n_classes, self.data.class_names)

    @cached_property
    def wildcards(self) -> Sequence[Confusion]:
        """Targets of one class (`a:*`, `*:b`) with more mistakes than the most frequent confusion of two classes."""
        return wildcards(self.data.labels, self.predictions, self.n_classes, self.data.class_names)

    @cached_property
    def causes(self) -> Sequence[Cause]:
        """The causes of the mistakes, each tried by experiment, that of most errors first; found on first access."""
        found = find_causes(self.backend, self.data, self.predictions)
        return found if self.backend is None else try_causes(found, self.backend)

    @cached_property
    def batch_dependent(self) -> BatchDependent | None:
        """Inputs whose class depends on how many are run at once; None if the model or its scores are not known."""
        if self.backend is None or self.scores is None:
            return None
        return batch_dependent(self.backend, self.data, self.scores)

    def __str__(self) -> str:
        """The causes and the faults as plain text."""
        return draw(self, TEXT)
