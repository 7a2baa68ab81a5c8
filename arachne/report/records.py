"""Records of a search as it runs: a table, and callbacks for MLflow and TensorBoard.

A callback is called after each generation; several are put together by `together`. The packages are imported when a
callback is made, not before.
"""

from __future__ import annotations

import csv
import importlib
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arachne.errors import EnvironmentFaultError
from arachne.files import environment_faults

if TYPE_CHECKING:
    from arachne.evidence import Evidence
    from arachne.search.state import Generation, OnGeneration

MEASURES = ("fitness", "repaired", "broken", "evaluations", "replaced")


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
    """

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        experiment: str = "arachne",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._mlflow = _needed("mlflow", "mlflow-skinny")
        self._client = self._mlflow.MlflowClient(tracking_uri=tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if found is None else found.experiment_id
        self.run_id: str = self._client.create_run(number).info.run_id
        for name, value in (parameters or {}).items():
            self._client.log_param(self.run_id, name, value)

    def __call__(self, generation: Generation) -> None:
        """Record one generation."""
        for name in MEASURES:
            self._client.log_metric(self.run_id, name, float(getattr(generation, name)), step=generation.number)

    def evidence(self, evidence: Evidence) -> None:
        """Record what the repair did."""
        for name, value in _outcome(evidence).items():
            self._client.log_metric(self.run_id, name, value)
        self._client.set_tag(self.run_id, "verdict", evidence.verdict.word)

    def __enter__(self) -> MLflowRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        self._client.set_terminated(self.run_id, "FINISHED" if kind is None else "FAILED")


class TensorBoardRecorder:
    """Records a repair for TensorBoard; use it as a context manager and pass it as `on_generation`.

    Args:
        folder: Where the event file goes.
    """

    def __init__(self, folder: str | Path) -> None:
        # TensorBoard's own writer would import TensorFlow wherever that is installed.
        self._event = _needed("tensorboard.compat.proto.event_pb2", "tensorboard").Event
        self._summary = _needed("tensorboard.compat.proto.summary_pb2", "tensorboard").Summary
        path = Path(folder) / f"events.out.tfevents.{time.time_ns()}.arachne"
        with environment_faults(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = path.open("wb")
        records = _needed("tensorboard.summary.writer.record_writer", "tensorboard")
        self._writer = records.RecordWriter(self._stream)
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def __call__(self, generation: Generation) -> None:
        """Record one generation."""
        self._scalars({f"search/{name}": float(getattr(generation, name)) for name in MEASURES}, generation.number)

    def evidence(self, evidence: Evidence) -> None:
        """Record what the repair did."""
        self._scalars({f"held_out/{name}": value for name, value in _outcome(evidence).items()}, 0)

    def __enter__(self) -> TensorBoardRecorder:
        return self

    def __exit__(self, *details: object) -> None:
        self._stream.close()

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
