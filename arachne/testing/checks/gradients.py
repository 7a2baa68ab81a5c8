"""Gradients: against numbers worked out by hand, finite differences of the backend's own scores, and the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from arachne.decisions.losses import cross_entropy
from arachne.errors import ArachneError, DataError, UnknownLayerError, UsageError, WeightShapeError
from arachne.model.accumulate import show
from arachne.model.backend import ActivationAccumulator, ModelBackend
from arachne.model.values import Activation, Array, Weights, take
from arachne.testing.checks import by_hand
from arachne.testing.checks.suite import (
    MakeBackend,
    Specimen,
    Suite,
    as_outputs,
    assert_close,
    assert_same_weights,
)

STEP = 5e-3
"""Half the width of a finite difference: below it float32 rounding shows, above it the function's curvature."""


class GradientChecks(Suite):
    """`weight_gradients`, `input_gradients`, `output_gradients`, `trace`, `observe`."""

    def test_weight_gradients_are_those_worked_out_by_hand(self, make_backend: MakeBackend) -> None:
        """Gradient of the mean cross-entropy with respect to every parameter."""
        backend = self.hold(make_backend, by_hand.UNTRAINED, "mlp")
        self.needs_gradients(backend)
        found = backend.weight_gradients(by_hand.UNTRAINED_INPUTS, cross_entropy(by_hand.UNTRAINED_LABELS))
        assert_close(found["layer", "weight"], by_hand.UNTRAINED_GRADIENTS["weight"])
        assert_close(found["layer", "bias"], by_hand.UNTRAINED_GRADIENTS["bias"])

    def test_weight_gradients_cover_every_parameter(self, specimen: Specimen) -> None:
        """Every parameter has its gradient, in the order of the layers and the shape of the parameter."""
        self.needs_gradients(specimen.backend)
        found = specimen.backend.weight_gradients(specimen.inputs, specimen.cross_entropy())
        assert list(found) == specimen.backend.resolve_parameters(None)
        for (layer, parameter), values in found.items():
            assert values.shape == specimen.backend.info(layer).parameters[parameter].shape

    def test_weight_gradients_agree_with_finite_differences(self, smooth_specimen: Specimen) -> None:
        """The gradients are those of whatever loss is asked for: finite differences of the model's scores agree."""
        specimen = smooth_specimen
        self.needs_gradients(specimen.backend)
        losses = specimen.losses(specimen.backend.forward(specimen.inputs))
        found = {loss.name: specimen.backend.weight_gradients(specimen.inputs, loss.gradient) for loss in losses}
        for layer, parameter, direction in directions(specimen):
            above, below = _scores_along(specimen.backend, specimen, layer, parameter, direction)
            for loss in losses:
                slope = (loss.value(above) - loss.value(below)) / (2 * STEP)
                along = float((found[loss.name][layer, parameter] * direction).sum())
                assert along == pytest.approx(slope, rel=5e-3, abs=3e-4), f"{loss.name}, '{layer}', {parameter}"

    def test_a_pull_sees_each_row_once(self, make_backend: MakeBackend) -> None:
        """A loss gets the scores of every row once, in order, and never those of rows that only fill a batch."""
        for n in (1, 7, 1100):
            specimen = self.build(make_backend, "mlp", n=n)
            self.needs_gradients(specimen.backend)
            seen = Seen()
            specimen.backend.weight_gradients(specimen.inputs, seen)
            assert_close(seen.scores(n), specimen.backend.forward(specimen.inputs))

    def test_a_pull_of_another_shape_is_refused(self, make_backend: MakeBackend) -> None:
        """A loss gives one gradient for each score."""
        specimen = self.build(make_backend, "mlp")
        self.needs_gradients(specimen.backend)
        with pytest.raises(WeightShapeError):
            specimen.backend.weight_gradients(specimen.inputs, lambda scores, rows: scores[:, :1])

    def test_input_gradients_agree_with_finite_differences(self, smooth_specimen: Specimen) -> None:
        """The gradient of a loss with respect to the inputs, in their shapes; where a backend gives it."""
        specimen = smooth_specimen
        self.needs_gradients(specimen.backend)
        if type(specimen.backend)._input_gradients is ModelBackend._input_gradients:
            pytest.skip(f"backend '{specimen.backend.NAME}' does not define _input_gradients")
        rng = np.random.default_rng(15)
        named = specimen.inputs if isinstance(specimen.inputs, Mapping) else {"": specimen.inputs}
        if any(array.dtype.kind in "iu" for array in named.values()):
            pytest.skip("the network takes whole numbers, which have no gradient")
        for loss in specimen.losses(specimen.backend.forward(specimen.inputs)):
            gradients = specimen.backend.input_gradients(specimen.inputs, loss.gradient)
            found = gradients if isinstance(gradients, Mapping) else {"": gradients}
            assert list(found) == list(named)
            for name, array in named.items():
                assert found[name].shape == array.shape
                direction = rng.normal(size=array.shape)
                direction /= np.linalg.norm(direction)
                sides = []
                for step in (STEP, -STEP):
                    moved = {**named, name: (array + step * direction).astype(np.float32)}
                    inputs = moved if isinstance(specimen.inputs, Mapping) else moved[""]
                    sides.append(loss.value(specimen.backend.forward(inputs)))
                along = float((found[name] * direction).sum())
                assert along == pytest.approx((sides[0] - sides[1]) / (2 * STEP), rel=5e-3, abs=3e-4), loss.name

    def test_input_gradients_of_whole_numbers_are_refused(self, make_backend: MakeBackend) -> None:
        """There is no gradient with respect to whole numbers, such as tokens."""
        specimen = self.build(make_backend, "mlp")
        self.needs_gradients(specimen.backend)
        with pytest.raises(UsageError):
            specimen.backend.input_gradients(np.ones((3, 4), np.int64), specimen.cross_entropy())

    def test_weight_gradients_agree_with_the_reference_network(self, specimen: Specimen) -> None:
        """The gradients are those of the network, whatever framework computes them."""
        self.needs_gradients(specimen.backend)
        _assert_weight_gradients(specimen)

    @pytest.mark.parametrize("name", ["mlp", "convnet"])
    def test_weight_gradients_are_means_over_any_number_of_inputs(self, make_backend: MakeBackend, name: str) -> None:
        """The loss is a mean over all inputs, however a backend batches them."""
        specimen = self.build(make_backend, name, n=1100)
        self.needs_gradients(specimen.backend)
        _assert_weight_gradients(specimen)

    @pytest.mark.parametrize("name", ["softmax", "one_sigmoid"])
    def test_gradients_look_behind_probabilities(self, make_backend: MakeBackend, name: str) -> None:
        """The loss is the cross-entropy of the scores, also for a model that gives probabilities."""
        specimen = self.build(make_backend, name)
        self.needs_gradients(specimen.backend)
        _assert_weight_gradients(specimen)

    def test_weight_gradients_belong_to_the_caller(self, specimen: Specimen) -> None:
        """The arrays belong to the caller, who may overwrite them; the same question has the same answer."""
        self.needs_gradients(specimen.backend)
        first = specimen.backend.weight_gradients(specimen.inputs, specimen.cross_entropy())
        kept = {key: values.copy() for key, values in first.items()}
        for values in first.values():
            values *= 0
        again = specimen.backend.weight_gradients(specimen.inputs, specimen.cross_entropy())
        assert_same_weights(again, kept)

    def test_output_gradients_are_those_worked_out_by_hand(self, make_backend: MakeBackend) -> None:
        """Vector-Jacobian product of the scores with respect to what leaves a layer, before the non-linearity."""
        backend = self.hold(make_backend, by_hand.HALF_OPEN, "mlp")
        self.needs_gradients(backend)
        inputs, seed = by_hand.HALF_OPEN_INPUT, by_hand.HALF_OPEN_SEED
        (hidden,) = backend.output_gradients(inputs, "hidden", seed)
        (scores,) = backend.output_gradients(inputs, "scores", seed)
        assert_close(hidden, by_hand.HALF_OPEN_GRADIENT)
        assert_close(scores, seed)

    def test_a_shared_layer_sums_its_gradients(self, make_backend: MakeBackend) -> None:
        """For a shared layer output gradients come per use, and weight gradients sum over the uses."""
        backend = self.hold(make_backend, by_hand.SHARED, "shared")
        self.needs_gradients(backend)
        first, second = backend.output_gradients(by_hand.SHARED_INPUT, "twice", by_hand.SHARED_SEED)
        assert_close(first, by_hand.SHARED_GRADIENTS[0])
        assert_close(second, by_hand.SHARED_GRADIENTS[1])
        found = backend.weight_gradients(by_hand.SHARED_INPUT, cross_entropy(np.array([0])))
        assert_close(found["twice", "weight"], by_hand.SHARED_WEIGHT_GRADIENT)

    def test_output_gradients_agree_with_finite_differences(self, smooth_specimen: Specimen) -> None:
        """Output gradients times what entered are the gradients of seed × scores: finite differences agree."""
        specimen = smooth_specimen
        self.needs_gradients(specimen.backend)
        seed = specimen.seed()
        for layer, parameter, direction in directions(specimen):
            if parameter not in ("bias", "bias_ih"):
                continue
            above, below = _scores_along(specimen.backend, specimen, layer, parameter, direction)
            slopes = ((above.astype(np.float64) - below) / (2 * STEP) * seed).sum(axis=1)
            gradients = specimen.backend.output_gradients(specimen.inputs, layer, seed)
            # A bias is added at every position and in every use, so each input's gradient is a sum over those.
            channels = _channels_last(specimen, layer, gradients)
            assert_close(channels @ direction, slopes, f"'{layer}'", rtol=5e-3, atol=1e-3)

    def test_output_gradients_agree_with_the_reference_network(self, specimen: Specimen) -> None:
        """One array per use, in the shape of what leaves the layer."""
        self.needs_gradients(specimen.backend)
        for layer in specimen.layers:
            found = specimen.backend.output_gradients(specimen.inputs, layer, specimen.seed())
            expected = specimen.reference.output_gradients(specimen.inputs, layer, specimen.seed())
            assert len(found) == len(expected)
            for use, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
                assert_close(ours, theirs, f"'{layer}', use {use}")

    def test_each_input_has_a_gradient_of_its_own(self, specimen: Specimen) -> None:
        """Row by row the seed is the vector the Jacobian is multiplied with; inputs do not mix."""
        self.needs_gradients(specimen.backend)
        layer, rows = specimen.layers[0], np.array([4, 1])
        all_rows = specimen.backend.output_gradients(specimen.inputs, layer, specimen.seed())
        some = specimen.backend.output_gradients(take(specimen.inputs, rows), layer, specimen.seed()[rows])
        for ours, theirs in zip(some, all_rows, strict=True):
            assert_close(ours, theirs[rows])

    def test_seeds_and_labels_are_one_per_input(self, make_backend: MakeBackend) -> None:
        """Labels or seeds that are not one per input are refused, as are labels and layers that do not exist."""
        specimen = self.build(make_backend, "mlp")
        self.needs_gradients(specimen.backend)
        with pytest.raises(ArachneError):
            specimen.backend.weight_gradients(specimen.inputs, cross_entropy(specimen.labels[:-1]))
        for label in (-1, specimen.classes):
            with pytest.raises(DataError, match=f"between 0 and {specimen.classes - 1}"):
                specimen.backend.weight_gradients(specimen.inputs, cross_entropy(specimen.labels * 0 + label))
        with pytest.raises(ArachneError):
            specimen.backend.output_gradients(specimen.inputs, specimen.layers[0], specimen.seed()[:-1])
        with pytest.raises(UnknownLayerError, match="no_such_layer"):
            specimen.backend.output_gradients(specimen.inputs, "no_such_layer", specimen.seed())

    def test_an_observer_is_shown_what_a_trace_holds(self, specimen: Specimen) -> None:
        """An observer is shown each use's activations once for every input, then the gradients for each seed."""
        self.needs_gradients(specimen.backend)
        seeds = [specimen.seed(0), specimen.seed(1)]
        shown = _Shown()
        specimen.backend.observe(specimen.inputs, specimen.layers, shown, lambda rows: [seed[rows] for seed in seeds])
        expected = _Shown()
        show(specimen.backend.trace(specimen.inputs, specimen.layers), expected, seeds)
        assert set(shown.sums) == {key for key, values in expected.sums.items() if values.any() or key in shown.sums}
        for key, values in shown.sums.items():
            assert_close(values, expected.sums[key], str(key))

    def test_weights_set_afterwards_do_not_reach_a_trace(self, specimen: Specimen) -> None:
        """A trace has the weights the model had when it was traced, whether they were set before or are set after."""
        self.needs_gradients(specimen.backend)
        original = specimen.all_weights()
        changed = {key: values for name in specimen.layers for key, values in specimen.other_weights(name).items()}
        for now, then in ((original, changed), (changed, original)):
            _set(specimen.backend, now)
            expected = specimen.backend.trace(specimen.inputs, specimen.layers).output_gradients(specimen.seed())
            trace = specimen.backend.trace(specimen.inputs, specimen.layers)
            _set(specimen.backend, then)
            found = trace.output_gradients(specimen.seed())
            for layer, uses in expected.items():
                for ours, theirs in zip(found[layer], uses, strict=True):
                    assert_close(ours, theirs, f"'{layer}'")
            assert_same_weights(specimen.all_weights(), then)

    def test_a_trace_holds_any_number_of_inputs(self, make_backend: MakeBackend) -> None:
        """Inputs come in any number, for a trace too."""
        specimen = self.build(make_backend, "convnet", n=1100)
        self.needs_gradients(specimen.backend)
        layers = specimen.layers[1:3]
        trace = specimen.backend.trace(specimen.inputs, layers)
        expected = specimen.reference.trace(specimen.inputs, layers)
        found, wanted = trace.output_gradients(specimen.seed()), expected.output_gradients(specimen.seed())
        for layer in layers:
            assert_close(trace.activations[layer][0].leaving, expected.activations[layer][0].leaving, layer)
            assert_close(found[layer][0], wanted[layer][0], layer)


def _set(backend: ModelBackend, weights: Weights) -> None:
    for (layer, parameter), values in weights.items():
        backend.set_weights(layer, parameter, values)


def _assert_weight_gradients(specimen: Specimen) -> None:
    """The backend's weight gradients are the reference's."""
    found = specimen.backend.weight_gradients(specimen.inputs, specimen.cross_entropy())
    expected = specimen.reference.weight_gradients(specimen.inputs, as_outputs(cross_entropy(specimen.labels)))
    for key, values in expected.items():
        assert_close(found[key], values, str(key))


class _Shown(ActivationAccumulator):
    """Sums over inputs of everything it is shown, by what it is."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, int, str], Array] = {}

    def activation(self, layer: str, use: int, activation: Activation) -> None:
        for name, values in [*activation.entering.items(), ("leaving", activation.leaving)]:
            self._add((layer, use, name), values)

    def gradient(self, layer: str, use: int, gradient: Array) -> None:
        self._add((layer, use, "gradient"), np.abs(gradient))

    def _add(self, key: tuple[str, int, str], values: Array) -> None:
        self.sums[key] = self.sums.get(key, 0.0) + values.sum(axis=0, dtype=np.float64)


class Seen:
    """A loss gradient that records the scores it is given and returns zeros."""

    def __init__(self) -> None:
        self._parts: list[Array] = []
        self._slices: list[slice] = []

    def __call__(self, scores: Array, rows: slice) -> Array:
        """Zeros, for scores of the rows that come next."""
        assert scores.dtype == np.float32, "a loss gets float32 scores"
        assert rows.stop - rows.start == len(scores), f"{len(scores)} scores for {rows}"
        if len(scores):
            self._parts.append(scores.copy())
            self._slices.append(rows)
        return np.zeros_like(scores)

    def scores(self, n: int) -> Array:
        """The scores it was shown, after checking that they cover all `n` rows once and in order."""
        starts = [rows.start for rows in self._slices]
        assert [*starts, n] == [0, *(rows.stop for rows in self._slices)], f"rows came as {self._slices}"
        return np.concatenate(self._parts)


def directions(specimen: Specimen) -> Iterator[tuple[str, str, Array]]:
    """Two directions of length 1 in every parameter."""
    rng = np.random.default_rng(13)
    for name, layer in specimen.network.layers.items():
        for parameter, values in layer.parameters.items():
            for _ in range(2):
                direction = rng.normal(size=values.shape)
                yield name, parameter, direction / np.linalg.norm(direction)


def _scores_along(
    backend: ModelBackend, specimen: Specimen, layer: str, parameter: str, direction: Array
) -> tuple[Array, Array]:
    """The scores a step along a direction, and a step against it; the weights are put back."""
    values = backend.get_weights(layer)[parameter]
    scores = []
    for step in (STEP, -STEP):
        backend.set_weights(layer, parameter, (values + step * direction).astype(np.float32))
        scores.append(backend.forward(specimen.inputs))
    backend.set_weights(layer, parameter, values)
    return scores[0], scores[1]


def _channels_last(specimen: Specimen, layer: str, gradients: tuple[Array, ...]) -> Array:
    """Gradients summed over uses and positions, `(n, out)`."""
    total = np.moveaxis(np.sum(gradients, axis=0), specimen.network.layers[layer].CHANNEL_AXIS, -1)
    summed: Array = total.reshape(len(total), -1, total.shape[-1]).sum(axis=1)
    return summed
