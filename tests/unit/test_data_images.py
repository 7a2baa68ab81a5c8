from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arachne.data.read import read_data
from arachne.errors import DataError
from arachne.model.values import Array

RNG = np.random.default_rng(0)


def picture(path: Path, height: int = 6, width: int = 8, mode: str = "RGB", level: int | None = None) -> Array:
    """Write a picture and give its pixels `(height, width, 3)` or `(height, width)`."""
    shape = (height, width, 3) if mode in ("RGB", "P", "RGBA") else (height, width)
    pixels = RNG.integers(0, 256, shape).astype(np.uint8) if level is None else np.full(shape, level, np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image if mode in ("RGB", "L") else image.convert(mode)).save(path)
    return pixels


def test_folder_of_classes_is_read_in_sorted_order(tmp_path: Path) -> None:
    b = picture(tmp_path / "dog" / "b.png")
    a = picture(tmp_path / "dog" / "a.png")
    c = picture(tmp_path / "cat" / "c.PNG")
    (tmp_path / "dog" / "notes.txt").write_text("not a picture")
    (tmp_path / "dog" / ".hidden.png").write_text("not a picture")
    (tmp_path / ".cache").mkdir()
    data = read_data(tmp_path, n_classes=2)
    assert data.names == ("cat/c.PNG", "dog/a.png", "dog/b.png")
    assert (data.labels.tolist(), data.class_names) == ([0, 1, 1], ("cat", "dog"))
    assert np.array_equal(data.inputs, np.stack([c, a, b]))  # type: ignore[arg-type]  # one array
    assert data.inputs.dtype == np.uint8  # type: ignore[union-attr]  # one array
    assert data.columns == {}
    assert len(read_data(tmp_path, n_classes=2, limit=2)) == 2


def test_numbered_directories_are_class_numbers(tmp_path: Path) -> None:
    for number in ("00002", "10", "3"):
        picture(tmp_path / number / "a.png", mode="L")
    data = read_data(tmp_path, n_classes=11)
    assert data.labels.tolist() == [2, 10, 3]
    assert data.inputs.shape == (3, 6, 8, 1)  # type: ignore[union-attr]  # one array
    with pytest.raises(DataError, match="row 1 has the label 10, expected class numbers from 0 to 9"):
        read_data(tmp_path, n_classes=10)


def test_given_names_decide_and_unknown_directories_are_refused(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "a.png")
    picture(tmp_path / "dog" / "a.png")
    assert read_data(tmp_path, classes="dog,horse,cat").labels.tolist() == [2, 0]
    with pytest.raises(DataError, match="row 0 has the class 'cat', which is not among the class names"):
        read_data(tmp_path, classes="dog,horse,cow")
    with pytest.raises(DataError, match="available: 0, 1; give the names of the data in this order") as refused:
        read_data(tmp_path, classes="0,1")
    assert refused.value.argument == "classes"
    with pytest.raises(DataError, match=r"found 2 class names \(cat, dog\), but the model has 3 classes"):
        read_data(tmp_path, n_classes=3)


def test_an_empty_directory_is_a_class_too(tmp_path: Path) -> None:
    picture(tmp_path / "dog" / "a.png")
    (tmp_path / "cat").mkdir()
    assert read_data(tmp_path, n_classes=2).labels.tolist() == [1]


def test_nested_files_are_found_and_their_folder_is_a_column(tmp_path: Path) -> None:
    picture(tmp_path / "0" / "ann" / "1.png")
    picture(tmp_path / "0" / "bob" / "x" / "1.png")
    picture(tmp_path / "1" / "1.png")
    data = read_data(tmp_path)
    assert data.columns["folder"].tolist() == ["0/ann", "0/bob/x", "1"]


def test_parts_of_a_data_set_are_not_taken_for_classes(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "cat" / "a.png")
    picture(tmp_path / "val" / "cat" / "a.png")
    with pytest.raises(DataError, match=r"holds parts of a data set \(train, val\); name one"):
        read_data(tmp_path)
    assert len(read_data(tmp_path / "val", classes="cat,dog")) == 1


def test_grey_among_colour_becomes_colour_and_palettes_are_resolved(tmp_path: Path) -> None:
    grey = picture(tmp_path / "0" / "a.png", mode="L")
    picture(tmp_path / "0" / "b.png")
    picture(tmp_path / "0" / "c.png", mode="P")
    picture(tmp_path / "0" / "d.png", mode="RGBA")
    data = read_data(tmp_path)
    assert data.inputs.shape == (4, 6, 8, 3)  # type: ignore[union-attr]  # one array
    assert np.array_equal(data.inputs[0], np.repeat(grey[..., None], 3, axis=2))  # type: ignore[index]  # one array


def test_different_sizes_need_a_resize(tmp_path: Path) -> None:
    picture(tmp_path / "0" / "a.png", 6, 8, level=90)
    picture(tmp_path / "0" / "b.png", 10, 4, level=30)
    with pytest.raises(DataError, match=r"different sizes \(0/a.png is 6x8, 0/b.png is 10x4\); .* 'resize=N'"):
        read_data(tmp_path)
    data = read_data(tmp_path, preprocess="resize=5x7 scale=1/30 layout=nchw")
    assert data.inputs.shape == (2, 3, 5, 7)  # type: ignore[union-attr]  # one array
    assert np.allclose(data.inputs[0], 3)  # type: ignore[index]  # one array
    assert np.allclose(data.inputs[1], 1)  # type: ignore[index]  # one array
    assert read_data(tmp_path, preprocess="shorter=4 crop=4").inputs.shape == (2, 4, 4, 3)  # type: ignore[union-attr]  # one array


def test_wrong_files_are_listed_the_first_five(tmp_path: Path) -> None:
    picture(tmp_path / "0" / "good.png", 64, 64)
    whole = (tmp_path / "0" / "good.png").read_bytes()
    (tmp_path / "0" / "cut.png").write_bytes(whole[: len(whole) // 2])
    for number in range(6):
        (tmp_path / "0" / f"text{number}.jpg").write_text("hello")
    with pytest.raises(DataError) as caught:
        read_data(tmp_path)
    message = str(caught.value)
    assert message.startswith(
        "7 of 8 files cannot be read as pictures: 0/cut.png (truncated), 0/text0.jpg (not a picture)"
    )
    assert message.endswith("0/text3.jpg (not a picture), …")


@pytest.mark.parametrize("side", [8_000, 12_000, 60_000])
def test_a_picture_that_claims_to_be_huge_is_refused_before_it_is_decoded(tmp_path: Path, side: int) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "bomb.png").write_bytes(bomb)
    with pytest.raises(
        DataError, match=r"1 of 1 files cannot be read as pictures: 0/bomb.png \(.*more than 50,000,000"
    ):
        read_data(tmp_path)


def test_corrupted_pictures_never_show_a_traceback(tmp_path: Path) -> None:
    messages = []
    for suffix in ("png", "jpg", "bmp", "gif", "tiff", "webp", "ppm"):
        path = tmp_path / suffix / "0" / f"a.{suffix}"
        picture(path, 24, 24)
        whole = path.read_bytes()
        for seed in range(15):
            rng = np.random.default_rng(seed)
            broken = bytearray(whole)
            for position in rng.integers(0, min(len(whole), 200), 4):
                broken[position] = int(rng.integers(0, 256))
            path.write_bytes(bytes(broken))
            try:
                read_data(tmp_path / suffix)
            except DataError as error:
                messages.append(str(error))
    assert len(messages) > 20
    assert not any("\n" in message for message in messages)


def test_folders_without_classes_or_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no directories, expected one for each class"):
        read_data(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match="no pictures below"):
        read_data(tmp_path)
    picture(tmp_path / "cat" / "a.png")
    picture(tmp_path / "stray.png")
    with pytest.raises(DataError, match=r"pictures in .* lie outside the class directories: stray.png"):
        read_data(tmp_path)


def test_sixteen_bit_pictures_keep_their_depth(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    deep = RNG.integers(0, 2**16, (5, 5)).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "0" / "a.png")
    assert np.array_equal(np.asarray(read_data(tmp_path).inputs)[0, ..., 0], deep)
