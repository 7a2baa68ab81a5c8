"""Records of a search as it runs: a table, and callbacks for MLflow and TensorBoard.

A callback is called after each generation; several are put together by `together`. The packages are imported when a
callback is made, not before.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from arachne.errors import EnvironmentFaultError
from arachne.io.output_paths import create_file, environment_faults, make_folder

if TYPE_CHECKING:
    from arachne.evidence import Evidence
    from arachne.search.state import Generation, OnGeneration

T = TypeVar("T")

ANSWER_SECONDS = 30.0
"""How long MLflow's server may take to answer."""

EXPERIMENT = "arachne"
MEASURES = ("fitness", "repaired", "broken", "evaluations", "replaced")

ARTEFACTS = ("patch.json", "result.json", "report.html", "MODEL_CARD.md", "history.csv")
"""Files of a saved repair that are logged to MLflow; the model itself is not."""


def history_csv(history: Sequence[Generation]) -> str:
    """`history.csv`: a line per generation."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if history:
        writer.writerow(["generation" if field.name == "number" else field.name for field in fields(history[0])])
        writer.writerows(astuple(generation) for generation in history)
    return stream.getvalue()


def together(*callbacks: OnGeneration | None) -> OnGeneration:
    """One callback that calls several, in order."""

    def on_generation(generation: Generation) -> None:
        for callback in callbacks:
            if callback is not None:
                callback(generation)

    return on_generation


class MLflowRecorder:
    """Records a repair as a run of MLflow; use it as a context manager and pass it as `on_generation`.

    Args:
        tracking_uri: Where runs are kept; MLflow's own choice when None.
        parameters: Settings to keep with the run.

    Raises:
        EnvironmentFaultError: MLflow is not installed, or cannot be reached.
    """

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a server that is not there is said soon
        if tracking_uri is not None and urlsplit(tracking_uri).scheme in ("", "file"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 keeps runs in a folder on request alone
        self._entities = _import_or_explain("mlflow.entities", "mlflow-skinny")
        self._silent = False
        try:
            self._client = _import_or_explain("mlflow", "mlflow-skinny").MlflowClient(tracking_uri=tracking_uri)
            self.run_id: str = self._ask(lambda: self._begin(parameters or {}))
        except EnvironmentFaultError:
            raise
        except Exception as error:  # whatever its stores and their connections raise
            reason = " ".join(str(error).split())
            raise EnvironmentFaultError(f"MLflow cannot keep a run in '{tracking_uri}': {reason}") from error

    def _begin(self, parameters: Mapping[str, Any]) -> str:
        """Make a run, and say which."""
        found = self._client.get_experiment_by_name(EXPERIMENT)
        number = self._client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
        run_id: str = self._client.create_run(number).info.run_id
        for name, value in parameters.items():
            self._client.log_param(run_id, name, value)
        return run_id

    def _ask(self, act: Callable[[], T]) -> T:
        """Let MLflow act, and wait for it only so long; a server that was silent once is asked no more."""
        try:
            return within(ANSWER_SECONDS, act)
        except TimeoutError as error:
            self._silent = True
            raise EnvironmentFaultError(
                f"MLflow at '{self._client.tracking_uri}' did not answer within {ANSWER_SECONDS:g} seconds; check the "
                "address, or leave tracking out"
            ) from error

    def __call__(self, generation: Generation) -> None:
        """Record one generation."""
        self._log({name: float(getattr(generation, name)) for name in MEASURES}, generation.number)

    def finish(self, evidence: Evidence, folder: Path | None = None) -> None:
        """Record the outcome of the repair, and its files except the model.

        Args:
            evidence: What the repair did.
            folder: Where it was saved.
        """
        self._log(_outcome(evidence), 0)
        self._ask(lambda: self._client.set_tag(self.run_id, "verdict", evidence.verdict.word))
        for path in [] if folder is None else [folder / name for name in ARTEFACTS]:
            if path.exists():
                self._ask(partial(self._client.log_artifact, self.run_id, str(path)))

    def __enter__(self) -> MLflowRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        if not self._silent:
            self._ask(lambda: self._client.set_terminated(self.run_id, "FINISHED" if kind is None else "FAILED"))

    def __str__(self) -> str:
        """Where the run is."""
        return f"run {self.run_id} of MLflow in '{self._client.tracking_uri}'"

    def _log(self, values: Mapping[str, float], step: int) -> None:
        at = int(1000 * time.time())
        metrics = [self._entities.Metric(name, value, at, step) for name, value in values.items()]
        self._ask(lambda: self._client.log_batch(self.run_id, metrics=metrics))


class TensorBoardRecorder:
    """Records a repair for TensorBoard; use it as a context manager and pass it as `on_generation`.

    Args:
        folder: Where the event file goes.

    Raises:
        EnvironmentFaultError: TensorBoard is not installed, or the folder cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        # TensorBoard's own writer would import TensorFlow wherever that is installed.
        self._event = _import_or_explain("tensorboard.compat.proto.event_pb2", "tensorboard").Event
        self._summary = _import_or_explain("tensorboard.compat.proto.summary_pb2", "tensorboard").Summary
        self._path = Path(folder) / f"events.out.tfevents.{time.time_ns()}.arachne"
        with environment_faults(self._path):
            make_folder(self._path.parent.resolve())
            self._stream = create_file(self._path)
        records = _import_or_explain("tensorboard.summary.writer.record_writer", "tensorboard")
        self._writer = records.RecordWriter(self._stream)
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def __call__(self, generation: Generation) -> None:
        """Record one generation."""
        self._scalars({f"search/{name}": float(getattr(generation, name)) for name in MEASURES}, generation.number)

    def finish(self, evidence: Evidence, folder: Path | None = None) -> None:
        """Record the outcome of the repair."""
        self._scalars({f"held_out/{name}": value for name, value in _outcome(evidence).items()}, 0)

    def __enter__(self) -> TensorBoardRecorder:
        return self

    def __exit__(self, *details: object) -> None:
        self._stream.close()

    def __str__(self) -> str:
        """Where the events are."""
        return f"events for TensorBoard in '{self._path.parent}'"

    def _scalars(self, values: Mapping[str, float], step: int) -> None:
        summary = self._summary(value=[self._summary.Value(tag=name, simple_value=v) for name, v in values.items()])
        self._write(self._event(wall_time=time.time(), step=step, summary=summary))

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()


def within(seconds: float, act: Callable[[], T]) -> T:
    """Call a function in a separate thread, and wait a limited time for its result.

    Raises:
        TimeoutError: It has not ended by then; the thread is left alone.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(act())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True, name="arachne-tracking").start()
    done, _ = wait([outcome], timeout=seconds)
    if not done:
        raise TimeoutError
    return outcome.result()


def _outcome(evidence: Evidence) -> dict[str, float]:
    held_out = evidence.held_out
    measures = {
        "repair_rate": held_out.repair_rate,
        "break_rate": held_out.break_rate,
        "accuracy_before": held_out.accuracy_before,
        "accuracy_after": held_out.accuracy_after,
    }
    return {name: value for name, value in measures.items() if value == value}  # a rate of no inputs is no number


def _import_or_explain(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EnvironmentFaultError(
            f"recording needs a package that is not installed: pip install {package}"
        ) from error
