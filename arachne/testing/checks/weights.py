"""Layers and their weights: what is listed, how it is laid out, and that nothing is shared with the caller."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.errors import UnknownLayerError, WeightShapeError
from arachne.model.backend import restoring_weights
from arachne.model.values import WEIGHT_PARAMETERS
from arachne.testing.checks.specimens import SPECIMENS
from arachne.testing.checks.suite import MakeBackend, Specimen, Suite, assert_same_weights
from arachne.testing.networks import UnsupportedNetworkError


class WeightChecks(Suite):
    """`layers`, `get_weights`, `set_weights`, `restoring_weights`."""

    def test_some_network_is_held(self, make_backend: MakeBackend) -> None:
        """A backend can hold at least one of the networks; a suite that skips everything would check nothing."""
        reasons = dict(self.UNSUPPORTED)
        for name in (name for name in SPECIMENS if name not in self.UNSUPPORTED):
            try:
                make_backend(SPECIMENS[name]())
            except UnsupportedNetworkError as reason:
                reasons[name] = str(reason)
            else:
                return
        pytest.fail(f"the backend holds none of the suite's networks: {reasons}")

    def test_layers_come_in_order_of_execution(self, specimen: Specimen) -> None:
        """The repairable layers in order of execution, at the latest when the model has run once."""
        specimen.backend.forward(specimen.inputs)
        assert [info.name for info in specimen.backend.layers] == list(specimen.layers)

    def test_layers_tell_kind_shapes_and_geometry(self, specimen: Specimen) -> None:
        """A layer tells its kind, its parameters in the canonical layout, weight matrices first, and its geometry."""
        for info in specimen.backend.layers:
            layer = specimen.network.layers[info.name]
            assert info.kind == layer.kind
            assert {name: entry.shape for name, entry in info.parameters.items()} == {
                name: values.shape for name, values in layer.parameters.items()
            }
            assert next(iter(info.parameters)) in (*WEIGHT_PARAMETERS, "scale")
            assert info.geometry == layer.geometry

    def test_a_layer_used_several_times_is_listed_once(self, specimen: Specimen) -> None:
        """A layer used several times is listed once, at its first use, and tells how often it is used."""
        specimen.backend.forward(specimen.inputs)
        for info in specimen.backend.layers:
            assert info.uses == len(specimen.network.uses(info.name))

    def test_what_follows_a_layer_is_told_rightly_or_not_at_all(self, make_backend: MakeBackend) -> None:
        """`followed_by` lists the operations between a layer and the next linear one, where the backend knows them."""
        specimen = self.build(make_backend, "mlp")
        specimen.backend.forward(specimen.inputs)
        first, second, last = specimen.backend.layers
        assert first.followed_by in (None, ("relu",))
        assert second.followed_by in (None, ("relu",))
        assert last.followed_by in (None, ())

    def test_weights_come_out_in_the_canonical_layout(self, specimen: Specimen) -> None:
        """Weights cross the border in one canonical layout, in the dtype the model stores."""
        for info in specimen.backend.layers:
            weights = specimen.backend.get_weights(info.name)
            assert list(weights) == list(info.parameters)
            for parameter, values in specimen.network.layers[info.name].parameters.items():
                assert weights[parameter].shape == values.shape
                np.testing.assert_array_equal(weights[parameter], values)
                assert str(weights[parameter].dtype) == info.parameters[parameter].dtype

    def test_any_memory_layout_of_values_is_taken(self, make_backend: MakeBackend) -> None:
        """`values` is copied: strided, read-only and float64 arrays work too."""
        specimen = self.build(make_backend, "mlp")
        layer = specimen.layers[0]
        values = np.ascontiguousarray(specimen.other_weights(layer)[layer, "weight"])
        padded = np.zeros((values.shape[0], 2 * values.shape[1]), np.float64)
        padded[:, ::2] = values
        strided = padded[:, ::2]
        strided.flags.writeable = False
        specimen.backend.set_weights(layer, "weight", strided)
        np.testing.assert_array_equal(specimen.backend.get_weights(layer)["weight"], values)

    def test_weights_to_look_at_are_those_of_the_model_and_read_only(self, specimen: Specimen) -> None:
        """`read_weights` gives what `get_weights` gives, in arrays that cannot be written to."""
        for info in specimen.backend.layers:
            copies = specimen.backend.get_weights(info.name)
            found = specimen.backend.read_weights(info.name)
            assert set(found) == set(copies)
            for name, values in found.items():
                np.testing.assert_array_equal(values, copies[name])
                with pytest.raises(ValueError, match="read-only"):
                    values[...] = 0

    def test_weights_that_came_out_stay_when_the_model_changes(self, specimen: Specimen) -> None:
        """`get_weights` is a copy of what the model held at that time."""
        layer, parameter = specimen.first_parameter
        held = specimen.backend.get_weights(layer)[parameter]
        kept = held.copy()
        specimen.backend.set_weights(layer, parameter, kept + 1)
        np.testing.assert_array_equal(held, kept)

    def test_another_shape_is_refused_and_nothing_is_broadcast(self, specimen: Specimen) -> None:
        """Another shape than `get_weights(layer)[parameter]` is a `WeightShapeError`; nothing is broadcast."""
        layer, parameter = specimen.first_parameter
        before = specimen.all_weights()
        values = before[layer, parameter]
        for wrong in (values[:1], values[..., :1], values.reshape(-1), values[None], np.swapaxes(values, 0, 1)[:, :-1]):
            with pytest.raises(WeightShapeError, match=layer):
                specimen.backend.set_weights(layer, parameter, wrong)
        assert_same_weights(specimen.all_weights(), before)

    def test_unknown_names_are_refused(self, make_backend: MakeBackend) -> None:
        """The model has no such layer or parameter: an `UnknownLayerError` that names it."""
        specimen = self.build(make_backend, "mlp")
        backend, values = specimen.backend, np.zeros((8, 4), np.float32)
        with pytest.raises(UnknownLayerError, match="no_such_layer"):
            backend.get_weights("no_such_layer")
        with pytest.raises(UnknownLayerError, match="no_such_layer"):
            backend.set_weights("no_such_layer", "weight", values)
        with pytest.raises(UnknownLayerError, match="no_such_parameter"):
            backend.set_weights(specimen.layers[0], "no_such_parameter", values)
        with pytest.raises(UnknownLayerError, match="no_such_layer"):
            backend.activations(specimen.inputs, "no_such_layer")
        with pytest.raises(UnknownLayerError, match="no_such_layer"):
            backend.cut(specimen.inputs, ["no_such_layer"])

    def test_the_model_is_restored_after_a_failure(self, specimen: Specimen) -> None:
        """`restoring_weights` puts parameters back as they were when the block ends, however it ends."""
        before, scores = specimen.all_weights(), specimen.backend.forward(specimen.inputs)
        for failure in (RuntimeError, KeyboardInterrupt):
            with pytest.raises(failure):
                _fail_in_the_middle(specimen, failure)
            assert_same_weights(specimen.all_weights(), before)
            np.testing.assert_array_equal(specimen.backend.forward(specimen.inputs), scores)


def _fail_in_the_middle(specimen: Specimen, failure: type[BaseException]) -> None:
    """Change every weight inside `restoring_weights`, and raise."""
    before = specimen.all_weights()
    with restoring_weights(specimen.backend, before):
        for layer in specimen.layers:
            for (_, parameter), values in specimen.other_weights(layer).items():
                specimen.backend.set_weights(layer, parameter, values)
        first = specimen.first_parameter
        assert not np.array_equal(specimen.all_weights()[first], before[first])
        raise failure("in the middle of a search")
