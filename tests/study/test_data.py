from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from examples.study import data, sources


def sheet(tiles: np.ndarray, columns: int) -> np.ndarray:
    """Tiles `(n, 3, side, side)` as the bytes of one lossless picture, row by row."""
    n, _, side, _ = tiles.shape
    grid = np.zeros((-(-n // columns) * columns, 3, side, side), np.uint8)
    grid[:n] = tiles
    rows = grid.reshape(-1, columns, 3, side, side).transpose(0, 3, 1, 4, 2).reshape(-1, columns * side, 3)
    stream = io.BytesIO()
    Image.fromarray(rows).save(stream, "PNG")
    return np.frombuffer(stream.getvalue(), np.uint8)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, np.ndarray]]:
    """A data folder with a small file in the place and the form of GTSRB's."""
    rng = np.random.default_rng(0)
    tiles = {name: rng.integers(0, 256, (n, 3, 8, 8), np.uint8) for name, n in (("train", 10), ("test", 7))}
    labels = {name: rng.integers(0, 3, len(tiles[name]), np.uint8) for name in tiles}
    path = tmp_path / "gtsrb.npz"
    np.savez(
        path,
        tile=8,
        class_names=["a", "b", "c"],
        track_train=np.arange(10, dtype=np.uint16) // 3,
        **{f"x_{name}_img": sheet(tiles[name], 4) for name in tiles},  # type: ignore[arg-type]  # numpy types no names
        **{f"y_{name}": labels[name] for name in labels},  # type: ignore[arg-type]  # numpy types no names
    )
    monkeypatch.setenv("ARACHNE_DATA", str(tmp_path))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(sources, "GTSRB", sources.Source("gtsrb.npz", digest, "made here"))
    return path, tiles


def test_tiles_come_back_in_order(stored: tuple[Path, dict[str, np.ndarray]]) -> None:
    loaded = data.gtsrb()
    np.testing.assert_array_equal(loaded.train, stored[1]["train"])
    np.testing.assert_array_equal(loaded.test, stored[1]["test"])
    assert loaded.class_names == ("a", "b", "c")
    assert loaded.train_labels.shape == (10,)


def test_a_track_is_told_apart_from_the_same_number_of_another_class(
    stored: tuple[Path, dict[str, np.ndarray]],
) -> None:
    loaded = data.gtsrb()
    assert loaded.train_groups is not None
    pairs = set(zip(loaded.train_labels.tolist(), (np.arange(10) // 3).tolist(), strict=True))
    assert len(np.unique(loaded.train_groups)) == len(pairs)


def test_another_file_is_refused_with_where_to_get_the_right_one(stored: tuple[Path, dict[str, np.ndarray]]) -> None:
    changed = sources.Source("gtsrb.npz", "0" * 64, "get it from its makers")
    with pytest.raises(sources.SourceError, match=r"sha256 0000.*get it from its makers"):
        changed.path()


def test_a_missing_file_is_told_with_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARACHNE_DATA", str(tmp_path))
    with pytest.raises(sources.SourceError, match=r"cifar10\.npz.*cs\.toronto\.edu"):
        data.cifar10()


def test_no_group_is_on_both_sides() -> None:
    groups = np.random.default_rng(0).integers(0, 30, 400)
    kept, aside = data.side_by_group(groups, 400, 0.25, np.random.default_rng(1))
    assert sorted([*kept, *aside]) == list(range(400))
    assert set(groups[kept]).isdisjoint(groups[aside])
    assert 60 <= len(aside) <= 100


def test_rows_without_groups_are_set_aside_one_by_one() -> None:
    kept, aside = data.side_by_group(None, 50, 0.1, np.random.default_rng(1))
    assert (len(kept), len(aside)) == (45, 5)


@pytest.mark.skipif(not sources.FASHION.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_fashion_mnist_has_as_many_pictures_of_every_class() -> None:
    loaded = data.fashion()
    assert loaded.train.shape == (60000, 1, 28, 28)
    assert np.bincount(loaded.test_labels).tolist() == [1000] * 10


@pytest.mark.skipif(
    not sources.data_folder().is_dir(), reason="there is no folder of the real data sets (ARACHNE_DATA)"
)
def test_no_person_of_lfw_is_in_train_and_test() -> None:
    loaded = data.lfw()
    assert loaded.train.shape == (10586, 3, 64, 64)
    assert loaded.train_groups is not None
    assert set(loaded.train_groups).isdisjoint(loaded.test_columns["person"])


@pytest.mark.skipif(
    not sources.data_folder().is_dir(), reason="there is no folder of the real data sets (ARACHNE_DATA)"
)
def test_no_tweet_is_in_train_and_test() -> None:
    loaded = data.tweets()
    assert {row.tobytes() for row in loaded.train}.isdisjoint(row.tobytes() for row in loaded.test)
    assert loaded.train.max() < len(data.word_vectors())
