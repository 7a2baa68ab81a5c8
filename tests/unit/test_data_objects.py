"""Data sets of other packages, with the real packages; each test is skipped by name where its package is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from arachne.data.read import read_data
from arachne.errors import DataError
from arachne.model.values import Array

DIGITS = load_digits().images[:120].astype(np.float32)
LABELS = load_digits().target[:120]


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return torch


@pytest.fixture(scope="module")
def tensorflow() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def datasets() -> Any:
    return pytest.importorskip("datasets")


def pictures() -> list[Image.Image]:
    return [Image.fromarray((image * 15).astype(np.uint8)) for image in DIGITS]


def test_reading_arrays_imports_no_framework() -> None:
    code = (
        "import sys, numpy as np; from arachne.data.read import read_data; "
        "read_data((np.zeros((2, 3)), [0, 1])); "
        "print(sorted({'torch', 'tensorflow', 'datasets', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_data_loader_gives_all_its_batches(torch: Any) -> None:
    dataset = torch.utils.data.TensorDataset(torch.tensor(DIGITS), torch.tensor(LABELS))
    data = read_data(torch.utils.data.DataLoader(dataset, batch_size=50), n_classes=10, preprocess="flatten")
    assert np.array_equal(data.inputs, DIGITS.reshape(120, 64))  # type: ignore[arg-type]  # one array
    assert data.labels.tolist() == LABELS.tolist()
    assert data.source == "torch.utils.data.dataloader.DataLoader"
    assert len(read_data(torch.utils.data.DataLoader(dataset, batch_size=50), limit=70)) == 70


def test_data_loader_of_mappings_gives_named_inputs_and_metadata(torch: Any) -> None:
    rows = [
        {"input_ids": np.arange(5), "attention_mask": np.ones(5, np.int64), "labels": i % 3, "group_sex": "fm"[i % 2]}
        for i in range(10)
    ]
    data = read_data(torch.utils.data.DataLoader(rows, batch_size=4))
    assert isinstance(data.inputs, dict)
    assert {name: array.shape for name, array in data.inputs.items()} == {
        "input_ids": (10, 5),
        "attention_mask": (10, 5),
    }
    assert data.columns["sex"].tolist() == list("fmfmfmfmfm")
    assert data.labels.tolist() == [i % 3 for i in range(10)]


def test_tensors_with_gradients_and_bfloat16_are_taken(torch: Any) -> None:
    x = torch.tensor(DIGITS, requires_grad=True)
    assert np.array_equal(read_data((x, torch.tensor(LABELS))).inputs, DIGITS)  # type: ignore[arg-type]  # one array
    half = read_data((x.bfloat16(), torch.tensor(LABELS)))
    assert np.array_equal(half.inputs, DIGITS)  # type: ignore[arg-type]  # small whole numbers are exact
    dataset = torch.utils.data.TensorDataset(x.detach().bfloat16(), torch.tensor(LABELS))
    loader = torch.utils.data.DataLoader(dataset, batch_size=7)
    assert np.array_equal(read_data(loader).inputs, DIGITS)  # type: ignore[arg-type]  # one array


def test_torch_dataset_of_pictures_is_brought_to_one_size(torch: Any) -> None:
    class Pictures(torch.utils.data.Dataset):  # type: ignore[misc]  # torch is imported by name
        classes = tuple("zyxwvutsrq")

        def __len__(self) -> int:
            return len(DIGITS)

        def __getitem__(self, row: int) -> tuple[Image.Image, int]:
            return pictures()[row].resize((8 + row % 2, 8)), int(LABELS[row])

    data = read_data(Pictures(), preprocess="resize=4 scale=1/255", n_classes=10, limit=20)
    assert data.inputs.shape == (20, 4, 4, 1)  # type: ignore[union-attr]  # one array
    assert data.class_names == tuple("zyxwvutsrq")
    with pytest.raises(DataError, match=r"different sizes \(row 0 is 8x8, row 1 is 8x9\)"):
        read_data(Pictures(), limit=20)


def test_iterable_torch_dataset_is_read(torch: Any) -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]  # torch is imported by name
        def __iter__(self) -> Iterator[tuple[Any, int]]:
            return ((torch.tensor(image), int(label)) for image, label in zip(DIGITS, LABELS, strict=True))

    assert np.array_equal(read_data(Stream()).inputs, DIGITS)  # type: ignore[arg-type]  # one array
    assert len(read_data(torch.utils.data.DataLoader(Stream(), batch_size=16))) == 120


def test_loaders_that_cannot_be_used_are_refused_in_one_sentence(torch: Any) -> None:
    def loader(dataset: Any, **options: Any) -> Any:
        return torch.utils.data.DataLoader(dataset, **options)

    tensors = torch.utils.data.TensorDataset
    pairs = tensors(torch.tensor(DIGITS), torch.tensor(LABELS))
    with pytest.raises(DataError, match="shuffles, so rows would differ from run to run; make it with shuffle=False"):
        read_data(loader(pairs, shuffle=True))
    with pytest.raises(DataError, match=r"expected \(inputs, labels\) or a mapping with 'label' .*, got 3 values"):
        read_data(loader(tensors(torch.zeros(4, 2), torch.zeros(4), torch.zeros(4))))
    with pytest.raises(DataError, match="got inputs alone"):
        read_data(loader(torch.zeros(4, 2)))
    with pytest.raises(DataError, match="no column 'label'; it has: x"):
        read_data(loader([{"x": np.zeros(3)}] * 4))
    ragged = [({"ids": np.zeros(3)}, 0), ({"ids": np.zeros(4)}, 1)]
    with pytest.raises(DataError, match=r"'ids' is ragged: batches of shape .* pad them to one length"):
        read_data(loader(ragged, batch_size=1))
    with pytest.raises(DataError, match="gives 2 inputs without names; give them as a mapping"):
        read_data(loader([((np.zeros(3), np.zeros(2)), 0)] * 4))
    with pytest.raises(DataError, match="row 0 has NaN or infinite values"):
        read_data(loader([(np.full(3, np.nan), 0)] * 4))
    with pytest.raises(DataError, match="the data set has no rows"):
        read_data(loader(tensors(torch.zeros(0, 2), torch.zeros(0))))


@pytest.mark.parametrize("batch", [None, 50])
def test_tf_data_in_batches_or_not(tensorflow: Any, batch: int | None) -> None:
    dataset = tensorflow.data.Dataset.from_tensor_slices((DIGITS, LABELS))
    dataset = dataset if batch is None else dataset.batch(batch)
    data = read_data(dataset, n_classes=10)
    assert np.array_equal(data.inputs, DIGITS)  # type: ignore[arg-type]  # one array
    assert data.labels.tolist() == LABELS.tolist()
    assert len(read_data(dataset.repeat(), limit=130)) == 130


def test_tf_data_of_mappings_and_images_from_directories(tensorflow: Any, tmp_path: Path) -> None:
    inputs: dict[str, Array] = {"ids": np.arange(40).reshape(10, 4), "mask": np.ones((10, 4), np.int32)}
    dataset = tensorflow.data.Dataset.from_tensor_slices((inputs, np.arange(10) % 2)).batch(3)
    data = read_data(dataset)
    assert isinstance(data.inputs, dict)
    assert np.array_equal(data.inputs["ids"], inputs["ids"])
    for name in ("dog", "cat"):
        (tmp_path / name).mkdir()
        pictures()[0].save(tmp_path / name / "a.png")
    folder = tensorflow.keras.utils.image_dataset_from_directory(tmp_path, shuffle=False, image_size=(8, 8), verbose=0)
    assert read_data(folder, n_classes=2).class_names == ("cat", "dog")


def test_tf_data_that_cannot_be_used_is_refused(tensorflow: Any) -> None:
    make = tensorflow.data.Dataset.from_tensor_slices
    with pytest.raises(DataError, match="repeats for ever; leave out"):
        read_data(make((DIGITS, LABELS)).repeat())
    with pytest.raises(DataError, match="got inputs alone"):
        read_data(make(DIGITS))
    with pytest.raises(DataError, match=r"column 'x' of the data set has .*, expected a number"):
        read_data(make((np.array(["a", "b"]), np.array([0, 1]))).batch(2))


def test_hugging_face_pictures_with_class_names(datasets: Any) -> None:
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=list("zyxwvutsrq")),
            "site": datasets.Value("string"),
        }
    )
    rows = {"image": pictures(), "label": LABELS.tolist(), "site": ["ab"[i % 2] for i in range(120)]}
    dataset = datasets.Dataset.from_dict(rows, features=features)
    data = read_data(dataset, n_classes=10, preprocess="scale=1/15 layout=nchw")
    assert np.array_equal(data.inputs, DIGITS[:, None])  # type: ignore[arg-type]  # one array
    assert data.class_names == tuple("zyxwvutsrq")
    assert data.columns["site"].tolist() == rows["site"]
    assert np.array_equal(read_data(dataset.with_format("numpy"), limit=30).labels, LABELS[:30])
    assert len(read_data(dataset.to_iterable_dataset(), limit=30)) == 30


def test_hugging_face_token_ids_and_features(datasets: Any) -> None:
    rows = {"input_ids": [[1, 2], [3, 4]], "attention_mask": [[1, 1], [1, 0]], "idx": [7, 8], "label": ["b", "a"]}
    data = read_data(datasets.Dataset.from_dict(rows), n_classes=2)
    assert isinstance(data.inputs, dict)
    assert {name: array.dtype.kind for name, array in data.inputs.items()} == {"input_ids": "i", "attention_mask": "i"}
    assert (data.labels.tolist(), data.class_names) == ([1, 0], ("a", "b"))
    assert data.columns["idx"].tolist() == [7, 8]
    table = datasets.Dataset.from_dict({"a": [1.5, 2.5], "b": [3, 4], "label": [0, 1], "meta_who": ["x", "y"]})
    data = read_data(table)
    assert np.asarray(data.inputs).tolist() == [[1.5, 3], [2.5, 4]]
    assert data.columns["who"].tolist() == ["x", "y"]


def test_hugging_face_data_that_cannot_be_used_is_refused(datasets: Any) -> None:
    good = datasets.Dataset.from_dict({"ids": [[1, 2], [3, 4]], "label": [0, 1]})
    with pytest.raises(DataError, match=r"has several splits \(train, test\); give one of them"):
        read_data(datasets.DatasetDict({"train": good, "test": good}))
    with pytest.raises(DataError, match="no column 'label'; it has: ids"):
        read_data(good.remove_columns("label"))
    with pytest.raises(DataError, match="ragged"):
        read_data(datasets.Dataset.from_dict({"ids": [[1, 2], [3]], "label": [0, 1]}))
    with pytest.raises(DataError, match="expected a number; call it 'meta_text'"):
        read_data(datasets.Dataset.from_dict({"text": ["good", "bad"], "label": [0, 1]}))
