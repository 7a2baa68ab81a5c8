"""A trace: activations of several layers from one pass, and any number of gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from arachne.adapting.outputs import join_activations, join_gradients
from arachne.model.backend import Trace
from arachne.model.values import Array, Inputs, count
from arachne_keras.autodiff import FRAMEWORK, Mark, to_array
from arachne_keras.running import Runner
from arachne_keras.watch import Watch


class KerasTrace(Trace):
    """Activations of some layers and, for gradients, the recorded passes.

    Args:
        runner: The model.
        inputs: `n` inputs.
        layers: Names of the layers.
        gradients: Whether `output_gradients` will be asked for.
    """

    def __init__(self, runner: Runner, inputs: Inputs, layers: Sequence[str], *, gradients: bool = True) -> None:
        self.n = count(inputs)
        # The passes read copies, so that weights set afterwards do not reach the gradients.
        fixed = {id(variable): FRAMEWORK.snapshot(variable) for variable in runner.model.variables}
        with runner.stateless(fixed, runner.model.variables):
            self._passes = [_Pass(runner, batch, layers, gradients) for batch in runner.batches(inputs)]
        self.activations = join_activations((one.activations for one in self._passes), self.n)
        for one in self._passes:
            one.activations.clear()

    @property
    def scores(self) -> Array:
        """Class scores `(n, classes)` of the pass."""
        return np.concatenate([to_array(one.scores)[: one.n] for one in self._passes])

    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """One backward pass per batch for all layers together."""
        found, done = [], 0
        for one in self._passes:
            found.append(one.gradients(seed[done : done + one.n]))
            done += one.n
        return join_gradients(found)


class _Pass:
    """One batch: the activations of each layer, and the recorded pass."""

    def __init__(self, runner: Runner, inputs: Inputs, layers: Sequence[str], gradients: bool) -> None:
        self.n = count(inputs)
        watches = []

        def run(mark: Mark) -> object:
            watches.append(Watch(runner.kinds, layers, mark))
            return runner.scores(inputs, watches[-1])

        if gradients:
            self._recording = FRAMEWORK.record(run)
            self.scores = self._recording.result
        else:
            with FRAMEWORK.no_gradients():
                self.scores = run(lambda tensor: tensor)
        self._watch = watches[0]  # of several passes only the first has numbers: jax traces the second
        self.activations = {layer: [use.activation(self.n) for use in uses] for layer, uses in self._watch.uses.items()}

    def gradients(self, seed: Array) -> dict[str, tuple[Array, ...]]:
        """Vector-Jacobian products of this batch; padded rows have a seed of zeros."""
        whole = np.zeros(tuple(self._recording.result.shape), np.float32)
        whole[: self.n] = seed
        found = self._recording.gradients(whole)
        return {layer: tuple(use.gradient(found, self.n) for use in uses) for layer, uses in self._watch.uses.items()}
