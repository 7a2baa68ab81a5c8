"""`ModelInputs`: how the operations of a model go over inputs: checked, shard by shard, resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import final

from arachne.model.forks import leave_model_to_parent
from arachne.model.lazy import MEMORY, is_lazy, is_plain
from arachne.model.passes import PassKeeper, PassState
from arachne.model.remote import RemoteExecutor
from arachne.model.sharding import SHARD, read_shards, shards
from arachne.model.values import EVEN, Inputs, batches, check_inputs, count, count_bytes, read
from arachne.model.weights import ModelWeights

PIECE_SHARE, MIN_PIECE_BYTES = 4, 16 << 20
"""Where rows are computed, lazy inputs are read into one part of this many of `memory` at a time, or so many bytes."""


READING_INPUTS = ("_iterate_shards", "_iterate_pieces", "_read_all", "_has_several_shards")
"""How operations go over inputs, which only a backend that hands them to others says itself."""


class ModelInputs(ModelWeights):
    """How the operations of `ModelBackend` go over inputs. A cluster's backend replaces this, see `READING_INPUTS`."""

    pass_keeper: PassKeeper | None = None
    """Keeps what the passes of a localisation have added up, while a repair runs; None keeps nothing."""

    memory: int = MEMORY
    """How many bytes of activations a cut or a tail may hold, as the repair says; beyond, shards are run again."""

    remote: RemoteExecutor | None = None
    """Runs work on shards of inputs in other processes; None where this process computes."""

    def _look(self, inputs: Inputs) -> None:  # most backends need not look
        """Called with the inputs of every operation below, before names of layers are checked.

        Here a backend learns what only inputs can tell (the order of the layers, how the model ends).

        Raises:
            DataError: Inputs of a shape or dtype the model does not take.
        """

    @final
    def _check_arguments(self, inputs: Inputs, layers: Iterable[str] = ()) -> None:
        """Validate the arguments of an operation on inputs."""
        leave_model_to_parent()
        check_inputs(inputs)
        self._look(inputs if is_plain(inputs) else read(inputs, self._pieces(inputs)[0]))
        for layer in layers:
            self.info(layer)

    def _iterate_shards(self, inputs: Inputs, done: int = 0) -> Iterator[tuple[slice, Inputs]]:
        """Yield `(rows, inputs)` for each call of an adapter's implementation, but for the first `done` ones."""
        return read_shards(inputs, done)

    def _iterate_pieces(self, inputs: Inputs) -> Iterator[Inputs]:
        """Yield the inputs of each call whose results are rows: shards, or less of lazy ones where that is much."""
        if not is_lazy(inputs):
            return (piece for _, piece in self._iterate_shards(inputs))
        return (read(inputs, rows) for rows in self._pieces(inputs))

    def _read_all(self, inputs: Inputs) -> Inputs:
        """Return the inputs as `_trace` and `_cut` get them: in memory."""
        return read(inputs)

    def _has_several_shards(self, inputs: Inputs) -> bool:
        """Tell whether the operations go over several shards of these inputs, one after the other."""
        return count(inputs) > SHARD

    @final
    def _pieces(self, inputs: Inputs) -> list[slice]:
        """Return the rows that are read at a time: at most a shard, and a share of memory or `MIN_PIECE_BYTES`."""
        allowed = max(MIN_PIECE_BYTES, self.memory // PIECE_SHARE)
        most = allowed * count(inputs) // max(1, count_bytes(inputs))
        return list(batches(count(inputs), max(EVEN, most))) if most < SHARD else shards(count(inputs))

    @final
    def _begin_pass(self, kind: str, inputs: Inputs, names: Sequence[object]) -> tuple[int, PassState]:
        """Return how many shards of a pass an earlier run had done, and what it had added up."""
        keeper = self.pass_keeper
        return (0, {}) if keeper is None or keeper.block is None else keeper.begin(kind, inputs, names)

    @final
    def _keep_pass(self, done: int, state: Callable[[], PassState | None]) -> None:
        if self.pass_keeper is not None and self.pass_keeper.block is not None:
            self.pass_keeper.keep(done, state)

    @final
    def look(self, inputs: Inputs) -> None:
        """Let the backend learn from inputs what the model's file does not contain; `layers` is complete afterwards.

        No input passes through the model.

        Raises:
            DataError: Inputs of a shape or dtype the model does not take.
        """
        self._check_arguments(inputs)
