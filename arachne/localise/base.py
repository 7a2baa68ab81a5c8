"""Localiser, the interface of localisers, and Localisation, its result: scores of all weights, and the suspects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import ClassVar

import numpy as np

from arachne.data.part import Part
from arachne.errors import UsageError, did_you_mean
from arachne.localise.pareto import order_by_fronts
from arachne.model.backend import ModelBackend
from arachne.model.values import Address, Array, LayerInfo
from arachne.plugins.drawing import Drawable
from arachne.plugins.options import Configured, option
from arachne.weights.selection import Selection

MAX_NAMED_SUSPECTS = 10
"""The largest number of suspects named on one line."""


@dataclass(frozen=True)
class ParameterScores:
    """Both scores of every weight of one parameter, in its canonical shape; larger is more suspicious."""

    layer: str
    parameter: str
    gradient_loss: Array
    forward_impact: Array

    def __len__(self) -> int:
        return self.gradient_loss.size


@dataclass(frozen=True)
class Localisation(Drawable):
    """The result of a localiser.

    Attributes:
        method: The localiser's name.
        suspects: The weights to search over.
        scores: Both scores of all weights, parameter by parameter in order of execution; empty where a localiser
            has no such two.
        front: The number of suspects on the first Pareto front, or the number asked for by `count`.
        n_candidates: The number of weights that were compared.
    """

    method: str
    suspects: Selection
    scores: tuple[ParameterScores, ...]
    front: int
    n_candidates: int

    @property
    def beyond_front(self) -> int:
        """The number of suspects from behind the first front."""
        return len(self.suspects) - self.front

    @property
    def headline(self) -> str:
        """`bl: 5 of 2,368 weights are suspects`."""
        return f"{self.method}: {len(self.suspects):,} of {self.n_candidates:,} weights are suspects"

    def __str__(self) -> str:
        """The number of suspects, and the first of them in order of execution."""
        first = ", ".join(map(str, self.suspects.first_addresses(MAX_NAMED_SUSPECTS)))
        more = (
            f" and {len(self.suspects) - MAX_NAMED_SUSPECTS:,} more" if len(self.suspects) > MAX_NAMED_SUSPECTS else ""
        )
        return f"{self.headline}: {first}{more}"

    def score(self, address: Address) -> tuple[float, float]:
        """Return the gradient loss and forward impact of one weight."""
        for part in self.scores:
            if (part.layer, part.parameter) == (address.layer, address.parameter):
                return float(part.gradient_loss[address.index]), float(part.forward_impact[address.index])
        raise KeyError(address)

    @cached_property
    def points(self) -> Array:
        """Both scores of every weight, float32 `(n_candidates, 2)`, in the order of `address_of`."""
        return np.concatenate(
            [np.stack([part.gradient_loss.ravel(), part.forward_impact.ravel()], axis=1) for part in self.scores]
        )

    @cached_property
    def ranking(self) -> Array:
        """Every weight from most to least suspicious, as row numbers of `points`: front by front."""
        return order_by_fronts(self.points)

    def address_of(self, row: int) -> Address:
        """Return the weight of a row of `points`."""
        for part in self.scores:
            if row < len(part):
                index = np.unravel_index(row, part.gradient_loss.shape)
                return Address(part.layer, part.parameter, tuple(int(i) for i in index))
            row -= len(part)
        raise IndexError(row)


@dataclass(frozen=True)
class LayerFilter:
    """Says which layers a repair may change: the user's `include`, `exclude` and `biases`.

    It binds the localiser and every search, also one that does not use the suspects.

    Attributes:
        include: Patterns of layers that may change; every layer when empty.
        exclude: Patterns of layers that may not.
        biases: Whether biases and normalisation scales count as weights too.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    biases: bool = False

    def allows(self, layer: str) -> bool:
        """Tell whether the weights of a layer may change."""
        if any(fnmatchcase(layer, pattern) for pattern in self.exclude):
            return False
        return not self.include or any(fnmatchcase(layer, pattern) for pattern in self.include)

    def check(self, names: Sequence[str]) -> None:
        """Check that every pattern matches a layer of the model.

        Raises:
            UsageError: A pattern matches none.
        """
        for pattern in (*self.include, *self.exclude):
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UsageError(f"the model has no layer '{pattern}'" + did_you_mean(pattern, names))


EVERY_LAYER = LayerFilter()
"""The filter of a user who names no layers."""


@dataclass(frozen=True, kw_only=True)
class Localiser(Configured, ABC):
    """Finds the weights behind a mistake.

    A localiser compares matrices and kernels, as the paper does. Its options are fields declared with
    `arachne.option`; a subclass that adds options is a frozen dataclass too.

    Attributes:
        include: Layers to localise in (`*` and `?` work); all when empty.
        exclude: Layers to leave out.
        biases: Whether biases and normalisation scales count as weights too.
        count: The number of suspects; the localiser decides when None.
    """

    NEEDS_SINGLE_LABEL: ClassVar[bool] = False
    """Whether it only works with one label for each input; other tasks are refused."""

    include: Sequence[str] = option((), "Look only at these layers (* works).", metavar="LAYER")
    exclude: Sequence[str] = option((), "Leave these layers out.", metavar="LAYER")
    biases: bool = option(False, "Count biases and normalisation scales as weights too.")
    count: int | None = option(None, "Take this many weights instead of the first front.", least=1)

    @abstractmethod
    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        """Score the weights and choose the suspects. Called once per repair, before the search.

        Args:
            backend: The model; its weights are not changed.
            part: Labelled inputs, of which `negatives` show the fault and `positives` must stay right.
            rng: Where all randomness comes from.
        """

    @property
    def layer_filter(self) -> LayerFilter:
        """The layers that the user allows, for searches that do not use the suspects."""
        return LayerFilter(tuple(self.include), tuple(self.exclude), self.biases)

    def layers(self, backend: ModelBackend) -> list[LayerInfo]:
        """Return the layers to localise in, in order of execution.

        Raises:
            UsageError: A pattern matches no layer, or no layer is left.
        """
        names, allowed = [info.name for info in backend.layers], self.layer_filter
        allowed.check(names)
        chosen = [info for info in backend.layers if allowed.allows(info.name) and self.parameters(info)]
        if not chosen:
            raise UsageError("no layer is left to localise in; available: " + ", ".join(names))
        return chosen

    def parameters(self, info: LayerInfo) -> tuple[str, ...]:
        """Return the parameters of a layer to localise in."""
        return tuple(info.parameters) if self.biases else info.weights

    def candidates(self, backend: ModelBackend) -> Iterator[tuple[LayerInfo, str]]:
        """Yield every parameter to localise in, in candidate order."""
        for info in self.layers(backend):
            for parameter in sorted(self.parameters(info)):
                yield info, parameter


def sample_positives(part: Part, *, rng: np.random.Generator) -> Array:
    """Draw as many positives as there are negatives, without replacement (Algorithm 1, line 2)."""
    positives, wanted = part.positives, len(part.negatives)
    if len(positives) <= wanted:
        return positives
    return np.sort(rng.choice(positives, size=wanted, replace=False))
