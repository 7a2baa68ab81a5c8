"""Files appear whole or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from arachne.errors import EnvironmentFaultError, ModelError
from arachne.io.files import atomic_draft, atomic_write, same_file, sha256_of


def test_written_bytes_are_there_and_nothing_else_is(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a.txt", b"one")
    atomic_write(tmp_path / "a.txt", lambda stream: stream.write(b"two"))
    assert (tmp_path / "a.txt").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")

    def disk_full(stream: BinaryIO) -> None:
        stream.write(b"half of it")
        raise OSError(28, "No space left on device")

    with pytest.raises(EnvironmentFaultError, match="No space left on device"):
        atomic_write(target, disk_full)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFaultError, match=r"cannot write .*nowhere"):
        atomic_write(tmp_path / "nowhere" / "a.txt", b"")


def test_new_files_get_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    atomic_write(tmp_path / "atomic", b"")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_made_beside_the_destination_has_its_ending_and_takes_its_place(tmp_path: Path) -> None:
    target = tmp_path / "net.weights.h5"
    target.write_bytes(b"old")
    with atomic_draft(target) as temporary:
        assert temporary.resolve() == tmp_path / ".net.weights.h5.arachne" / "copy" / "net.weights.h5"
        temporary.write_bytes(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["net.weights.h5"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
def test_whatever_ends_the_writing_leaves_what_was_there(tmp_path: Path, failure: type[BaseException]) -> None:
    target = tmp_path / "net.pt"
    target.write_bytes(b"old")

    def interrupt() -> None:
        with atomic_draft(target) as temporary:
            temporary.write_bytes(b"half of it")
            raise failure

    with pytest.raises(failure):
        interrupt()
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["net.pt"]


def test_a_model_is_never_written_over_itself(tmp_path: Path) -> None:
    model, link = tmp_path / "net.pt", tmp_path / "link.pt"
    model.write_bytes(b"weights")
    link.symlink_to(model)
    with pytest.raises(ModelError, match=r"never overwritten"), atomic_draft(link, model):
        pytest.fail("the block must not run")
    assert model.read_bytes() == b"weights"


def test_sha256_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(tmp_path / "a") == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(EnvironmentFaultError, match="cannot read"):
        sha256_of(tmp_path / "missing")


def test_links_lead_to_the_same_file(tmp_path: Path) -> None:
    original, other = tmp_path / "a", tmp_path / "b"
    original.write_bytes(b"x")
    other.write_bytes(b"x")
    (tmp_path / "soft").symlink_to(original)
    os.link(original, tmp_path / "hard")
    (tmp_path / "folder").symlink_to(tmp_path)
    assert same_file(original, tmp_path / "soft")
    assert same_file(original, tmp_path / "hard")
    assert same_file(tmp_path / "folder" / "new", tmp_path / "new")
    assert not same_file(original, other)
    assert not same_file(original, tmp_path / "missing")
