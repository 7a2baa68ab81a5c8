"""Pictures with masks: the forms of folders, and what is refused of them in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arachne.data.read import read_data
from arachne.data.unlabelled import read_unlabelled
from arachne.errors import DataError
from arachne.model.values import Array
from arachne.tasks import Segmentation

MASK = np.array([[0, 0, 1, 1], [0, 2, 1, 255]], np.uint8)


def write_pair(picture: Path, mask: Path, numbers: Array = MASK, palette: bool = False) -> None:
    for path in (picture, mask):
        path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 2), (200, 10, 10)).save(picture)
    image = Image.fromarray(numbers)
    if palette:
        image.putpalette(list(range(256)) * 3)
    image.save(mask)


@pytest.mark.parametrize("palette", [False, True])
@pytest.mark.parametrize(
    ("picture", "mask"),
    [
        ("images/a.png", "masks/a.png"),
        ("images/deep/a.jpg", "masks/deep/a.png"),
        ("JPEGImages/a.jpg", "SegmentationClass/a.png"),
        ("a.jpg", "a_mask.png"),
        ("a.png", "a.mask.png"),
    ],
)
def test_masks_are_found_by_name(tmp_path: Path, picture: str, mask: str, palette: bool) -> None:
    write_pair(tmp_path / picture, tmp_path / mask, palette=palette)
    (tmp_path / "classes.txt").write_text("road\nsidewalk\nsky\n")
    data = read_data(tmp_path, task=Segmentation(), preprocess="scale=1/255 layout=nchw")
    assert data.class_names == ("road", "sidewalk", "sky")
    assert np.asarray(data.inputs).shape == (1, 3, 2, 4)
    np.testing.assert_array_equal(data.labels[0], MASK)
    assert len(read_unlabelled(tmp_path)) == 1


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("resize=4x8", MASK.repeat(2, axis=0).repeat(2, axis=1)),
        ("resize=1x2", [[2, 255]]),  # the pixels in the middle
        ("shorter=4", MASK.repeat(2, axis=0).repeat(2, axis=1)),
        ("crop=2x2", MASK[:, 1:3]),
        ("letterbox=4", [[255] * 4, *MASK.tolist(), [255] * 4]),
        ("grey", MASK),
    ],
)
def test_masks_follow_their_pictures(tmp_path: Path, steps: str, expected: Array) -> None:
    write_pair(tmp_path / "images" / "a.png", tmp_path / "masks" / "a.png")
    data = read_data(tmp_path, task=Segmentation(), preprocess=steps)
    np.testing.assert_array_equal(data.labels[0], expected)
    assert np.asarray(data.inputs).shape[1:3] == data.labels.shape[1:]


def test_black_and_white_masks_are_of_two_classes(tmp_path: Path) -> None:
    write_pair(tmp_path / "a.png", tmp_path / "a_mask.png", (255 * (MASK > 0)).astype(np.uint8))
    np.testing.assert_array_equal(read_data(tmp_path, task=Segmentation()).labels[0], MASK > 0)


def test_a_class_folder_with_masks_among_its_names_stays_one(tmp_path: Path) -> None:
    write_pair(tmp_path / "with" / "a.png", tmp_path / "with" / "a_mask.png")
    write_pair(tmp_path / "without" / "b.png", tmp_path / "without" / "c.png")
    assert read_data(tmp_path).class_names == ("with", "without")


def test_what_is_refused(tmp_path: Path) -> None:
    write_pair(tmp_path / "images" / "a.png", tmp_path / "masks" / "a.png")
    write_pair(tmp_path / "images" / "b.png", tmp_path / "elsewhere.png")
    (tmp_path / "elsewhere.png").unlink()
    with pytest.raises(DataError, match=r"'.*b\.png' has no mask \(1 of 2 pictures have none\)"):
        read_data(tmp_path, task=Segmentation())
    (tmp_path / "images" / "b.png").unlink()
    write_pair(tmp_path / "elsewhere.png", tmp_path / "masks" / "c.png")
    with pytest.raises(DataError, match=r"the mask '.*c\.png' has no picture"):
        read_data(tmp_path, task=Segmentation())
    (tmp_path / "masks" / "c.png").unlink()
    Image.new("L", (5, 2)).save(tmp_path / "masks" / "a.png")
    with pytest.raises(DataError, match=r"is 2x5, its picture 'a\.png' 2x4; expected one size"):
        read_data(tmp_path, task=Segmentation())
    Image.new("RGB", (4, 2), (1, 2, 3)).save(tmp_path / "masks" / "a.png")
    with pytest.raises(DataError, match="has colours, expected one class number for each pixel"):
        read_data(tmp_path, task=Segmentation())
    (tmp_path / "masks" / "a.png").unlink()
    Image.fromarray(np.full((2, 4), -2, np.int32)).save(tmp_path / "masks" / "a.tiff")
    with pytest.raises(DataError, match=r"the mask '.*a\.tiff' has the class number -2, expected 0 or more"):
        read_data(tmp_path, task=Segmentation())
    (tmp_path / "masks" / "a.tiff").unlink()
    (tmp_path / "masks" / "a.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"the mask '.*a\.png' is no picture of PNG, BMP, TIFF or GIF"):
        read_data(tmp_path, task=Segmentation())
