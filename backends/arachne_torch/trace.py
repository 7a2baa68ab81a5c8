"""One pass kept open: activations of several layers, and as many gradients as asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arachne.backend import Trace, check_count
from arachne.values import Activation, Array, Inputs, count
from arachne_torch.calls import Watch
from arachne_torch.layers import Use
from arachne_torch.running import Runner, as_tensor, to_array, unfolded


class TorchTrace(Trace):
    """Activations of some layers and, if wanted, the graphs that lead from their outputs to the scores.

    Args:
        runner: The model; it has been looked at.
        inputs: `n` inputs.
        layers: Names of the layers.
        gradients: Whether `output_gradients` will be asked for.
    """

    def __init__(self, runner: Runner, inputs: Inputs, layers: Sequence[str], *, gradients: bool = True) -> None:
        self._n = count(inputs)
        # Weights need no gradient here, so no graph is kept before the first of the layers.
        fixed = {name: tensor.detach() for name, tensor in runner.parameters.items()}
        with runner.swapped(fixed), torch.set_grad_enabled(gradients):
            self._passes = [_Pass(runner, batch, layers, fixed) for batch in runner.batches(inputs)]
        self.activations = {
            layer: tuple(_joined_activations(uses) for uses in zip(*(p.seen[layer] for p in self._passes), strict=True))
            for layer in layers
        }
        for one in self._passes:
            one.seen.clear()

    def output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """One backward pass per batch for all layers together."""
        if self._n != len(seed):
            check_count(np.empty(self._n), seed, "rows of the seed")
        found, done = [], 0
        for one in self._passes:
            found.append(one.gradients(seed[done : done + one.n]))
            done += one.n
        return {
            layer: tuple(
                np.concatenate(parts) for parts in zip(*(gradients[layer] for gradients in found), strict=True)
            )
            for layer in self.activations
        }


class _Pass:
    """One batch: what was seen of each layer, and what leaves it as part of the graph."""

    def __init__(self, runner: Runner, inputs: Inputs, layers: Sequence[str], fixed: Mapping[str, Tensor]) -> None:
        self.n = count(inputs)
        self._size = runner.size(inputs)
        self._in_place = runner.in_place
        self.seen: dict[str, list[Activation]] = {layer: [] for layer in layers}
        self._leaving: dict[str, list[Tensor]] = {layer: [] for layer in layers}
        self._scores = runner.scores(inputs, Watch(runner.owners(fixed), self._keep))

    def gradients(self, seed: Array) -> dict[str, tuple[Array, ...]]:
        """Vector-Jacobian products of this batch."""
        wanted = [tensor for tensors in self._leaving.values() for tensor in tensors]
        vector = as_tensor(seed).to(self._scores)
        if self._scores.requires_grad:
            given = torch.autograd.grad(self._scores, wanted, vector, retain_graph=True, materialize_grads=True)
        else:
            given = tuple(torch.zeros_like(tensor) for tensor in wanted)
        arrays = iter([self._array(gradient) for gradient in given])
        return {layer: tuple(next(arrays) for _ in tensors) for layer, tensors in self._leaving.items()}

    def _array(self, tensor: Tensor) -> Array:
        """One row per input, without padded rows."""
        return unfolded(to_array(tensor), self._size)[: self.n]

    def _keep(self, use: Use, result: Any) -> Any:
        if use.layer not in self.seen:
            return result
        leaving = result[0] if isinstance(result, tuple) else result
        with torch.no_grad():
            entering = {name: self._array(tensor) for name, tensor in use.kind.entering(use).items()}
        self.seen[use.layer].append(Activation(entering, self._array(leaving)))
        if not torch.is_grad_enabled():
            return result
        if not leaving.requires_grad:
            leaving.requires_grad_()
        self._leaving[use.layer].append(leaving)
        if not self._in_place:
            return result
        onwards = leaving.clone()  # what follows works in place, but the tensor we differentiate by must stay
        return (onwards, *result[1:]) if isinstance(result, tuple) else onwards


def _joined_activations(parts: Sequence[Activation]) -> Activation:
    if len(parts) == 1:
        return parts[0]
    entering = {name: np.concatenate([part.entering[name] for part in parts]) for name in parts[0].entering}
    return Activation(entering, np.concatenate([part.leaving for part in parts]))
