"""Changes of data and network that must not change what is found, up to the mapping: on every backend.

The network is random, so most inputs are wrong and every positive counts in a localisation: nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.run import whole_part
from arachne.localise import Bidirectional
from arachne.model.backend import ModelBackend
from arachne.model.values import Address, Array
from arachne.scoring.evaluators import FitnessInputs, make_evaluator
from arachne.testing import Network, ReferenceBackend
from arachne.testing.networks import dense
from arachne.testing.nodes import Flatten, Relu
from arachne.weights.selection import Selection
from tests.backends import golden

HIDDEN = 12
FIRST, HEAD = 0, 1
"""The layers by their place; frameworks name them differently."""

Build = Callable[[Network], ModelBackend]


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.backend(name)) for name in ("reference", "torch", "onnx", "keras")]
)
def build(request: pytest.FixtureRequest, networks_in: Callable[[str], ModuleType]) -> Build:
    if request.param == "reference":
        return ReferenceBackend
    made: Build = networks_in(request.param).build
    return made


def network() -> Network:
    rng = np.random.default_rng(11)
    body = (Flatten("flat", "input"), dense("first", "flat", 64, HIDDEN, rng), Relu("act", "first"))
    return Network({"input": (1, 8, 8)}, (*body, dense("head", "act", HIDDEN, 10, rng)))


def digits() -> LabelledData:
    return golden.digits().take(range(200))


@dataclass(frozen=True)
class Found:
    """Run a model over data: class scores, both scores of every weight by layer, deficits of three candidates."""

    scores: Array
    losses: list[Array]
    impacts: list[Array]
    deficits: Array
    wrong: Array


def find(backend: ModelBackend, data: LabelledData, columns: Array | None = None) -> Found:
    """Everything, with candidates that change weights of both layers.

    Args:
        backend: The model.
        data: The inputs.
        columns: Which rows of the last layer the candidates change, where classes were renamed.
    """
    part = whole_part(backend, data, "*:*")
    scored = Bidirectional().scores(backend, part, rng=np.random.default_rng(0))
    order = [info.name for info in backend.layers]
    head = np.arange(3) if columns is None else columns[:3]
    places = [Address(order[FIRST], "weight", (n, 7)) for n in range(3)]
    places += [Address(order[HEAD], "weight", (int(row), n)) for n, row in enumerate(head)]
    count = FitnessInputs.around(
        data.inputs, data.labels, np.ones(len(data)), np.zeros(len(data), np.int64), ("all",), ("positive",)
    )
    suspects = Selection.of(backend, places)
    values = np.random.default_rng(3).normal(size=(3, len(places)))
    trials = values[:, [places.index(address) for address in suspects.addresses]]
    deficits = make_evaluator("plain", backend, count, suspects).evaluate(trials)
    np.testing.assert_array_equal(make_evaluator("fast", backend, count, suspects).evaluate(trials), deficits)
    wrong = np.argmax(part.scores, axis=1) != data.labels
    return Found(
        part.scores,
        [np.asarray(one.gradient_loss) for one in scored],
        [np.asarray(one.forward_impact) for one in scored],
        deficits,
        wrong,
    )


def assert_close(one: Array, other: Array) -> None:
    np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6)


def test_order_of_the_samples_changes_nothing(build: Build) -> None:
    data = digits()
    order = np.random.default_rng(5).permutation(len(data))
    first, second = find(build(network()), data), find(build(network()), data.take(order))
    assert_close(second.scores, first.scores[order])
    np.testing.assert_array_equal(second.wrong, first.wrong[order])
    for one, other in zip(first.losses + first.impacts, second.losses + second.impacts, strict=True):
        assert_close(one, other)
    np.testing.assert_allclose(second.deficits, first.deficits, rtol=1e-6)


def test_renamed_classes_change_nothing_but_their_numbers(build: Build) -> None:
    data, changed = digits(), network()
    new = np.random.default_rng(6).permutation(10)  # class c is called new[c]
    head = changed.layers["head"].parameters
    head["weight"][new], head["bias"][new] = head["weight"].copy(), head["bias"].copy()
    renamed = LabelledData(data.inputs, new[data.labels])
    first, second = find(build(network()), data), find(build(changed), renamed, new)
    assert_close(second.scores[:, new], first.scores)
    np.testing.assert_array_equal(second.wrong, first.wrong)
    for one, other in ((first.losses, second.losses), (first.impacts, second.impacts)):
        assert_close(other[FIRST], one[FIRST])
        assert_close(other[HEAD][new], one[HEAD])
    np.testing.assert_allclose(second.deficits, first.deficits, rtol=1e-6)


def test_a_dead_neuron_changes_nothing_and_is_no_suspect(build: Build) -> None:
    data, small = digits(), network()
    first, head = small.layers["first"].parameters, small.layers["head"].parameters
    rng = np.random.default_rng(8)
    large = Network(
        {"input": (1, 8, 8)},
        (
            Flatten("flat", "input"),
            dense("first", "flat", 64, HIDDEN + 1, rng),
            Relu("act", "first"),
            dense("head", "act", HIDDEN + 1, 10, rng),
        ),
    )
    wide, last = large.layers["first"].parameters, large.layers["head"].parameters
    wide["weight"][:HIDDEN], wide["bias"][:HIDDEN] = first["weight"], first["bias"]
    last["weight"][:, :HIDDEN], last["weight"][:, HIDDEN], last["bias"][:] = head["weight"], 0, head["bias"]
    before, after = find(build(small), data), find(build(large), data)
    assert_close(after.scores, before.scores)
    np.testing.assert_array_equal(after.wrong, before.wrong)
    assert_close(after.losses[FIRST][:HIDDEN], before.losses[FIRST])
    assert_close(after.impacts[FIRST][:HIDDEN], before.impacts[FIRST])
    assert_close(after.losses[HEAD][:, :HIDDEN], before.losses[HEAD])
    assert not after.losses[FIRST][HIDDEN].any()
    assert not after.impacts[FIRST][HIDDEN].any()
    np.testing.assert_allclose(after.deficits, before.deficits, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 32, 200])
def test_batch_size_changes_nothing(build: Build, size: int) -> None:
    data, backend = digits(), build(network())
    whole = backend.forward(data.inputs)
    inputs = np.asarray(data.inputs)
    parts = [backend.forward(inputs[start : start + size]) for start in range(0, len(data), size)]
    assert_close(np.concatenate(parts), whole)
    np.testing.assert_array_equal(np.argmax(np.concatenate(parts), axis=1), np.argmax(whole, axis=1))
