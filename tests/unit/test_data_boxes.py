"""Pictures with boxes: YOLO folders, COCO files, and what is refused of them in one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arachne.data.image_steps import letterbox
from arachne.data.preprocess import Preprocess
from arachne.data.readers.coco import find_coco_file, read_coco
from arachne.data.readers.raw import RawData
from arachne.data.readers.yolo import label_folder, read_yolo_folder
from arachne.errors import DataError
from arachne.model.lazy import MEMORY
from arachne.tasks.detection.boxes import BOX, CLASS


def write_picture(path: Path, width: int = 40, height: int = 20) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), (200, 10, 10)).save(path)


def yolo(folder: Path, labels: Mapping[str, str], classes: str | None = "cat\ndog\n") -> Path:
    """A YOLO folder with a picture for each label text."""
    (folder / "labels").mkdir(parents=True)
    for name, text in labels.items():
        write_picture(folder / "images" / f"{name}.png")
        (folder / "labels" / f"{name}.txt").write_text(text)
    if classes is not None:
        (folder / "classes.txt").write_text(classes)
    return folder


def read_yolo(folder: Path, preprocess: str = "") -> RawData:
    return read_yolo_folder(folder, Preprocess.parse(preprocess), None, MEMORY)


def boxes_of(labels: Any, row: int = 0) -> list[list[float]]:
    """Class and box of each labelled box of a picture."""
    return [[*own[:1], *own[BOX]] for own in labels[row] if own[CLASS]]


def test_a_yolo_folder(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "d", {"a": "1 0.5 0.5 0.2 0.4\n\n0 0.25 0.25 0.5 0.5\n", "b": ""})
    write_picture(folder / "images" / "c.png")  # without a label file: no objects
    found = read_yolo(folder)
    assert found.class_names == ("cat", "dog")
    assert found.names == ("a.png", "b.png", "c.png")
    assert np.asarray(found.inputs).shape == (3, 20, 40, 3)
    np.testing.assert_allclose(boxes_of(found.labels), [[2, 0.5, 0.5, 0.2, 0.4], [1, 0.25, 0.25, 0.5, 0.5]])
    assert not boxes_of(found.labels, 1)
    assert not boxes_of(found.labels, 2)


def test_a_folder_below_images_has_its_labels_below_labels(tmp_path: Path) -> None:
    write_picture(tmp_path / "images" / "val" / "a.png")
    (tmp_path / "labels" / "val").mkdir(parents=True)
    (tmp_path / "labels" / "val" / "a.txt").write_text("0 .5 .5 .5 .5")
    assert label_folder(tmp_path / "images" / "val") == (tmp_path / "images" / "val", tmp_path / "labels" / "val")
    assert label_folder(tmp_path / "labels") is None
    assert len(boxes_of(read_yolo(tmp_path / "images" / "val").labels)) == 1
    assert len(boxes_of(read_yolo(tmp_path).labels)) == 1


def test_a_polygon_is_the_box_around_it(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "d", {"a": "0 0.1 0.2 0.5 0.2 0.3 0.8"})
    np.testing.assert_allclose(boxes_of(read_yolo(folder).labels), [[1, 0.3, 0.5, 0.4, 0.6]])


@pytest.mark.parametrize(
    "text",
    [
        "path: ../d\nnames: ['cat', \"big dog\"]\nnc: 2\n",
        "names: [cat, big dog]\n",
        "nc: 2\nnames:\n  0: cat\n  1: big dog\ntrain: images\n",
        "names:\n- cat\n- 'big dog'\n# end\n",
        "names: {0: cat, 1: big dog}\n",
        "names: [cat,\n  big dog]\nnc: 2\n",
    ],
)
def test_names_of_a_data_yaml(tmp_path: Path, text: str) -> None:
    folder = yolo(tmp_path / "d", {"a": "1 .5 .5 .5 .5"}, classes=None)
    (tmp_path / "d" / "data.yaml").write_text(text)
    assert read_yolo(folder).class_names == ("cat", "big dog")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0.9 0.5 0.5 0.5", "is outside its picture"),
        ("0 0.5 0.5 -0.5 0.5", "expected numbers above 0"),
        ("0 0.5 0.5 nan 0.5", "expected numbers above 0"),
        ("0 nan 0.5 .1 0.5", "expected numbers above 0"),
        ("0 0.5 0.5 0.5", "expected 4: x y width height"),
        ("0 0.5 0.5 0.5 .5 .9", "expected 4: x y width height"),
        ("cat 0.5 0.5 0.5 0.5", "expected a class number and 4 numbers"),
        ("2 0.5 0.5 0.5 0.5", "has the class 2, expected 0 to 1"),
        ("-1 0.5 0.5 0.5 0.5", "has the class -1, expected 0 to 1"),
        ("0 320 200 40 40", "is outside its picture"),
    ],
)
def test_lines_that_are_no_boxes(tmp_path: Path, line: str, message: str) -> None:
    folder = yolo(tmp_path / "d", {"a": f"0 .5 .5 .5 .5\n{line}\n"})
    with pytest.raises(DataError, match=message) as caught:
        read_yolo(folder)
    assert "line 2 of" in str(caught.value)


def test_labels_without_a_picture_are_refused(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "d", {"a": ""})
    (folder / "labels" / "gone.txt").write_text("0 .5 .5 .5 .5")
    with pytest.raises(DataError, match="has no picture"):
        read_yolo(folder)


def test_a_box_at_the_edge_is_cut_off(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "d", {"a": "0 0.1 0.5 0.204 0.5"})
    np.testing.assert_allclose(boxes_of(read_yolo(folder).labels), [[1, 0.101, 0.5, 0.202, 0.5]])


def test_boxes_follow_crops_and_letterboxes(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "d", {"a": "0 0.5 0.5 0.25 0.5\n1 0.05 0.5 0.1 0.5\n"})  # 40 x 20 pixels
    # The middle 20 x 20: the second box is cut away.
    np.testing.assert_allclose(boxes_of(read_yolo(folder, "crop=20").labels), [[1, 0.5, 0.5, 0.5, 0.5]])
    # Height 20 becomes 80, width 160; then the middle 80 x 80.
    np.testing.assert_allclose(boxes_of(read_yolo(folder, "shorter=80 crop=80").labels), [[1, 0.5, 0.5, 0.5, 0.5]])
    # 40 x 20 becomes 80 x 40 in 80 x 80, with 20 rows of grey above and below.
    found = read_yolo(folder, "letterbox=80")
    np.testing.assert_allclose(
        boxes_of(found.labels), [[1, 0.5, 0.5, 0.25, 0.25], [2, 0.05, 0.5, 0.1, 0.25]], atol=1e-12
    )
    pixels = np.asarray(found.inputs)[0]
    assert (pixels[:20] == 114).all()
    assert (pixels[20:60] == (200, 10, 10)).all()
    assert (pixels[60:] == 114).all()


def test_letterboxes_keep_the_layout() -> None:
    first = np.arange(2 * 3 * 4 * 8, dtype=np.float32).reshape(2, 3, 4, 8) / 192
    boxed = letterbox(first, 8, 8)
    assert boxed.shape == (2, 3, 8, 8)
    np.testing.assert_array_equal(boxed[:, :, 2:6], first)
    np.testing.assert_allclose(boxed[:, :, :2], 114 / 255)


def coco(folder: Path, **changes: Any) -> Path:
    """A COCO file with one picture of 40 x 20 pixels."""
    write_picture(folder / "images" / "a.png")
    content = {
        "images": [{"id": 7, "file_name": "a.png", "width": 40, "height": 20}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 9, "bbox": [10, 5, 20, 10], "iscrowd": 0},
            {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 40, 20], "iscrowd": 1},
        ],
        "categories": [{"id": 9, "name": "dog"}, {"id": 3, "name": "cat"}],
    }
    (folder / "annotations.json").write_text(json.dumps({**content, **changes}))
    return folder / "annotations.json"


def read(path: Path) -> RawData:
    return read_coco(path, Preprocess(), None, MEMORY)


def test_a_coco_file(tmp_path: Path) -> None:
    found = read(coco(tmp_path))
    assert found.class_names == ("cat", "dog")
    np.testing.assert_allclose(boxes_of(found.labels), [[2, 0.5, 0.5, 0.5, 0.5]])
    assert find_coco_file(tmp_path) == tmp_path / "annotations.json"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"annotations": [{"id": 1, "image_id": 7, "category_id": 9, "bbox": [30, 5, 20, 10]}]}, "outside its picture"),
        ({"annotations": [{"id": 1, "image_id": 7, "category_id": 9, "bbox": [1, 2, 3]}]}, "no 'bbox' of 4 numbers"),
        ({"annotations": [{"id": 1, "image_id": 7, "category_id": 1, "bbox": [1, 2, 3, 4]}]}, "its categories"),
        ({"annotations": [{"id": 1, "image_id": 8, "category_id": 9, "bbox": [1, 2, 3, 4]}]}, "not among its images"),
        ({"annotations": {"a": 1}}, "no lists 'images', 'annotations'"),
        ({"categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}, "a name each of its own"),
        ({"images": [{"id": 7, "file_name": "../a.png", "width": 40, "height": 20}]}, "expected one below its folder"),
        ({"images": [{"id": 7, "file_name": "b.png", "width": 40, "height": 20}]}, "neither beside it nor in 'images'"),
        ({"images": [{"id": 7, "file_name": "a.png", "width": 80, "height": 40}]}, "is 40x20 pixels, but"),
        ({"images": [{"id": "7", "file_name": "a.png", "width": 20, "height": 40}]}, "expected a whole number"),
    ],
)
def test_coco_files_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(coco(tmp_path, **changes))


def test_json_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"images": [1, ')
    with pytest.raises(DataError, match="cannot read annotations"):
        read(tmp_path / "a.json")


def test_a_folder_of_classes_with_a_json_file_stays_one(tmp_path: Path) -> None:
    write_picture(tmp_path / "cat" / "a.png")
    (tmp_path / "notes.json").write_text("{}")
    assert find_coco_file(tmp_path) is None
