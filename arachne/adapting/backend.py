"""`RunnerBackend`: the operations that read alike in every adapter whose model is run by a `BatchRunner`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from arachne.adapting.running import BatchRunner
from arachne.model.backend import Cut, ModelBackend
from arachne.model.cut import PlainCut
from arachne.model.values import Activation, Array, Description, Inputs


class OpenedModel(Protocol):
    """Where a model came from; the `LoadedModel` of every adapter is one."""

    @property
    def format(self) -> str:
        """The kind of file or object it came in."""

    @property
    def path(self) -> Path | None:
        """Its file; None for an object."""


class WatchedPass(Protocol):
    """One pass with the activations of some layers; the `Trace` of every adapter is one."""

    @property
    def scores(self) -> Array:
        """The raw outputs `(n, ...)`."""

    @property
    def activations(self) -> Mapping[str, tuple[Activation, ...]]:
        """The activations of each layer, one `Activation` per use."""


class RunnerBackend(ModelBackend):
    """A model that a runner runs in batches, and that a trace watches.

    Args:
        model: The model and where it came from; `load` makes it.
        output: Which of several outputs holds the class scores.
    """

    _open_model: ClassVar[Callable[..., Any]]
    """The adapter's `io.open_model`, which takes the arguments of `load` but for `output`."""

    _model: OpenedModel
    _runner: BatchRunner
    _notes: list[str]

    @abstractmethod
    def __init__(self, model: Any, output: str | None = None) -> None: ...

    @classmethod
    def load(
        cls,
        source: Any,
        *,
        weights: Path | None = None,
        device: str | None = None,
        output: str | None = None,
        trust_code: bool = False,
    ) -> Self:
        """Open a file, an object or what a `module:factory` makes, as the adapter's `io.open_model` does."""
        return cls(cls._open_model(source, weights=weights, device=device, trust_code=trust_code), output)

    @abstractmethod
    def _watch(self, inputs: Inputs, layer: str) -> WatchedPass:
        """Run the model and watch one layer; no gradients will be asked for."""

    @abstractmethod
    def _framework(self) -> str:
        """Return the framework and its version."""

    @abstractmethod
    def _device(self) -> str:
        """Return the device that computes, as the framework names it."""

    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        return self._watch(inputs, layer).activations[layer]

    def _forward_through(self, inputs: Inputs, layer: str) -> tuple[Array, tuple[Activation, ...]]:
        watched = self._watch(inputs, layer)
        return watched.scores, watched.activations[layer]

    def halve_batches(self) -> int | None:
        """Halve the batch size; None if the model takes batches of one size only."""
        return self._runner.halve()

    def describe(self) -> Description:
        """Describe the model; the notes list what was assumed, changed, or is out of reach."""
        return Description(
            backend=self.NAME,
            framework=self._framework(),
            format=self._model.format,
            device=self._device(),
            scores=self.score_kind,
            source=None if self._model.path is None else str(self._model.path),
            notes=tuple(self._notes),
        )

    def _learn_output_head(self, kind: str | None) -> None:
        """Learn from the end of the model of which kind its outputs are."""
        self.score_kind = "log-probabilities" if kind == "probabilities" else "logits"
        self.separate_outputs = kind == "sigmoids"

    def _cut_plainly(self, inputs: Inputs, layers: Sequence[str], reason: Exception) -> Cut:
        """Run the whole model for every candidate, and say why in a note."""
        note = f"candidates run the whole model, because {reason}"
        self._notes += [note] if note not in self._notes else []
        return PlainCut(self, inputs, layers)
