"""One run at a time makes an output, in a hidden folder that the next run cleans."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from arachne.errors import EnvironmentFaultError
from arachne.io.files import atomic_draft, atomic_write
from arachne.io.working_folder import hidden_beside, working_folder


def test_the_folder_lies_beside_the_output_and_is_gone_afterwards(tmp_path: Path) -> None:
    with working_folder(tmp_path / "fix") as work, work.make("copy") as folder:
        assert folder.path.resolve() == tmp_path / ".fix.arachne" / "copy"
        (folder.path / "half").write_bytes(b"")
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
        "from arachne.io.working_folder import working_folder\n"
        "with working_folder(pathlib.Path(sys.argv[1])) as work, work.make('copy') as folder:\n"
        "    (folder.path / 'half').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", killed, tmp_path / "a.txt"], check=False)
    assert (tmp_path / ".a.txt.arachne" / "copy" / "half").exists()
    atomic_write(tmp_path / "a.txt", b"whole")
    assert os.listdir(tmp_path) == ["a.txt"]


def test_what_is_kept_stays_and_everything_else_goes(tmp_path: Path) -> None:
    with working_folder(tmp_path / "fix", kept=("checkpoints",)) as work:
        (work.folder.path / "checkpoints").mkdir()
        with work.make("result") as draft:
            (draft.path / "half").write_bytes(b"")
    with working_folder(tmp_path / "fix", kept=("checkpoints",)) as work:
        assert work.folder.names() == [".arachne-lock", "checkpoints"]
        (work.folder.path / "checkpoints").rmdir()
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
    (tmp_path / ".fix.arachne" / ".arachne-lock").write_bytes(b"")
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


def make_home(folder: Path) -> Path:
    """A folder of somebody's own, with a file under a name that a run would use too."""
    (folder / "home" / "copy").mkdir(parents=True)
    for name in ("letters", "copy/a.txt", ".arachne-lock"):
        (folder / "home" / name).write_bytes(b"dear")
    return folder / "home"


def assert_untouched(home: Path) -> None:
    assert {path.relative_to(home).as_posix() for path in home.rglob("*")} == {
        "letters", "copy", "copy/a.txt", ".arachne-lock"
    }  # fmt: skip
    assert {path.read_bytes() for path in home.rglob("*") if path.is_file()} == {b"dear"}


@pytest.mark.parametrize("linked", [True, False])
def test_what_takes_its_name_during_the_work_is_neither_written_to_nor_cleared(tmp_path: Path, linked: bool) -> None:
    home = make_home(tmp_path)
    with atomic_draft(tmp_path / "a.txt") as temporary:
        (tmp_path / ".a.txt.arachne").rename(tmp_path / "moved")
        if linked:
            (tmp_path / ".a.txt.arachne").symlink_to(home)
        else:
            home.rename(tmp_path / ".a.txt.arachne")
        temporary.write_bytes(b"new")
    assert (tmp_path / "a.txt").read_bytes() == b"new"
    assert_untouched(tmp_path / ".a.txt.arachne")
    assert os.listdir(tmp_path / "moved") == []


def test_a_folder_of_the_output_that_is_replaced_meanwhile_is_not_written_to(tmp_path: Path) -> None:
    place, home = tmp_path / "place", make_home(tmp_path)
    place.mkdir()

    def write() -> None:
        with atomic_draft(place / "letters") as temporary:
            place.rename(tmp_path / "moved")
            place.symlink_to(home)
            temporary.write_bytes(b"new")

    with pytest.raises(EnvironmentFaultError, match="was moved or replaced"):
        write()
    assert_untouched(home)
    assert os.listdir(tmp_path / "moved") == []


def test_a_file_that_appears_under_the_name_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_draft(tmp_path / "a.txt") as temporary:
            temporary.write_bytes(b"new")
            (tmp_path / "a.txt").write_bytes(b"mine")

    with pytest.raises(EnvironmentFaultError, match="is not written over"):
        write()
    assert (tmp_path / "a.txt").read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_draft_that_became_a_hard_link_is_not_put_into_place(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "mine").chmod(0o600)

    def write() -> None:
        with atomic_draft(tmp_path / "a.txt") as temporary:
            temporary.unlink()
            os.link(tmp_path / "mine", temporary)

    with pytest.raises(EnvironmentFaultError, match="hard link"):
        write()
    assert os.listdir(tmp_path) == ["mine"]
    assert ((tmp_path / "mine").read_bytes(), (tmp_path / "mine").stat().st_mode & 0o777) == (b"mine", 0o600)


@pytest.mark.parametrize("lock", [True, False])
def test_a_folder_that_no_run_has_made_is_in_the_way(tmp_path: Path, lock: bool) -> None:
    hidden = tmp_path / ".a.txt.arachne"
    (hidden / "copy").mkdir(parents=True)
    (hidden / "copy" / "letter").write_bytes(b"dear")
    if lock:
        (hidden / ".arachne-lock").write_bytes(b"")
        (hidden / "letter").write_bytes(b"dear")
    with pytest.raises(EnvironmentFaultError, match="is in the way"):
        atomic_write(tmp_path / "a.txt", b"new")
    assert (hidden / "copy" / "letter").read_bytes() == b"dear"
