"""Both programs turn the old file into the new one and back, and refuse everything else."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from arachne.delta import Delta, DeltaError, Run, make_delta
from arachne.delta.arachne_delta import HEAD, RUN, apply
from tests.delta.conftest import PYTHON, Pair, call
from tests.safety import faults

Program = tuple[str, ...]


def test_a_copy_is_the_new_file_and_its_copy_back_the_old_one(pair: Pair, program: Program, tmp_path: Path) -> None:
    call(program, pair.file, pair.old, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == pair.new_bytes
    call(program, "--revert", pair.file, tmp_path / "out", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == pair.old_bytes == pair.old.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "out", "pair"]


def test_in_place_and_back_leaves_nothing_beside(pair: Pair, program: Program) -> None:
    assert call(program, "--verify", pair.file, pair.old).strip() == "old"
    call(program, pair.file, pair.old)
    assert pair.old.read_bytes() == pair.new_bytes
    assert call(program, "--verify", pair.file, pair.old).strip() == "new"
    assert "already" in call(program, pair.file, pair.old)
    call(program, "--revert", pair.file, pair.old)
    assert pair.old.read_bytes() == pair.old_bytes
    assert "nothing was interrupted" in call(program, "--recover", pair.old)
    assert sorted(path.name for path in pair.old.parent.iterdir()) == ["fix.delta", "new", "old"]


def test_another_file_an_output_that_is_there_and_wrong_words_are_refused(pair: Pair, program: Program) -> None:
    pair.new.write_bytes(pair.old_bytes[:-2] + b"zz")
    assert "is not the file this delta was made for" in call(program, pair.file, pair.new, code=3)
    assert "neither the old nor the new" in call(program, "--verify", pair.file, pair.new, code=3)
    assert "is there already" in call(program, pair.file, pair.old, pair.new, code=3)
    assert f"'{pair.new}' is no Arachne delta" in call(program, pair.new, pair.old, code=3)
    assert pair.old.read_bytes() == pair.old_bytes
    call(program, pair.file, pair.old.with_name("missing"), code=4)
    for words in ((), ("one",), ("--what", pair.file, pair.old), ("--recover", "a", "b"), ("a", "b", "c", "d")):
        call(program, *words, code=2)


def test_a_pipe_is_refused_instead_of_waited_for(pair: Pair, program: Program) -> None:
    pipe = pair.old.with_name("pipe")
    os.mkfifo(pipe)
    for words in ((pipe, pair.old), (pair.file, pipe), ("--verify", pair.file, pipe)):
        assert f"'{pipe}' is no ordinary file" in call(program, *words, code=3)


def test_a_journal_of_another_file_changes_nothing(pair: Pair, program: Program) -> None:
    shutil.copy(pair.file, f"{pair.old}.journal")
    strange = b"x" + pair.old_bytes[1:-2] + b"xx"
    pair.old.write_bytes(strange)
    assert "belongs to another file" in call(program, "--recover", pair.old, code=3)
    assert pair.old.read_bytes() == strange


@pytest.mark.parametrize("words", [("copy",), ()])
def test_a_journal_that_lies_beside_is_followed_on_request_alone(
    pair: Pair, program: Program, words: tuple[str, ...], tmp_path: Path
) -> None:
    journal = Path(f"{pair.old}.journal")
    shutil.copy(pair.file, journal)
    outputs = [tmp_path / word for word in words]
    for direction in ("--apply", "--revert"):
        assert "finish it with --recover first" in call(program, direction, pair.file, pair.old, *outputs, code=3)
    assert pair.old.read_bytes() == pair.old_bytes
    assert not any(path.exists() for path in outputs)
    call(program, "--recover", pair.old)
    assert pair.old.read_bytes() == pair.new_bytes
    assert not journal.exists()


def test_a_file_of_the_user_with_the_name_of_a_draft_stays(pair: Pair, program: Program) -> None:
    mine = [Path(f"{pair.old}.draft"), Path(f"{pair.old}.journal.draft"), pair.old.with_name("copy.draft")]
    for path in mine:
        path.write_text("mine")
    call(program, pair.file, pair.old, pair.old.with_name("copy"))
    call(program, pair.file, pair.old)
    assert [path.read_text() for path in mine] == ["mine"] * 3


def hostile(pair: Pair) -> Iterator[bytes]:
    """Deltas that are wrong in one thing each, most of them with a checksum that fits."""
    content = pair.delta.to_bytes()
    body = content[:-32]
    yield from (content[:size] for size in range(0, len(content), 3))
    for place in range(len(body)):
        yield sign(body[:place] + bytes([body[place] ^ (1 << place % 8)]) + body[place + 1 :])
    for length in (0, 8999, 9001, 2**63, 2**64 - 1):
        yield sign(HEAD.pack(b"ARADELT1", length, *HEAD.unpack_from(body)[2:]) + body[HEAD.size :])
    for count in (0, 3, 5, 2**31, 2**32 - 1):
        yield sign(HEAD.pack(*HEAD.unpack_from(body)[:4], count) + body[HEAD.size :])
    for offset, size in ((0, 0), (0, 2**32 - 1), (2**64 - 1, 1), (2**64 - 4, 8), (8999, 2), (9000, 1), (2**63, 2**31)):
        yield sign(body[: HEAD.size] + RUN.pack(offset, size) + body[HEAD.size + RUN.size :])
    first, *others = pair.delta.runs
    for runs in ([*others, first], [first, first, *others], [first, Run(0, b"aa", b"bb"), *others]):
        yield Delta(9000, pair.delta.old_sha256, pair.delta.new_sha256, tuple(runs)).to_bytes()
    yield sign(body + b"\0")
    yield content + b"\0"
    yield struct.pack("<8s", b"ARADELT2") + content[8:]


def sign(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def test_hostile_deltas_get_one_sentence_and_change_nothing(pair: Pair, checked_program: Path) -> None:
    kinds = [content for content in hostile(pair) if content != pair.file.read_bytes()]
    assert len(kinds) > 200
    for content in kinds:
        pair.file.write_bytes(content)
        told = call((str(checked_program),), pair.file, pair.old, code=3)
        assert told.startswith("error: ")
        assert told.count("\n") == 1
        with pytest.raises(DeltaError):
            apply_in_memory(content, pair)
        assert pair.old.read_bytes() == pair.old_bytes
    assert sorted(path.name for path in pair.old.parent.iterdir()) == ["fix.delta", "new", "old"]


def apply_in_memory(content: bytes, pair: Pair) -> None:
    apply(Delta.from_bytes(content), str(pair.old))


def strike(program: Program, library: Path, folder: Path, number: int, action: int, *words: object) -> int:
    """Run a program whose n-th change of something in a folder fails; its exit code."""
    environment = {**os.environ, "LD_PRELOAD": str(library), "ARACHNE_FAULTS": f"{number} {action} {folder.resolve()}"}
    done = subprocess.run([*program, *map(str, words)], env=environment, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode


@pytest.mark.parametrize("action", [faults.KILL, errno.ENOSPC])
@pytest.mark.parametrize("language", ["python", "c"])
@pytest.mark.parametrize("direction", ["--apply", "--revert"])
def test_whatever_call_fails_the_file_is_old_or_new(
    pair: Pair, tmp_path: Path, request: pytest.FixtureRequest, language: str, action: int, direction: str
) -> None:
    library = faults.library(tmp_path)
    program = PYTHON if language == "python" else (str(request.getfixturevalue("plain_program")),)
    assert library is not None, "the program in C was built, so there is a compiler"
    states, number = set(), 0
    start = pair.old_bytes if direction == "--apply" else pair.new_bytes
    while True:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        model, copy = folder / "model", folder / "copy"
        model.write_bytes(start)
        code = strike(program, library, folder, number, action, direction, pair.file, model)
        call(PYTHON if number % 2 else program, "--recover", model)
        states.add(model.read_bytes())
        model.write_bytes(start)
        strike(program, library, folder, number, action, direction, pair.file, model, copy)
        assert not copy.exists() or {start, copy.read_bytes()} == {pair.old_bytes, pair.new_bytes}
        assert model.read_bytes() == start
        if code == 0:
            break
        assert code == (-9 if action == faults.KILL else 4)
    assert number > 10
    assert states == {pair.old_bytes, pair.new_bytes}


def test_runs_that_lie_close_together_are_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    content = np.zeros(3 * (1 << 20), np.uint8)
    old.write_bytes(content.tobytes())
    content[[5, 9, 40, (1 << 20) - 1, 1 << 20]] = 1
    new.write_bytes(content.tobytes())
    delta = make_delta(old, new)
    assert [(run.offset, len(run.old)) for run in delta.runs] == [(5, 5), (40, 1), ((1 << 20) - 1, 1), (1 << 20, 1)]
    assert Delta.from_bytes(delta.to_bytes()) == delta
    assert "': 5 bytes in 4 runs, sha256 " in apply(delta, str(old), str(tmp_path / "copy"))
