"""Scores and activations: against numbers worked out by hand, and against the reference network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from arachne.errors import DataError, InputError
from arachne.model.values import Array, Inputs, take
from arachne.tasks import SINGLE_LABEL
from arachne.testing.checks import by_hand
from arachne.testing.checks.suite import (
    MakeBackend,
    Specimen,
    Suite,
    assert_close,
    assert_same_entering,
    assert_same_weights,
)


class ForwardChecks(Suite):
    """`forward`, `activations`, `forward_through`, `predict`, `describe`."""

    @pytest.mark.parametrize("case", by_hand.CASES, ids=lambda case: case.name)
    def test_canonical_layout_gives_the_numbers_worked_out_by_hand(
        self, make_backend: MakeBackend, case: by_hand.Case
    ) -> None:
        """Dense weights are `(out, in)`, convolutions `(out, in / groups, *kernel)`, gates i f g o or r z n.

        Kernels are not flipped; a transposed convolution has the weight of the convolution it is the gradient of.
        """
        backend = self.hold(make_backend, case.network, case.like)
        assert_close(backend.forward(case.inputs), case.scores, "scores")
        (activation,) = backend.activations(case.inputs, case.layer.name)
        if case.layer.LEAVES_ITS_VALUE:
            assert_close(activation.leaving.reshape(case.scores.shape), case.scores, "leaving")
        if "weight" in case.layer.parameters:
            assert_close(activation.entering["weight"], case.inputs, "entering")

    def test_scores_agree_with_the_reference_network(self, specimen: Specimen) -> None:
        """`forward` gives class scores, float32 `(n, classes)`."""
        scores = specimen.backend.forward(specimen.inputs)
        assert specimen.backend.score_kind in ("logits", "log-probabilities")
        assert scores.dtype == np.float32
        assert_close(*_comparable(specimen, scores))

    @pytest.mark.parametrize("name", ["softmax", "one_sigmoid"])
    def test_probabilities_are_looked_behind(self, make_backend: MakeBackend, name: str) -> None:
        """Logits when the model allows, else log-probabilities; one sigmoid output z is two classes, (0, z)."""
        specimen = self.build(make_backend, name)
        scores = specimen.backend.forward(specimen.inputs)
        assert scores.dtype == np.float32
        assert_close(*_comparable(specimen, scores))

    def test_scores_follow_the_weights(self, specimen: Specimen) -> None:
        """Weights that were set are those the model runs with, in every layer."""
        for layer in specimen.layers:
            for (_, parameter), values in specimen.other_weights(layer).items():
                specimen.backend.set_weights(layer, parameter, values)
                specimen.reference.set_weights(layer, parameter, values)
            assert_close(*_comparable(specimen, specimen.backend.forward(specimen.inputs)))

    def test_scores_and_activations_from_one_pass_are_those_of_two(self, specimen: Specimen) -> None:
        """`forward_through` gives what `forward` and `activations` give."""
        scores = specimen.backend.forward(specimen.inputs)
        for layer in specimen.layers:
            found, activations = specimen.backend.forward_through(specimen.inputs, layer)
            assert_close(found, scores, "scores")
            for one, other in zip(activations, specimen.backend.activations(specimen.inputs, layer), strict=True):
                assert_close(one.leaving, other.leaving, "leaving")
                assert one.entering.keys() == other.entering.keys()
                for name, array in other.entering.items():
                    assert_close(one.entering[name], array, f"what enters {name}")

    def test_looking_at_a_model_changes_neither_it_nor_the_inputs(self, specimen: Specimen) -> None:
        """Nothing but `set_weights` changes a model, and nothing changes the inputs."""
        before, inputs = specimen.all_weights(), _copy(specimen.inputs)
        specimen.backend.forward(specimen.inputs)
        for layer in specimen.layers:
            specimen.backend.activations(specimen.inputs, layer)
        if specimen.backend.SUPPORTS_GRADIENTS:
            specimen.backend.weight_gradients(specimen.inputs, specimen.cross_entropy())
            specimen.backend.output_gradients(specimen.inputs, specimen.layers[0], specimen.seed())
        assert_same_weights(specimen.all_weights(), before)
        for now, then in zip(_arrays(specimen.inputs), _arrays(inputs), strict=True):
            np.testing.assert_array_equal(now, then)

    @pytest.mark.parametrize("name", ["mlp", "convnet", "two_inputs"])
    def test_inputs_come_in_any_number(self, make_backend: MakeBackend, name: str) -> None:
        """Inputs come in any number; a backend batches them as its memory allows."""
        specimen = self.build(make_backend, name, n=1500)
        scores = specimen.backend.forward(specimen.inputs)
        assert_close(*_comparable(specimen, scores))
        few = np.arange(700, 705)
        assert_close(specimen.backend.forward(take(specimen.inputs, few)), scores[few], "five of them alone")
        layer = specimen.layers[0]
        (activation,) = specimen.backend.activations(specimen.inputs, layer)
        (expected,) = specimen.reference.activations(specimen.inputs, layer)
        assert_close(activation.leaving, expected.leaving, "activations")

    def test_activations_agree_with_the_reference_network(self, specimen: Specimen) -> None:
        """`activations` gives a layer's inputs and its outputs before the non-linearity, one `Activation` per use."""
        for layer in specimen.layers:
            found = specimen.backend.activations(specimen.inputs, layer)
            expected = specimen.reference.activations(specimen.inputs, layer)
            assert len(found) == len(expected) == len(specimen.network.uses(layer))
            for use, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
                assert_same_entering(ours, theirs, f"'{layer}', use {use}")
                assert_close(ours.leaving, theirs.leaving, f"leaving '{layer}', use {use}")

    def test_activations_of_a_shared_layer_come_per_use(self, make_backend: MakeBackend) -> None:
        """A shared layer's activations come per use, in order of execution."""
        backend = self.hold(make_backend, by_hand.SHARED, "shared")
        first, second = backend.activations(by_hand.SHARED_INPUT, "twice")
        assert_close(first.entering["weight"], np.array([[2.0]]))
        assert_close(first.leaving, np.array([[1.0]]))
        assert_close(second.entering["weight"], np.array([[1.0]]))
        assert_close(second.leaving, np.array([[0.5]]))

    def test_inputs_by_name_may_come_in_any_order(self, make_backend: MakeBackend) -> None:
        """`inputs` may be a mapping of arrays; names tell them apart, not their order."""
        specimen = self.build(make_backend, "two_inputs")
        assert isinstance(specimen.inputs, Mapping)
        turned = {name: specimen.inputs[name] for name in reversed(list(specimen.inputs))}
        np.testing.assert_array_equal(specimen.backend.forward(turned), specimen.backend.forward(specimen.inputs))

    @pytest.mark.parametrize(
        "wrong",
        [
            np.zeros((3, 5), np.float32),
            np.zeros((3, 4, 2), np.float32),
            np.zeros((3, 2, 4), np.float32),
            np.zeros(4, np.float32),
            np.array([["a"] * 4] * 3),
            np.full((3, 4), None),
        ],
        ids=["more features", "an axis more", "an axis between", "an axis less", "text", "objects"],
    )
    def test_inputs_the_model_does_not_take_are_refused(self, make_backend: MakeBackend, wrong: Array) -> None:
        """Inputs of a shape or dtype the model does not take are a `DataError`."""
        # A framework that learns shapes by running cannot tell yet whether the model or the inputs are wrong, and hands
        # outputs of any shape on to the task.
        with pytest.raises(InputError):
            SINGLE_LABEL.n_classes(self.build(make_backend, "mlp").backend.forward(wrong))
        specimen = self.build(make_backend, "mlp")
        scores = specimen.backend.forward(specimen.inputs)
        with pytest.raises(DataError):
            specimen.backend.forward(wrong)
        np.testing.assert_array_equal(specimen.backend.forward(specimen.inputs), scores)

    def test_wrong_images_are_refused(self, make_backend: MakeBackend) -> None:
        """Inputs of a shape the model does not take are a `DataError`, for images too."""
        backend = self.build(make_backend, "convnet").backend
        for shape in ((3, 2, 8, 8), (3, 8, 8, 1), (3, 1, 5, 5), (3, 64), (1, 8, 8)):
            with pytest.raises(DataError):
                backend.forward(np.zeros(shape, np.float32))

    @pytest.mark.parametrize("wrong", ["one missing", "one misspelt", "one array", "fewer facts", "a single fact"])
    def test_missing_or_unequal_inputs_are_refused(self, make_backend: MakeBackend, wrong: str) -> None:
        """A mapping without all of the model's inputs, or with different numbers of them, is a `DataError`."""
        specimen = self.build(make_backend, "two_inputs")
        assert isinstance(specimen.inputs, Mapping)
        image, facts = specimen.inputs["image"], specimen.inputs["facts"]
        inputs: dict[str, Inputs] = {
            "one missing": {"image": image},
            "one misspelt": {"image": image, "fakts": facts},
            "one array": image,
            "fewer facts": {"image": image, "facts": facts[:2]},
            "a single fact": {"image": image, "facts": facts[:1]},
        }
        with pytest.raises(DataError):
            specimen.backend.forward(inputs[wrong])

    def test_the_first_of_equal_scores_is_predicted(self, make_backend: MakeBackend) -> None:
        """The predicted class is that of the highest score; the first of several equal scores wins."""
        specimen = self.build(make_backend, "mlp")
        predicted = specimen.backend.predict(specimen.inputs)
        np.testing.assert_array_equal(predicted, specimen.reference.forward(specimen.inputs).argmax(axis=1))
        for (layer, parameter), values in specimen.all_weights().items():
            specimen.backend.set_weights(layer, parameter, np.zeros_like(values))
        assert specimen.backend.predict(specimen.inputs).tolist() == [0] * len(specimen.labels)


def _comparable(specimen: Specimen, scores: Array) -> tuple[Array, Array, str]:
    """Return scores and the reference's; log-probabilities are compared with log-probabilities."""
    expected = specimen.reference.forward(specimen.inputs)
    if specimen.backend.score_kind == "log-probabilities":
        largest = expected.max(axis=1, keepdims=True)
        expected = expected - largest - np.log(np.exp(expected - largest).sum(axis=1, keepdims=True))
    return scores, expected, "scores"


def _arrays(inputs: Inputs) -> list[Array]:
    return list(inputs.values()) if isinstance(inputs, Mapping) else [inputs]


def _copy(inputs: Inputs) -> Inputs:
    if isinstance(inputs, Mapping):
        return {name: values.copy() for name, values in inputs.items()}
    return inputs.copy()
