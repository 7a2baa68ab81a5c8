from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting, find_non_dominated

from arachne.localise.pareto import front, order_by_fronts, survivors
from arachne.model.values import Array

# Few distinct values, so that ties and equal points come up.
points = npst.arrays(np.float32, st.tuples(st.integers(1, 60), st.just(2)), elements=st.integers(0, 8).map(float))


def plain_ranks(values: Array) -> Array:
    ranks: Array = NonDominatedSorting().do(-values.astype(float), return_rank=True)[1]
    return ranks


@given(points)
def test_the_filtered_front_is_the_front_of_all_points(values: Array) -> None:
    np.testing.assert_array_equal(front(values), np.sort(find_non_dominated(-values.astype(float))))


@given(points, st.integers(1, 6))
def test_no_point_of_the_first_fronts_is_dropped(values: Array, fronts: int) -> None:
    wanted = set(np.flatnonzero(plain_ranks(values) < fronts).tolist())
    assert wanted <= set(survivors(values[:, 0], values[:, 1], fronts).tolist())


@given(points, st.integers(1, 6))
def test_ranks_of_the_survivors_are_those_among_all_points(values: Array, fronts: int) -> None:
    kept = survivors(values[:, 0], values[:, 1], fronts)
    everywhere, among_kept = plain_ranks(values)[kept], plain_ranks(values[kept])
    np.testing.assert_array_equal(everywhere[everywhere < fronts], among_kept[everywhere < fronts])
    assert (among_kept[everywhere >= fronts] >= fronts).all()


@given(points)
def test_the_ranking_goes_front_by_front_and_holds_every_point_once(values: Array) -> None:
    order = order_by_fronts(values)
    assert sorted(order.tolist()) == list(range(len(values)))
    assert (np.diff(plain_ranks(values)[order]) >= 0).all()


def test_within_a_front_the_larger_normalised_sum_comes_first() -> None:
    values = np.array([[4.0, 1.0], [3.0, 9.0], [0.0, 10.0]])  # sums 1.1, 1.65, 1.0
    np.testing.assert_array_equal(order_by_fronts(values), [1, 0, 2])


def test_scores_that_are_all_zero_are_one_front() -> None:
    np.testing.assert_array_equal(front(np.zeros((3, 2))), [0, 1, 2])


def test_the_filter_leaves_little_of_many_points() -> None:
    values = np.random.default_rng(0).exponential(size=(200_000, 2))
    assert len(survivors(values[:, 0], values[:, 1], 5)) < 10_000
