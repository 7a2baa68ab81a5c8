"""`--track`: the folders in which a repair is followed are outputs, and are checked as such."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from arachne.cli.outputs import OutputType
from arachne.errors import UsageError
from arachne.io.output_paths import environment_faults

SQLITE = b"SQLite format 3\0"
"""The first bytes of a database, in which MLflow may keep its runs."""


class TrackType(OutputType):
    """A tracker such as `mlflow:URI` or `tensorboard:FOLDER`, to which files are added where it is on this machine."""

    name = "tracker"

    def __init__(self) -> None:
        super().__init__(makes_folders=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def paths(self, value: Any) -> Iterable[Path]:
        from arachne.report.tracks import local_path

        found = (local_path(tracker) for tracker in value or ())
        return [path for path in found if path is not None]

    def check(self, path: Path, *, force: bool) -> None:
        if not path.exists() or path.is_dir():
            return
        start = b""
        if path.is_file():
            with environment_faults(path), path.open("rb") as stream:
                start = stream.read(len(SQLITE))
        if start != SQLITE:
            raise UsageError(f"'{path}' is no folder, in which a repair could be followed; choose another name")


track_option = click.option(
    "--track",
    "tracks",
    type=TrackType(),
    multiple=True,
    metavar="TRACKER",
    help="Follow the search in mlflow:URI or tensorboard:FOLDER. Repeatable.",
)
