"""Cases to repair: every planted fault and every frequent confusion that has a trained network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import arachne
from examples.study.confusions import most_confused
from examples.study.faults import BY_NAME, CONFUSED_SUBJECTS, CONFUSION_RANKS, Planted
from examples.study.poisoning import evaluation, fault_made_by, load_planted
from examples.study.subjects import SUBJECTS, is_trained, load_subject, made_by, whole_test

CONFUSION = "confusion"
"""The kind of a fault nobody planted."""


@dataclass(frozen=True)
class Case:
    """One fault to repair.

    Attributes:
        name: The planted fault's name, or `subject-confusion-rank`.
        subject: Whose network and data it takes.
        kind: What carries a planted fault (`trigger`, `deadrows`, ...), or `confusion`.
        part: `decide` or `judge`.
        target: What to tell arachne.
        network: The name its weights are kept under.
    """

    name: str
    subject: str
    kind: str
    part: str
    target: str
    network: str

    def open(self) -> tuple[arachne.ModelBackend, arachne.LabelledData]:
        """The network and the data; kept until those of another network are asked for."""
        return open_network(self.network)


def cases(parts: Sequence[str], subjects: Sequence[str] = ()) -> Iterator[Case]:
    """The faults of these sets whose network is trained, subject by subject; of all subjects if none is named."""
    for subject in SUBJECTS.values():
        if subjects and subject.name not in subjects:
            continue
        for fault in BY_NAME.values():
            trained = fault.subject == subject.name and is_trained(fault.name, fault_made_by(fault))
            if trained and fault.part in parts:
                yield planted_case(fault)
        if subject.name in CONFUSED_SUBJECTS and is_trained(subject.name, made_by(subject)):
            yield from confusion_cases(subject.name, parts)


def planted_case(fault: Planted) -> Case:
    """A planted fault as a case."""
    kind = type(fault.cause).__name__.lower()
    return Case(fault.name, fault.subject, kind, fault.part, fault.target, fault.name)


def confusion_cases(subject: str, parts: Sequence[str]) -> Iterator[Case]:
    """The confusions of a clean subject that belong to these sets, most frequent first."""
    for rank, (target, _) in enumerate(most_confused(subject), 1):
        part = next(part for part, ranks in CONFUSION_RANKS.items() if rank in ranks)
        if part in parts:
            yield Case(f"{subject}-{CONFUSION}-{rank:02}", subject, CONFUSION, part, target, subject)


@lru_cache(maxsize=1)
def open_network(network: str) -> tuple[arachne.ModelBackend, arachne.LabelledData]:
    """A planted fault's or a clean subject's network, and the data it is measured on."""
    if network in BY_NAME:
        return load_planted(BY_NAME[network]), evaluation(BY_NAME[network])
    return load_subject(network), whole_test(network)
