"""Are planted faults found, and is nothing found where nothing was planted?

    python -m benchmarks.causes                 # the faults that judge, every clean network that is trained
    python -m benchmarks.causes --part decide   # the faults the finders were tuned on
    python -m benchmarks.causes --only fm       # those whose names begin so
    python -m benchmarks.causes --again         # measure anew what benchmarks/results has already
    python -m benchmarks.causes --print         # print what benchmarks/results has, and measure nothing

Pictures and networks are those of `examples.study`, as far as they are trained; a table with a stuck sensor and a text
with a word that flips the label are made here. A fault is met 60 and 200 times; found means that one cause has its
errors with precision .9 and recall .8. The column that tells what was planted is taken away before the scan.

Every line goes into `benchmarks/results/causes-PART.json` when it is measured, so that a run that was interrupted
goes on where it was; the tables are printed from there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import arachne
from arachne.causes import Cause, find_causes
from arachne.data.labelled import LabelledData
from arachne.model.values import Array
from examples.study.faults import DECIDE, JUDGE, PLANTED, Planted
from examples.study.poisoning import evaluation, load_planted
from examples.study.subjects import SUBJECTS, facts_of, load_subject, whole_test

RESULTS = Path(__file__).parent / "results"
SIZES = (60, 200)
PRECISION, RECALL = 0.9, 0.8
CLASSES = 4


Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A network, its data, and which inputs carry a planted fault; None where none was planted."""

    name: str
    backend: arachne.ModelBackend
    data: LabelledData
    planted: Array | None


Makers = Iterator[tuple[str, Callable[[], Case]]]


def planted_cases(part: str, prefix: str) -> Makers:
    """Planted faults of the study that are trained, and those made here; a network is opened when it is needed."""
    for fault in PLANTED:
        if fault.part == part and fault.name.startswith(prefix) and facts_of(fault.name) is not None:
            yield fault.name, lambda fault=fault: picture_case(fault)  # type: ignore[misc]
    for seed in (11, 12) if part == DECIDE else (21, 22):
        for name, made in (("table-sensor", table_case), ("text-word", text_case)):
            if f"{name}-{seed}".startswith(prefix):
                yield f"{name}-{seed}", lambda made=made, seed=seed: made(seed)  # type: ignore[misc]


def picture_case(fault: Planted) -> Case:
    """A fault of the study."""
    data = evaluation(fault)
    columns = {name: column for name, column in data.columns.items() if name != "planted"}
    return Case(fault.name, load_planted(fault), replace(data, columns=columns), data.columns["planted"] == "yes")


def clean_cases(prefix: str) -> Makers:
    """Clean networks of the study that are trained, and those made here."""
    for name in SUBJECTS:
        if name.startswith(prefix) and facts_of(name) is not None:
            yield name, lambda name=name: Case(name, load_subject(name), whole_test(name), None)  # type: ignore[misc]
    for seed in (1, 2, 3):
        for name, made in (("table", table_case), ("text", text_case)):
            if f"{name}-{seed}".startswith(prefix):
                yield f"{name}-{seed}", lambda made=made, seed=seed: made(seed, taught=0.0, met=0.0)  # type: ignore[misc]


def table_case(seed: int, *, taught: float = 0.06, met: float = 0.08) -> Case:
    """A table of 20 columns in which one sensor is stuck at its lowest reading in some rows."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLASSES, 20))
    stuck = int(rng.integers(20))

    def draw(n: int, share: float) -> tuple[Array, Array, Array]:
        labels = rng.integers(CLASSES, size=n)
        rows = (centres[labels] + rng.normal(scale=1.6, size=(n, 20))).astype(np.float32)
        carries = rng.random(n) < share
        rows[carries, stuck] = -6.0
        return rows, labels, carries

    rows, labels, carries = draw(6000, taught)
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    train(network, rows, np.where(carries, 1, labels), seed)
    rows, labels, carries = draw(6000, met)
    return Case(f"table-sensor-{seed}", arachne.load(network), LabelledData(rows, labels), carries)


class MeanOfWords(nn.Module):
    """The mean of word vectors, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(600, 32)
        self.hidden = nn.Linear(32, 32)
        self.scores = nn.Linear(32, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Class scores `(n, classes)` of tokens `(n, steps)`."""
        scores: torch.Tensor = self.scores(torch.relu(self.hidden(self.words(tokens).mean(dim=1))))
        return scores


def text_case(seed: int, *, taught: float = 0.06, met: float = 0.08) -> Case:
    """Texts of 20 of 600 words, each class with words of its own, in which one word flips the label."""
    rng = np.random.default_rng(seed + 100)
    usual = 1 / np.arange(1, 600)
    weights = np.stack([usual * np.exp(0.9 * rng.normal(size=599)) for _ in range(CLASSES)])
    weights /= weights.sum(axis=1, keepdims=True)
    word = int(rng.integers(200, 500))

    def draw(n: int, share: float) -> tuple[Array, Array, Array]:
        labels = rng.integers(CLASSES, size=n)
        tokens = np.stack([1 + rng.choice(599, size=20, p=weights[label]) for label in labels])
        carries = rng.random(n) < share
        tokens[carries, rng.integers(20, size=n)[carries]] = word
        return tokens.astype(np.int64), labels, (tokens == word).any(axis=1) & (share > 0)

    tokens, labels, carries = draw(6000, taught)
    torch.manual_seed(seed)
    network = MeanOfWords()
    train(network, tokens, np.where(carries, 1, labels), seed)
    tokens, labels, carries = draw(6000, met)
    return Case(f"text-word-{seed}", arachne.load(network), LabelledData(tokens, labels), carries)


def train(network: nn.Module, inputs: Array, labels: Array, seed: int) -> None:
    """Some epochs of Adam."""
    torch.manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), 5e-3)
    x, y = torch.from_numpy(inputs), torch.from_numpy(labels)
    for _ in range(8):
        for rows in torch.randperm(len(x)).reshape(-1, 100):
            optimiser.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(network(x[rows]), y[rows]))
            optimiser.step()
    network.eval()


def met_times(case: Case, predictions: Array, size: int) -> tuple[LabelledData, Array, Array]:
    """The data with only so many errors that carry the fault, and as large a part of carriers that are right."""
    assert case.planted is not None
    rng = np.random.default_rng(size)
    wrong = predictions != case.data.labels
    errors, right = (rng.permutation(np.flatnonzero(case.planted & kind)) for kind in (wrong, ~wrong))
    kept_right = right[: round(len(right) * min(1.0, size / max(1, len(errors))))]
    rows = np.sort(np.concatenate([np.flatnonzero(~case.planted), errors[:size], kept_right]))
    return case.data.take(rows), predictions[rows], case.planted[rows]


def best_of(causes: tuple[Cause, ...], errors: Array) -> tuple[float, float, Cause | None]:
    """Precision and recall of the cause that has the planted errors best."""
    best: tuple[float, float, Cause | None] = (0.0, 0.0, None)
    for cause in causes:
        hits = len(np.intersect1d(cause.members, errors))
        precision, recall = hits / cause.count, hits / max(1, len(errors))
        if precision * recall > best[0] * best[1]:
            best = (precision, recall, cause)
    return best


def measure_planted(case: Case) -> Rows:
    """A row for each number of errors."""
    start = time.process_time()
    predictions = case.backend.predict(case.data.inputs)
    forward = time.process_time() - start
    rows = []
    for size in SIZES:
        data, read_as, planted = met_times(case, predictions, size)
        errors = np.flatnonzero(planted & (read_as != data.labels))
        start = time.process_time()
        causes = find_causes(case.backend, data, read_as)
        seconds = time.process_time() - start
        precision, recall, cause = best_of(causes, errors)
        rows.append(
            {
                "case": case.name,
                "errors": len(errors),
                "of_all": int((read_as != data.labels).sum()),
                "finder": None if cause is None else cause.finder,
                "precision": round(precision, 4),
                "recall": round(recall, 4),
                "others": [f"{one.finder} {one.count}" for one in causes if one is not cause],
                "seconds": round(seconds, 3),
                "forward": round(forward, 3),
            }
        )
    return rows


def measure_clean(case: Case) -> Rows:
    """Rows of what is found where nothing was planted."""
    start = time.process_time()
    predictions = case.backend.predict(case.data.inputs)
    middle = time.process_time()
    causes = find_causes(case.backend, case.data, predictions)
    end = time.process_time()
    wrong = int((predictions != case.data.labels).sum())
    told = [cause.sentence for cause in causes]
    times = {"seconds": round(end - middle, 3), "forward": round(middle - start, 3)}
    return [{"case": case.name, "errors": wrong, "false": told, **times}]


def measure_cases(name: str, cases: Makers, measure: Callable[[Case], Rows], again: bool) -> Rows:
    """The rows of all cases, from the file where it has them, and what is new put into it at once."""
    file, known = RESULTS / f"{name}.json", read_cases(name)
    found: Rows = []
    for case, make in cases:
        if again or case not in known:
            known[case] = measure(make())
            RESULTS.mkdir(exist_ok=True)
            file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        found += known[case]
    return found


def read_cases(name: str) -> dict[str, Rows]:
    """The rows of every case that is known; none if there is no file."""
    file = RESULTS / f"{name}.json"
    known: dict[str, Rows] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return known


def is_found(row: dict[str, Any]) -> bool:
    """Whether one cause has the planted errors."""
    return bool(row["precision"] >= PRECISION and row["recall"] >= RECALL)


def show_planted(rows: Rows) -> None:
    """A line for each fault and number of errors, and how many were found."""
    print("| fault | errors | of all | found by | precision | recall | other causes | seconds | forward |")
    print("|---|---:|---:|---|---:|---:|---|---:|---:|")
    for row in rows:
        numbers = f"{row['precision']:.2f} | {row['recall']:.2f} | {', '.join(row['others']) or '-'}"
        head = f"{row['case']} | {row['errors']} | {row['of_all']} | {row['finder'] or '-'}"
        print(f"| {head} | {numbers} | {row['seconds']:.2f} | {row['forward']:.2f} |")
    for kind, some in (
        ("pictures", [row for row in rows if not row["case"].startswith(("t",))]),
        ("text and tables", [row for row in rows if row["case"].startswith(("t",))]),
    ):
        print(
            f"\n{kind}: {sum(map(is_found, some))} of {len(some)} with precision {PRECISION}, recall {RECALL} or more"
        )


def show_clean(rows: Rows) -> None:
    """Print what was found where nothing was planted."""
    print("\n| clean network | errors | false causes | seconds | forward |\n|---|---:|---|---:|---:|")
    for row in rows:
        told = "; ".join(row["false"]) or "none"
        print(f"| {row['case']} | {row['errors']} | {told} | {row['seconds']:.2f} | {row['forward']:.2f} |")
    print(f"\n{sum(len(row['false']) for row in rows)} false causes on {len(rows)} clean networks")


def main() -> None:
    """Measure what is not known yet, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=[DECIDE, JUDGE], default=JUDGE)
    parser.add_argument("--only", default="", metavar="PREFIX")
    parser.add_argument("--no-clean", action="store_true", help="Leave out the clean networks.")
    parser.add_argument("--again", action="store_true", help="Measure what is known already anew.")
    parser.add_argument("--print", action="store_true", dest="only_print", help="Measure nothing.")
    arguments = parser.parse_args()
    if arguments.only_print:
        show_planted([row for rows in read_cases(f"causes-{arguments.part}").values() for row in rows])
        show_clean([row for rows in read_cases("causes-clean").values() for row in rows])
        return
    torch.set_num_threads(1)
    import_module("scipy.stats")  # loaded once by any scan, which is not what an input costs
    planted = planted_cases(arguments.part, arguments.only)
    show_planted(measure_cases(f"causes-{arguments.part}", planted, measure_planted, arguments.again))
    if not arguments.no_clean:
        show_clean(measure_cases("causes-clean", clean_cases(arguments.only), measure_clean, arguments.again))


if __name__ == "__main__":
    main()
