"""The weights in a model file, by address, without the code that makes a model of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast, final

import numpy as np

from arachne.errors import ModelError, UnknownLayerError, WeightShapeError, did_you_mean
from arachne.io.identity import FileIdentity
from arachne.model.values import Array, Weights
from arachne.weights.storage import IntegerGrid


class WeightFile(ABC):
    """The weights in a model file. Public operations check what they are given; `_read` and the like do the work."""

    path: Path

    file_identity: FileIdentity | None = None
    """The file and its hash when it was opened; None where it was not opened by its path."""

    def reopen(self, path: Path) -> WeightFile:
        """Open another file of the same format; a class whose constructor takes more than the path overrides this."""
        return cast("Callable[[Path], WeightFile]", type(self))(path)

    def beside(self) -> Sequence[Path]:
        """Return the other files that hold weights of it."""
        return ()

    @abstractmethod
    def parameters(self) -> Sequence[tuple[str, str]]:
        """Every `(layer, parameter)` in the file, in the file's order."""

    @final
    def read(self, layer: str, parameter: str) -> Array:
        """One parameter in the canonical layout, such as `(out, in)`, and the file's dtype, as a fresh array.

        What is stored in bfloat16 crosses as float32.

        Raises:
            UnknownLayerError: The file has no such parameter.
        """
        self._check_address(layer, parameter)
        return self._read(layer, parameter)

    @final
    def dtype(self, layer: str, parameter: str) -> str:
        """The dtype the parameter is stored in.

        Raises:
            UnknownLayerError: The file has no such parameter.
        """
        self._check_address(layer, parameter)
        return self._dtype(layer, parameter)

    def grid(self, layer: str, parameter: str) -> IntegerGrid | None:
        """Return the grid of a quantised parameter in the canonical layout; None where the file holds the values."""
        return None

    @final
    def rewrite(self, destination: Path, weights: Weights) -> None:
        """Write a copy of the file with these parameters replaced and every other byte of content as it was.

        Raises:
            UnknownLayerError: The file has no such parameter.
            WeightShapeError: Values of another shape than the parameter's.
        """
        for (layer, parameter), values in weights.items():
            shape = self.read(layer, parameter).shape
            if np.shape(values) != shape:
                raise WeightShapeError(
                    f"'{layer}.{parameter}' has shape {shape}, got values of shape {np.shape(values)}"
                )
        self._rewrite(Path(destination), weights)

    @final
    def check_finite(self) -> None:
        """Refuse weights that are infinite or no numbers, one parameter at a time.

        Raises:
            ModelError: There is one.
        """
        for layer, parameter in self.parameters():
            if not np.isfinite(self._read(layer, parameter)).all():
                raise ModelError(f"'{self.path.name}' has weights that are not finite, in '{layer}.{parameter}'")

    def rename_beside(self, copy: Path, names: Mapping[str, str]) -> None:
        """Rename files beside a copy of this file that hold its weights, also where the copy refers to them.

        Args:
            copy: The copy.
            names: The new names by the old ones, relative to the copy's folder.

        Raises:
            ModelError: The format keeps no weights beside.
        """
        raise ModelError(f"'{copy.name}' refers to no files beside it that could be renamed: {', '.join(names)}")

    def name_patch(self, copy: Path, digest: str) -> None:
        """Note in a copy of this file, which stays as it is otherwise, which patch it carries.

        Args:
            copy: The copy.
            digest: The patch's digest.

        Raises:
            ModelError: The format has no place for that.
        """
        raise ModelError(f"'{copy.name}' has no place to name a patch in; of Arachne's own formats, ONNX has")

    def forget_patch(self, copy: Path, digest: str) -> None:  # noqa: B027  # where nothing is noted, nothing is there
        """Remove such a note from a copy, byte for byte; do nothing if there is none."""

    @abstractmethod
    def _read(self, layer: str, parameter: str) -> Array:
        """Implementation of `read`; the parameter is in the file."""

    @abstractmethod
    def _dtype(self, layer: str, parameter: str) -> str:
        """Implementation of `dtype`; the parameter is in the file."""

    @abstractmethod
    def _rewrite(self, destination: Path, weights: Weights) -> None:
        """Implementation of `rewrite`; the parameters are in the file and the shapes are theirs."""

    def _check_address(self, layer: str, parameter: str) -> None:
        known = self.parameters()
        if (layer, parameter) in known:
            return
        own = [name for holder, name in known if holder == layer]
        if own:
            choices = did_you_mean(parameter, own)
            raise UnknownLayerError(f"layer '{layer}' in '{self.path.name}' has no parameter '{parameter}'{choices}")
        choices = did_you_mean(layer, dict.fromkeys(name for name, _ in known))
        raise UnknownLayerError(f"'{self.path.name}' has no layer '{layer}'{choices}")
