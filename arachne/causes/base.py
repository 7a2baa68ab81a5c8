"""The contract of a finder: it proposes rules from one half of the data; the other half tests them later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arachne.causes.cases import Cases
from arachne.causes.rule import Rule
from arachne.plugins.options import Configured, option


@dataclass(frozen=True)
class Proposals:
    """The rules a finder proposes.

    Attributes:
        rules: Rules that seem to tell errors from right inputs.
        tests: How many rules were compared to find these; p-values are corrected for the tests of all finders.
    """

    rules: tuple[Rule, ...]
    tests: int


@dataclass(frozen=True, kw_only=True)
class Finder(Configured, ABC):
    """Looks for rules that errors have in common.

    `find` is called with all errors of one half of the data and a sample of its right inputs. The rules
    it gives are then tested on that half, corrected for `tests`, and confirmed on the other half, which it never sees.
    """

    SEARCHES_CLASSES: ClassVar[bool] = False
    """Whether it is also asked about inputs of one true class, with all other classes left out."""

    fewest: int = option(5, "Errors a cause has at least, in the half it is looked for in.", least=2)

    @abstractmethod
    def find(self, cases: Cases, *, rng: np.random.Generator) -> Proposals:
        """Propose rules.

        Args:
            cases: Errors and right inputs of one half of the data.
            rng: Where random choices come from.
        """

    def mistakes(self, cases: Cases) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield each class with enough errors: the class, its errors, and the right inputs read as the same class.

        Where hardly any input is rightly read as the class, all right inputs are given; both as positions `(k,)`.
        """
        right = np.flatnonzero(~cases.wrong)
        for read_as in np.unique(cases.predictions[cases.wrong]).tolist():
            errors = np.flatnonzero(cases.wrong & (cases.predictions == read_as))
            if len(errors) < self.fewest:
                continue
            same = right[cases.predictions[right] == read_as]
            yield read_as, errors, same if len(same) >= FEWEST_RIGHT else right


FEWEST_RIGHT = 20
"""The fewest right inputs that errors are compared with."""
