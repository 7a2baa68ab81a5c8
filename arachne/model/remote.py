"""Interface of a backend whose inputs live on remote workers: all that the core knows of a cluster.

Such a backend overrides how the operations of the contract go over inputs (`arachne.cluster.backend`). The fast
evaluator sums deficits where the inputs are (`arachne.scoring.fast.remote`); a few others ask for `ModelBackend.remote`
to leave out what would fetch the inputs. Shards are no part of it (`arachne.model.sharding`, `Cut.scores_by_shard`):
they fix the order of sums, so that one process and many workers give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from arachne.model.values import Inputs


@dataclass(frozen=True, eq=False)
class CachedBuild:
    """An object a worker builds from its shard and caches.

    Attributes:
        make: A function of a module, `make(backend, inputs, rows, *arguments)`.
        arguments: For each shard, plain values and arrays.
        key: A name for what is built.
    """

    make: Callable[..., Any]
    arguments: Sequence[tuple[Any, ...]]
    key: str


@dataclass(frozen=True, eq=False)
class Answer:
    """The result of a call on one shard.

    Attributes:
        value: The result.
        seconds: How long it took.
        processor: How much of a processor's time it took, in seconds.
        worker: The address of the worker that answered.
        build_id: An id of the object that was built from the shard; it changes when the object is rebuilt.
    """

    value: Any
    seconds: float
    processor: float = 0.0
    worker: str = ""
    build_id: str = ""


class ShardCalls(Protocol):
    """Calls functions on shards of some inputs, with the weights the model had when the shards were handed out."""

    def __call__(self, work: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]) -> list[Answer]:
        """Call `work` on some shards at once and return the answers in the order of `arguments`.

        Args:
            work: A function of a module: `work(backend, inputs, rows, *arguments)`, or `work(built, *arguments)`.
            arguments: For each shard to call it on, by number: plain values, arrays and losses.
        """


class RemoteExecutor(Protocol):
    """Runs functions on shards of inputs in other processes."""

    @property
    def workers(self) -> int:
        """Number of shards that are worked on at a time."""

    @property
    def processor(self) -> float:
        """Processor time that all answers took so far, in seconds."""

    def shard_calls(
        self, inputs: Inputs, parts: Sequence[slice] | None = None, build: CachedBuild | None = None
    ) -> ShardCalls:
        """Hand out some inputs to the workers: their shards, or other parts of them."""
