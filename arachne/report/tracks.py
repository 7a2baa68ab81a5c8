"""Where a repair is followed: `mlflow:URI` and `tensorboard:FOLDER`, several at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from arachne.errors import UsageError, did_you_mean
from arachne.report.records import MLflowRecorder, TensorBoardRecorder

if TYPE_CHECKING:
    from arachne.evidence import Evidence
    from arachne.search.state import Generation

TRACKERS = ("mlflow", "tensorboard")


def local_path(tracker: str) -> Path | None:
    """The local folder or file of a tracker; None for a server.

    Raises:
        UsageError: The tracker is of another form.
    """
    kind, where = parse_tracker(tracker)
    scheme, _, rest = where.partition(":")
    if kind == "tensorboard" or (where and not rest and scheme != "databricks"):
        return Path(where)
    if scheme == "file":
        return Path(url2pathname(urlsplit(where).path))
    return Path(rest.removeprefix("///")) if scheme == "sqlite" and rest.startswith("///") else None


class Tracks:
    """Several recorders as one; use it as a context manager and pass it as `on_generation`.

    What cannot be opened is said before the repair begins. What fails later, such as a server that goes away, is told
    once and left out from then on: a repair does not end because nobody can watch it.

    Args:
        trackers: Where to record, each `mlflow:URI`, `mlflow:` for MLflow's own choice, or `tensorboard:FOLDER`.
        parameters: Settings to keep with the run.
        tell: Told what was opened, and what has stopped working.

    Raises:
        UsageError: A tracker of another form.
        EnvironmentFaultError: A package is not installed, or a tracker cannot be used.
    """

    def __init__(
        self,
        trackers: Sequence[str],
        *,
        parameters: Mapping[str, Any] | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        pairs = [parse_tracker(tracker) for tracker in trackers]
        self._tell = tell
        self._stack = ExitStack()
        self._open: list[Any] = []
        with self._stack:
            for kind, where in pairs:
                recorder: Any
                if kind == "mlflow":
                    recorder = MLflowRecorder(tracking_uri=where or None, parameters=parameters)
                else:
                    recorder = TensorBoardRecorder(where)
                self._open.append(self._stack.enter_context(recorder))
            self._stack = self._stack.pop_all()

    def __call__(self, generation: Generation) -> None:
        """Record one generation everywhere."""
        self._each(lambda recorder: recorder(generation))

    def finish(self, evidence: Evidence, folder: Path | None = None) -> None:
        """Record the outcome of the repair, and say where it is."""
        self._each(lambda recorder: recorder.finish(evidence, folder))
        for recorder in self._open:
            self._tell(f"tracked: {recorder}")

    def __enter__(self) -> Tracks:
        return self

    def __exit__(self, *details: Any) -> None:
        try:
            self._stack.__exit__(*details)
        except Exception as error:
            self._give_up("a recorder", error)

    def _each(self, act: Callable[[Any], None]) -> None:
        for recorder in list(self._open):
            try:
                act(recorder)
            except Exception as error:
                self._open.remove(recorder)
                self._give_up(str(recorder), error)

    def _give_up(self, what: str, error: Exception) -> None:
        self._tell(f"note: {what} records no more ({type(error).__name__}: {' '.join(str(error).split())})")


def parse_tracker(tracker: str) -> tuple[str, str]:
    """The kind of a tracker, and where it is.

    Raises:
        UsageError: It is of another form.
    """
    kind, colon, where = tracker.partition(":")
    if not colon or (kind == "tensorboard" and not where):
        raise UsageError(f"a repair is tracked in 'mlflow:URI' or 'tensorboard:FOLDER', got '{tracker}'")
    if kind not in TRACKERS:
        raise UsageError(f"no tracking named '{kind}'" + did_you_mean(kind, TRACKERS))
    return kind, where
