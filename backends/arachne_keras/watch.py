"""Watch a model run: capture the activations of some layers, or replace their outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arachne.model.values import Activation, Array
from arachne_keras.autodiff import Mark, to_array
from arachne_keras.kinds import Kind, Layer
from arachne_keras.swapping import swap_attributes


@dataclass
class LayerUse:
    """One use of a layer, as tensors; a recurrent layer's has many steps, and a step several gates.

    Attributes:
        layer: The layer.
        number: Its position among all uses in the pass.
        entering: The input of each weight parameter, step by step.
        leaving: The outputs, step by step, part by part.
        marks: The position of each of those parts among the marked tensors.
    """

    layer: Layer
    number: int
    entering: dict[str, list[Any]] = field(default_factory=dict)
    leaving: list[list[Any]] = field(default_factory=list)
    marks: list[list[int]] = field(default_factory=list)

    def activation(self, n: int) -> Activation:
        """Return the first `n` rows in the contract's layout."""
        kind = self.layer.kind
        entering = {
            name: kind.entering(self.layer, self._join_steps([[to_array(tensor)[:n]] for tensor in steps]))
            for name, steps in self.entering.items()
        }
        leaving = self._join_steps([[to_array(part)[:n] for part in parts] for parts in self.leaving])
        return Activation(entering, kind.leaving(self.layer, leaving))

    def gradient(self, gradients: Sequence[Any], n: int) -> Array:
        """Select this use's gradient from those of all marked tensors."""
        parts = [[to_array(gradients[number])[:n] for number in step] for step in self.marks]
        return self.layer.kind.leaving(self.layer, self._join_steps(parts))

    def _join_steps(self, steps: Sequence[Sequence[Array]]) -> Array:
        whole = [np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0] for parts in steps]
        return np.stack(whole, axis=1) if self.layer.kind.name == "recurrent" else whole[0]


class Watch:
    """Captures the uses of some layers in one pass.

    Args:
        kinds: The kinds of the layers.
        layers: The names of the layers.
        mark: Marks a tensor for differentiation.
        given: Replacements for the output of a layer's first use.
    """

    def __init__(
        self,
        kinds: Collection[Kind],
        layers: Collection[str],
        mark: Mark | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.uses: dict[str, list[LayerUse]] = {layer: [] for layer in layers}
        self._kinds = [kind for kind in kinds if any(layer.name in self.uses for layer in kind.layers)]
        self._mark = mark or (lambda tensor: tensor)
        self._given = dict(given or {})
        self._marked = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watch]:
        """Capture uses inside this block."""
        replacements: dict[tuple[Any, str], Any] = {}
        for kind in self._kinds:
            replacements.update(kind.replacements(self))
        for kind in self._kinds:
            replacements.update(_whole_sequences(kind))
        with swap_attributes(replacements):
            yield self

    def use(self, layer: Layer, entering: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Capture a use in one step."""
        if layer.name not in self.uses:
            return compute()
        use = self.begin(layer)
        leaving = self._given.pop(layer.name, None)
        return self._keep(use, entering, [compute() if leaving is None else leaving])[0]

    def begin(self, layer: Layer) -> LayerUse:
        """Begin a use."""
        use = LayerUse(layer, sum(len(uses) for uses in self.uses.values()))
        self.uses[layer.name].append(use)
        return use

    def step(self, layer: Layer, entering: Mapping[str, Any], gates: Sequence[Any]) -> list[Any]:
        """Capture a step; the gates of one step may come in several calls with the same input."""
        use = self.uses[layer.name][-1]
        known = use.entering.get("weight_hh")
        if known and known[-1] is entering["weight_hh"]:
            kept = self._marks(gates)
            use.leaving[-1] += kept
            use.marks[-1] += range(self._marked - len(kept), self._marked)
            return kept
        return self._keep(use, entering, gates)

    def _keep(self, use: LayerUse, entering: Mapping[str, Any], parts: Sequence[Any]) -> list[Any]:
        for name, tensor in entering.items():
            use.entering.setdefault(name, []).append(tensor)
        kept = self._marks(parts)
        use.leaving.append(kept)
        use.marks.append(list(range(self._marked - len(kept), self._marked)))
        return list(kept)

    def _marks(self, parts: Sequence[Any]) -> list[Any]:
        self._marked += len(parts)
        return [self._mark(part) for part in parts]


def _whole_sequences(kind: Kind) -> dict[tuple[Any, str], Any]:
    """Let a dense layer in a `TimeDistributed` take all steps at once instead of one after the other."""
    if kind.name != "dense" or kind.wrapper is None:
        return {}
    inner = kind.keras

    def call(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        return inner.call(inputs)

    return {(kind.wrapper, "call"): call}
