"""`FlaxBackend`: the contract of `arachne.model.backend` for Flax NNX models.

The user's model is wrapped, not copied: weights set on the backend are set on it too. Everything runs in evaluation
mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import __version__ as flax_version
from flax import nnx

from arachne.errors import ArachneError, DataError, EnvironmentFaultError, ModelError, UsageError
from arachne.io.user_code import call_factory
from arachne.model.backend import Cut, LossGradient, ModelBackend, Trace, Weights
from arachne.model.values import Activation, Array, Description, Inputs, LayerInfo
from arachne.model.weight_file import WeightFile
from arachne_flax import files
from arachne_flax.batches import Model, activations, as_numbers
from arachne_flax.cut import FlaxCut, FlaxTrace
from arachne_flax.layers import info_of, layers_of, parameters_of, problem_of, to_canonical, to_stored
from arachne_flax.running import NOTHING, order_of


class FlaxBackend(ModelBackend):
    """A Flax NNX model.

    Args:
        model: The model; inputs by name are given to its call as keywords.
        source: The file its weights came from.
        device: Where to compute; JAX' default when None.
    """

    NAME = "flax"
    SUFFIXES = (".msgpack",)
    OBJECT_MODULES = ("flax",)

    def __init__(self, model: nnx.Module, source: str | None = None, device: Any = None) -> None:
        self.native, self._source = model, source
        graph, state = nnx.split(model)
        device = device or jax.devices()[0]
        self._model = Model(graph, jax.device_put(state, device), device)
        self._parts = {name: (layer, kind) for name, layer, kind in layers_of(model)}
        if not self._parts:
            raise ModelError(
                "the model has no layer that can be repaired: no Linear, Conv, Embed, BatchNorm or LayerNorm"
            )
        self._weights = {
            (name, parameter): self._model.put(to_canonical(kind, parameter, variable[...]))
            for name, (layer, kind) in self._parts.items()
            for parameter, variable in parameters_of(layer, kind).items()
        }
        self._layers = [info_of(name, layer, kind, 1, None) for name, (layer, kind) in self._parts.items()]
        self._seen: set[Any] = set()

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
        if output is not None:
            raise UsageError("a Flax model gives the scores of its classes alone, so no output can be chosen")
        if isinstance(source, nnx.Module):
            model = source
        elif Path(str(source)).exists():
            raise ModelError(
                f"'{Path(source).name}' holds weights, which need the code that makes the model: give "
                "'module:factory' as the model and this file as its weights"
            )
        else:
            model = call_factory(str(source), nnx.Module, "an nnx.Module")
        if weights is not None:
            files.fill(model, weights)
        return cls(model, None if weights is None else str(weights), None if device is None else _device(device))

    @classmethod
    def weight_file(cls, path: Path) -> WeightFile:
        return files.FlaxWeightFile(path)

    @property
    def layers(self) -> Sequence[LayerInfo]:
        return self._layers

    @property
    def unreachable(self) -> Mapping[str, str]:
        held = {
            id(variable) for layer, kind in self._parts.values() for variable in parameters_of(layer, kind).values()
        }
        found = {}
        for path, module in nnx.iter_modules(self.native):
            for name, variable in vars(module).items():
                if isinstance(variable, nnx.Param) and id(variable) not in held:
                    reason = problem_of(module) or f"a layer of class '{type(module).__name__}'"
                    found[".".join(map(str, (*path, name)))] = f"{reason} is not repaired here"
        return found

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        return {parameter: np.array(values) for (name, parameter), values in self._weights.items() if name == layer}

    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        module, kind = self._parts[layer]
        variable = parameters_of(module, kind)[parameter]
        kept = jnp.asarray(np.array(values)).astype(variable[...].dtype)  # as the model rounds it
        variable[...] = to_stored(kind, parameter, kept)
        self._weights = {**self._weights, (layer, parameter): self._model.put(to_canonical(kind, "", kept))}

    def _look(self, inputs: Inputs) -> None:
        """Run the model on shapes alone to find the order of its layers, and refuse inputs it does not take."""
        taken = as_numbers(inputs)
        shapes = jax.tree.map(lambda array: (array.shape[1:], str(array.dtype)), taken)
        if str(shapes) in self._seen:
            return
        few = jax.tree.map(lambda array: jax.ShapeDtypeStruct((3, *array.shape[1:]), array.dtype), taken)
        try:
            scores, order = order_of(self._model.graph, self._model.state, self._weights, few)
        except ArachneError:
            raise
        except Exception as error:  # whatever the model's own code raises on shapes it was not written for
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(f"the model cannot run on inputs of shape {shapes}: {reason}") from error
        if scores.ndim != 2 or len(scores) != 3:
            raise DataError(f"expected scores (n, classes), the model gives {scores.shape} for 3 inputs of {shapes}")
        self._layers = [info_of(name, *self._parts[name], len(uses), uses[0].shape) for name, uses in order.items()]
        self._seen.add(str(shapes))

    def _forward(self, inputs: Inputs) -> Array:
        return self._model.scores(self._weights, inputs)

    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        return activations(self._model.watch_layers(self._weights, inputs, (layer,))[layer])

    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        found = self._model.gradients(self._weights, list(self._weights), inputs, loss, NOTHING)
        return {place: found[place] for place in parameters}

    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        names = tuple(info.name for info in self._layers)  # of all: what is compiled then serves every layer
        return self._model.gradients_at_outputs(self._weights, inputs, seed, names)[layer]

    def _trace(self, inputs: Inputs, layers: Sequence[str]) -> Trace:
        return FlaxTrace(self._model, self._weights, inputs, layers)

    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> Cut:
        return FlaxCut(self._model, self._weights, inputs, [info for info in self._layers if info.name in layers])

    def halve_batches(self) -> int | None:
        return self._model.halve()

    def save(self, path: Path) -> None:
        if path.suffix != ".msgpack":
            raise ModelError(f"the weights of a Flax model are saved as '.msgpack', not as '{path.suffix}'")
        files.write(path, files.state_of(self.native))

    def describe(self) -> Description:
        made_by = f"flax {flax_version}, jax {jax.__version__}"
        return Description(self.NAME, made_by, "msgpack", str(self._model.device), self.score_kind, self._source)


def _device(name: str) -> Any:
    platform, _, number = name.partition(":")
    try:
        return jax.devices(platform)[int(number or 0)]
    except ValueError as error:
        raise UsageError(f"expected a device such as 'cpu' or 'gpu:0', got '{name}'") from error
    except (RuntimeError, IndexError) as error:
        raise EnvironmentFaultError(f"JAX has no device '{name}' here") from error
