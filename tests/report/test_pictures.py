from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from arachne.data.labelled import LabelledData
from arachne.data.layout import picture_layout
from arachne.model.values import Array
from arachne.report.pictures import LONGEST_TEXT, show_inputs

DIGITS: Array = load_digits().data.astype(np.float32)[:300] / 16
RNG = np.random.default_rng(0)


def decode(source: str) -> Array:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))


def label_inputs(inputs: Array, **more: Array) -> LabelledData:
    return LabelledData(inputs, np.zeros(len(inputs)), columns=more)


@pytest.mark.parametrize(
    ("inputs", "layout"),
    [
        (DIGITS, (8, 8)),
        (DIGITS.reshape(-1, 8, 8), (8, 8)),
        (DIGITS.reshape(-1, 1, 8, 8), (1, 8, 8)),
        (DIGITS.reshape(-1, 8, 8, 1), (8, 8, 1)),
        (np.repeat(DIGITS.reshape(-1, 1, 8, 8), 3, axis=1).reshape(-1, 192), (3, 8, 8)),
        (np.repeat(DIGITS.reshape(-1, 8, 8, 1), 3, axis=3).reshape(-1, 192), (8, 8, 3)),
        (RNG.normal(size=(300, 64)), None),
        (RNG.normal(size=(300, 17)), None),
        (RNG.normal(size=(300, 20, 30)), None),
        (RNG.normal(size=(300, 2, 100)), None),
    ],
)
def test_pictures_are_recognised_by_shape_and_likeness(inputs: Array, layout: tuple[int, ...] | None) -> None:
    assert picture_layout(inputs) == layout


def test_a_picture_is_stored_pixel_by_pixel() -> None:
    (shown,) = show_inputs(label_inputs(DIGITS), [5])
    np.testing.assert_array_equal(decode(shown["src"]), np.round(DIGITS[5].reshape(8, 8) * 255))


def test_bytes_stay_as_they_are_and_normalised_values_are_stretched() -> None:
    pixels = RNG.integers(0, 256, (50, 3, 16, 16))
    (shown,) = show_inputs(label_inputs(pixels.astype(np.uint8)), [2])
    np.testing.assert_array_equal(decode(shown["src"]), np.moveaxis(pixels[2], 0, -1))
    (stretched,) = show_inputs(label_inputs((pixels - 128.0) / 64), [2])
    assert np.abs(decode(stretched["src"]).astype(int) - np.moveaxis(pixels[2], 0, -1)).max() <= 2


def test_large_pictures_become_small() -> None:
    (shown,) = show_inputs(label_inputs(RNG.random((3, 3, 300, 200))), [0])
    assert (shown["width"], shown["height"]) == (85, 128)
    assert shown["src"].startswith("data:image/jpeg")
    assert len(shown["src"]) < 40_000


def test_a_text_column_is_shown_as_text() -> None:
    data = label_inputs(RNG.integers(0, 9, (3, 5)), text=np.array(["one", "<b>two</b>", "x" * 900]))
    first, second = show_inputs(data, [1, 2])
    assert first == {"kind": "text", "text": "<b>two</b>"}
    assert len(second["text"]) == LONGEST_TEXT


def test_token_ids_are_shown_without_their_padding() -> None:
    (shown,) = show_inputs(label_inputs(np.array([[5, 0, 7, 0, 0], [1, 2, 3, 4, 5]])), [0])
    assert shown == {"kind": "text", "text": "tokens 5 0 7"}


def test_signals_become_curves_and_tables_rows() -> None:
    (signal,) = show_inputs(label_inputs(np.cumsum(RNG.normal(size=(20, 2, 500)), axis=2)), [0])
    assert signal["kind"] == "curve"
    assert [len(curve) for curve in signal["curves"]] == [100, 100]
    (row,) = show_inputs(label_inputs(np.arange(45.0).reshape(3, 15)[:, ::-1] * 1e6), [0])
    assert row["kind"] == "values"
    assert row["values"][0] == ["0", "14000000"]
    assert (len(row["values"]), row["more"]) == (12, 3)


def test_of_several_inputs_the_picture_is_shown() -> None:
    data = LabelledData({"age": RNG.normal(size=(300, 2)), "photo": DIGITS}, np.zeros(300))
    (shown,) = show_inputs(data, [0])
    assert shown["kind"] == "image"


def test_no_rows_show_nothing() -> None:
    assert show_inputs(label_inputs(DIGITS[:0]), []) == []
