"""Suspects: candidate order, and one look at each tensor however many weights of it are suspects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from arachne.suspects import Suspects
from arachne.testing import ReferenceBackend, mlp
from arachne.values import Address, Array


class Watched(np.ndarray[Any, Any]):
    """A tensor that counts how often it is converted, which is what summarising it begins with."""

    conversions = 0

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        Watched.conversions += 1
        return np.asarray(self).astype(*args, **kwargs)


class Counting(ReferenceBackend):
    """Counts what it is asked for."""

    reads: list[str]

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        self.reads = [*getattr(self, "reads", ()), layer]
        return {name: values.view(Watched) for name, values in super()._get_weights(layer).items()}


def _backend() -> ReferenceBackend:
    return ReferenceBackend(mlp((5, 8, 3)))


def _defined(backend: ReferenceBackend, addresses: Iterable[Address]) -> tuple[list[Address], Array]:
    """The plain definition: every suspect looks at its whole tensor."""
    order = [info.name for info in backend.layers]
    ordered = sorted(set(addresses), key=lambda a: (order.index(a.layer), a.parameter, a.index))
    rows = []
    for address in ordered:
        whole = backend.get_weights(address.layer)[address.parameter].astype(np.float64)
        rows.append((whole[address.index], whole.mean(), whole.std(), whole.min(), whole.max()))
    return ordered, np.array(rows)


def _addresses(backend: ReferenceBackend, size: int) -> list[Address]:
    every = [
        Address(info.name, parameter, tuple(int(i) for i in index))
        for info in backend.layers
        for parameter, shape in info.parameters.items()
        for index in np.ndindex(shape.shape)
    ]
    chosen = np.random.default_rng(0).choice(len(every), size=size)  # some are drawn twice
    return [every[number] for number in chosen]


def test_numbers_are_those_of_the_plain_definition_bit_for_bit() -> None:
    backend = _backend()
    addresses = _addresses(backend, 60)
    ordered, rows = _defined(backend, addresses)
    suspects = Suspects.of(backend, addresses)
    found = (suspects.values, suspects.means, suspects.deviations, suspects.lowest, suspects.highest)
    assert suspects.addresses == tuple(ordered)
    assert all(column.tobytes() == np.ascontiguousarray(rows[:, n]).tobytes() for n, column in enumerate(found))
    assert suspects.dtypes == ("float32",) * len(ordered)


def test_each_tensor_is_read_and_summarised_once() -> None:
    backend = _backend()
    addresses = _addresses(backend, 60)
    counting = Counting(mlp((5, 8, 3)))
    Watched.conversions = 0
    Suspects.of(counting, addresses)
    assert counting.reads == list(dict.fromkeys(counting.reads))
    assert Watched.conversions == len({(address.layer, address.parameter) for address in addresses})


def test_they_come_in_order_of_execution_parameter_and_index() -> None:
    wanted = [
        Address("fc2", "weight", (0, 1)),
        Address("fc1", "weight", (5, 0)),
        Address("fc1", "weight", (0, 3)),
        Address("fc2", "bias", (1,)),
    ]
    suspects = Suspects.of(_backend(), [*wanted, wanted[0]])
    assert suspects.addresses == (wanted[2], wanted[1], wanted[3], wanted[0])
    assert suspects.parameters == (("fc1", "weight"), ("fc2", "bias"), ("fc2", "weight"))


def test_places_put_a_candidate_vector_where_its_addresses_say() -> None:
    backend = _backend()
    suspects = Suspects.of(backend, _addresses(backend, 40))
    trial = np.arange(1.0, len(suspects) + 1)
    written = {(info.name, p): np.zeros(shape.shape) for info in backend.layers for p, shape in info.parameters.items()}
    for place in suspects.places:
        written[place.layer, place.parameter][place.index] = trial[place.numbers]
    assert [written[a.layer, a.parameter][a.index] for a in suspects.addresses] == trial.tolist()
    assert sum(np.count_nonzero(values) for values in written.values()) == len(suspects)


def test_no_addresses_make_no_suspects() -> None:
    suspects = Suspects.of(_backend(), [])
    assert len(suspects) == 0
    assert suspects.parameters == ()
    assert suspects.values.shape == (0,)


@pytest.mark.parametrize("parameter", ["weights", "kernel"])
def test_an_unknown_parameter_is_refused(parameter: str) -> None:
    with pytest.raises(KeyError, match=parameter):
        Suspects.of(_backend(), [Address("fc1", parameter, (0, 0))])
