"""The limit on the number of workers on one machine."""

from __future__ import annotations

import os

WORKERS_EACH = 4
"""Workers for each processor; more would only wait for each other."""


def max_workers() -> int:
    """Return the largest number of workers that are started on this machine."""
    return WORKERS_EACH * (os.cpu_count() or 1)
