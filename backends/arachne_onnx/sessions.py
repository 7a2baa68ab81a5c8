"""Sessions of onnxruntime: how they are made, on which provider, with how many threads."""

from __future__ import annotations

import importlib.metadata
import re
import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto

from arachne.adapting.side_by_side import allowed_threads
from arachne.errors import DataError, EnvironmentFaultError, ModelError, UsageError, did_you_mean
from arachne.model.values import Array
from arachne_onnx.checks import every_node
from arachne_onnx.graph import Graph, TensorType

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "directml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
"""Device names of the command line, and their names in onnxruntime."""

FIRST_RUN_SECONDS = 4.0
"""Seconds that a model's first run, on a few inputs, may always take."""

BYTES_A_SECOND, SECONDS_A_ROW = 10e6, 0.1
"""The first run may take longer by the bytes of the weights over this speed, and by this much per input."""

RuntimeFault = (
    ort.capi.onnxruntime_pybind11_state.Fail,
    ort.capi.onnxruntime_pybind11_state.InvalidArgument,
    ort.capi.onnxruntime_pybind11_state.InvalidGraph,
    ort.capi.onnxruntime_pybind11_state.InvalidProtobuf,
    ort.capi.onnxruntime_pybind11_state.NotImplemented,
    ort.capi.onnxruntime_pybind11_state.RuntimeException,
    ort.capi.onnxruntime_pybind11_state.NoSuchFile,
    ort.capi.onnxruntime_pybind11_state.NoModel,
    ort.capi.onnxruntime_pybind11_state.EPFail,
)
"""Exceptions of onnxruntime; its classes have no common base class."""


class Device:
    """An execution provider, chosen by the user and compared with the one the session really uses."""

    def __init__(self, name: str | None = None) -> None:
        kind, _, number = (name or "cpu").partition(":")
        if kind not in PROVIDERS:
            raise UsageError(f"no device named '{kind}' in onnxruntime" + did_you_mean(kind, PROVIDERS))
        if number and not number.isdigit():
            raise UsageError(f"a device is a name and a number, as in '{kind}:0', got '{name}'")
        self.provider = PROVIDERS[kind]
        self.number = int(number) if number else None
        if self.provider not in ort.get_available_providers():
            raise EnvironmentFaultError(f"the installed onnxruntime has no device '{kind}'{_remedy()}")

    def session(self, model: ModelProto, constants: Mapping[str, Array] | None = None) -> ort.InferenceSession:
        """A session of a model.

        Args:
            model: The model.
            constants: The values of initialisers that are not in the message, by name.

        Raises:
            ModelError: onnxruntime refuses the model.
            EnvironmentFaultError: The session fell back to another device.
        """
        options = ort.SessionOptions()
        # Inherited thread counts ignore the affinity mask and every other session; both are set here.
        options.intra_op_num_threads = allowed_threads()
        options.inter_op_num_threads = 1
        # An arena keeps the most that a session ever needed, and there may be a dozen sessions of a model.
        options.enable_cpu_mem_arena = False
        # Threads that spin while they wait take the processor from other work, our other sessions first.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4
        outside = [value.name for value in model.graph.initializer if value.data_location == TensorProto.EXTERNAL]
        if outside:
            known = constants or {}
            values = [ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(known[name])) for name in outside]
            options.add_external_initializers(outside, values)
        number = {} if self.number is None else {"device_id": self.number}
        chosen: list[tuple[str, dict[str, int]]] = [(self.provider, number)]
        if self.provider != PROVIDERS["cpu"]:
            chosen.append((PROVIDERS["cpu"], {}))
        try:
            session = ort.InferenceSession(model.SerializeToString(), options, providers=chosen)
        except RuntimeFault as error:
            raise ModelError(f"onnxruntime refuses the model: {reason(error)}") from error
        if session.get_providers()[0] != self.provider:
            raise EnvironmentFaultError(
                f"onnxruntime could not use {self.provider} and fell back to the CPU{_remedy()}"
            )
        return session


class Program:
    """One session of a part of a graph: named arrays in, named arrays out."""

    def __init__(
        self,
        device: Device,
        graph: Graph,
        inputs: Mapping[str, TensorType],
        outputs: Sequence[str],
        *,
        nodes: Iterable[NodeProto] | None = None,
        constants: Mapping[str, Array] | None = None,
    ) -> None:
        chosen = graph.select_nodes(outputs, inputs) if nodes is None else list(nodes)
        self._loops = any(node.op_type == "Loop" for node in every_node(chosen))
        self._room = sum(value.nbytes for value in graph.constants.values()) / BYTES_A_SECOND
        known = {**graph.constants, **(constants or {})}
        self._session = device.session(graph.model(chosen, inputs, outputs, constants), known)
        self.inputs = tuple(value.name for value in self._session.get_inputs())
        self.outputs = tuple(outputs)

    def run(self, feeds: Mapping[str, Array], *, first: bool = False) -> dict[str, Array]:
        """Every output by name.

        Args:
            feeds: The inputs by name.
            first: Whether this is the first run of a model; its time limit depends on the size of the weights.

        Raises:
            DataError: The runtime cannot compute these arrays.
            ModelError: The first run, or any run of a model with a loop, does not come to an end.
        """
        given = {name: feeds[name] for name in self.inputs}
        rows = max((len(array) for array in given.values() if array.ndim), default=0)
        limit = FIRST_RUN_SECONDS + self._room + SECONDS_A_ROW * rows if first or self._loops else None
        options = ort.RunOptions()
        ended = threading.Timer(limit or 0, setattr, (options, "terminate", True))
        try:
            if limit is not None:
                ended.start()
            values = self._session.run(self.outputs, given, options)
        except RuntimeFault as error:
            if options.terminate:
                raise ModelError(f"the model did not come to an end within {limit:.0f} s on {rows} inputs") from error
            raise DataError(f"onnxruntime cannot run the model on these inputs: {reason(error)}") from error
        finally:
            ended.cancel()
        return dict(zip(self.outputs, values, strict=True))

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers of the session, in order of preference."""
        return tuple(self._session.get_providers())


def both_packages() -> bool:
    """Whether onnxruntime and onnxruntime-gpu are installed over each other."""
    found = 0
    for package in ("onnxruntime", "onnxruntime-gpu"):
        try:
            importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        found += 1
    return found == 2


BOTH_PACKAGES = (
    "the packages onnxruntime and onnxruntime-gpu are both installed and overwrite each other: uninstall both, then "
    "install one"
)


def _remedy() -> str:
    if both_packages():
        return f"; {BOTH_PACKAGES}"
    available = [name for name, provider in PROVIDERS.items() if provider in ort.get_available_providers()]
    return f'; available: {", ".join(available)} (GPUs: pip install "arachne-repair[onnx-gpu]" in place of [onnx])'


def reason(error: Exception) -> str:
    """Shorten an error of onnxruntime to one line without codes and source positions."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    text = re.sub(r"^\[ONNXRuntimeError\]\s*:\s*\d+\s*:\s*\w+\s*:\s*", "", text)
    text = re.sub(r"\S*onnxruntime::\S+(\([^)]*\))?\s*", "", text)
    text = re.sub(r"\s+", " ", re.sub(r"/\S+/\S+:\d+\s*", "", text)).strip(" .")
    return text[:200] or type(error).__name__
