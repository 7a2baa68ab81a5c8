"""`Roster`: which workers of a cluster can be asked, and whether its scheduler is there."""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING

from arachne.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client

POLL_SECONDS = 0.5
"""Seconds between two checks while waiting."""

LATE_AND_SILENT_SECONDS, SILENT_SECONDS = 5.0, 60.0
"""Seconds without a heartbeat after which a late worker counts as hanging, and after which any worker does."""

WORKER_LIST_SECONDS = 2.0
"""Seconds for which the list of workers is not asked for again."""

SCHEDULER_TIMEOUT_SECONDS = 10.0
"""Seconds without a scheduler after which it counts as gone."""


class Roster:
    """The workers of one cluster; those in `hanging` are left out where there are others."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.hanging: set[str] = set()
        self._lost: float | None = None
        self._counted: tuple[float, list[str]] = (-inf, [])

    def alive(self, *, known: bool = False) -> list[str]:
        """Return the addresses of the workers that can be asked; with `known`, perhaps a list that is seconds old.

        Raises:
            ClusterError: There are none, even after waiting for one.
        """
        if known and time.monotonic() - self._counted[0] < WORKER_LIST_SECONDS:
            return self._counted[1]
        until = time.monotonic() + SCHEDULER_TIMEOUT_SECONDS
        while True:
            self.check_scheduler()
            found = sorted(self._client.nthreads())
            usable = [worker for worker in found if worker not in self.hanging] or found
            if usable:
                self._counted = time.monotonic(), usable
                return usable
            if time.monotonic() > until:
                raise ClusterError(f"the cluster at {self._address} has no worker left")
            time.sleep(POLL_SECONDS)

    def seconds_unheard(self) -> dict[str, float]:
        """Return the seconds since each worker's last heartbeat, counted from the latest heartbeat of any worker."""
        found = self._client.scheduler_info(n_workers=-1)["workers"]
        latest = max((one["last_seen"] for one in found.values()), default=0.0)
        silent = {worker: latest - one["last_seen"] for worker, one in found.items()}
        self.hanging = {worker for worker in self.hanging if silent.get(worker, 0.0) > LATE_AND_SILENT_SECONDS}
        return silent

    def check_scheduler(self) -> None:
        """Wait for a scheduler that is out of reach.

        Raises:
            ClusterError: It stays away.
        """
        if self._client.status == "running":
            self._lost = None
            return
        self._lost = self._lost or time.monotonic()
        while self._client.status != "running":
            if self._client.status == "closed" or time.monotonic() - self._lost > SCHEDULER_TIMEOUT_SECONDS:
                raise self._gone_error()
            time.sleep(POLL_SECONDS)

    def _gone_error(self) -> ClusterError:
        return ClusterError(f"the scheduler of the cluster at {self._address} is gone")

    @property
    def _address(self) -> str:
        return str(getattr(self._client.scheduler, "address", None) or "an unknown address")
