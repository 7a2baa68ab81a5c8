"""A repair on data that is read by piece gives the same patch, byte for byte, and holds no more than it may."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arachne.causes import find_causes, finding
from arachne.data.labelled import LabelledData
from arachne.data.lazy import spill_file as spill
from arachne.data.read import read_data
from arachne.engine import repair
from arachne.errors import DataError, EnvironmentFaultError
from arachne.evidence.scan import Scan
from arachne.model import cut as cuts
from arachne.model.lazy import LazyArray, Source, as_array, is_lazy
from arachne.model.values import Array
from arachne.patch import Patch
from arachne.report.pictures import difference_of_means, show_inputs
from arachne.results.measure import measure
from arachne.scoring.tail_cache import TailCache
from arachne.search import DifferentialEvolution, Pool
from arachne.search.base import Searcher
from arachne.search.low_rank import LowRank
from arachne.search.margin import MarginConv, MarginSearch
from arachne.settings import Settings
from arachne.testing import ReferenceBackend, convnet, mlp

STEPS = "scale=1/16 flatten"
HELD = 100_000
"""Bytes that may be held; the digits take 460,032."""


def pixels(digits: LabelledData) -> Array:
    return np.asarray(16 * np.asarray(digits.inputs)).astype(np.uint8).reshape(-1, 8, 8)


def as_npy(folder: Path, digits: LabelledData) -> Path:
    np.save(folder / "x.npy", pixels(digits))
    np.save(folder / "y.npy", digits.labels)
    return folder


def as_npz(folder: Path, digits: LabelledData) -> Path:
    np.savez(folder / "data.npz", x=pixels(digits), y=digits.labels)
    return folder / "data.npz"


def as_parquet(folder: Path, digits: LabelledData) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    lists = pixels(digits).reshape(-1, 64)
    for number, part in enumerate(np.array_split(np.arange(len(digits)), 3)):
        table = pyarrow.table({"x": list(lists[part]), "y": digits.labels[part]})
        parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=200)
    return folder


def as_pictures(folder: Path, digits: LabelledData) -> Path:
    lines = ["path,label"]
    for row, (picture, label) in enumerate(zip(pixels(digits), digits.labels.tolist(), strict=True)):
        Image.fromarray(picture).save(folder / f"{row:04}.png")
        lines.append(f"{row:04}.png,{label}")
    (folder / "table.csv").write_text("\n".join(lines), "utf-8")
    return folder / "table.csv"


@pytest.fixture(autouse=True)
def to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nothing in memory that may go to a file, and look at causes in all of the data."""
    monkeypatch.setattr(spill, "SPILL_ABOVE_BYTES", 0)
    monkeypatch.setattr(spill, "SPILL_COLUMNS_ABOVE_BYTES", 0)
    monkeypatch.setattr("arachne.scoring.tail_cache.SPILL_ABOVE_BYTES", 0)
    monkeypatch.setattr(cuts, "MAX_OPEN_SHARDS", 1)


@pytest.mark.parametrize("make", [as_npy, as_npz, as_parquet, as_pictures])
def test_every_source_gives_the_same_patch_read_by_piece(
    make: Callable[[Path, LabelledData], Path], tmp_path: Path, model: ReferenceBackend, digits: LabelledData
) -> None:
    path = make(tmp_path, digits)
    held, by_piece = read_data(path, preprocess=STEPS), read_data(path, preprocess=STEPS, memory=HELD)
    assert is_lazy(by_piece.inputs)
    settings = Settings(searcher=MarginSearch(folds=3, steps=24))
    texts = [repair(model, data, "8:1", settings=settings).patch.to_json() for data in (held, by_piece)]
    assert texts[0] == texts[1]
    assert len(Patch.from_json(texts[0])) > 0


def test_a_pool_of_searches_gives_the_same_patch_read_by_piece(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData
) -> None:
    path = as_npy(tmp_path, digits)
    held, by_piece = read_data(path, preprocess=STEPS), read_data(path, preprocess=STEPS, memory=HELD)
    settings = Settings(searcher=Pool(members=("bias", "erase", "margin", "margin@hidden", "low-rank")))
    little = replace(settings, memory=HELD)
    results = [
        repair(model, data, "8:1", settings=own, never_break=data.take(range(40)))
        for data, own in ((held, settings), (by_piece, little))
    ]
    assert results[0].patch.to_json() == results[1].patch.to_json()
    assert results[0].evidence.held_out.repaired == results[1].evidence.held_out.repaired > 0


def test_differential_evolution_gives_the_same_patch_read_by_piece_within_little_memory(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData
) -> None:
    path = as_npy(tmp_path, digits)
    held, by_piece = read_data(path, preprocess=STEPS), read_data(path, preprocess=STEPS, memory=HELD)
    searcher = DifferentialEvolution(population=12, generations=5)
    texts = [
        repair(model, data, "8:1", settings=Settings(searcher=searcher, memory=memory)).patch.to_json()
        for data, memory in ((held, 1 << 30), (by_piece, HELD))
    ]
    assert texts[0] == texts[1]


def test_convolutions_are_searched_shard_by_shard(tmp_path: Path) -> None:
    backend, rng = ReferenceBackend(convnet(seed=0)), np.random.default_rng(0)
    inputs = rng.standard_normal((2200, 1, 8, 8)).astype(np.float32)
    labels = backend.predict(inputs)
    wrong = rng.choice(len(inputs), 150, replace=False)
    labels[wrong] = (labels[wrong] + 1) % 3
    np.save(tmp_path / "x.npy", inputs)
    np.save(tmp_path / "y.npy", labels)
    settings = Settings(searcher=MarginConv(folds=2, steps=8))
    texts = [
        repair(backend, read_data(tmp_path, memory=memory), "*:*", settings=settings).patch.to_json()
        for memory in (1 << 30, HELD)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "searcher",
    [MarginConv(folds=2, steps=8), LowRank(folds=2, steps=8), MarginSearch(folds=2, steps=8)],
    ids=lambda searcher: str(searcher.name),
)
def test_members_hold_no_more_activations_than_a_repair_may(
    searcher: Searcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs are in memory; what enters a cut or the dense tail is not, where it takes more than it may."""
    monkeypatch.setattr(cuts, "MAX_OPEN_SHARDS", 8)
    backend, rng = ReferenceBackend(convnet(seed=0)), np.random.default_rng(0)
    inputs = rng.standard_normal((2200, 1, 8, 8)).astype(np.float32)
    labels = backend.predict(inputs)
    wrong = rng.choice(len(inputs), 150, replace=False)
    labels[wrong] = (labels[wrong] + 1) % 3
    opened: list[int] = []
    whole_shard = cuts.LazyCut._shard

    def count_open(self: cuts.LazyCut, number: int) -> cuts.Cut:
        found = whole_shard(self, number)
        opened.append(len(self._open))
        return found

    monkeypatch.setattr(cuts.LazyCut, "_shard", count_open)
    data, results = LabelledData(inputs, labels), []
    for memory in (1 << 30, 1 << 16):
        assert not opened
        results.append(repair(backend, data, "*:*", settings=Settings(searcher=searcher, memory=memory)))
    roomy, tight = results
    assert roomy.patch.digest == tight.patch.digest
    tails = [one.split.seen.cached_activations for one in results]
    assert all(isinstance(tail, TailCache) for tail in tails)
    assert [is_lazy(tail._first[0]) for tail in tails if isinstance(tail, TailCache)] == [False, True]
    if searcher.name == MarginConv.name:
        assert max(opened) == 1


def test_a_scan_finds_the_same_read_by_piece(tmp_path: Path, model: ReferenceBackend, digits: LabelledData) -> None:
    path = as_npy(tmp_path, digits)
    scans = []
    for memory in (1 << 30, HELD):
        data = read_data(path, preprocess=STEPS, memory=memory)
        scores = model.forward(data.inputs)
        scans.append(Scan(data, np.argmax(scores, axis=1), 10, model, scores))
    held, by_piece = scans
    assert by_piece.faults == held.faults
    assert [cause.to_json() for cause in by_piece.causes] == [cause.to_json() for cause in held.causes]


def test_causes_found_among_some_lazy_inputs_are_counted_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.random((6000, 12)).astype(np.float32)
    labels = rng.integers(0, 4, len(inputs))
    marked = rng.random(len(inputs)) < 0.1
    inputs[marked, 5] = 2.5
    predictions = np.where(marked, 0, labels)
    np.save(tmp_path / "x.npy", inputs)
    np.save(tmp_path / "y.npy", labels)
    monkeypatch.setattr(finding, "MAX_LAZY_BYTES", 3000 * 48)
    data = read_data(tmp_path, memory=1000)
    assert len(finding.searched_rows(data)) == 3000
    (cause,) = find_causes(None, data, predictions)
    assert np.array_equal(np.sort(cause.members), np.flatnonzero(marked & (labels != 0)))


def test_a_patch_is_measured_the_same_read_by_piece(
    tmp_path: Path, model: ReferenceBackend, digits: LabelledData
) -> None:
    path = as_npy(tmp_path, digits)
    held, by_piece = read_data(path, preprocess=STEPS), read_data(path, preprocess=STEPS, memory=HELD)
    patch = repair(model, held, "8:1", settings=Settings(searcher=MarginSearch(folds=3, steps=24))).patch
    one, other = (measure(model, data, target="8:1", patch=patch) for data in (held, by_piece))
    assert str(one.held_out.target) == str(other.held_out.target)
    assert (one.held_out.repaired, one.held_out.broken) == (other.held_out.repaired, other.held_out.broken)
    assert one.verdict == other.verdict


class Noise(Source):
    """Inputs that are made when they are read, and would take 160 MB together."""

    def __init__(self, n: int, width: int) -> None:
        self.n, self.kinds = n, {"": ((width,), np.dtype(np.float32))}
        self._few = np.random.default_rng(0).standard_normal((64, width)).astype(np.float32)

    def read(self, name: str, rows: Array) -> Array:
        return np.asarray(self._few[rows % 64] + (rows[:, None] // 64).astype(np.float32))

    def describe(self, rows: Array) -> dict[str, object]:
        raise DataError("it lives here")


def test_no_operation_holds_more_than_a_few_pieces() -> None:
    source = Noise(20_000, 2000)
    inputs = as_array(LazyArray(source))
    data = LabelledData(inputs, np.arange(source.n) % 10)
    backend = ReferenceBackend(mlp([2000, 10], seed=0))
    tracemalloc.start()
    try:
        backend.forward(data.take(np.arange(1, source.n, 2)).inputs)
        data.sha256()
        assert len(data.hashes) == source.n
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert inputs.nbytes == 160_000_000
    assert peak < 60_000_000


def test_a_full_disk_is_told_where_numbers_go_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(EnvironmentFaultError, match="no room for"):
        spill.RowBuffer(1000, 1000, spill=True)


def test_numbers_in_a_file_are_those_that_were_written() -> None:
    values = np.random.default_rng(0).standard_normal((500, 7)).astype(np.float32)
    filled = spill.RowBuffer(500, 7, spill=True)
    for start in range(0, 500, 100):
        filled[start : start + 100] = values[start : start + 100]
    assert is_lazy(filled.array)
    rows = np.array([499, 3, 3, 250])
    assert np.array_equal(filled.array[rows], values[rows])
    assert np.array_equal(np.asarray(filled.array), values)


def test_pictures_of_a_page_are_the_same_read_by_piece(
    tmp_path: Path, digits: LabelledData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arachne.report.pictures.AT_ONCE", 100)
    path = as_npy(tmp_path, digits)
    held, by_piece = (read_data(path, preprocess="scale=1/16", memory=memory) for memory in (1 << 30, HELD))
    assert is_lazy(by_piece.inputs)
    rows, others = np.flatnonzero(digits.labels == 3).tolist(), np.flatnonzero(digits.labels == 8).tolist()
    assert difference_of_means(by_piece, rows, others) == difference_of_means(held, rows, others) is not None
    assert show_inputs(by_piece, [4, 1700]) == show_inputs(held, [4, 1700])
