"""Hostile ONNX models. Each is the demo's network with something added or changed, or bytes that are none."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.safety import valid
from tests.safety.case import Case
from tests.safety.lazy import Lazy

onnx: Any = Lazy("onnx")
helper: Any = Lazy("onnx.helper")
to_tensor: Any = Lazy("onnx.numpy_helper")

Edit = Callable[[Any], object]
"""Changes a model in place."""

SCAN = ["scan", "net.onnx", "--data", "data.npz"]


def _scan(edit: Edit) -> Callable[[Path], list[str]]:
    """The demo's model after an edit, and a scan of it."""

    def make(folder: Path) -> list[str]:
        valid.model(folder)
        valid.data(folder)
        model = onnx.load(folder / "net.onnx")
        edit(model)
        (folder / "net.onnx").write_bytes(model.SerializeToString())
        return SCAN

    return make


def _with_patch(edit: Edit, *argv: str) -> Callable[[Path], list[str]]:
    """Give a patch of the model as it was, for the commands that read no more than its weights."""

    def make(folder: Path) -> list[str]:
        valid.patch(folder)
        model = onnx.load(folder / "net.onnx")
        (folder / "good.onnx").write_bytes(model.SerializeToString())
        edit(model)
        (folder / "net.onnx").write_bytes(model.SerializeToString())
        return list(argv)

    return make


def _bytes(content: Callable[[bytes], bytes]) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        valid.model(folder)
        valid.data(folder)
        path = folder / "net.onnx"
        path.write_bytes(content(path.read_bytes()))
        return SCAN

    return make


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    """A node of the standard's."""
    return helper.make_node(operator, inputs, outputs, **attributes)


def give(model: Any, name: str, values: Any, dtype: Any = np.int64) -> None:
    """Another constant."""
    model.graph.initializer.append(to_tensor.from_array(np.asarray(values, dtype), name))


def into_scores(model: Any, nodes: Sequence[Any], made: str, *, reduce: bool = True) -> None:
    """Put nodes in front, and add the largest number of what they make to the scores, so that nothing is left out."""
    last = model.graph.node[-1]
    last.output[0] = "plain_scores"
    behind = [node("ReduceMax", [made], ["largest"], keepdims=0)] if reduce else [node("Identity", [made], ["largest"])]
    behind.append(node("Add", ["plain_scores", "largest"], ["scores"]))
    kept = [*nodes, *model.graph.node, *behind]
    copies = helper.make_graph(kept, "g", [], [])
    del model.graph.node[:]
    model.graph.node.extend(copies.node)


def grown(operator: str, inputs: Sequence[str], constants: dict[str, Any], **attributes: Any) -> Edit:
    """One node that makes something large, out of constants by name and the `image`."""

    def edit(model: Any) -> None:
        for name, value in constants.items():
            give(model, name, value, np.asarray(value).dtype)
        into_scores(model, [node(operator, inputs, ["large"], **attributes)], "large")

    return edit


def chain_nodes(*nodes: tuple[str, Sequence[str], str], constants: dict[str, Any]) -> Edit:
    """Several nodes, the last of which makes `large`."""

    def edit(model: Any) -> None:
        for name, value in constants.items():
            give(model, name, value, np.asarray(value).dtype)
        into_scores(model, [node(operator, inputs, [output]) for operator, inputs, output in nodes], "large")

    return edit


def double(times: int) -> Edit:
    """A tensor put behind itself again and again."""

    def edit(model: Any) -> None:
        nodes = [node("Concat", [f"d{step}"] * 2, [f"d{step + 1}"], axis=0) for step in range(times)]
        into_scores(model, [node("Flatten", ["image"], ["d0"]), *nodes], f"d{times}")

    return edit


# Functions


def function(name: str, calls: Sequence[Any]) -> Any:
    """A function of one input and one output."""
    return helper.make_function("own", name, ["x"], ["y"], calls, [helper.make_opsetid("", 20),
                                                                   helper.make_opsetid("own", 1)])  # fmt: skip


def call(name: str, source: str, result: str) -> Any:
    """A call of one."""
    return helper.make_node(name, [source], [result], domain="own")


def with_functions(functions: Callable[[], Sequence[Any]], first: str) -> Edit:
    """Functions, the first of which is called on the images."""

    def edit(model: Any) -> None:
        model.functions.extend(functions())
        model.opset_import.append(helper.make_opsetid("own", 1))
        into_scores(model, [call(first, "image", "called")], "called")

    return edit


def doubling(levels: int, fan: int = 2) -> Edit:
    """Functions that call the next one several times each."""

    def functions() -> list[Any]:
        found = [function("f0", [node("Relu", ["x"], ["y"])])]
        for level in range(1, levels + 1):
            names = ["x", *(f"t{number}" for number in range(fan - 1)), "y"]
            found.append(function(f"f{level}", [call(f"f{level - 1}", a, b) for a, b in itertools.pairwise(names)]))
        return found

    return with_functions(functions, f"f{levels}")


def in_branch(name: str) -> Any:
    """An `If` whose branches call a function."""
    branch = helper.make_graph([call(name, "x", "b")], "branch", [], [helper.make_tensor_value_info("b", 1, None)])
    return node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)


# Loops


def body(nodes: Sequence[Any], state: str = "out") -> Any:
    """The body of a loop that goes on for as long as its condition is true, which it always is."""
    kinds = onnx.TensorProto
    ends = [helper.make_tensor_value_info("step", kinds.INT64, []), helper.make_tensor_value_info("on", kinds.BOOL, [])]
    return helper.make_graph(
        [node("Identity", ["on"], ["still"]), *nodes],
        "body",
        [*ends, helper.make_tensor_value_info("state", kinds.FLOAT, None)],
        [helper.make_tensor_value_info("still", kinds.BOOL, []),
         helper.make_tensor_value_info(state, kinds.FLOAT, None)],
    )  # fmt: skip


def make_loop(trips: int | None, start: str, nodes: Callable[[], Sequence[Any]] | None = None) -> Edit:
    """A loop around a number that only grows."""

    def edit(model: Any) -> None:
        give(model, "true", True, np.bool_)
        give(model, "one", 1, np.float32)
        give(model, "trips", trips or 0)
        inner = nodes() if nodes else [node("Add", ["state", "one"], ["out"])]
        first = [node("ReduceMax", ["image"], ["start"], keepdims=0)] if start == "start" else []
        loop = node("Loop", ["trips" if trips else "", "true", start], ["end"], body=body(inner))
        into_scores(model, [*first, loop], "end")

    return edit


def _fold_branch(model: Any) -> None:
    """A branch that depends on a loop over constants."""
    give(model, "true", True, np.bool_)
    give(model, "one", 1, np.float32)
    give(model, "ten", 10, np.float32)
    loop = node("Loop", ["", "true", "one"], ["end"], body=body([node("Add", ["state", "one"], ["out"])]))
    branch = helper.make_graph(
        [node("Identity", ["ten"], ["b"])], "b", [], [helper.make_tensor_value_info("b", 1, None)]
    )
    choose = node("If", ["asked"], ["chosen"], then_branch=branch, else_branch=branch)
    into_scores(model, [loop, node("Greater", ["end", "ten"], ["asked"]), choose], "chosen")


def _nested_loop() -> list[Any]:
    inner = [node("Identity", ["on"], ["again"]), node("Add", ["inside", "one"], ["more"])]
    kinds = onnx.TensorProto
    graph = helper.make_graph(
        inner,
        "inner",
        [helper.make_tensor_value_info("count", kinds.INT64, []), helper.make_tensor_value_info("go", kinds.BOOL, []),
         helper.make_tensor_value_info("inside", kinds.FLOAT, None)],
        [helper.make_tensor_value_info("again", kinds.BOOL, []),
         helper.make_tensor_value_info("more", kinds.FLOAT, None)],
    )  # fmt: skip
    return [node("Loop", ["", "true", "state"], ["out"], body=graph)]


def _branch_with(nodes: Callable[[], Sequence[Any]], constants: dict[str, Any]) -> Edit:
    """A branch, taken for some inputs, that makes `b`."""

    def edit(model: Any) -> None:
        for name, value in {**constants, "zero": np.float32(0)}.items():
            give(model, name, value, np.asarray(value).dtype)
        then = helper.make_graph(list(nodes()), "then", [], [helper.make_tensor_value_info("b", 1, None)])
        other = helper.make_graph(
            [node("Identity", ["zero"], ["c"])], "else", [], [helper.make_tensor_value_info("c", 1, None)]
        )
        asked = [
            node("ReduceMax", ["image"], ["most"], keepdims=0),
            node("GreaterOrEqual", ["most", "zero"], ["asked"]),
        ]
        into_scores(model, [*asked, node("If", ["asked"], ["large"], then_branch=then, else_branch=other)], "large")

    return edit


# Tensors


def first_weight(change: Edit) -> Edit:
    """Change the first stored weight."""
    return lambda model: change(model.graph.initializer[0])


def set_field(**fields: Any) -> Edit:
    """Other values for fields of the first stored weight."""

    def change(tensor: Any) -> None:
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(tensor, name).extend(value)
            else:
                setattr(tensor, name, value)

    return first_weight(change)


def dims(*sizes: int, keep: bool = True) -> Edit:
    """Other sizes for the first weight."""

    def change(tensor: Any) -> None:
        del tensor.dims[:]
        tensor.dims.extend(sizes)
        if not keep:
            tensor.raw_data = b""

    return first_weight(change)


def external(location: str, offset: str | None = None, length: str | None = None, *, keep: bool = False) -> Edit:
    """The first weight in another file."""

    def change(tensor: Any) -> None:
        if not keep:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            if value is not None:
                tensor.external_data.add(key=key, value=value)

    return first_weight(change)


def _beside(edit: Edit, prepare: Callable[[Path], object]) -> Callable[[Path], list[str]]:
    """An edit, with something beside the model."""

    def make(folder: Path) -> list[str]:
        argv = _scan(edit)(folder)
        prepare(folder)
        return argv

    return make


def elsewhere(model: Any) -> Any:
    """A tensor that lies in `data.bin`."""
    tensor = to_tensor.from_array(np.zeros(1, np.float32), "away")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="data.bin")
    return tensor


def _constant_in_function(model: Any) -> None:
    constant = helper.make_node("Constant", [], ["c"], value=elsewhere(model))
    with_functions(lambda: [function("f", [constant, node("Add", ["x", "c"], ["y"])])], "f")(model)


def _many_names(model: Any) -> None:
    for number in range(60_000):
        tensor = model.graph.initializer.add(name=f"n{number}", data_type=1, dims=[250_000])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="data.bin")


def _sparse(model: Any) -> None:
    values = to_tensor.from_array(np.ones(1, np.float32), "sparse")
    places = to_tensor.from_array(np.zeros((1, 2), np.int64), "places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [200_000, 200_000]))


def _sparse_constant(model: Any) -> None:
    values = to_tensor.from_array(np.ones(1, np.float32), "values")
    places = to_tensor.from_array(np.zeros((1, 2), np.int64), "places")
    sparse = helper.make_sparse_tensor(values, places, [200_000, 200_000])
    into_scores(model, [helper.make_node("Constant", [], ["large"], sparse_value=sparse)], "large")


def holding(value: float, dtype: str) -> Edit:
    """A weight with one number that is none, in a dtype; the graph reads it as it did before."""

    def edit(model: Any) -> None:
        tensor = model.graph.initializer[0]
        values = np.array(to_tensor.to_array(tensor))
        values[0, 0] = value
        if dtype == "float32":
            tensor.CopyFrom(to_tensor.from_array(values, tensor.name))
            return
        kind = {"float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16,
                "float64": onnx.TensorProto.DOUBLE}[dtype]  # fmt: skip
        stored = values.astype(helper.tensor_dtype_to_np_dtype(kind))
        name = tensor.name
        tensor.CopyFrom(helper.make_tensor(name, kind, stored.shape, stored.tobytes(), raw=True))
        cast = node("Cast", [name], ["as_single"], to=onnx.TensorProto.FLOAT)
        for user in model.graph.node:
            for index, taken in enumerate(user.input):
                user.input[index] = "as_single" if taken == name else taken
        nodes = helper.make_graph([cast, *model.graph.node], "g", [], []).node
        del model.graph.node[:]
        model.graph.node.extend(nodes)

    return edit


# Names and structure


def _input_size(axis: int, size: int) -> Edit:
    return lambda model: setattr(model.graph.input[0].type.tensor_type.shape.dim[axis], "dim_value", size)


def _circle(model: Any) -> None:
    into_scores(model, [node("Add", ["a", "image"], ["b"]), node("Add", ["b", "image"], ["a"])], "a")


def _own(model: Any) -> None:
    into_scores(model, [node("Relu", ["r"], ["r"])], "r")


def _twice(model: Any) -> None:
    into_scores(model, [node("Relu", ["image"], ["r"]), node("Neg", ["image"], ["r"])], "r")


def _long_chain(many: int) -> Edit:
    def edit(model: Any) -> None:
        nodes = [node("Relu", ["image" if not step else f"r{step - 1}"], [f"r{step}"]) for step in range(many)]
        into_scores(model, nodes, f"r{many - 1}")

    return edit


def single(operator: str, inputs: Sequence[str] = ("image",), domain: str = "", **attributes: Any) -> Edit:
    """One more node, of any operator."""

    def edit(model: Any) -> None:
        if domain:
            model.opset_import.append(helper.make_opsetid(domain, 1))
        made = helper.make_node(operator, list(inputs), ["large"], domain=domain, **attributes)
        into_scores(model, [made], "large")

    return edit


def _dropping(model: Any) -> None:
    give(model, "ratio", 0.5, np.float32)
    give(model, "training", True, np.bool_)
    into_scores(model, [node("Dropout", ["image", "ratio", "training"], ["large"])], "large")


def _set(path: str, value: Any) -> Edit:
    """Another value for a field of the message."""

    def edit(model: Any) -> None:
        *holders, last = path.split(".")
        found = model
        for name in holders:
            found = found[int(name)] if name.isdigit() else getattr(found, name)
        setattr(found, last, value)

    return edit


def _without(path: str) -> Edit:
    def edit(model: Any) -> None:
        *holders, last = path.split(".")
        found = model
        for name in holders:
            found = found[int(name)] if name.isdigit() else getattr(found, name)
        found.ClearField(last)

    return edit


def _raw_name(content: bytes) -> bytes:
    return content.replace(b"hidden.weight", b"hidden\xff\xfeeight")


def _special(kind: str) -> Callable[[Path], list[str]]:
    """Something that is no file under the model's name."""

    def make(folder: Path) -> list[str]:
        valid.data(folder)
        path = folder / "net.onnx"
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "link to zeros":
                path.symlink_to("/dev/zero")
            case "link to random":
                path.symlink_to("/dev/urandom")
            case "circle":
                path.symlink_to("net.onnx")
            case "folder":
                path.mkdir()
            case "socket":
                with socket.socket(socket.AF_UNIX) as bound:
                    bound.bind("net.onnx")
        return SCAN

    return make


BIG = np.array([30_000, 40_000], np.int64)
MEMORY: dict[str, Edit] = {
    "constant-of-shape": grown("ConstantOfShape", ["sizes"], {"sizes": BIG}),
    "constant-of-shape-of-terabytes": grown("ConstantOfShape", ["sizes"], {"sizes": BIG * 1000}),
    "constant-of-product": chain_nodes(
        ("Mul", ["a", "a"], "size"), ("ConstantOfShape", ["size"], "large"), constants={"a": np.array([40_000])}
    ),
    "constant-of-quotient": chain_nodes(
        ("Div", ["a", "b"], "size"), ("ConstantOfShape", ["size"], "large"),
        constants={"a": np.array([4 * 10**12]), "b": np.array([1000])},
    ),
    "constant-of-power": chain_nodes(
        ("Pow", ["a", "b"], "size"), ("ConstantOfShape", ["size"], "large"),
        constants={"a": np.array([10]), "b": np.array([10])},
    ),
    "constant-of-batch": chain_nodes(
        ("Shape", ["image"], "shape"), ("Mul", ["shape", "a"], "size"), ("ConstantOfShape", ["size"], "large"),
        constants={"a": np.array([10**6, 1, 100, 1])},
    ),
    "constant-of-values": chain_nodes(
        ("ReduceMax", ["image"], "most"), ("Mul", ["most", "a"], "many"), ("Cast64", ["many"], "size"),
        constants={"a": np.array([1e9], np.float32)},
    ),
    "expand": grown("Expand", ["image", "sizes"], {"sizes": np.array([100_000, 1, 8, 800])}),
    "expand-constant": grown("Expand", ["hidden.bias", "sizes"], {"sizes": np.array([10**8, 32])}),
    "tile": grown("Tile", ["image", "times"], {"times": np.array([1000, 1000, 100, 1])}),
    "range": grown("Range", ["from", "to", "by"], {"from": np.int64(0), "to": np.int64(10**10), "by": np.int64(1)}),
    "range-of-tiny-steps": grown(
        "Range", ["from", "to", "by"], {"from": np.float32(0), "to": np.float32(1), "by": np.float32(1e-9)}
    ),
    "pad": grown("Pad", ["image", "pads"], {"pads": np.array([0, 0, 0, 0, 0, 0, 10**5, 10**5])}),
    "resize-by-sizes": grown("Resize", ["image", "", "", "sizes"], {"sizes": np.array([1, 1, 30_000, 40_000])}),
    "resize-by-scales": grown("Resize", ["image", "", "scales"], {"scales": np.array([1, 1, 4000, 5000], np.float32)}),
    "one-hot": grown(
        "OneHot", ["places", "depth", "pair"],
        {"places": np.arange(64), "depth": np.int64(10**8), "pair": np.array([0, 1], np.float32)},
    ),
    "outer-sum": chain_nodes(
        ("Expand", ["one", "tall"], "a"), ("Expand", ["one", "wide"], "b"), ("Add", ["a", "b"], "large"),
        constants={"one": np.float32(1), "tall": np.array([40_000, 1]), "wide": np.array([1, 40_000])},
    ),
    "outer-product": chain_nodes(
        ("Expand", ["one", "tall"], "a"), ("Expand", ["one", "wide"], "b"), ("MatMul", ["a", "b"], "large"),
        constants={"one": np.float32(1), "tall": np.array([40_000, 1]), "wide": np.array([1, 40_000])},
    ),
    "gathered-again-and-again": chain_nodes(
        ("Expand", ["zero", "many"], "places"), ("Gather", ["hidden.weight", "places"], "large"),
        constants={"zero": np.int64(0), "many": np.array([15_000_000])},
    ),
    "convolution-with-wide-borders": grown(
        "Conv", ["image", "kernel"], {"kernel": np.ones((1, 1, 1, 1), np.float32)}, pads=[20_000] * 4
    ),
    "transposed-convolution-with-wide-steps": grown(
        "ConvTranspose", ["image", "kernel"], {"kernel": np.ones((1, 1, 1, 1), np.float32)}, strides=[5000, 5000]
    ),
    "window": grown("HannWindow", ["many"], {"many": np.int64(10**10)}),
    "unpooled": grown(
        "MaxUnpool", ["image", "places", "sizes"],
        {"places": np.zeros((1, 1, 8, 8), np.int64), "sizes": np.array([1, 1, 40_000, 40_000])}, kernel_shape=[1, 1],
    ),
    "einsum": chain_nodes(
        ("Expand", ["one", "many"], "a"), ("Unsqueeze", ["a", "last"], "b"), ("Mul", ["a", "b"], "large"),
        constants={"one": np.float32(1), "many": np.array([50_000]), "last": np.array([1])},
    ),
    "doubled-forty-times": double(40),
    "doubled-twenty-eight-times": double(28),
    "in-a-branch": _branch_with(
        lambda: [node("ConstantOfShape", ["sizes"], ["b"])], {"sizes": BIG}
    ),
    "in-a-branch-of-a-product": _branch_with(
        lambda: [node("Mul", ["sizes", "sizes"], ["s"]), node("ConstantOfShape", ["s"], ["b"])],
        {"sizes": np.array([300, 300])},
    ),
    "in-a-loop": make_loop(
        3, "start", lambda: [node("ConstantOfShape", ["trips10"], ["c"]), node("ReduceMax", ["c"], ["out"], keepdims=0)]
    ),
    "batch-of-a-billion": _input_size(0, 10**9),
    "batch-of-a-million": _input_size(0, 10**6),
    "sparse-weight": _sparse,
    "sparse-constant": _sparse_constant,
    "weight-of-terabytes-without-bytes": dims(10**6, 10**6, keep=False),
    "weight-of-ten-gigabytes-in-two-kilobytes": dims(50_000, 50_000),
}  # fmt: skip


def _cast64(edit: Edit) -> Edit:
    """`Cast64` in a chain is a cast to whole numbers, after which the constant is made."""

    def change(model: Any) -> None:
        edit(model)
        for index, found in enumerate(model.graph.node):
            if found.op_type == "Cast64":
                model.graph.node[index].CopyFrom(node("Cast", list(found.input), ["size"], to=onnx.TensorProto.INT64))
                model.graph.node.insert(index + 1, node("ConstantOfShape", ["size"], ["large"]))
                return

    return change


MEMORY["constant-of-values"] = _cast64(MEMORY["constant-of-values"])


def _with_size(edit: Edit) -> Edit:
    def change(model: Any) -> None:
        give(model, "trips10", [10**10])
        edit(model)

    return change


MEMORY["in-a-loop"] = _with_size(MEMORY["in-a-loop"])

HANG: dict[str, Edit] = {
    **{f"functions-doubled-{levels}-times": doubling(levels) for levels in (16, 20, 40, 60)},
    "functions-of-a-hundred-calls": doubling(6, 100),
    "function-that-calls-itself": with_functions(lambda: [function("f", [call("f", "x", "y")])], "f"),
    "functions-that-call-each-other": with_functions(
        lambda: [function("f", [call("g", "x", "y")]), function("g", [call("f", "x", "y")])], "f"
    ),
    "function-that-calls-itself-in-a-branch": with_functions(
        lambda: [function("f", [node("Constant", [], ["c"], value_int=1), in_branch("f")])], "f"
    ),
    "functions-a-hundred-deep": doubling(100, 1),
    "functions-a-thousand-deep": doubling(1000, 1),
    "loop-without-end": make_loop(None, "start"),
    "loop-of-constants-without-end": make_loop(None, "one"),
    "loop-of-2-to-62": make_loop(2**62, "start"),
    "loop-in-a-loop": make_loop(None, "start", _nested_loop),
    "branch-that-waits-for-a-loop": _fold_branch,
    "thirty-thousand-nodes": _long_chain(30_000),
    "large-products": chain_nodes(
        ("Expand", ["one", "square"], "a"), ("MatMul", ["a", "a"], "b"), ("MatMul", ["b", "a"], "large"),
        constants={"one": np.float32(1), "square": np.array([3000, 3000])},
    ),
}  # fmt: skip

TYPES: dict[str, Edit] = {
    **{f"data-type-{number}": set_field(data_type=number) for number in (0, 99, -1, 2**31 - 1)},
    "negative-size": dims(-32, -64),
    "size-of-2-to-62": dims(2**62, 4),
    "a-hundred-axes": dims(*[1] * 100),
    "fewer-bytes-than-sizes": first_weight(lambda tensor: setattr(tensor, "raw_data", tensor.raw_data[:-4])),
    "more-bytes-than-sizes": first_weight(lambda tensor: setattr(tensor, "raw_data", tensor.raw_data + bytes(4))),
    "numbers-in-two-places": set_field(float_data=[1.0] * 2048),
    "complex-weight": set_field(data_type=14),
    "text-for-a-weight": set_field(data_type=8),
    "four-bit-weight-of-eight-bits": set_field(data_type=22),
    "input-of-unknown-type": _set("graph.input.0.type.tensor_type.elem_type", 77),
    "input-without-type": _without("graph.input.0.type"),
    "input-of-negative-size": _input_size(1, -5),
    "input-of-2-to-62": _input_size(1, 2**62),
    "opset-999": _set("opset_import.0.version", 999),
    "opset-minus-one": _set("opset_import.0.version", -1),
    "opset-zero": _set("opset_import.0.version", 0),
    "ir-version-999": _set("ir_version", 999),
    "ir-version-negative": _set("ir_version", -3),
    "no-opset": _without("opset_import"),
    "no-nodes": _without("graph.node"),
    "no-outputs": _without("graph.output"),
    "no-inputs": _without("graph.input"),
    "no-weights": _without("graph.initializer"),
    "operator-without-name": _set("graph.node.0.op_type", ""),
    "operator-nobody-has": _set("graph.node.0.op_type", "Evil"),
    "node-without-inputs": _without("graph.node.1.input"),
    "node-without-outputs": _without("graph.node.1.output"),
    "node-that-reads-what-is-not-there": lambda model: model.graph.node[1].input.__setitem__(0, "nothing"),
    "nodes-in-a-circle": _circle,
    "node-that-reads-itself": _own,
    "one-name-for-two-results": _twice,
    "attribute-of-another-type": lambda model: model.graph.node[1].attribute.append(
        helper.make_attribute("transB", "text")
    ),
    "training-information": lambda model: model.training_info.add(),
    "two-functions-of-one-name": with_functions(
        lambda: [function("f", [node("Relu", ["x"], ["y"])]), function("f", [node("Neg", ["x"], ["y"])])], "f"
    ),
    "sequence-for-scores": single("SequenceConstruct"),
}

RANDOM: dict[str, Edit] = {
    "random-normal": single("RandomNormal", [], shape=[1]),
    "random-uniform": single("RandomUniform", [], shape=[1]),
    "random-normal-like": single("RandomNormalLike"),
    "random-uniform-like": single("RandomUniformLike"),
    "bernoulli": single("Bernoulli"),
    "dropout-in-training": _dropping,
    "random-in-a-function": with_functions(lambda: [function("f", [node("RandomNormalLike", ["x"], ["y"])])], "f"),
    "random-in-a-branch": _branch_with(lambda: [node("RandomNormalLike", ["image"], ["b"])], {}),
}

UNKNOWN: dict[str, Edit] = {
    "context-of-another-device": single("EPContext", domain="com.microsoft", ep_cache_context="/etc/passwd"),
    "tokenizer": single("Tokenizer", domain="com.microsoft"),
    "beam-search": single("BeamSearch", domain="com.microsoft"),
    "forest": single("TreeEnsembleClassifier", domain="ai.onnx.ml"),
    "support-vectors": single("SVMClassifier", domain="ai.onnx.ml"),
    "somebodys-own-domain": single("Anything", domain="evil.example"),
    "training-domain": single("Gradient", domain="ai.onnx.preview.training"),
}

OUTSIDE: dict[str, Edit] = {
    "parent-folder": external("../data.bin"),
    "parent-of-parent": external("a/../../../etc/passwd"),
    "absolute": external("/etc/passwd"),
    "device": external("/dev/zero", "0", "8192"),
    "empty-location": external(""),
    "no-such-file": external("missing.bin"),
    "location-with-a-zero-byte": external("data\0.bin"),
    "location-too-long": external("x" * 5000),
    "location-of-the-folder": external("."),
    "offset-behind-the-end": external("data.npz", str(10**12)),
    "offset-negative": external("data.npz", "-8"),
    "offset-that-is-text": external("data.npz", "zero"),
    "offset-of-a-thousand-digits": external("data.npz", "9" * 1000),
    "offset-of-five-thousand-digits": external("data.npz", "9" * 5000),
    "length-negative": external("data.npz", "0", "-1"),
    "length-too-short": external("data.npz", "0", "16"),
    "length-too-long": external("data.npz", "0", str(2**62)),
    "raw-data-and-a-location-outside": external("../bashrc", keep=True),
    "raw-data-and-an-absolute-location": external("/tmp/arachne-evil", keep=True),
    "raw-data-and-a-name-of-ours": external("patch.json", keep=True),
}

BESIDE: dict[str, tuple[Edit, Callable[[Path], object]]] = {
    "constant-of-a-function": (_constant_in_function, lambda folder: (folder / "data.bin").write_bytes(bytes(4))),
    "sixty-thousand-names-of-one-range": (_many_names, lambda folder: (folder / "data.bin").write_bytes(bytes(10**6))),
    "pipe": (external("data.bin"), lambda folder: os.mkfifo(folder / "data.bin")),
    "link-to-a-device": (external("data.bin"), lambda folder: (folder / "data.bin").symlink_to("/dev/zero")),
    "link-outside": (external("data.bin"), lambda folder: (folder / "data.bin").symlink_to("/etc/passwd")),
    "link-to-itself": (external("data.bin"), lambda folder: (folder / "data.bin").symlink_to("data.bin")),
    "too-short": (external("data.bin"), lambda folder: (folder / "data.bin").write_bytes(bytes(100))),
}


def _cut(part: int) -> Callable[[bytes], bytes]:
    return lambda content: content[: len(content) * part // 8]


BYTES: dict[str, Callable[[bytes], bytes]] = {
    **{f"cut-to-{part}-of-8": _cut(part) for part in range(1, 8)},
    "empty": lambda content: b"",
    "one-byte": lambda content: content[:1],
    "zeros": lambda content: bytes(len(content)),
    "text": lambda content: b"this is no model\n" * 100,
    "a-zip": lambda content: b"PK\x03\x04" + content,
    "endless-varint": lambda content: b"\xff" * 1000,
    "length-beyond-the-end": lambda content: b"\x3a\xff\xff\xff\xff\x0f" + content,
    "groups": lambda content: b"\x3b" * 5000,
    "graph-in-graph-in-graph": lambda content: _nest_graphs(300),
    "name-that-is-no-utf-8": _raw_name,
}


def _nest_graphs(depth: int) -> bytes:
    """Graphs in attributes of nodes of graphs, deeper than protobuf reads."""
    content = b""
    for _ in range(depth):
        for field in (b"\x32", b"\x2a", b"\x0a"):  # attribute.g, node.attribute, graph.node
            content = field + _varint(len(content)) + content
    return b"\x08\x0a\x42\x02\x10\x14\x3a" + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


FINITE = {
    f"{what}-{dtype}": holding(value, dtype)
    for what, value in (("nan", np.nan), ("infinity", np.inf))
    for dtype in ("float32", "float16", "bfloat16", "float64")
}
APPLY = ("apply", "patch.json", "net.onnx", "-o", "out.onnx")
LOG = ("log", "net.onnx", "--patches", "patch.json")
DIFF = ("diff", "good.onnx", "net.onnx", "-o", "difference.json")


def long_names(model: Any) -> None:
    """Weights with names of a megabyte, which patches and pages would repeat for every weight that changes."""
    names = {value.name: value.name + "y" * 1_000_000 for value in model.graph.initializer}
    for value in model.graph.initializer:
        value.name = names[value.name]
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]


CASES = [
    Case("onnx-names-of-a-megabyte", "onnx", "size", _scan(long_names)),
    Case("onnx-names-of-a-megabyte-in-diff", "onnx", "size", _with_patch(long_names, *DIFF)),
    *(Case(f"onnx-{name}", "onnx", "memory", _scan(edit)) for name, edit in MEMORY.items()),
    *(Case(f"onnx-{name}", "onnx", "hang", _scan(edit)) for name, edit in HANG.items()),
    *(Case(f"onnx-{name}", "onnx", "type", _scan(edit)) for name, edit in TYPES.items()),
    *(Case(f"onnx-{name}", "onnx", "random", _scan(edit)) for name, edit in RANDOM.items()),
    *(Case(f"onnx-{name}", "onnx", "unknown", _scan(edit)) for name, edit in UNKNOWN.items()),
    *(Case(f"onnx-external-{name}", "onnx", "outside", _scan(edit)) for name, edit in OUTSIDE.items()),
    *(Case(f"onnx-external-{name}", "onnx", "outside", _beside(*what)) for name, what in BESIDE.items()),
    *(Case(f"onnx-{name}", "onnx", "damaged", _bytes(content)) for name, content in BYTES.items()),
    *(
        Case(f"onnx-{kind.replace(' ', '-')}", "onnx", "pipe", _special(kind))
        for kind in ("pipe", "link to zeros", "link to random", "circle", "folder", "socket")
    ),
    *(Case(f"onnx-{name}", "onnx", "not finite", _scan(edit)) for name, edit in FINITE.items()),
    *(Case(f"onnx-{name}-in-apply", "onnx", "not finite", _with_patch(edit, *APPLY)) for name, edit in FINITE.items()),
    *(Case(f"onnx-{name}-in-log", "onnx", "not finite", _with_patch(edit, *LOG)) for name, edit in FINITE.items()),
    *(Case(f"onnx-{name}-in-diff", "onnx", "not finite", _with_patch(edit, *DIFF)) for name, edit in FINITE.items()),
    *(
        Case(f"onnx-external-{name}-in-apply", "onnx", "outside", _with_patch(OUTSIDE[name], *APPLY))
        for name in ("absolute", "raw-data-and-a-location-outside", "raw-data-and-a-name-of-ours")
    ),
]
