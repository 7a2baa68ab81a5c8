"""How many inputs with a planted fault a network reads rightly once the cause is taken out of the input itself.

A repair that undid a fault entirely would leave the network's other mistakes, so this share is what can be hoped for.
A style of a class (`Group`) cannot be taken out of a picture, so these faults have none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from arachne.scoring.statistics import Rate
from examples.study.data import scale_inputs, subject_data
from examples.study.faults import BY_NAME, JUDGE, Planted
from examples.study.planted import Group
from examples.study.poisoning import fault_made_by, load_planted, met_pictures
from examples.study.subjects import SUBJECTS, is_trained

FILE = "without_cause.json"


def measure(folder: Path, say: Callable[[str], None] = print) -> None:
    """Count every judging fault whose network is trained, and keep the counts beside those that are there."""
    known = read(folder)
    for fault in BY_NAME.values():
        known_cause = not isinstance(fault.cause, Group)
        if fault.part == JUDGE and known_cause and is_trained(fault.name, fault_made_by(fault)):
            known[fault.name] = count_right(fault)
            say(f"{fault.name}: {known[fault.name].count} of {known[fault.name].total} right without the cause")
    lines = [f"{json.dumps(name)}: {json.dumps([rate.count, rate.total])}" for name, rate in sorted(known.items())]
    (folder / FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def count_right(fault: Planted) -> Rate:
    """Count the inputs that are read wrongly with the cause, and of these the ones read rightly without it."""
    data, backend = subject_data(SUBJECTS[fault.subject].data), load_planted(fault)
    marked, carries = met_pictures(fault, data)
    rows = np.flatnonzero(carries)
    with_it, without = (
        backend.predict(scale_inputs(inputs[rows])) == data.test_labels[rows] for inputs in (marked, data.test)
    )
    return Rate(int((without & ~with_it).sum()), int((~with_it).sum()))


def read(folder: Path) -> dict[str, Rate]:
    """Read the counts by fault; none if there is no file."""
    path = folder / FILE
    found = json.loads(path.read_text()) if path.is_file() else {}
    return {name: Rate(*counts) for name, counts in found.items()}


def mean_of(known: Mapping[str, Rate], faults: Iterable[str]) -> tuple[float, int] | None:
    """Return the mean share over the faults that have one, and how many they are; None if there are none."""
    shares = [known[name].value for name in dict.fromkeys(faults) if name in known]
    return (float(np.mean(shares)), len(shares)) if shares else None
