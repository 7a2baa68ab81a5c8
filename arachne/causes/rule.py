"""The contract of a rule: which inputs have a cause, told by kind and numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from arachne.backend import ModelBackend
from arachne.causes.cases import Cases
from arachne.data.labelled import LabelledData
from arachne.values import Array, Inputs, count


@dataclass(frozen=True)
class Rule(ABC):
    """Whether an input has a cause."""

    kind: ClassVar[str]

    def __call__(self, inputs: Inputs | LabelledData, backend: ModelBackend | None = None) -> Array:
        """Which inputs belong, bool `(n,)`.

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
        return self.among(Cases.of(data, predictions, backend))

    def among(self, cases: Cases) -> Array:
        """Which cases belong, bool `(n,)`, by `holds`; lazy inputs are looked at piece by piece."""
        return np.concatenate([self.holds(piece) for piece in cases.pieces()])

    @abstractmethod
    def holds(self, cases: Cases) -> Array:
        """Which cases belong, bool `(n,)`."""

    @property
    @abstractmethod
    def conditions(self) -> int:
        """How many things it asks for: of two rules that explain the same, the one that asks for less is told."""

    @property
    def words(self) -> str | None:
        """What an input that belongs is like, to go on after "12 errors: "; None for rules of Arachne's own."""
        return None

    @property
    def asks_model(self) -> bool:
        """Whether it needs the model beside the inputs."""
        return False

    def compared(self, cases: Cases) -> Array | None:
        """Which cases it is compared with, bool `(n,)`; None for all, by true class."""
        return None

    @property
    def least_odds(self) -> float:
        """How many times the odds of being wrong must be those of other inputs of the same classes, at least."""
        return 10.0

    @property
    def within_class(self) -> bool:
        """Whether it may be a cause although all of its errors are of one true class."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Kind and numbers."""
        return {"kind": self.kind, **{one.name: _plain(getattr(self, one.name)) for one in fields(self)}}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
