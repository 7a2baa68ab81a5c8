"""The reference network held open: only what depends on the touched layers is computed again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne.backend import Cut, Weights
from arachne.errors import UnknownLayerError, WeightShapeError, did_you_mean
from arachne.testing.networks import Network
from arachne.testing.running import ByLayer, Values, run, value_of
from arachne.values import Array, batches


class ReferenceCut(Cut):
    """A cut through the network, kept as every value that crosses it; a residual block has more than one."""

    def __init__(self, network: Network, weights: ByLayer, layers: Sequence[str], batch_size: int) -> None:
        self._network = network
        self._weights = weights
        self._layers = tuple(layers)
        self._batch_size = batch_size
        uses = {node.name for layer in layers for node in network.uses(layer)}
        behind: dict[str, None] = {}
        for node in network.nodes:
            if node.name in uses or any(source in behind for source in node.sources):
                behind[node.name] = None
        self._behind = [node for node in network.nodes if node.name in behind]
        self._crossing = {source for node in self._behind for source in node.sources if source not in behind}
        first = network.layer_of(self._behind[0])
        self.layer = self._behind[0].name if first is None else first.name
        self._kept: Values = {}

    def keep(self, parts: Sequence[Values]) -> None:
        """Keep what crosses the cut, from a forward pass in parts."""
        names = self._crossing | ({self._network.nodes[-1].name} - {node.name for node in self._behind})
        self._kept = {name: np.concatenate([part[name] for part in parts]) for name in names}

    def outputs(self, rows: Array | None = None) -> Array:
        """What leaves the layer at its first use."""
        first = self._behind[0]
        return np.concatenate([value_of(self._network, first, part, self._weights) for part in self._parts(rows)])

    def scores_from_outputs(self, outputs: Array, rows: Array | None = None) -> Array:
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

    def scores_with(self, weights: Weights, rows: Array | None = None) -> Array:
        """Continue with other weights."""
        changed: ByLayer = dict(self._weights)
        for (layer, parameter), values in weights.items():
            self._check(layer, parameter, values)
            own = changed[layer]
            changed[layer] = {**own, parameter: np.asarray(values, own[parameter].dtype)}
        scores = self._network.nodes[-1].name
        return np.concatenate([run(self._network, self._behind, part, changed)[scores] for part in self._parts(rows)])

    def _check(self, layer: str, parameter: str, values: Array) -> None:
        if layer not in self._layers:
            raise UnknownLayerError(f"the cut was not made for layer '{layer}'" + did_you_mean(layer, self._layers))
        own = self._weights[layer]
        if parameter not in own:
            raise UnknownLayerError(f"layer '{layer}' has no parameter '{parameter}'" + did_you_mean(parameter, own))
        if values.shape != own[parameter].shape:
            raise WeightShapeError(
                f"layer '{layer}' has a {parameter} of shape {own[parameter].shape}, got values of shape {values.shape}"
            )

    def _parts(self, rows: Array | None) -> Sequence[Values]:
        kept = self._kept if rows is None else {name: values[rows] for name, values in self._kept.items()}
        n = len(next(iter(kept.values())))
        return [{name: values[part] for name, values in kept.items()} for part in batches(max(n, 1), self._batch_size)]
