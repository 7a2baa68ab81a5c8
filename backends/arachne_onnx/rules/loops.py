"""Rules for Scan and Loop: the forward node keeps the state that entered every step, the gradient walks them backwards.

Both become one reverse Scan. Its body is the forward body, recomputed from the kept state, followed by that body's own
backward nodes; the gradients of outer tensors that the body reads are running sums. So the size of the graph does
not depend on the number of steps, and a Loop may stop after any step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

from onnx import GraphProto, ValueInfoProto, helper

from arachne_onnx.graph import Graph, TensorType, captures, type_from, value_info
from arachne_onnx.rules.tape import BackwardStep, Tape, Thunk, rule


@dataclass
class _Walk:
    """The forward Scan or Loop, in the form that a reverse Scan needs.

    Attributes:
        body: The forward body.
        states: For each state its name on entry, its name on exit, and the outer name of its last value.
        elements: For each sequence read step by step its name inside and outside, axis and direction.
        results: For each sequence written step by step its name inside, its gradient outside, axis and direction.
    """

    body: GraphProto
    states: list[tuple[str, str, str, str | None]]
    elements: list[tuple[str, str, int, int]]
    results: list[tuple[str, str, int, int]]


@rule("Scan")
def scan(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """See the top of the file."""
    body: GraphProto = step.get("body")
    sequences = step.get("num_scan_inputs")
    count = len(step.inputs) - sequences
    inside, leaving = [value.name for value in body.input], [value.name for value in body.output]
    axes = step.get("scan_input_axes", [0] * sequences)
    directions = step.get("scan_input_directions", [0] * sequences)
    results = len(leaving) - count
    out_axes = step.get("scan_output_axes", [0] * results)
    out_directions = step.get("scan_output_directions", [0] * results)
    kept = _keep(tape, step, inside[:count])
    walk = _Walk(
        body,
        [(inside[i], leaving[i], step.outputs[i], step.gradients[i]) for i in range(count)],
        [(inside[count + i], step.inputs[count + i], axes[i], directions[i]) for i in range(sequences)],
        [
            (leaving[count + i], gradient, out_axes[i], out_directions[i])
            for i in range(results)
            if (gradient := step.gradients[count + i]) is not None
        ],
    )
    return _gradients(tape, walk, kept, [*inside, *sorted(captures(body))])


@rule("Loop")
def loop(tape: Tape, step: BackwardStep) -> Sequence[Thunk | None]:
    """See the top of the file; the number of each step is kept as well."""
    body: GraphProto = step.get("body")
    inside, leaving = [value.name for value in body.input], [value.name for value in body.output]
    count = len(inside) - 2
    kept = _keep(tape, step, inside)
    walk = _Walk(
        body,
        [(inside[2 + i], leaving[1 + i], step.outputs[i], step.gradients[i]) for i in range(count)],
        [],
        [
            (leaving[1 + i], gradient, 0, 0)
            for i in range(count, len(leaving) - 1)
            if (gradient := step.gradients[i]) is not None
        ],
    )
    return [None, None, *_gradients(tape, walk, kept, [*inside[2:], *sorted(captures(body))])]


def _gradients(tape: Tape, walk: _Walk, kept: dict[str, str], names: Sequence[str]) -> list[Thunk]:
    """Return the gradients of states, elements and captures by inner names; the first one asked for writes the Scan."""
    reverse = cache(partial(_reverse, tape, walk, kept))
    return [lambda inner=inner: reverse().get(inner) for inner in names]  # type: ignore[misc]


def _keep(tape: Tape, step: BackwardStep, names: list[str]) -> dict[str, str]:
    """Make the forward node return the inputs of each step; inner name -> outer name of the stacked values."""
    attribute = next(attribute for attribute in step.node.attribute if attribute.name == "body")
    kept = {}
    for name in names:
        copy, outer = tape.name(), tape.name()
        attribute.g.node.append(helper.make_node("Identity", [name], [copy]))
        attribute.g.output.append(ValueInfoProto(name=copy))
        step.node.output.append(outer)
        kept[name] = outer
    for listed in step.node.attribute:
        if listed.name in ("scan_output_axes", "scan_output_directions"):
            listed.ints.extend([0] * len(names))
    return kept


def _reverse(tape: Tape, walk: _Walk, kept: dict[str, str]) -> dict[str, str]:
    """Write the reverse Scan; inner name of a state, element or capture -> outer name of its gradient."""
    graph = _body_graph(tape, walk)
    outer_reads = [name for name in sorted(captures(walk.body)) if name in tape.active]
    states = [state for state in walk.states if _is_float(graph, state[0])]
    wanted = {state[0] for state in states} | {element[0] for element in walk.elements} | set(outer_reads)
    inner = Tape(graph, straight_through=tape.straight_through, names=tape.names)
    seeds: dict[str, list[str]] = {}
    carried = [(state[0], tape.name()) for state in states]
    for (_, exit_name, _, _), (_, gradient) in zip(states, carried, strict=True):
        seeds.setdefault(exit_name, []).append(gradient)
    given = [(inside, tape.name(), outer, axis, way) for inside, outer, axis, way in walk.results]
    for inside, gradient, _, _, _ in given:
        seeds.setdefault(inside, []).append(gradient)
    found = inner.backward({name: _sum(inner, parts) for name, parts in seeds.items()}, wanted)
    sums = [(name, tape.name()) for name in outer_reads if name in found]
    elements = [element for element in walk.elements if element[0] in found]

    outputs = [found.get(name) or inner.zeros(gradient) for name, gradient in carried]
    outputs += [inner.op("Add", total, found[name]) for name, total in sums]
    outputs += [found[element[0]] for element in elements]
    outputs = [inner.op("Identity", name) for name in outputs]
    # A Scan wants to know the ranks of what its body gives; they are those of what the gradients belong to.
    likes = [(state[2], 0) for state in states] + [(name, 0) for name, _ in sums] + [(e[1], 1) for e in elements]
    inputs = [gradient for _, gradient in carried] + [total for _, total in sums]
    inputs += [*kept, *(element[0] for element in walk.elements), *(entry[1] for entry in given)]
    tape.constants.update(inner.constants)
    body = helper.make_graph(
        [*walk.body.node, *inner.nodes],
        "backward",
        [ValueInfoProto(name=name) for name in inputs],
        [_value_info_like(tape, name, *like) for name, like in zip(outputs, likes, strict=True)],
        list(walk.body.initializer),
    )
    start = [state[3] or tape.zeros(state[2]) for state in states]
    start += [tape.zeros(name) for name, _ in sums]
    fed = [*kept.values(), *(element[1] for element in walk.elements), *(entry[2] for entry in given)]
    walks = [(0, 1)] * len(kept) + [(e[2], 1 - e[3]) for e in walk.elements] + [(e[3], 1 - e[4]) for e in given]
    names = tape.ops(
        "Scan",
        *start,
        *fed,
        outputs=len(outputs),
        body=body,
        num_scan_inputs=len(fed),
        scan_input_axes=[axis for axis, _ in walks],
        scan_input_directions=[way for _, way in walks],
        scan_output_axes=[element[2] for element in elements] or None,
        scan_output_directions=[1 - element[3] for element in elements] or None,
    )
    return dict(zip([*(n for n, _ in carried), *(n for n, _ in sums), *(e[0] for e in elements)], names, strict=True))


def _body_graph(tape: Tape, walk: _Walk) -> Graph:
    """The body as a separate graph; tensors it reads from outside keep their known types."""
    types = {
        info.name: kind
        for info in (*walk.body.input, *walk.body.value_info, *walk.body.output)
        if (kind := type_from(info)) is not None
    }
    for name in captures(walk.body):
        kind = tape.type_of(name)
        if kind is not None:
            types[name] = kind
    constants = {name: value for name, value in tape.graph.constants.items() if name in captures(walk.body)}
    return Graph(list(walk.body.node), constants, {}, tape.graph.opsets, types)


def _value_info_like(tape: Tape, name: str, like: str, fewer: int) -> ValueInfoProto:
    """Return an output of the type of another tensor, with `fewer` axes less."""
    kind = tape.type_of(like)
    if kind is None or kind.shape is None:
        return ValueInfoProto(name=name)
    return value_info(name, TensorType(kind.element, (None,) * (len(kind.shape) - fewer)))


def _is_float(graph: Graph, name: str) -> bool:
    kind: TensorType | None = graph.type_of(name)
    return kind is None or kind.is_float


def _sum(tape: Tape, parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else tape.op("Sum", *parts)
