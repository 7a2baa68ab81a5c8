"""Asks of every network what is asked of a user's model; `arachne.testing.model` has the checks."""

from __future__ import annotations

import pytest

from arachne.testing.checks.files import FileChecks
from arachne.testing.checks.suite import Specimen, assert_close
from arachne.testing.model.checks import CHECKS, STRONGER_IN_SUITE, Check
from arachne.testing.model.subject import NotHereError, Subject

NETWORK_CHECKS = [check for checks in CHECKS.values() for check in checks if check not in STRONGER_IN_SUITE]


class ModelChecks(FileChecks):
    """Every operation, on every network."""

    @pytest.mark.parametrize("check", NETWORK_CHECKS, ids=lambda check: check.__name__)
    def test_on_every_network(self, specimen: Specimen, check: Check) -> None:
        """The docstring of each check is the sentence it checks."""
        backend = specimen.backend
        subject = Subject(
            backend, specimen.inputs, lambda path: self.reload(path, backend, specimen.network), assert_close
        )
        try:
            check(subject)
        except NotHereError as reason:
            pytest.skip(str(reason))
