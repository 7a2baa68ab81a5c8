"""Resumable passes: the sums of a pass over many inputs are kept shard by shard, for a run that is killed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from arachne.model.values import Array, Inputs, Weights

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

PassState = Mapping[str, Array]
"""Arrays by name, from which a pass resumes."""


class PassKeeper(Protocol):
    """Keeps passes for the next run; `results.checkpoint` has the implementation that writes files."""

    block: str | None
    """The name of the block that passes are kept in; None keeps none."""

    def begin(self, kind: str, inputs: Inputs, names: Sequence[object]) -> tuple[int, PassState]:
        """Begin a pass; return how many of its shards an earlier run had done, and the state after them.

        Args:
            kind: The kind of pass.
            inputs: Its inputs.
            names: The layers or parameters that it is about.
        """

    def keep(self, done: int, state: Callable[[], PassState | None]) -> None:
        """Keep the state of this pass after some of its shards, if that is due and there is one."""


@contextmanager
def resuming_passes(backend: ModelBackend, name: str) -> Iterator[None]:
    """A block whose passes resume where an earlier run of the same block was killed, if the run keeps passes.

    The block has to make the same passes in the same order in every run.
    """
    keeper = backend.pass_keeper
    if keeper is None:
        yield
        return
    keeper.block = name
    try:
        yield
    finally:
        keeper.block = None


def state_of(weights: Weights, keys: Sequence[tuple[str, str]]) -> PassState:
    """Return the sums of a pass for some parameters, by their numbers."""
    return {str(number): weights[key] for number, key in enumerate(keys)}


def weights_in(
    state: PassState, keys: Sequence[tuple[str, str]], shapes: Sequence[tuple[int, ...]]
) -> dict[tuple[str, str], Array]:
    """Return the weights that `state_of` was given; nothing where they do not have these shapes."""
    found = {key: state[str(number)] for number, key in enumerate(keys) if str(number) in state}
    fits = len(found) == len(shapes) and all(map(operator.eq, (one.shape for one in found.values()), shapes))
    return found if fits else {}
