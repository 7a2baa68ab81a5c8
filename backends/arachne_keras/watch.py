"""Looking on while a model runs: what passes through some of its layers, and other outputs put in their place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arachne.values import Activation, Array
from arachne_keras.autodiff import Mark, to_array
from arachne_keras.kinds import Kind, Layer
from arachne_keras.swapping import swapped


@dataclass
class Use:
    """One use of a layer, as tensors; a recurrent layer's has many steps, and a step several gates.

    Attributes:
        layer: The layer.
        number: Its place among all uses that were seen.
        entering: What enters each weight parameter, step by step.
        leaving: What leaves, step by step, part by part.
        marks: The position of each of those parts among the tensors that were marked.
    """

    layer: Layer
    number: int
    entering: dict[str, list[Any]] = field(default_factory=dict)
    leaving: list[list[Any]] = field(default_factory=list)
    marks: list[list[int]] = field(default_factory=list)

    def activation(self, n: int) -> Activation:
        """The first `n` rows as the contract has them."""
        kind = self.layer.kind
        entering = {
            name: kind.entering(self.layer, self._joined([[to_array(tensor)[:n]] for tensor in steps]))
            for name, steps in self.entering.items()
        }
        leaving = self._joined([[to_array(part)[:n] for part in parts] for parts in self.leaving])
        return Activation(entering, kind.leaving(self.layer, leaving))

    def gradient(self, gradients: Sequence[Any], n: int) -> Array:
        """Out of the gradients of all marked tensors, this use's."""
        parts = [[to_array(gradients[number])[:n] for number in step] for step in self.marks]
        return self.layer.kind.leaving(self.layer, self._joined(parts))

    def _joined(self, steps: Sequence[Sequence[Array]]) -> Array:
        whole = [np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0] for parts in steps]
        return np.stack(whole, axis=1) if self.layer.kind.name == "recurrent" else whole[0]


class Watch:
    """Sees the uses of some layers in one pass.

    Args:
        kinds: Those of the layers' Keras layers.
        layers: The names of the layers to see.
        mark: What makes a tensor one to differentiate by.
        given: By layer, what leaves its first use instead.
    """

    def __init__(
        self,
        kinds: Collection[Kind],
        layers: Collection[str],
        mark: Mark | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.uses: dict[str, list[Use]] = {layer: [] for layer in layers}
        self._kinds = [kind for kind in kinds if any(layer.name in self.uses for layer in kind.layers)]
        self._mark = mark or (lambda tensor: tensor)
        self._given = dict(given or {})
        self._marked = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watch]:
        """The layers show their uses inside this block."""
        stand_ins: dict[tuple[Any, str], Any] = {}
        for kind in self._kinds:
            stand_ins.update(kind.stand_ins(self))
        for kind in self._kinds:
            stand_ins.update(_whole_sequences(kind))
        with swapped(stand_ins):
            yield self

    def use(self, layer: Layer, entering: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """A use in one step."""
        if layer.name not in self.uses:
            return compute()
        use = self.begin(layer)
        leaving = self._given.pop(layer.name, None)
        return self._keep(use, entering, [compute() if leaving is None else leaving])[0]

    def begin(self, layer: Layer) -> Use:
        """A use begins."""
        use = Use(layer, sum(len(uses) for uses in self.uses.values()))
        self.uses[layer.name].append(use)
        return use

    def step(self, layer: Layer, entering: Mapping[str, Any], gates: Sequence[Any]) -> list[Any]:
        """A step of it; the gates of one step may come in several calls, which share what enters."""
        use = self.uses[layer.name][-1]
        known = use.entering.get("weight_hh")
        if known and known[-1] is entering["weight_hh"]:
            kept = self._marks(gates)
            use.leaving[-1] += kept
            use.marks[-1] += range(self._marked - len(kept), self._marked)
            return kept
        return self._keep(use, entering, gates)

    def _keep(self, use: Use, entering: Mapping[str, Any], parts: Sequence[Any]) -> list[Any]:
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
    """A dense layer in a `TimeDistributed` takes all steps at once instead of one after the other."""
    if kind.name != "dense" or kind.wrapper is None:
        return {}
    inner = kind.keras

    def call(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        return inner.call(inputs)

    return {(kind.wrapper, "call"): call}
