"""`arachne demo`: scan and repair a small model that comes with Arachne."""

from __future__ import annotations

import shlex
import shutil
from importlib import resources
from pathlib import Path

import click

from arachne.cli.options import output_options

TARGET = "*:7"


@click.command(short_help="Scan and repair a small model that comes with Arachne.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), default=Path("arachne-demo"), show_default=True, help="Where to."
)
@output_options
@click.pass_context
def command(context: click.Context, out: Path, as_json: bool, quiet: bool, debug: bool) -> None:
    """Scan and repair a small classifier of handwritten digits that reads a stuck pixel as a seven.

    The model and the data are copied to a folder, so that every command can be tried on them by hand.
    """
    from arachne.cli.console import Output
    from arachne.cli.repair import command as repair
    from arachne.cli.scan import command as scan
    from arachne.files import environment_faults

    output = Output(as_json=as_json, quiet=quiet)
    with environment_faults(out):
        out.mkdir(parents=True, exist_ok=True)
        for name in ("digits.onnx", "digits.npz"):
            with resources.as_file(resources.files("arachne.demo").joinpath(name)) as path:
                shutil.copyfile(path, out / name)
    model, data = str(out / "digits.onnx"), str(out / "digits.npz")
    flags = ["--json"] * as_json + ["--quiet"] * quiet
    if not as_json:
        output.say(f"$ arachne scan {model} --data {data}\n")
        scan.main([model, "--data", data, *flags], standalone_mode=False)
    wanted = [model, "--data", data, "--target", TARGET, "-o", str(out / "fix")]
    output.say(f"\n$ arachne repair {shlex.join(wanted)}\n")
    repair.main([*wanted, *flags], standalone_mode=False)
