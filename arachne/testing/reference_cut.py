"""The reference network held open: only what depends on the touched layers is computed again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.errors import WeightShapeError
from arachne.model.backend import Cut, LossGradient, Weights, compute_gradient
from arachne.model.values import Array, LayerInfo, batches
from arachne.testing.networks import Network
from arachne.testing.running import ByLayer, Values, leaving_of, nodes_behind, run, run_back, weight_gradients


class ReferenceCut(Cut):
    """A cut through the network, kept as every value that crosses it; a residual block has more than one."""

    def __init__(self, network: Network, weights: ByLayer, layers: Sequence[LayerInfo], batch_size: int) -> None:
        self._network = network
        self._weights = weights
        self._batch_size = batch_size
        self._behind = nodes_behind(network, {info.name for info in layers})
        made = {node.name for node in self._behind}
        self._crossing = {source for node in self._behind for source in node.sources if source not in made}
        first = network.layer_of(self._behind[0])
        # What leaves a recurrent layer are its gates, and the next node takes its states.
        super().__init__(
            self._behind[0].name if first is None else first.name,
            layers,
            continues_from_outputs=first is None or first.LEAVES_ITS_VALUE,
        )
        self._kept: Values = {}

    def keep(self, parts: Sequence[Values]) -> None:
        """Keep what crosses the cut, from a forward pass in parts."""
        names = self._crossing | ({self._network.nodes[-1].name} - {node.name for node in self._behind})
        self._kept = {name: np.concatenate([part[name] for part in parts]) for name in names}

    def outputs(self, rows: Array | None = None) -> Array:
        """Compute the layer's outputs at its first use."""
        first = self._behind[0]
        return np.concatenate([leaving_of(self._network, first, part, self._weights) for part in self._parts(rows)])

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        """Continue from other outputs."""
        first, scores = self._behind[0].name, self._network.nodes[-1].name
        found, start, parts = [], 0, self._parts(rows)
        n = sum(len(next(iter(part.values()))) for part in parts)
        if len(outputs) != n:
            raise WeightShapeError(f"expected the outputs of {n} rows, got those of {len(outputs)}")
        for part in parts:
            kept = next(iter(part.values()))
            stop = start + len(kept)
            values = {**part, first: outputs[start:stop].astype(kept.dtype, copy=False)}
            found.append(run(self._network, self._behind[1:], values, self._weights)[scores])
            start = stop
        return np.concatenate(found)

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        """Continue with other weights."""
        changed, scores = self._weights_with(weights), self._network.nodes[-1].name
        return np.concatenate([run(self._network, self._behind, part, changed)[scores] for part in self._parts(rows)])

    def _weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None) -> Weights:
        """Forward and back over the nodes behind the cut."""
        network, changed, scores = self._network, self._weights_with(weights), self._network.nodes[-1].name
        total = {
            (layer, parameter): np.zeros_like(values)
            for layer in self.layers
            for parameter, values in changed[layer].items()
        }
        done = 0
        for part in self._parts(rows):
            values = run(network, self._behind, part, changed)
            here = slice(done, done + len(values[scores]))
            done = here.stop
            if here.stop > here.start:
                seed = compute_gradient(loss, values[scores], here).astype(values[scores].dtype, copy=False)
                gradients = run_back(network, values, seed, changed, self._behind)
                found = weight_gradients(network, self.layers, values, gradients, changed)
                for key, sums in total.items():
                    sums += found[key]
        return total

    def _weights_with(self, weights: Weights) -> ByLayer:
        """Return the weights the model was cut with, some of them replaced."""
        changed: ByLayer = dict(self._weights)
        for (layer, parameter), values in weights.items():
            own = changed[layer]
            changed[layer] = {**own, parameter: np.asarray(values, own[parameter].dtype)}
        return changed

    def _parts(self, rows: Array | None) -> Sequence[Values]:
        kept = self._kept if rows is None else {name: values[rows] for name, values in self._kept.items()}
        n = len(next(iter(kept.values())))
        return [{name: values[part] for name, values in kept.items()} for part in batches(max(n, 1), self._batch_size)]
