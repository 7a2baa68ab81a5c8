"""`.refnet` files: a zip of plain `.npy` arrays and one JSON text that says how they belong together; no pickles."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arachne.errors import ModelError
from arachne.model.backend import WeightFile, Weights
from arachne.model.values import Array
from arachne.testing import nodes as node_types
from arachne.testing.networks import Network
from arachne.testing.nodes import Layer, Node

FORMAT = "arachne-refnet-1"
SPEC = "network.json"


def write_network(path: Path, network: Network, weights: Mapping[str, Mapping[str, Array]]) -> None:
    """Write a spec with these weights, by layer; the same network always gives the same bytes."""
    spec = {
        "format": FORMAT,
        "inputs": {name: list(shape) for name, shape in network.inputs.items()},
        "nodes": [_describe(node) for node in network.nodes],
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(SPEC), json.dumps(spec, indent=1))
        for layer in network.layers:
            for parameter, values in weights[layer].items():
                archive.writestr(zipfile.ZipInfo(_member(layer, parameter)), _npy(values))
        for name, node in network.layers.items():
            for statistic in node.STATISTICS:
                archive.writestr(zipfile.ZipInfo(_member(name, statistic)), _npy(getattr(node, statistic)))


def read_network(path: Path) -> tuple[Network, str]:
    """The network in a file, and the dtype its weights are stored in.

    Raises:
        ModelError: The file is no reference network, or a damaged one.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            spec = _spec(archive)
            made = tuple(_make(archive, entry) for entry in spec["nodes"])
        network = Network({name: tuple(shape) for name, shape in spec["inputs"].items()}, made)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise ModelError(f"'{path.name}' is not a readable reference network: {error}") from error
    dtypes = [str(values.dtype) for layer in network.layers.values() for values in layer.parameters.values()]
    return network, dtypes[0] if dtypes else "float32"


class RefnetWeights(WeightFile):
    """The weights of a `.refnet` file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        network, _ = read_network(path)
        self._stored = {
            (name, parameter): values
            for name, layer in network.layers.items()
            for parameter, values in layer.parameters.items()
        }

    def parameters(self) -> Sequence[tuple[str, str]]:
        """Every `(layer, parameter)` in the order of the nodes."""
        return tuple(self._stored)

    def _read(self, layer: str, parameter: str) -> Array:
        """A copy of one parameter."""
        return self._stored[layer, parameter].copy()

    def _dtype(self, layer: str, parameter: str) -> str:
        """The dtype of the stored array."""
        return str(self._stored[layer, parameter].dtype)

    def _rewrite(self, destination: Path, weights: Weights) -> None:
        """Copy the file member by member, with these arrays in place of the old ones."""
        replaced = {_member(*key): _npy(values.astype(self._stored[key].dtype)) for key, values in weights.items()}
        with zipfile.ZipFile(self.path) as source, zipfile.ZipFile(destination, "w") as target:
            for member in source.infolist():
                target.writestr(member, replaced.get(member.filename) or source.read(member))


def _describe(node: Node) -> dict[str, Any]:
    fields = {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
    if isinstance(node, Layer):
        # The arrays are stored as separate members; the text lists them.
        fields.update({name: fields[name] is not None for name in (*node.PARAMETERS, *node.STATISTICS)})
    return {"type": type(node).__name__, **fields}


def _make(archive: zipfile.ZipFile, entry: Mapping[str, Any]) -> Node:
    node_type = NODE_TYPES[entry["type"]]
    fields = {name: _as_tuple(value) for name, value in entry.items() if name != "type"}
    if issubclass(node_type, Layer):
        for name in (*node_type.PARAMETERS, *node_type.STATISTICS):
            fields[name] = None if entry[name] is False else _array(archive, entry["name"], name)
    return node_type(**fields)


def _spec(archive: zipfile.ZipFile) -> Any:
    spec = json.loads(archive.read(SPEC))
    if spec["format"] != FORMAT:
        raise ModelError(f"expected format '{FORMAT}', got '{spec['format']}'")
    return spec


def _array(archive: zipfile.ZipFile, layer: str, parameter: str) -> Array:
    content = io.BytesIO(archive.read(_member(layer, parameter)))
    array: Array = np.lib.format.read_array(content, allow_pickle=False)
    return array


def _npy(values: Array) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array(content, values, allow_pickle=False)
    return content.getvalue()


def _member(layer: str, parameter: str) -> str:
    return f"{layer}.{parameter}.npy"


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(item) for item in value) if isinstance(value, list) else value


NODE_TYPES: Mapping[str, type[Node]] = {
    kind.__name__: kind
    for kind in vars(node_types).values()
    if isinstance(kind, type) and issubclass(kind, Node) and not getattr(kind, "__abstractmethods__", None)
}
