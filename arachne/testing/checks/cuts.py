"""The cut: it gives the scores of a full forward pass, whatever is cached and whatever is computed again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from arachne.errors import ArachneError, WeightShapeError
from arachne.model.backend import Cut, ModelBackend, restoring_weights
from arachne.model.cut import PlainCut
from arachne.model.values import Array, Inputs
from arachne.testing.checks import by_hand
from arachne.testing.checks.gradients import STEP, Seen, directions
from arachne.testing.checks.suite import MakeBackend, Specimen, Suite, assert_close, assert_same_weights

SOME_ROWS = np.array([5, 0, 3, 3])
"""Rows out of order, one of them twice."""


class CutChecks(Suite):
    """`cut`, and the `Cut` it returns."""

    def test_a_cut_is_made_at_the_earliest_layer(self, specimen: Specimen) -> None:
        """The model is held open at the earliest of the layers asked for, in whatever order they are named."""
        layers = specimen.layers
        assert specimen.backend.cut(specimen.inputs, layers[::-1]).layer == layers[0]
        assert specimen.backend.cut(specimen.inputs, layers[:0:-1]).layer == layers[1]

    def test_outputs_are_what_leaves_the_layer_at_its_first_use(self, specimen: Specimen) -> None:
        """`outputs` gives what leaves `layer` at its first use, of all rows or of some."""
        for layer in specimen.layers:
            cut = specimen.backend.cut(specimen.inputs, [layer])
            leaving = specimen.backend.activations(specimen.inputs, layer)[0].leaving
            assert_close(cut.outputs(), leaving, f"'{layer}'")
            assert_close(cut.outputs(SOME_ROWS), leaving[SOME_ROWS], f"'{layer}', some rows")

    def test_changed_outputs_are_continued_from(self, specimen: Specimen) -> None:
        """Class scores when the first use of `layer` gives other outputs instead."""
        rng = np.random.default_rng(14)
        layers = [layer for layer, own in specimen.network.layers.items() if own.LEAVES_ITS_VALUE]
        for layer, cut in _continuing(specimen.backend, specimen.inputs, layers):
            expected = specimen.reference.cut(specimen.inputs, [layer])
            changed = (cut.outputs() + rng.normal(size=cut.outputs().shape)).astype(np.float32)
            assert_close(cut.scores_from_outputs(changed), expected.scores_from_outputs(changed), f"'{layer}'")
            some = cut.scores_from_outputs(changed[SOME_ROWS], SOME_ROWS)
            assert_close(some, expected.scores_from_outputs(changed[SOME_ROWS], SOME_ROWS), f"'{layer}', some rows")

    def test_only_the_first_use_of_a_shared_layer_is_replaced(self, make_backend: MakeBackend) -> None:
        """Given outputs replace those of the first use; later uses run as usual."""
        backend = self.hold(make_backend, by_hand.SHARED, "shared")
        ((_, cut),) = _continuing(backend, by_hand.SHARED_INPUT, ["twice"])
        assert_close(cut.outputs(), np.array([[1.0]]))
        assert_close(cut.scores_from_outputs(np.array([[8]], np.float32)), np.array([[4.0, -4.0]]))
        assert_close(cut.scores_with({("twice", "weight"): np.array([[3]], np.float32)}), np.array([[18.0, -18.0]]))

    def test_one_parameter_may_be_changed_alone(self, specimen: Specimen) -> None:
        """Parameters that are not given keep the values the model had when it was cut."""
        layer = specimen.layers[0]
        cut = specimen.backend.cut(specimen.inputs, [layer])
        assert_close(cut.scores_with({}), specimen.backend.forward(specimen.inputs))
        for key, values in specimen.other_weights(layer).items():
            assert_close(cut.scores_with({key: values}), _scores_of_changed_model(specimen, {key: values}), str(key))
        assert_close(cut.scores_with({}), specimen.backend.forward(specimen.inputs))

    def test_layers_may_be_changed_together(self, specimen: Specimen) -> None:
        """Changed weights anywhere behind the cut, on parallel branches and inside residual blocks too."""
        for start in range(len(specimen.layers)):
            touched = specimen.layers[start:]
            cut = specimen.backend.cut(specimen.inputs, touched)
            weights = {key: values for layer in touched for key, values in specimen.other_weights(layer).items()}
            expected = _scores_of_changed_model(specimen, weights)
            assert_close(cut.scores_with(weights), expected, f"from '{touched[0]}' on")
            assert_close(cut.scores_with(weights, SOME_ROWS), expected[SOME_ROWS], f"from '{touched[0]}' on, some rows")

    @pytest.mark.parametrize(
        ("name", "touched"),
        [("branches", ("right", "left")), ("residual", ("inner2",)), ("residual", ("head", "inner1"))],
    )
    def test_branches_that_were_kept_are_kept_whole(
        self, make_backend: MakeBackend, name: str, touched: tuple[str, ...]
    ) -> None:
        """All tensors that cross the cut are kept: a residual block and parallel branches have more than one."""
        specimen = self.build(make_backend, name)
        cut = specimen.backend.cut(specimen.inputs, touched)
        for changed in ([layer] for layer in touched):
            weights = {key: values for layer in changed for key, values in specimen.other_weights(layer).items()}
            expected = specimen.reference.cut(specimen.inputs, touched).scores_with(weights)
            assert_close(cut.scores_with(weights), expected, f"changed {changed}")

    def test_a_cut_keeps_the_model_as_it_is(self, specimen: Specimen) -> None:
        """The model itself keeps its weights, and so does every array the caller handed over."""
        before, scores = specimen.all_weights(), specimen.backend.forward(specimen.inputs)
        layer = specimen.layers[0]
        weights = specimen.other_weights(layer)
        kept = {key: values.copy() for key, values in weights.items()}
        specimen.backend.cut(specimen.inputs, [layer]).scores_with(weights)
        assert_same_weights(specimen.all_weights(), before)
        assert_same_weights(weights, kept)
        np.testing.assert_array_equal(specimen.backend.forward(specimen.inputs), scores)

    def test_a_cut_keeps_the_model_as_it_is_when_it_fails(self, specimen: Specimen) -> None:
        """The model itself keeps its weights, also when values of a wrong shape are refused."""
        before, layers = specimen.all_weights(), specimen.layers
        cut = specimen.backend.cut(specimen.inputs, [layers[0]])
        with pytest.raises(WeightShapeError):
            cut.scores_with({specimen.first_parameter: before[specimen.first_parameter][:1]})
        assert_same_weights(specimen.all_weights(), before)
        assert_close(cut.scores_with({}), specimen.backend.forward(specimen.inputs))

    def test_layers_the_cut_was_not_made_for_cannot_be_changed(self, specimen: Specimen) -> None:
        """Only layers the cut was made for can be changed; the model keeps its weights whatever is asked."""
        before, layers = specimen.all_weights(), specimen.layers
        cut = specimen.backend.cut(specimen.inputs, [layers[-1]])
        with pytest.raises(ArachneError, match=layers[0]):
            cut.scores_with(specimen.other_weights(layers[0]))
        assert_same_weights(specimen.all_weights(), before)

    def test_a_cut_keeps_weights_that_were_set_before_it_and_put_back_after(self, specimen: Specimen) -> None:
        """A cut has the weights the model had when it was cut, also those that were set then and are not now."""
        backend, layers = specimen.backend, specimen.layers
        original = specimen.all_weights()
        changed = {key: values for layer in layers for key, values in specimen.other_weights(layer).items()}
        for (layer, parameter), values in changed.items():
            backend.set_weights(layer, parameter, values)
        expected = backend.forward(specimen.inputs)
        cuts = [backend.cut(specimen.inputs, [layer]) for layer in layers]
        for (layer, parameter), values in original.items():
            backend.set_weights(layer, parameter, values)
        for layer, cut in zip(layers, cuts, strict=True):
            assert_close(cut.scores_with({}), expected, f"cut at '{layer}'")
            parameter = next(iter(specimen.network.layers[layer].parameters))
            first = {(layer, parameter): changed[layer, parameter]}
            assert_close(cut.scores_with(first, SOME_ROWS), expected[SOME_ROWS], f"cut at '{layer}', some rows")
            if cut.continues_from_outputs:
                assert_close(cut.scores_from_outputs(cut.outputs()), expected, f"continued from '{layer}'")
            if backend.SUPPORTS_GRADIENTS:
                seen = Seen()
                cut.weight_gradients({}, seen)
                assert_close(seen.scores(len(expected)), expected, f"gradients at '{layer}'")

    def test_cuts_do_not_disturb_each_other(self, make_backend: MakeBackend) -> None:
        """Several cuts may be open at once, each with the weights and inputs it was made with."""
        specimen = self.build(make_backend, "residual")
        first = specimen.backend.cut(specimen.inputs, ["inner1"])
        alone = first.scores_with(specimen.other_weights("inner1"))
        second = specimen.backend.cut(specimen.inputs, ["stem", "head"])
        second.scores_with(specimen.other_weights("stem"))
        assert_close(first.scores_with(specimen.other_weights("inner1")), alone)

    def test_what_a_cut_gives_belongs_to_the_caller(self, specimen: Specimen) -> None:
        """Changing what a cut gave changes nothing in it."""
        cut = specimen.backend.cut(specimen.inputs, [specimen.layers[0]])
        outputs, scores = cut.outputs(), cut.scores_with({})
        kept_outputs, kept_scores = outputs.copy(), scores.copy()
        outputs *= 0
        scores *= 0
        assert_close(cut.outputs(), kept_outputs)
        assert_close(cut.scores_with({}), kept_scores)

    def test_a_cut_may_be_asked_for_no_rows(self, specimen: Specimen) -> None:
        """Rows come in any number, also none."""
        cut = specimen.backend.cut(specimen.inputs, [specimen.layers[0]])
        none = np.array([], np.int64)
        assert cut.outputs(none).shape == (0, *cut.outputs().shape[1:])
        assert cut.scores_with({}, none).shape == (0, specimen.classes)

    def test_a_cut_holds_any_number_of_inputs(self, make_backend: MakeBackend) -> None:
        """Inputs come in any number, for a cut too."""
        specimen = self.build(make_backend, "convnet", n=1100)
        rows = np.arange(1099, 0, -2)
        layer = "conv2"
        weights = specimen.other_weights(layer)
        cut = specimen.backend.cut(specimen.inputs, [layer])
        expected = specimen.reference.cut(specimen.inputs, [layer]).scores_with(weights)
        assert_close(cut.scores_with(weights), expected)
        assert_close(cut.scores_with(weights, rows), expected[rows])
        if cut.continues_from_outputs:
            assert_close(
                cut.scores_from_outputs(cut.outputs(rows), rows), specimen.backend.forward(specimen.inputs)[rows]
            )

    def test_a_cut_overridden_for_speed_says_what_the_default_says(self, specimen: Specimen) -> None:
        """A cut is overridden for speed alone: the slow default of `ModelBackend` gives the same."""
        for layer in specimen.layers:
            cut = specimen.backend.cut(specimen.inputs, [layer])
            default = PlainCut(specimen.backend, specimen.inputs, [layer])
            weights = specimen.other_weights(layer)
            assert cut.layer == default.layer
            assert_close(cut.outputs(SOME_ROWS), default.outputs(SOME_ROWS), f"'{layer}'")
            assert_close(cut.scores_with(weights), default.scores_with(weights), f"'{layer}'")
            assert_close(
                cut.scores_with(weights, SOME_ROWS), default.scores_with(weights, SOME_ROWS), f"'{layer}', some rows"
            )

    def test_gradients_behind_a_cut_agree_with_finite_differences(self, smooth_specimen: Specimen) -> None:
        """Gradients of a loss over all rows, or some, at other weights of the layers the cut was made for."""
        specimen = smooth_specimen
        self.needs_gradients(specimen.backend)
        for layer in specimen.layers:
            cut, weights = specimen.backend.cut(specimen.inputs, [layer]), specimen.other_weights(layer)
            for loss in specimen.losses(cut.scores_with(weights)):
                found = cut.weight_gradients(weights, loss.gradient)
                assert set(found) == set(weights)
                for of, parameter, direction in directions(specimen):
                    if of != layer:
                        continue
                    key = layer, parameter
                    sides = [
                        loss.value(
                            cut.scores_with({**weights, key: (weights[key] + step * direction).astype(np.float32)})
                        )
                        for step in (STEP, -STEP)
                    ]
                    along = float((found[key] * direction).sum())
                    slope = (sides[0] - sides[1]) / (2 * STEP)
                    assert along == pytest.approx(slope, rel=5e-3, abs=3e-4), f"{loss.name}, {key}"

    def test_gradients_of_a_cut_are_those_of_the_default(self, specimen: Specimen) -> None:
        """Gradients behind a cut are overridden for speed alone: the slow default of `ModelBackend` gives the same."""
        self.needs_gradients(specimen.backend)
        for start in range(len(specimen.layers)):
            touched = specimen.layers[start:]
            cut = specimen.backend.cut(specimen.inputs, touched)
            default = PlainCut(specimen.backend, specimen.inputs, touched)
            weights = specimen.other_weights(touched[0])
            for loss in specimen.losses(cut.scores_with(weights)):
                expected = default.weight_gradients(weights, loss.gradient)
                found = cut.weight_gradients(weights, loss.gradient)
                assert set(found) == set(expected) == {p for p in specimen.all_weights() if p[0] in touched}
                for key, values in expected.items():
                    assert_close(found[key], values, f"{loss.name}, {key}")
            of_some = specimen.cross_entropy(SOME_ROWS)
            some = default.weight_gradients(weights, of_some, SOME_ROWS)
            for key, values in cut.weight_gradients(weights, of_some, SOME_ROWS).items():
                assert_close(values, some[key], f"{key}, some rows")

    def test_gradients_of_a_cut_keep_model_and_cut_as_they_are(self, specimen: Specimen) -> None:
        """Weights of the model, of the cut and of the caller stay; the same question has the same answer."""
        self.needs_gradients(specimen.backend)
        before, layer = specimen.all_weights(), specimen.layers[0]
        cut, weights = specimen.backend.cut(specimen.inputs, [layer]), specimen.other_weights(layer)
        kept = {key: values.copy() for key, values in weights.items()}
        first = cut.weight_gradients(weights, specimen.cross_entropy())
        copies = {key: values.copy() for key, values in first.items()}
        for values in first.values():
            values *= 0
        for key, values in specimen.other_weights(specimen.layers[-1]).items():
            specimen.backend.set_weights(*key, values)
        assert_same_weights(cut.weight_gradients(weights, specimen.cross_entropy()), copies)
        for key, values in before.items():
            specimen.backend.set_weights(*key, values)
        assert_same_weights(weights, kept)
        assert_same_weights(specimen.all_weights(), before)
        assert_close(cut.scores_with({}), specimen.backend.forward(specimen.inputs))

    def test_a_pull_behind_a_cut_sees_each_row_once(self, make_backend: MakeBackend) -> None:
        """The slices that a loss gets count within the rows asked for; no rows give zeros."""
        specimen = self.build(make_backend, "mlp", n=1100)
        self.needs_gradients(specimen.backend)
        layer, scores = specimen.layers[1], specimen.backend.forward(specimen.inputs)
        cut = specimen.backend.cut(specimen.inputs, [layer])
        for rows in (None, np.arange(1099, 0, -1), SOME_ROWS):
            seen = Seen()
            cut.weight_gradients({}, seen, rows)
            expected = scores if rows is None else scores[rows]
            assert_close(seen.scores(len(expected)), expected)
        nothing = cut.weight_gradients({}, Seen(), np.array([], np.int64))
        assert all(not values.any() for values in nothing.values())
        with pytest.raises(ArachneError, match=specimen.layers[0]):
            cut.weight_gradients(specimen.other_weights(specimen.layers[0]), Seen())


def _continuing(backend: ModelBackend, inputs: Inputs, layers: Sequence[str]) -> list[tuple[str, Cut]]:
    """Make a separate cut at each of these layers that can continue from outputs; skip where none can."""
    cuts = [(layer, backend.cut(inputs, [layer])) for layer in layers]
    continuing = [(layer, cut) for layer, cut in cuts if cut.continues_from_outputs]
    if not continuing:
        pytest.skip(f"the cut of backend '{backend.NAME}' declares continues_from_outputs = False")
    return continuing


def _scores_of_changed_model(specimen: Specimen, weights: dict[tuple[str, str], Array]) -> Array:
    """Return the scores of a full forward pass with these weights set on the model."""
    with restoring_weights(specimen.backend, weights):
        for (layer, parameter), values in weights.items():
            specimen.backend.set_weights(layer, parameter, values)
        return specimen.backend.forward(specimen.inputs)
