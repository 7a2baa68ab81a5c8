"""A backend is checked on one model, or on the suite's networks, and what fails is said in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from arachne.model.backend import LossGradient, ModelBackend, Weights
from arachne.model.values import Array, Inputs
from arachne.report.checks import checks_object, checks_text
from arachne.testing import (
    Network,
    ReferenceBackend,
    UnsupportedNetworkError,
    convnet,
    mlp,
    random_inputs,
    shared_layer,
)
from arachne.testing.checks.model import ModelChecks
from arachne.testing.checks.suite import MakeBackend
from arachne.testing.model import Subject, check_model
from arachne.testing.outcome import FAILED, PASSED, SKIPPED, Outcome, counts
from arachne.testing.suite_run import run_suite
from tests.backends import test_conformance_bites as faults


def outcomes(backend: ModelBackend, network: Network) -> tuple[Outcome, ...]:
    """Every check of a model in memory."""
    return check_model(Subject(backend, random_inputs(network, 12, seed=3), None))


@pytest.mark.parametrize("network", [mlp([4, 8, 3]), convnet(), shared_layer()], ids=["mlp", "convnet", "shared"])
def test_a_model_of_a_right_backend_passes_every_check(network: Network) -> None:
    backend = ReferenceBackend(network)
    found = outcomes(backend, network)
    assert [outcome for outcome in found if outcome.state == FAILED] == []
    assert counts(found)[PASSED] >= 18
    for layer, own in network.layers.items():
        np.testing.assert_array_equal(backend.get_weights(layer)["weight"], own.parameters["weight"])


class LosesSmallGradients(ReferenceBackend):
    """Half of a gradient is missing: along itself it looks right."""

    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        found = super()._weight_gradients(inputs, loss, parameters)
        return {place: np.where(np.abs(g) < np.median(np.abs(g)), 0, g) for place, g in found.items()}


class RaisesOnOddInputs(ReferenceBackend):
    def _forward(self, inputs: Inputs) -> Array:
        if isinstance(inputs, np.ndarray) and inputs.ndim != 2:
            raise IndexError("too many indices")
        return super()._forward(inputs)

    def _look(self, inputs: Inputs) -> None:
        pass


@pytest.mark.parametrize(
    ("fault", "operation", "words"),
    [
        (faults.LendsItsWeights, "get_weights", "'fc1.weight' afterwards"),
        (faults.KeepsTheCallersArray, "set_weights", "expected the very same values"),
        (faults.ForgetsToDivideByTheNumberOfInputs, "weight_gradients", "the gradient says"),
        (LosesSmallGradients, "weight_gradients", "the gradient says"),
        (faults.GivesOneParameterForAnother, "weight_gradients", "off by up to"),
        (faults.GivesGradientsBehindTheNonLinearity, "output_gradients", "the scores"),
        (faults.GivesActivationsBehindTheNonLinearity, "activations", "'fc1': off by up to"),
        (faults.GivesInputGradientsOfTheWrongSign, "input_gradients", "the inputs: the gradient says"),
        (faults.TrainsOnTheSameBatchAllTheTime, "fit", "how training moves"),
        (faults.KeepsWhatItTrained, "fit", "after training: expected the very same values"),
        (faults.CutsThatForget, "cut", "off by up to"),
        (faults.FollowsLaterWeights, "cut", "cut at 'fc1'"),
        (faults.IgnoresRows, "cut", "some rows"),
        (RaisesOnOddInputs, "forward", "they lead to a IndexError, expected a DataError"),
    ],
)
def test_what_is_wrong_is_found_on_a_model_too(fault: type[ReferenceBackend], operation: str, words: str) -> None:
    network = mlp([4, 8, 3], activation="tanh")
    failed = [outcome for outcome in outcomes(fault(network), network) if outcome.state == FAILED]
    assert any(outcome.operation == operation and words in outcome.detail for outcome in failed), failed


def test_weights_are_put_back_whatever_a_check_does() -> None:
    network = mlp([4, 8, 3])
    backend = faults.ForgetsToDivideByTheNumberOfInputs(network)
    outcomes(backend, network)
    np.testing.assert_array_equal(backend.get_weights("fc1")["weight"], network.layers["fc1"].parameters["weight"])


def only_mlp(network: Network) -> ModelBackend:
    """The suite's smallest network alone, with weights that are lent."""
    if list(network.layers) != ["fc1", "fc2", "fc3"]:
        raise UnsupportedNetworkError("one network is enough here")
    return faults.LendsItsWeights(network)


class SmallSuite(ModelChecks):
    """A part of the suite, on one network."""

    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        return only_mlp


def test_the_suite_says_what_fails_in_the_words_of_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent.parent))
    found = run_suite(SmallSuite)  # type: ignore[arg-type]  # a part of the whole
    text = checks_text("lender", "the networks of the suite", found)
    assert "\nget_weights: FAILED" in text
    assert "  FAILED: Changing what came out changes nothing in the model." in text
    assert "    on 'mlp': " in text
    assert "one network is enough here" not in text
    assert {outcome.state for outcome in found} == {PASSED, FAILED, SKIPPED}
    value = checks_object("lender", "the suite", found)
    assert value["failed"] == sum(check["state"] == FAILED for check in value["checks"])
