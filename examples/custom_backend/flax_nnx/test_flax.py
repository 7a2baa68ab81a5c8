"""The contract, checked by the suite that comes with Arachne, and what only Flax has."""

from __future__ import annotations

from arachne_flax.conformance import FlaxConformance


class TestFlax(FlaxConformance):
    """The whole suite."""
