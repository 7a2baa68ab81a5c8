"""Forward impact of every kind of layer against a naive reference that takes one weight at a time.

The reference knows nothing but the layer's own arithmetic A(W) o, written as loops: the share of a weight is what
arrives when all others are zero, over what arrives with all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from arachne.localise.impact import Flow, ScoredClasses, impact_ratio, measure_flows
from arachne.localise.linear_maps import LINEAR
from arachne.model.values import Activation, Array, Geometry, LayerInfo, ParameterInfo
from arachne.testing import ReferenceBackend, convnet, mlp, random_inputs

Map = Callable[[Mapping[str, Array]], Array]
"""From weights to what arrives at every output, with the inputs fixed."""


def naive_impact(apply: Map, weights: Mapping[str, Array], gradient: Array) -> dict[str, Array]:
    """Shares times gradient, summed over outputs, one weight at a time."""
    whole = apply({name: np.abs(values) for name, values in weights.items()})
    found = {}
    for name, values in weights.items():
        found[name] = np.zeros(values.shape)
        for index in np.ndindex(*values.shape):
            single = {other: np.zeros(v.shape) for other, v in weights.items()}
            single[name][index] = abs(values[index])
            through = apply(single)
            shares = np.divide(through, whole, out=np.zeros_like(whole), where=whole > 0)
            found[name][index] = (shares * gradient).sum()
    return found


def naive_convolution(weight: Array, x: Array, g: Geometry) -> Array:
    """`(out, *positions)`, element by element; two spatial axes."""
    (top, bottom), (left, right) = g.padding
    x = np.pad(x, [(0, 0), (top, bottom), (left, right)])
    out, per_group, kh, kw = weight.shape
    height = (x.shape[1] - (kh - 1) * g.dilation[0] - 1) // g.stride[0] + 1
    width = (x.shape[2] - (kw - 1) * g.dilation[1] - 1) // g.stride[1] + 1
    z = np.zeros((out, height, width))
    for o, c, i, j, a, b in np.ndindex(out, per_group, height, width, kh, kw):
        channel = o // (out // g.groups) * per_group + c
        at = x[channel, i * g.stride[0] + a * g.dilation[0], j * g.stride[1] + b * g.dilation[1]]
        z[o, i, j] += weight[o, c, a, b] * at
    return z


def naive_transposed(weight: Array, x: Array, g: Geometry, size: tuple[int, int]) -> Array:
    """Each input spreads its kernel over the outputs; `weight` is `(in, out / groups, kh, kw)`."""
    inputs, per_group, kh, kw = weight.shape
    z = np.zeros((per_group * g.groups, size[0] + sum(g.padding[0]), size[1] + sum(g.padding[1])))
    for c, o, i, j, a, b in np.ndindex(inputs, per_group, x.shape[1], x.shape[2], kh, kw):
        channel = c // (inputs // g.groups) * per_group + o
        z[channel, i * g.stride[0] + a * g.dilation[0], j * g.stride[1] + b * g.dilation[1]] += (
            weight[c, o, a, b] * x[c, i, j]
        )
    return z[:, g.padding[0][0] : g.padding[0][0] + size[0], g.padding[1][0] : g.padding[1][0] + size[1]]


rng = np.random.default_rng(0)


def some(*shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def mean(entering: Array) -> Array:
    return np.asarray(np.abs(entering.mean(axis=0, dtype=np.float64)))


@dataclass(frozen=True)
class Case:
    """A layer with weights, what enters it for three inputs, and its naive map at |ō|."""

    kind: str
    weights: dict[str, Array]
    entering: dict[str, Array]
    apply: Map
    geometry: Geometry | None = None
    channels: int = -1
    """The axis of one output on which biases lie."""

    @property
    def info(self) -> LayerInfo:
        return self.info_with({})

    def info_with(self, biases: Mapping[str, Array]) -> LayerInfo:
        shapes = {name: ParameterInfo(values.shape) for name, values in (self.weights | dict(biases)).items()}
        return LayerInfo("layer", self.kind, shapes, self.geometry)

    @property
    def gradient(self) -> Array:
        """Some ḡ, of the shape of one output."""
        shape = self.apply(self.weights).shape
        return np.asarray(np.abs(np.random.default_rng(1).normal(size=shape)))

    @property
    def flow(self) -> Flow:
        """Apply `measure_flows` to the use, given ḡ."""
        linear = LINEAR[self.kind](self.info)
        if self.kind == "norm":  # the signs tell where the channels are
            axes = "ncij" if self.channels == 0 else "nijc"
            leaving = np.einsum(f"c,{axes}->{axes}", self.weights["scale"], self.entering["scale"])
        else:
            leaving = np.zeros((3, *self.gradient.shape))
        use = Activation(self.entering, leaving)
        last = linear.channels_last(use, self.weights)
        (one,) = linear.uses(use, last)
        (gradient,) = linear.outputs(self.gradient[None], last)
        return Flow({name: abs(linear.total(name, one)) / 3 for name in one.entering}, gradient[0])


def dense_over_steps() -> Case:
    x = some(3, 5, 3)
    return Case("dense", {"weight": some(4, 3)}, {"weight": x}, lambda w: np.einsum("oi,ti->to", w["weight"], mean(x)))


def recurrent() -> Case:
    x, h = some(3, 5, 3), some(3, 5, 2)

    def apply(w: Mapping[str, Array]) -> Array:
        return np.asarray(mean(x) @ w["weight_ih"].T + mean(h) @ w["weight_hh"].T)

    weights = {"weight_ih": some(8, 3), "weight_hh": some(8, 2)}
    return Case("recurrent", weights, {"weight_ih": x, "weight_hh": h}, apply)


def convolution() -> Case:
    x, geometry = some(3, 4, 5, 6), Geometry((2, 1), ((1, 1), (0, 2)), (1, 2), 2)

    def apply(w: Mapping[str, Array]) -> Array:
        return naive_convolution(w["weight"], mean(x), geometry)

    return Case("conv", {"weight": some(4, 2, 3, 2)}, {"weight": x}, apply, geometry, 0)


def transposed_convolution() -> Case:
    x, geometry = some(3, 4, 3, 2), Geometry((2, 2), ((1, 1), (1, 0)), (1, 2), 2)

    def apply(w: Mapping[str, Array]) -> Array:
        return naive_transposed(w["weight"], mean(x), geometry, (6, 5))

    return Case("conv_transpose", {"weight": some(4, 3, 3, 2)}, {"weight": x}, apply, geometry, 0)


def embedding() -> Case:
    numbers = np.array([[0, 1, 5, 5], [0, 2, 5, 1], [3, 1, 0, 5]])
    often = np.stack([(numbers == row).mean(axis=0) for row in range(6)])  # (rows, positions)
    weights = {"weight": some(6, 2)}
    return Case("embedding", weights, {"weight": numbers}, lambda w: np.einsum("rp,rw->pw", often, w["weight"]))


def table_as_last_layer() -> Case:
    x = some(3, 2)
    return Case("embedding", {"weight": some(6, 2)}, {"weight": x}, lambda w: np.asarray(w["weight"] @ mean(x)))


def norm(channels: int) -> Case:
    x = some(3, 4, 5, 4)  # as many first as last, so that the shape does not tell
    axes = "cij" if channels == 0 else "ijc"

    def apply(w: Mapping[str, Array]) -> Array:
        return np.asarray(np.einsum(f"c,{axes}->{axes}", w["scale"], mean(x)))

    return Case("norm", {"scale": some(4)}, {"scale": x}, apply, channels=channels)


CASES = {
    "dense over steps": dense_over_steps(),
    "recurrent": recurrent(),
    "convolution": convolution(),
    "transposed convolution": transposed_convolution(),
    "embedding": embedding(),
    "table as last layer": table_as_last_layer(),
    "norm, channels first": norm(0),
    "norm, channels last": norm(-1),
}


def copy_weights(weights: Mapping[str, Array]) -> dict[str, Array]:
    return {name: values.copy() for name, values in weights.items()}


@pytest.mark.parametrize("name", CASES)
def test_impact_is_that_of_one_weight_at_a_time(name: str) -> None:
    case = CASES[name]
    found = copy_weights(case.weights)
    impact_ratio(case.info, found, [case.flow], [])
    for parameter, values in naive_impact(case.apply, case.weights, case.gradient).items():
        np.testing.assert_allclose(found[parameter], values, rtol=1e-4, err_msg=parameter)


@pytest.mark.parametrize("name", CASES)
def test_negatives_are_divided_by_one_plus_positives_for_every_kind(name: str) -> None:
    case = CASES[name]
    alone, both = copy_weights(case.weights), copy_weights(case.weights)
    impact_ratio(case.info, alone, [case.flow, case.flow], [])
    impact_ratio(case.info, both, [case.flow, case.flow], [case.flow])
    for parameter, values in alone.items():
        np.testing.assert_allclose(both[parameter], values / (1 + values / 2), rtol=1e-4)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.kind != "embedding"])
def test_a_bias_is_a_weight_on_a_constant_one(name: str) -> None:
    case = CASES[name]
    size = case.gradient.shape[case.channels]
    biases = {key: some(size) for key in (("bias_ih", "bias_hh") if case.kind == "recurrent" else ("bias",))}
    whole = case.apply({key: np.abs(values) for key, values in case.weights.items()})
    along = [1] * whole.ndim
    along[case.channels] = size
    total = whole + np.sum([np.abs(bias).reshape(along) for bias in biases.values()], axis=0)
    found = copy_weights(case.weights | biases)
    impact_ratio(case.info_with(biases), found, [case.flow], [])
    others = tuple(axis for axis in range(whole.ndim) if axis != case.channels % whole.ndim)
    for key, bias in biases.items():
        expected = (np.abs(bias).reshape(along) / total * case.gradient).sum(axis=others)
        np.testing.assert_allclose(found[key], expected, rtol=1e-4)
    for key, values in naive_impact(case.apply, case.weights, case.gradient).items():
        np.testing.assert_allclose(found[key], values, rtol=1e-4, err_msg="biases change the weights' impact")


def test_a_use_of_the_transpose_counts_with_the_others() -> None:
    weight, first, second = some(3, 3), some(3), some(3)
    gradients = np.abs(some(2, 3))
    info = LayerInfo("layer", "dense", {"weight": ParameterInfo((3, 3))})
    expected = naive_impact(lambda w: w["weight"] @ np.abs(first), {"weight": weight}, gradients[0])["weight"]
    expected += naive_impact(lambda w: w["weight"].T @ np.abs(second), {"weight": weight}, gradients[1])["weight"]
    flows = [
        Flow({"weight": np.abs(first).astype(np.float64)}, gradients[0].astype(np.float64)),
        Flow({"weight": np.abs(second).astype(np.float64)}, gradients[1].astype(np.float64), transposed=True),
    ]
    found = {"weight": weight.copy()}
    impact_ratio(info, found, flows, [])
    np.testing.assert_allclose(found["weight"], expected, rtol=1e-4)


def test_frames_folded_into_the_batch_count_like_uses() -> None:
    geometry = Geometry((1,), ((0, 0),), (1,))
    info = LayerInfo("layer", "conv", {"weight": ParameterInfo((2, 1, 2))}, geometry)
    use = Activation({"weight": some(3, 4, 1, 5)}, some(3, 4, 2, 4))
    uses = LINEAR["conv"](info).uses(use, False)
    assert [one.leaving.shape for one in uses] == [(3, 2, 4)] * 4
    np.testing.assert_array_equal(uses[2].entering["weight"], use.entering["weight"][:, 2])


@pytest.mark.parametrize("network", [mlp([4, 6, 3], seed=1), convnet(seed=1)])
def test_averages_do_not_depend_on_how_many_inputs_are_held(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ReferenceBackend(network)
    inputs = random_inputs(network, 23, seed=2)
    classes = ScoredClasses(backend.forward(inputs).shape[1], (0, 1))
    found = []
    for held in (1, 3_000, 256 << 20):
        monkeypatch.setattr("arachne.model.accumulate.MAX_TRACE_BYTES", held)
        averages = measure_flows(backend, inputs, backend.layers, classes)
        found.append({info.name: averages.take(info.name) for info in backend.layers})
    for other in found[1:]:
        for layer in found[0]:
            for ours, theirs in zip(found[0][layer], other[layer], strict=True):
                np.testing.assert_allclose(ours.gradient, theirs.gradient, rtol=1e-4, atol=1e-7)
                np.testing.assert_allclose(ours.entering["weight"], theirs.entering["weight"], rtol=1e-4, atol=1e-7)


def test_no_more_inputs_are_traced_at_once_than_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(ReferenceBackend):
        sizes: list[int]

        def _trace(self, inputs: Any, layers: Any) -> Any:
            self.sizes.append(len(inputs))
            return super()._trace(inputs, layers)

    network = mlp([4, 6, 3], seed=1)
    backend = Counting(network)
    backend.sizes = []
    # Twice what enters and three times what leaves: 2 * 4 + 3 * 6 and 2 * 6 + 3 * 3, 47 numbers for each input
    monkeypatch.setattr("arachne.model.accumulate.MAX_TRACE_BYTES", 10 * 47 * 4)
    measure_flows(backend, random_inputs(network, 25, seed=0), backend.layers, ScoredClasses(3, (0,)))
    assert backend.sizes == [1, 10, 10, 4]


def test_classes_that_take_turns_give_the_sum_over_all_classes_where_each_input_has_all_of_them() -> None:
    network = mlp([4, 6, 5], seed=3)
    backend, inputs = ReferenceBackend(network), random_inputs(network, 9, seed=4)
    whole = measure_flows(backend, inputs, backend.layers, ScoredClasses(5, (0, 1, 2, 3, 4)))
    turns = measure_flows(backend, inputs, backend.layers, ScoredClasses(5, (3,), (0, 1, 2, 4), turns=4))
    for info in backend.layers:
        np.testing.assert_allclose(
            whole.take(info.name)[0].gradient, turns.take(info.name)[0].gradient, rtol=1e-5, atol=1e-7
        )
