from __future__ import annotations

from typing import Never

import numpy as np
import pytest
from sklearn.datasets import load_digits

import arachne
from arachne.data.chance import (
    Misreading,
    advice,
    check_accuracy,
    compare_preprocessings,
    find_misreading,
    near_chance,
)
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.run import run_checked
from arachne.errors import DataError
from arachne.model.values import Array
from arachne.testing import ReferenceBackend, two_inputs
from arachne.testing.networks import Network, random_inputs
from arachne.testing.nodes import Dense, Flatten, Tanh

LABELS = load_digits().target
IMAGES = np.round(load_digits().images * 255 / 16).astype(np.uint8)


def classifier(*shape: int, low: float = 0.0, high: float = 1.0) -> ReferenceBackend:
    """Nearest class mean of squashed digits, on pixels from `low` to `high`, for inputs of a shape."""
    middle = (low + high) / 2
    x = IMAGES.reshape(len(IMAGES), -1) / 255 * (high - low) + low
    squashed = np.tanh(x - middle)
    means = np.stack([squashed[label == LABELS].mean(axis=0) for label in range(10)])
    size = int(np.prod(shape))
    wide = np.zeros((10, size), np.float32)
    wide[:, : means.shape[1]] = means
    nodes = (
        Flatten("flat", "input"),
        Dense("shift", "flat", np.eye(size, dtype=np.float32), np.full(size, -middle, np.float32)),
        Tanh("squash", "shift"),
        Dense("fc", "squash", wide, (-0.5 * (means**2).sum(axis=1)).astype(np.float32)),
    )
    return ReferenceBackend(Network({"input": shape}, nodes))


def part_of(backend: ReferenceBackend, inputs: Array, rows: int | None = None) -> Part:
    data = LabelledData(inputs[:rows], LABELS[:rows])
    return Part(data, np.arange(len(data)), run_checked(backend, data)[0], ())


@pytest.mark.parametrize(
    ("accuracy", "n_classes", "near"),
    [
        (0.1, 10, True),
        (0.19, 10, True),
        (0.191, 10, False),
        (0.0, 2, True),
        (0.55, 2, True),
        (0.56, 2, False),
        (0.02, 100, True),
        (0.021, 100, False),
    ],
)
def test_near_chance_is_a_little_above_guessing(accuracy: float, n_classes: int, near: bool) -> None:
    assert near_chance(accuracy, n_classes) is near


def test_right_preprocessing_comes_first_and_the_rest_says_why_it_cannot_run() -> None:
    trials = compare_preprocessings(classifier(1, 8, 8, low=-1), IMAGES, LABELS)
    assert trials[0].text == "scale=1/127.5 mean=1 layout=nchw"
    assert trials[0].accuracy is not None
    assert trials[0].accuracy > 0.85
    broken = [trial for trial in trials if trial.accuracy is None]
    assert {trial.text for trial in broken} == {"", "layout=nhwc", "flatten"}
    assert all("should be of shape (n, 1, 8, 8)" in trial.reason for trial in broken)
    assert trials[-len(broken) :] == broken


@pytest.mark.parametrize(
    ("given", "wanted", "best"),
    [
        ((8, 8, 1), (8, 8), "scale=1/255 shape=8x8"),
        ((1, 8, 8), (8, 8, 1), "scale=1/255 layout=nhwc"),
        ((64,), (1, 8, 8), "scale=1/255 shape=1x8x8"),
        ((64,), (1, 64), "scale=1/255 shape=1x64"),
        ((8, 8), (64,), "scale=1/255 flatten"),
    ],
)
def test_shapes_that_hold_the_same_numbers_are_tried(
    given: tuple[int, ...], wanted: tuple[int, ...], best: str
) -> None:
    inputs = IMAGES.reshape(len(IMAGES), *given)
    trials = {trial.text: trial.accuracy for trial in compare_preprocessings(classifier(*wanted), inputs, LABELS)}
    found = trials[best]
    assert found is not None
    assert found > 0.85


def test_colour_images_are_tried_with_the_means_of_imagenet() -> None:
    colour = np.repeat(IMAGES[..., None], 3, axis=3)
    texts = [trial.text for trial in compare_preprocessings(classifier(8, 8, 1), colour[..., :1], LABELS)]
    assert not any("0.485" in text for text in texts)
    network = Network(
        {"input": (8, 8, 3)},
        (Flatten("flat", "input"), Dense("fc", "flat", np.ones((10, 192), np.float32), np.zeros(10, np.float32))),
    )
    for scale, text in ((1.0, "scale=1/255 mean=0.485"), (1 / 255, "mean=0.485")):
        trials = compare_preprocessings(ReferenceBackend(network), (colour * scale).astype(np.float32), LABELS)
        assert any(trial.text.startswith(text) for trial in trials)


def test_several_inputs_are_only_run_as_they_are() -> None:
    network = two_inputs()
    inputs = random_inputs(network, 30)
    (trial,) = compare_preprocessings(ReferenceBackend(network), inputs, np.zeros(30, dtype=int))
    assert trial.text == ""
    assert trial.accuracy is not None


def test_a_good_model_passes_and_a_guessing_one_is_stopped_with_a_table() -> None:
    backend = classifier(8, 8, low=-1)
    good = (IMAGES / 127.5 - 1).astype(np.float32)
    assert check_accuracy(backend, part_of(backend, good)) is None  # type: ignore[func-returns-value]  # that is the test
    shifted = part_of(backend, (good + 9).astype(np.float32))
    with pytest.raises(DataError) as caught:
        check_accuracy(backend, shifted, raw=lambda: (IMAGES, LABELS))
    first, *table = str(caught.value).splitlines()
    assert "near chance for 10 classes; the preprocessing 'scale=1/127.5 mean=1' gives " in first
    assert table[0].split()[:2] == ["scale=1/127.5", "mean=1"]
    assert table[0].endswith("%")
    with pytest.raises(DataError, match="as it is"):
        check_accuracy(backend, shifted)


def test_a_table_is_told_to_look_at_the_order_of_its_columns() -> None:
    inputs = (IMAGES.reshape(len(IMAGES), 64) / 255).astype(np.float32)
    mixed = inputs[:, np.random.default_rng(0).permutation(64)]
    backend = classifier(64)
    check_accuracy(backend, part_of(backend, inputs))
    with pytest.raises(DataError) as caught:
        check_accuracy(backend, part_of(backend, mixed))
    assert "check that the columns are in the order" in caught.value.below[-1]


def test_a_table_is_no_picture_and_one_class_for_all_is_no_cure() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(400) < 0.1).astype(np.int64)  # nine of ten are of class 0
    table = (rng.normal(40, 20, size=(400, 4)) + 60 * labels[:, None] * np.array([1, 0, 0, 0])).astype(np.float32)
    weights = np.array([[0, 0, 0, 0], [1, 0, 0, 0]], np.float32)
    backend = ReferenceBackend(
        Network({"input": (4,)}, (Dense("fc", "input", weights, np.array([70, 0], np.float32)),))
    )

    def find(inputs: Array) -> Misreading | None:
        data = LabelledData(inputs, labels)
        part = Part(data, np.arange(400), run_checked(backend, data)[0], ())
        return find_misreading(backend, part, float(np.mean(part.right)))

    assert find(table) is None
    found = find(200 - table[:, ::-1])  # another order, and another direction: everything is class 1
    assert found is not None
    assert not found.cured
    assert not any("1/255" in line for line in found.table)
    assert "check that the columns are in the order" in found.table[-1]


def test_a_handful_of_inputs_is_no_evidence() -> None:
    backend = classifier(8, 8, low=-1)
    few = part_of(backend, (IMAGES / 127.5 + 8).astype(np.float32), rows=15)
    assert len(few.positives) < 5
    assert check_accuracy(backend, few) is None  # type: ignore[func-returns-value]  # that is the test


def test_inputs_the_model_does_not_take_are_refused_with_the_table() -> None:
    with pytest.raises(DataError, match="should be of shape") as caught:
        run_checked(classifier(64), LabelledData(IMAGES, LABELS))
    assert any(line.split()[:2] == ["scale=1/255", "flatten"] for line in str(caught.value).splitlines())
    with pytest.raises(DataError, match="should be of shape") as caught:
        run_checked(classifier(65), LabelledData(IMAGES, LABELS))
    assert "\n" not in str(caught.value)


def test_a_repair_refuses_inputs_with_the_words_of_a_scan() -> None:
    backend, data = classifier(1, 8, 8), LabelledData(IMAGES[..., None], LABELS)
    with pytest.raises(DataError) as scanned:
        arachne.scan(backend, data)
    with pytest.raises(DataError) as repaired:
        arachne.repair(backend, data, "8:1")
    assert str(repaired.value) == str(scanned.value)
    assert "got (2, " not in str(repaired.value)


def test_advice_repeats_the_steps_that_were_given() -> None:
    data = arachne.read_data((IMAGES[..., None], LABELS), preprocess="layout=nchw").take(range(1000))
    part = Part(data, np.arange(len(data)), run_checked(classifier(1, 8, 8), data)[0], ())
    found = find_misreading(classifier(1, 8, 8), part, float(np.mean(part.right)))
    assert found is not None
    assert found.sentence.endswith("give --preprocess 'layout=nchw scale=1/255'")
    scaled = arachne.read_data((IMAGES, LABELS), preprocess="scale=1/255")
    with pytest.raises(DataError, match=r"the preprocessing 'scale=1/255 .*layout=nchw' makes them fit") as caught:
        run_checked(classifier(1, 8, 8), scaled)
    assert any(line.split("  ")[1] == "scale=1/255 layout=nchw" for line in caught.value.below)
    small = arachne.read_data(arachne.read_data((IMAGES, LABELS), preprocess="resize=8"), preprocess="scale=9")
    part = Part(small, np.arange(len(small)), run_checked(classifier(8, 8, low=-1), small)[0], ())
    found = find_misreading(classifier(8, 8, low=-1), part, 0.1, raw=lambda: (IMAGES, LABELS))
    assert found is not None
    assert "the preprocessing 'resize=8x8 scale=1/127.5 mean=1' gives" in found.sentence


def test_no_preprocessing_is_advised_where_the_inputs_fit_as_they_are() -> None:
    def fail(inputs: object) -> Never:
        raise DataError("something else is wrong")

    data = arachne.read_data((IMAGES, LABELS), preprocess="scale=1/255")
    with pytest.raises(DataError) as caught:
        run_checked(classifier(8, 8), data, fail)
    assert str(caught.value) == "something else is wrong"
    assert not caught.value.below


def test_advice_is_plain_text_with_one_line_per_trial() -> None:
    told, table = advice(compare_preprocessings(classifier(8, 8), IMAGES, LABELS), "something is wrong")
    text = "\n".join([told, *table])
    lines = text.splitlines()
    assert lines[0].startswith("something is wrong; accuracy under")
    assert len({line.index("%") for line in lines[1:] if "%" in line}) == 1
    assert text.isascii()
