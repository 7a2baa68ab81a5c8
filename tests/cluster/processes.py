"""A scheduler and workers as processes of their own, which nobody starts again when they end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from arachne.cluster.starting import ONE_THREAD

PATIENCE = 120


class Processes:
    """A cluster by hand; use as a context manager.

    Args:
        folder: For its files.
        workers: How many workers to start at once.
        options: More options of scheduler and workers.
        environment: More variables of both.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        protocol: str = "tcp",
    ) -> None:
        self.file = folder / "scheduler.json"
        self._folder, self._first, self._options, self._protocol = folder, workers, list(options), protocol
        self._environment = dict(environment or {})
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Processes:
        words = ["--port", "0", "--scheduler-file", str(self.file), "--no-dashboard", "--host", "127.0.0.1"]
        words += ["--protocol", self._protocol] if self._protocol != "tcp" else []
        self.scheduler = self._start("dask_scheduler", *words)
        until = time.monotonic() + PATIENCE
        while not self._is_written and time.monotonic() < until:
            assert self.scheduler.poll() is None, (self._folder / "log.txt").read_text()
            time.sleep(0.1)
        for _ in range(self._first):
            self.add()
        return self

    @property
    def _is_written(self) -> bool:
        """Whether the scheduler has written its file to the end; it opens the file before it writes."""
        return self.file.is_file() and self.file.read_text("utf-8").rstrip().endswith("}")

    def add(self, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start one more worker."""
        words = ["--scheduler-file", str(self.file), "--no-nanny", "--nthreads", "1", "--no-dashboard"]
        words += ["--host", "127.0.0.1", "--local-directory", str(self._folder)]
        words += ["--protocol", self._protocol] if self._protocol != "tcp" else []
        self.workers.append(self._start("dask_worker", *words, environment=environment))
        return self.workers[-1]

    def _start(self, module: str, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join([*(environment or {}).get("FIRST_PATH", "").split(os.pathsep), *sys.path])
        told = {**os.environ, **ONE_THREAD, **self._environment, **(environment or {}), "PYTHONPATH": paths}
        command = [sys.executable, "-m", f"distributed.cli.{module}", *words, *self._options]
        with (self._folder / "log.txt").open("ab") as log:
            return subprocess.Popen(command, env=told, stdout=log, stderr=log)

    def __exit__(self, *error: object) -> None:
        running = [one for one in [*self.workers, self.scheduler] if one is not None]
        for one in running:
            one.kill()
        for one in running:
            one.wait(PATIENCE)
