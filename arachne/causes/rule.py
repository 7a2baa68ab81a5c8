"""The contract of a rule, which tells from plain values whether an input has a cause."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from arachne.causes.cases import Cases
from arachne.data.labelled import LabelledData
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Inputs, count
from arachne.text import Brief


@dataclass(frozen=True)
class Rule(Brief, ABC):
    """Tells whether an input has a cause."""

    kind: ClassVar[str]

    def __call__(self, inputs: Inputs | LabelledData, backend: ModelBackend | None = None) -> Array:
        """Return which inputs have the cause, bool `(n,)`.

        Args:
            inputs: Inputs, or data with metadata columns for a rule about those.
            backend: The model, for a rule about its activations.
        """
        if isinstance(inputs, LabelledData):
            data = inputs
        else:
            data = LabelledData(inputs, np.zeros(count(inputs), dtype=np.int64))
        predictions = data.labels
        if backend is not None and self.asks_model:
            predictions = backend.predict(data.inputs)
        return self.match(Cases.of(data, predictions, backend))

    def match(self, cases: Cases) -> Array:
        """Return which cases have the cause, bool `(n,)`; lazy inputs are read in pieces."""
        return np.concatenate([self.holds(piece) for piece in cases.pieces()])

    @abstractmethod
    def holds(self, cases: Cases) -> Array:
        """Return which cases have the cause, bool `(n,)`."""

    @property
    def conditions(self) -> int:
        """How many conditions it has: of two rules that explain the same errors, the one with fewer is reported."""
        return 1

    @property
    def words(self) -> str | None:
        """The property of its inputs in words that follow "12 errors: "; None for rules of Arachne's own."""
        return None

    @property
    def asks_model(self) -> bool:
        """Whether it needs the model beside the inputs."""
        return False

    @property
    def asks_metadata(self) -> bool:
        """Whether it needs metadata columns beside the inputs."""
        return False

    def comparison_group(self, cases: Cases) -> Array | None:
        """Return the cases it is compared with, bool `(n,)`; None for all, by true class."""
        return None

    @property
    def least_odds(self) -> float:
        """The least odds ratio against other inputs of the same classes."""
        return 10.0

    @property
    def within_class(self) -> bool:
        """Whether it may be a cause even if all of its errors are of one true class."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Return the kind and the values of all fields."""
        return {"kind": self.kind, **{one.name: _plain(getattr(self, one.name)) for one in fields(self)}}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
