"""Which part of the input the changed weights read is told where it is few, and only where it is so."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.causes.rules import Token, Values
from arachne.causes.wording import describe_planted, describe_token
from arachne.data.labelled import LabelledData
from arachne.evidence.connections import describe_connections
from arachne.model.values import Activation, Address, Inputs
from arachne.patch import Patch
from arachne.testing import ReferenceBackend
from arachne.testing.networks import mlp

NAMES = ("age", "income", "height", "debt")


@pytest.fixture(scope="module")
def backend() -> ReferenceBackend:
    return ReferenceBackend(mlp([4, 6, 3]))


def data(**more: object) -> LabelledData:
    inputs = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    return LabelledData(inputs, np.zeros(20, np.int64), **more)  # type: ignore[arg-type]  # of several types


def patch(backend: ReferenceBackend, layer: str, *places: tuple[int, int]) -> Patch:
    values = backend.get_weights(layer)["weight"]
    addresses = [Address(layer, "weight", place) for place in places]
    return Patch.between(backend, addresses, [float(values[place]) + 1 for place in places])


def test_columns_are_told_by_their_names(backend: ReferenceBackend) -> None:
    first = backend.layers[0].name
    one = patch(backend, first, (0, 1), (3, 1))
    assert describe_connections(backend, one, data(value_names=NAMES)) == (
        "all 2 changed weights are connected to column 'income'"
    )
    assert describe_connections(backend, patch(backend, first, (0, 1)), data()) == (
        "the one changed weight is connected to column 1"
    )
    two = patch(backend, first, (0, 1), (3, 3))
    told = describe_connections(backend, two, data(value_names=NAMES))
    assert told == "all 2 changed weights are connected to column 'income' and column 'debt'"


class Scaled(ReferenceBackend):
    """Standardises what it is given, as a pipeline with a scaler does."""

    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        scaled = (np.asarray(inputs) - 3) * np.array([2, -0.5, 10, 1])
        return super()._activations(scaled.astype(np.float32), layer)


def test_columns_behind_a_scaler_are_told_too() -> None:
    scaled = Scaled(mlp([4, 4, 3]))
    first, last = (layer.name for layer in scaled.layers)
    assert describe_connections(scaled, patch(scaled, first, (0, 1)), data(value_names=NAMES)) == (
        "the one changed weight is connected to column 'income'"
    )
    assert describe_connections(scaled, patch(scaled, last, (0, 1)), data(value_names=NAMES)) is None
    assert describe_connections(scaled, patch(scaled, first, (0, 1)), data().take(range(5))) is None  # too few to tell


def test_nothing_is_told_of_layers_that_do_not_read_the_input(backend: ReferenceBackend) -> None:
    last = backend.layers[-1].name
    assert describe_connections(backend, patch(backend, last, (0, 1)), data()) is None


def test_names_that_do_not_fit_the_values_are_dropped() -> None:
    assert data(value_names=NAMES).take([1, 2]).value_names == NAMES
    assert data(value_names=NAMES[:3]).value_names is None


def test_a_token_is_told_by_the_word_that_comes_with_it() -> None:
    texts = [f"{'never' if row % 3 == 0 else 'quite'} the {'good' if row % 2 else 'bad'} one" for row in range(60)]
    words = {"never": 5, "quite": 6, "the": 7, "good": 8, "bad": 9, "one": 10}
    tokens = np.array([[words[word] for word in text.split()] for text in texts])
    told = LabelledData(tokens, np.zeros(60, np.int64), columns={"text": np.array(texts)})
    assert describe_token(told, "", 5) == "token 5 ('never')"
    assert describe_token(told, "", 7) == "token 7"  # every text has it, and 'one' too
    assert describe_token(LabelledData(tokens, told.labels), "", 5) == "token 5"
    assert describe_planted(Token("", 5), told, "column 3 is 5") == "token 5 ('never') is in them"
    assert describe_planted(Values("", (3,), (5.0,), 1), told, "column 3 is 5") == "column 3 is 5"
