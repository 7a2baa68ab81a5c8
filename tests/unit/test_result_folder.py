"""A folder of results is there as a whole or not at all, and takes only a place it may take."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from arachne.errors import EnvironmentFaultError, UsageError
from arachne.io import moving
from arachne.io.folder import Folder
from arachne.io.manifest import MANIFEST, read_manifest
from arachne.results.folder import ResultFolder, result_folder


def make(path: Path, text: str, *, replace: bool = False) -> None:
    with result_folder(path, replace=replace) as folder:
        (folder.draft / "patch.json").write_text(text)
        (folder.draft / "deep").mkdir()
        (folder.draft / "deep" / "weights.bin").write_text(text)
        folder.publish()


def texts(path: Path) -> set[str]:
    return {(path / "patch.json").read_text(), (path / "deep" / "weights.bin").read_text()}


def test_nothing_is_there_before_all_of_it_is(tmp_path: Path) -> None:
    with result_folder(tmp_path / "fix") as folder:
        (folder.draft / "patch.json").write_text("half")
        assert not (tmp_path / "fix").exists()
    assert os.listdir(tmp_path) == []


def test_the_manifest_names_every_file_with_its_hash(tmp_path: Path) -> None:
    make(tmp_path / "fix", "one")
    told = read_manifest(tmp_path / "fix")
    digest = hashlib.sha256(b"one").hexdigest()
    wanted = {"bytes": 3, "sha256": digest}
    assert told == {"deep/weights.bin": wanted, "patch.json": wanted}
    assert sorted(os.listdir(tmp_path)) == ["fix"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "fix").mkdir()
    make(tmp_path / "fix", "one")
    assert texts(tmp_path / "fix") == {"one"}


def test_an_earlier_result_is_replaced_on_request_only(tmp_path: Path) -> None:
    make(tmp_path / "fix", "one")
    with pytest.raises(UsageError, match="earlier run") as caught:
        make(tmp_path / "fix", "two")
    assert caught.value.argument == "replace"
    assert texts(tmp_path / "fix") == {"one"}
    make(tmp_path / "fix", "two", replace=True)
    assert texts(tmp_path / "fix") == {"two"}
    assert os.listdir(tmp_path) == ["fix"]


@pytest.mark.parametrize("name", ["notes.txt", "deep/notes.txt"])
def test_a_folder_with_files_of_others_is_never_replaced(tmp_path: Path, name: str) -> None:
    make(tmp_path / "fix", "one")
    (tmp_path / "fix" / name).write_text("mine")
    with pytest.raises(UsageError, match=f"such as '{name}'"):
        make(tmp_path / "fix", "two", replace=True)
    assert (tmp_path / "fix" / name).read_text() == "mine"


def test_a_folder_without_a_manifest_is_not_ours(tmp_path: Path) -> None:
    make(tmp_path / "fix", "one")
    (tmp_path / "fix" / MANIFEST).unlink()
    with pytest.raises(UsageError, match="no repair has put there"):
        make(tmp_path / "fix", "two", replace=True)


def test_files_that_appear_during_the_run_are_not_lost(tmp_path: Path) -> None:
    with result_folder(tmp_path / "fix") as folder:
        (tmp_path / "fix").mkdir()
        (tmp_path / "fix" / "letter").write_text("dear")
        with pytest.raises(UsageError, match="such as 'letter'"):
            folder.publish()
    assert (tmp_path / "fix" / "letter").read_text() == "dear"


def test_a_file_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "fix").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        make(tmp_path / "fix", "one", replace=True)


def test_the_folder_one_is_in_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="the folder you are in"):
        make(Path(), "one")


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "fix").symlink_to("disk")
    make(tmp_path / "fix", "one")
    assert (tmp_path / "fix").is_symlink()
    assert texts(tmp_path / "disk") == {"one"}


def test_folders_made_on_the_way_go_when_nothing_is_put_there(tmp_path: Path) -> None:
    with result_folder(tmp_path / "a" / "b" / "fix"):
        assert (tmp_path / "a" / "b").is_dir()
    assert os.listdir(tmp_path) == []


def test_checkpoints_outlive_a_run_and_go_with_a_result(tmp_path: Path) -> None:
    with result_folder(tmp_path / "fix") as folder:
        folder.checkpoints.mkdir()
        (folder.checkpoints / "3.npz").write_bytes(b"state")
    with pytest.raises(UsageError, match="was interrupted") as caught:
        make(tmp_path / "fix", "one")
    assert caught.value.argument == "resume"
    with result_folder(tmp_path / "fix", resume=True) as folder:
        assert (folder.checkpoints / "3.npz").read_bytes() == b"state"
        folder.publish()
    assert os.listdir(tmp_path) == ["fix"]


def test_a_run_that_begins_anew_drops_checkpoints(tmp_path: Path) -> None:
    with result_folder(tmp_path / "fix") as folder:
        folder.checkpoints.mkdir()
    make(tmp_path / "fix", "one", replace=True)
    assert os.listdir(tmp_path) == ["fix"]


def test_results_are_as_private_as_what_they_tell_about(tmp_path: Path) -> None:
    (tmp_path / "net").write_bytes(b"")
    (tmp_path / "net").chmod(0o600)
    with result_folder(tmp_path / "fix", private=[tmp_path / "net"]) as folder:
        (folder.draft / "patch.json").write_text("weights")
        folder.publish()
    assert (tmp_path / "fix").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "fix" / "patch.json").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_told_before_the_work(tmp_path: Path) -> None:
    with (
        pytest.raises(EnvironmentFaultError, match="of free space, expected"),
        result_folder(tmp_path / "a", room=1 << 60),
    ):
        pytest.fail("it began")


def unable(flags: int, source: Folder, name: str, target: Folder, new: str) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


def test_where_folders_cannot_change_places_at_once_two_renames_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "rename_with", unable)
    make(tmp_path / "fix", "one")
    make(tmp_path / "fix", "two", replace=True)
    assert texts(tmp_path / "fix") == {"two"}
    assert os.listdir(tmp_path) == ["fix"]


def test_a_run_stopped_between_two_renames_is_finished_by_the_next(tmp_path: Path) -> None:
    make(tmp_path / "fix", "one")
    work = tmp_path / ".fix.arachne"
    work.mkdir()
    (work / ".arachne-lock").write_bytes(b"")
    (tmp_path / "fix").rename(work / "replaced")
    make(tmp_path / "new", "two")
    (tmp_path / "new").rename(work / "result")
    with pytest.raises(UsageError, match="earlier run"):
        make(tmp_path / "fix", "three")
    assert texts(tmp_path / "fix") == {"two"}
    assert os.listdir(tmp_path) == ["fix"]


def test_what_is_handed_out_says_where_it_goes(tmp_path: Path) -> None:
    with result_folder(tmp_path / "fix") as folder:
        assert isinstance(folder, ResultFolder)
        assert folder.path == (tmp_path / "fix").resolve()


def forge(place: Path, name: str, content: bytes) -> None:
    """Write a file into a result and its name, with another hash, into the manifest."""
    (place / name).write_bytes(content)
    told = json.loads((place / MANIFEST).read_text())
    told["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(b"other").hexdigest()}
    (place / MANIFEST).write_text(json.dumps(told))


def change(place: Path) -> str:
    (place / "patch.json").write_text("mine")
    return "patch.json"


def name_in_the_manifest(place: Path) -> str:
    forge(place, "letter", b"dear")
    return "letter"


def swap_for_a_link(place: Path) -> str:
    (place / "patch.json").rename(place.parent / "elsewhere")
    (place / "patch.json").symlink_to(place.parent / "elsewhere")
    return "patch.json"


def link_a_folder(place: Path) -> str:
    (place / "deep").rename(place.parent / "elsewhere")
    (place / "deep").symlink_to(place.parent / "elsewhere")
    return "deep"


CHANGES = [change, name_in_the_manifest, swap_for_a_link, link_a_folder]


def everything(folder: Path) -> dict[str, str]:
    """All files and links below a folder, with what they hold or where they lead."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path) if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("tamper", CHANGES)
@pytest.mark.parametrize("during", [True, False])
def test_only_files_with_the_hash_of_the_manifest_are_replaced(
    tmp_path: Path, tamper: Callable[[Path], str], during: bool
) -> None:
    make(tmp_path / "fix", "one")
    name = "" if during else tamper(tmp_path / "fix")
    before = everything(tmp_path)

    def again() -> None:
        nonlocal name, before
        with result_folder(tmp_path / "fix", replace=True) as folder:
            (folder.draft / "patch.json").write_text("two")
            if during:
                name = tamper(tmp_path / "fix")
                before = {key: value for key, value in everything(tmp_path).items() if not key.startswith(".")}
            folder.publish()

    with pytest.raises(UsageError) as caught:
        again()
    assert f"{name}'" in str(caught.value)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("part", [".fix.arachne", ".fix.arachne/result", ".fix.arachne/checkpoints", "fix"])
@pytest.mark.parametrize("replace", [True, False])
def test_what_is_swapped_for_a_link_during_the_work_leads_nowhere(tmp_path: Path, part: str, replace: bool) -> None:
    home = tmp_path / "home"
    for name in ("patch.json", "result/patch.json", "checkpoints/letters"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("dear")
    if replace:
        make(tmp_path / "fix", "one")
    kept = everything(home)
    with contextlib.suppress(UsageError, EnvironmentFaultError), result_folder(tmp_path / "fix", replace=True) as work:
        (work.draft / "patch.json").write_text("two")
        if os.path.lexists(tmp_path / part):
            (tmp_path / part).rename(tmp_path / "moved")
        (tmp_path / part).symlink_to(home)
        (work.draft / "late").write_text("two")
        work.publish()
    assert everything(home) == kept
    if not (tmp_path / "fix").is_symlink() and (tmp_path / "fix").exists():
        assert (tmp_path / "fix" / "patch.json").read_text() in ("one", "two")
