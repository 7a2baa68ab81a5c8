"""The conformance suites of our own adapters, where their frameworks are installed."""

from __future__ import annotations

from typing import cast

from arachne.errors import PluginUnavailableError
from arachne.plugins.table import CONFORMANCE
from arachne.testing import BackendConformance


def suite_of(name: str) -> type[BackendConformance]:
    """The suite of an adapter; the bare one where its framework is missing, whose tests are then skipped."""
    try:
        return cast("type[BackendConformance]", CONFORMANCE.get(name))
    except PluginUnavailableError:
        return BackendConformance
