"""Records of a search as it runs: a table, and callbacks for MLflow and TensorBoard.

A callback is called after each generation; several are put together by `together`. The packages are imported when a
callback is made, not before.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arachne.deprecation import deprecated
from arachne.errors import EnvironmentFaultError
from arachne.files import environment_faults

if TYPE_CHECKING:
    from arachne.evidence import Evidence
    from arachne.search.state import Generation, OnGeneration

MEASURES = ("fitness", "repaired", "broken", "evaluations", "replaced")

ARTEFACTS = ("patch.json", "result.json", "report.html", "MODEL_CARD.md", "history.csv")
"""What MLflow keeps of a saved repair; the model itself is left to where models are kept."""


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
        experiment: The experiment's name.
        parameters: Settings to keep with the run.

    Raises:
        EnvironmentFaultError: MLflow is not installed, or cannot be reached.
    """

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        experiment: str = "arachne",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a server that is not there is said soon
        self._entities = _needed("mlflow.entities", "mlflow-skinny")
        try:
            self._client = _needed("mlflow", "mlflow-skinny").MlflowClient(tracking_uri=tracking_uri)
            found = self._client.get_experiment_by_name(experiment)
            number = self._client.create_experiment(experiment) if found is None else found.experiment_id
            self.run_id: str = self._client.create_run(number).info.run_id
            for name, value in (parameters or {}).items():
                self._client.log_param(self.run_id, name, value)
        except EnvironmentFaultError:
            raise
        except Exception as error:  # whatever its stores and their connections raise
            told = " ".join(str(error).split())
            raise EnvironmentFaultError(f"MLflow cannot keep a run in '{tracking_uri}': {told}") from error

    def __call__(self, generation: Generation) -> None:
        """Record one generation."""
        self._log({name: float(getattr(generation, name)) for name in MEASURES}, generation.number)

    def finish(self, evidence: Evidence, folder: Path | None = None) -> None:
        """Record what the repair did, and what it wrote apart from the model.

        Args:
            evidence: What the repair did.
            folder: Where it was saved.
        """
        self._log(_outcome(evidence), 0)
        self._client.set_tag(self.run_id, "verdict", evidence.verdict.word)
        for name in ARTEFACTS:
            if folder is not None and (folder / name).exists():
                self._client.log_artifact(self.run_id, str(folder / name))

    @deprecated(since="0.2", removed_in="0.4", instead="'finish'")
    def evidence(self, evidence: Evidence) -> None:
        """Record what the repair did."""
        self.finish(evidence)

    def __enter__(self) -> MLflowRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        self._client.set_terminated(self.run_id, "FINISHED" if kind is None else "FAILED")

    def __str__(self) -> str:
        """Where the run is."""
        return f"run {self.run_id} of MLflow in '{self._client.tracking_uri}'"

    def _log(self, values: Mapping[str, float], step: int) -> None:
        at = int(1000 * time.time())
        metrics = [self._entities.Metric(name, value, at, step) for name, value in values.items()]
        self._client.log_batch(self.run_id, metrics=metrics)


class TensorBoardRecorder:
    """Records a repair for TensorBoard; use it as a context manager and pass it as `on_generation`.

    Args:
        folder: Where the event file goes.

    Raises:
        EnvironmentFaultError: TensorBoard is not installed, or the folder cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        # TensorBoard's own writer would import TensorFlow wherever that is installed.
        self._event = _needed("tensorboard.compat.proto.event_pb2", "tensorboard").Event
        self._summary = _needed("tensorboard.compat.proto.summary_pb2", "tensorboard").Summary
        self._path = Path(folder) / f"events.out.tfevents.{time.time_ns()}.arachne"
        with environment_faults(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = self._path.open("wb")
        records = _needed("tensorboard.summary.writer.record_writer", "tensorboard")
        self._writer = records.RecordWriter(self._stream)
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def __call__(self, generation: Generation) -> None:
        """Record one generation."""
        self._scalars({f"search/{name}": float(getattr(generation, name)) for name in MEASURES}, generation.number)

    def finish(self, evidence: Evidence, folder: Path | None = None) -> None:
        """Record what the repair did."""
        self._scalars({f"held_out/{name}": value for name, value in _outcome(evidence).items()}, 0)

    @deprecated(since="0.2", removed_in="0.4", instead="'finish'")
    def evidence(self, evidence: Evidence) -> None:
        """Record what the repair did."""
        self.finish(evidence)

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


def _outcome(evidence: Evidence) -> dict[str, float]:
    held_out = evidence.held_out
    measures = {
        "repair_rate": held_out.repair_rate,
        "break_rate": held_out.break_rate,
        "accuracy_before": held_out.accuracy_before,
        "accuracy_after": held_out.accuracy_after,
    }
    return {name: value for name, value in measures.items() if value == value}  # a rate of no inputs is no number


def _needed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EnvironmentFaultError(
            f"recording needs a package that is not installed: pip install {package}"
        ) from error
