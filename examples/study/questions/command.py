"""The commands `rq1` to `rq7` and `all`: measure what a question needs, as far as it is not there yet."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from arachne.errors import UsageError
from examples.study.questions import page
from examples.study.questions.kept import RESULTS
from examples.study.questions.reference import REFERENCE
from examples.study.questions.rq1 import RQ1
from examples.study.questions.rq2 import RQ2
from examples.study.questions.rq3 import RQ3
from examples.study.questions.rq4 import RQ4
from examples.study.questions.rq5 import RQ5
from examples.study.questions.rq6 import RQ6
from examples.study.questions.rq7 import RQ7
from examples.study.questions.working import Question, Scope, measure

QUESTIONS: dict[str, Question] = {
    question.name: question for question in (REFERENCE, RQ1, RQ2, RQ3, RQ4, RQ5, RQ6, RQ7)
}
ALL = "all"
BACKENDS = ("torch", "onnx", "keras")
QUICK_RESULTS = RESULTS.parent / "results-quick"
"""Where the quick study goes unless told otherwise; not part of the project."""


def add_commands(commands: Any) -> None:
    """Put the commands among others."""
    for name in (*QUESTIONS, ALL):
        what = (
            "every question" if name == ALL else f"{name.upper()}: {(QUESTIONS[name].make.__doc__ or '').rstrip('.')}"
        )
        parser = commands.add_parser(name, help=f"{what[0].lower() if name == ALL else what[0]}{what[1:]}")
        parser.add_argument("--subject", action="append", default=[], help="a subject, or the name of its data: fm")
        parser.add_argument("--way", action="append", default=[], help="a way of repairing, such as faithful")
        parser.add_argument("--runs", type=_count_words, help="how many seeds, from 0 on")
        parser.add_argument("--faults", type=_count_words, help="how many of the most frequent confusions")
        parser.add_argument("--backend", action="append", help="a backend for rq3 on fm: torch, onnx or keras")
        parser.add_argument("--quick", action="store_true", help="a smaller version, kept apart from the full one")
        parser.add_argument("--jobs", type=_count_words, default=2, help="worker processes (2)")
        parser.add_argument("--minutes", type=float, help="begin nothing after so much time; the next call goes on")
        parser.add_argument("--results", type=Path, help="the folder of the result files")


def run(given: argparse.Namespace) -> None:
    """Measure one question, or all, and print what is known of it then.

    Raises:
        UsageError: Nothing is asked for: a subject, a way or a backend that the question does not have.
    """
    scope = Scope(
        subjects=tuple(given.subject),
        ways=tuple(given.way),
        runs=given.runs,
        faults=given.faults,
        quick=given.quick,
        backends=tuple(given.backend or ("torch",)),
    )
    questions = list(QUESTIONS.values()) if given.command == ALL else [QUESTIONS[given.command]]
    _check(questions, scope)
    folder = given.results or (QUICK_RESULTS if given.quick else RESULTS)
    measure(
        questions,
        scope,
        folder=folder,
        jobs=given.jobs,
        minutes=given.minutes,
        say=lambda line: print(line, flush=True),
    )
    for question in questions:
        print(f"\n{page.section(folder, question.name)}")
    if folder != RESULTS:
        page.write(folder, folder / page.PAGE.name)
        print(f"\nAll of it, with figures: {folder / page.PAGE.name}")


def _check(questions: list[Question], scope: Scope) -> None:
    usual = [cell for question in questions for cell in question.cells(Scope(backends=BACKENDS))]
    subjects = list(dict.fromkeys(cell.subject for cell in usual))
    known = {
        "subject": [*dict.fromkeys(name.partition("-")[0] for name in subjects), *subjects],
        "way": list(dict.fromkeys(cell.way for cell in usual if "@" not in cell.way)),
        "backend": list(BACKENDS),
    }
    for what, names in (("subject", scope.subjects), ("way", scope.ways), ("backend", scope.backends)):
        for name in names:
            if name not in known[what]:
                raise UsageError(f"no {what} '{name}' here; expected one of {', '.join(known[what])}")


def _count_words(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {number}")
    return number
