"""Zip archives are refused when they could do harm, and changed without being rewritten."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from arachne.adapting.zips import Zip, write_copy
from arachne.errors import ModelError, UnsafeModelError


class OneWay(io.BytesIO):
    """A stream that cannot go back, such as a pipe: a zip written to it has its checksums behind the members."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError("not seekable")


def archive(path: Path, *members: str, stream: io.BytesIO | None = None) -> Path:
    """An archive of stored members, each of which holds a line of its own."""
    stream = stream or io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for number, member in enumerate(members):
            file.writestr(member, f"member {number}: {member}\n" * 3)
    path.write_bytes(stream.getvalue())
    return path


def check_archive(path: Path) -> Zip:
    """The archive, with its checksums read."""
    with zipfile.ZipFile(path) as file:
        found = Zip.read_directory(file, path)
        found.check_checksums(file)
    return found


@pytest.mark.parametrize("stream", [io.BytesIO, OneWay])
def test_members_changed_in_place_pass_the_check_again(tmp_path: Path, stream: Callable[[], io.BytesIO]) -> None:
    path = archive(tmp_path / "net.zip", "a", "data/b", "c", stream=stream())
    before, found = path.read_bytes(), check_archive(path)
    for member in ("data/b", "c"):
        start, size = found.extent(member)
        with path.open("r+b") as file:
            assert before[start : start + size].endswith(f": {member}\n".encode())
            file.seek(start)
            file.write(b"MEMBER")
    with pytest.raises(ModelError, match=r"'net.zip' is damaged: the checksum of 'data/b' is wrong"):
        check_archive(path)
    with path.open("r+b") as file:
        found.set_checksums(file, [found.extent(member)[0] for member in ("data/b", "c")])
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert file.read("c").startswith(b"MEMBER 2")
    # The letters, and each member's checksum in the two places where either kind of archive keeps it.
    assert sum(a != b for a, b in zip(before, path.read_bytes(), strict=True)) <= 2 * (6 + 2 * 4)


@pytest.mark.parametrize("name", ["/etc/passwd", "a/../../b", "C:net", "a\\b"])
def test_a_name_that_reaches_outside_is_refused(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "net.zip", "a", name)
    with pytest.raises(UnsafeModelError, match=r"'net.zip' holds a member .* that reaches outside the archive"):
        check_archive(path)


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "net.zip", "a", "b")
    path.write_bytes(path.read_bytes().replace(b"b", b"a"))
    with pytest.raises(UnsafeModelError, match="two members of one name"):
        check_archive(path)


def test_members_that_overlap_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "net.zip", "a", "b")
    content = bytearray(path.read_bytes())
    for sizes in (content.index(b"PK\x01\x02") + 20, content.rindex(b"PK\x01\x02") + 20):
        content[sizes : sizes + 8] = 2 * len(content).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(UnsafeModelError, match="members that overlap"):
        check_archive(path)


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "net.zip", "a")
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 0x01
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"'net.zip' is encrypted"):
        check_archive(path)


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'net.zip' lacks its member 'weights'"):
        check_archive(archive(tmp_path / "net.zip", "a")).extent("weights")


def test_a_compressed_member_before_a_changed_one_keeps_its_checksum(tmp_path: Path) -> None:
    path, copy = tmp_path / "net.zip", tmp_path / "copy.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("code", "line\n" * 2000, zipfile.ZIP_DEFLATED)  # unpacked it would reach over the next member
        file.writestr("data", b"member")
    found = check_archive(path)
    write_copy(path, copy, {found.extent("data")[0]: b"MEMBER"}, found)
    with zipfile.ZipFile(copy) as file:
        assert file.testzip() is None
        assert file.read("data") == b"MEMBER"
