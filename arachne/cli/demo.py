"""`arachne demo`: scan and repair a small model that comes with Arachne."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import Command, OutputType, is_forced
from arachne.errors import UsageError

TARGET = "*:7"
FILES = ("digits.onnx", "digits.npz")


def _content(name: str) -> bytes:
    return resources.files("arachne.demo").joinpath(name).read_bytes()


class DemoFolder(OutputType):
    """A folder for model and data of the demonstration; those of an earlier one may be there."""

    def __init__(self) -> None:
        super().__init__(makes_folders=True)

    def check(self, path: Path, *, force: bool) -> None:
        if path.exists() and not path.is_dir():
            raise UsageError(f"'{path}' is a file, expected a folder")
        for name in FILES:
            if not _holds(path, name):
                super().check(path / name, force=force)


def _holds(folder: Path, name: str) -> bool:
    return (folder / name).is_file() and (folder / name).read_bytes() == _content(name)


@click.command(cls=Command, short_help="Scan and repair a small model that comes with Arachne.")
@click.option(
    "-o",
    "--out",
    type=DemoFolder(),
    default=Path("arachne-demo"),
    show_default=True,
    help="Folder for the model, the data and the repair.",
)
@output_options
@click.pass_context
def command(context: click.Context, out: Path) -> None:
    """Scan and repair a small classifier of handwritten digits that reads a stuck pixel as a seven.

    The model and the data are copied to a folder, so that every command can be tried on them by hand. What an earlier
    demonstration has left there is replaced.
    """
    from arachne.cli.console import Output
    from arachne.cli.repair import command as repair
    from arachne.cli.scan import command as scan
    from arachne.io.files import atomic_write
    from arachne.io.output_paths import environment_faults, make_folder
    from arachne.results.folder import check_result_path

    output = Output()
    replace = is_forced() or all(_holds(out, name) for name in FILES)
    check_result_path(out / "fix", replace=replace)
    with environment_faults(out):
        make_folder(out.resolve())
        for name in FILES:
            atomic_write(out / name, _content(name))
    model, data = str(out / "digits.onnx"), str(out / "digits.npz")
    flags = ["--json"] * output.as_json + ["--quiet"] * output.quiet
    force = ["--force"] * replace
    if not output.as_json:
        output.say(f"$ arachne scan {model} --data {data}\n")
        scan.main([model, "--data", data, *flags], standalone_mode=False)
    wanted = [model, "--data", data, "--target", TARGET, "-o", str(out / "fix")]
    output.say(f"\n$ arachne repair {shlex.join(wanted)}\n")
    repair.main([*wanted, *flags, *force], standalone_mode=False)
