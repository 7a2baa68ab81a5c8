"""Work that is done elsewhere: what a backend offers whose inputs are with other machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from arachne.values import Inputs


@dataclass(frozen=True, eq=False)
class Making:
    """What is made of a piece and kept where the piece is.

    Attributes:
        make: A function of a module, `make(backend, inputs, rows, *arguments)`.
        arguments: For each piece, plain values and arrays.
        key: A name for what is made.
    """

    make: Callable[..., Any]
    arguments: Sequence[tuple[Any, ...]]
    key: str


@dataclass(frozen=True, eq=False)
class Answer:
    """What is said about one piece.

    Attributes:
        value: The result.
        seconds: How long it took.
        processor: How much of a processor's time it took, in seconds.
        worker: Who answered.
        made: A name for what was made of the piece; another name means that it was made again.
    """

    value: Any
    seconds: float
    processor: float = 0.0
    worker: str = ""
    made: str = ""


class Pieces(Protocol):
    """Pieces of some inputs elsewhere, with the weights the model had when they were handed out."""

    def __call__(self, work: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]) -> list[Answer]:
        """What `work` says of some pieces, asked at once and answered in the order of `arguments`.

        Args:
            work: A function of a module: `work(backend, inputs, rows, *arguments)`, or `work(made, *arguments)`.
            arguments: For each piece that is asked about, by its number, plain values, arrays and losses.
        """


class Elsewhere(Protocol):
    """Where pieces of inputs are worked on, if not in this process."""

    @property
    def workers(self) -> int:
        """How many pieces are worked on at a time."""

    @property
    def processor(self) -> float:
        """How much processor time answers have taken so far, in seconds."""

    def pieces(self, inputs: Inputs, parts: Sequence[slice] | None = None, making: Making | None = None) -> Pieces:
        """Hand out pieces of some inputs: their shards, or other parts of them."""
