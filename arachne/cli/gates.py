"""`--fail-if` and `--junit`: conditions on the evidence that a pipeline acts on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from arachne.cli.options import options
from arachne.cli.outputs import OUT_FILE
from arachne.errors import GateFailedError, UsageError

if TYPE_CHECKING:
    from arachne.cli.console import Output
    from arachne.evidence import Evidence, Gate, GateResult


gate_options = options(
    click.option(
        "--fail-if",
        "conditions",
        multiple=True,
        metavar="CONDITION",
        help="Exit with 1 when it holds: 'break_rate > 0.5%', 'class_drop[stop] > 0', ... Repeatable.",
    ),
    click.option("--junit", type=OUT_FILE, help="Write the gates to this JUnit XML file."),
)


def read_gates(conditions: Sequence[str], junit: Path | None) -> tuple[Gate, ...]:
    """The gates of a command line; a gate that makes no sense stops the run before it has cost anything."""
    from arachne.evidence import Gate

    if junit is not None and not conditions:
        raise UsageError("--junit writes gates; give at least one with --fail-if")
    return tuple(Gate.parse(text) for text in conditions)


def pass_gates(output: Output, results: Sequence[GateResult], evidence: Evidence, junit: Path | None) -> None:
    """Tell every gate with its value, write them down, and stop when one failed.

    Raises:
        GateFailedError: A condition holds.
    """
    from arachne.io.files import atomic_write
    from arachne.report.junit import junit_xml

    for result in results:
        output.say(str(result))
    if junit is not None:
        atomic_write(junit, junit_xml(results, evidence.verdict, seconds=output.seconds))
    failed = [result for result in results if result.failed]
    if failed:
        which = "; ".join(f"{result.gate.text} (it is {result.value_text})" for result in failed)
        raise GateFailedError(f"{len(failed)} of {len(results)} gates failed: {which}")
