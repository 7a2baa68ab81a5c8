"""Hostile exported programs of torch."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.safety import valid
from tests.safety.case import Case, canary
from tests.safety.cases_torch import ARCHIVES, Calls, Members, archive, members_of
from tests.safety.lazy import Lazy

torch: Any = Lazy("torch")

MODEL, WEIGHTS, CONSTANTS = (
    "models/model.json",
    "data/weights/model_weights_config.json",
    "data/constants/model_constants_config.json",
)
GRAPH = ("graph_module", "graph")


def _scan(change: Callable[[Members, Path], object]) -> Callable[[Path], list[str]]:
    """A scan of a program some of whose members were changed."""

    def make(folder: Path) -> list[str]:
        valid.data(folder)
        path = folder / valid.program(folder)
        found = members_of(path.read_bytes())
        change(found, folder)
        path.write_bytes(archive(found))
        return ["scan", "net.pt2", "--data", "data.npz"]

    return make


def _bytes(change: Callable[[bytes, Path], bytes]) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        valid.data(folder)
        path = folder / valid.program(folder)
        path.write_bytes(change(path.read_bytes(), folder))
        return ["scan", "net.pt2", "--data", "data.npz"]

    return make


def describe_change(*keys: Any, value: Any, member: str = MODEL) -> Callable[[Members, Path], None]:
    """Another value somewhere in a description; a text `{}` in it is the canary's path."""

    def change(found: Members, folder: Path) -> None:
        description = json.loads(found[member])
        part = description
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = value.replace("{}", str(canary(folder))) if isinstance(value, str) else value
        found[member] = json.dumps(description).encode()

    return change


def target(name: str) -> Callable[[Members, Path], None]:
    """Another operator in the first call."""
    return describe_change(*GRAPH, "nodes", 0, "target", value=name)


def size(text: str) -> Callable[[Members, Path], None]:
    """A symbolic size of the input."""
    return describe_change(
        *GRAPH, "tensor_values", "input", "sizes", 0, value={"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}
    )


def entry(**fields: Any) -> Callable[[Members, Path], None]:
    """Other fields for the first weight in the table."""

    def change(found: Members, folder: Path) -> None:
        table = json.loads(found[WEIGHTS])
        first = next(iter(table["config"].values()))
        for name, value in fields.items():
            holder = first["tensor_meta"] if name in first["tensor_meta"] else first
            holder[name] = value
        found[WEIGHTS] = json.dumps(table).encode()

    return change


def sizes(*numbers: Any) -> list[Any]:
    """Numbers as the format writes them."""
    return [{"as_int": number} for number in numbers]


def text(member: str, change: Callable[[str], str]) -> Callable[[Members, Path], None]:
    """A description changed as text."""

    def apply_change(found: Members, folder: Path) -> None:
        found[member] = change(found[member].decode()).encode("utf-8", "surrogatepass")

    return apply_change


def _many_names(found: Members, folder: Path) -> None:
    table = json.loads(found[WEIGHTS])
    first = copy.deepcopy(next(iter(table["config"].values())))
    first["tensor_meta"] |= {"sizes": sizes(1000, 512), "strides": sizes(0, 1)}
    table["config"] |= {f"copy{number}": copy.deepcopy(first) for number in range(60_000)}
    found[WEIGHTS] = json.dumps(table).encode()


def _many_calls(found: Members, folder: Path) -> None:
    description = json.loads(found[MODEL])
    nodes = description["graph_module"]["graph"]["nodes"]
    nodes += [copy.deepcopy(nodes[0]) for _ in range(40_000)]
    found[MODEL] = json.dumps(description).encode()


def _many_sizes(found: Members, folder: Path) -> None:
    description = json.loads(found[MODEL])
    values = description["graph_module"]["graph"]["tensor_values"]
    for number in range(3000):
        one = copy.deepcopy(values["input"])
        one["sizes"][0] = {"as_expr": {"expr_str": f"Mul(Integer({number}), Symbol('s77'))", "hint": None}}
        values[f"v{number}"] = one
    found[MODEL] = json.dumps(description).encode()


def _sample_inputs(found: Members, folder: Path) -> None:
    """Code where torch keeps sample inputs, and a description that cannot be read."""
    found["data/sample_inputs/model.pt"] = pickle.dumps(Calls(Path.touch, canary(folder)))
    target("torch.ops.aten.evil.default")(found, folder)


NUMBER = 1717
"""A size in the programs below, in whose place another is put."""


def running(forward: Callable[[Any], Any], number: int) -> Callable[[Path], list[str]]:
    """A program that was exported with a small size, and asks for a large one."""

    def make(folder: Path) -> list[str]:
        valid.data(folder)

        class Network(torch.nn.Module):  # type: ignore[misc]  # torch is imported when it is first used
            def __init__(self) -> None:
                super().__init__()
                self.flat, self.layer = torch.nn.Flatten(), torch.nn.Linear(64, 10)

            def forward(self, image: Any) -> Any:
                return self.layer(self.flat(image)) + forward(image).float().sum() * 0

        path, batch = folder / "net.pt2", torch.export.Dim("batch")
        given = (torch.zeros(2, 1, 8, 8),)
        torch.export.save(torch.export.export(Network(), given, dynamic_shapes=({0: batch},)), path)
        found = members_of(path.read_bytes())
        found[MODEL] = found[MODEL].replace(str(NUMBER).encode(), str(number).encode())
        path.write_bytes(archive(found))
        return ["scan", "net.pt2", "--data", "data.npz"]

    return make


ATEN = """
    empty.memory_format empty_like.default new_empty.default empty_strided.default empty_permuted.default
    _sparse_coo_tensor_unsafe.default sparse_coo_tensor.indices _sparse_csr_tensor_unsafe.default
    _reshape_alias.default as_strided.default as_strided_.default set_.source_Storage set_.source_Tensor
    resize_.default resize_as_.default from_file.default rand.default randn.default randint.default
    randperm.default rand_like.default normal.float_float bernoulli.default bernoulli_.float multinomial.default
    uniform_.default exponential_.default _foobar.default relu.out add.out record_stream.default
    pin_memory.default _pin_memory.default to_mkldnn.default _embedding_bag.default embedding_bag.default
    _ctc_loss.Tensor quantize_per_tensor.default _cudnn_rnn.default _unsafe_index.Tensor
    _index_put_impl_.default _nested_tensor_from_mask.default _linalg_svd.default __getitem__.t
    __contains__.default
"""

OPERATORS = (
    *(f"torch.ops.aten.{name}" for name in ATEN.split()),
    "torch.os.system",
    "torch.ops.load_library.__func__",
    "torch.ops.aten.relu.default.__globals__",
    "torch.ops.higher_order.while_loop",
    "torch.ops.higher_order.scan",
    "torch.ops.higher_order.triton_kernel_wrapper_mutation",
    "torch.ops.higher_order.call_torchbind",
    "torch.ops.torchvision.nms.default",
    "torch.ops.c10d.broadcast_.default",
    "torch.ops.prims.empty_strided.default",
    "torch.ops.prims.uniform.default",
    "torch.ops.inductor.accumulate_grad_.default",
    "torch.ops.mkldnn._linear_pointwise.default",
    "torch.ops.quantized.linear.default",
    "_operator.attrgetter",
    "_operator.methodcaller",
    "_operator.pow",
    "builtins.eval",
    "math.factorial",
    "os.system",
    "",
)  # fmt: skip

EXPRESSIONS = {
    "power-of-powers": "10**10**10",
    "power-of-integers": "Pow(Integer(10), Integer(10000000000))",
    "powers-in-powers": "Pow(Pow(Pow(Pow(Integer(99), Integer(8)), Integer(8)), Integer(8)), Integer(8))",
    "sum-over-a-billion": "Sum(Symbol('s77'), (Symbol('s77'), 1, 1000000000))",
    "product-over-a-billion": "Product(Symbol('s77'), (Symbol('s77'), 1, 1000000000))",
    "summation": "summation(s77**2, (s77, 1, 10**9)).doit()",
    "factorial": "factorial(10**9)",
    "fibonacci": "fibonacci(10**9)",
    "binomial": "binomial(10**9, 5*10**8)",
    "prime": "prime(10**12)",
    "factors": "factorint(10**100 + 1)",
    "integral": "Integral(exp(s77**2), s77)",
    "shift": "LShift(Integer(1), Integer(1000000000000))",
    "python-shift": "1 << 10**12",
    "text-repeated": "'a' * 10**10",
    "list-repeated": "[0] * 10**10",
    "real-of-a-billion-digits": "Float('1.5', precision=10000000000)",
    "exponent-of-a-billion": "Float('1e1000000000')",
    "four-hundred-digits": "Integer(" + "9" * 400 + ")",
    "largest-of-hundreds": "Max(" + ", ".join(f"s{number}" for number in range(90)) + ")",
    "brackets": "(" * 240 + "s77" + ")" * 240,
    "minus-signs": "-" * 480 + "s77",
    "matrix": "Matrix(10**5, 10**5, lambda i, j: i)",
    "range": "Range(10**10)",
    "lambda": "Lambda(s77, s77)(1)",
    "code": "__import__('os').system('touch {}')",
    "attribute": "s77.__class__.__mro__",
    "comprehension": "[x for x in ().__class__.__base__.__subclasses__()]",
    "walrus": "(a := 5)",
    "formatted": "f'{s77}'",
    "newline": "s77\nimport os",
    "unknown-word": "Evil(s77)",
    "very-long": "s77 + " * 100 + "s77",
    "wide-letters": "\uff53\uff11",
    "nothing": "",
}

TABLES: dict[str, tuple[str, Callable[[Members, Path], object]]] = {
    "stride-zero-of-forty-gigabytes": ("memory", entry(sizes=sizes(10_000, 1_000_000), strides=sizes(0, 0))),
    "stride-zero-of-four-gigabytes": ("memory", entry(sizes=sizes(8, 128_000_000), strides=sizes(64, 0))),
    "sixty-thousand-names-of-one-range": ("memory", _many_names),
    "sizes-negative": ("type", entry(sizes=sizes(-8, 64))),
    "sizes-of-thirty-digits": ("type", entry(sizes=sizes(10**30, 64))),
    "sizes-of-text": ("type", entry(sizes=sizes("8", "64"))),
    "sizes-of-real-numbers": ("type", entry(sizes=sizes(8.0, 64.0))),
    "sizes-of-nothing": ("type", entry(sizes=None)),
    "sizes-that-are-symbols": ("type", entry(sizes=[{"as_expr": {"expr_str": "s77"}}])),
    "sizes-of-a-hundred-axes": ("type", entry(sizes=sizes(*[1] * 100), strides=sizes(*[1] * 100))),
    "strides-negative": ("type", entry(strides=sizes(-64, 1))),
    "strides-too-few": ("type", entry(strides=sizes(1))),
    "offset-negative": ("type", entry(storage_offset={"as_int": -4})),
    "offset-behind-the-end": ("type", entry(storage_offset={"as_int": 10**9})),
    "unknown-data-type": ("type", entry(dtype=99)),
    "data-type-that-is-a-dict": ("type", entry(dtype={})),
    "data-type-that-is-text": ("type", entry(dtype="float32")),
    "path-outside": ("outside", entry(path_name="../../data.npz")),
    "path-that-is-a-dict": ("type", entry(path_name={"a": 1})),
    "path-that-is-not-there": ("type", entry(path_name="weight_99")),
    "pickled-weight": ("code", entry(use_pickle=True)),
    "no-meaning": ("type", entry(tensor_meta=None)),
    "table-that-is-a-list": ("type", describe_change("config", value=[], member=WEIGHTS)),
    "entry-that-is-a-number": ("type", describe_change("config", "1.weight", value=7, member=WEIGHTS)),
    "constants-that-are-text": ("type", describe_change("config", value="x", member=CONSTANTS)),
    "no-table": ("damaged", lambda found, folder: found.pop(WEIGHTS)),
    "no-constants": ("damaged", lambda found, folder: found.pop(CONSTANTS)),
    "no-weight": ("damaged", lambda found, folder: found.pop("data/weights/weight_0")),
}

DESCRIPTIONS: dict[str, tuple[str, Callable[[Members, Path], object]]] = {
    "forty-thousand-calls": ("hang", _many_calls),
    "three-thousand-sizes": ("hang", _many_sizes),
    "nested-deeply": ("type", text(MODEL, lambda found: '{"a":' * 100_000)),
    "nested-lists": ("type", text(MODEL, lambda found: "[" * 100_000 + "]" * 100_000)),
    "nested-just-not-too-deeply": ("type", text(MODEL, lambda found: "[" * 900 + "]" * 900)),
    "ten-million-lists": ("memory", text(MODEL, lambda found: "[" + "[]," * 10_000_000 + "[]]")),
    "number-of-five-thousand-digits": ("type", text(MODEL, lambda found: found.replace(":", ": " + "9" * 5000, 1))),
    "a-key-twice": ("type", text(MODEL, lambda found: found.replace("{", '{"a": {}, "a": {}, ', 1))),
    "lone-surrogate": ("type", text(MODEL, lambda found: found.replace('"relu"', '"\\ud800"'))),
    "no-json": ("damaged", text(MODEL, lambda found: found[: len(found) // 2])),
    "a-list": ("type", text(MODEL, lambda found: "[]")),
    "a-number": ("type", text(MODEL, lambda found: "7")),
    "empty": ("damaged", text(MODEL, lambda found: "")),
    "no-description": ("damaged", lambda found, folder: found.pop(MODEL)),
    "no-graph": ("type", describe_change("graph_module", value={})),
    "nodes-that-are-text": ("type", describe_change(*GRAPH, "nodes", value="relu")),
    "nodes-that-are-nothing": ("type", describe_change(*GRAPH, "nodes", value=None)),
    "target-that-is-a-list": ("type", describe_change(*GRAPH, "nodes", 0, "target", value=["torch"])),
    "target-that-is-a-number": ("type", describe_change(*GRAPH, "nodes", 0, "target", value=5)),
    "arguments-that-are-gone": ("type", describe_change(*GRAPH, "nodes", 0, "inputs", value=[])),
    "arguments-of-another-kind": ("type", describe_change(*GRAPH, "nodes", 0, "inputs", 0, "arg", value={"as_int": 3})),
    "argument-of-no-kind": ("type", describe_change(*GRAPH, "nodes", 0, "inputs", 0, "arg", value={"as_evil": 3})),
    "input-that-is-not-there": ("type", describe_change(*GRAPH, "inputs", 0, value={"as_tensor": {"name": "evil"}})),
    "no-outputs": ("type", describe_change(*GRAPH, "outputs", value=[])),
    "no-values": ("type", describe_change(*GRAPH, "tensor_values", value={})),
    "code-in-a-name": ("code", describe_change(*GRAPH, "inputs", -1, "as_tensor", "name", value="x=open('{}', 'w')")),
    "line-in-a-name": ("code", describe_change(*GRAPH, "nodes", 0, "name", value="x\nopen('{}', 'w')")),
    "zero-byte-in-a-name": ("type", describe_change(*GRAPH, "nodes", 0, "name", value="a\0b")),
    "code-in-a-container": ("code", describe_change("graph_module", "module_call_graph", 0, "signature", "in_spec",
                            value='[1, {"type": "builtins.eval", "context": "null", "children_spec": []}]')),
    "code-in-a-parameter": ("code", describe_change("graph_module", "signature", "input_specs", 0, "parameter",
                            "parameter_name", value="a\"+open('{}','w')+\"")),
    "code-for-another-machine": ("code", lambda found, folder: found.update({"data/aotinductor/model/a.so": b"x"})),
    "pickle-of-weights": ("code", lambda found, folder: found.update({"data/weights/model.pt": b"x"})),
    "sample-inputs-with-code": ("code", _sample_inputs),
    "big-endian": ("type", lambda found, folder: found.update({"byteorder": b"big"})),
    "batch-of-a-billion": (
        "memory",
        describe_change(*GRAPH, "tensor_values", "input", "sizes", 0, value={"as_int": 10**9}),
    ),
    "schema-of-tomorrow": ("type", describe_change("schema_version", value={"major": 999, "minor": 0})),
}  # fmt: skip

FORWARDS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda image: torch.zeros(NUMBER),
    "ones": lambda image: torch.ones(NUMBER, 2),
    "full": lambda image: torch.full((NUMBER,), 2.0),
    "arange": lambda image: torch.arange(NUMBER),
    "expanded": lambda image: image.sum().expand(NUMBER) + 1,
    "repeated": lambda image: image.sum().reshape(1).repeat(NUMBER),
    "padded": lambda image: torch.nn.functional.pad(image.flatten(1), (NUMBER, 0)),
    "interpolated": lambda image: torch.nn.functional.interpolate(image, size=(NUMBER, NUMBER)),
    "eye": lambda image: torch.eye(NUMBER),
    "linspace": lambda image: torch.linspace(0, 1, NUMBER),
    "outer": lambda image: torch.ones(NUMBER, 1) + torch.ones(1, NUMBER),
    "one-hot": lambda image: torch.nn.functional.one_hot(image.long().clamp(0, 1), NUMBER),
    "tiled": lambda image: torch.tile(image, (NUMBER, 1, 1, 1)),
    "new-zeros": lambda image: image.new_zeros((NUMBER,)),
    "pooled": lambda image: torch.nn.functional.adaptive_avg_pool2d(image, (NUMBER, NUMBER)),
    "triangle": lambda image: torch.tril_indices(NUMBER, NUMBER),
}


def _pipe(folder: Path) -> list[str]:
    valid.data(folder)
    os.mkfifo(folder / "net.pt2")
    return ["scan", "net.pt2", "--data", "data.npz"]


def _unsafe_sparse(folder: Path) -> list[str]:
    """The tensor whose index nobody checks, as it was seen."""

    def change(found: Members, at: Path) -> None:
        description = json.loads(found[MODEL])
        nodes = description["graph_module"]["graph"]["nodes"]
        nodes[0]["target"] = "torch.ops.aten._sparse_coo_tensor_unsafe.default"
        found[MODEL] = json.dumps(description).encode()

    return _scan(change)(folder)


CASES = [
    *(Case(f"pt2-operator-{name or 'without-name'}", "pt2", "operator", _scan(target(name))) for name in OPERATORS),
    *(Case(f"pt2-size-{name}", "pt2", "expression", _scan(size(found))) for name, found in EXPRESSIONS.items()),
    *(Case(f"pt2-table-{name}", "pt2", attack, _scan(change)) for name, (attack, change) in TABLES.items()),
    *(Case(f"pt2-{name}", "pt2", attack, _scan(change)) for name, (attack, change) in DESCRIPTIONS.items()),
    *(
        Case(f"pt2-runs-into-{name}", "pt2", "memory", running(forward, 10**5))
        for name, forward in FORWARDS.items()
        if name in ("interpolated", "eye", "outer", "pooled", "triangle")
    ),
    *(
        Case(f"pt2-runs-into-{name}", "pt2", "memory", running(forward, 10**10))
        for name, forward in FORWARDS.items()
        if name not in ("interpolated", "eye", "outer", "pooled", "triangle")
    ),
    *(Case(f"pt2-archive-{name}", "pt2", "archive", _bytes(change)) for name, change in ARCHIVES.items()
      if name not in ("without-a-pickle", "without-a-storage", "storage-too-short")),
    Case("pt2-pipe", "pt2", "pipe", _pipe),
    Case("pt2-sparse-tensor-of-unchecked-indices", "pt2", "crash", _unsafe_sparse),
]  # fmt: skip
