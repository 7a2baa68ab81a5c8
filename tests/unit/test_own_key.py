"""Checkpoints carry a mark of the user's own key: those out of an archive, or without a mark, are not gone on from."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from arachne.errors import EnvironmentFaultError, InputError
from arachne.io.arrays import read_arrays, write_arrays
from arachne.io.own_key import KEY_BYTES, STATE, fits_mark, key_path, make_mark, read_own_key

SCHEMA = "arachne.test/1"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_key_is_made_once_for_its_owner_alone(state: Path) -> None:
    key = read_own_key()
    assert (len(key), read_own_key()) == (KEY_BYTES, key)
    assert key_path() == state / "arachne" / "checkpoint-key"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (key_path(), key_path().parent)] == [0o600, 0o700]
    assert os.listdir(key_path().parent) == ["checkpoint-key"]


def test_two_runs_that_make_a_key_at_once_have_the_same(state: Path) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(read_own_key())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert set(found) == {key_path().read_bytes()}


@pytest.mark.parametrize("what", ["open to others", "another length", "a link", "a hard link", "in an open folder"])
def test_a_key_that_others_may_know_is_refused(state: Path, what: str) -> None:
    read_own_key()
    path = key_path()
    if what == "open to others":
        path.chmod(0o644)
    elif what == "another length":
        path.write_bytes(b"short")
    elif what == "a link":
        path.symlink_to(path.rename(state / "elsewhere"))
    elif what == "a hard link":
        (state / "second").hardlink_to(path)
    else:
        path.parent.chmod(0o777)
    with pytest.raises(EnvironmentFaultError, match=r"is no key that is yours alone|can be neither read nor made"):
        read_own_key()


def test_without_a_place_for_a_key_nothing_is_marked_and_nothing_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(STATE, str(tmp_path / "file"))
    with pytest.raises(EnvironmentFaultError, match=f"neither read nor made: .*; set {STATE} to a folder of yours"):
        read_own_key()
    write_arrays(tmp_path / "a.npz", {"x": np.arange(3)}, {"schema": SCHEMA})
    with pytest.raises(InputError, match="does not carry the mark of your key"):
        read_arrays(tmp_path / "a.npz", SCHEMA)


def test_a_file_with_the_mark_of_another_key_is_not_believed(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npz"
    write_arrays(path, {"x": np.arange(3)}, {"schema": SCHEMA})
    assert read_arrays(path, SCHEMA)[0]["x"].tolist() == [0, 1, 2]
    monkeypatch.setenv(STATE, str(tmp_path / "of somebody else"))
    with pytest.raises(InputError, match="does not carry the mark of your key"):
        read_arrays(path, SCHEMA)


def test_a_mark_is_of_its_bytes_and_its_key() -> None:
    mark = make_mark(b"k" * KEY_BYTES, b"text")
    assert fits_mark(b"k" * KEY_BYTES, b"text", mark)
    assert not fits_mark(b"k" * KEY_BYTES, b"texts", mark)
    assert not fits_mark(b"l" * KEY_BYTES, b"text", mark)
