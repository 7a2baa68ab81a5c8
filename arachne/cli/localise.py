"""`arachne localise`: which weights are behind the mistake?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from arachne.cli.config import ConfiguredCommand
from arachne.cli.outputs import OUT_FILE
from arachne.cli.plugin_flags import localiser_flags, pop_layers
from arachne.cli.plugin_options import Chosen, given_options
from arachne.cli.running import mistake_options, seed_option, take_sources
from arachne.cli.task_flags import TaskChoice
from arachne.plugins.table import LOCALISERS, TASKS


@click.command(cls=ConfiguredCommand, short_help="Find the weights behind a mistake.")
@mistake_options
@localiser_flags
@seed_option
@click.option("--plot", type=OUT_FILE, help="Draw both scores with the front (svg, png, pdf).")
@click.pass_context
def command(
    context: click.Context,
    /,
    targets: tuple[str, ...],
    seed: int,
    plot: Path | None,
    **arguments: Any,
) -> None:
    """Find the weights of MODEL behind a mistake: gradient loss, forward impact, and their Pareto front."""
    import numpy as np

    from arachne.causes.targets import CauseTargets
    from arachne.data.run import whole_part
    from arachne.report.objects import localisation_object
    from arachne.report.terminal import LocalisationTable
    from arachne.settings import localiser_for
    from arachne.tasks import rule_in

    output, model, data, machines = take_sources(context, arguments)
    choice = TaskChoice.taken_from(arguments)
    chosen = Chosen.of(LOCALISERS, arguments["localiser"] or _usual_localiser(choice, targets))
    given = given_options(arguments["plugin_options"], [chosen, *choice.plugins], [LOCALISERS, TASKS])
    layers = pop_layers(arguments)
    localiser = LOCALISERS.get(chosen.name)(**given[chosen] | layers)
    task = rule_in(targets, choice.make(given)) or choice.make(given)
    backend = machines.share(context, model.load(), output)
    with output.progress("run the model"):
        labelled = data.read(backend, task=task, tell=output.say)
        part = whole_part(backend, labelled, targets, causes=CauseTargets(backend), task=task)
    if arguments["localiser"] is None and not given[chosen] and not part.task.SINGLE:  # told by the model's outputs
        localiser = LOCALISERS.get(FOR_EVERY_TASK)(**layers)
    localiser_for(part.task, localiser)
    if any(text.strip().startswith("top:") for text in targets):
        output.say(f"target {', '.join(targets)}: {', '.join(map(str, part.targets))}")
    with output.progress("localise"):
        found = localiser.localise(backend, part, rng=np.random.default_rng(seed))
    if plot is not None:
        from arachne.report.plots import save_localisation

        save_localisation(found, plot)
        output.say(f"drew both scores in '{plot}'")
    value = localisation_object(found, target=" ".join(map(str, part.targets)), seed=seed, backend=backend.NAME)
    output.result(LocalisationTable(found), value)


FOR_EVERY_TASK = "contrast"
"""The localiser that works for every task."""


def _usual_localiser(choice: TaskChoice, targets: Sequence[str]) -> str:
    """`bl`; for other tasks than a single label, which it knows nothing of, the one for every task."""
    from arachne.tasks import rule_in

    single = all(TASKS.get(one.name).SINGLE for one in choice.plugins) and rule_in(targets) is None
    return "bl" if single else FOR_EVERY_TASK
