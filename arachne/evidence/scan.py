"""The mistakes a model makes, before anybody repairs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arachne.backend import ModelBackend
from arachne.causes import Cause, find_causes
from arachne.data.confusions import Confusion, confusions, wildcards
from arachne.data.labelled import LabelledData
from arachne.evidence.batch_sizes import BatchDependent, batch_dependent
from arachne.values import Array


@dataclass(frozen=True, eq=False)
class Scan:
    """The mistakes a model makes on some data.

    Attributes:
        data: The data.
        predictions: What the model makes of it `(n,)`.
        n_classes: How many classes the model has.
        backend: The model; None where only its predictions are known.
        scores: Its scores `(n, classes)`, where they are known.
    """

    data: LabelledData
    predictions: Array
    n_classes: int
    backend: ModelBackend | None = None
    scores: Array | None = None

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
        """What the mistakes have in common, where that is more than the most frequent confusion of two classes."""
        return wildcards(self.data.labels, self.predictions, self.n_classes, self.data.class_names)

    @cached_property
    def causes(self) -> Sequence[Cause]:
        """What the mistakes share, the cause of most errors first; looked for when it is first asked for."""
        return find_causes(self.backend, self.data, self.predictions)

    @cached_property
    def batch_dependent(self) -> BatchDependent | None:
        """Inputs whose class depends on how many are run at once; None where the model or its scores are not known."""
        if self.backend is None or self.scores is None:
            return None
        return batch_dependent(self.backend, self.data, self.scores)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from arachne.report.notebook import scan_html

        return scan_html(self)

    def __str__(self) -> str:
        """The causes and the faults as plain text."""
        from arachne.report.terminal import ScanTable, as_text

        return as_text(ScanTable(self.faults, self.accuracy, len(self.data), self.wildcards, self.causes))
