"""Shared by the commands about patches: options, and sentences about a patch in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from arachne.cli.outputs import OutputType
from arachne.errors import UsageError
from arachne.text import pluralise

if TYPE_CHECKING:
    from arachne.cli.console import Output
    from arachne.evidence import Evidence
    from arachne.patch import AppliedPatch

DONE = {"apply": "patched", "revert": "restored"}

COPY_FILE = OutputType(beside=lambda path: [path.with_name(f"{path.name}.patch.json")], makes_folders=True)
"""A copy of a model, and the patch in its own bits."""

PATCH_FILE = OutputType(beside=lambda path: [path.with_suffix(".safetensors")])
"""A patch, and the values of a large one."""

map_option = click.option(
    "--map",
    "mapping",
    multiple=True,
    metavar="LAYER=OTHER",
    help="Which layer of the file is meant, where its content does not show it. Repeatable.",
)


def mapping_of(texts: Sequence[str]) -> dict[str, str]:
    """`conv1=block/Conv_0` as a mapping.

    Raises:
        UsageError: No layer on one side of the sign, or a layer twice.
    """
    mapping: dict[str, str] = {}
    for text in texts:
        layer, _, other = text.partition("=")
        if not layer or not other:
            raise UsageError(f"--map takes LAYER=OTHER, got '{text}'")
        if mapping.setdefault(layer, other) != other:
            raise UsageError(f"--map sends layer '{layer}' to '{mapping[layer]}' and to '{other}'")
    return mapping


def sentence_of(verb: Literal["apply", "revert"], model_file: Path, done: AppliedPatch) -> str:
    """Describe what was proven about the copy, and name the files that belong to it."""
    written = done.written
    changed = "" if written.bytes_changed is None else f" ({pluralise(written.bytes_changed, 'byte')})"
    sentence = (
        f"{DONE[verb]}: {pluralise(written.weights, 'weight')}{changed} of '{model_file}' changed, nothing else did in "
        f"{pluralise(written.tensors, 'tensor')} compared; wrote '{written.path}'"
    )
    if written.beside:
        sentence += f", which keeps weights in {', '.join(map(repr, written.beside))} beside it"
    renamed = [pair for pair in done.match.pairs if pair.how != "same"]
    if renamed:
        found = ", ".join(f"{pair.change.tensor.name} in {pair.name} ({pair.how})" for pair in renamed)
        sentence += f"\nfound: {found}"
    if done.derived is not None:
        sentence += f"\nkeep '{done.derived}', the patch in this file's own bits: reverting needs it"
    return sentence


def tell_seen(output: Output, evidence: Evidence) -> None:
    """Say that some inputs were left out of the verdict because the repair has seen them."""
    if evidence.seen is not None:
        total = evidence.seen.inputs + evidence.held_out.inputs
        output.say(
            f"the repair has seen {evidence.seen.inputs:,} of these {total:,} {evidence.seen.noun}s: the verdict "
            f"comes from the other {evidence.held_out.inputs:,}"
        )


def value_of(verb: Literal["apply", "revert"], done: AppliedPatch) -> dict[str, Any]:
    """The object that `--json` prints about the copy."""
    written = done.written
    return {
        "schema": "arachne.written/1",
        "command": verb,
        "path": str(written.path),
        "sha256": written.sha256,
        "weights": written.weights,
        "tensors": written.tensors,
        "bytes_changed": written.bytes_changed,
        "found": [{"from": pair.change.tensor.name, "to": pair.name, "how": pair.how} for pair in done.match.pairs],
        "derived": None if done.derived is None else str(done.derived),
    }
