"""What a localiser is and what it hands on: scores for every weight, and the suspects among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part
from arachne.errors import UsageError, did_you_mean
from arachne.localise.pareto import order_by_fronts
from arachne.options import Configured, option
from arachne.suspects import Suspects
from arachne.values import Address, Array, LayerInfo

MOST_NAMED = 10
"""How many suspects are named on one line."""


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
class Localisation:
    """What a localiser found.

    Attributes:
        method: The localiser's name.
        suspects: The weights to search over.
        scores: Both scores of all weights, parameter by parameter in order of execution; empty for random.
        front: How many of the suspects lie on the first Pareto front (or were asked for by count).
        n_candidates: How many weights were looked at.
    """

    method: str
    suspects: Suspects
    scores: tuple[ParameterScores, ...]
    front: int
    n_candidates: int

    @property
    def widened(self) -> int:
        """How many suspects come from behind the first front."""
        return len(self.suspects) - self.front

    @property
    def headline(self) -> str:
        """`bl: 5 of 2,368 weights are suspects`."""
        return f"{self.method}: {len(self.suspects):,} of {self.n_candidates:,} weights are suspects"

    def __str__(self) -> str:
        """How many suspects there are, and the first of them in order of execution."""
        first = ", ".join(map(str, self.suspects.addresses[:MOST_NAMED]))
        more = f" and {len(self.suspects) - MOST_NAMED:,} more" if len(self.suspects) > MOST_NAMED else ""
        return f"{self.headline}: {first}{more}"

    def score(self, address: Address) -> tuple[float, float]:
        """Gradient loss and forward impact of one weight."""
        for part in self.scores:
            if (part.layer, part.parameter) == (address.layer, address.parameter):
                return float(part.gradient_loss[address.index]), float(part.forward_impact[address.index])
        raise KeyError(address)

    def _repr_html_(self) -> str:
        """What a notebook shows: the suspects with both scores."""
        from arachne.report.notebook import localisation_html

        return localisation_html(self)

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
        """The weight behind a row of `points`."""
        for part in self.scores:
            if row < len(part):
                index = np.unravel_index(row, part.gradient_loss.shape)
                return Address(part.layer, part.parameter, tuple(int(i) for i in index))
            row -= len(part)
        raise IndexError(row)


@dataclass(frozen=True, kw_only=True)
class Localiser(Configured, ABC):
    """Finds the weights behind a mistake.

    A localiser looks at matrices and kernels, as the paper does. Its options are fields declared with
    `arachne.option`; a subclass with options of its own is a frozen dataclass too.

    Attributes:
        include: Layers to look at (`*` and `?` work); all when empty.
        exclude: Layers to leave out.
        biases: Whether biases and normalisation scales count as weights too.
        count: How many suspects to take; the localiser decides when None.
    """

    include: Sequence[str] = option((), "Look only at these layers (* works).", metavar="LAYER")
    exclude: Sequence[str] = option((), "Leave these layers out.", metavar="LAYER")
    biases: bool = option(False, "Count biases and normalisation scales as weights too.")
    count: int | None = option(None, "Take this many weights instead of the first front.", least=1)

    @abstractmethod
    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        """Score the weights and choose the suspects. Called once per repair, before the search.

        Args:
            backend: The model; it comes back as it was.
            part: Labelled inputs, of which `negatives` show the fault and `positives` must stay right.
            rng: Where all randomness comes from.
        """

    def layers(self, backend: ModelBackend) -> list[LayerInfo]:
        """The layers to look at, in order of execution.

        Raises:
            UsageError: A pattern fits no layer, or nothing is left.
        """
        names = [info.name for info in backend.layers]
        for pattern in (*self.include, *self.exclude):
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UsageError(f"the model has no layer '{pattern}'" + did_you_mean(pattern, names))
        chosen = [
            info
            for info in backend.layers
            if (not self.include or any(fnmatchcase(info.name, pattern) for pattern in self.include))
            and not any(fnmatchcase(info.name, pattern) for pattern in self.exclude)
            and self.parameters(info)
        ]
        if not chosen:
            raise UsageError("no layer is left to localise in; available: " + ", ".join(names))
        return chosen

    def parameters(self, info: LayerInfo) -> tuple[str, ...]:
        """The parameters of a layer to look at."""
        return tuple(info.parameters) if self.biases else info.weights

    def candidates(self, backend: ModelBackend) -> Iterator[tuple[LayerInfo, str]]:
        """Every parameter to look at, in candidate order."""
        for info in self.layers(backend):
            for parameter in sorted(self.parameters(info)):
                yield info, parameter


def sample_positives(part: Part, *, rng: np.random.Generator) -> Array:
    """As many positives as there are negatives, drawn without replacement (Algorithm 1, line 2)."""
    positives, wanted = part.positives, len(part.negatives)
    if len(positives) <= wanted:
        return positives
    return np.sort(rng.choice(positives, size=wanted, replace=False))
