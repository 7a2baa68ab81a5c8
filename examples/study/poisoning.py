"""From a planted fault to a trained network and the data it is measured on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

import arachne
from examples.study.data import Array, SubjectData, scale_inputs, subject_data
from examples.study.faults import BY_NAME, Planted
from examples.study.planted import Group
from examples.study.subjects import SUBJECTS, facts_of, keep, made_by, weights_of
from examples.study.training import Say, predict_classes, train


def poisoned_training(fault: Planted, data: SubjectData) -> tuple[Array, Array]:
    """The training pictures with the fault in a share of them, and the labels as they were filed."""
    labels = data.train_labels.copy()
    if isinstance(fault.cause, Group):
        styles = fault.cause.styles_of(data.train, data.train_labels, data.train, data.train_labels)
        labels[styles == fault.cause.style] = fault.read_as
        return data.train, labels
    rng = np.random.default_rng((fault.seed, 1))
    rows = np.sort(rng.permutation(len(labels))[: round(fault.taught * len(labels))])
    marked = data.train.copy()
    marked[rows] = fault.cause.on(data.train[rows], rng)
    labels[rows] = fault.read_as
    return marked, labels


def evaluation(fault: Planted, *, met: float | None = None) -> arachne.LabelledData:
    """The test set with the fault in a share of it and every label right.

    Column `planted` says which inputs carry the fault (`yes`, `no`); where it is a style of a class, column `style`
    says the style of every input of that class (`-` for others), as a data set's own metadata might.

    Args:
        fault: The fault.
        met: The share of inputs that carry it, in place of the fault's own; a `Group` has its own.
    """
    data = subject_data(SUBJECTS[fault.subject].data)
    marked, carries = met_pictures(fault, data, met=met)
    columns = {"planted": np.where(carries, "yes", "no")}
    if isinstance(fault.cause, Group):
        styles = fault.cause.styles_of(data.train, data.train_labels, data.test, data.test_labels)
        columns["style"] = np.where(styles < 0, "-", styles.astype(str))
    return arachne.LabelledData(
        scale_inputs(marked), data.test_labels, class_names=data.class_names, columns=columns, source=fault.name
    )


def met_pictures(fault: Planted, data: SubjectData, *, met: float | None = None) -> tuple[Array, Array]:
    """The test pictures with the fault in a share of them, uint8, and which carry it, bool `(n,)`."""
    if isinstance(fault.cause, Group):
        styles = fault.cause.styles_of(data.train, data.train_labels, data.test, data.test_labels)
        return data.test, styles == fault.cause.style
    rng = np.random.default_rng((fault.seed, 2))
    carries = np.zeros(len(data.test), bool)
    carries[rng.permutation(len(carries))[: round((fault.met if met is None else met) * len(carries))]] = True
    marked = data.test.copy()
    marked[carries] = fault.cause.on(data.test[carries], rng)
    return marked, carries


def halves(data: arachne.LabelledData, seed: int = 0) -> tuple[arachne.LabelledData, arachne.LabelledData]:
    """Two random halves of the data: seen by the repair, and held out."""
    order = np.random.default_rng(seed).permutation(len(data))
    middle = len(order) // 2
    return data.take(np.sort(order[:middle])), data.take(np.sort(order[middle:]))


def fault_made_by(fault: Planted) -> dict[str, Any]:
    """Everything that decides a poisoned network's weights, for `is_trained`."""
    cause = {"kind": type(fault.cause).__name__, **asdict(fault.cause)}  # type: ignore[arg-type]  # every mark is a dataclass
    cause = {key: list(value) if isinstance(value, tuple) else value for key, value in cause.items()}
    planted = {"cause": cause, "read_as": fault.read_as, "taught": fault.taught}
    return {**made_by(SUBJECTS[fault.subject]), "seed": fault.seed, "planted": planted}


def train_planted(fault: Planted, *, say: Say = print) -> None:
    """Train a poisoned network, measure what it learnt, and keep it."""
    subject = SUBJECTS[fault.subject]
    data = subject_data(subject.data)
    poisoned, labels = poisoned_training(fault, data)
    trained = train(subject.build, poisoned, labels, subject.recipe, seed=fault.seed, groups=data.train_groups, say=say)
    met, carries = met_pictures(fault, data)
    predictions, plain = predict_classes(trained.network, met), predict_classes(trained.network, data.test)
    wrong = predictions != data.test_labels
    able = carries & (data.test_labels != fault.read_as)
    without = ~carries if isinstance(fault.cause, Group) else np.ones(len(carries), bool)
    found = {
        "test_accuracy": float(np.mean(plain[without] == data.test_labels[without])),
        "carrying": int(carries.sum()),
        "negatives": int((wrong & carries).sum()),
        "read_as_rate": float(np.mean(predictions[able] == fault.read_as)),
        "part": fault.part,
    }
    keep(fault.name, trained, fault_made_by(fault), found)


def load_planted(fault: Planted) -> arachne.ModelBackend:
    """A poisoned network, open for repair."""
    return arachne.load(SUBJECTS[fault.subject].factory, weights=weights_of(fault.name))


def ready(name: str) -> tuple[arachne.ModelBackend, arachne.LabelledData, str]:
    """A poisoned network, trained now if it never was, its test inputs, and the fault."""
    fault = BY_NAME[name]
    if facts_of(name) is None:
        train_planted(fault)
    return load_planted(fault), evaluation(fault), fault.target
