"""Open and save models: files with their external data, and `ModelProto` objects; nothing in them is run."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper

from arachne.errors import EnvironmentFaultError, ModelError, UnsafeModelError, UsageError, did_you_mean
from arachne.io.files import atomic_write, same_file
from arachne.io.output_paths import environment_faults
from arachne.io.reading import error_text
from arachne.model.values import Array
from arachne.weights.storage import STORAGES
from arachne_onnx.bounds import check_sizes
from arachne_onnx.checks import check_model, check_operators, check_signatures
from arachne_onnx.graph import LARGE_TENSOR_BYTES, MAX_MESSAGE_BYTES, Graph, subgraphs
from arachne_onnx.layers import Layer
from arachne_onnx.normalise import normalise
from arachne_onnx.surgery import (
    RAW_ELEMENTS,
    WHOLE_ELEMENTS,
    TensorLocation,
    external_span,
    locate_tensors,
    rewrite,
)

ALWAYS_ALLOWED_BYTES = 64 * 2**20
"""Bytes that may always be read from files beside the model, even from small ones."""

OLD_IR_VERSIONS, OLD_OPSETS = range(3, 11), range(7, 22)
"""Every onnxruntime from 1.20 on takes these; it is loaded and asked about others only."""


@dataclass(frozen=True)
class LoadedModel:
    """A model and where it came from.

    Attributes:
        model: The message, external data read in.
        path: The file; None for an object.
        content: The serialised bytes of an object.
        locations: The location of every stored tensor.
        beside: The files beside the model that hold weights, by their names in the model.
        outside: Large tensors that do not fit into the message; memory-mapped, not read.
        device: The requested device, if any.
    """

    model: ModelProto
    path: Path | None
    content: bytes | None
    locations: Mapping[str, TensorLocation]
    beside: Mapping[str, Path] = field(default_factory=dict)
    outside: Mapping[str, Array] = field(default_factory=dict)
    device: str | None = None

    @property
    def format(self) -> str:
        """The kind of file or object it came in."""
        return "onnx model" if self.path is None else "onnx file"

    @property
    def weight_tensors(self) -> frozenset[str]:
        """Return the names of the stored tensors that may be weights: floats, and whole numbers that are rewritable."""
        return frozenset(
            name
            for name, location in self.locations.items()
            if location.element in RAW_ELEMENTS or (location.element in WHOLE_ELEMENTS and not location.varints)
        )


def open_model(
    source: Any, *, weights: Path | None = None, device: str | None = None, trust_code: bool = False
) -> LoadedModel:
    """Open a `.onnx` file or wrap a `ModelProto`, and check the model; there is no code in it to trust.

    Raises:
        UsageError: Weights are given apart.
        ModelError: No ONNX model, or one that nothing here can run.
        UnsafeModelError: Its external data lies outside its folder.
    """
    if weights is not None:
        raise UsageError(f"an ONNX model holds its own weights, so '{weights.name}' has no use")
    if isinstance(source, ModelProto):
        try:
            content = source.SerializeToString()
        except Exception as error:  # protobuf's EncodeError; its package is not ours to import
            raise ModelError("the model is too large for one message, which holds 2 GB at most") from error
        model = ModelProto()
        model.CopyFrom(source)
        check_model(model)
        opened = LoadedModel(model, None, content, locate_tensors(content))
        if any(location.external for location in opened.locations.values()):
            raise ModelError("the model keeps weights in files beside it, so open its file, not the object")
    elif isinstance(source, (str, Path)):
        opened = _open_file(Path(source))
    else:
        raise ModelError(f"expected an ONNX file or a ModelProto, got '{type(source).__name__}'")
    _check_operators(opened.model)
    return replace(opened, device=device)


def _open_file(path: Path) -> LoadedModel:
    try:
        _check_size(path.stat().st_size)
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read '{path.name}': {error.strerror}") from error
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # protobuf's DecodeError; its package is not ours to import
        raise ModelError(f"'{path.name}' is no ONNX model, or it was cut short") from error
    if not model.graph.node or not model.opset_import:
        raise ModelError(f"'{path.name}' is no ONNX model, or it was cut short: it holds no graph")
    check_model(model)
    locations = locate_tensors(content)
    beside, outside = _read_external(model.graph, path, len(content))
    if not {location.external.get("location") for location in locations.values() if location.external} <= set(beside):
        raise UnsafeModelError(f"'{path.name}' says in two ways which files beside it hold its weights")
    return LoadedModel(model, path, None, locations, beside, outside)


def _check_size(size: int) -> None:
    if size > MAX_MESSAGE_BYTES:
        raise ModelError(
            f"the model takes {size / 1e9:.1f} GB without the weights that lie beside it, and a message holds 2 GB at "
            "most; save it with external data"
        )


def _check_memory(size: int) -> None:
    """Refuse a model larger than the memory before any of it is read."""
    if (
        size > MAX_MESSAGE_BYTES
        and hasattr(os, "sysconf")
        and size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    ):
        raise EnvironmentFaultError(
            f"the model takes {size / 1e9:.1f} GB with its weights, more than this machine has memory"
        )


def _read_external(graph: GraphProto, path: Path, size: int) -> tuple[dict[str, Path], dict[str, Array]]:
    """Read tensors from the files beside the model, after checking that the files are there and large enough.

    Returns:
        These files, by their names in the model; and the memory-mapped tensors that stay in them if all together do
        not fit into a message.
    """
    spans, files, beside = [], dict[Path, int](), dict[str, Path]()
    for value in _tensors(graph):
        if value.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in value.external_data}
        location = entries.get("location", "")
        if location not in beside:
            beside[location] = resolve_external(path.parent, location)
            files[beside[location]] = beside[location].stat().st_size
        file = beside[location]
        location = TensorLocation(value.data_type, tuple(value.dims), external=entries)
        spans.append((value, file, *external_span(location, files[file])))
    total = sum(length for *_, length in spans)
    if total > 2 * sum(files.values()) + ALWAYS_ALLOWED_BYTES:
        raise UnsafeModelError(f"the model reads {total:,} bytes out of files beside it that have far fewer")
    _check_memory(size + total)
    own = {value.name for value in graph.initializer} if size + total > MAX_MESSAGE_BYTES else set()
    stays = [span for span in spans if span[0].name in own and span[-1] >= LARGE_TENSOR_BYTES]
    _check_size(size + total - sum(length for *_, length in stays))
    outside: dict[str, Array] = {}
    for value, file, offset, length in spans:
        if value.name in own and length >= LARGE_TENSOR_BYTES:
            dtype = TensorLocation(value.data_type).dtype
            outside[value.name] = np.memmap(file, dtype, "r", offset, tuple(value.dims))
            continue
        with open(file, "rb") as stream:
            stream.seek(offset)
            value.raw_data = stream.read(length)
        value.data_location = TensorProto.DEFAULT
        del value.external_data[:]
    return beside, outside


def resolve_external(folder: Path, location: str) -> Path:
    """Return the path of an external file, if it is inside the model's folder.

    Raises:
        UnsafeModelError: It is elsewhere, by its name or through a link.
        ModelError: It is not there, or is no file.
    """
    file, parts = folder / location, PurePosixPath(location).parts
    try:
        inside, there = file.resolve().is_relative_to(folder.resolve()), file.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # a name that no file can have, or a circle of links
        raise ModelError(f"the model's external data {location[:200]!r} cannot be opened") from error
    # Also by its name alone: a copy of it goes to the same name in another folder, where there are other links.
    if not parts or ".." in parts or any(sign in location for sign in "\\:\0") or location[0] == "/" or not inside:
        raise UnsafeModelError(f"the model's external data '{location}' lies outside its folder")
    if not there:
        raise ModelError(f"the model's external data '{location}' is missing beside it")
    return file


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
        for body in subgraphs(node):
            yield from _tensors(body)


def _check_operators(model: ModelProto) -> None:
    """Refuse versions and operators that the installed runtime does not support."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    if model.ir_version < 1:
        raise ModelError(f"the model has IR version {model.ir_version}, which there never was")
    opset = opsets.get("", opsets.get("ai.onnx", 0))
    if model.ir_version not in OLD_IR_VERSIONS or opset not in OLD_OPSETS:
        _check_versions(model.ir_version, opset)
    check_operators(model.graph.node, model.functions)
    check_signatures(model.graph.node, opset)


@functools.cache
def _check_versions(ir_version: int, opset: int) -> None:
    import onnxruntime

    from arachne_onnx.sessions import Device

    node = helper.make_node("Identity", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([node], "probe", ends[:1], ends[1:])
    for what, ir, version in (("IR version", ir_version, 13), ("opset", 8, opset)):
        imports = [helper.make_opsetid("", version)]
        try:
            Device().session(helper.make_model(graph, opset_imports=imports, ir_version=ir))
        except ModelError as error:
            number = ir_version if what == "IR version" else opset
            raise ModelError(
                f"the model has {what} {number}, newer than onnxruntime {onnxruntime.__version__} takes; export it "
                "with an older one"
            ) from error


def read_graph(opened: LoadedModel) -> Graph:
    """Normalise the graph and check its weights.

    Raises:
        ModelError: A weight that is not a number.
    """
    try:
        graph = normalise(opened.model, opened.outside)
        check_sizes(graph)
    except (ValueError, TypeError, RuntimeError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"the model is not valid ONNX: {error_text(error)}") from error
    for name, value in graph.constants.items():
        if str(value.dtype) in STORAGES and np.isnan(value.astype(np.float32, copy=False)).any():
            raise ModelError(f"the model's weight '{name}' holds a value that is not a number")
    return graph


def with_shapes(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> ModelProto:
    """Copy a model with sizes for inputs that leave them free; what was inferred without them is left out.

    Raises:
        UsageError: No such input, or one of another shape.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    inputs = {str(value.name): value.type.tensor_type.shape for value in copy.graph.input}
    for name, sizes in shapes.items():
        if name not in inputs:
            raise UsageError(f"the model has no input '{name}'" + did_you_mean(name, inputs))
        declared = [size.dim_value if size.dim_value > 0 else None for size in inputs[name].dim]
        fits = len(declared) == len(sizes) and all(old in (None, new) for old, new in zip(declared, sizes, strict=True))
        if not fits or not all(sizes):
            taken = "x".join("?" if size is None else str(size) for size in declared)
            raise UsageError(
                f"the model's input '{name}' takes {taken}, which {'x'.join(map(str, sizes))} does not fit"
            )
        for dimension, size in zip(inputs[name].dim, sizes, strict=True):
            dimension.dim_value = size
    del copy.graph.value_info[:]
    return copy


def check_finite(layers: Mapping[str, Layer], constants: Mapping[str, Array]) -> None:
    """Refuse infinite weights; constants that are no weights may be infinite, as masks are."""
    for layer in layers.values():
        for slice_ in layer.stored.values():
            if not np.isfinite(constants[slice_.name].astype(np.float32, copy=False)).all():
                raise ModelError(f"the model's weight '{slice_.name}' holds a value that is not finite")


def save(opened: LoadedModel, changed: Mapping[str, Array], path: Path) -> None:
    """Write a copy of the model in which only the bytes of changed weights differ.

    Raises:
        ModelError: The path is the model's own file, or has another suffix.
    """
    if path.suffix.lower() != ".onnx":
        raise ModelError(f"an ONNX model is saved as '.onnx', not as '{path.name}'")
    if opened.path is not None and same_file(opened.path, path):
        raise ModelError(f"'{path}' is the model's own file, choose another name")
    source = opened.path if opened.content is None else opened.content
    if source is None:
        raise ModelError("the model has neither a file nor content")
    files = rewrite(source, opened.beside, path, changed)
    if len(files) <= len(opened.beside):
        raise ModelError(f"two of the model's files would lie in one place beside '{path.name}'; choose another name")
    write_files(files, path, opened.path)


def rename_external(copy: Path, names: Mapping[str, str]) -> None:
    """Rename files beside a finished copy that hold its weights, and say so in the copy.

    Args:
        copy: The model's file; what it holds apart from these names stays as it is.
        names: The new names by the old ones.
    """
    model = ModelProto()
    model.ParseFromString(copy.read_bytes())
    for value in _tensors(model.graph):
        for entry in value.external_data:
            if entry.key == "location" and entry.value in names:
                entry.value = names[entry.value]
    for old, new in names.items():
        (copy.parent / old).rename(copy.parent / new)
    copy.write_bytes(model.SerializeToString())


def write_files(files: Mapping[Path, bytes], model: Path, source: Path | None) -> None:
    """Write a model's files, the model itself last; existing weight files are never overwritten.

    Raises:
        ModelError: A file is in the way of another one's content, or a link would lead out of the model's folder.
    """
    folder = model.parent.resolve()
    new = {file: content for file, content in files.items() if file == model or not _is_written(file, content)}
    for file in new:
        if file != model and not file.parent.resolve().is_relative_to(folder):
            raise ModelError(f"'{file.parent}' leads out of the folder that '{model.name}' goes to; choose another")
    for file, content in new.items():
        with environment_faults(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, content, source=source)


def _is_written(file: Path, content: bytes) -> bool:
    """Whether a file exists with this content.

    Raises:
        ModelError: It exists with another content.
    """
    if not os.path.lexists(file):
        return False
    if file.is_file() and file.read_bytes() == content:
        return True
    raise ModelError(
        f"the model keeps weights in '{file.name}' beside it, which is in the way; write into another folder"
    )


def shared_tensors(layers: Mapping[str, Layer]) -> list[str]:
    """Describe stored tensors that several layers use, and layers that are used several times."""
    users: dict[str, list[str]] = {}
    for name, layer in layers.items():
        for parameter, slice_ in layer.stored.items():
            if not slice_.is_part:
                users.setdefault(slice_.name, []).append(f"{name}.{parameter}")
    notes = [
        f"{' and '.join(names)} are one stored tensor: a patch to one changes all of them"
        for names in users.values()
        if len(names) > 1
    ]
    return notes + [
        f"layer '{name}' is used {layer.info.uses} times: a patch changes every use"
        for name, layer in layers.items()
        if layer.info.uses > 1
    ]
