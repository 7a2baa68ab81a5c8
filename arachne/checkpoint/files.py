"""The two kinds of files a checkpoint consists of: the finished localisation, and a search's state.

Both are read as files of a stranger: nothing in them is believed before it was checked against the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from arachne.arrays_file import read_arrays, write_arrays
from arachne.backend import ModelBackend
from arachne.errors import CheckpointError, InputError
from arachne.localise import Localisation
from arachne.localise.base import ParameterScores
from arachne.search.state import Generation, SearchState
from arachne.suspects import Suspects
from arachne.values import Address, Array

STATE, LOCALISED = "arachne.checkpoint/1", "arachne.localised/1"

RandomState = Mapping[str, Any]
"""What `rng.bit_generator.state` gives."""


@dataclass(frozen=True, eq=False)
class Saved:
    """A search at the end of one of its steps.

    Attributes:
        fields: What the run that goes on must have in common with this one.
        state: The search's state.
        random: The state of its generator of random numbers.
        seconds: The time spent so far, by step.
    """

    fields: Mapping[str, Any]
    state: SearchState
    random: RandomState
    seconds: Mapping[str, float]

    @property
    def reached(self) -> str:
        """`generation 57`."""
        done = self.state.history[-1].number if self.state.history else 0
        return f"generation {done}" if self.state.stopped is None else f"the end of the search, generation {done}"


def write_saved(path: Path, saved: Saved) -> None:
    """Write a search's state, whole or not at all."""
    about = {
        "schema": STATE,
        "fields": dict(saved.fields),
        "state": saved.state.to_json(),
        "random": _plain(saved.random),
        "seconds": dict(saved.seconds),
    }
    write_arrays(path, {f"state/{name}": array for name, array in saved.state.arrays.items()}, about)


def read_saved(path: Path) -> Saved:
    """Read a search's state back.

    Raises:
        InputError: It is missing, damaged, or no state of a search.
    """
    arrays, about = read_arrays(path, STATE)
    try:
        told = about["state"]
        history = tuple(_generation(one) for one in told["history"])
        for name, value in told["values"].items():
            _check(type(value) in (int, float, str, bool, type(None)), f"'{name}' is no plain value")
        _check(isinstance(told["stopped"], str | None), "why it stopped is no text")
        state = SearchState(
            {name.removeprefix("state/"): array for name, array in arrays.items()},
            dict(told["values"]),
            history,
            told["stopped"],
        )
        return Saved(dict(about["fields"]), state, _random(about["random"]), _seconds(about["seconds"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"'{path}' cannot be used: {error}") from error


def write_localisation(path: Path, found: Localisation, random: RandomState, fields: Mapping[str, Any]) -> None:
    """Write a finished localisation and the generator's state after it, whole or not at all."""
    arrays: dict[str, Array] = {}
    parameters: list[list[str]] = []
    scores: list[list[str]] = []
    for (layer, parameter), run in groupby(found.suspects.addresses, key=lambda at: (at.layer, at.parameter)):
        arrays[f"index{len(parameters)}"] = np.array([address.index for address in run], np.int64)
        parameters.append([layer, parameter])
    for number, one in enumerate(found.scores):
        arrays[f"gradient_loss{number}"] = one.gradient_loss
        arrays[f"forward_impact{number}"] = one.forward_impact
        scores.append([one.layer, one.parameter])
    about = {
        "schema": LOCALISED,
        "fields": dict(fields),
        "method": found.method,
        "front": found.front,
        "candidates": found.n_candidates,
        "parameters": parameters,
        "scores": scores,
        "random": _plain(random),
    }
    write_arrays(path, arrays, about)


def read_localisation(path: Path, backend: ModelBackend, fields: Mapping[str, Any]) -> tuple[Localisation, RandomState]:
    """Read a localisation of this model back, and the generator's state after it.

    Raises:
        InputError: It is missing, damaged, of another run, or does not fit the model.
    """
    arrays, about = read_arrays(path, LOCALISED)
    try:
        _check(about["fields"] == fields, "it is of another run")
        addresses: list[Address] = []
        for number, (layer, parameter) in enumerate(about["parameters"]):
            shape = backend.info(layer).parameters[parameter].shape
            index = arrays[f"index{number}"]
            fits = index.dtype == np.int64 and index.ndim == 2 and index.shape[1] == len(shape)
            _check(fits and bool((index >= 0).all() and (index < shape).all()), f"no such weights in '{layer}'")
            addresses += [Address(layer, parameter, tuple(place)) for place in index.tolist()]
        _check(len(addresses) > 0, "it has no suspects")
        scores = tuple(_scores(arrays, backend, number, *one) for number, one in enumerate(about["scores"]))
        counts = [about["front"], about["candidates"]]
        _check(all(type(one) is int and one >= 0 for one in counts), "its counts are no whole numbers")
        found = Localisation(str(about["method"]), Suspects.of(backend, addresses), scores, *counts)
        return found, _random(about["random"])
    except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
        raise CheckpointError(f"'{path}' cannot be used: {error}") from error


def _scores(
    arrays: Mapping[str, Array], backend: ModelBackend, number: int, layer: str, parameter: str
) -> ParameterScores:
    shape = backend.info(layer).parameters[parameter].shape
    found = [arrays[f"{name}{number}"] for name in ("gradient_loss", "forward_impact")]
    _check(all(one.shape == tuple(shape) and one.dtype.kind == "f" for one in found), f"no scores of '{layer}'")
    return ParameterScores(layer, parameter, *found)


def _generation(told: Any) -> Generation:
    names = {one.name for one in fields(Generation)}
    _check(isinstance(told, dict) and set(told) == names, "a generation is not as it should be")
    for name, value in told.items():
        _check(
            type(value) is int or (name == "fitness" and type(value) is float), f"a generation's {name} is {value!r}"
        )
    return Generation(**told)


def _random(told: Any) -> RandomState:
    """A state for the generator: numbers and names of the kind and depth NumPy itself gives."""
    generator = np.random.default_rng(0).bit_generator
    _check(_alike(told, generator.state), "its random numbers are of another generator")
    generator.state = told
    return dict(told)


def _alike(told: Any, pattern: Any) -> bool:
    if isinstance(pattern, dict):
        return isinstance(told, dict) and set(told) == set(pattern) and all(_alike(told[k], pattern[k]) for k in told)
    if isinstance(pattern, str):
        return bool(told == pattern)
    return type(told) is int and 0 <= told < 2**128


def _seconds(told: Any) -> dict[str, float]:
    _check(isinstance(told, dict), "its times are missing")
    _check(all(type(one) in (int, float) and math.isfinite(one) and one >= 0 for one in told.values()), "a time is bad")
    return {str(name): float(value) for name, value in told.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return value if isinstance(value, str) else int(value)


def _check(fits: bool, otherwise: str) -> None:
    if not fits:
        raise ValueError(otherwise)
