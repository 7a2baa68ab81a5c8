"""`arachne backends`: which frameworks' models can be repaired here, and does a backend keep the contract?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from arachne.cli.options import (
    DataChoice,
    ModelChoice,
    complete_names,
    model_options,
    optional_data_options,
    output_options,
)
from arachne.cli.outputs import Command
from arachne.plugins.table import BACKENDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arachne.cli.console import Output
    from arachne.testing.outcome import Outcome

CHECKED_INPUTS = 16
"""How many inputs a model is checked on."""


@click.command(cls=Command, short_help="List the frameworks whose models can be repaired, or check a backend.")
@click.option(
    "--check",
    metavar="NAME",
    help="Check a backend: on the suite's networks, or on MODEL.",
    shell_complete=complete_names(BACKENDS),
)
@model_options
@optional_data_options
@output_options
def command(check: str | None, **arguments: Any) -> None:
    """List every backend, whether its framework is installed, and how to get it if not.

    With --check, run the conformance suite on the backend NAME, and say what fails. With a MODEL too, check the
    operations on that very model: on inputs from --data, or on random ones where the model says what it takes.
    """
    from arachne.cli.console import Output
    from arachne.errors import UsageError

    output = Output()
    given = [name for name, value in arguments.items() if value and name != "memory"]
    if check is None:
        if given:
            raise UsageError("a model is looked at with --check NAME; without it the backends are listed")
        _list(output)
    elif arguments["model_file"] is None and arguments["factory"] is None:
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} goes with a MODEL to check")
        _tell(output, check, "the networks of the suite", _on_networks(output, check))
    else:
        arguments["backend"] = arguments["backend"] or check
        data = DataChoice.taken_from(arguments)
        model = ModelChoice.taken_from(arguments)
        _tell(output, check, str(model.file or model.factory), _on_model(output, model, data))


def _list(output: Output) -> None:
    from rich.table import Table
    from rich.text import Text

    from arachne.model import registry

    states = registry.states()
    table = Table("backend", "files", "state", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for state in states:
        # As text: rich would take the square brackets of an extra for markup.
        table.add_row(state.name, " ".join(state.suffixes), Text(state.version or state.problem or ""))
    value = {
        "schema": "arachne.backends/1",
        "backends": [
            {
                "name": state.name,
                "available": state.available,
                "version": state.version,
                "files": list(state.suffixes),
                "problem": state.problem,
            }
            for state in states
        ],
    }
    output.result(table, value)


def _on_networks(output: Output, name: str) -> Sequence[Outcome]:
    """The suite that is registered under the backend's name."""
    import importlib.util

    from arachne.errors import EnvironmentFaultError, UsageError
    from arachne.model import registry
    from arachne.plugins.table import CONFORMANCE

    registry.get(name)
    if name not in CONFORMANCE.names():
        raise UsageError(
            f"backend '{name}' brings no conformance suite (an entry point '{name}' in the group "
            f"'{CONFORMANCE.group}'); give a MODEL to check it on that"
        )
    if importlib.util.find_spec("pytest") is None:
        raise EnvironmentFaultError(
            "the conformance suite needs a package that is not installed (pytest): pip install pytest; "
            "checking a MODEL does without"
        )
    from arachne.testing.suite_run import run_suite

    output.step("running the conformance suite")
    return run_suite(CONFORMANCE.get(name))


def _on_model(output: Output, choice: ModelChoice, data: DataChoice) -> Sequence[Outcome]:
    """Every operation on one model."""
    from arachne.model.values import take
    from arachne.testing.model import Subject, check_model

    model = choice.load()
    if data.data is None:
        inputs = model.example_inputs(CHECKED_INPUTS)
        output.say(f"no data is given: the model is checked on {CHECKED_INPUTS} random inputs")
    else:
        inputs = take(data.read(model).inputs, slice(0, CHECKED_INPUTS))
    output.step("checking")
    return check_model(Subject(model, inputs, choice.load if choice.file is not None else None))


def _tell(output: Output, name: str, on: str, outcomes: Sequence[Outcome]) -> None:
    """Print the outcome of every operation.

    Raises:
        GateFailedError: Something failed.
    """
    from arachne.errors import GateFailedError
    from arachne.report.checks import checks_object, checks_text
    from arachne.testing.outcome import counts

    output.result(checks_text(name, on, outcomes), checks_object(name, on, outcomes))
    found = counts(outcomes)
    if found["failed"]:
        raise GateFailedError(f"backend '{name}' fails {found['failed']} of {len(outcomes) - found['skipped']} checks")
