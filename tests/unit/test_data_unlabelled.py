from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arachne.data.unlabelled import UNKNOWN, read_unlabelled
from arachne.errors import DataError

X = np.arange(24, dtype=np.float32).reshape(6, 4)


def test_arrays_are_read_with_or_without_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "with.npz", x=X, y=np.arange(6))
    np.savez(tmp_path / "without.npz", x=X)
    np.save(tmp_path / "plain.npy", X)
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "x.npy", X)
    for name in ("with.npz", "without.npz", "plain.npy", "folder"):
        data = read_unlabelled(tmp_path / name)
        np.testing.assert_array_equal(data.inputs, X)
        assert set(data.labels.tolist()) == {UNKNOWN}


def test_several_arrays_stay_several(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", ids=X.astype(np.int64), mask=np.ones_like(X))
    data = read_unlabelled(str(tmp_path / "two.npz"), limit=3)
    assert isinstance(data.inputs, dict)
    assert {name: array.shape for name, array in data.inputs.items()} == {"ids": (3, 4), "mask": (3, 4)}


def test_pictures_are_found_at_any_depth(tmp_path: Path) -> None:
    for name in ("b.png", "deep/er/a.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (5, 4), (10, 20, 30)).save(path)
    data = read_unlabelled(tmp_path, preprocess="scale=1/255")
    assert data.names == ("b.png", "deep/er/a.png")
    np.testing.assert_allclose(np.asarray(data.inputs)[0, 0, 0], np.array([10, 20, 30]) / 255, rtol=1e-6)


def test_a_table_needs_no_label_column(tmp_path: Path) -> None:
    path = tmp_path / "traffic.csv"
    path.write_text("a,b\n1,2\n3,4\n", encoding="utf-8")
    assert np.asarray(read_unlabelled(path).inputs).shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "message"), [("nothing.npz", "does not exist"), ("empty", "no pictures"), ("x.txt", "cannot read inputs")]
)
def test_what_holds_no_inputs_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.txt").write_text("hello", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_unlabelled(tmp_path / name)
