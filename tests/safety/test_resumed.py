"""A seeded sample of runs that are killed, interrupted or meet a failing disk; `python -m tests.safety` has all."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from tests.safety import faults
from tests.safety import part_checkpoint_writes as writes
from tests.safety.compared import run_comparison
from tests.safety.part_kills import killed_and_resumed
from tests.safety.part_signals import interrupt, interrupted_twice
from tests.safety.resumed import POOL, SEARCHES, SHORT, Repair, repair
from tests.safety.runs import Runs

pytestmark = pytest.mark.backend("onnx")


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with Runs() as running:
        yield running


@pytest.fixture(scope="module")
def de(runs: Runs) -> Iterator[Repair]:
    with repair(runs, SEARCHES["de"]) as one:
        yield one


@pytest.fixture(scope="module")
def short(runs: Runs) -> Iterator[Repair]:
    with repair(runs, SHORT) as one:
        yield one


def test_a_killed_run_is_resumed_byte_for_byte(de: Repair) -> None:
    kills, kept, wrong = killed_and_resumed(de, np.random.default_rng(1))
    assert kills > 0
    assert kept > 0
    assert wrong == []


def test_a_killed_pool_is_resumed_byte_for_byte(runs: Runs) -> None:
    with repair(runs, POOL) as one:
        name = one.new()
        since = f"generation {one.generations // 2}:"
        ended = one.runs.run([*one.argv, "-o", name], one.folder, signals=[(0.0, signal.SIGKILL)], since=since)
        assert ended.code == -signal.SIGKILL
        assert one.wrong(name, one.resume(name)) == []


def test_a_killed_comparison_is_resumed_with_the_same_rows(runs: Runs) -> None:
    with run_comparison(runs) as one:
        found = [one.kill_and_resume(np.random.default_rng([3, number])) for number in range(2)]
    assert [wrong for _, wrong in found] == [[], []]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_that_an_interrupted_run_prints_goes_on(de: Repair, number: signal.Signals) -> None:
    name = de.new()
    argv = [*de.argv, "-o", name]
    ended = de.runs.run(argv, de.folder, signals=[(0.0, number)], since="generation 3:", every_step=False)
    assert ended.code == 128 + number
    assert "stopping when the evaluation under way is done; Ctrl-C again leaves at once" in ended.err
    told, command = ended.err.strip().splitlines()[-2:]
    assert re.fullmatch(r"error: interrupted after generation \d+; this goes on from there:", told)
    assert sorted(shlex.split(command)) == sorted(["arachne", *argv[:-2], "--out", name, "--resume"])
    refused = de.runs.run(argv, de.folder)
    assert refused.code == 2
    assert "was interrupted and can go on from there (--resume goes on, --force begins anew)" in refused.err
    again = de.runs.run(shlex.split(command)[1:], de.folder)
    assert re.search(r"resumed after generation \d+", again.err)
    assert de.wrong(name, again) == []


def test_a_signal_at_any_time_ends_a_run_in_good_order(de: Repair) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        assert interrupt(de, number, np.random.default_rng(number))[2] == []


def test_a_second_signal_ends_a_run_at_once(de: Repair) -> None:
    assert interrupted_twice(de, np.random.default_rng(0))[1] == []


@pytest.mark.parametrize("fault", writes.FAULTS)
def test_whatever_call_fails_while_a_checkpoint_is_written_nothing_is_lost(short: Repair, fault: str) -> None:
    if short.runs.library is None:
        pytest.skip("there is no C compiler to make faults with")
    calls = writes.count(short)
    assert calls > 50
    for number in np.random.default_rng(list(fault.encode())).choice(calls, 2, replace=False).tolist():
        _, wrong = writes.strike(short, fault, number + 1)
        assert wrong == []


def test_a_run_that_is_killed_in_its_localisation_goes_on_from_there(short: Repair) -> None:
    if short.runs.library is None:
        pytest.skip("there is no C compiler to make faults with")
    resumed = 0
    for number in (30, 60, 90):
        name = short.new()
        fault = (short.checkpoints(name), number, faults.KILL, False)
        assert short.runs.run([*short.argv, "-o", name], short.folder, fault=fault).code == -signal.SIGKILL
        passes = list(short.checkpoints(name).glob("pass-*.npz"))
        ended = short.resume(name)
        assert ("resumed in the localisation" in ended.err) == bool(passes)
        assert short.wrong(name, ended) == []
        short.remove(name)
        resumed += bool(passes)
    assert resumed > 1


def test_another_setting_does_not_go_on(de: Repair) -> None:
    name = de.new()
    argv = [*de.argv, "-o", name]
    de.runs.run(argv, de.folder, signals=[(0.0, signal.SIGINT)], since="generation 3:")
    other = de.runs.run([*argv, "--resume", "--seed", "7"], de.folder)
    assert other.code == 3
    assert "'seed' was 0 there and is 7 now; give what it was, or start over (--force)" in other.err
    anew = de.runs.run([*argv, "--force"], de.folder)
    assert de.wrong(name, anew) == []
    ended = de.runs.run([*argv, "--resume"], de.folder)
    assert ended.code == 2
    assert "holds the results of a run that has ended: there is nothing to resume; replace them (--force)" in ended.err


def test_resuming_needs_a_folder(de: Repair) -> None:
    ended = de.runs.run([*de.argv, "--resume"], de.folder)
    assert (ended.code, ended.err) == (
        2,
        "error: --resume goes on with a run into a folder; name it with --out\n",
    )


def test_an_interrupted_run_without_a_folder_says_that_nothing_is_kept(de: Repair) -> None:
    ended = de.runs.run(de.argv, de.folder, signals=[(0.0, signal.SIGINT)], since="generation 3:")
    assert ended.code == 130
    assert ended.err.endswith("error: interrupted; nothing is kept without a folder for the results (--out)\n")
