"""One run at a time makes an output, in a hidden folder that the next run cleans."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from arachne.errors import EnvironmentFaultError
from arachne.files import atomic_write
from arachne.working_folder import hidden_beside, working_folder


def test_the_folder_lies_beside_the_output_and_is_gone_afterwards(tmp_path: Path) -> None:
    with working_folder(tmp_path / "fix") as folder:
        assert folder == tmp_path / ".fix.arachne"
        (folder / "half").write_bytes(b"")
    assert os.listdir(tmp_path) == []


def test_a_second_run_is_told_that_the_first_one_writes(tmp_path: Path) -> None:
    with (
        working_folder(tmp_path / "fix"),
        pytest.raises(EnvironmentFaultError, match=r"another run is writing to '.*fix'"),
        working_folder(tmp_path / "fix"),
    ):
        pytest.fail("two runs hold one folder")


def test_one_that_waits_goes_on_when_the_first_has_ended(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with working_folder(tmp_path / "fix", wait=True):
            order.append("second")

    with working_folder(tmp_path / "fix"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(timeout=0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert os.listdir(tmp_path) == []


def test_what_a_killed_run_left_is_gone_after_the_next(tmp_path: Path) -> None:
    killed = (
        "import os, sys, pathlib\n"
        "from arachne.working_folder import working_folder\n"
        "with working_folder(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", killed, tmp_path / "a.txt"], check=False)
    assert (tmp_path / ".a.txt.arachne" / "half").exists()
    atomic_write(tmp_path / "a.txt", b"whole")
    assert os.listdir(tmp_path) == ["a.txt"]


def test_what_is_kept_stays_and_everything_else_goes(tmp_path: Path) -> None:
    with working_folder(tmp_path / "fix", kept=("checkpoints",)) as folder:
        (folder / "checkpoints").mkdir()
        (folder / "result").mkdir()
    with working_folder(tmp_path / "fix", kept=("checkpoints",)) as folder:
        assert sorted(os.listdir(folder)) == [".arachne-lock", "checkpoints"]
        (folder / "checkpoints").rmdir()
    assert os.listdir(tmp_path) == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters").write_bytes(b"dear")
    (tmp_path / ".fix.arachne").symlink_to("home")
    with pytest.raises(EnvironmentFaultError, match="in the way"), working_folder(tmp_path / "fix"):
        pytest.fail("a link was taken for the working folder")
    assert (tmp_path / "home" / "letters").read_bytes() == b"dear"


def test_a_link_inside_it_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters").write_bytes(b"dear")
    (tmp_path / ".fix.arachne").mkdir()
    (tmp_path / ".fix.arachne" / "result").symlink_to(tmp_path / "home")
    with working_folder(tmp_path / "fix"):
        pass
    assert (tmp_path / "home" / "letters").read_bytes() == b"dear"
    assert os.listdir(tmp_path) == ["home"]


def test_the_longest_name_has_a_folder_too(tmp_path: Path) -> None:
    name = "n" * 255
    assert len(hidden_beside(tmp_path / name).name) <= 255
    atomic_write(tmp_path / name, b"long")
    assert os.listdir(tmp_path) == [name]
