"""Recurrent layers: torch computes all their steps in one call and shows none, so they are computed again step by step.

One layer and direction is one canonical layer, `lstm.l0` or `lstm.l0_reverse`, used once for a whole sequence. Its
inputs are `(n, steps, in)` and the states before each step, `(n, steps, units)`; its output is the pre-activations of
the gates, `(n, steps, gates * units)`, in the order i f g o or r z n. Steps are in the order of the sequence, also in
the direction that reads backwards. The output for n of a GRU is the input's part plus r times the state's.

An LSTM with projections multiplies its new state with one more matrix. That is a separate dense layer,
`lstm.l0.projection`, since its inputs are not those of the gates.

Packed sequences are unpacked first: steps behind a sequence's end are zeros, and rows are in the order of the model's
inputs, even if packing sorted them by length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from arachne_torch.kinds import Bound, Kind, LayerUse, ObservedUse
from arachne_torch.lstm import LSTMSteps
from arachne_torch.names import layer_name
from arachne_torch.tensor_ids import TensorIds, operation

PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")

CellFunction = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor | None]]
"""Maps the products of inputs and state, the probe and the cell (or state) to gates, new state and new cell."""


def _lstm(inputs: Tensor, state: Tensor, probe: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    gates = inputs + state + probe
    i, f, g, o = gates.chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return gates, o.sigmoid() * cell.tanh(), cell


def _gru(inputs: Tensor, state: Tensor, probe: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    (x_r, x_z, x_n), (h_r, h_z, h_n), (p_r, p_z, p_n) = (part.chunk(3, -1) for part in (inputs, state, probe))
    r, z = x_r + h_r + p_r, x_z + h_z + p_z
    n = x_n + r.sigmoid() * h_n + p_n
    update = z.sigmoid()
    return torch.cat([r, z, n], -1), (1 - update) * n.tanh() + update * before, None


def _tanh(inputs: Tensor, state: Tensor, probe: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    gates = inputs + state + probe
    return gates, gates.tanh(), None


def _relu(inputs: Tensor, state: Tensor, probe: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    gates = inputs + state + probe
    return gates, gates.relu(), None


STEPS: Mapping[str, CellFunction] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _tanh, "rnn_relu": _relu}


class Cell(Kind):
    """One step of a recurrent layer as a separate call (`nn.LSTMCell`): one use per step."""

    continues: ClassVar[bool] = False

    def find(self, call: Callable[..., Any], bound: Bound, tensor_ids: TensorIds) -> tuple[LayerUse, ...]:
        """The four tensors by name."""
        slices = {name: tensor_ids.slice_of(bound.get(name)) for name in PARAMETERS}
        owned = {name: slice_ for name, slice_ in slices.items() if slice_ is not None and slice_.rows is None}
        if not {"weight_ih", "weight_hh"} <= owned.keys():
            return ()
        return (LayerUse(self, layer_name(owned["weight_ih"].name), owned, call, bound),)

    def watch(
        self, uses: Sequence[LayerUse], compute: Callable[[], Any], tensor_ids: TensorIds, *, probed: bool
    ) -> tuple[Any, list[ObservedUse]]:
        """The step's own arithmetic in place of torch's call."""
        (use,) = uses
        bound, name = use.bound, operation(use.call).removesuffix("_cell")
        x, hx = bound["input"], bound["hx"]
        h, cell = (hx[0], hx[1]) if name == "lstm" else (hx, hx)
        from_input = functional.linear(x, bound["weight_ih"], bound.get("bias_ih"))
        from_state = functional.linear(h, bound["weight_hh"], bound.get("bias_hh"))
        probe = torch.zeros_like(from_input, requires_grad=probed)
        gates, new, new_cell = STEPS[name](from_input, from_state, probe, cell)
        seen = ObservedUse(use, {"weight_ih": x, "weight_hh": h}, gates, probe)
        return (new, new_cell) if name == "lstm" else new, [seen]


class Recurrent(Kind):
    """`lstm`, `gru`, `rnn_tanh` and `rnn_relu`: any number of layers, both directions, projections, packed or not."""

    continues: ClassVar[bool] = False

    def bind(self, call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
        """Packed sequences have their batch sizes second and no `batch_first`."""
        packed = len(args) > 3 and isinstance(args[3], (list, tuple))
        names = "input batch_sizes hx params" if packed else "input hx params"
        names += " has_biases num_layers dropout train bidirectional batch_first"
        return {**dict(zip(names.split(), args, strict=False)), **kwargs}

    def find(self, call: Callable[..., Any], bound: Bound, tensor_ids: TensorIds) -> tuple[LayerUse, ...]:
        """One use for each layer and direction, and one for each projection."""
        found: list[LayerUse] = []
        if getattr(bound["input"], "ndim", 3) == 2 and "batch_sizes" not in bound:
            return ()  # a single sequence, so the batch is its steps
        for way, parameters in enumerate(groups(bound)):
            slices = [tensor_ids.slice_of(parameter) for parameter in parameters.values()]
            if any(slice_ is None or slice_.rows is not None for slice_ in slices):
                return ()
            owned = {name: slice_ for name, slice_ in zip(parameters, slices, strict=True) if slice_ is not None}
            projection = owned.pop("weight_hr", None)
            found.append(LayerUse(self, layer_name(owned["weight_ih"].name), owned, call, bound, way=way))
            if projection is not None:
                found.append(
                    LayerUse(PROJECTION, layer_name(projection.name), {"weight": projection}, call, bound, way=way)
                )
        return tuple(found)

    def watch(
        self, uses: Sequence[LayerUse], compute: Callable[[], Any], tensor_ids: TensorIds, *, probed: bool
    ) -> tuple[Any, list[ObservedUse]]:
        """Every step of the one layer of this call, in place of torch's call."""
        call = Unrolled(operation(uses[0].call), uses[0].bound, tensor_ids, probed)
        return call.result, [call.observe(use) for use in uses]


class Projection(Recurrent):
    """The dense map behind an LSTM with projections; its call is the LSTM's."""


PROJECTION = Projection("dense", "")


def groups(bound: Bound) -> list[dict[str, Tensor]]:
    """The parameters of a call, one group for each layer and direction."""
    count = int(bound["num_layers"]) * (2 if bound["bidirectional"] else 1)
    params = list(bound["params"])
    size = len(params) // max(count, 1)
    names = list(PARAMETERS if bound["has_biases"] else PARAMETERS[:2])
    names += ["weight_hr"] if size > len(names) else []
    return [dict(zip(names, params[at : at + size], strict=True)) for at in range(0, len(params), max(size, 1))]


def one_by_one(call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a call of several layers as one call per layer."""
    bound = Recurrent("recurrent", "").bind(call, args, kwargs)
    ways, per = 2 if bound["bidirectional"] else 1, len(bound["params"]) // int(bound["num_layers"])
    states = bound["hx"] if isinstance(bound["hx"], (tuple, list)) else (bound["hx"],)
    x, last = bound["input"], []
    for layer in range(int(bound["num_layers"])):
        own = [state[layer * ways : (layer + 1) * ways] for state in states]
        hx = own if len(own) > 1 else own[0]
        params = list(bound["params"][layer * per : (layer + 1) * per])
        settings = (bound["has_biases"], 1, 0.0, False, bound["bidirectional"])
        if "batch_sizes" in bound:
            x, *found = call(x, bound["batch_sizes"], hx, params, *settings)
        else:
            x, *found = call(x, hx, params, *settings, bound["batch_first"])
        last.append(found)
    return (x, *(torch.cat(parts) for parts in zip(*last, strict=True)))


@dataclass(eq=False)
class _Direction:
    """Results of one direction: all are `(steps, n, ...)`, the last states `(n, ...)`."""

    states: Tensor
    gates: Tensor
    hidden: Tensor
    outputs: Tensor
    last: list[Tensor]
    probes: Mapping[str, Tensor]


def _needs_gradients(parameters: Mapping[str, Tensor]) -> bool:
    return any(parameter.requires_grad for parameter in parameters.values()) and torch.is_grad_enabled()


class Unrolled:
    """A call of one layer computed step by step.

    Args:
        name: The call's name.
        bound: Its arguments.
        tensor_ids: The model's tensors by identity.
        probed: Whether gradients will be asked for.

    Attributes:
        result: What the call gives.
    """

    def __init__(self, name: str, bound: Bound, tensor_ids: TensorIds, probed: bool) -> None:
        self._step, self._bound, self._probed = STEPS[name], bound, probed
        self._sizes = bound.get("batch_sizes")
        self._order = None if self._sizes is None else tensor_ids.order(self._sizes)
        self._x = x = self._steps_first(bound["input"])
        self._there = None
        if self._sizes is not None:  # (steps, n, 1): whether a sequence is that long
            rows = torch.arange(x.shape[1], device=x.device)
            self._there = (rows[None] < self._sizes.to(x.device)[:, None]).unsqueeze(-1)
        hx = bound["hx"]
        starts = list(hx) if isinstance(hx, (tuple, list)) else [hx]
        self._ways = [
            self._direction(parameters, [start[way] for start in starts], bool(way))
            for way, parameters in enumerate(groups(bound))
        ]
        outputs = torch.cat([way.outputs for way in self._ways], -1)
        last = [torch.stack(states) for states in zip(*(way.last for way in self._ways), strict=True)]
        self.result = (self._as_given(outputs), *last)

    def observe(self, use: LayerUse) -> ObservedUse:
        """Return the tensors of one use in this call."""
        way = self._ways[use.way]
        if use.kind is PROJECTION:
            entering, leaving, handle = {"weight": way.hidden}, way.outputs, way.probes["outputs"]
        else:
            entering, leaving, handle = {"weight_ih": self._x, "weight_hh": way.states}, way.gates, way.probes["gates"]
        shown = {name: self._by_input(values) for name, values in entering.items()}
        return ObservedUse(use, shown, self._by_input(leaving), handle, by_input=True)

    def _direction(self, parameters: Mapping[str, Tensor], start: list[Tensor], backwards: bool) -> _Direction:
        steps, n = self._x.shape[:2]
        from_inputs = functional.linear(self._x, parameters["weight_ih"], parameters.get("bias_ih"))
        projection = parameters.get("weight_hr")
        probes = {"gates": self._probe(n, steps, from_inputs.shape[-1])}
        if projection is not None:
            probes["outputs"] = self._probe(n, steps, len(projection))
        if self._step is _lstm and projection is None and self._there is None and not _needs_gradients(parameters):
            weight, bias = parameters["weight_hh"], parameters.get("bias_hh")
            outputs, states, gates, *last = LSTMSteps.apply(  # type: ignore[no-untyped-call]  # torch has no type for it
                from_inputs, probes["gates"], start[0], start[1], weight, bias, backwards
            )
            return _Direction(states, gates, outputs, outputs, last, probes)
        # Taken apart once: a step's gradient is then as large as the step, not as the sequence.
        x, added = from_inputs.unbind(0), {name: self._sort_rows(probe).unbind(1) for name, probe in probes.items()}
        h, cell = start[0], start[-1]
        seen: list[tuple[Tensor, ...]] = []
        for t in reversed(range(steps)) if backwards else range(steps):
            from_state = functional.linear(h, parameters["weight_hh"], parameters.get("bias_hh"))
            gates, hidden, new_cell = self._step(x[t], from_state, added["gates"][t], cell)
            new = hidden if projection is None else functional.linear(hidden, projection) + added["outputs"][t]
            seen.append((h, gates, hidden, new))
            h, cell = (
                self._advance_state(t, new, h),
                self._advance_state(t, new if new_cell is None else new_cell, cell),
            )
        if backwards:
            seen.reverse()
        states, gates, hidden, outputs = (self._zero_padding(torch.stack(values)) for values in zip(*seen, strict=True))
        return _Direction(states, gates, hidden, outputs, [h, cell][: len(start)], probes)

    def _probe(self, n: int, steps: int, width: int) -> Tensor:
        """Return zeros in the order of the inputs; their gradient is that of the tensor they are added to."""
        return torch.zeros(n, steps, width, dtype=self._x.dtype, device=self._x.device, requires_grad=self._probed)

    def _advance_state(self, t: int, new: Tensor, before: Tensor) -> Tensor:
        return new if self._there is None else torch.where(self._there[t], new, before)

    def _zero_padding(self, values: Tensor) -> Tensor:
        return values if self._there is None else torch.where(self._there, values, torch.zeros_like(values))

    def _sort_rows(self, values: Tensor) -> Tensor:
        return values if self._order is None else values.index_select(0, self._order)

    def _by_input(self, values: Tensor) -> Tensor:
        """`(n, steps, ...)` in the order of the inputs."""
        values = values.transpose(0, 1)
        return values if self._order is None else values.index_select(0, self._order.argsort())

    def _steps_first(self, x: Tensor) -> Tensor:
        """`(steps, n, in)`, with zeros behind the end of packed sequences."""
        if self._sizes is not None:
            padded: Tensor = torch._VF._pad_packed_sequence(x, self._sizes, False, 0.0, len(self._sizes))[0]
            return padded
        return x.transpose(0, 1) if self._bound["batch_first"] else x

    def _as_given(self, values: Tensor) -> Tensor:
        if self._sizes is not None:
            lengths = (self._sizes[:, None] > torch.arange(int(self._sizes[0]))).sum(0)
            packed: Tensor = torch._VF._pack_padded_sequence(values, lengths, False)[0]
            return packed
        return values.transpose(0, 1) if self._bound["batch_first"] else values
