"""The suite finds what is wrong: backends with one fault each, and the check that must fail on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from arachne.errors import UsageError
from arachne.model.backend import Cut, LossGradient, Weights
from arachne.model.fitting import OnStep, Plan
from arachne.model.values import Activation, Array, Inputs, LayerInfo, count, take
from arachne.testing import BackendConformance, Network, ReferenceBackend, UnsupportedNetworkError
from arachne.testing.checks import by_hand, model
from arachne.testing.checks.specimens import PROBABILITIES, SPECIMENS
from arachne.testing.nodes import Dense, Node, Recurrent, Relu
from arachne.testing.reference_cut import ReferenceCut
from arachne.testing.running import run_back


class LendsItsWeights(ReferenceBackend):
    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        return self._weights[layer]


class KeepsTheCallersArray(ReferenceBackend):
    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        self._weights[layer] = {**self._weights[layer], parameter: values}


class Broadcasts(ReferenceBackend):
    pass


def _set_broadcast(self: Broadcasts, layer: str, parameter: str, values: Array) -> None:
    self._set_weights(layer, parameter, np.resize(values, self._weights[layer][parameter].shape))


setattr(Broadcasts, "set_weights", _set_broadcast)  # noqa: B010  # it is final, which mypy and the class refuse


class ListsLayersByName(ReferenceBackend):
    @property
    def layers(self) -> Sequence[LayerInfo]:
        return sorted(super().layers, key=lambda info: info.name)


class ForgetsToDivideByTheNumberOfInputs(ReferenceBackend):
    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        found = super()._weight_gradients(inputs, loss, parameters)
        return {place: values * count(inputs) for place, values in found.items()}


class AveragesTheLastBatchTooHeavily(ReferenceBackend):
    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        half = count(inputs) // 2

        def heavy(scores: Array, rows: slice) -> Array:
            gradient = loss(scores, rows)
            gradient[half:] *= 2
            return gradient

        return super()._weight_gradients(inputs, heavy, parameters)


class CountsRowsAnewInEveryBatch(ReferenceBackend):
    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        def anew(scores: Array, rows: slice) -> Array:
            return loss(scores, slice(0, len(scores)))

        return super()._weight_gradients(inputs, anew, parameters)


class GivesOneParameterForAnother(ReferenceBackend):
    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        found = super()._weight_gradients(inputs, loss, parameters)
        return (
            found if parameters == self.resolve_parameters(None) else {place: found[place] * 2 for place in parameters}
        )


class CutsForgetTheWeightsTheyAreAskedAt(ReferenceCut):
    def _weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None) -> Weights:
        return super()._weight_gradients({}, loss, rows)


class CutsThatForget(ReferenceBackend):
    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> ReferenceCut:
        cut = super()._cut(inputs, layers)
        cut.__class__ = CutsForgetTheWeightsTheyAreAskedAt
        return cut


class GivesInputGradientsOfTheWrongSign(ReferenceBackend):
    def _input_gradients(self, inputs: Inputs, loss: LossGradient) -> Inputs:
        found = super()._input_gradients(inputs, loss)
        return {name: -array for name, array in found.items()} if isinstance(found, Mapping) else -found


class RefusesInputGradients(ReferenceBackend):
    def _input_gradients(self, inputs: Inputs, loss: LossGradient) -> Inputs:
        raise UsageError("not these")


class TrainsOnTheSameBatchAllTheTime(ReferenceBackend):
    def _fit(self, inputs: Inputs, labels: Array, plan: Plan, on_step: OnStep) -> Weights:
        first = next(plan.batches(len(labels)))
        rows = np.resize(first, len(labels))
        return super()._fit(take(inputs, rows), labels[rows], plan, on_step)


class KeepsWhatItTrained(ReferenceBackend):
    def _fit(self, inputs: Inputs, labels: Array, plan: Plan, on_step: OnStep) -> Weights:
        found = super()._fit(inputs, labels, plan, on_step)
        for (layer, parameter), values in found.items():
            self._set_weights(layer, parameter, values)
        return found


class GivesGradientsBehindTheNonLinearity(ReferenceBackend):
    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        gradients = super()._output_gradients(inputs, layer, seed)
        leaving = [activation.leaving for activation in self.activations(inputs, layer)]
        slopes = [1 - np.tanh(z) ** 2 for z in leaving]
        return tuple(gradient / slope for gradient, slope in zip(gradients, slopes, strict=True))


class GivesActivationsBehindTheNonLinearity(ReferenceBackend):
    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        return tuple(Activation(use.entering, np.tanh(use.leaving)) for use in super()._activations(inputs, layer))


class ForgetsTheSecondUse(ReferenceBackend):
    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        return super()._activations(inputs, layer)[:1]


class DropsTheLastInputs(ReferenceBackend):
    def _forward(self, inputs: Inputs) -> Array:
        return np.concatenate([super()._forward(take(inputs, slice(0, 512)))])


class FollowsLaterWeights(ReferenceBackend):
    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> Any:
        cut = super()._cut(inputs, layers)
        cut._weights = self._weights
        return cut


class KeepsOneTensorOnly(ReferenceBackend):
    """Its cut knows what enters the layer, and takes zeros for whatever else crosses."""

    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> Any:
        cut = super()._cut(inputs, layers)
        entering = self._network.uses(cut.layer)[0].sources[0]
        cut._kept = {name: values if name == entering else values * 0 for name, values in cut._kept.items()}
        return cut


class IgnoresRows(ReferenceBackend):
    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> Any:
        return _SortedRows(super()._cut(inputs, layers))


class _SortedRows(Cut):
    def __init__(self, cut: Cut) -> None:
        super().__init__(cut.layer, cut.layers.values())
        self._cut = cut

    def outputs(self, rows: Array | None = None) -> Array:
        return self._cut.outputs(None if rows is None else np.sort(rows))

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        return self._cut.scores_from_outputs(outputs, None if rows is None else np.sort(rows))

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        return self._cut.scores_with(weights, None if rows is None else np.sort(rows))


class SavesTheOriginalWeights(ReferenceBackend):
    def save(self, path: Path) -> None:
        ReferenceBackend(self.native).save(path)


class SwapsTwoGates(ReferenceBackend):
    """Takes r and z of a GRU, or i and f of an LSTM, for each other."""

    def __init__(self, network: Network, **options: Any) -> None:
        super().__init__(Network(network.inputs, tuple(map(self._swap, network.nodes))), **options)

    @staticmethod
    def _swap(node: Node) -> Node:
        if not isinstance(node, Recurrent):
            return node
        order = [1, 0, *range(2, node.GATES)]
        parts = {name: np.split(values, node.GATES) for name, values in node.parameters.items()}
        swapped: dict[str, Any] = {
            name: np.concatenate([gates[place] for place in order]) for name, gates in parts.items()
        }
        return dataclasses.replace(node, **swapped)


class GivesStatesInsteadOfGates(ReferenceBackend):
    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        uses = super()._activations(inputs, layer)
        states = [np.repeat(use.entering.get("weight_hh", use.leaving), 4, axis=-1) for use in uses]
        return tuple(Activation(use.entering, state) for use, state in zip(uses, states, strict=True))


class GivesWhatEntersTheNorm(ReferenceBackend):
    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        uses = super()._activations(inputs, layer)
        if self.info(layer).kind != "norm":
            return uses
        return tuple(Activation({"scale": use.leaving}, use.leaving) for use in uses)


class TakesEveryStepForTheFirst(ReferenceBackend):
    """Its gradients at the gates are those of steps that have no state before them and hand none on."""

    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        own = self._weights[layer]
        if "weight_hh" not in own:
            return super()._output_gradients(inputs, layer, seed)
        values = self._run(next(iter(self._parts(inputs))))
        gradients = run_back(self._network, values, seed, self._weights)
        alone = {**own, "weight_hh": own["weight_hh"] * 0}
        return (self._network.layers[layer].leaving_gradient(gradients[layer], [values["input"]], alone),)


CHECKS = {check.__name__: check for check in model.NETWORK_CHECKS}

FAULTS: list[tuple[type[ReferenceBackend], str, str]] = [
    (LendsItsWeights, "weights_are_copies", "mlp"),
    (KeepsTheCallersArray, "weights_come_back", "mlp"),
    (Broadcasts, "test_another_shape_is_refused_and_nothing_is_broadcast", "mlp"),
    (ListsLayersByName, "test_layers_come_in_order_of_execution", "residual"),
    (ForgetsToDivideByTheNumberOfInputs, "test_weight_gradients_agree_with_finite_differences", "mlp_tanh"),
    (ForgetsToDivideByTheNumberOfInputs, "test_weight_gradients_agree_with_the_reference_network", "mlp"),
    (AveragesTheLastBatchTooHeavily, "test_weight_gradients_agree_with_finite_differences", "conv2d"),
    (GivesOneParameterForAnother, "chosen_gradients_are_those_among_all", "mlp"),
    (CutsThatForget, "test_gradients_behind_a_cut_agree_with_finite_differences", "conv1d"),
    (CutsThatForget, "test_gradients_of_a_cut_are_those_of_the_default", "residual"),
    (GivesInputGradientsOfTheWrongSign, "test_input_gradients_agree_with_finite_differences", "steps"),
    (TrainsOnTheSameBatchAllTheTime, "test_training_is_gradient_steps_on_every_parameter", "mlp"),
    (GivesGradientsBehindTheNonLinearity, "test_output_gradients_agree_with_finite_differences", "mlp_tanh"),
    (GivesGradientsBehindTheNonLinearity, "test_output_gradients_agree_with_the_reference_network", "conv1d"),
    (GivesActivationsBehindTheNonLinearity, "test_activations_agree_with_the_reference_network", "mlp_tanh"),
    (ForgetsTheSecondUse, "test_activations_agree_with_the_reference_network", "shared"),
    (FollowsLaterWeights, "a_cut_keeps_its_weights", "mlp"),
    (KeepsOneTensorOnly, "a_cut_is_a_changed_model", "residual"),
    (KeepsOneTensorOnly, "test_layers_may_be_changed_together", "branches"),
    (IgnoresRows, "a_cut_is_a_changed_model", "mlp"),
    (IgnoresRows, "test_layers_may_be_changed_together", "residual"),
    (IgnoresRows, "test_outputs_are_what_leaves_the_layer_at_its_first_use", "conv3d"),
    (SwapsTwoGates, "test_scores_agree_with_the_reference_network", "lstm"),
    (SwapsTwoGates, "test_weights_come_out_in_the_canonical_layout", "gru"),
    (GivesStatesInsteadOfGates, "test_activations_agree_with_the_reference_network", "lstm_two_biases"),
    (GivesWhatEntersTheNorm, "test_activations_agree_with_the_reference_network", "layer_norm"),
    (GivesWhatEntersTheNorm, "test_activations_agree_with_the_reference_network", "batch_norm"),
    (TakesEveryStepForTheFirst, "test_output_gradients_agree_with_the_reference_network", "gru"),
    (TakesEveryStepForTheFirst, "test_output_gradients_agree_with_finite_differences", "lstm_one_bias"),
]


@pytest.mark.parametrize(("fault", "check", "network"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_is_found_by_its_check(fault: type[ReferenceBackend], check: str, network: str) -> None:
    suite = BackendConformance()
    run: Callable[[Any], None] = getattr(suite, check, None) or partial(
        suite.test_on_every_network, check=CHECKS[check]
    )
    run(suite.build(ReferenceBackend, network))  # the same check has nothing to say about a backend without the fault
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(suite.build(fault, network))


def test_a_model_that_is_left_trained_is_found() -> None:
    BackendConformance().test_training_twice_gives_the_same_and_leaves_the_model(ReferenceBackend, "convnet")
    with pytest.raises(AssertionError):
        BackendConformance().test_training_twice_gives_the_same_and_leaves_the_model(KeepsWhatItTrained, "convnet")


def test_rows_counted_anew_in_every_batch_are_found() -> None:
    with pytest.raises(AssertionError):
        BackendConformance().test_a_pull_sees_each_row_once(CountsRowsAnewInEveryBatch)


def test_input_gradients_that_are_there_and_refused_are_no_skip() -> None:
    suite = BackendConformance()
    with pytest.raises(UsageError, match="not these"):
        suite.test_input_gradients_agree_with_finite_differences(suite.build(RefusesInputGradients, "steps"))


def test_lost_inputs_are_found() -> None:
    with pytest.raises(AssertionError):
        BackendConformance().test_inputs_come_in_any_number(DropsTheLastInputs, "mlp")


def test_a_file_with_old_weights_is_found() -> None:
    suite = BackendConformance()
    with pytest.raises(AssertionError):
        suite.test_on_every_network(suite.build(SavesTheOriginalWeights, "mlp"), CHECKS["a_saved_model_is_the_model"])


def test_a_misspelt_declaration_is_found() -> None:
    class Misspelt(BackendConformance):
        UNSUPPORTED: ClassVar = {"convnett": "no convolutions"}

    with pytest.raises(AssertionError, match="convnett"):
        Misspelt().build(ReferenceBackend, "mlp")


def test_a_declared_gap_is_a_visible_skip() -> None:
    class WithoutConvolutions(BackendConformance):
        UNSUPPORTED: ClassVar = {"convnet": "no convolutions"}

    with pytest.raises(pytest.skip.Exception, match="no convolutions"):
        WithoutConvolutions().build(ReferenceBackend, "convnet")


def dense_and_relu(network: Network) -> ReferenceBackend:
    """A factory that knows two kinds of nodes, as the one in the suite's docstring."""
    for node in network.nodes:
        if not isinstance(node, (Dense, Relu)):
            raise UnsupportedNetworkError(f"no {type(node).__name__} yet")
    return ReferenceBackend(network)


@pytest.mark.parametrize("name", [*SPECIMENS, *PROBABILITIES])
def test_what_a_factory_refuses_is_a_visible_skip(name: str) -> None:
    suite, network = BackendConformance(), {**SPECIMENS, **PROBABILITIES}[name]()
    unknown = [type(node).__name__ for node in network.nodes if not isinstance(node, (Dense, Relu))]
    if unknown:
        with pytest.raises(pytest.skip.Exception, match=f"'{name}' is unsupported: no {unknown[0]} yet"):
            suite.build(dense_and_relu, name)
    else:
        assert suite.build(dense_and_relu, name).backend.layers


def test_networks_made_by_hand_are_skipped_like_the_others() -> None:
    suite = BackendConformance()
    with pytest.raises(pytest.skip.Exception, match="'shared' is unsupported: no Reuse yet"):
        suite.test_a_shared_layer_sums_its_gradients(dense_and_relu)
    (lstm,) = (case for case in by_hand.CASES if case.name == "lstm")
    with pytest.raises(pytest.skip.Exception, match="'lstm' is unsupported: no Lstm yet"):
        suite.test_canonical_layout_gives_the_numbers_worked_out_by_hand(dense_and_relu, lstm)


def test_a_suite_that_would_skip_everything_fails() -> None:
    def refuse(network: Network) -> ReferenceBackend:
        raise UnsupportedNetworkError("nothing yet")

    BackendConformance().test_some_network_is_held(dense_and_relu)
    with pytest.raises(pytest.fail.Exception, match="holds none of the suite's networks"):
        BackendConformance().test_some_network_is_held(refuse)


def test_a_failure_of_the_factory_is_no_skip() -> None:
    def break_network(network: Network) -> ReferenceBackend:
        raise NotImplementedError("abstract operation")

    with pytest.raises(NotImplementedError):
        BackendConformance().build(break_network, "mlp")
