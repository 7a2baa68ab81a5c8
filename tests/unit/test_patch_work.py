"""How much work a patch of many weights makes: counted in calls, because times differ from machine to machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from arachne.model.values import Address, Array
from arachne.patch import Patch, change
from arachne.patch import match_tensor as recognise
from arachne.patch import patch as patch_module
from arachne.patch.matching import match
from arachne.patch.transfer import WeightsInMemory
from arachne.testing import ReferenceBackend, mlp
from arachne.weights.storage import IntegerGrid

WIDTH = 8
PER_TENSOR = 20


class Doubled(WeightsInMemory):
    """Write the network under other names, every weight twice as large, as an exporter may leave it."""

    def parameters(self) -> list[tuple[str, str]]:
        return [(f"other_{layer}", parameter) for layer, parameter in super().parameters()]

    def _read(self, layer: str, parameter: str) -> Array:
        return 2 * super()._read(layer.removeprefix("other_"), parameter)

    def _dtype(self, layer: str, parameter: str) -> str:
        return super()._dtype(layer.removeprefix("other_"), parameter)

    def grid(self, layer: str, parameter: str) -> IntegerGrid | None:
        return super().grid(layer.removeprefix("other_"), parameter)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the functions run that do the work; each still does it."""
    counted: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(module, name)

        def counting(*args: Any, **options: Any) -> Any:
            counted[name] += 1
            return original(*args, **options)

        monkeypatch.setattr(module, name, counting)

    count(patch_module, "changes")
    count(patch_module, "write_changes")
    count(change, "shift_fingerprint")
    count(recognise, "tensor_sha256")
    count(recognise, "fingerprint")
    return counted


def network(tensors: int) -> ReferenceBackend:
    return ReferenceBackend(mlp([WIDTH] * (tensors + 1)))


def patch_of(backend: ReferenceBackend) -> Patch:
    """A patch with `PER_TENSOR` weights in every layer."""
    rng = np.random.default_rng(0)
    places = [
        Address(info.name, "weight", (int(place) // WIDTH, int(place) % WIDTH))
        for info in backend.layers
        for place in rng.choice(WIDTH * WIDTH, PER_TENSOR, replace=False)
    ]
    return Patch.between(backend, places, rng.normal(size=len(places)))


def test_entries_are_grouped_by_tensor_once_however_often_that_is_asked(calls: Counter[str]) -> None:
    backend = network(tensors=6)
    patch = patch_of(backend)
    str(patch)
    patch.apply(backend)
    patch.revert(backend)
    match(patch, WeightsInMemory(backend))
    assert calls["changes"] == 1


def test_the_digest_is_computed_once(calls: Counter[str]) -> None:
    patch = patch_of(network(tensors=2))
    assert patch.digest == patch.digest
    assert calls["write_changes"] == 1


def test_a_row_is_fingerprinted_after_the_change_once(calls: Counter[str]) -> None:
    backend = network(tensors=4)
    patch = patch_of(backend)
    for found in (match(patch, Doubled(backend)), match(patch, Doubled(backend))):
        assert [pair.how for pair in found.pairs] == ["scaled"] * 4
    rows = sum(len(tensor.fingerprints) for tensor in patch.base.tensors)
    assert calls["shift_fingerprint"] == rows


def test_each_tensor_of_a_file_is_hashed_once_and_told_from_a_wrong_one_by_one_row(calls: Counter[str]) -> None:
    tensors = 6
    backend = network(tensors)
    patch = patch_of(backend)
    match(patch, Doubled(backend))
    rows = sum(len(tensor.fingerprints) for tensor in patch.base.tensors)
    assert calls["tensor_sha256"] == tensors  # the biases are of another shape than anything the patch changes
    # All rows of the right pairs; of a wrong pair one row before and one after the change.
    assert calls["fingerprint"] <= rows + 2 * tensors * (tensors - 1)
