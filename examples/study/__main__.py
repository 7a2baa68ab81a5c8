"""Train the study's networks and measure repairs of their faults, resuming where it stopped; list and report both."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from arachne.errors import UsageError
from examples.study import budgets, report, verdicts, without_cause
from examples.study.confusions import most_confused
from examples.study.faults import BY_NAME, CONFUSION_RANKS, DECIDE, JUDGE
from examples.study.poisoning import fault_made_by, train_planted
from examples.study.questions import command, page
from examples.study.runs import RESULTS
from examples.study.sources import SourceError
from examples.study.subjects import SUBJECTS, facts_of, is_trained, made_by, train_subject


@dataclass(frozen=True)
class Job:
    """One network to train.

    Attributes:
        name: Of the subject or the planted fault.
        done: Whether it is in the cache already.
        run: Trains it; takes what is told a line of progress.
    """

    name: str
    done: bool
    run: Callable[[Callable[[str], None]], None]


def jobs() -> list[Job]:
    """Every network of the study; each subject is followed by the faults planted in it, the residual network last."""
    made = []
    for subject in SUBJECTS.values():
        made.append(
            Job(
                subject.name,
                is_trained(subject.name, made_by(subject)),
                lambda say, subject=subject: train_subject(subject, say=say),  # type: ignore[misc]
            )
        )
        made += [
            Job(
                fault.name,
                is_trained(fault.name, fault_made_by(fault)),
                lambda say, fault=fault: train_planted(fault, say=say),  # type: ignore[misc]
            )
            for fault in BY_NAME.values()
            if fault.subject == subject.name
        ]
    return made


def train(names: Sequence[str]) -> None:
    """Train these networks, or all, skipping what is in the cache."""
    chosen = [job for job in jobs() if not names or job.name in names]
    waiting = [job for job in chosen if not job.done]
    print(
        f"{len(chosen) - len(waiting)} of {len(chosen)} networks are in the cache, {len(waiting)} to train", flush=True
    )
    start = time.perf_counter()
    for number, job in enumerate(waiting, 1):
        head = f"[{number}/{len(waiting)}] {job.name}"
        job.run(lambda line, head=head: print(f"{head}: {line}", flush=True))  # type: ignore[misc]
        left = (time.perf_counter() - start) / number * (len(waiting) - number)
        print(f"{head}: {_line(job.name)}; about {left / 60:.0f} min left for the others", flush=True)


def show() -> None:
    """Print a table of all networks: what they reached, and how many inputs with the fault are read wrongly."""
    print("| network | set | target | accuracy | with the fault | of these wrong | weights | epochs | processor s |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for job in jobs():
        facts = facts_of(job.name) if job.done else None
        fault = BY_NAME.get(job.name)
        cells = [job.name, fault.part if fault else "", f"`{fault.habit}`" if fault else ""]
        if facts is None:
            cells += ["not trained", *[""] * 5]
        else:
            carrying = [f"{facts['carrying']}", f"{facts['negatives']}"] if fault else ["", ""]
            cells += [f"{facts['test_accuracy']:.4f}", *carrying, f"{facts['weights']:,}"]
            cells += [f"{facts['epochs']}", f"{facts['seconds']:.0f}"]
        print(f"| {' | '.join(cells)} |")


def show_confusions() -> None:
    """Print a table of the trained subjects' most frequent confusions and the set each belongs to."""
    print("| subject | rank | set | target | inputs |")
    print("|---|---:|---|---|---:|")
    for subject in SUBJECTS:
        if facts_of(subject) is not None:
            for rank, (target, count) in enumerate(most_confused(subject), 1):
                part = next(part for part, ranks in CONFUSION_RANKS.items() if rank in ranks)
                print(f"| {subject} | {rank} | {part} | `{target}` | {count} |")


def _line(name: str) -> str:
    facts = facts_of(name)
    if facts is None:
        return "not trained"
    line = (
        f"accuracy {facts['test_accuracy']:.4f}, {facts['epochs']} epochs, {facts['seconds']:.0f} s of processor time"
    )
    if name in BY_NAME:
        line += f"; {facts['negatives']} of {facts['carrying']} inputs with the fault read wrongly"
    return line


def parser_of_commands() -> argparse.ArgumentParser:
    """Every command and its options."""
    parser = argparse.ArgumentParser(prog="python -m examples.study", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train what is not in the cache yet")
    training.add_argument("--subject", action="append", default=[], choices=sorted(SUBJECTS), help="a clean subject")
    training.add_argument("--fault", action="append", default=[], choices=sorted(BY_NAME), help="a planted fault")
    training.add_argument("--all", action="store_true", help="everything")
    commands.add_parser("list", help="a table of all networks")
    commands.add_parser("confusions", help="a table of the subjects' most frequent confusions")
    measuring = commands.add_parser("budgets", help="repair every fault that has a trained network, at every budget")
    measuring.add_argument("--part", action="append", choices=(DECIDE, JUDGE), help="a set of faults; both by default")
    measuring.add_argument("--subject", action="append", default=[], choices=sorted(SUBJECTS), help="a subject")
    measuring.add_argument(
        "--searcher", action="append", choices=budgets.RECIPES, help="a searcher; auto and de by default"
    )
    measuring.add_argument("--seeds", type=int, default=5, help="how many, from 0 on (5)")
    measuring.add_argument("--minutes", type=float, help="begin no run after so much time; the next call goes on")
    measuring.add_argument("--results", type=Path, default=RESULTS, help="the folder of the result files")
    commands.add_parser("verdicts", help="how often fresh inputs contradict each word of a verdict")
    commands.add_parser("without-cause", help="count what judging networks read rightly without the planted cause")
    command.add_commands(commands)
    reporting = commands.add_parser("report", help="the pages of these repairs and of the questions, and their figures")
    reporting.add_argument("--results", type=Path, default=RESULTS.parent, help="the folder of all result files")
    reporting.add_argument("--docs", type=Path, default=report.PAGE.parent, help="the folder of the pages")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 1 when a data file is missing or another, or a name is unknown."""
    parser = parser_of_commands()
    given = parser.parse_args(arguments)
    if given.command == "train" and not (given.subject or given.fault or given.all):
        parser.error("say what to train: --subject, --fault or --all")
    try:
        run(given)
    except (SourceError, UsageError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def run(given: argparse.Namespace) -> None:
    """Run the command that was given."""
    if given.command == "train":
        train([] if given.all else [*given.subject, *given.fault])
    elif given.command == "budgets":
        budgets.measure(
            given.part or (DECIDE, JUDGE),
            given.subject,
            given.searcher or budgets.RUNS,
            seeds=given.seeds,
            minutes=given.minutes,
            folder=given.results,
            say=lambda line: print(line, flush=True),
        )
    elif given.command in (*command.QUESTIONS, command.ALL):
        command.run(given)
    elif given.command == "report":
        if (given.results / RESULTS.name).is_dir():
            report.write(given.results / RESULTS.name, given.docs / report.PAGE.name)
        page.write(given.results, given.docs / page.PAGE.name)
    elif given.command == "verdicts":
        verdicts.show(RESULTS)
    elif given.command == "without-cause":
        without_cause.measure(RESULTS.parent)
    elif given.command == "list":
        show()
    else:
        show_confusions()


if __name__ == "__main__":
    torch.set_num_threads(1)  # sums in one order: the same seed gives the same weights
    sys.exit(main())
