"""One pass kept open: activations of several layers, and as many gradients as asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arachne.adapting.folds import Fold, MixedInputsError
from arachne.adapting.outputs import joined_activations, joined_gradients
from arachne.backend import Trace
from arachne.errors import ModelError
from arachne.values import Activation, Array, Inputs, count
from arachne_torch.folds import Folds, apart
from arachne_torch.kinds import Seen, Use
from arachne_torch.running import Runner, as_tensor, to_array
from arachne_torch.watch import Watch


class TorchTrace(Trace):
    """Activations of some layers and, if wanted, the graphs that lead from their outputs to the scores.

    Args:
        runner: The model; it has been looked at.
        inputs: `n` inputs.
        layers: Names of the layers.
        gradients: Whether `output_gradients` will be asked for.
        weights: Tensors that stand in for all of the model's, by name.
    """

    def __init__(
        self,
        runner: Runner,
        inputs: Inputs,
        layers: Sequence[str],
        *,
        gradients: bool = True,
        weights: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.n = count(inputs)
        # Weights need no gradient here, so no graph is kept before the first of the layers.
        fixed = weights or {name: tensor.detach() for name, tensor in runner.parameters.items()}
        with runner.swapped(fixed), torch.set_grad_enabled(gradients):
            self._passes = [_Pass(runner, batch, layers, fixed) for batch in runner.batches(inputs)]
        self.activations = joined_activations([one.seen for one in self._passes])
        for one in self._passes:
            one.seen.clear()

    @property
    def scores(self) -> Array:
        """Class scores `(n, classes)` of the pass."""
        return np.concatenate([to_array(one.scores.float()) for one in self._passes])

    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """One backward pass per batch for all layers together."""
        found, done = [], 0
        for one in self._passes:
            found.append(one.gradients(seed[done : done + one.n]))
            done += one.n
        return joined_gradients(found)


class _Handle:
    """What to differentiate by for one use, and how to read the gradient."""

    def __init__(self, tensor: Tensor, fold: Fold, columns: tuple[int, int] | None) -> None:
        self.tensor, self.fold = tensor, fold
        self.columns = slice(None) if columns is None else slice(*columns)


class _Pass:
    """One batch: what was seen of each layer, and what leaves it as part of the graph."""

    def __init__(self, runner: Runner, inputs: Inputs, layers: Sequence[str], fixed: Mapping[str, Tensor]) -> None:
        self.n = count(inputs)
        self._size = runner.size(inputs)
        self._runner = runner
        self._known = runner.known(fixed)
        self.seen: dict[str, list[Activation]] = {layer: [] for layer in layers}
        self._handles: dict[str, list[_Handle]] = {layer: [] for layer in layers}
        self.scores = runner.scores(inputs, Watch(self._known, self._watch))

    def gradients(self, seed: Array) -> dict[str, tuple[Array, ...]]:
        """Vector-Jacobian products of this batch."""
        wanted = list({id(h.tensor): h.tensor for handles in self._handles.values() for h in handles}.values())
        vector = as_tensor(seed).to(self.scores)
        given: Sequence[Tensor]
        if self.scores.requires_grad:
            given = torch.autograd.grad(self.scores, wanted, vector, retain_graph=True, materialize_grads=True)
        else:
            given = [torch.zeros_like(tensor) for tensor in wanted]
        arrays = {id(tensor): to_array(gradient) for tensor, gradient in zip(wanted, given, strict=True)}
        return {
            layer: tuple(
                np.ascontiguousarray(apart(h.fold, arrays[id(h.tensor)], self._size)[: self.n][..., h.columns])
                for h in handles
            )
            for layer, handles in self._handles.items()
        }

    def _watch(self, uses: Sequence[Use], compute: Callable[[], Any]) -> Any:
        wanted = [use for use in uses if use.layer in self.seen]
        if not wanted:
            return compute()
        probed = torch.is_grad_enabled()
        result, seen = wanted[0].kind.watch(wanted, compute, self._known, probed=probed)
        for one in seen:
            result = self._keep(one, result, probed)
        return result

    def _keep(self, seen: Seen, result: Any, probed: bool) -> Any:
        layer = seen.use.layer
        folds = {} if seen.by_input else self._folds(layer)
        entering = {name: self._array(tensor, folds, name) for name, tensor in seen.entering.items()}
        transposed = next(iter(seen.use.owned.values())).transposed != self._runner.turned.get(layer, False)
        self.seen[layer].append(Activation(entering, self._array(seen.leaving, folds, ""), transposed))
        if not probed:
            return result
        handle, fold = seen.handle, folds.get("", Fold())
        whole = result[0] if isinstance(result, tuple) else result
        if handle is whole:
            onwards = whole
            if fold.axis is None:  # every input gets a copy, so that each has a gradient of its own
                wide = (self._size, *whole.shape[1:]) if len(whole) == 1 else (self._size, *whole.shape)
                handle, fold = torch.zeros(wide, dtype=whole.dtype, device=whole.device, requires_grad=True), Fold()
                onwards = whole + handle
            elif not whole.requires_grad:
                whole.requires_grad_()
            if self._runner.in_place and onwards is whole:
                onwards = whole.clone()  # what follows works in place, but the tensor we differentiate by must stay
            result = (onwards, *result[1:]) if isinstance(result, tuple) else onwards
        self._handles[layer].append(_Handle(handle, fold, None if seen.by_input else seen.use.columns))
        return result

    def _folds(self, layer: str) -> Folds:
        found, number = self._runner.folds.get(layer, ()), len(self.seen[layer])
        if number >= len(found):
            raise ModelError(f"the model uses layer '{layer}' more often for these inputs than for the first ones")
        return found[number]

    def _array(self, tensor: Tensor, folds: Folds, name: str) -> Array:
        """One row per input, without padded rows."""
        try:
            rows = apart(folds.get(name, Fold()), to_array(tensor), self._size)[: self.n]
        except MixedInputsError:
            raise ModelError(
                "a layer's values do not have one row per input; the batch must be an axis of its own"
            ) from None
        return np.ascontiguousarray(rows)
