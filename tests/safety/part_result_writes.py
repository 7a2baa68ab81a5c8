"""Every call of the system that a result is written with fails once, or is the last one of its run."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.safety.kept import Kept, Trial
from tests.safety.part_checkpoint_writes import FAULTS
from tests.safety.results import WRITERS, Replaced, prepare_folder
from tests.safety.rows import Row
from tests.safety.runs import Ended, Runs

ORDER = 24


NOTES = {
    "report.json": ("report.json could not be written", "the page could not be drawn"),
    "report.html": ("the page could not be drawn",),
    "MODEL_CARD.md": ("the model card could not be written",),
    "history.csv": ("history.csv could not be written",),
    "front.npz": ("the front could not be written",),
}
"""Words by which a run reports a file that a fault has cost; no file may be lost without these words."""


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    only = os.environ.get("ARACHNE_SAFETY_ONLY", "")
    tried = [(writer, fault) for writer in WRITERS for fault in FAULTS if only in f"{writer} {fault}"]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda which: _row(which[0], which[1], kept), tried)


def _row(writer: str, fault: str, kept: Kept) -> Row:
    attack = f"{fault} at each call of a result write ({writer} over an older one)"
    with Runs() as runs, prepare_folder(runs, WRITERS[writer]) as one:
        if runs.library is None:
            return Row(attack, 0, "not tried: there is no C compiler here", ("there is no C compiler",))
        calls = count(one)
        numbers = range(1, calls + 1)
        found = [kept.trial("result_writes", f"{writer} {fault} {n}", partial(_trial, one, fault, n)) for n in numbers]
    made = {number: trial for number, trial in zip(numbers, found, strict=True) if trial is not None}
    counts = Counter(trial.seen["which"] for trial in made.values())
    told = f"the old output {counts['old']} times, the new one {counts['new']} times, never a mixture; nothing stays"
    lost = sum(trial.seen["lost"] for trial in made.values())
    told += f"; {lost} times a page, card, history or front lost, with a note"
    told += f"; {calls - len(made)} of {calls} not yet tried" if len(made) < calls else ""
    failures = [f"{writer}, {fault} at call {n}: {what}" for n, trial in made.items() for what in trial.wrong]
    return Row(attack, len(made), told, tuple(failures))


def _trial(one: Replaced, fault: str, number: int) -> Trial:
    which, wrong, lost = strike(one, fault, number)
    return Trial(tuple(wrong), {"which": which, "lost": lost})


def count(one: Replaced) -> int:
    """How many calls there are in a run that nothing happens to."""
    one.begin()
    calls = one.runs.run(one.writer.new, one.folder, fault=(one.folder, 0, 0, False), every_step=False).calls
    if one.lacking():
        raise RuntimeError(f"lost without a fault: {', '.join(one.lacking())}")
    return calls


def strike(one: Replaced, fault: str, number: int) -> tuple[str, list[str], bool]:
    """Let a fault happen at one call.

    Returns:
        Which output is there afterwards, what is wrong, and whether a file of it was lost with a note.
    """
    one.begin()
    before = one.inputs()
    action, stays = FAULTS[fault]
    ended = one.runs.run(one.writer.new, one.folder, fault=(one.folder, number, action, stays), every_step=False)
    which, wrong = one.whole()
    if fault == "SIGKILL" and ended.code != -signal.SIGKILL:
        wrong.append(f"exit {ended.code}, expected to be killed")
    elif fault != "SIGKILL" and ended.code not in (0, 4):
        wrong.append(f"exit {ended.code}: {ended.err.strip()[-300:]}")
    elif ended.code == 0 and which == "old":
        wrong.append("it said that all was well, and nothing was written")
    if "Traceback" in ended.err:
        wrong.append(f"a traceback: {ended.err.strip()[-300:]}")
    lost = one.lacking()
    wrong += [f"'{name}' is lost without a word" for name in lost if not is_told(name, ended)]
    again = one.runs.run(one.writer.new, one.folder, every_step=False)
    if again.code != 0 or one.whole() != ("new", []):
        wrong.append(f"the next run ends with exit {again.code} and {one.whole()}: {again.err.strip()[-300:]}")
    if one.lacking():
        wrong.append(f"the next run lost {', '.join(one.lacking())} without a fault")
    if one.hidden_files():
        wrong.append(f"left behind by the next run: {', '.join(one.hidden_files())}")
    if one.inputs() != before:
        wrong.append("an input has changed")
    return which, wrong, bool(lost)


def is_told(name: str, ended: Ended) -> bool:
    """Whether a run that has ended well says that it goes on without a file."""
    return ended.code == 0 and any(f"note: {words}" in ended.err for words in NOTES.get(name, ()))
