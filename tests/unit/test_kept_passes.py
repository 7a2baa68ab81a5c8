"""Kept passes: the same result with and without them, and nothing but a miss from whatever lies in their folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne import engine
from arachne.cli import run
from arachne.errors import EnvironmentFaultError
from arachne.io.arrays import read_arrays, write_arrays
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.results import kept_passes
from arachne.results.front_file import FRONT, read_front
from arachne.results.kept_passes import KeptPasses, confirm_held_out, keeping_passes, pass_key
from arachne.scoring.tail_cache import run_and_keep

pytestmark = pytest.mark.backend("onnx")
DEMO = resources.files("arachne.demo")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the demo's model and data, every pass of which is kept; commands run in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kept_passes, "MIN_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    for name in ("digits.onnx", "digits.npz"):
        (tmp_path / name).write_bytes((DEMO / name).read_bytes())
    return tmp_path


@pytest.fixture
def backend(place: Path) -> ModelBackend:
    return arachne.load(place / "digits.onnx")


@pytest.fixture
def inputs(place: Path) -> Array:
    with np.load(place / "digits.npz") as stored:
        return np.asarray(stored["x"], np.float32)


@pytest.fixture
def passes(place: Path, backend: ModelBackend, inputs: Array) -> KeptPasses:
    """A folder with one pass in it."""
    found = KeptPasses(place / "home" / "arachne" / "passes")
    found.run(backend, inputs)
    assert (found.used, len(found.sizes())) == (0, 1)
    return found


@pytest.fixture
def only_kept(inputs: Array, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forbid, from the call on, that the model runs over all of the data."""
    run_anew = run_and_keep

    def forbid() -> None:
        def refuse(backend: ModelBackend, given: Array) -> Any:
            assert len(given) < len(inputs), "the pass was not found"
            return run_anew(backend, given)

        monkeypatch.setattr(kept_passes, "run_and_keep", refuse)

    return forbid


def is_missed(passes: KeptPasses, backend: ModelBackend, inputs: Array) -> bool:
    """Whether the model runs, and gives what it gives."""
    before = passes.used
    outputs, tail = passes.run(backend, inputs)
    np.testing.assert_allclose(outputs, backend.forward(inputs), rtol=1e-4, atol=1e-4)
    assert tail is not None
    return passes.used == before


def file_of(passes: KeptPasses) -> Path:
    return passes.folder / next(iter(passes.sizes()))


def test_a_scan_a_repair_and_a_comparison_share_one_pass(place: Path, only_kept: Callable[[], None]) -> None:
    data = ["digits.onnx", "--data", "digits.npz", "--quiet"]
    target = ["--target", "top:1", "--max-break", "1%"]
    assert run(["repair", *data, *target, "--no-cache", "-o", "without"]) == 0
    assert not (place / "home").exists()
    assert run(["scan", *data, "--no-causes"]) == 0
    only_kept()
    assert run(["repair", *data, *target, "-o", "with"]) == 0
    assert run(["compare", *data, "--target", "top:1", "--search", "bias"]) == 0
    for name in ("patch.json", "history.csv", "model.onnx"):
        assert (place / "with" / name).read_bytes() == (place / "without" / name).read_bytes()


@pytest.fixture
def repaired(place: Path) -> Path:
    """A repair's folder, made without kept passes."""
    asked = ["--target", "top:1", "--max-break", "1%", "--no-cache", "--quiet"]
    assert run(["repair", "digits.onnx", "--data", "digits.npz", *asked, "-o", "repaired"]) == 0
    return place / "repaired"


CHOOSE = ("choose", "repaired", "--max-break", "0.2%")
EVALUATE = ("evaluate", "digits.onnx", "--data", "digits.npz", "--json")


@pytest.mark.parametrize("lie", [False, True], ids=["kept", "damaged"])
def test_choosing_with_a_kept_pass_gives_the_same_patch(repaired: Path, place: Path, *, lie: bool) -> None:
    assert run([*CHOOSE, "--quiet", "--no-cache", "-o", "without"]) == 0
    assert not (place / "home").exists()
    assert run([*CHOOSE, "--quiet", "-o", "first"]) == 0
    (kept,) = (place / "home" / "arachne" / "passes").iterdir()
    if lie:
        kept.write_bytes(kept.read_bytes()[:-100])
    assert run([*CHOOSE, "--quiet", "-o", "second"]) == 0
    for name in ("patch.json", "model.onnx"):
        expected = (place / "without" / name).read_bytes()
        assert (place / "first" / name).read_bytes() == expected
        assert (place / "second" / name).read_bytes() == expected


@pytest.mark.parametrize("patch", [(), ("--patch", "repaired/patch.json")], ids=["model", "patch"])
def test_evaluating_with_a_kept_pass_tells_the_same(
    repaired: Path, place: Path, capsys: pytest.CaptureFixture[str], patch: tuple[str, ...]
) -> None:
    said = []
    for more in (["--no-cache"], [], []):
        assert run([*EVALUATE, *patch, *more]) == 0
        said.append(capsys.readouterr().out)
    assert len(list((place / "home" / "arachne" / "passes").iterdir())) == 1
    assert said[0] == said[1] == said[2]


def test_a_gate_rests_on_no_kept_pass(place: Path) -> None:
    assert run([*EVALUATE, "--fail-if", "accuracy < 1%"]) == 0
    assert not (place / "home").exists()


def test_what_is_held_out_is_run_anew_with_a_patch(
    repaired: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pass that lies about every held-out input, outputs and activations, does not change the verdict."""
    patch = ("--patch", "repaired/patch.json")
    assert run([*EVALUATE, *patch]) == 0
    honest = capsys.readouterr().out
    passes = KeptPasses(place / "home" / "arachne" / "passes")
    held_out = read_front(repaired / FRONT).rows("held_out")

    def lie(arrays: dict[str, Array], about: dict[str, Any]) -> None:
        rows = np.setdiff1d(held_out, np.linspace(0, len(arrays["outputs"]) - 1, kept_passes.PROBES).astype(np.int64))
        for array in arrays.values():
            array[rows] = np.roll(array[rows], 1, axis=1)

    _rewrite(passes, lie)
    assert run([*EVALUATE, *patch]) == 0
    assert capsys.readouterr().out == honest


def test_the_folder_and_its_files_are_the_owners(passes: KeptPasses) -> None:
    assert passes.folder.stat().st_mode & 0o777 == 0o700


def test_another_model_other_inputs_or_another_version_is_a_miss(
    passes: KeptPasses, backend: ModelBackend, inputs: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = pass_key(backend, inputs)
    assert key == pass_key(backend, inputs.copy())
    other = inputs.copy()
    other[3, 0] += 1e-3
    layer = backend.layers[-1]
    with _Changed(backend, layer.name):
        assert pass_key(backend, inputs) != key
    assert pass_key(backend, other) != key
    assert pass_key(backend, inputs.astype(np.float64)) != key
    assert pass_key(backend, inputs[:-1]) != key
    monkeypatch.setattr(arachne, "__version__", "another")
    assert pass_key(backend, inputs) != key


def test_a_model_whose_code_is_elsewhere_has_no_key(backend: ModelBackend, inputs: Array) -> None:
    backend.opened_with = None
    assert pass_key(backend, inputs) is None


@pytest.mark.parametrize("at", [0, 200, 5_000, 100_000, -200, -30])
def test_damaged_bytes_are_a_miss(passes: KeptPasses, backend: ModelBackend, inputs: Array, at: int) -> None:
    content = bytearray(file_of(passes).read_bytes())
    content[at] ^= 0xFF
    file_of(passes).write_bytes(content)
    assert is_missed(passes, backend, inputs)


@pytest.mark.parametrize("content", [b"", b"PK", bytes(10_000)], ids=["empty", "a head", "zeros"])
def test_other_content_is_a_miss(passes: KeptPasses, backend: ModelBackend, inputs: Array, content: bytes) -> None:
    file_of(passes).write_bytes(content)
    assert is_missed(passes, backend, inputs)
    assert not is_missed(passes, backend, inputs)


def test_a_strangers_pass_is_a_miss(
    passes: KeptPasses, backend: ModelBackend, inputs: Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of another"))
    assert is_missed(passes, backend, inputs)


def _rewrite(passes: KeptPasses, change: Callable[[dict[str, Array], dict[str, Any]], object]) -> None:
    """Change a pass, and mark it with the user's own key as a program of the user could."""
    path = file_of(passes)
    arrays, about = read_arrays(path, kept_passes.SCHEMA)
    change(arrays, about)
    path.unlink()
    write_arrays(path, arrays, {name: value for name, value in about.items() if name != "arrays"})


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays, about: about.update(key="another"),
        lambda arrays, about: about.update(tail=None),
        lambda arrays, about: about.update(tail=["another"]),
        lambda arrays, about: arrays.update(outputs=arrays["outputs"][:-1]),
        lambda arrays, about: arrays.update(outputs=arrays["outputs"].astype(np.float64)),
        lambda arrays, about: arrays.update(outputs=-arrays["outputs"]),
        lambda arrays, about: arrays.update(outputs=arrays["outputs"] * np.float32(np.nan)),
        lambda arrays, about: arrays.update(entering=arrays["entering"][:, :-1]),
        lambda arrays, about: arrays.pop("leaving"),
        lambda arrays, about: arrays.update(more=np.zeros(3)),
    ],
)
def test_a_pass_that_does_not_fit_is_a_miss(
    passes: KeptPasses,
    backend: ModelBackend,
    inputs: Array,
    change: Callable[[dict[str, Array], dict[str, Any]], object],
) -> None:
    _rewrite(passes, change)
    assert is_missed(passes, backend, inputs)


def test_a_link_is_a_miss_and_what_it_leads_to_stays(
    passes: KeptPasses, backend: ModelBackend, inputs: Array, tmp_path: Path
) -> None:
    own = file_of(passes)
    own.rename(tmp_path / "elsewhere.npz")
    own.symlink_to(tmp_path / "elsewhere.npz")
    before = (tmp_path / "elsewhere.npz").read_bytes()
    assert is_missed(passes, backend, inputs)
    assert (tmp_path / "elsewhere.npz").read_bytes() == before


def test_a_folder_that_is_a_link_or_open_to_others_is_not_used(
    passes: KeptPasses, backend: ModelBackend, inputs: Array, tmp_path: Path
) -> None:
    passes.folder.chmod(0o755)
    assert is_missed(passes, backend, inputs)
    passes.folder.chmod(0o700)
    passes.folder.parent.chmod(0o777)
    assert is_missed(passes, backend, inputs)
    passes.folder.parent.chmod(0o755)
    passes.folder.rename(tmp_path / "elsewhere")
    passes.folder.symlink_to(tmp_path / "elsewhere")
    held = sorted((tmp_path / "elsewhere").iterdir())
    assert is_missed(passes, backend, inputs)
    assert (passes.sizes(), passes.clear()) == ({}, 0)
    assert sorted((tmp_path / "elsewhere").iterdir()) == held


def test_no_verdict_rests_on_a_kept_pass(place: Path, backend: ModelBackend) -> None:
    """Outputs that lie about every input but those that are tried are found out before the verdict."""
    data = arachne.read_data(place / "digits.npz")
    honest = engine.repair(backend, data, "top:1")
    passes = KeptPasses(kept_passes.passes_folder() or place)
    passes.run(backend, data.inputs)

    def lie(arrays: dict[str, Array], about: dict[str, Any]) -> None:
        tried = np.unique(np.linspace(0, len(data) - 1, kept_passes.PROBES).astype(np.int64))
        others = np.setdiff1d(honest.split.held_out.rows, tried)[:50]
        arrays["outputs"][others] = np.roll(arrays["outputs"][others], 1, axis=1)

    _rewrite(passes, lie)
    with keeping_passes():
        result = engine.repair(backend, data, "top:1")
    part = result.split.held_out
    np.testing.assert_allclose(part.outputs, backend.forward(part.data.inputs), rtol=1e-4, atol=1e-4)
    assert result.evidence.held_out.positives == int((part.predictions == part.labels).sum())


def test_parts_stay_as_they_are_where_no_pass_was_found(place: Path, backend: ModelBackend) -> None:
    result = engine.repair(backend, arachne.read_data(place / "digits.npz"), "top:1", settings=None)
    part = replace(result.split.held_out, outputs=result.split.held_out.outputs * 2)
    with keeping_passes():
        assert confirm_held_out(backend, part) is part


def test_the_oldest_pass_goes_first(
    passes: KeptPasses, backend: ModelBackend, inputs: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(passes.sizes().values())
    monkeypatch.setattr(kept_passes, "MAX_BYTES", int(2.5 * size))
    first = file_of(passes)
    os.utime(first, (1, 1))
    passes.run(backend, inputs[:-1])
    second = [name for name in passes.sizes() if name != first.name]
    passes.run(backend, inputs)  # used, so the second is the oldest now
    os.utime(passes.folder / second[0], (2, 2))
    passes.run(backend, inputs[:-2])
    assert first.name in passes.sizes()
    assert second[0] not in passes.sizes()
    assert sum(passes.sizes().values()) <= kept_passes.MAX_BYTES


def test_a_pass_that_is_too_large_or_cannot_be_written_is_not_kept(
    place: Path, backend: ModelBackend, inputs: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = KeptPasses(place / "home" / "arachne" / "passes")
    monkeypatch.setattr(kept_passes, "MAX_PASS_BYTES", 10)
    passes.run(backend, inputs)
    assert passes.sizes() == {}
    monkeypatch.undo()
    (place / "file").write_text("")
    assert KeptPasses(place / "file" / "passes").run(backend, inputs)[1] is not None


def test_the_cache_is_shown_and_cleared(passes: KeptPasses, capsys: pytest.CaptureFixture[str]) -> None:
    (passes.folder / "mine.npz").write_bytes(b"no pass")
    assert run(["cache"]) == 0
    assert capsys.readouterr().out.startswith(f"1 pass in '{passes.folder}', ")
    assert run(["cache", "--clear"]) == 0
    assert capsys.readouterr().out.startswith("removed 1 pass in ")
    assert [path.name for path in passes.folder.iterdir()] == ["mine.npz"]


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless(cls: type[Path]) -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", classmethod(homeless))
    assert kept_passes.passes_folder() is None
    with keeping_passes():
        assert kept_passes._CURRENT.get() is None
    with pytest.raises(EnvironmentFaultError, match="no home for passes"):
        run_cache()


def run_cache() -> None:
    from arachne.cli.cache import command

    command.main([], standalone_mode=False)


class _Changed:
    """A block in which one weight of a layer is another."""

    def __init__(self, backend: ModelBackend, layer: str) -> None:
        self._backend, self._layer = backend, layer
        self._own = backend.get_weights(layer)["weight"].copy()

    def __enter__(self) -> None:
        other = self._own.copy()
        other[0, 0] += 1
        self._backend.set_weights(self._layer, "weight", other)

    def __exit__(self, *error: object) -> None:
        self._backend.set_weights(self._layer, "weight", self._own)
