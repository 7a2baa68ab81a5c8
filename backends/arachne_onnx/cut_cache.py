"""The tensors that cross a cut: computed once for all inputs, stored batch first, and read by rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from onnx import NodeProto, helper

from arachne.model.values import Array, Inputs, batches
from arachne_onnx.graph import Graph, TensorType, reads
from arachne_onnx.graph_inputs import fill
from arachne_onnx.running import Runner
from arachne_onnx.sessions import Program


class NotCuttableError(Exception):
    """A tensor that crosses the cut does not have separate rows for each input."""


class CutCache:
    """Tensors of one graph, for all inputs of a cut.

    Args:
        runner: The model, after `look`.
        graph: The graph.
        feeds: The model's inputs.
        frozen: Weights that differed from the file when the model was cut, in the graph's dtypes.
    """

    def __init__(self, runner: Runner, graph: Graph, feeds: Inputs, frozen: Mapping[str, Array]) -> None:
        self._runner = runner
        self.graph = graph
        self.frozen = dict(frozen)
        self.arrays: dict[str, Array] = {}
        self.feeds = feeds

    def behind(self, tensors: Collection[str]) -> list[NodeProto]:
        """The nodes that depend on these tensors and that the scores depend on, in order.

        Whole numbers that they read are dequantised among them, because onnxruntime computes with the numbers.
        """
        reached = set(tensors)
        found = []
        for node in self.graph.nodes:
            if not reached.isdisjoint(reads(node)) and reached.isdisjoint(node.output):
                found.append(node)
                reached.update(node.output)
        read = {name for node in found for name in reads(node)} - reached
        whole = [node for node in self.graph.nodes if node.op_type == "DequantizeLinear" and node.output[0] in read]
        return [*whole, *found]

    def crossing(self, nodes: Sequence[NodeProto]) -> list[str]:
        """List the tensors that these nodes read from outside, except weights."""
        made = {name for node in nodes for name in node.output}
        read = {name for node in nodes for name in reads(node)}
        return sorted(read - made - set(self.graph.constants))

    def keep(self, names: Collection[str]) -> None:
        """Compute tensors once for all inputs and store them batch first."""
        missing = [name for name in names if name not in self.arrays and name not in self._runner.shapes_by_n]
        if not missing:
            return
        self.check_separable(missing)
        computed = [name for name in missing if name not in self.graph.inputs]
        found: dict[str, list[Array]] = {name: [] for name in missing}
        nodes = self.graph.select_nodes(computed)
        program = None
        if computed:
            read = {name for node in nodes for name in reads(node)}
            inputs = {name: kind for name, kind in self.graph.inputs.items() if name in read}
            program = Program(self._runner.device, self.graph, inputs, computed, nodes=nodes, constants=self.frozen)
        for feeds, n in self._runner.batches(self.feeds):
            values = {**feeds, **(program.run(feeds) if program is not None else {})}
            size = len(next(iter(feeds.values())))
            for name in missing:
                if self._runner.batch_axes[name].axis is None:
                    found[name] = [values[name][None]]
                else:
                    found[name].append(self._runner.to_batch_first(name, values[name], n, size))
        for name, parts in found.items():
            self.arrays[name] = np.ascontiguousarray(np.concatenate(parts) if len(parts) > 1 else parts[0])

    def share(self, other: CutCache, names: Collection[str]) -> None:
        """Reuse stored tensors of another graph that have the same dtype."""
        for name in names:
            kind, array = self.graph.type_of(name), other.arrays.get(name)
            if kind is not None and array is not None and helper.tensor_dtype_to_np_dtype(kind.element) == array.dtype:
                self.arrays.setdefault(name, array)

    def check_separable(self, names: Collection[str]) -> None:
        """Refuse tensors without a known batch axis."""
        for name in names:
            if name not in self._runner.batch_axes and name not in self._runner.shapes_by_n:
                raise NotCuttableError(f"the tensor '{name}' mixes the inputs")

    def feed(self, name: str, rows: Array | None, part: slice, size: int) -> Array:
        """Return some rows of a tensor, padded to a size, in the graph's layout."""
        if name in self._runner.shapes_by_n:
            start, slope = self._runner.shapes_by_n[name]
            return np.asarray(start + size * slope)
        kept, batch_axis = self.arrays[name], self._runner.batch_axes[name]
        if batch_axis.axis is None:
            return np.asarray(kept[0])
        if rows is None and batch_axis.plain and size == len(kept):  # every candidate of a search comes this way
            return kept
        return self.from_batch_first(name, fill(select_rows(kept, rows)[part], size))

    def from_batch_first(self, name: str, array: Array) -> Array:
        """Convert rows of a tensor to the graph's layout."""
        batch_axis = self._runner.batch_axes[name]
        return array if batch_axis.plain else np.ascontiguousarray(batch_axis.from_batch_first(array))

    def type_of(self, name: str) -> TensorType:
        """Return the type of a tensor, without names for unknown sizes."""
        kind = self.graph.type_of(name)
        if kind is None:
            raise NotCuttableError(f"the type of '{name}' is not known")
        # With known sizes onnxruntime optimises as it does for the whole model, so the bits agree too.
        sizes = None if kind.shape is None else tuple(size if isinstance(size, int) else None for size in kind.shape)
        return TensorType(kind.element, sizes)

    def dtype_of(self, name: str) -> np.dtype[np.generic]:
        """The dtype of a tensor."""
        dtype: np.dtype[np.generic] = helper.tensor_dtype_to_np_dtype(self.type_of(name).element)
        return dtype

    def parts(self, n: int, step: int) -> Iterator[tuple[slice, int]]:
        """Yield the rows of each run, and the size it must be padded to."""
        fixed = self._runner.fixed
        for part in batches(n, fixed or step) if n else [slice(0, 0)]:
            yield part, fixed or max(1, part.stop - part.start)


def select_rows(array: Array, rows: Array | None) -> Array:
    """Select some rows of an array, or return the array itself."""
    return array if rows is None else array[rows]
