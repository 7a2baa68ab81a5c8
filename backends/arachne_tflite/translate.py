"""Write the graph of a TFLite file as ONNX, so that the ONNX adapter's layers, gradients and cuts serve it.

Whole numbers that stand for others are written as float operators between (de)quantisations. TFLite keeps pictures with
their channels last, ONNX with channels first: a tensor has both layouts where both are asked for, and operators that
care for neither work in the one that is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from arachne.errors import ModelError
from arachne.model.values import Array
from arachne_onnx.graph import IR_VERSION
from arachne_onnx.surgery import TensorLocation
from arachne_tflite.file import ACTIVATION_DTYPES, Operator, Tensor, TfliteFile
from arachne_tflite.names import layer_name

PLAIN, CHANNELS_FIRST = "plain", "channels first"
"""The layouts of a tensor: as in the file, or with the last of four axes in second place."""

TO_CHANNELS_FIRST, TO_PLAIN = (0, 3, 1, 2), (0, 2, 3, 1)

OPSET, OPSET_WITH_INT16 = 18, 21

ACTIVATIONS = {0: "", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6", 4: "TANH"}
"""The operators that may be fused to the end of others, by number."""


@dataclass(frozen=True)
class Translation:
    """A translated file.

    Attributes:
        model: The ONNX model.
        locations: Where the numbers of each stored tensor are in the TFLite file.
        tensors: The number of the file's tensor and its layout, by the name of an ONNX tensor.
        shapes: The sizes that the file says a tensor has, by the name of the ONNX tensor.
    """

    model: ModelProto
    locations: Mapping[str, TensorLocation]
    tensors: Mapping[str, tuple[int, str]]
    shapes: Mapping[str, tuple[int, ...]]


def translate(file: TfliteFile) -> Translation:
    """Translate a file.

    Raises:
        ModelError: An operator that is not known, or one that makes no sense.
    """
    from arachne_tflite.translations import RULES  # the rules need the writer

    unknown = sorted({one.name for one in file.operators if one.name not in RULES})
    if unknown:
        listed = ", ".join(unknown[:8]) + (f" and {len(unknown) - 8} more" if len(unknown) > 8 else "")
        raise ModelError(f"'{file.name}' has operators that Arachne does not know: {listed}")
    writer = Writer(file)
    for operator in file.operators:
        if not writer.computes_sizes(operator):
            writer.begin(operator)
            RULES[operator.name](writer, operator)
    return writer.finish()


@dataclass
class Writer:
    """Writes nodes and stored tensors; the rules of operators call it."""

    file: TfliteFile
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    locations: dict[str, TensorLocation] = field(default_factory=dict)
    tensors: dict[str, tuple[int, str]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    padded: dict[int, tuple[Tensor, Sequence[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Name the tensors and find who uses them."""
        self._label = "input"
        self._forms: dict[int, dict[str, str]] = {}
        self._stored: dict[tuple[int, str, tuple[int, ...]], str] = {}
        self._shared: dict[int, set[tuple[str, tuple[int, ...]]]] = {}
        self._sizes: set[int] = set()
        self._taken = set(self.file.input_names) | set(self.file.output_names)
        self.takers: dict[int, list[Operator]] = {}
        for operator in self.file.operators:
            for tensor in operator.inputs:
                if tensor is not None:
                    self.takers.setdefault(tensor.index, []).append(operator)
        for tensor in self.file.tensors:
            if tensor.start is not None:
                self._shared.setdefault(tensor.buffer, set()).add((tensor.dtype, tensor.shape))
        self.outputs = {tensor.index for tensor in self.file.outputs}
        self._names = [self.fresh(tensor.name.split(";")[0][:80]) for tensor in self.file.tensors]
        for name, tensor in zip(self.file.input_names, self.file.inputs, strict=True):
            if tensor.free:
                raise ModelError(f"'{self.file.name}' leaves sizes of its input '{name}' free, expected fixed ones")
            self.put(tensor, name)

    def begin(self, operator: Operator) -> None:
        """Note which operator is being written."""
        self._label = operator.name
        if any(tensor.free for tensor in operator.outputs):
            raise ModelError(f"'{self.file.name}' has a {operator.name} whose sizes only its inputs tell")

    def error(self, reason: str) -> ModelError:
        """Return the error that says what is wrong with the operator being written."""
        return ModelError(f"'{self.file.name}' has a {self._label} {reason}")

    def fresh(self, stem: str) -> str:
        """Return a name that is not taken."""
        name, number = stem, 1
        while name in self._taken:
            name, number = f"{stem}_{number}", number + 1
        self._taken.add(name)
        return name

    def add(self, operator: str, inputs: Sequence[str], *, name: str | None = None, **options: object) -> str:
        """Add a node; return the name of its output."""
        output = name or self.fresh(f"{self._label.lower()}/{operator}")
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **options))
        return output

    def constant(self, values: Array, stem: str = "constant") -> str:
        """Add numbers that are not weights; return their name."""
        name = self.fresh(f"{self._label.lower()}/{stem}")
        self.constants[name] = values
        return name

    def computes_sizes(self, operator: Operator) -> bool:
        """Whether an operator computes whole numbers from sizes and constants; the file holds the results."""
        if any(tensor.has_grid or np.dtype(tensor.dtype).kind not in "iub" for tensor in operator.outputs):
            return False
        given = [tensor for tensor in operator.inputs if tensor is not None]
        if operator.name == "SHAPE" or all(one.start is not None or one.index in self._sizes for one in given):
            self._sizes |= {tensor.index for tensor in operator.outputs}
            return True
        return False

    def numbers(self, operator: Operator, index: int) -> list[int]:
        """Return an input that has to be stored whole numbers, such as axes.

        Raises:
            ModelError: It is computed, or is no whole number.
        """
        tensor = operator.inputs[index] if index < len(operator.inputs) else None
        if tensor is None or tensor.values is None or tensor.dtype not in ("int32", "int64") or tensor.values.size > 64:
            raise self.error("whose sizes or axes are computed, expected stored ones")
        return [int(number) for number in tensor.values.reshape(-1)]

    def axis(self, number: int, rank: int) -> int:
        """Return an axis, counted from the front."""
        if not -rank <= number < rank:
            raise self.error(f"over axis {number}, which its input does not have")
        return number % rank

    def data(self, operator: Operator, index: int, rank: int | None = None) -> Tensor:
        """Return an input that has to be there.

        Raises:
            ModelError: It is not, or has another number of axes.
        """
        tensor = operator.inputs[index] if index < len(operator.inputs) else None
        if tensor is None:
            raise self.error("without an input that it needs")
        if rank is not None and len(tensor.shape) != rank:
            raise self.error(f"of a tensor with {len(tensor.shape)} axes, expected {rank}")
        return tensor

    def optional(self, operator: Operator, index: int) -> Tensor | None:
        """Return an input that may be left out."""
        return operator.inputs[index] if index < len(operator.inputs) else None

    def layout(self, *tensors: Tensor) -> str:
        """Return the layout in which one of some tensors is there, channels first if both are."""
        first = any(CHANNELS_FIRST in self._forms.get(tensor.index, ()) for tensor in tensors)
        return CHANNELS_FIRST if first else PLAIN

    def read(self, tensor: Tensor, layout: str = PLAIN, stem: str = "") -> str:
        """Name the values of a tensor in a layout; quantised tensors are dequantised."""
        if tensor.start is not None and tensor.index not in self._forms:
            self._forms[tensor.index] = {PLAIN: self._value(tensor, stem)}
        if tensor.index not in self._forms:
            raise self.error(f"that computes with sizes ('{tensor.name[:80]}')")
        forms = self._forms[tensor.index]
        if layout not in forms:
            known, permutation = (PLAIN, TO_CHANNELS_FIRST) if layout == CHANNELS_FIRST else (CHANNELS_FIRST, TO_PLAIN)
            if len(tensor.shape) != 4:
                raise self.error(f"of a tensor with {len(tensor.shape)} axes, expected 4")
            name = self._name(tensor, layout)
            self.add("Transpose", [forms[known]], name=name, perm=permutation)
            forms[layout] = name
            self._enter(tensor, name, layout)
        return forms[layout]

    def put(self, tensor: Tensor, name: str, layout: str = PLAIN) -> None:
        """Give a computed tensor a name, in a layout, rounded to values it can hold."""
        if tensor.has_grid:
            name = self._round(tensor, name, layout)
        elif tensor.grid is None and np.dtype(tensor.dtype).kind == "f" and tensor.dtype != "float32":
            raise ModelError(f"'{self.file.name}' computes in {tensor.dtype}, expected float32")
        elif self.nodes and self.nodes[-1].output[0] == name and name not in self.tensors:
            name = self.nodes[-1].output[0] = self._name(tensor, layout)
        self._forms.setdefault(tensor.index, {})[layout] = name
        self._enter(tensor, name, layout)

    def alias(self, tensor: Tensor, name: str, layout: str) -> None:
        """Give a tensor the name of another one with the same numbers."""
        if tensor.has_grid:
            self.put(tensor, self.add("Identity", [name]), layout)
        else:
            self._forms.setdefault(tensor.index, {})[layout] = name

    def _name(self, tensor: Tensor, layout: str) -> str:
        return self._names[tensor.index] if layout == PLAIN else self.fresh(f"{self._names[tensor.index]}/first")

    def _enter(self, tensor: Tensor, name: str, layout: str) -> None:
        shape = tensor.shape if layout == PLAIN else tuple(tensor.shape[axis] for axis in TO_CHANNELS_FIRST)
        self.tensors[name], self.shapes[name] = (tensor.index, layout), shape

    def _round(self, tensor: Tensor, name: str, layout: str) -> str:
        """Add what storing in whole numbers does to values; nothing where only a softmax or sigmoid lies behind them.

        Scores are read before the last softmax, and probabilities in steps of 1/256 would hide it.
        """
        if self._label in ("SOFTMAX", "LOGISTIC") and self._leads_out(tensor):
            return self.add("Identity", [name], name=self._name(tensor, layout))
        if tensor.grid is None or len(tensor.grid.scale) != 1 or tensor.dtype not in ACTIVATION_DTYPES:
            raise self.error(f"that computes {tensor.dtype} with a scale for each channel")
        given = [self.constant(tensor.grid.scale[0].reshape(())), self.constant(tensor.grid.zero[0].reshape(()))]
        rounded = self.add("QuantizeLinear", [name, *given])
        return self.add("DequantizeLinear", [rounded, *given], name=self._name(tensor, layout))

    def _leads_out(self, tensor: Tensor) -> bool:
        takers = self.takers.get(tensor.index, [])
        return all(one.name in ("DEQUANTIZE", "QUANTIZE") and self._leads_out(one.outputs[0]) for one in takers)

    def store(self, tensor: Tensor, stem: str) -> str:
        """Name the stored numbers of a tensor as they are in the file; equal tensors of one buffer have one name."""
        if tensor.values is None or tensor.start is None:
            raise self.error("with computed weights")
        key = (tensor.buffer, tensor.dtype, tensor.shape)
        if key not in self._stored:
            name = self._stored[key] = self.fresh(stem or layer_name("constant", [tensor.name]))
            self.constants[name] = tensor.values
            element = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
            # Bytes that are read in two ways are no weight: a new value of one would be another value of the other.
            alone = len(self._shared[tensor.buffer]) == 1
            self.locations[name] = TensorLocation(
                element if alone else TensorProto.UNDEFINED, tensor.shape, [(tensor.start, tensor.values.nbytes)]
            )
        return self._stored[key]

    def _value(self, tensor: Tensor, stem: str) -> str:
        name = self.store(tensor, stem)
        return name if not tensor.has_grid or tensor.grid is None else self.dequantise(tensor, name, tensor.grid.scale)

    def dequantise(self, tensor: Tensor, name: str, scale: Array) -> str:
        """Name the values that stored whole numbers stand for, with one scale or one for each entry of an axis."""
        zero = tensor.grid.zero if tensor.grid is not None else np.zeros(len(scale), tensor.dtype)
        zero = np.broadcast_to(zero, scale.shape).astype(tensor.dtype)
        shape = (-1,) if len(scale) > 1 else ()
        given = [self.constant(scale.astype(np.float32).reshape(shape)), self.constant(zero.reshape(shape))]
        axis = tensor.grid.axis if tensor.grid is not None else 0
        return self.add("DequantizeLinear", [name, *given], axis=axis)

    def activate(self, name: str, number: int) -> str:
        """Add the activation that is fused to an operator."""
        from arachne_tflite.translations.pointwise import activation

        if number not in ACTIVATIONS:
            raise self.error("with a fused activation that Arachne does not know")
        return activation(self, ACTIVATIONS[number], name) if number else name

    def finish(self) -> Translation:
        """Return the model."""
        for name, tensor in zip(self.file.output_names, self.file.outputs, strict=True):
            self._label = "output"
            self.add("Identity", [self.read(tensor)], name=name)
        wide = any(tensor.dtype == "int16" for tensor in self.file.tensors)
        inputs = [
            helper.make_tensor_value_info(name, _element(tensor), list(tensor.shape))
            for name, tensor in zip(self.file.input_names, self.file.inputs, strict=True)
        ]
        outputs = [
            helper.make_tensor_value_info(name, _element(tensor), list(tensor.shape))
            for name, tensor in zip(self.file.output_names, self.file.outputs, strict=True)
        ]
        stored = [numpy_helper.from_array(values, name) for name, values in self.constants.items()]
        graph = helper.make_graph(self.nodes, "tflite", inputs, outputs, stored)
        imports = [helper.make_opsetid("", OPSET_WITH_INT16 if wide else OPSET)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
        return Translation(model, self.locations, self.tensors, self.shapes)


def _element(tensor: Tensor) -> int:
    """Return the element type of an input or output: float where whole numbers stand for others."""
    return TensorProto.FLOAT if tensor.has_grid else int(helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)))
