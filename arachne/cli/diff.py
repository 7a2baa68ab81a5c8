"""`arachne diff`: a patch out of two models of one network."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import Command
from arachne.cli.patching import PATCH_FILE, map_option, mapping_of


@click.command(cls=Command, short_help="Make a patch from the difference of two models.")
@click.argument("first", metavar="BEFORE", type=click.Path(path_type=Path))
@click.argument("second", metavar="AFTER", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=PATCH_FILE, help="Where the patch goes; only shown when left out.")
@map_option
@output_options
def command(
    first: Path,
    second: Path,
    out: Path | None,
    mapping: tuple[str, ...],
) -> None:
    """Make the patch that gives BEFORE the weights of AFTER, a model of the same network in any framework."""
    import json

    from arachne.cli.console import Output
    from arachne.patch.commands import diff

    output = Output()
    patch = diff(first, second, mapping=mapping_of(mapping))
    if out is not None:
        patch.save(out)
        output.say(f"wrote '{out}'")
    facts = patch.provenance["diff"]
    for key, why in (
        ("not_compared", f"without a counterpart in '{second}'"),
        ("only_in_second", f"only in '{second}'"),
    ):
        if facts.get(key):
            output.say(f"not compared, {why}: {', '.join(facts[key][:12])}")
    if facts.get("folded"):
        output.say(
            f"weights of {', '.join(facts['folded'][:12])} compared up to a factor per row, as from a folded batch "
            "normalisation: a change of the normalisation or of these layers' biases would not be seen"
        )
    output.result(str(patch), json.loads(patch.to_json()))
