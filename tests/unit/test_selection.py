"""Selection: candidate order, and one look at each tensor however many weights of it are selected."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arachne.model.values import Address, Array
from arachne.testing import ReferenceBackend, mlp
from arachne.weights.selection import Selection
from arachne.weights.storage import STORAGES, IntegerGrid


class Watched(np.ndarray[Any, Any]):
    """A tensor that counts how often it is converted, which is what summarising it begins with."""

    conversions = 0

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        Watched.conversions += 1
        return np.asarray(self).astype(*args, **kwargs)


class Counting(ReferenceBackend):
    """Counts what it is asked for."""

    reads: list[str]

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        self.reads = [*getattr(self, "reads", ()), layer]
        return {name: values.view(Watched) for name, values in super()._get_weights(layer).items()}


def _backend() -> ReferenceBackend:
    return ReferenceBackend(mlp((5, 8, 3)))


def _select_plainly(backend: ReferenceBackend, addresses: Iterable[Address]) -> tuple[list[Address], Array]:
    """The plain definition: every suspect looks at its whole tensor."""
    order = [info.name for info in backend.layers]
    ordered = sorted(set(addresses), key=lambda a: (order.index(a.layer), a.parameter, a.index))
    rows = []
    for address in ordered:
        whole = backend.get_weights(address.layer)[address.parameter].astype(np.float64)
        rows.append((whole[address.index], whole.mean(), whole.std(), whole.min(), whole.max()))
    return ordered, np.array(rows)


def _addresses(backend: ReferenceBackend, size: int) -> list[Address]:
    every = [
        Address(info.name, parameter, tuple(int(i) for i in index))
        for info in backend.layers
        for parameter, shape in info.parameters.items()
        for index in np.ndindex(shape.shape)
    ]
    chosen = np.random.default_rng(0).choice(len(every), size=size)  # some are drawn twice
    return [every[number] for number in chosen]


def test_numbers_are_those_of_the_plain_definition_bit_for_bit() -> None:
    backend = _backend()
    addresses = _addresses(backend, 60)
    ordered, rows = _select_plainly(backend, addresses)
    suspects = Selection.of(backend, addresses)
    found = (suspects.values, suspects.means, suspects.deviations, suspects.lowest, suspects.highest)
    assert suspects.addresses == tuple(ordered)
    assert all(column.tobytes() == np.ascontiguousarray(rows[:, n]).tobytes() for n, column in enumerate(found))
    assert {place.storage.name for place in suspects.slices} == {"float32"}


def test_each_tensor_is_read_and_summarised_once() -> None:
    backend = _backend()
    addresses = _addresses(backend, 60)
    counting = Counting(mlp((5, 8, 3)))
    Watched.conversions = 0
    Selection.of(counting, addresses)
    assert counting.reads == list(dict.fromkeys(counting.reads))
    assert Watched.conversions == len({(address.layer, address.parameter) for address in addresses})


def test_they_come_in_order_of_execution_parameter_and_index() -> None:
    wanted = [
        Address("fc2", "weight", (0, 1)),
        Address("fc1", "weight", (5, 0)),
        Address("fc1", "weight", (0, 3)),
        Address("fc2", "bias", (1,)),
    ]
    suspects = Selection.of(_backend(), [*wanted, wanted[0]])
    assert suspects.addresses == (wanted[2], wanted[1], wanted[3], wanted[0])
    assert suspects.parameters == (("fc1", "weight"), ("fc2", "bias"), ("fc2", "weight"))


def test_places_put_a_candidate_vector_where_its_addresses_say() -> None:
    backend = _backend()
    suspects = Selection.of(backend, _addresses(backend, 40))
    trial = np.arange(1.0, len(suspects) + 1)
    written = {(info.name, p): np.zeros(shape.shape) for info in backend.layers for p, shape in info.parameters.items()}
    for place in suspects.slices:
        written[place.layer, place.parameter][place.index] = trial[place.numbers]
    assert [written[a.layer, a.parameter][a.index] for a in suspects.addresses] == trial.tolist()
    assert sum(np.count_nonzero(values) for values in written.values()) == len(suspects)


def test_no_addresses_make_no_suspects() -> None:
    suspects = Selection.of(_backend(), [])
    assert len(suspects) == 0
    assert suspects.parameters == ()
    assert suspects.values.shape == (0,)


@pytest.mark.parametrize("parameter", ["weights", "kernel"])
def test_an_unknown_parameter_is_refused(parameter: str) -> None:
    with pytest.raises(KeyError, match=parameter):
        Selection.of(_backend(), [Address("fc1", parameter, (0, 0))])


def test_arrays_in_any_order_select_what_addresses_do() -> None:
    backend = _backend()
    chosen = {("fc2", "weight"): np.array([7, 0, 7]), ("fc1", "bias"): np.array([3]), ("fc1", "weight"): np.arange(0)}
    found = Selection.at(backend, chosen)
    expected = [Address("fc1", "bias", (3,)), Address("fc2", "weight", (0, 0)), Address("fc2", "weight", (0, 7))]
    assert found.addresses == tuple(expected)
    assert found.first_addresses(2) == tuple(expected[:2])
    assert found.parameter_numbers.tolist() == [0, 1, 1]
    assert found.numbers_of(expected[::-1]).tolist() == [2, 1, 0]
    assert found == Selection.of(backend, expected[::-1])
    assert len({found, Selection.of(backend, expected)}) == 1
    assert found != Selection.of(backend, expected[:2])


def test_some_of_a_selection_and_two_together() -> None:
    backend = _backend()
    whole = Selection.whole(backend, [("fc2", "weight"), ("fc1", "bias")])
    assert len(whole) == 8 + 24
    some = whole.take(np.array([1, 8, 30]))
    assert some.addresses == tuple(whole.addresses[number] for number in (1, 8, 30))
    assert some.values.tolist() == whole.values[[1, 8, 30]].tolist()
    assert some.deviations.tolist() == whole.deviations[[1, 8, 30]].tolist()
    assert some.numbers_in(whole).tolist() == [1, 8, 30]
    other = Selection.of(backend, [Address("fc1", "weight", (0, 0)), Address("fc1", "bias", (1,))])
    both = some.union(other, backend)
    assert set(both.addresses) == {*some.addresses, *other.addresses}
    assert both == Selection.of(backend, both.addresses)


def test_values_are_put_into_copies_of_whole_parameters() -> None:
    backend = _backend()
    selection = Selection.of(backend, _addresses(backend, 20))
    before = selection.whole_parameters(backend)
    after = selection.put(selection.values + 1, before)
    for place in selection.slices:
        own = backend.get_weights(place.layer)[place.parameter]
        np.testing.assert_array_equal(before[place.key], own)
        own[place.index] = selection.values[place.numbers] + 1
        np.testing.assert_array_equal(after[place.key], own)
    assert set(after) == set(selection.parameters)


def test_values_are_rounded_to_what_each_parameter_stores() -> None:
    backend = _backend()
    selection = Selection.whole(backend, [("fc1", "weight")])
    half = replace(selection.slices[0], storage=STORAGES["bfloat16"])
    values = np.random.default_rng(0).normal(size=(3, len(selection)))
    np.testing.assert_array_equal(selection.round(values), values.astype(np.float32))
    np.testing.assert_array_equal(
        Selection((half,), selection.values).round(values), STORAGES["bfloat16"].round(values)
    )
    grid = replace(selection.slices[0], storage=IntegerGrid(np.full((8, 1), 0.25)))
    assert set((Selection((grid,), selection.values).round(values) * 4 % 1).ravel()) == {0.0}


def test_a_stored_selection_is_completed_by_its_model() -> None:
    backend = _backend()
    whole = Selection.of(backend, _addresses(backend, 30))
    stored = Selection.unread(whole.parameters, [place.rows for place in whole.slices])
    assert stored.addresses == whole.addresses
    assert np.isnan(stored.values).all()
    found = stored.read(backend)
    assert found == whole
    assert found.values.tolist() == whole.values.tolist()
    turned = Selection.unread([("fc2", "bias"), ("fc1", "bias")], [np.zeros((1, 1), np.int64)] * 2)
    with pytest.raises(ValueError, match="another order"):
        turned.read(backend)


@pytest.mark.parametrize("rows", [[[1], [0]], [[0], [0]], [[-1]], [0], [[0.5]], [[2**62, 1], [2**62, 2]]])
def test_places_that_are_none_are_refused(rows: list[Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Selection.unread([("fc1", "weight")], [np.array(rows)])


def test_a_stored_parameter_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="stands twice"):
        Selection.unread([("fc1", "bias")] * 2, [np.zeros((1, 1), np.int64), np.ones((1, 1), np.int64)])


@pytest.mark.parametrize("index", [(8, 0), (0, 5), (-1, 0), (0,), (2**70, 0)])
def test_an_index_outside_its_parameter_is_refused(index: tuple[int, ...]) -> None:
    with pytest.raises(IndexError, match=r"fc1\.weight"):
        Selection.of(_backend(), [Address("fc1", "weight", index)])


def test_ten_million_weights_make_no_object_each() -> None:
    side = 3200
    backend = ReferenceBackend(mlp((side, side, 3)))
    gc.collect()
    tracemalloc.start()
    try:
        selection = Selection.whole(backend, [("fc1", "weight")])
        some = selection.take(np.arange(0, len(selection), 2))
        assert some != selection
        blocks = sum(trace.count for trace in tracemalloc.take_snapshot().statistics("filename"))
    finally:
        tracemalloc.stop()
    assert len(selection) == side * side > 10**7
    assert blocks < 10_000
