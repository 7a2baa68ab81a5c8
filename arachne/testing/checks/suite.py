"""Shared base of the conformance suite: the one fixture, the networks, and how results are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from arachne.decisions.losses import (
    cross_entropies,
    cross_entropy,
    margin_hinge,
    margin_hinges,
    squared_probability_change,
    squared_probability_changes,
)
from arachne.model.backend import LossGradient, ModelBackend
from arachne.model.values import Activation, Array, Inputs
from arachne.tasks import margins
from arachne.testing.checks.specimens import PROBABILITIES, SMOOTH, SPECIMENS
from arachne.testing.networks import Network, UnsupportedNetworkError, random_inputs
from arachne.testing.reference import ReferenceBackend

MakeBackend = Callable[[Network], ModelBackend]

N_INPUTS = 7
"""Number of inputs that a specimen has unless a test asks for more."""

FROM_KINK = 0.1
"""How far from a kink a margin must be for finite differences to say something."""


@dataclass(frozen=True)
class Specimen:
    """A network in the backend under test, in the reference backend (float64), and inputs for both.

    Attributes:
        network: The spec.
        backend: The backend under test, holding that network.
        reference: The same network in NumPy.
        inputs: `(n, ...)`, an array or a mapping.
        labels: `(n,)`, any class.
        classes: How many numbers an input's outputs are; one stands for two classes, (0, z).
    """

    network: Network
    backend: ModelBackend
    reference: ReferenceBackend
    inputs: Inputs
    labels: Array
    classes: int

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, in order of execution."""
        return tuple(self.network.layers)

    @property
    def first_parameter(self) -> tuple[str, str]:
        """The first layer and its first parameter."""
        layer = self.layers[0]
        return layer, next(iter(self.network.layers[layer].parameters))

    def seed(self, number: int = 0) -> Array:
        """A vector `(n, classes)` for vector-Jacobian products, float32."""
        rng = np.random.default_rng(100 + number)
        return rng.normal(size=(len(self.labels), self.classes)).astype(np.float32)

    def cross_entropy(self, rows: Array | None = None) -> LossGradient:
        """The mean cross-entropy of the labels of some inputs, or all, at scores as the backend gives them."""
        labels = self.labels if rows is None else self.labels[rows]
        return as_outputs(cross_entropy(labels, score_kind=self.backend.score_kind))

    def losses(self, at: Array) -> tuple[NamedLoss, ...]:
        """Three losses of the inputs, smooth at these scores; probabilities are compared with other weights'."""
        changed = self.other_weights(self.layers[-1])
        before = self.reference.cut(self.inputs, [self.layers[-1]]).scores_with(changed)
        return losses_of(self.labels, 0.5 * before, at)

    def other_weights(self, layer: str) -> dict[tuple[str, str], Array]:
        """Other values for every parameter of a layer."""
        rng = np.random.default_rng(sum(map(ord, layer)))
        return {
            (layer, parameter): (values + 0.3 * rng.normal(size=values.shape)).astype(np.float32)
            for parameter, values in self.network.layers[layer].parameters.items()
        }

    def all_weights(self) -> dict[tuple[str, str], Array]:
        """Copy all weights that the backend holds now."""
        return {
            (layer, parameter): values
            for layer in self.layers
            for parameter, values in self.backend.get_weights(layer).items()
        }


class Suite:
    """The fixture a subclass provides, and how the suite uses it."""

    UNSUPPORTED: ClassVar[Mapping[str, str]] = {}
    """Networks of `arachne.testing.checks.specimens` this backend cannot hold, with the reason; they are skipped."""

    EXPECTED_FAILURES: ClassVar[Mapping[str, str]] = {}
    """Tests this backend is known to fail, as `test_name[network]`, with the reason; one that passes is reported."""

    @pytest.fixture(autouse=True)
    def _expected_failures(self, request: pytest.FixtureRequest) -> None:
        unknown = [name for name in self.EXPECTED_FAILURES if not hasattr(self, name.partition("[")[0])]
        assert not unknown, f"EXPECTED_FAILURES names tests that do not exist: {unknown}"
        if request.node.name in self.EXPECTED_FAILURES:
            reason = self.EXPECTED_FAILURES[request.node.name]
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        """A function that builds the backend under test from a network spec; the one thing a subclass writes."""
        raise NotImplementedError("a subclass of BackendConformance provides the fixture 'make_backend'")

    @pytest.fixture(params=list(SPECIMENS))
    def specimen(self, request: pytest.FixtureRequest, make_backend: MakeBackend) -> Specimen:
        """Every network in turn."""
        return self.build(make_backend, request.param)

    @pytest.fixture(params=list(SMOOTH))
    def smooth_specimen(self, request: pytest.FixtureRequest, make_backend: MakeBackend) -> Specimen:
        """Every network without kinks, where finite differences can be trusted."""
        return self.build(make_backend, request.param)

    def build(self, make_backend: MakeBackend, name: str, *, n: int = N_INPUTS) -> Specimen:
        """One network by name, with `n` inputs; skips where the backend cannot hold it."""
        self.needs_network(name)
        network = {**SPECIMENS, **PROBABILITIES}[name]()
        backend = self.hold(make_backend, network, name)
        reference = ReferenceBackend(network, dtype="float64")
        inputs = random_inputs(network, n, seed=11)
        classes = reference.forward(inputs).shape[1]
        labels = np.random.default_rng(12).integers(0, max(2, classes), n)
        return Specimen(network, backend, reference, inputs, labels, classes)

    def hold(self, make_backend: MakeBackend, network: Network, like: str) -> ModelBackend:
        """The backend of any network; skips where it, or the one `like` it, is unsupported."""
        self.needs_network(like)
        try:
            return make_backend(network)
        except UnsupportedNetworkError as reason:
            pytest.skip(f"network '{like}' is unsupported: {reason}")

    def needs_network(self, name: str) -> None:
        """Skip where the backend declares a network, or those like it, unsupported."""
        unknown = set(self.UNSUPPORTED) - {*SPECIMENS, *PROBABILITIES}
        assert not unknown, f"UNSUPPORTED names networks that do not exist: {sorted(unknown)}"
        if name in self.UNSUPPORTED:
            pytest.skip(f"network '{name}' is declared unsupported: {self.UNSUPPORTED[name]}")

    def needs_gradients(self, backend: ModelBackend) -> None:
        """Skip where the backend declares that it has no gradients."""
        if not backend.SUPPORTS_GRADIENTS:
            pytest.skip(f"backend '{backend.NAME}' declares SUPPORTS_GRADIENTS = False")


def assert_close(actual: Array, expected: Array, what: str = "", *, rtol: float = 1e-4, atol: float = 2e-5) -> None:
    """Assert equal shapes, and values equal up to the rounding of float32 arithmetic in another order."""
    assert actual.shape == np.shape(expected), f"{what}: shape {actual.shape}, expected {np.shape(expected)}"
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=what)


def assert_same_entering(actual: Activation, expected: Activation, what: str) -> None:
    """Assert that the same arrays enter the same weight parameters."""
    assert set(actual.entering) == set(expected.entering), what
    for parameter, values in expected.entering.items():
        assert_close(actual.entering[parameter], values, f"what enters {what}, {parameter}")


def assert_same_weights(actual: Mapping[tuple[str, str], Array], expected: Mapping[tuple[str, str], Array]) -> None:
    """Assert that weights are equal bit for bit."""
    assert list(actual) == list(expected)
    for key, values in expected.items():
        np.testing.assert_array_equal(actual[key], values, err_msg=".".join(key))


def mean_cross_entropy(scores: Array, labels: Array) -> float:
    """Return the mean over inputs, in float64."""
    return float(cross_entropies(scores, labels).mean())


@dataclass(frozen=True)
class NamedLoss:
    """A loss by its name: its value from the scores `(n, classes)` of all inputs, and its gradient."""

    name: str
    value: Callable[[Array], float]
    gradient: LossGradient


def losses_of(labels: Array, before: Array, at: Array) -> tuple[NamedLoss, ...]:
    """Make the three losses gradients are checked under.

    Args:
        labels: The classes wanted, `(n,)`.
        before: Scores that probabilities are compared with, `(n, classes)`.
        at: Scores where gradients are taken; inputs near a kink of the margin count nothing there.
    """
    at, before = two_classes(at), two_classes(before)
    found = margins(at, labels)
    width = 0.7 + float(np.median(found))
    others = at.copy()
    others[np.arange(len(at)), labels] = -np.inf
    highest = np.sort(others, axis=1)
    apart = np.inf if at.shape[1] == 2 else highest[:, -1] - highest[:, -2]
    smooth = (np.abs(found - width) > FROM_KINK) & (apart > FROM_KINK)
    weights = smooth / len(at)
    named = (
        NamedLoss("cross-entropy", lambda scores: mean_cross_entropy(scores, labels), cross_entropy(labels)),
        NamedLoss(
            "squared change of probabilities",
            lambda scores: float(squared_probability_changes(scores, before).mean()),
            squared_probability_change(before),
        ),
        NamedLoss(
            "margin",
            lambda scores: float(margin_hinges(scores, labels, width) @ weights),
            margin_hinge(labels, width, weights),
        ),
    )
    return tuple(NamedLoss(loss.name, _of_outputs(loss.value), as_outputs(loss.gradient)) for loss in named)


def _of_outputs(value: Callable[[Array], float]) -> Callable[[Array], float]:
    """Return a value of class scores as one of outputs, of which there may be one for two classes."""
    return lambda outputs: value(two_classes(outputs))


def two_classes(outputs: Array) -> Array:
    """Return class scores: outputs `(n, 1)` as (0, z), others as they are."""
    return outputs if outputs.shape[1] > 1 else np.concatenate([np.zeros_like(outputs), outputs], axis=1)


def as_outputs(loss: LossGradient) -> LossGradient:
    """Return a loss of class scores as one of outputs, of which there may be one for two classes."""

    def gradient(outputs: Array, batch: slice) -> Array:
        return loss(two_classes(outputs), batch)[:, -outputs.shape[1] :]

    return gradient
