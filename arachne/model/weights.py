"""Layers and parameters of a model: the half of the contract that reads and sets weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import final

import numpy as np

from arachne.errors import UnknownLayerError, did_you_mean
from arachne.model.cut import check_values
from arachne.model.files import ModelFiles
from arachne.model.values import Array, LayerInfo


class ModelWeights(ModelFiles):
    """The repairable layers of a model, and the values of their parameters in the canonical layout."""

    @property
    @abstractmethod
    def layers(self) -> Sequence[LayerInfo]:
        """The repairable layers in order of execution. A layer used several times is listed once, at its first use."""

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Parameters of the model that cannot be repaired, by their names in its framework, each with the reason."""
        return {}

    @property
    def unreachable_sizes(self) -> Mapping[str, int]:
        """How many weights each of the `unreachable` parameters holds, as far as that is known."""
        return {}

    @final
    def get_weights(self, layer: str) -> Mapping[str, Array]:
        """Copy every parameter of a layer, `(out, in)` and so on; changing the copy changes nothing in the model.

        Raises:
            UnknownLayerError: The model has no such layer.
        """
        self.info(layer)
        return self._get_weights(layer)

    @abstractmethod
    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        """Implementation of `get_weights`; the layer exists."""

    @final
    def read_weights(self, layer: str) -> Mapping[str, Array]:
        """Return read-only views of every parameter of a layer, `(out, in)` and so on; no copies where possible.

        Raises:
            UnknownLayerError: The model has no such layer.
        """
        self.info(layer)
        found = {name: values.view() for name, values in self._read_weights(layer).items()}
        for values in found.values():
            values.flags.writeable = False
        return found

    def _read_weights(self, layer: str) -> Mapping[str, Array]:
        """Implementation of `read_weights`; optional, for adapters whose copies of weights cost memory."""
        return self._get_weights(layer)

    @final
    def set_weights(self, layer: str, parameter: str, values: Array) -> None:
        """Replace one parameter of a layer, in place; `values` is copied, never kept.

        Raises:
            UnknownLayerError: The model has no such layer or parameter.
            WeightShapeError: Another shape than `get_weights(layer)[parameter]`; nothing is broadcast.
        """
        check_values(self.info(layer), parameter, values)
        self._set_weights(layer, parameter, np.asarray(values))

    @abstractmethod
    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        """Implementation of `set_weights`; the values have the parameter's shape."""

    @final
    def info(self, layer: str) -> LayerInfo:
        """Return the `LayerInfo` of a name.

        Raises:
            UnknownLayerError: The model has no such layer.
        """
        for info in self.layers:
            if info.name == layer:
                return info
        raise UnknownLayerError(
            f"the model has no layer '{layer}'" + did_you_mean(layer, [info.name for info in self.layers])
        )

    @final
    def resolve_parameters(self, parameters: Iterable[tuple[str, str]] | None) -> list[tuple[str, str]]:
        """Return the `(layer, parameter)` pairs to differentiate by, each once; all of the model's for None.

        Raises:
            UnknownLayerError: The model has no such layer or parameter.
        """
        known = {info.name: info for info in self.layers}
        if parameters is None:
            return [(info.name, parameter) for info in known.values() for parameter in info.parameters]
        found = list(dict.fromkeys(parameters))
        for layer, parameter in found:
            own = (known[layer] if layer in known else self.info(layer)).parameters
            if parameter not in own:
                raise UnknownLayerError(f"layer '{layer}' has no parameter '{parameter}'{did_you_mean(parameter, own)}")
        return found
