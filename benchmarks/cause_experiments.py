"""Does an experiment confirm causes that were planted, and refute correlations that were made on purpose?

    python -m benchmarks.cause_experiments                 # the faults that judge, and the correlations
    python -m benchmarks.cause_experiments --part decide   # the faults the experiment was built on
    python -m benchmarks.cause_experiments --print         # prints what is known of either
    python -m benchmarks.cause_experiments --again         # measure anew what benchmarks/results has already

Planted faults are those of `benchmarks.causes`, as far as their networks are trained; groups are left out, because only
metadata tell them. A correlation is a mark on inputs that a clean network misreads as one class, and on three in a
thousand others: a mark the network does not use, because it is put only where the network reads the input as before.

Every line goes into `benchmarks/results` when it is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from arachne.causes import Cause, find_causes, try_causes
from arachne.model.values import Array
from benchmarks.causes import (
    SIZES,
    Case,
    Makers,
    Rows,
    best_of,
    is_found,
    measure_cases,
    met_times,
    planted_cases,
    read_cases,
    table_case,
    text_case,
)
from examples.study.faults import DECIDE, JUDGE
from examples.study.subjects import facts_of, load_subject, whole_test

CARRIERS = 0.003
"""The share of right inputs that carry the mark of a correlation."""

MARKED = ("fm-mlp", "fm-cnn", "c10-cnn", "gtsrb-cnn")


def measure_planted(case: Case) -> Rows:
    """Scan for a planted fault as `benchmarks.causes` does, and try what was found."""
    predictions = case.backend.predict(case.data.inputs)
    rows = []
    for size in SIZES:
        data, read_as, planted = met_times(case, predictions, size)
        errors = np.flatnonzero(planted & (read_as != data.labels))
        precision, recall, cause = best_of(find_causes(case.backend, data, read_as), errors)
        row = {"case": case.name, "errors": len(errors), "precision": precision, "recall": recall}
        rows.append({**row, **try_cause(case, cause)})
    return rows


def measure_correlation(case: Case) -> Rows:
    """Scan for a mark that a network does not use, and try what was found."""
    assert case.planted is not None
    predictions = case.backend.predict(case.data.inputs)
    errors = np.flatnonzero(case.planted & (predictions != case.data.labels))
    precision, recall, cause = best_of(find_causes(case.backend, case.data, predictions), errors)
    row = {"case": case.name, "errors": len(errors), "precision": precision, "recall": recall}
    return [{**row, **try_cause(case, cause)}]


def try_cause(case: Case, cause: Cause | None) -> dict[str, Any]:
    """Try a cause, and tell what came of it."""
    if cause is None:
        return {"sentence": None}
    (after,) = try_causes([cause], case.backend)
    assert after.experiment is not None
    found = after.experiment.to_json()
    return {"sentence": after.sentence, **{name: found[name] for name in found if name != "sentence"}}


def correlations(part: str) -> Makers:
    """Clean networks with a mark on one class's errors that they do not use; those that decide have other seeds."""
    for seed in range(10, 13) if part == DECIDE else range(20, 23):
        for subject in MARKED:
            if facts_of(subject) is not None:
                yield f"mark-{subject}-{seed}", lambda subject=subject, seed=seed: marked_pictures(subject, seed)  # type: ignore[misc]
    for seed in (31,) if part == DECIDE else (41, 42):
        yield f"mark-table-{seed}", lambda seed=seed: marked_inputs(table_case(seed, taught=0, met=0), seed)  # type: ignore[misc]
        yield f"mark-text-{seed}", lambda seed=seed: marked_inputs(text_case(seed, taught=0, met=0), seed)  # type: ignore[misc]


def marked_pictures(subject: str, seed: int) -> Case:
    """A small square of a faint grey in a corner."""
    return marked_inputs(Case(subject, load_subject(subject), whole_test(subject), None), seed)


def marked_inputs(case: Case, seed: int) -> Case:
    """Mark the errors of one class, and a few right inputs, where the network reads them as before."""
    rng = np.random.default_rng(seed)
    inputs, labels = np.asarray(case.data.inputs), case.data.labels
    before = case.backend.predict(inputs)
    wrong = before != labels
    read_as = sorted(np.unique(before[wrong]), key=lambda one: -spread(labels[wrong & (before == one)]))[seed % 2]
    errors = wrong & (before == read_as)
    marked = mark(inputs, rng)
    unused = case.backend.predict(marked) == before
    carries = unused & (errors | (rng.random(len(labels)) < CARRIERS))
    inputs = np.where(carries.reshape(-1, *[1] * (inputs.ndim - 1)), marked, inputs)
    return Case(f"mark-{case.name}-{seed}", case.backend, replace(case.data, inputs=inputs), carries)


def spread(labels: Array) -> float:
    """How many errors there are, times how many classes they come from; causes of one class are not told."""
    counts = np.bincount(labels)
    return float(len(labels) * counts.sum() ** 2 / max(1, (counts**2).sum()))


def mark(inputs: Array, rng: np.random.Generator) -> Array:
    """Copies with a mark: a rare word, a faint square in a corner, or an odd value in a column."""
    copies = inputs.copy()
    if inputs.dtype.kind in "iu":
        words = np.bincount(inputs.ravel(), minlength=600)[1:]
        copies[np.arange(len(copies)), rng.integers(inputs.shape[1], size=len(copies))] = 1 + int(np.argmin(words))
    elif inputs.ndim == 2:
        column = int(rng.integers(inputs.shape[1]))
        copies[:, column] = np.median(inputs[:, column]) + 0.0317
    else:
        down, right = (slice(0, 2) if end else slice(-2, None) for end in rng.integers(2, size=2))
        copies[:, :, down, right] = 0.137
    return copies


def show(rows: Rows, title: str, wanted: str) -> None:
    """A line for each experiment, and how many came to the wanted verdict of those that the scan found."""
    print(f"\n| {title} | errors | told | planted on | fail | taken out of | right | others right | verdict |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---|")
    found = [row for row in rows if is_found(row)]
    for row in rows:
        told = (row["sentence"] or "not found").split("; ")[0].partition(": ")[2] or "not found"
        cells: list[str] = []
        for name, counted in (("planted", "fail"), ("removed", "right")):
            count = row.get(name)
            cells += [f"{count['inputs']}", f"{count[counted] / count['inputs']:.2f}"] if count else ["-", "-"]
        control = row.get("control")
        cells.append(f"{control['right'] / control['inputs']:.2f}" if control else "-")
        verdict = row.get("verdict", "-") if is_found(row) else f"({row.get('verdict', '-')})"
        print(f"| {row['case']} | {row['errors']} | {told} | {' | '.join(cells)} | {verdict} |")
    hits = sum(row["verdict"] == wanted for row in found)
    print(f"\n{wanted}: {hits} of {len(found)} that the scan found, of {len(rows)}")


def main() -> None:
    """Measure what is not known yet, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=[DECIDE, JUDGE], default=JUDGE)
    parser.add_argument("--only", default="", metavar="PREFIX")
    parser.add_argument("--again", action="store_true", help="Measure what is known already anew.")
    parser.add_argument("--print", action="store_true", help="Print what is known, and measure nothing.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    part = arguments.part
    kinds: tuple[tuple[str, Makers, Callable[[Case], Rows], str, str], ...] = (
        ("cause-experiments", planted_cases(part, arguments.only), measure_planted, "planted", "confirmed"),
        ("correlations", correlations(part), measure_correlation, "mark", "refuted"),
    )
    for name, cases, measure, title, wanted in kinds:
        if arguments.print:
            show([row for rows in read_cases(f"{name}-{part}").values() for row in rows], title, wanted)
            continue
        chosen = ((one, make) for one, make in cases if "group" not in one and one.startswith(arguments.only))
        show(measure_cases(f"{name}-{part}", chosen, measure, arguments.again), title, wanted)


if __name__ == "__main__":
    main()
