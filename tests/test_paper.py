"""The formulas of the paper on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.decisions.losses import cross_entropies
from arachne.localise.impact import Flow, impact_ratio
from arachne.model.values import Array, Geometry, LayerInfo, ParameterInfo
from arachne.scoring.fitness import UNIT, input_deficits
from arachne.search.de_pymoo import PaperDE, PaperVariant, distinct_others


def dense(shape: tuple[int, int]) -> LayerInfo:
    return LayerInfo("fc", "dense", {"weight": ParameterInfo(shape)})


def conv(shape: tuple[int, ...], geometry: Geometry) -> LayerInfo:
    return LayerInfo("conv", "conv", {"weight": ParameterInfo(shape)}, geometry)


def impact(info: LayerInfo, weight: Array, negative: list[Flow], positive: list[Flow]) -> Array:
    weights = {"weight": weight.astype(np.float32)}
    impact_ratio(info, weights, negative, positive)
    return weights["weight"]


def test_forward_impact_of_a_dense_weight_is_its_share_times_the_output_gradient() -> None:
    # o = (1, 2), w = ((1, -2), (3, 1)): shares of output 0 are 1/5 and 4/5, of output 1 3/5 and 2/5.
    weight = np.array([[1.0, -2.0], [3.0, 1.0]])
    flow = Flow({"weight": np.array([1.0, 2.0])}, np.array([10.0, 5.0]))
    np.testing.assert_allclose(impact(dense((2, 2)), weight, [flow], []), [[2.0, 8.0], [3.0, 2.0]], rtol=1e-6)


def test_forward_impact_is_divided_by_one_plus_that_of_the_positives() -> None:
    weight = np.array([[1.0, -2.0]])
    negative = Flow({"weight": np.array([1.0, 2.0])}, np.array([10.0]))
    positive = Flow({"weight": np.array([3.0, 1.0])}, np.array([5.0]))  # shares 3/5 and 2/5: impacts 3 and 2
    found = impact(dense((1, 2)), weight, [negative], [positive])
    np.testing.assert_allclose(found, [[2 / (1 + 3), 8 / (1 + 2)]], rtol=1e-6)


def test_forward_impact_is_zero_where_nothing_arrives() -> None:
    flow = Flow({"weight": np.array([0.0, 0.0])}, np.array([7.0]))
    np.testing.assert_array_equal(impact(dense((1, 2)), np.array([[1.0, 2.0]]), [flow], []), [[0.0, 0.0]])


def test_forward_impact_of_a_kernel_sums_over_positions() -> None:
    # Input (1, 2, 3), kernel (1, 2): outputs 1+4 and 2+6. Shares: 1/5, 4/5 at the first, 2/8, 6/8 at the second.
    weight = np.array([[[1.0, 2.0]]])
    geometry = Geometry(stride=(1,), padding=((0, 0),), dilation=(1,))
    flow = Flow({"weight": np.array([[1.0, 2.0, 3.0]])}, np.array([[10.0, 4.0]]))
    found = impact(conv((1, 1, 2), geometry), weight, [flow], [])
    np.testing.assert_allclose(found, [[[10 / 5 + 4 * 2 / 8, 10 * 4 / 5 + 4 * 6 / 8]]], rtol=1e-6)


def test_forward_impact_of_a_kernel_heeds_stride_padding_dilation_and_groups() -> None:
    # Two groups of one channel; kernel of 2 with dilation 2, stride 2, one zero before.
    # Group 0: padded (0, 1, 2, 3): positions start at 0: (0, 2). Group 1: padded (0, 4, 5, 6): (0, 5).
    weight = np.array([[[1.0, 3.0]], [[-2.0, 1.0]]])
    geometry = Geometry(stride=(2,), padding=((1, 0),), dilation=(2,), groups=2)
    flow = Flow({"weight": np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])}, np.array([[7.0], [9.0]]))
    found = impact(conv((2, 1, 2), geometry), weight, [flow], [])
    np.testing.assert_allclose(found, [[[0.0, 7.0]], [[0.0, 9.0]]], rtol=1e-6)


def test_forward_impact_of_a_two_dimensional_kernel() -> None:
    # One position: a 2×2 kernel of ones over (1, 2; 3, 4): shares 0.1, 0.2, 0.3, 0.4.
    geometry = Geometry(stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1))
    flow = Flow({"weight": np.array([[[1.0, 2.0], [3.0, 4.0]]])}, np.array([[[10.0]]]))
    found = impact(conv((1, 1, 2, 2), geometry), np.ones((1, 1, 2, 2)), [flow], [])
    np.testing.assert_allclose(found[0, 0], [[1.0, 2.0], [3.0, 4.0]], rtol=1e-6)


def test_several_uses_of_a_layer_add_up() -> None:
    weight = np.array([[1.0, 1.0]])
    flow = Flow({"weight": np.array([1.0, 3.0])}, np.array([8.0]))
    np.testing.assert_allclose(impact(dense((1, 2)), weight, [flow, flow], []), [[4.0, 12.0]], rtol=1e-6)


def test_loss_is_softmax_cross_entropy() -> None:
    scores = np.array([[0.0, np.log(3.0)]])
    np.testing.assert_allclose(cross_entropies(scores, np.array([0])), [np.log(4.0)])


def test_score_is_one_when_right_and_one_over_loss_plus_one_otherwise() -> None:
    scores = np.array([[0.0, np.log(3.0)], [0.0, np.log(3.0)]])
    found = input_deficits(scores, np.array([1, 0]), np.array([1.0, 10.0]))
    assert found[0] == 0
    assert found[1] == round(10 * (1 - 1 / (np.log(4.0) + 1)) * UNIT)


def test_scores_that_are_not_finite_count_as_wrong_as_can_be() -> None:
    scores = np.array([[np.nan, 0.0], [np.inf, 0.0]])
    np.testing.assert_array_equal(input_deficits(scores, np.array([1, 0]), np.array([1.0, 2.0])), [UNIT, 2 * UNIT])


class Script:
    """A generator that hands out what it is told to, to follow a formula by hand."""

    def __init__(self, scale: float, keys: Array, chances: Array, forced: Array) -> None:
        self._random = [keys, chances]
        self._scale = scale
        self._forced = forced

    def uniform(self, low: float, high: float) -> float:
        assert (low, high) == (0.5, 1.0)
        return self._scale

    def random(self, shape: tuple[int, int]) -> Array:
        values = self._random.pop(0)
        assert values.shape == shape
        return values.copy()

    def integers(self, high: int, size: int) -> Array:
        assert (high, size) == (2, len(self._forced))
        return self._forced


class Members:
    def __init__(self, values: Array) -> None:
        self._values = values

    def get(self, name: str) -> Array:
        assert name == "X"
        return self._values

    def __len__(self) -> int:
        return len(self._values)


class Algorithm:
    def __init__(self, random_state: Script) -> None:
        self.random_state = random_state


def test_a_trial_takes_first_plus_f_times_the_difference_where_crossover_or_force_says() -> None:
    members = np.array([[0.0, 0.0], [1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    # Smallest keys first, the member itself never: member 0 gets 1, 2, 3; member 3 gets 2, 1, 0.
    keys = np.array([[0.0, 0.1, 0.2, 0.3], [0.1, 0, 0.2, 0.3], [0.1, 0.2, 0, 0.3], [0.3, 0.2, 0.1, 0.0]])
    chances = np.array([[0.7, 0.9], [0.9, 0.9], [0.1, 0.1], [0.9, 0.71]])
    script = Script(0.5, keys, chances, np.array([0, 1, 0, 0]))
    variant = PaperVariant(0.7, (0.5, 1.0), lambda trials: trials)
    found = variant.do(None, Members(members), 4, algorithm=Algorithm(script)).get("X")
    np.testing.assert_allclose(found[0], [1 + 0.5 * (2 - 4), 0.0])  # 0.7 <= CR; the second stays
    np.testing.assert_allclose(found[1], [1.0, 0 + 0.5 * (20 - 40)])  # only the forced element
    np.testing.assert_allclose(found[2], [0 + 0.5 * (1 - 4), 0 + 0.5 * (10 - 40)])
    np.testing.assert_allclose(found[3], [2 + 0.5 * (1 - 0), 40.0])


def test_donors_are_three_others_all_distinct() -> None:
    first, left, right = distinct_others(7, rng=np.random.default_rng(0))
    together = np.stack([np.arange(7), first, left, right], axis=1)
    assert all(len(set(row)) == 4 for row in together.tolist())


@pytest.mark.parametrize(("trial", "replaced"), [(4, True), (5, True), (6, False)])
def test_a_trial_replaces_its_parent_when_it_is_at_least_as_good(trial: int, replaced: bool) -> None:
    start = np.arange(4.0)[:, None]
    variant = PaperVariant(0.7, (0.5, 1.0), lambda trials: trials)
    algorithm = PaperDE(start, np.full((4, 1), 5), variant, rng=np.random.default_rng(0))
    trials = algorithm.ask()
    count = algorithm.tell_deficits(trials, np.array([[trial], [9], [9], [9]]))
    assert count == int(replaced)
    assert (algorithm.pop[0].X == trials[0].X).all() == replaced
    np.testing.assert_array_equal(algorithm.pop.get("X")[1:], start[1:])
