"""Two models of one network tensor by tensor: which of the first's stored bits would have to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from arachne.errors import PatchError
from arachne.model.values import WEIGHT_PARAMETERS, Array
from arachne.model.weight_file import WeightFile
from arachne.patch.batchnorm_unfold import NotProvenError, Unfolded, unfold, unfold_bias
from arachne.patch.match_tensor import TOLERANCE
from arachne.patch.weight_change import WeightChange, changes_of_tensor
from arachne.weights.storage import FILE_STORAGES

MAX_ENTRIES = 1_000_000
"""Two models that differ in more weights than this are not one model and its patch."""

BIASES = ("bias", "bias_ih", "bias_hh")

Layer = dict[str, tuple[int, ...]]


class Comparison:
    """Two models tensor by tensor, and what could not be compared.

    Args:
        first: The base.
        second: The other.
        pairs: For every layer of the first the one of the second.
    """

    def __init__(self, first: WeightFile, second: WeightFile, pairs: Mapping[str, str]) -> None:
        self._first, self._second, self._pairs = first, second, pairs
        own, theirs = layers_of(first), layers_of(second)
        back = {other: layer for layer, other in pairs.items()}
        self._alone = _without_counterpart(own, theirs, pairs)
        self._alone_there = _without_counterpart(theirs, own, back)
        # A layer or a bias that only one file has may have been folded into another layer.
        self._suspect = bool(own.keys() - pairs.keys() or theirs.keys() - back.keys()) or any(
            name.rpartition(".")[2] in BIASES for name in (*self._alone, *self._alone_there)
        )
        self._folded = {layer for layer in own if self._suspect and self._is_folded(layer, own[layer])}

    def to_json(self) -> dict[str, Any]:
        """The comparison as an entry of a patch's provenance."""
        entry: dict[str, Any] = {"not_compared": self._alone} if self._alone else {}
        entry |= {"only_in_second": self._alone_there} if self._alone_there else {}
        return entry | ({"folded": sorted(self._folded)} if self._folded else {})

    def differences(self, key: tuple[str, str]) -> list[WeightChange]:
        """One entry per weight of a tensor whose stored bits would change.

        Raises:
            PatchError: Most of it differs, and not in a way that is understood.
        """
        other = (self._pairs.get(key[0], ""), key[1])
        if other not in self._second.parameters() or self._first.dtype(*key) not in FILE_STORAGES:
            return []
        values = self._translate(key, other) if self._suspect else self._second.read(*other)
        return [] if values is None else _changed_entries(self._first, key, values)

    def _translate(self, key: tuple[str, str], other: tuple[str, str]) -> Array | None:
        """The second file's tensor in the first's terms; None if it cannot be determined."""
        layer, parameter = key
        if parameter in WEIGHT_PARAMETERS:
            return self._unfold(key, other).values
        if parameter in BIASES and layer in self._folded:
            self._alone.append(".".join(key))
            return None
        if parameter == "bias_ih":
            return self._sum_biases(layer, other[0])
        return self._second.read(*other)

    def _is_folded(self, layer: str, parameters: Iterable[str]) -> bool:
        other = self._pairs.get(layer, "")
        both = [name for name in parameters if name in WEIGHT_PARAMETERS and (other, name) in self._second.parameters()]
        return any(self._unfold((layer, name), (other, name)).is_folded for name in both)

    def _unfold(self, key: tuple[str, str], other: tuple[str, str]) -> Unfolded:
        own, theirs = self._first.read(*key), self._second.read(*other)
        _check_shapes(key, own, theirs)
        try:
            return unfold(own, theirs, (self._first.dtype(*key), self._second.dtype(*other)))
        except NotProvenError as error:
            names = ", ".join([*self._alone, *self._alone_there][:4])
            raise PatchError(
                f"'{'.'.join(key)}' differs in most weights of row {error.row}, and not by a factor as from a folded "
                f"batch normalisation; only one of the files has {names}, so changes and what an exporter did "
                "cannot be distinguished: compare two files from the same exporter"
            ) from None

    def _sum_biases(self, layer: str, other: str) -> Array | None:
        pair = [(self._first, layer), (self._second, other)]
        if len({(name, "bias_hh") in file.parameters() for file, name in pair}) == 1:
            return self._second.read(other, "bias_ih")
        own, theirs = (_reader(file, name) for file, name in pair)
        dtypes = [file.dtype(name, "bias_ih") for file, name in pair]
        return unfold_bias(own, theirs, 4 * max(TOLERANCE[dtype] for dtype in dtypes))


def _without_counterpart(
    layers: Mapping[str, Layer], others: Mapping[str, Layer], pairs: Mapping[str, str]
) -> list[str]:
    """The parameters, such as `conv1.bias`, that one file has and the other has not."""
    return [
        f"{layer}.{name}"
        for layer, own in layers.items()
        for name in own
        if name not in others.get(pairs.get(layer, ""), {})
    ]


def _check_shapes(key: tuple[str, str], own: Array, theirs: Array) -> None:
    if own.shape != theirs.shape:
        raise PatchError(f"'{'.'.join(key)}' is of shape {own.shape} in one model and {theirs.shape} in the other")


def _reader(file: WeightFile, layer: str) -> Callable[[str], Array | None]:
    return lambda parameter: file.read(layer, parameter) if (layer, parameter) in file.parameters() else None


def _changed_entries(first: WeightFile, key: tuple[str, str], values: Array) -> list[WeightChange]:
    """One entry per weight whose stored bits these values would change."""
    old = first.read(*key)
    _check_shapes(key, old, values)
    return changes_of_tensor(key, first.dtype(*key), old, values, MAX_ENTRIES + 1)


def layers_of(file: WeightFile) -> dict[str, Layer]:
    """The shapes of every layer's parameters."""
    found: dict[str, Layer] = {}
    for layer, parameter in file.parameters():
        found.setdefault(layer, {})[parameter] = tuple(file.read(layer, parameter).shape)
    return found
