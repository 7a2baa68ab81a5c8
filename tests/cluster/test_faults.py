"""Workers that die, hang or differ, a scheduler that is gone, a client that is killed: same bytes or one sentence."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import arachne
from arachne.cluster import roster
from arachne.cluster.starting import join_cluster
from arachne.data.labelled import LabelledData
from arachne.errors import ClusterError, EnvironmentFaultError
from arachne.settings import Settings, make_localiser, make_searcher
from tests.cluster.processes import PATIENCE, Processes
from tests.commands import arachne as command

if TYPE_CHECKING:
    from distributed import Client

pytestmark = [pytest.mark.backend("onnx"), pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")]
pytest.importorskip("distributed")

DE = Settings(
    localiser=make_localiser("rs", count=6, include=("first",)),
    searcher=make_searcher("de", population=20, generations=6, patience=6),
)


@pytest.fixture(scope="module")
def expected(model_file: Path, data: LabelledData, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The patch of one process."""
    return save_result(arachne.repair(model_file, data, "top:1", settings=DE), tmp_path_factory.mktemp("expected"))


def save_result(result: arachne.RepairResult, folder: Path) -> bytes:
    result.patch.save(folder / "patch.json")
    return (folder / "patch.json").read_bytes()


def at_generation(number: int, act: Callable[[], None]) -> Callable[[Any], None]:
    """Do something once, when a search has got so far."""
    done: list[bool] = []

    def tell(generation: Any) -> None:
        if generation.number >= number and not done:
            done.append(True)
            act()

    return tell


def test_a_worker_killed_in_the_middle_changes_nothing(
    client: Client, model_file: Path, data: LabelledData, expected: bytes, tmp_path: Path
) -> None:
    pids = client.run(os.getpid)
    told = at_generation(2, lambda: os.kill(next(iter(pids.values())), signal.SIGKILL))
    result = arachne.repair(model_file, data, "top:1", settings=DE, cluster=client, on_generation=told)
    assert save_result(result, tmp_path) == expected
    assert set(client.nthreads()) != set(pids)


def test_workers_gone_for_good_or_stopped_change_nothing_while_one_is_left(
    model_file: Path, data: LabelledData, expected: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Processes(tmp_path, 3) as cluster, join_cluster(str(cluster.file), lambda text: None) as client:
        client.wait_for_workers(3, timeout=PATIENCE)
        gone, stopped, left = client.run(os.getpid).values()

        def act() -> None:
            os.kill(gone, signal.SIGKILL)
            os.kill(stopped, signal.SIGSTOP)

        result = arachne.repair(
            model_file, data, "top:1", settings=DE, cluster=client, on_generation=at_generation(2, act)
        )
        assert save_result(result, tmp_path) == expected
        assert [one.pid for one in cluster.workers if one.poll() is None and one.pid != stopped] == [left]
    assert "does not answer; its inputs go to others" in caplog.text


def test_a_worker_with_another_version_of_a_package_is_refused_by_both_versions(
    model_file: Path, data: LabelledData, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "scipy-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: scipy\nVersion: 0.0.1\n")
    with Processes(tmp_path, 0) as cluster:
        cluster.add({"FIRST_PATH": str(other.parent)})
        with pytest.raises(EnvironmentFaultError, match=r"has scipy 0\.0\.1, expected \d+\.\d+"):
            arachne.repair(model_file, data, "top:1", settings=DE, cluster=str(cluster.file))


def test_a_scheduler_that_is_gone_leaves_a_checkpoint_to_go_on_from(
    model_file: Path,
    data: LabelledData,
    expected: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster, "SCHEDULER_TIMEOUT_SECONDS", 8.0)
    kept = tmp_path / "checkpoints"
    with (
        Processes(tmp_path, 1) as cluster,
        join_cluster(str(cluster.file), lambda text: None, patience=PATIENCE) as client,
    ):
        assert cluster.scheduler is not None
        told = at_generation(3, cluster.scheduler.kill)
        with pytest.raises(ClusterError, match=r"the scheduler of the cluster at tcp://127\.0\.0\.1:\d+ is gone"):
            arachne.repair(model_file, data, "top:1", settings=DE, cluster=client, on_generation=told, checkpoint=kept)
    numbers = []
    result = arachne.repair(
        model_file,
        data,
        "top:1",
        settings=DE,
        checkpoint=kept,
        resume=True,
        on_generation=lambda generation: numbers.append(generation.number),
    )
    assert numbers[0] > 1
    assert save_result(result, tmp_path) == expected


@pytest.fixture
def endless(model_file: Path, data_file: Path) -> list[str]:
    """The words of a search that goes on until somebody ends it."""
    words = ["repair", str(model_file), "--data", str(data_file), "--target", "top:1", "--search", "de"]
    words += ["-O", "population=20", "-O", "generations=9999", "-O", "patience=9999", "-o", "fix"]
    return [*words, "--time-limit", "10"]  # a checkpoint is first written after some five seconds


def ended_after_a_checkpoint(words: list[str], folder: Path, end: Callable[[int], None]) -> tuple[int, str]:
    """Run a command in a session of its own, end it once there is a checkpoint; its code and what it said.

    Every process that it had started is gone soon, too.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "arachne", *words]
    told = folder / "log.txt"
    with told.open("wb") as log:
        run = subprocess.Popen(command, cwd=folder, env=environment, stderr=log, stdout=log, start_new_session=True)
    try:
        until = time.monotonic() + PATIENCE
        while not list(folder.glob(".fix.arachne/checkpoints/search-*.npz")) and time.monotonic() < until:
            assert run.poll() is None, told.read_text()
            time.sleep(0.1)
        children = descendants(run.pid)
        end(run.pid)
        code = run.wait(PATIENCE)
    finally:
        run.kill()
        run.wait(PATIENCE)
    while any(map(alive, children)) and time.monotonic() < until:
        time.sleep(0.1)
    assert len(children) >= 2
    assert not any(map(alive, children))
    return code, told.read_text()


def test_a_killed_client_takes_its_local_workers_along_and_can_be_gone_on_with(
    endless: list[str], tmp_path: Path
) -> None:
    ended_after_a_checkpoint([*endless, "--workers", "2"], tmp_path, lambda pid: os.kill(pid, signal.SIGKILL))
    assert not (tmp_path / "fix").exists()
    ran = command(*endless, "--resume", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "resumed after generation" in ran.err


def test_ctrl_c_ends_the_cluster_in_two_lines_and_the_checkpoint_is_whole(endless: list[str], tmp_path: Path) -> None:
    code, told = ended_after_a_checkpoint(  # a terminal sends it to all processes at once
        [*endless, "--workers", "2"], tmp_path, lambda pid: os.killpg(pid, signal.SIGINT)
    )
    assert code == 130
    assert "Traceback" not in told
    *_, stopping, error, line = told.splitlines()
    assert stopping.startswith("stopping when the evaluation under way is done")
    assert re.fullmatch(r"error: interrupted after generation \d+; this goes on from there:", error)
    assert "--workers 2" in line
    assert line.endswith(" --resume")
    for checkpoint in tmp_path.glob(".fix.arachne/checkpoints/search-*.npz"):
        with np.load(checkpoint) as arrays:
            assert {name: arrays[name].shape for name in arrays}


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    told = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(own): int(parent) for own, parent in re.findall(r"(\d+)\s+(\d+)", told)}
    found = [pid]
    for own in found:
        found += [child for child, parent in parents.items() if parent == own]
    return found[1:]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(told.strip()) and not told.startswith("Z")
