"""Data frames of pandas and polars, with the real packages; skipped by name where one is missing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from arachne.data.read import read_data
from arachne.errors import DataError

FRAME_ROWS = load_digits().data[:60]
LABELS = load_digits().target[:60]


@pytest.fixture(params=["pandas", "polars"])
def package(request: pytest.FixtureRequest) -> Any:
    """Each package in turn; what is called here they have in common."""
    return pytest.importorskip(request.param)


def digits(package: Any, **more: Any) -> Any:
    """The digits as a frame of 64 columns, and further ones."""
    return package.DataFrame({**{f"p{i}": FRAME_ROWS[:, i] for i in range(64)}, **more})


def test_a_frame_is_features_labels_and_metadata(package: Any) -> None:
    site = ["a" if i % 2 else "b" for i in range(60)]
    data = read_data(digits(package, label=LABELS, meta_site=site, meta_age=[None, *range(59)]))
    np.testing.assert_array_equal(data.inputs, FRAME_ROWS.astype(np.float32))
    np.testing.assert_array_equal(data.labels, LABELS)
    assert data.columns["site"].tolist() == site
    assert len(data.columns["age"]) == 60


def test_labels_may_stand_beside_a_frame(package: Any) -> None:
    for labels in (package.Series(LABELS), LABELS, LABELS.tolist()):
        data = read_data((digits(package), labels), limit=50)
        np.testing.assert_array_equal(data.labels, LABELS[:50])
        assert data.inputs.shape == (50, 64)  # type: ignore[union-attr]


def test_names_are_numbered_in_the_order_of_a_categorical(package: Any) -> None:
    words = ["stop", "go", "stop", "slow"]
    if package.__name__ == "pandas":
        column = package.Categorical(words, categories=["slow", "go", "stop"])
    else:
        column = package.Series(words, dtype=package.Enum(["slow", "go", "stop"]))
    data = read_data(package.DataFrame({"speed": [0.0, 30.0, 1.0, 9.0], "label": column}))
    assert data.class_names == ("slow", "go", "stop")
    assert data.labels.tolist() == [2, 1, 2, 0]


def test_cells_may_hold_whole_inputs(package: Any) -> None:
    data = read_data(package.DataFrame({"pixels": FRAME_ROWS.tolist(), "y": LABELS}))
    np.testing.assert_array_equal(data.inputs, FRAME_ROWS.astype(np.float32))


def test_a_lazy_frame_is_collected() -> None:
    polars = pytest.importorskip("polars")
    assert len(read_data(digits(polars, y=LABELS).lazy(), limit=7)) == 7


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"a": [1.0, 2.0]}, "the data frame has no column 'label' or 'y'; its columns: a"),
        ({"a": ["x", "z"], "y": [0, 1]}, "column 'a' of the data frame has 'x' in row 0, expected a number; call it"),
        ({"a": [1.0, 2.0], "y": ["cat", None]}, "row 1 has no label"),
        ({"a": [], "y": []}, "the data frame has no rows"),
        ({"y": [0, 1]}, "no columns of features beside 'y'"),
    ],
)
def test_what_cannot_be_read_is_said(package: Any, columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read_data(package.DataFrame(columns))


def test_two_sets_of_labels_are_refused(package: Any) -> None:
    with pytest.raises(DataError, match="beside a data frame with a column 'y'"):
        read_data((digits(package, y=LABELS), LABELS))
    with pytest.raises(DataError, match="60 rows, and there are 59 labels"):
        read_data((digits(package), LABELS[:-1]))


def test_reading_a_frame_of_one_package_imports_no_other() -> None:
    pytest.importorskip("pandas")
    code = (
        "import sys, pandas; from arachne.data.read import read_data; "
        "read_data(pandas.DataFrame({'a': [1.0, 2.0], 'y': [0, 1]})); print('polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
