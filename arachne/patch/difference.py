"""Make a patch of two models of one network: the changes from the first's weights to the second's.

Layers are paired by name. Where the names differ, as between frameworks, by what they hold: the layer of the same
shapes that is nearest by far. Only the first file's own bits are ever compared, so a copy of a model gives an empty
patch, and a patched copy gives back its patch. Where one file has layers or biases that the other lacks, an exporter
may have folded them into others: then factors are taken out first (`unfolding.py`), and what cannot be proven is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arachne.errors import PatchError, did_you_mean
from arachne.io.files import sha256_of
from arachne.model.values import WEIGHT_PARAMETERS
from arachne.model.weight_file import WeightFile
from arachne.patch.base import PatchBase
from arachne.patch.batchnorm_unfold import unexplained_share
from arachne.patch.change import TensorChange
from arachne.patch.comparing import MAX_ENTRIES, Comparison, Layer, layers_of
from arachne.patch.patch import Patch

FAR = 0.4
"""Layers further apart than this are not the same layer."""


def diff(
    first: WeightFile,
    second: WeightFile,
    *,
    mapping: Mapping[str, str] | None = None,
    backend: str | None = None,
    content: str | None = None,
) -> Patch:
    """The patch that gives the first model the weights of the second, rounded to the first's dtypes.

    Args:
        first: The base.
        second: Another model of the same network, perhaps of another framework.
        mapping: Which layer of the second is meant, by the first's layer, where content does not tell.
        backend: The name of the backend that opened the first.
        content: All tensors of the first in one number, where it is known.

    Raises:
        PatchError: A layer with weights has no counterpart, or could have several; or they differ all over, or in a way
            that cannot be told from what an exporter does.
    """
    pairs = pair_layers(first, second, mapping or {})
    made: list[TensorChange] = []
    count = 0
    compared = Comparison(first, second, pairs)
    for key in first.parameters():
        entries = compared.differences(key)
        count += len(entries)
        if count > MAX_ENTRIES:
            raise PatchError(
                f"'{first.path.name}' and '{second.path.name}' differ in more than {MAX_ENTRIES:,} weights: "
                "that is another model, not a patch"
            )
        if entries:
            made.append(TensorChange.of(first.read(*key), entries))
    base = PatchBase(first.path.name, sha256_of(first.path), backend, content=content)
    facts: dict[str, Any] = {"second": {"file": second.path.name, "sha256": sha256_of(second.path)}}
    renamed = {layer: other for layer, other in pairs.items() if layer != other}
    facts |= {"layers": renamed} if renamed else {}
    facts |= compared.to_json()
    return Patch.of(made, base, provenance={"diff": facts})


def pair_layers(first: WeightFile, second: WeightFile, mapping: Mapping[str, str]) -> dict[str, str]:
    """Pair the layers of two models, by name or by content.

    Raises:
        PatchError: A layer with a weight matrix has no counterpart, or could have several.
    """
    own, theirs = layers_of(first), layers_of(second)
    for layer, other in mapping.items():
        if layer not in own:
            raise PatchError(f"'{first.path.name}' has no layer '{layer}'" + did_you_mean(layer, own))
        if other not in theirs:
            raise PatchError(f"'{second.path.name}' has no layer '{other}'" + did_you_mean(other, theirs))
    by_name = {layer: layer for layer in own if _fits(own[layer], theirs.get(layer, {}))}
    pairs = {**by_name, **mapping}
    free = [layer for layer in theirs if layer not in pairs.values()]
    for layer, shapes in own.items():
        if layer in pairs:
            continue
        near = _nearest(first, layer, second, [other for other in free if _fits(shapes, theirs[other])])
        if len(near) == 1:
            pairs[layer] = near[0]
        elif near:
            names = ", ".join(f"'{name}'" for name in near[:8])
            raise PatchError(
                f"layer '{layer}' could be {names} in '{second.path.name}'; "
                f"say which is meant, as in {layer}={near[0]}",
                argument="mapping",
            )
        elif any(parameter in WEIGHT_PARAMETERS for parameter in shapes):
            raise PatchError(
                f"these are not two models of one network: layer '{layer}' of '{first.path}' has no counterpart in "
                f"'{second.path}', no layer of its shapes comes near it"
            )
    _check_once(pairs, second)
    return pairs


def _nearest(first: WeightFile, layer: str, second: WeightFile, candidates: Sequence[str]) -> list[str]:
    """The layer that is nearest by far; several when none is."""
    distances = {other: _distance(first, layer, second, other) for other in candidates}
    near = sorted((d, other) for other, d in distances.items() if d <= FAR)
    if len(near) > 1 and near[0][0] < near[1][0] / 2:
        near = near[:1]
    return [other for _, other in near]


def _distance(first: WeightFile, layer: str, second: WeightFile, other: str) -> float:
    """Mean over all weights of `min(|a - b| / rms(a), 1)`, where `rms(a)` is taken over the parameter.

    It stays small when a few weights differ much or all of them a little; unrelated layers come to about 0.7. Where a
    factor per row explains more of a matrix, as after folding, the share that it does not explain counts instead.
    """
    apart, count = 0.0, 0
    shared = set(second.parameters())
    for name, parameter in first.parameters():
        if name == layer and (other, parameter) in shared:
            a = np.asarray(first.read(layer, parameter), np.float64)
            difference = np.abs(a - second.read(other, parameter))
            size = float(np.sqrt(np.mean(a**2)))
            plain = float(np.sum(np.minimum(difference / size, 1) if size else difference > 0))
            if a.ndim > 1 and plain > FAR / 10 * a.size:
                dtypes = first.dtype(layer, parameter), second.dtype(other, parameter)
                plain = min(plain, a.size * unexplained_share(a, second.read(other, parameter), dtypes))
            apart += plain
            count += a.size
    return apart / count


def _fits(own: Layer, theirs: Layer) -> bool:
    """Whether two layers have the same weights; one may store a bias that the other does not."""
    common = own.keys() & theirs.keys()
    weights = {name for name in (*own, *theirs) if name in WEIGHT_PARAMETERS}
    return bool(common) and weights <= common and all(own[name] == theirs[name] for name in common)


def _check_once(pairs: Mapping[str, str], second: WeightFile) -> None:
    taken: dict[str, str] = {}
    for layer, other in pairs.items():
        rival = taken.setdefault(other, layer)
        if rival != layer:
            raise PatchError(
                f"layer '{other}' in '{second.path.name}' could be '{rival}' and '{layer}'; say which is meant",
                argument="mapping",
            )
