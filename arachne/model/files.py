"""`ModelFiles`: where a model came from, how it is described, and how it is written and exported."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from arachne.errors import ModelError, UsageError
from arachne.io.identity import FileIdentity
from arachne.model.loaded_weights import LoadedWeights
from arachne.model.values import Array, Description, Inputs
from arachne.model.weight_file import WeightFile

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend


class ModelFiles(ABC):
    """The half of `ModelBackend` that opens, describes and writes a model; the other half computes with it."""

    NAME: ClassVar[str]
    """The name it is registered under."""

    SUFFIXES: ClassVar[tuple[str, ...]] = ()
    """File endings it can load."""

    OBJECT_MODULES: ClassVar[tuple[str, ...]] = ()
    """Top-level packages whose objects it can wrap; an object's base classes count too."""

    class_names: tuple[str, ...] | None = None
    """The names of the classes, where the model carries them."""

    file_identity: FileIdentity | None = None
    """The files the model was read from, with their hashes; None for a model object."""

    opened_with: dict[str, Any] | None = None
    """How it was opened, as plain values: keywords of `registry.load`, and `factory` where one made it."""

    trusted_code: bool = False
    """Whether code inside the model's file was allowed to run."""

    native: Any = None
    """The framework's own model object, for users who want it back."""

    @classmethod
    @abstractmethod
    def load(
        cls,
        source: Any,
        *,
        weights: Path | None = None,
        device: str | None = None,
        output: str | None = None,
        trust_code: bool = False,
    ) -> Self:
        """Make a backend of a file, a `module:factory` string or a framework's own model object.

        Called once per run. Loading reads data and runs no code that came in the file unless `trust_code` is set.

        Args:
            source: A path, `module:factory`, or a model object.
            weights: The file a factory's model takes its weights from.
            device: Where to compute, in the framework's words.
            output: Which of several outputs holds the class scores.
            trust_code: Whether code inside the file may run.

        Raises:
            ModelError: Nothing this backend can repair.
            UnsafeModelError: The file would run code or reach outside its folder.
        """

    @classmethod
    def weight_file(cls, path: Path) -> WeightFile:
        """Open a file's weights for patching; unless a backend overrides this, by loading and saving the model.

        Raises:
            ModelError: This backend loads no files, or not this one.
        """
        if path.suffix.lower() not in cls.SUFFIXES:
            raise ModelError(f"backend '{cls.NAME}' cannot patch '{path.name}' as a file")
        return LoadedWeights(path, cast("Callable[[Path], ModelBackend]", cls.load))

    @classmethod
    def quantise(cls, path: Path, kind: str) -> Callable[[Inputs], Array]:
        """Quantise a copy of a file to `int8` or `fp16` and return a function that computes its scores `(n, classes)`.

        Raises:
            ModelError: This backend quantises no files, or not this one.
        """
        raise ModelError(f"backend '{cls.NAME}' cannot quantise '{path.name}'; export it to .onnx first")

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the model with its current weights in the format it came in; the original file stays as it is."""

    @property
    def suffix(self) -> str:
        """The ending of the file `save` writes: that of the model's own file, unless the backend overrides it."""
        source = self.describe().source
        return (Path(source).suffix if source else "") or (self.SUFFIXES[0] if self.SUFFIXES else "")

    def fix_inputs(self, values: Mapping[str, Array]) -> None:
        """Make inputs of the model constants, such as the keep probability of a dropout or the labels of a loss.

        Called at most once, right after `load`; data then holds the other inputs alone.

        Args:
            values: By the input's name, a number for all of it or an array of its shape.

        Raises:
            UsageError: The model has no such input, or the backend fixes none.
        """
        raise UsageError(f"backend '{self.NAME}' cannot fix inputs; give a model that takes the others alone")

    def fix_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take these shapes for inputs whose sizes the file leaves free; called at most once, right after `load`.

        Raises:
            UsageError: The model has no such input, or one of another shape, or the backend fixes none.
        """
        raise UsageError(f"backend '{self.NAME}' takes the sizes of inputs from the model or the data; give no shape")

    def example_inputs(self, n: int, *, seed: int = 0) -> Inputs:
        """Make `n` random inputs of the shapes and dtypes the model takes.

        Raises:
            ModelError: The model does not tell what it takes.
        """
        raise ModelError(
            f"backend '{self.NAME}' does not tell what inputs a model takes; give some data instead", argument="data"
        )

    def export_onnx(self, path: Path, *, inputs: Inputs | None = None, opset: int = 18) -> None:
        """Write the model with its current weights as ONNX; the file appears whole or not at all.

        Args:
            path: Where the file goes.
            inputs: Inputs to follow through the model, where it does not tell what it takes.
            opset: The version of ONNX' operators.

        Raises:
            UsageError: This backend exports nothing.
            ModelError: The exporter does not know an operation of the model, or nothing tells what it takes.
            BackendUnavailableError: The exporter is not installed.
        """
        raise UsageError(f"backend '{self.NAME}' does not export to ONNX")

    @abstractmethod
    def describe(self) -> Description:
        """Describe the model: its framework and format, where it came from and where it runs."""
