"""The table of `scan --layers`: a model's layers, and the weights that cannot be repaired, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from arachne.model.backend import ModelBackend
from arachne.model.values import LayerInfo
from arachne.report.console import Ink
from arachne.text import pluralise

LAYERS_SCHEMA = "arachne.layers/1"

MOST_NAMED = 3
"""Parameters out of reach that are named in the sentence about them."""


@dataclass(frozen=True)
class LayersTable:
    """The layers of a model and their weights.

    Attributes:
        layers: In order of execution, where that is known.
        unreachable: Parameters that cannot be repaired, with the reason.
        sizes: How many weights each of them holds, where that is known.
        executed: Whether the model was run, so that the order is that of execution.
    """

    layers: Sequence[LayerInfo]
    unreachable: Mapping[str, str]
    sizes: Mapping[str, int]
    executed: bool

    @classmethod
    def of(cls, backend: ModelBackend, *, executed: bool) -> LayersTable:
        """The layers of a backend's model."""
        return cls(tuple(backend.layers), dict(backend.unreachable), dict(backend.unreachable_sizes), executed)

    @property
    def weights(self) -> int:
        """How many weights localisation looks at by default: matrices and kernels."""
        return sum(info.parameters[name].size for info in self.layers for name in info.weights)

    @property
    def on_request(self) -> int:
        """How many more it looks at when asked to: biases and the scales of norms."""
        return sum(entry.size for info in self.layers for entry in info.parameters.values()) - self.weights

    @property
    def out_of_reach(self) -> int:
        """How many weights belong to no layer."""
        return sum(self.sizes.values())

    @property
    def reach(self) -> str:
        """How many of all weights can be repaired, in one sentence."""
        within = self.weights + self.on_request
        reach = f"{within:,} of {within + self.out_of_reach:,} weights are in reach"
        if not self.out_of_reach:
            return reach
        largest = sorted(self.sizes, key=lambda name: -self.sizes[name])
        named = ", ".join(f"{self.sizes[name]:,} in {name}" for name in largest[:MOST_NAMED])
        rest = sum(self.sizes[name] for name in largest[MOST_NAMED:])
        return f"{reach}; out of reach: {named}" + (f" and {rest:,} elsewhere" if rest else "")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich when the table is printed."""
        ink = Ink(options.ascii_only)
        order = (
            "in order of execution"
            if self.executed
            else "in the order the model lists them; only a run on data shows the order of execution"
        )
        yield Text(f"{pluralise(len(self.layers), 'layer')}, {order}")
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for heading in ("layer", "kind", "parameters", "dtype"):
            table.add_column(heading, overflow="fold")
        table.add_column("weights", justify="right")
        for info in self.layers:
            shapes = ", ".join(f"{name} {_shape(entry.shape)}" for name, entry in info.parameters.items())
            kind = info.kind if info.uses == 1 else f"{info.kind}, used {info.uses} times"
            dtypes = ", ".join(dict.fromkeys(entry.dtype for entry in info.parameters.values()))
            size = sum(entry.size for entry in info.parameters.values())
            table.add_row(ink.text(info.name), kind, shapes, dtypes, f"{size:,}")
        yield table
        yield Text(
            f"{self.weights:,} weights in matrices and kernels, {self.on_request:,} more in biases and norm scales"
        )
        yield ink.text(self.reach)
        if self.unreachable:
            yield Text(f"\n{pluralise(len(self.unreachable), 'parameter')} cannot be repaired:")
            for name, reason in self.unreachable.items():
                held = f" ({pluralise(self.sizes[name], 'weight')})" if name in self.sizes else ""
                yield ink.text(f"  {name}{held}: {reason}")


def layers_object(table: LayersTable, *, backend: str) -> dict[str, Any]:
    """The object that `scan --layers --json` prints."""
    return {
        "schema": LAYERS_SCHEMA,
        "backend": backend,
        "executed": table.executed,
        "layers": [
            {
                "name": info.name,
                "kind": info.kind,
                "uses": info.uses,
                "parameters": {
                    name: {"shape": list(entry.shape), "dtype": entry.dtype, "weights": entry.size}
                    for name, entry in info.parameters.items()
                },
            }
            for info in table.layers
        ],
        "weights": table.weights,
        "weights_on_request": table.on_request,
        "weights_out_of_reach": table.out_of_reach,
        "unreachable": [
            {"parameter": name, "weights": table.sizes.get(name), "reason": reason}
            for name, reason in table.unreachable.items()
        ],
    }


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "1"
