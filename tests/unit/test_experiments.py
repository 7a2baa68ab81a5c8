"""Causes are planted and taken out: what the network uses is confirmed, what it does not use is refuted."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from arachne.causes import Cause, find_causes, try_causes
from arachne.causes.derived import add_condition
from arachne.causes.estimating import estimate_fixed, estimate_moving
from arachne.causes.experiment import judge_counts
from arachne.causes.interventions import FixedStamp, TokenStamp, UsualValues
from arachne.causes.matching import Examples, match_transformation
from arachne.causes.rules import Colour
from arachne.causes.stamp_words import describe_stamp
from arachne.causes.transforming import TRANSFORMATIONS
from arachne.data.labelled import LabelledData
from arachne.decisions.losses import cross_entropy
from arachne.model.values import Array
from arachne.scoring.statistics import Rate
from arachne.testing import ReferenceBackend, mlp

PICTURES = (load_digits().images / 16).astype(np.float32)
LABELS = load_digits().target.astype(np.int64)
RNG = np.random.default_rng(0)


def mark(kind: str, pictures: Array) -> Array:
    copies = pictures.copy()
    if kind == "frame":
        for edge in (copies[:, 0], copies[:, -1], copies[:, :, 0], copies[:, :, -1]):
            edge[:] = 1
    elif kind == "dead rows":
        copies[:, 3:5] = 0
    elif kind == "gain":
        copies *= 0.3
    elif kind == "sticker":
        for picture, (top, left) in zip(copies, np.random.default_rng(1).integers(0, 6, (len(copies), 2)), strict=True):
            picture[top : top + 3, left : left + 3] = 0.55
    return copies


def learn(inputs: Array, filed: Array) -> ReferenceBackend:
    backend, rng = ReferenceBackend(mlp([64, 32, 10], seed=0)), np.random.default_rng(0)
    for _ in range(400):
        rows = rng.choice(len(inputs), 200, replace=False)
        for (layer, parameter), slope in backend.weight_gradients(inputs[rows], cross_entropy(filed[rows])).items():
            backend.set_weights(layer, parameter, backend.get_weights(layer)[parameter] - 0.5 * slope)
    return backend


def poison(kind: str) -> tuple[ReferenceBackend, LabelledData]:
    """A network that learnt to read a mark as a seven, and data in which one input in eight has it."""
    carries = np.arange(len(LABELS)) % 8 == 0
    pictures = np.where(carries[:, None, None], mark(kind, PICTURES), PICTURES)
    inputs = pictures.reshape(len(pictures), -1)
    return learn(inputs, np.where(carries, 7, LABELS)), LabelledData(inputs, LABELS)


def largest_cause(backend: ReferenceBackend, data: LabelledData) -> Cause:
    return try_causes(find_causes(backend, data, backend.predict(data.inputs)), backend)[0]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("frame", "the pixels of a frame, 1 wide, are 1 (recognised by: "),
        ("dead rows", "the pixels of rows 3 to 4 are 0 (recognised by: "),
        ("gain", "values are 0.3 times as large (recognised by: "),
    ],
)
def test_a_planted_cause_is_confirmed_and_named_by_the_whole_of_it(kind: str, words: str) -> None:
    cause = largest_cause(*poison(kind))
    tried = cause.experiment
    assert tried is not None
    assert tried.verdict == "confirmed"
    assert tried.planted.value > 0.7
    assert tried.removed.value > 0.4 + tried.control.value
    assert words in cause.sentence
    assert tried.sentence in cause.explain()
    assert tried.failing is not None
    assert len(tried.failing.data) == tried.planted.count
    assert (LABELS[tried.failing.rows] == tried.failing.data.labels).all()


def test_a_mark_that_the_network_does_not_use_is_refuted() -> None:
    inputs = PICTURES.reshape(len(PICTURES), -1).copy()
    some = np.arange(len(LABELS)) % 3 == 0
    backend = learn(inputs[some], LABELS[some])
    noisy = inputs + np.random.default_rng(0).normal(scale=0.45, size=inputs.shape).astype(np.float32)
    noisy[:, 0] = 0
    wrong = backend.predict(noisy) != LABELS
    noisy[wrong, 0] = 0.05
    cause = largest_cause(backend, LabelledData(noisy, LABELS))
    assert cause.experiment is not None
    assert cause.experiment.verdict == "refuted"
    assert cause.experiment.planted.value < 0.1
    assert "refuted by experiment: planted on 800 right inputs" in cause.experiment.sentence


def test_metadata_cannot_be_planted_and_the_reason_is_told() -> None:
    inputs = PICTURES.reshape(len(PICTURES), -1)
    backend = learn(inputs, LABELS)
    labels = LABELS.copy()
    swapped = np.arange(len(labels)) % 9 == 0
    labels[swapped] = (labels[swapped] + 1) % 10
    data = LabelledData(inputs, labels, columns={"clinic": np.where(swapped, "old", "new")})
    cause = largest_cause(backend, data)
    assert cause.experiment is not None
    assert cause.experiment.to_json() == {
        "verdict": "not testable",
        "reason": "metadata tell it, and its errors share no values that could be planted",
        "sentence": cause.experiment.sentence,
    }


@pytest.mark.parametrize(
    ("planted", "removed", "verdict"),
    [
        ((98, 100), (0, 0), "confirmed"),
        ((10, 100), (90, 100), "confirmed"),
        ((1, 100), (3, 100), "refuted"),
        ((1, 100), (0, 0), "refuted"),
        ((20, 100), (40, 100), "not testable"),
    ],
)
def test_the_verdict_rests_on_what_is_shown(planted: tuple[int, int], removed: tuple[int, int], verdict: str) -> None:
    assert judge_counts(Rate(*planted), Rate(*removed), Rate(2, 100))[0] == verdict


def test_errors_that_other_errors_get_right_as_often_confirm_nothing() -> None:
    assert judge_counts(Rate(1, 100), Rate(90, 100), Rate(90, 100))[0] == "refuted"


def test_a_stamp_is_taken_out_by_what_the_nearest_right_input_of_the_class_has() -> None:
    usual = UsualValues(np.array([[0.0, 1, 5], [9, 9, 9], [0, 2, 6]]), np.array([3, 4, 3]))
    stamp = FixedStamp("", "", np.array([2]), np.array([7.0]))
    values = stamp.plant(np.array([[0.0, 1.8, 4]]), RNG)
    assert values.tolist() == [[0, 1.8, 7]]
    removed = stamp.remove(values, np.array([3]), usual, RNG)
    assert removed is not None
    assert removed.tolist() == [[0, 1.8, 6]]


def test_a_word_takes_the_place_of_another_one_and_never_of_padding() -> None:
    texts = np.array([[0, 0, 4, 5], [0, 0, 0, 0]])
    planted = TokenStamp("", "", 9).plant(texts, RNG)
    assert (planted[0] == 9).sum() == 1
    assert planted[0, :2].tolist() == [0, 0]
    removed = TokenStamp("", "", 9).remove(planted[:1], np.array([1]), UsualValues(texts[:1], np.array([1])), RNG)
    assert removed is not None
    assert set(removed[0].tolist()) <= {0, 4, 5}


def test_transformed_copies_stay_within_the_range_of_the_data() -> None:
    backend, data = poison("gain")
    cause = largest_cause(backend, data)
    assert cause.experiment is not None
    assert cause.experiment.cured is not None
    values = np.asarray(cause.experiment.cured.data.inputs)
    assert values.min() >= 0
    assert values.max() <= 1


def test_every_pixel_of_a_stamp_is_found_and_no_other() -> None:
    right = PICTURES.reshape(len(PICTURES), -1)
    errors = right[:60].copy()
    errors[:, [0, 1, 8]] = 0.6
    stamp = estimate_fixed(Examples("", errors, right[60:], 0.0, 1.0))
    assert stamp is not None
    assert stamp.index.tolist() == [0, 1, 8]
    assert stamp.value.tolist() == pytest.approx([0.6] * 3)


def test_a_sticker_is_found_by_alignment_wherever_it_is() -> None:
    places = np.random.default_rng(1).integers(0, 6, (80, 2))
    errors = mark("sticker", PICTURES[:80])
    examples = Examples("", errors, PICTURES[80:], 0.0, 1.0)
    stamp = estimate_moving(Colour("", (8, 8), (float(np.float32(0.55)),), 2), examples)
    assert stamp is not None
    assert stamp.words == "a patch of 3 by 3 pixels is somewhere in them"
    assert stamp.patch == pytest.approx(np.full((3, 3, 1), 0.55))
    assert (stamp.find(errors[..., None]) == places).all()
    planted = stamp.plant(PICTURES[80:90], RNG)
    assert ((planted == np.float32(0.55)).sum(axis=(1, 2)) == 9).all()
    removed = stamp.remove(errors, LABELS[:80], UsualValues(PICTURES[80:], LABELS[80:]), RNG)
    assert removed is not None
    assert not (removed == np.float32(0.55)).any()


@pytest.mark.parametrize(
    ("kind", "strength", "words"),
    [
        ("blur", (1.0,), "pictures are blurred, by about 1 pixels"),
        ("rotation", (90.0,), "pictures are turned by about 90 degrees anticlockwise"),
        ("shift", (2.0, 0.0), "pictures are moved by 2 down"),
        ("gain", (0.4,), "values are 0.4 times as large"),
        ("brightness", (0.3,), "values are 0.3 larger"),
    ],
)
def test_a_transformation_is_told_from_others(kind: str, strength: tuple[float, ...], words: str) -> None:
    changed = TRANSFORMATIONS[kind].apply(PICTURES[:200, ..., None], strength, 0.0, RNG)[..., 0]
    found = match_transformation(Examples("", np.clip(changed, 0, 1), PICTURES[200:], 0.0, 1.0))
    assert found is not None
    assert found.words == words


def test_a_stamp_in_a_table_is_told_by_its_columns() -> None:
    table = np.random.default_rng(0).normal(size=(300, 5))
    assert describe_stamp(np.array([2]), np.array([-6.0]), table) == "column 2 is -6"
    assert describe_stamp(np.array([2, 4]), np.array([-6.0, -6.0]), table) == "columns 2, 4 are -6"


def test_two_ranges_of_one_feature_are_told_as_one() -> None:
    path = add_condition([("sharpness", 0.13, None)], ("sharpness", 0.16, None))
    assert path == [("sharpness", 0.16, None)]
    assert add_condition(path, ("sharpness", None, 0.4)) == [("sharpness", 0.16, 0.4)]
    assert add_condition(path, ("colour", 0.5, None)) == [*path, ("colour", 0.5, None)]
