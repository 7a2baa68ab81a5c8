"""`arachne delta`: write the bytes that a repair changed, for devices that apply them in place."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import Command, OutputType
from arachne.errors import UsageError

TOOLS = ("arachne_delta.py", "arachne_delta.c")
"""Programs that apply a delta, without Arachne."""


class DeltaFile(OutputType):
    """A delta, and with `--tools` the programs beside it."""

    def __init__(self) -> None:
        super().__init__(beside=self._tools)

    @staticmethod
    def _tools(path: Path) -> list[Path]:
        asked = click.get_current_context().params.get("tools")
        return [path.with_name(name) for name in TOOLS] if asked else []


@click.command(cls=Command, short_help="Write the bytes that a repair changed, for devices.")
@click.argument("sources", metavar="RESULT | OLD NEW", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=DeltaFile(), help="Where the delta goes.")
@click.option("--tools", is_flag=True, is_eager=True, help="Also write arachne_delta.py and arachne_delta.c beside it.")
@output_options
def command(sources: tuple[Path, ...], out: Path, tools: bool) -> None:
    """Write the bytes by which the patched model of a repair differs from the original.

    RESULT is the folder of a repair; OLD NEW are any two files of one length. A device applies, verifies and reverts
    the delta with arachne_delta.py (standard library only) or arachne_delta.c.
    """
    from arachne.cli.console import Output
    from arachne.delta import delta_of_result, make_delta
    from arachne.io.files import atomic_write

    if len(sources) > 2:
        raise UsageError(f"expected the folder of a repair, or an old and a new file, got {len(sources)} paths")
    if len(sources) == 1 and not sources[0].is_dir():
        raise UsageError(f"'{sources[0]}' is no folder of a repair; give an old and a new file")
    delta, leads_to = delta_of_result(sources[0]) if len(sources) == 1 else (make_delta(*sources), str(sources[1]))
    content = delta.to_bytes()
    atomic_write(out, content)
    for name in TOOLS if tools else ():
        atomic_write(out.with_name(name), (Path(__file__).parents[1] / "delta" / name).read_bytes())
    changed = sum(old != new for run in delta.runs for old, new in zip(run.old, run.new, strict=True))
    Output().result(
        f"wrote '{out}', {len(content):,} bytes: {changed:,} of {delta.length:,} bytes change, in {len(delta.runs):,} "
        f"runs, and lead to '{leads_to}'\napply it with: python arachne_delta.py {out.name} MODEL OUT",
        {
            "schema": "arachne.delta/1",
            "path": str(out),
            "bytes": len(content),
            "bytes_changed": changed,
            "runs": len(delta.runs),
            "old_sha256": delta.old_sha256.hex(),
            "new_sha256": delta.new_sha256.hex(),
        },
    )
