"""A patch in a model in memory: made, applied, taken back, refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from arachne.errors import PatchError, UnknownLayerError
from arachne.io.files import sha256_of
from arachne.model.values import Address, Array
from arachne.patch import Patch, tensor_sha256
from arachne.patch.base import BaseTensor, PatchBase
from arachne.patch.change import TensorChange, changes
from arachne.patch.weight_change import WeightChange
from arachne.testing import ReferenceBackend, mlp

ADDRESSES = [Address("fc1", "bias", (2,)), Address("fc2", "weight", (0, 3)), Address("fc2", "weight", (2, 7))]
VALUES = [-0.25, 0.5, 1.0]


@pytest.fixture
def backend() -> ReferenceBackend:
    return ReferenceBackend(mlp([4, 8, 3]))


def snapshot(backend: ReferenceBackend) -> dict[tuple[str, str], bytes]:
    return {
        (info.name, parameter): values.tobytes()
        for info in backend.layers
        for parameter, values in backend.get_weights(info.name).items()
    }


def at(backend: ReferenceBackend, address: Address) -> float:
    return float(backend.get_weights(address.layer)[address.parameter][address.index])


def test_applied_patch_changes_the_listed_weights_only(backend: ReferenceBackend) -> None:
    before = {info.name: dict(backend.get_weights(info.name)) for info in backend.layers}
    Patch.between(backend, ADDRESSES, VALUES).apply(backend)
    assert [at(backend, address) for address in ADDRESSES] == VALUES
    changed = sum(
        int(np.count_nonzero(values != backend.get_weights(layer)[parameter]))
        for layer, parameters in before.items()
        for parameter, values in parameters.items()
    )
    assert changed == 3


def test_reverted_model_is_bit_identical(backend: ReferenceBackend) -> None:
    before = snapshot(backend)
    patch = Patch.between(backend, ADDRESSES, VALUES)
    patch.apply(backend)
    assert snapshot(backend) != before
    patch.revert(backend)
    assert snapshot(backend) == before


def test_new_values_are_rounded_and_unchanged_weights_left_out(backend: ReferenceBackend) -> None:
    same = at(backend, ADDRESSES[0])
    patch = Patch.between(backend, ADDRESSES, [np.nextafter(same, 9), 0.1, at(backend, ADDRESSES[2])])
    assert [entry.address for entry in patch.entries] == [ADDRESSES[1]]
    assert patch.entries[0].new == float(np.float32(0.1))
    assert [tensor.name for tensor in patch.base.tensors] == ["fc2.weight"]


def test_negative_zero_is_another_value(backend: ReferenceBackend) -> None:
    Patch.between(backend, ADDRESSES[:1], [0.0]).apply(backend)
    patch = Patch.between(backend, ADDRESSES[:1], [-0.0])
    assert [entry.new_bits for entry in patch.entries] == ["80000000"]


def test_patch_knows_the_file_its_model_came_from(backend: ReferenceBackend, tmp_path: Path) -> None:
    backend.save(tmp_path / "model.refnet")
    loaded = ReferenceBackend.load(tmp_path / "model.refnet")
    patch = Patch.between(loaded, ADDRESSES, VALUES)
    assert (patch.base.file, patch.base.sha256) == ("model.refnet", sha256_of(tmp_path / "model.refnet"))
    assert Patch.between(backend, ADDRESSES, VALUES).base.file is None


def test_context_manager_takes_the_patch_out_after_a_failure(backend: ReferenceBackend) -> None:
    before = snapshot(backend)
    patch = Patch.between(backend, ADDRESSES, VALUES)

    def interrupt() -> None:
        with patch.apply_temporarily(backend):
            assert at(backend, ADDRESSES[1]) == 0.5
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert snapshot(backend) == before


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_values_that_cannot_be_stored_are_refused(backend: ReferenceBackend, value: float) -> None:
    with pytest.raises(PatchError, match=r"fc1.bias\[2\] is .*(finite|out of range)"):
        Patch.between(backend, ADDRESSES[:1], [value])


def test_range_is_that_of_the_stored_dtype() -> None:
    half = ReferenceBackend(mlp([4, 8, 3]), dtype="float16")
    with pytest.raises(PatchError, match=r"70000\.0, which is out of range for float16"):
        Patch.between(half, ADDRESSES[:1], [70000.0])


def test_address_outside_its_tensor_is_refused(backend: ReferenceBackend) -> None:
    for index in [(8,), (-1,), (0, 0)]:
        with pytest.raises(PatchError, match="outside a tensor of shape"):
            Patch.between(backend, [Address("fc1", "bias", index)], [0.5])
    with pytest.raises(UnknownLayerError, match="fc9"):
        Patch.between(backend, [Address("fc9", "bias", (0,))], [0.5])


def changed_old_value(values: Array) -> None:
    values[0, 3] = np.nextafter(values[0, 3], np.float32(9))


def changed_neighbour(values: Array) -> None:
    values[1, 1] = np.nextafter(values[1, 1], np.float32(9))


@pytest.mark.parametrize(
    ("change", "message"),
    [(changed_old_value, r"expects fc2.weight\[0, 3\] to be"), (changed_neighbour, "not the tensor this patch")],
)
def test_model_that_differs_in_one_bit_is_refused_and_left_alone(
    backend: ReferenceBackend, change: object, message: str
) -> None:
    patch = Patch.between(backend, ADDRESSES, VALUES)
    values = backend.get_weights("fc2")["weight"]
    change(values)  # type: ignore[operator]  # pytest's parameters are untyped
    backend.set_weights("fc2", "weight", values)
    before = snapshot(backend)
    with pytest.raises(PatchError, match=message):
        patch.apply(backend)
    assert snapshot(backend) == before


def test_changes_in_untouched_layers_do_not_matter(backend: ReferenceBackend) -> None:
    patch = Patch.between(backend, ADDRESSES[1:], VALUES[1:])
    backend.set_weights("fc1", "weight", backend.get_weights("fc1")["weight"] + 1)
    patch.apply(backend)
    assert at(backend, ADDRESSES[1]) == 0.5


def test_patch_is_neither_applied_twice_nor_reverted_twice(backend: ReferenceBackend) -> None:
    patch = Patch.between(backend, ADDRESSES, VALUES)
    with pytest.raises(PatchError, match="does not carry this patch"):
        patch.revert(backend)
    patch.apply(backend)
    with pytest.raises(PatchError, match="already carries this patch"):
        patch.apply(backend)


def test_model_of_another_shape_or_dtype_is_refused(backend: ReferenceBackend) -> None:
    patch = Patch.between(backend, ADDRESSES, VALUES)
    with pytest.raises(PatchError, match="shape"):
        patch.apply(ReferenceBackend(mlp([4, 9, 3])))
    with pytest.raises(PatchError, match=r"float32.*float64"):
        patch.apply(ReferenceBackend(mlp([4, 8, 3]), dtype="float64"))
    with pytest.raises(PatchError, match="no layer 'fc2'"):
        Patch.between(backend, ADDRESSES[1:], VALUES[1:]).apply(ReferenceBackend(mlp([4, 8])))


def test_hash_of_a_tensor_is_that_of_its_float32_bytes() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3) / 8
    assert tensor_sha256(values) == tensor_sha256(values.astype(np.float16)) == tensor_sha256(values[:, ::-1][:, ::-1])
    assert tensor_sha256(values) != tensor_sha256(values.T)
    assert tensor_sha256(values.astype(np.float64)) != tensor_sha256(values)


def test_many_weights_at_once_give_the_entries_of_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ReferenceBackend(mlp([5, 4, 3], seed=0))
    rng = np.random.default_rng(1)
    addresses = [
        Address(info.name, parameter, index)
        for info in backend.layers
        for parameter, stored in info.parameters.items()
        for index in np.ndindex(*stored.shape)
    ]
    values = np.where(rng.random(len(addresses)) < 0.2, 0.0, rng.normal(size=len(addresses)))
    at_once = Patch.between(backend, addresses, values)
    with monkeypatch.context() as patched:
        patched.setattr("arachne.patch.in_memory.index_arrays", lambda index, shape: None)
        patched.setattr("arachne.patch.change.index_arrays", lambda index, shape: None)
        assert Patch.between(backend, addresses, values).to_json() == at_once.to_json()


def test_a_tensor_without_axes_is_patched() -> None:
    change = WeightChange.of(Address("gate", "scale", ()), "float32", 0.5, 0.75)
    before, after = (np.array(value, np.float32) for value in (0.5, 0.75))
    (made,) = Patch.of([TensorChange.of(before, [change])], PatchBase()).changes
    assert float(made.on(before, "float32", "here")) == 0.75
    assert made.is_done_on(after, "float32")


def test_numbers_that_no_array_can_have_are_refused_like_others() -> None:
    change = WeightChange.of(Address("fc", "weight", (2**70, 0)), "float32", 0.5, 0.75)
    tensor = BaseTensor("fc", "weight", (2**40, 2**40), "float32", "0" * 64, None)
    with pytest.raises(PatchError, match="outside a tensor of shape"):
        changes(PatchBase(tensors=(tensor,)), [change])
    inside = WeightChange.of(Address("fc", "weight", (3, 4)), "float32", 0.5, 0.75)
    assert len(changes(PatchBase(tensors=(tensor,)), [inside])) == 1
