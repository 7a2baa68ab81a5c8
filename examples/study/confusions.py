"""The most frequent natural confusions of a clean subject, the faults nobody planted."""

from __future__ import annotations

import arachne
from examples.study.faults import CONFUSION_RANKS
from examples.study.subjects import load_subject, whole_test

COUNT = 10


def most_confused(subject: str) -> list[tuple[str, int]]:
    """The ten most frequent confusions on the whole test set as targets (`6:0`) with their counts."""
    faults = arachne.scan(load_subject(subject), whole_test(subject)).faults[:COUNT]
    return [(f"{fault.label}:{fault.prediction}", fault.count) for fault in faults]


def confusions_of(subject: str, part: str) -> list[str]:
    """Return the confusions that belong to `decide` or `judge`, most frequent first."""
    targets = [target for target, _ in most_confused(subject)]
    return [targets[rank - 1] for rank in CONFUSION_RANKS[part] if rank <= len(targets)]
