"""Gradients: against numbers worked out by hand, finite differences of the backend's own scores, and the reference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from arachne.backend import ModelBackend
from arachne.errors import ArachneError, UnknownLayerError
from arachne.testing.checks import by_hand
from arachne.testing.checks.suite import MakeBackend, Specimen, Suite, assert_close, mean_cross_entropy
from arachne.values import Array, take

STEP = 5e-3
"""Half the width of a finite difference: below it float32 rounding shows, above it the function's curvature."""


class GradientChecks(Suite):
    """`weight_gradients`, `output_gradients`, `trace`."""

    def test_weight_gradients_are_those_worked_out_by_hand(self, make_backend: MakeBackend) -> None:
        """Gradient of the mean cross-entropy with respect to every parameter."""
        self.needs_network("mlp")
        backend = make_backend(by_hand.UNTRAINED)
        self.needs_gradients(backend)
        found = backend.weight_gradients(by_hand.UNTRAINED_INPUTS, by_hand.UNTRAINED_LABELS)
        assert_close(found["layer"]["weight"], by_hand.UNTRAINED_GRADIENTS["weight"])
        assert_close(found["layer"]["bias"], by_hand.UNTRAINED_GRADIENTS["bias"])

    def test_weight_gradients_cover_every_parameter(self, specimen: Specimen) -> None:
        """Every parameter has its gradient, by layer, in the shape of the parameter."""
        self.needs_gradients(specimen.backend)
        found = specimen.backend.weight_gradients(specimen.inputs, specimen.labels)
        assert list(found) == [info.name for info in specimen.backend.layers]
        for info in specimen.backend.layers:
            shapes = {name: entry.shape for name, entry in info.parameters.items()}
            assert {name: values.shape for name, values in found[info.name].items()} == shapes

    def test_weight_gradients_agree_with_finite_differences(self, smooth_specimen: Specimen) -> None:
        """The gradients are those of the model's own loss: finite differences of its scores agree."""
        specimen = smooth_specimen
        self.needs_gradients(specimen.backend)
        found = specimen.backend.weight_gradients(specimen.inputs, specimen.labels)
        for layer, parameter, direction in _directions(specimen):
            above, below = _scores_along(specimen.backend, specimen, layer, parameter, direction)
            labels = specimen.labels
            slope = (mean_cross_entropy(above, labels) - mean_cross_entropy(below, labels)) / (2 * STEP)
            along = float((found[layer][parameter] * direction).sum())
            assert along == pytest.approx(slope, rel=5e-3, abs=3e-4), f"'{layer}', {parameter}"

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
        first = specimen.backend.weight_gradients(specimen.inputs, specimen.labels)
        kept = {layer: {name: values.copy() for name, values in own.items()} for layer, own in first.items()}
        for own in first.values():
            for values in own.values():
                values *= 0
        again = specimen.backend.weight_gradients(specimen.inputs, specimen.labels)
        for layer, own in kept.items():
            for parameter, values in own.items():
                np.testing.assert_array_equal(again[layer][parameter], values, err_msg=f"'{layer}', {parameter}")

    def test_output_gradients_are_those_worked_out_by_hand(self, make_backend: MakeBackend) -> None:
        """Vector-Jacobian product of the scores with respect to what leaves a layer, before the non-linearity."""
        self.needs_network("mlp")
        backend = make_backend(by_hand.HALF_OPEN)
        self.needs_gradients(backend)
        inputs, seed = by_hand.HALF_OPEN_INPUT, by_hand.HALF_OPEN_SEED
        (hidden,) = backend.output_gradients(inputs, "hidden", seed)
        (scores,) = backend.output_gradients(inputs, "scores", seed)
        assert_close(hidden, by_hand.HALF_OPEN_GRADIENT)
        assert_close(scores, seed)

    def test_a_shared_layer_sums_its_gradients(self, make_backend: MakeBackend) -> None:
        """For a shared layer output gradients come per use, and weight gradients sum over the uses."""
        self.needs_network("shared")
        backend = make_backend(by_hand.SHARED)
        self.needs_gradients(backend)
        first, second = backend.output_gradients(by_hand.SHARED_INPUT, "twice", by_hand.SHARED_SEED)
        assert_close(first, by_hand.SHARED_GRADIENTS[0])
        assert_close(second, by_hand.SHARED_GRADIENTS[1])
        found = backend.weight_gradients(by_hand.SHARED_INPUT, np.array([0]))
        assert_close(found["twice"]["weight"], by_hand.SHARED_WEIGHT_GRADIENT)

    def test_output_gradients_agree_with_finite_differences(self, smooth_specimen: Specimen) -> None:
        """Output gradients times what entered are the gradients of seed × scores: finite differences agree."""
        specimen = smooth_specimen
        self.needs_gradients(specimen.backend)
        seed = specimen.seed()
        for layer, parameter, direction in _directions(specimen):
            if parameter != "bias":
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
        """Labels or seeds that are not one per input are refused, as are layers that do not exist."""
        specimen = self.build(make_backend, "mlp")
        self.needs_gradients(specimen.backend)
        with pytest.raises(ArachneError):
            specimen.backend.weight_gradients(specimen.inputs, specimen.labels[:-1])
        with pytest.raises(ArachneError):
            specimen.backend.output_gradients(specimen.inputs, specimen.layers[0], specimen.seed()[:-1])
        with pytest.raises(UnknownLayerError, match="no_such_layer"):
            specimen.backend.output_gradients(specimen.inputs, "no_such_layer", specimen.seed())

    def test_a_trace_gives_what_the_single_operations_give(self, specimen: Specimen) -> None:
        """A trace is activations and gradients of several layers from one pass, for as many seeds as asked."""
        self.needs_gradients(specimen.backend)
        trace = specimen.backend.trace(specimen.inputs, specimen.layers)
        default = ModelBackend.trace(specimen.backend, specimen.inputs, specimen.layers)
        assert set(trace.activations) == set(specimen.layers)
        for layer, uses in default.activations.items():
            for ours, theirs in zip(trace.activations[layer], uses, strict=True):
                assert_close(ours.entering["weight"], theirs.entering["weight"], f"entering '{layer}'")
                assert_close(ours.leaving, theirs.leaving, f"leaving '{layer}'")
        for number in (0, 1):
            found = trace.output_gradients(specimen.seed(number))
            expected = default.output_gradients(specimen.seed(number))
            assert set(found) == set(specimen.layers)
            for layer, uses_of_layer in expected.items():
                for ours_of_use, theirs_of_use in zip(found[layer], uses_of_layer, strict=True):
                    assert_close(ours_of_use, theirs_of_use, f"'{layer}', seed {number}")

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


def _assert_weight_gradients(specimen: Specimen) -> None:
    """The backend's weight gradients are the reference's."""
    found = specimen.backend.weight_gradients(specimen.inputs, specimen.labels)
    expected = specimen.reference.weight_gradients(specimen.inputs, specimen.labels)
    for layer, parameters in expected.items():
        for parameter, values in parameters.items():
            assert_close(found[layer][parameter], values, f"'{layer}', {parameter}")


def _directions(specimen: Specimen) -> Iterator[tuple[str, str, Array]]:
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
    total = np.sum(gradients, axis=0)
    n, out = len(total), len(specimen.network.layers[layer].weight)
    summed: Array
    if specimen.network.layers[layer].kind == "conv":
        summed = total.reshape(n, out, -1).sum(axis=2)
    else:
        summed = total.reshape(n, -1, out).sum(axis=1)
    return summed
