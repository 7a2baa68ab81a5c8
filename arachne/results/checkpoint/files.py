"""The two kinds of files a checkpoint consists of: the finished localisation, and a search's state.

Both are read as files of a stranger: nothing in them is believed before it was checked against the model.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arachne.errors import CheckpointError
from arachne.io.arrays import MAX_ABOUT_BYTES, read_arrays, write_arrays
from arachne.io.reading import error_text as reason
from arachne.io.stored_values import check_list, check_mapping, text, whole
from arachne.localise import Localisation
from arachne.localise.base import ParameterScores
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.search.state import SearchState
from arachne.weights.selection import Selection

STATE, LOCALISED = "arachne.checkpoint/1", "arachne.localised/1"

MAX_MEMBERS, MAX_DEPTH = 100, 3
"""Searches that a search may run as its members, and how deeply such searches may be nested."""

MAX_GENERATIONS = 1_000_000
"""Generations in a history; each is an object of its own."""

MAX_PARAMETERS = 1_000_000
"""Parameters that suspects lie in."""

RandomState = Mapping[str, Any]
"""The type of `rng.bit_generator.state`."""


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
    def progress(self) -> str:
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
    write_arrays(path, {f"state/{name}": array for name, array in saved.state.all_arrays.items()}, about)


def read_saved(path: Path) -> Saved:
    """Read a search's state back.

    Raises:
        InputError: It is missing, damaged, or no state of a search.
    """
    arrays, about = read_arrays(path, STATE)
    with _usable(path):
        _check_state(about["state"])
        _check(all(name.startswith("state/") for name in arrays), "it holds arrays of something else")
        inside = {name.removeprefix("state/"): array for name, array in arrays.items()}
        state = SearchState.from_json(inside, about["state"])
        own = dict(check_mapping(about["fields"], "fields"))
        return Saved(own, state, _random(about["random"]), _seconds(about["seconds"]))


def _check_state(plain: Any, depth: int = 0) -> None:
    """Refuse anything but the state of a search, or of one that runs others as its members."""
    _check(depth <= MAX_DEPTH, "its members are nested too deeply")
    check_list(check_mapping(plain, "state")["history"], "history", MAX_GENERATIONS)
    for name, value in check_mapping(plain["values"], "values").items():
        _check(type(value) in (int, float, str, bool, type(None)), f"'{name}' is no plain value")
    _check(isinstance(plain["stopped"], str | None), "why it stopped is no text")
    for name, member in check_list(plain.get("members", []), "members", MAX_MEMBERS):
        _check(isinstance(name, str), "the name of a member is no text")
        _check_state(member, depth + 1)


def write_localisation(path: Path, found: Localisation, random: RandomState, fields: Mapping[str, Any]) -> None:
    """Write a finished localisation and the generator's state after it, whole or not at all."""
    arrays: dict[str, Array] = {}
    parameters: list[list[str]] = []
    scores: list[list[str]] = []
    for slice_ in found.suspects.slices:
        arrays[f"index{len(parameters)}"] = slice_.rows
        parameters.append([slice_.layer, slice_.parameter])
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
    arrays, about = read_arrays(path, LOCALISED, _localisation_bytes(backend))
    with _usable(path):
        _check(about["fields"] == fields, "it is of another run")
        chosen: dict[tuple[str, str], Array] = {}
        known = {(layer.name, name): info for layer in backend.layers for name, info in layer.parameters.items()}
        for number, (layer, parameter) in enumerate(_read_parameters(about["parameters"], "parameters", known)):
            shape = known[layer, parameter].shape
            index = arrays[f"index{number}"]
            fits = index.dtype == np.int64 and index.ndim == 2 and index.shape[1] == len(shape)
            _check(fits and bool((index >= 0).all() and (index < shape).all()), f"no such weights in '{layer}'")
            chosen[layer, parameter] = (
                np.ravel_multi_index(tuple(index.T), shape) if shape else np.zeros(len(index), int)
            )
        suspects = Selection.at(backend, chosen)
        _check(0 < len(suspects) == sum(map(len, chosen.values())), "it has no suspects, or one of them twice")
        named = _read_parameters(about["scores"], "scores", known)
        scores = tuple(_scores(arrays, known[one].shape, number, *one) for number, one in enumerate(named))
        counts = [whole(about[name], name) for name in ("front", "candidates")]
        found = Localisation(text(about["method"], "method"), suspects, scores, *counts)
        return found, _random(about["random"])


def _localisation_bytes(backend: ModelBackend) -> int:
    """The most bytes that a localisation of this model can take: two scores and an index for every weight."""
    sizes = [info.size * 8 * (2 + len(info.shape)) for layer in backend.layers for info in layer.parameters.values()]
    return sum(sizes) + MAX_ABOUT_BYTES


def _read_parameters(stored: Any, name: str, known: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Read parameters of the model by layer and name, each once."""
    found: dict[tuple[str, str], None] = {}
    for one in check_list(stored, name, MAX_PARAMETERS):
        pair = tuple(one) if isinstance(one, list) and all(isinstance(word, str) for word in one) else ()
        _check(pair in known, f"the model has no parameter {one!r:.60}")
        _check(pair not in found, f"the parameter {one!r:.60} stands twice in its {name}")
        found[pair] = None
    return list(found)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Turn any error in the block, about a file that does not fit, into one sentence."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # of our own as well: a layer that the model does not have is the file's fault
        raise CheckpointError(f"'{path}' cannot be used: {reason(error)}") from error


def _scores(
    arrays: Mapping[str, Array], shape: tuple[int, ...], number: int, layer: str, parameter: str
) -> ParameterScores:
    found = [arrays[f"{name}{number}"] for name in ("gradient_loss", "forward_impact")]
    _check(all(one.shape == tuple(shape) and one.dtype.kind == "f" for one in found), f"no scores of '{layer}'")
    return ParameterScores(layer, parameter, *found)


def _random(stored: Any) -> RandomState:
    """A state for the generator: numbers and names of the kind and depth NumPy itself gives."""
    generator = np.random.default_rng(0).bit_generator
    _check(_alike(stored, generator.state), "its random numbers are of another generator")
    generator.state = stored
    return dict(stored)


def _alike(stored: Any, pattern: Any) -> bool:
    if isinstance(pattern, dict):
        return (
            isinstance(stored, dict)
            and set(stored) == set(pattern)
            and all(_alike(stored[k], pattern[k]) for k in stored)
        )
    if isinstance(pattern, str):
        return bool(stored == pattern)
    return type(stored) is int and 0 <= stored < 2**128


def _seconds(stored: Any) -> dict[str, float]:
    _check(isinstance(stored, dict), "its times are missing")
    _check(
        all(type(one) in (int, float) and math.isfinite(one) and one >= 0 for one in stored.values()), "a time is bad"
    )
    return {str(name): float(value) for name, value in stored.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return value if isinstance(value, str) else int(value)


def _check(fits: bool, otherwise: str) -> None:
    if not fits:
        raise ValueError(otherwise)
