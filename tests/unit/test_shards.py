"""Results for many inputs are put together from shards, in memory or read one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from arachne.decisions.losses import cross_entropy
from arachne.errors import DataError
from arachne.model.lazy import Chained, LazyArray, Source, as_array, concatenate, is_lazy
from arachne.model.sharding import SHARD, add_in_place, interleave_groups, offset_rows, read_shards, shards
from arachne.model.values import EVEN, Array, count, read, take
from arachne.testing import ReferenceBackend, convnet, mlp, random_inputs

N = 2 * SHARD + 37


class Counting(Source):
    """An array that tells how many rows were read at once, at most."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.n, self.kinds = len(array), {"": (array.shape[1:], array.dtype)}
        self.largest = self.rows = 0

    def read(self, name: str, rows: Array) -> Array:
        self.largest, self.rows = max(self.largest, len(rows)), self.rows + len(rows)
        return np.asarray(self._array[rows])

    def describe(self, rows: Array) -> dict[str, Any]:
        raise DataError("it lives here")


def lazily(array: Array) -> tuple[Array, Counting]:
    """An array that is read when it is indexed, and a counter of the reading."""
    source = Counting(array)
    return as_array(LazyArray(source)), source


@pytest.fixture
def inputs() -> Array:
    return np.random.default_rng(0).standard_normal((N, 12)).astype(np.float32)


def test_shards_cover_all_inputs_and_begin_at_multiples_of_even() -> None:
    for n in (1, EVEN, SHARD, SHARD + 1, 5000, 1_000_003):
        found = shards(n)
        assert [part.start for part in found] == [0, *(part.stop for part in found[:-1])]
        assert found[-1].stop == n
        assert all(part.start % EVEN == 0 and part.stop - part.start <= SHARD for part in found)
    assert shards(0) == [slice(0, 0)]


def test_every_shard_gets_its_share_of_each_group_and_one_shard_stays_as_it_is() -> None:
    groups = np.repeat([0, 1, 2], [150, 4000, 90])
    order = interleave_groups(groups)
    assert np.array_equal(np.sort(order), np.arange(len(groups)))
    for group, size in enumerate((150, 4000, 90)):
        own = order[groups[order] == group]
        assert np.array_equal(own, np.sort(own))
        found = [int((groups[order[part]] == group).sum()) for part in shards(len(groups))]
        assert max(abs(n - size / len(found)) for n in found) <= 0.02 * size + 1
    assert np.array_equal(interleave_groups(np.arange(SHARD) % 3), np.arange(SHARD))


def test_every_operation_gives_the_same_bits_for_lazy_inputs_one_shard_at_a_time(inputs: Array) -> None:
    backend = ReferenceBackend(mlp([12, 7, 3], seed=1))
    loss = cross_entropy(np.arange(N) % 3)
    seed = np.random.default_rng(1).standard_normal((N, 3)).astype(np.float32)
    lazy, source = lazily(inputs)
    layer = backend.layers[0].name
    assert np.array_equal(backend.forward(lazy), backend.forward(inputs))
    assert np.array_equal(backend.activations(lazy, layer)[0].leaving, backend.activations(inputs, layer)[0].leaving)
    scores, (use,) = backend.forward_through(lazy, layer)
    assert np.array_equal(scores, backend.forward(inputs))
    assert np.array_equal(use.entering["weight"], inputs)
    assert np.array_equal(
        backend.output_gradients(lazy, layer, seed)[0], backend.output_gradients(inputs, layer, seed)[0]
    )
    slopes = [np.asarray(backend.input_gradients(own, loss)) for own in (lazy, inputs)]
    assert np.array_equal(slopes[0], slopes[1])
    expected = backend.weight_gradients(inputs, loss)
    for place, values in backend.weight_gradients(lazy, loss).items():
        assert np.array_equal(values, expected[place])
    assert 0 < source.largest <= SHARD


def test_gradients_are_the_sums_of_the_shards_in_order(inputs: Array) -> None:
    backend, loss = ReferenceBackend(mlp([12, 7, 3], seed=1)), cross_entropy(np.arange(N) % 3)
    total = None
    for rows in shards(N):
        found = backend.weight_gradients(inputs[rows], offset_rows(loss, rows.start))
        total = found if total is None else add_in_place(total, found)
    assert total is not None
    for place, values in backend.weight_gradients(inputs, loss).items():
        assert np.array_equal(values, total[place])


def test_a_cut_and_a_trace_of_lazy_inputs_are_those_of_the_inputs() -> None:
    network = convnet(seed=2)
    backend, plain = ReferenceBackend(network), np.asarray(random_inputs(network, 40))
    lazy, _ = lazily(plain)
    layers = [info.name for info in backend.layers][:1]
    assert np.array_equal(backend.cut(lazy, layers).scores_with({}), backend.cut(plain, layers).scores_with({}))
    assert np.array_equal(
        backend.trace(lazy, layers).activations[layers[0]][0].leaving,
        backend.trace(plain, layers).activations[layers[0]][0].leaving,
    )


def test_chosen_rows_are_read_only_when_they_are_indexed(inputs: Array) -> None:
    lazy, source = lazily(inputs)
    rows = np.array([5, 3, 1000, 3])
    view = take(take(lazy, slice(10, None)), rows)
    assert is_lazy(view)
    assert source.rows == 0
    assert np.array_equal(np.asarray(view), inputs[10:][rows])
    assert np.array_equal(lazy[-1], inputs[-1])
    assert np.array_equal(lazy[2:4, 1], inputs[2:4, 1])
    assert np.array_equal(lazy[np.arange(N) == 7], inputs[7:8])
    assert lazy.shape == inputs.shape
    assert lazy.nbytes == inputs.nbytes
    assert lazy.size == inputs.size
    with pytest.raises(IndexError, match="row 9999"):
        lazy[np.array([9999])]


def test_a_mapping_is_lazy_if_one_of_its_arrays_is(inputs: Array) -> None:
    lazy, _ = lazily(inputs)
    both: Mapping[str, Array] = {"a": lazy, "b": np.arange(N)}
    assert is_lazy(both)
    assert count(both) == N
    found = dict(read_shards(both).__next__()[1])
    assert np.array_equal(found["a"], inputs[: len(found["b"])])
    assert not is_lazy(read(both))


def test_lazy_and_plain_rows_join_in_the_dtype_of_the_first(inputs: Array) -> None:
    lazy, source = lazily(inputs)
    whole = concatenate(lazy, inputs[:5].astype(np.float64))
    assert whole.shape == (N + 5, 12)
    assert whole.dtype == np.float32
    assert source.rows == 0
    rows = np.array([N + 4, 0, N, N - 1])
    assert np.array_equal(whole[rows], np.concatenate([inputs, inputs[:5]])[rows])
    assert not is_lazy(concatenate(inputs, inputs))
    with pytest.raises(DataError, match="cannot be opened elsewhere"):
        Chained([inputs]).describe(np.arange(3))
