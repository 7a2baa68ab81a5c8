"""`arachne diff`: a patch out of two models of one network."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.patching import Plain, map_option, mapping_of


@click.command(short_help="Make a patch out of two models of one network.")
@click.argument("first", metavar="BEFORE", type=click.Path(path_type=Path))
@click.argument("second", metavar="AFTER", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Where the patch goes; only shown when left out.")
@map_option
@output_options
def command(
    first: Path,
    second: Path,
    out: Path | None,
    mapping: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Make the patch that gives BEFORE the weights of AFTER, a model of the same network in any framework."""
    import json

    from arachne import api
    from arachne.cli.console import Output

    output = Output(as_json=as_json, quiet=quiet)
    patch = api.diff(first, second, mapping=mapping_of(mapping))
    if out is not None:
        patch.save(out)
        output.say(f"wrote '{out}'")
    left_out = patch.provenance["diff"].get("not_compared")
    if left_out:
        output.say(f"not compared, without a counterpart in '{second}': {', '.join(left_out[:12])}")
    output.result(Plain(str(patch)), json.loads(patch.to_json()))
