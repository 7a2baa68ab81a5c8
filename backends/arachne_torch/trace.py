"""A trace: activations of several layers from one pass, and any number of gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arachne.adapting.batch_axis import BatchAxis, MixedInputsError
from arachne.adapting.outputs import join_activations, join_gradients
from arachne.errors import ArachneError, ModelError
from arachne.model.backend import ActivationAccumulator, Seeds, Trace
from arachne.model.values import Activation, Array, Inputs, count
from arachne_torch.batch_axis import BatchAxes, to_batch_first
from arachne_torch.kinds import LayerUse, ObservedUse
from arachne_torch.running import Runner, as_tensor, as_view, to_array
from arachne_torch.threads import one_thread
from arachne_torch.watch import Watch


class TorchTrace(Trace):
    """Activations of some layers and, for gradients, the graphs from their outputs to the scores.

    Args:
        runner: The model, after `look`.
        inputs: `n` inputs.
        layers: Names of the layers.
        gradients: Whether `output_gradients` will be asked for.
        weights: Tensors that replace all of the model's, by name.
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
        with runner.swap_parameters(fixed), torch.set_grad_enabled(gradients):
            run, batches = partial(_run_batch, layers=layers, fixed=fixed), runner.batches(inputs)
            found = map(partial(run, runner), batches) if gradients else runner.run_all(run, batches)
            self._passes: list[Pass] = []
            self.activations = join_activations(map(self._take_activations, found), self.n)

    def _take_activations(self, one: Pass) -> dict[str, list[Activation]]:
        """Keep a batch for gradients, without its activations."""
        self._passes.append(one)
        seen, one.seen = one.seen, {}
        return seen

    @property
    def scores(self) -> Array:
        """Class scores `(n, classes)` of the pass."""
        return np.concatenate([to_array(one.scores.float()) for one in self._passes])

    @one_thread()
    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """One backward pass per batch for all layers together."""
        found, done = [], 0
        for one in self._passes:
            found.append(one.gradients(seed[done : done + one.n]))
            done += one.n
        return join_gradients(found)


def observe(
    runner: Runner, inputs: Inputs, layers: Sequence[str], observer: ActivationAccumulator, seeds: Seeds | None = None
) -> None:
    """Show activations and gradients of layers as they are computed; only the graph of one batch is held."""
    fixed = {name: tensor.detach() for name, tensor in runner.parameters.items()}
    done = 0
    for batch in runner.batches(inputs, gradients=seeds is not None):
        with runner.swap_parameters(fixed), torch.set_grad_enabled(seeds is not None), suppress(_PassOverError):
            one = _run_batch(runner, batch, layers, fixed, observer)
            if seeds is not None:
                one.show(list(seeds(slice(done, done + one.n))))
            del one  # before the next one is made
        done += count(batch)


class _PassOverError(ArachneError):
    """Ends a pass behind the last layer that an observer wants."""


def _run_batch(
    runner: Runner,
    batch: Inputs,
    layers: Sequence[str],
    fixed: Mapping[str, Tensor],
    observer: ActivationAccumulator | None = None,
) -> Pass:
    """Run the model on one batch and watch some layers."""
    return Pass(runner, count(batch), partial(runner.scores, batch), layers, fixed, observer)


class _Handle:
    """The tensor of one use whose gradient is taken."""

    def __init__(self, tensor: Tensor, reader: _Reader) -> None:
        self.tensor, self.read = tensor, reader


class _Reader:
    """How to read the gradient of one use; it holds no tensor.

    Args:
        batch_axis: The batch axis of the tensor.
        columns: Which columns of it belong to the layer; all when None.
        size: How many rows the model was given.
        n: How many of them are inputs.
    """

    def __init__(self, batch_axis: BatchAxis, columns: tuple[int, int] | None, size: int, n: int) -> None:
        self._batch_axis, self._size, self._n = batch_axis, size, n
        self._columns = slice(None) if columns is None else slice(*columns)

    def __call__(self, gradient: Array) -> Array:
        return to_batch_first(self._batch_axis, gradient, self._size)[: self._n][..., self._columns]

    def show(self, observer: ActivationAccumulator, layer: str, use: int, gradient: Tensor) -> None:
        """Called with a gradient as soon as a backward pass has it."""
        observer.gradient(layer, use, self(as_view(gradient)))


class Pass:
    """One batch: the activations of each layer, and its outputs as part of the graph.

    Args:
        runner: The model.
        n: How many inputs it has.
        run: Runs the model, or a part of it, on the batch while it is watched; gives the scores.
        layers: Names of the layers.
        fixed: Tensors that replace the model's.
        observer: Receives the activations, which are then not stored.
    """

    def __init__(
        self,
        runner: Runner,
        n: int,
        run: Callable[[Watch], Tensor],
        layers: Sequence[str],
        fixed: Mapping[str, Tensor],
        observer: ActivationAccumulator | None = None,
    ) -> None:
        self.n = n
        self._size = runner.padded_size(n)
        self._runner = runner
        self._observer = observer
        self._tensor_ids = runner.tensor_ids(fixed)
        self.seen: dict[str, list[Activation]] = {layer: [] for layer in layers}
        self._uses = dict.fromkeys(layers, 0)
        self._handles: dict[str, list[_Handle | None]] = {layer: [] for layer in layers}
        self.scores = run(Watch(self._tensor_ids, self._watch))

    def show(self, seeds: Sequence[Array]) -> None:
        """Show the gradients for some seeds as the backward passes reach them; the last one uses up the graph.

        Only gradients of leaf tensors are read here; hooks show all others during the pass.
        """
        ends = [
            (layer, use, handle) for layer, own in self._handles.items() for use, handle in enumerate(own) if handle
        ]
        tensors = list({id(handle.tensor): handle.tensor for *_, handle in ends}.values())
        for number, seed in enumerate(seeds if self.scores.requires_grad and ends else ()):
            vector, again = as_tensor(seed).to(self.scores), number + 1 < len(seeds)
            given = torch.autograd.grad(self.scores, tensors, vector, retain_graph=again, allow_unused=True)
            found = {id(tensor): gradient for tensor, gradient in zip(tensors, given, strict=True)}
            for layer, use, handle in ends:
                gradient = found[id(handle.tensor)]
                if gradient is not None and self._observer is not None:
                    handle.read.show(self._observer, layer, use, gradient)

    def gradients(self, seed: Array) -> dict[str, tuple[Array, ...]]:
        """Vector-Jacobian products of this batch."""
        kept = {layer: [handle for handle in own if handle] for layer, own in self._handles.items()}
        wanted = list({id(h.tensor): h.tensor for handles in kept.values() for h in handles}.values())
        vector = as_tensor(seed).to(self.scores)
        given: Sequence[Tensor]
        if self.scores.requires_grad:
            given = torch.autograd.grad(self.scores, wanted, vector, retain_graph=True, materialize_grads=True)
        else:
            given = [torch.zeros_like(tensor) for tensor in wanted]
        arrays = {id(tensor): to_array(gradient) for tensor, gradient in zip(wanted, given, strict=True)}
        return {
            layer: tuple(np.ascontiguousarray(h.read(arrays[id(h.tensor)])) for h in handles)
            for layer, handles in kept.items()
        }

    def _watch(self, uses: Sequence[LayerUse], compute: Callable[[], Any]) -> Any:
        wanted = [use for use in uses if use.layer in self.seen]
        if not wanted:
            return compute()
        probed = torch.is_grad_enabled()
        result, seen = wanted[0].kind.watch(wanted, compute, self._tensor_ids, probed=probed)
        for one in seen:
            result = self._keep(one, result, probed)
        return result

    def _keep(self, seen: ObservedUse, result: Any, probed: bool) -> Any:
        layer = seen.use.layer
        batch_axes = {} if seen.by_input else self._batch_axes(layer)
        entering = {name: self._array(tensor, batch_axes, name) for name, tensor in seen.entering.items()}
        transposed = next(iter(seen.use.owned.values())).transposed != self._runner.turned.get(layer, False)
        activation = Activation(entering, self._array(seen.leaving, batch_axes, ""), transposed)
        if self._observer is None:
            self.seen[layer].append(activation)
        else:
            self._observer.activation(layer, self._uses[layer], activation)
            if not probed and self._observer.is_enough(layer, self._uses[layer]):
                raise _PassOverError(f"nothing behind layer '{layer}' is wanted")
        self._uses[layer] += 1
        if not probed:
            return result
        handle, batch_axis = seen.handle, batch_axes.get("", BatchAxis())
        whole = result[0] if isinstance(result, tuple) else result
        if handle is whole:
            onwards = whole
            if batch_axis.axis is None:  # every input gets a copy, so that each has a separate gradient
                wide = (self._size, *whole.shape[1:]) if len(whole) == 1 else (self._size, *whole.shape)
                handle, batch_axis = (
                    torch.zeros(wide, dtype=whole.dtype, device=whole.device, requires_grad=True),
                    BatchAxis(),
                )
                onwards = whole + handle
            elif not whole.requires_grad:
                whole.requires_grad_()
            if self._runner.in_place and onwards is whole:
                onwards = whole.clone()  # what follows works in place, but the tensor we differentiate by must stay
            result = (onwards, *result[1:]) if isinstance(result, tuple) else onwards
        reader = _Reader(batch_axis, None if seen.by_input else seen.use.columns, self._size, self.n)
        if self._observer is None or handle.is_leaf:
            self._handles[layer].append(_Handle(handle, reader))
        else:  # seen from inside a backward pass, so the tensor itself need not live until then
            handle.register_hook(partial(reader.show, self._observer, layer, self._uses[layer] - 1))  # type: ignore[no-untyped-call]  # torch has no type for it
            self._handles[layer].append(None)
        return result

    def _batch_axes(self, layer: str) -> BatchAxes:
        found, number = self._runner.batch_axes.get(layer, ()), self._uses[layer]
        if number >= len(found):
            raise ModelError(f"the model uses layer '{layer}' more often for these inputs than for the first ones")
        return found[number]

    def _array(self, tensor: Tensor, batch_axes: BatchAxes, name: str) -> Array:
        """One row per input, without padded rows; a copy unless an observer is there to see it now."""
        shown = self._observer is not None
        try:
            rows = to_batch_first(
                batch_axes.get(name, BatchAxis()), as_view(tensor) if shown else to_array(tensor), self._size
            )[: self.n]
        except MixedInputsError:
            raise ModelError(
                "a layer's values do not have one row per input; the batch must be an axis of its own"
            ) from None
        return rows if shown else np.ascontiguousarray(rows)
