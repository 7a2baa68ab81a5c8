"""`arachne apply`: put a patch into a copy of a model file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.budgeting import keep_option
from arachne.cli.options import DataChoice, feed_option, output_options, read_feed
from arachne.cli.outputs import Command
from arachne.cli.patching import COPY_FILE, map_option, mapping_of, sentence_of, tell_seen, value_of
from arachne.cli.task_flags import TaskChoice, task_options
from arachne.errors import UsageError

if TYPE_CHECKING:
    from arachne.cli.console import Output
    from arachne.evidence import Evidence
    from arachne.patch import Patch
    from arachne.scoring.statistics import Rate
    from arachne.tasks import Task


@click.command(cls=Command, short_help="Put a patch into a copy of a model file.")
@click.argument("patch_file", metavar="PATCH", type=click.Path(path_type=Path))
@click.argument("model_file", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=COPY_FILE, help="Where the patched copy goes.")
@map_option
@click.option("--name-patch", "named", is_flag=True, help="Note the patch in the metadata of an ONNX copy.")
@click.option("--data", help="Labelled inputs on which the copy is measured, beside what the patch promised.")
@click.option("--classes", help="Class names in order: a,b,c or a file with one per line.")
@click.option("--preprocess", metavar="STEPS", help="Such as 'resize=48 scale=1/255 layout=nchw', or module:function.")
@feed_option
@keep_option
@task_options
@output_options
def command(
    patch_file: Path,
    model_file: Path,
    out: Path,
    mapping: tuple[str, ...],
    named: bool,
    data: str | None,
    classes: str | None,
    preprocess: str | None,
    feeds: tuple[str, ...],
    keep_as_is: str | None,
    **arguments: Any,
) -> None:
    """Write a copy of MODEL with PATCH in it, after checking that it is the model the patch was made for.

    MODEL may be of another framework than the one the patch was found in.
    """
    from arachne.cli.console import Output
    from arachne.patch import Patch
    from arachne.patch.commands import apply

    output = Output()
    patch = Patch.load(patch_file)
    choice = TaskChoice.taken_from(arguments)
    if data is None and choice != TaskChoice():
        raise UsageError("a task reads what the copy gives on data; give some with --data")
    if data is None and keep_as_is is not None:
        raise UsageError("--keep-as-is goes with --data, on which the copy is measured")
    measuring = None
    if data is None and feeds:
        raise UsageError("--feed and --input-shape go with --data, on which the copy is measured")
    if data is not None:
        task = choice.make_alone(patch=patch)
        inputs = DataChoice(data, classes, preprocess)
        measuring = _Measuring(patch, model_file, inputs, task, keep_as_is, feeds, output)
    done = apply(patch, model_file, out, mapping=mapping_of(mapping), check=measuring, named=named)
    if done is None:
        raise TypeError("a file was given, so a file is written")
    sentence, value = sentence_of("apply", model_file, done), value_of("apply", done)
    if named:
        sentence += f"\nits metadata names the patch, {patch.digest[:12]}…; reverting takes that out again"
    if measuring is None:
        output.result(sentence, value)
        return
    output.say(sentence)
    _print_measured(output, value, done.match.patch, measuring)


class _Measuring:
    """Measures a patched copy on data before it is moved to its place; a copy that cannot be measured is discarded.

    Args:
        patch: The patch in it.
        model_file: The model without the patch.
        data: The inputs, as typed.
        task: Reads the outputs; None finds out which one does.
        keep_as_is: Inputs without labels that should be read as before, as typed.
        feeds: Constants and shapes of inputs, as typed.
        output: Tells the target.
    """

    def __init__(
        self,
        patch: Patch,
        model_file: Path,
        data: DataChoice,
        task: Task | None,
        keep_as_is: str | None,
        feeds: Sequence[str],
        output: Output,
    ) -> None:
        from arachne.model.registry import load
        from arachne.results.measure import part_of

        self.patch = patch
        self.feeds = dict(map(read_feed, feeds))
        self.model = load(model_file, feeds=self.feeds)
        inputs = data.read(self.model, task=task)
        self.part = part_of(self.model, inputs, None, patch, task, data.read_kept(keep_as_is), tell=output.say)
        self.evidence: Evidence | None = None

    def __call__(self, draft: Path) -> None:
        """Measure the copy."""
        from arachne.model.registry import load
        from arachne.results.measure import Measured

        copy = load(draft, feeds=self.feeds)
        self.evidence = Measured.of(self.part, lambda part: copy.forward(part.data.inputs), self.patch).evidence


def _print_measured(output: Any, value: dict[str, Any], patch: Patch, measuring: _Measuring) -> None:
    """Measure the written copy on data, print whether it keeps what was promised, and the patch in its numbers."""
    from arachne.report.objects import result_object
    from arachne.report.terminal import EvidenceTable

    evidence = measuring.evidence
    if evidence is None:
        raise TypeError("a copy is measured before it is written")
    measured = result_object(evidence, command="apply", seed=None, backend=measuring.model.NAME, weights=len(patch))
    tell_seen(output, evidence)
    output.say(promise_of(patch, evidence))
    promised = {"promised": patch.evidence.get("held_out"), "promise": promise_of(patch, evidence)}
    output.result(EvidenceTable(evidence, patch), {**value, **promised, "measured": measured})


def promise_of(patch: Patch, evidence: Evidence) -> str:
    """Whether accuracy, repairs and breaks here fit those the patch was accepted with: their 95 % intervals overlap.

    Where the accuracy without the patch differs already, the inputs are of another kind and nothing was promised.
    """
    from arachne.text import percent

    promised, here = patch.evidence.get("held_out"), evidence.held_out
    if not isinstance(promised, dict) or "repair_rate" not in promised:
        return "the patch promises nothing: it carries no evidence"
    before = _promised_accuracy(promised, "before")
    if before is not None and not _overlap(here.accuracy.before.interval, before.interval):
        return (
            "the patch promises nothing for these inputs, which are not like those it was measured on: "
            f"{here.words.share} without it is {percent(here.accuracy_before)} here and was "
            f"{percent(before.value)} there"
        )
    after = _promised_accuracy(promised, "after")
    rates: list[tuple[str, Rate, Any, Any]] = [
        (f"{name} rate", rate, promised.get(f"{name}_interval"), promised.get(f"{name}_rate"))
        for name, rate in (("repair", here.repair), ("break", here.breakage))
    ]
    if after is not None:
        rates.insert(0, (here.words.share, here.accuracy.after, after.interval, after.value))
    known = [one for one in rates if one[1].total and one[2] and one[3] is not None]
    each = ", ".join(f"{name} {percent(rate.value)} here, {percent(value)} promised" for name, rate, _, value in known)
    kept = all(_overlap(rate.interval, bounds) for _, rate, bounds, _ in known)
    return f"{'as' if kept else 'not as'} the patch promised: {each}"


def _promised_accuracy(promised: dict[str, Any], when: str) -> Rate | None:
    """The accuracy `before` or `after` that a patch was accepted with; None where it does not say."""
    from arachne.scoring.statistics import Rate

    inputs, share = promised.get("inputs"), promised.get(f"accuracy_{when}")
    if not isinstance(inputs, int) or not isinstance(share, (int, float)):
        return None
    labelled = inputs - _count_in(promised.get("kept"), "decisions")
    draws = _count_in(promised.get("by_input"), "inputs")  # at the worst, all decisions of an input are one
    return Rate(round(share * labelled), labelled, float(draws) if draws else None) if labelled > 0 else None


def _count_in(counts: Any, name: str) -> int:
    """A count in what a patch tells; 0 where it tells none."""
    count = counts.get(name) if isinstance(counts, dict) else None
    return count if isinstance(count, int) and count >= 0 else 0


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
