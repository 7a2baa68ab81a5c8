"""`ClusterBackend`: a model whose inputs are worked on by many machines, shard by shard.

It holds the real backend, which has the weights, tells the layers and saves. Every operation over inputs is asked of
workers, one question per shard, and assembled in the order of the shards, as `ModelBackend` does in one process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from arachne.cluster.models import Change, Model
from arachne.cluster.questions import Ask
from arachne.cluster.team import Team
from arachne.cluster.worker import Piece, Question
from arachne.errors import UsageError
from arachne.model.accumulate import seeds_from
from arachne.model.backend import ActivationAccumulator, Cut, LossGradient, ModelBackend, Seeds, Trace
from arachne.model.cut import sum_weights, weights_of
from arachne.model.fitting import OnStep, Plan
from arachne.model.lazy import is_lazy
from arachne.model.remote import Answer, CachedBuild, ShardCalls
from arachne.model.sharding import join_rows, join_uses, offset_rows, shards
from arachne.model.values import Activation, Array, Description, Inputs, LayerInfo, Weights, batches, count, read, take

if TYPE_CHECKING:
    from distributed import Client

Work = Callable[..., Any]

SHARDS_PER_WORKER = 4
"""Number of shards per worker that are asked about at a time, where answers are as large as the model."""


class ClusterBackend(ModelBackend, reads_inputs=True):
    """A model, and the workers that run it.

    Args:
        inner: The model itself, as it was opened.
        client: A dask client.
        model: How workers open it.
    """

    def __init__(self, inner: ModelBackend, client: Client, model: Model) -> None:
        self.inner = inner
        self.team = Team(client, model)
        self.class_names, self.file_identity = inner.class_names, inner.file_identity
        self.trusted_code, self.opened_with, self.native = inner.trusted_code, inner.opened_with, inner.native
        self.remote = self
        self._base = weights_of(inner)
        self._changed: dict[tuple[str, str], Change | None] = {}
        self._halved = 0
        for name in ("NAME", "SUFFIXES", "SUPPORTS_GRADIENTS", "SUPPORTS_FIT"):
            setattr(self, name, getattr(inner, name))

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
        """Never called: a model is opened by its own backend first."""
        raise UsageError("a cluster runs a model that was opened already")

    @property
    def layers(self) -> Sequence[LayerInfo]:
        """Delegated to the model itself."""
        return self.inner.layers

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Delegated to the model itself."""
        return self.inner.unreachable

    @property
    def unreachable_sizes(self) -> Mapping[str, int]:
        """Delegated to the model itself."""
        return self.inner.unreachable_sizes

    @property
    def score_kind(self) -> str:  # type: ignore[override]  # the model itself may learn it from inputs
        """Delegated to the model itself."""
        return self.inner.score_kind

    @property
    def separate_outputs(self) -> bool:  # type: ignore[override]  # the model itself may learn it from inputs
        """Delegated to the model itself."""
        return self.inner.separate_outputs

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        return self.inner.get_weights(layer)

    def _read_weights(self, layer: str) -> Mapping[str, Array]:
        return self.inner.read_weights(layer)

    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        self.inner.set_weights(layer, parameter, values)
        stored = self.inner.get_weights(layer)[parameter]
        key = layer, parameter
        self._changed[key] = Change.between(key, self._base[key], stored)

    def _look(self, inputs: Inputs) -> None:
        self.inner.look(inputs)
        self.team.look(inputs)
        for key, values in weights_of(self.inner).items() if set(self._keys()) - set(self._base) else ():
            self._base = {**self._base, key: values}

    def _keys(self) -> list[tuple[str, str]]:
        return [(info.name, parameter) for info in self.layers for parameter in info.parameters]

    def _iterate_shards(self, inputs: Inputs, done: int = 0) -> Iterator[tuple[slice, Inputs]]:
        """Hand over all inputs at once, lazy ones too: the implementations below go over the shards themselves."""
        return iter([(slice(0, count(inputs)), inputs)][done:])

    def _iterate_pieces(self, inputs: Inputs) -> Iterator[Inputs]:
        return iter([inputs])

    def _read_all(self, inputs: Inputs) -> Inputs:
        return inputs

    def _has_several_shards(self, inputs: Inputs) -> bool:
        return False

    def _forward(self, inputs: Inputs) -> Array:
        return join_rows(self.each_shard(call, inputs, "forward"))

    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        return join_uses(self.each_shard(call, inputs, "activations", layer))

    def _forward_through(self, inputs: Inputs, layer: str) -> tuple[Array, tuple[Activation, ...]]:
        found = self.each_shard(call, inputs, "forward_through", layer)
        return join_rows([scores for scores, _ in found]), join_uses([uses for _, uses in found])

    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        found = self.shard_after_shard(call_with_loss, inputs, "weight_gradients", loss, tuple(parameters))
        return sum_weights(next(found), found)

    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        parts = enumerate(shards(count(inputs)))
        asked = {number: ("output_gradients", layer, seed[rows]) for number, rows in parts}
        found = [one.value for one in self.shard_calls(inputs)(call, asked)]
        return tuple(join_rows(uses) for uses in zip(*found, strict=True))

    def _input_gradients(self, inputs: Inputs, loss: LossGradient) -> Inputs:
        found = self.each_shard(call_with_loss, inputs, "input_gradients", loss)
        if isinstance(inputs, Mapping):
            return {name: join_rows([part[name] for part in found]) for name in inputs}
        return join_rows(found)

    def _fit(self, inputs: Inputs, labels: Array, plan: Plan, on_step: OnStep) -> Weights:
        """Train in this process: each step depends on the one before."""
        return self.inner.fit(inputs, labels, plan, on_step=on_step)

    def _trace(self, inputs: Inputs, layers: Sequence[str]) -> Trace:
        """Trace in this process: a trace is larger than the results that are computed from it."""
        return self.inner.trace(inputs, layers)

    def _observe(
        self, inputs: Inputs, layers: Sequence[str], observer: ActivationAccumulator, seeds: Seeds | None
    ) -> None:
        """Observe on the workers where there are several shards and the accumulator can be split; else here."""
        own = observer.split() if len(shards(count(inputs))) > 1 else None
        if own is None:
            self.inner.observe(inputs, layers, observer, seeds)
        else:
            for seen in self.shard_after_shard(observe_shard, inputs, tuple(layers), own, seeds):
                observer.merge(seen)

    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> Cut:
        from arachne.cluster.cut import ClusterCut

        return ClusterCut(self, inputs, layers)

    def halve_batches(self) -> int | None:
        """Halve the batches of this process and of the workers."""
        self._halved += 1
        return self.inner.halve_batches()

    def save(self, path: Path) -> None:
        """Delegated to the model itself."""
        self.inner.save(path)

    @property
    def suffix(self) -> str:
        """Delegated to the model itself."""
        return self.inner.suffix

    def example_inputs(self, n: int, *, seed: int = 0) -> Inputs:
        """Delegated to the model itself."""
        return self.inner.example_inputs(n, seed=seed)

    def export_onnx(self, path: Path, *, inputs: Inputs | None = None, opset: int = 18) -> None:
        """Delegated to the model itself."""
        self.inner.export_onnx(path, inputs=inputs, opset=opset)

    def describe(self) -> Description:
        """Delegated to the model itself."""
        return self.inner.describe()

    def each_shard(self, work: Work, inputs: Inputs, *arguments: Any) -> list[Any]:
        """Call `work(backend, inputs, rows, *arguments)` on every shard and return the results in their order."""
        asked = dict.fromkeys(range(len(shards(count(inputs)))), arguments)
        return [one.value for one in self.shard_calls(inputs)(work, asked)]

    def shard_after_shard(self, work: Work, inputs: Inputs, *arguments: Any) -> Iterator[Any]:
        """Yield the results of `work` shard by shard, for large results: a few shards of each worker at a time."""
        pieces = self.shard_calls(inputs)
        for some in batches(len(shards(count(inputs))), SHARDS_PER_WORKER * self.workers):
            for one in pieces(work, dict.fromkeys(range(some.start, some.stop), arguments)):
                yield one.value

    @property
    def workers(self) -> int:
        """Number of workers there are now."""
        return self.team.workers

    @property
    def processor(self) -> float:
        """Processor time that all answers took so far, in seconds."""
        return self.team.traffic.processor

    def shard_calls(
        self, inputs: Inputs, parts: Sequence[slice] | None = None, build: CachedBuild | None = None
    ) -> ShardCalls:
        """Implementation of `RemoteExecutor.shard_calls`."""
        return WorkerCalls(self.team, inputs, pieces_of(inputs, parts), (self.changes, self._halved), build)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The weights that differ from the model as it was opened."""
        return tuple(change for _, change in sorted(self._changed.items()) if change is not None)


class WorkerCalls:
    """Calls functions on shards that live on workers: an implementation of `ShardCalls`.

    Args:
        team: The workers.
        inputs: The inputs.
        pieces: Their shards.
        state: The weights that differ from the model's file, and how often batches were halved.
        build: An object to build from a shard first, and to cache.
    """

    def __init__(
        self,
        team: Team,
        inputs: Inputs,
        pieces: Sequence[Piece],
        state: tuple[tuple[Change, ...], int],
        build: CachedBuild | None,
    ) -> None:
        self._team, self._inputs, self._pieces, self._state, self._build = team, inputs, pieces, state, build

    def __call__(self, work: Work, arguments: Mapping[int, tuple[Any, ...]]) -> list[Answer]:
        """Implementation of `ShardCalls.__call__`."""
        return self._team.ask([self._ask(number, work, own) for number, own in arguments.items()])

    def _ask(self, number: int, work: Work, arguments: tuple[Any, ...]) -> Ask:
        piece, build = self._pieces[number], self._build
        made = (None, "") if build is None else (build.make, build.key)
        question = Question(self._team.model, *self._state, work, arguments, *made)
        inputs = partial(read, self._inputs, piece.rows)
        return Ask(question, piece, inputs, None if build is None else partial(build.arguments.__getitem__, number))


def pieces_of(inputs: Inputs, parts: Sequence[slice] | None = None) -> list[Piece]:
    """Describe the shards of some inputs, each with a digest of its content or, if it is lazy, of its source."""
    found = []
    for rows in shards(count(inputs)) if parts is None else parts:
        if is_lazy(inputs):
            described = describe_source(take(inputs, rows))
            found.append(Piece(_digest(repr(described).encode()), rows, described))
        else:
            found.append(Piece(_content_digest(take(inputs, rows)), rows))
    return found


def describe_source(inputs: Inputs) -> Mapping[str, Any]:
    """Describe as plain values where lazy inputs are read."""
    from arachne.data.lazy.source_spec import describe

    return describe(inputs)


def _content_digest(inputs: Inputs) -> str:
    digest = hashlib.blake2b(digest_size=16)
    named = inputs if isinstance(inputs, Mapping) else {"": inputs}
    for name, array in named.items():
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def call(backend: ModelBackend, inputs: Inputs, rows: slice, operation: str, *arguments: Any) -> Any:
    """Call an operation of the model on a shard."""
    return getattr(backend, operation)(inputs, *arguments)


def call_with_loss(
    backend: ModelBackend, inputs: Inputs, rows: slice, operation: str, loss: LossGradient, *arguments: Any
) -> Any:
    """Call an operation that takes a loss over all inputs on a shard."""
    return getattr(backend, operation)(inputs, offset_rows(loss, rows.start), *arguments)


def observe_shard(
    backend: ModelBackend,
    inputs: Inputs,
    rows: slice,
    layers: Sequence[str],
    observer: ActivationAccumulator,
    seeds: Seeds | None,
) -> ActivationAccumulator:
    """Show a shard to an empty accumulator and return it."""
    own = observer.split() or observer
    backend.observe(inputs, layers, own, None if seeds is None else seeds_from(seeds, rows.start))
    return own
