"""Checks for every network, whatever its layers are: the backend against itself, by another way each time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from arachne.decisions.losses import cross_entropy, squared_probability_change
from arachne.model.backend import Cut, ModelBackend, Weights
from arachne.model.cut import PlainCut
from arachne.model.trace import PlainTrace
from arachne.model.values import Array, Inputs, count, take
from arachne.testing.checks.suite import mean_cross_entropy

STEP = 1e-2


def check_all(backend: ModelBackend, inputs: Inputs, labels: Array, layers: Iterable[str] | None = None) -> None:
    """Everything below, for some layers or all of them."""
    backend.forward(inputs)
    names = [info.name for info in backend.layers] if layers is None else list(layers)
    check_round_trip(backend, inputs, names)
    check_weight_gradients(backend, inputs, labels, names)
    check_output_gradients(backend, inputs, names)
    check_trace(backend, inputs, names)
    for name in names:
        check_cut(backend, inputs, [name])


def check_round_trip(backend: ModelBackend, inputs: Inputs, layers: Iterable[str]) -> None:
    """Weights that are set come back and are run with, and nothing else changes."""
    scores = backend.forward(inputs)
    every = _all_weights(backend)
    for layer in layers:
        for parameter, values in backend.get_weights(layer).items():
            changed = (values * np.float32(0.5) + np.float32(0.25)).astype(values.dtype)
            backend.set_weights(layer, parameter, changed)
            np.testing.assert_array_equal(backend.get_weights(layer)[parameter], changed)
            others = {key: kept for key, kept in _all_weights(backend).items() if key != (layer, parameter)}
            for key, kept in others.items():
                np.testing.assert_array_equal(kept, every[key], err_msg=f"{key} follows {layer}.{parameter}")
            if (parameter, layer.rpartition(".")[2]) == ("bias", "k"):
                # A key's bias adds the same to all scores of a query, and softmax takes it out: only rounding may show.
                found = backend.activations(inputs, layer)[0].leaving
                backend.set_weights(layer, parameter, values)
                assert not np.allclose(backend.activations(inputs, layer)[0].leaving, found), f"{layer}.{parameter}"
                continue
            assert not np.array_equal(backend.forward(inputs), scores), f"{layer}.{parameter} does nothing"
            backend.set_weights(layer, parameter, values)
    np.testing.assert_array_equal(backend.forward(inputs), scores)


def check_weight_gradients(
    backend: ModelBackend, inputs: Inputs, labels: Array, layers: Iterable[str], *, step: float = STEP
) -> None:
    """Weight gradients are finite differences of the loss."""
    found = backend.weight_gradients(inputs, cross_entropy(labels))
    assert list(found) == backend.resolve_parameters(None)
    for layer in layers:
        for parameter in backend.info(layer).parameters:
            gradient = found[layer, parameter]
            direction = _direction(gradient)
            above, below = _along(backend, inputs, layer, parameter, direction, step)
            slope = (mean_cross_entropy(above, labels) - mean_cross_entropy(below, labels)) / (2 * step)
            along = float((gradient * direction).sum())
            assert along == pytest.approx(slope, rel=3e-2, abs=1e-3), f"{layer}.{parameter}"


def check_output_gradients(backend: ModelBackend, inputs: Inputs, layers: Iterable[str], *, step: float = STEP) -> None:
    """Output gradients, multiplied with what entered, are finite differences of seed × scores."""
    n, classes = backend.forward(inputs).shape
    seed = np.random.default_rng(3).normal(size=(n, classes)).astype(np.float32)
    for layer in layers:
        info = backend.info(layer)
        uses, gradients = backend.activations(inputs, layer), backend.output_gradients(inputs, layer, seed)
        assert len(uses) == len(gradients) == info.uses
        for use, gradient in zip(uses, gradients, strict=True):
            assert use.leaving.shape == gradient.shape
            assert len(gradient) == n
            assert all(len(entering) == n for entering in use.entering.values())
        if info.kind not in ("dense", "recurrent") or info.uses > 1:
            continue
        for parameter in info.weights:
            entering = uses[0].entering[parameter]
            gradient = gradients[0].reshape(-1, gradients[0].shape[-1])
            weight_gradient = gradient.T @ entering.reshape(-1, entering.shape[-1])
            if "weight_hh" in info.parameters and len(weight_gradient) == 3 * info.parameters["weight_hh"].shape[1]:
                weight_gradient = weight_gradient[: len(weight_gradient) // 3]  # a GRU scales the state's part of n
            direction = np.zeros(info.parameters[parameter].shape)
            direction[: len(weight_gradient)] = _direction(weight_gradient)
            above, below = _along(backend, inputs, layer, parameter, direction, step)
            slope = float((((above.astype(np.float64) - below) * seed).sum()) / (2 * step))
            along = float((weight_gradient * direction[: len(weight_gradient)]).sum())
            assert along == pytest.approx(slope, rel=3e-2, abs=2e-2), f"{layer}.{parameter}"


def check_trace(backend: ModelBackend, inputs: Inputs, layers: Iterable[str]) -> None:
    """One pass for all layers gives what each layer's own pass gives."""
    names = list(layers)
    classes = backend.forward(inputs).shape[1]
    seed = np.random.default_rng(4).normal(size=(count(inputs), classes)).astype(np.float32)
    ours, theirs = backend.trace(inputs, names), PlainTrace(backend, inputs, names)
    for layer in names:
        for one, other in zip(ours.activations[layer], theirs.activations[layer], strict=True):
            assert set(one.entering) == set(other.entering)
            for parameter, entering in one.entering.items():
                np.testing.assert_allclose(entering, other.entering[parameter], atol=1e-5)
            np.testing.assert_allclose(one.leaving, other.leaving, atol=1e-4)
    found, expected = ours.output_gradients(seed), theirs.output_gradients(seed)
    for layer in names:
        for gradient, wanted in zip(found[layer], expected[layer], strict=True):
            np.testing.assert_allclose(gradient, wanted, atol=1e-4)


def check_cut(backend: ModelBackend, inputs: Inputs, layers: list[str]) -> None:
    """The cut gives what a full pass gives, for some rows and all."""
    fast, plain = backend.cut(inputs, layers), PlainCut(backend, inputs, layers)
    assert fast.layer == plain.layer
    rng = np.random.default_rng(1)
    changed = {
        (layer, name): (values + 0.1 * rng.normal(size=values.shape)).astype(np.float32)
        for layer in layers
        for name, values in backend.get_weights(layer).items()
    }
    for rows in (None, np.array([count(inputs) - 1, 1, 1, 0])):
        close(fast.outputs(rows), plain.outputs(rows))
        close(fast.scores_with(changed, rows), plain.scores_with(changed, rows))
        close(fast.scores_with({}, rows), plain.scores_with({}, rows))
        if fast.continues_from_outputs:
            close(fast.scores_from_outputs(fast.outputs(rows), rows), plain.scores_with({}, rows))
    check_cut_gradients(fast, plain, changed, count(inputs))
    chosen = np.array([2, 0])
    close(fast.scores_with({}, chosen), backend.forward(take(inputs, chosen)))


def check_cut_gradients(fast: Cut, plain: Cut, weights: Weights, n: int) -> None:
    """Gradients behind the cut are those of full passes, for some rows and all."""
    for rows in (None, np.array([n - 1, 1, 1, 0])):
        before = plain.scores_with({}, rows)
        loss = squared_probability_change(before[:, ::-1])
        found, expected = fast.weight_gradients(weights, loss, rows), plain.weight_gradients(weights, loss, rows)
        assert set(found) == set(expected)
        for place, gradient in expected.items():
            close(found[place], gradient)


def close(actual: Array, expected: Array) -> None:
    """Equal as far as float32 arithmetic in another order allows."""
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-5 * max(1.0, float(np.abs(expected).max())))


def _direction(gradient: Array) -> Array:
    """Mostly uphill, so that there is a slope to measure, and a little of everything."""
    rng = np.random.default_rng(2)
    direction = gradient / max(float(np.linalg.norm(gradient)), 1e-12)
    direction = direction + 0.3 * rng.normal(size=gradient.shape) / np.sqrt(gradient.size)
    unit: Array = direction / np.linalg.norm(direction)
    return unit


def _along(
    backend: ModelBackend, inputs: Inputs, layer: str, parameter: str, direction: Array, size: float
) -> tuple[Array, Array]:
    values = backend.get_weights(layer)[parameter]
    scores = []
    for step in (size, -size):
        backend.set_weights(layer, parameter, (values + step * direction).astype(values.dtype))
        scores.append(backend.forward(inputs))
    backend.set_weights(layer, parameter, values)
    return scores[0], scores[1]


def _all_weights(backend: ModelBackend) -> dict[tuple[str, str], Array]:
    return {(info.name, name): v for info in backend.layers for name, v in backend.get_weights(info.name).items()}
