"""Read what a file holds and decides without Arachne: its stored tensors, and the decisions of its own runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from arachne.model.values import Array


def differing(before: Path, after: Path) -> str:
    """Tell which tensors of two files differ, by dtype, after checking that nothing else does."""
    stored = [STORED[path.suffix](path) for path in (before, after)]
    if stored[0][0] != stored[1][0] or stored[0][1].keys() != stored[1][1].keys():
        return "more than weights"
    found = [one.dtype for name, one in stored[0][1].items() if not np.array_equal(one, stored[1][1][name])]
    return ", ".join(sorted({str(dtype) for dtype in found}))


def stored_onnx(path: Path) -> tuple[bytes, dict[str, Array]]:
    """Return a file without its stored tensors, and these."""
    import onnx

    model = onnx.load(path)
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
        tensor.ClearField("int32_data")
    return model.SerializeToString(deterministic=True), tensors


def stored_tflite(path: Path) -> tuple[bytes, dict[str, Array]]:
    """Return a file's bytes without its stored tensors, and these, read by TensorFlow's own schema."""
    from tensorflow.lite.python import schema_py_generated as schema

    content = bytearray(path.read_bytes())
    model = schema.Model.GetRootAs(bytes(content), 0)
    kinds = {0: "float32", 1: "float16", 2: "int32", 3: "uint8", 9: "int8"}
    tensors = {}
    for number in range(model.SubgraphsLength()):
        graph = model.Subgraphs(number)
        for index in range(graph.TensorsLength()):
            tensor = graph.Tensors(index)
            table = model.Buffers(tensor.Buffer())._tab
            if field := table.Offset(4):
                start, size = table.Vector(field), table.VectorLen(field)
                held = np.frombuffer(model._tab.Bytes, np.uint8, size, start)
                tensors[f"{number}.{index}"] = held.view(kinds.get(tensor.Type(), "uint8"))
                content[start : start + size] = bytes(size)
    return bytes(content), tensors


STORED: Mapping[str, Callable[[Path], tuple[bytes, dict[str, Array]]]] = {
    ".onnx": stored_onnx,
    ".tflite": stored_tflite,
}


def decided_by_onnxruntime(path: Path, inputs: Array) -> Array:
    """Decisions of a plain session."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    rows = 1 if path.name == "dynamic.onnx" else 500
    parts = [session.run(None, {"input": inputs[start : start + rows]})[0] for start in range(0, len(inputs), rows)]
    found: Array = np.concatenate(parts)
    return np.asarray(found.argmax(axis=1))


def decided_by_litert(path: Path, inputs: Array) -> Array:
    """Decisions of a plain interpreter, one input at a time."""
    from ai_edge_litert.interpreter import Interpreter

    lite = Interpreter(str(path))
    lite.allocate_tensors()
    given, made = lite.get_input_details()[0], lite.get_output_details()[0]
    scale, zero = given["quantization"]
    found = []
    for row in inputs:
        values = np.clip(np.round(row / scale) + zero, -128, 127) if scale else row
        lite.set_tensor(given["index"], values[None].astype(given["dtype"]))
        lite.invoke()
        found.append(int(lite.get_tensor(made["index"])[0].argmax()))
    return np.array(found)


OWN_DECISIONS = {".onnx": decided_by_onnxruntime, ".tflite": decided_by_litert}
