"""The parts of the conformance suite, by subject; authors of backends want `arachne.testing.BackendConformance`."""

from __future__ import annotations

import pytest

# Without this a failed assertion in the suite would show no values: pytest rewrites only test modules by itself.
for _part in ("suite", "weights", "forward", "gradients", "cuts", "files"):
    pytest.register_assert_rewrite(f"arachne.testing.checks.{_part}")
