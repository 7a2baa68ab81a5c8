from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.data.confusions import confusions
from arachne.data.labelled import LabelledData
from arachne.data.targets import Target, parse_targets
from arachne.errors import ArachneError, DataError, NothingToRepairError, UsageError

LABELS = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
PREDICTIONS = np.array([0, 1, 1, 1, 2, 0, 2, 1, 1, 1])
NAMES = ("cat", "dog", "cow")
SEX = np.array(list("fmfmfmfmfm"))


def data_with(class_names: tuple[str, ...] | None = NAMES, **columns: np.ndarray) -> LabelledData:
    return LabelledData(np.zeros((10, 2), dtype=np.float32), LABELS, class_names, columns=columns)


def rows_that_show(text: str | list[str], data: LabelledData | None = None, n_classes: int = 3) -> list[int]:
    """Rows that show any of the targets."""
    targets = parse_targets(text, data or data_with(), PREDICTIONS, n_classes)
    return np.flatnonzero(sum(t.shows(LABELS, PREDICTIONS, np.arange(10)) for t in targets)).tolist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("0:1", [1, 2]),
        ("cat:dog", [1, 2]),
        ("cow:1", [7, 8, 9]),
        (" cat : dog ", [1, 2]),
        ("dog:*", [4, 5]),
        ("*:dog", [1, 2, 7, 8, 9]),
        ("*:*", [1, 2, 4, 5, 7, 8, 9]),
        ("top:1", [7, 8, 9]),
        ("top:2", [1, 2, 7, 8, 9]),
        ("top:99", [1, 2, 4, 5, 7, 8, 9]),
    ],
)
def test_target_means_these_rows(text: str, rows: list[int]) -> None:
    assert rows_that_show(text) == rows


def test_top_gives_one_target_per_confusion_the_most_frequent_first() -> None:
    targets = parse_targets("top:3=2", data_with(), PREDICTIONS, 3)
    assert [(t.text, t.weight) for t in targets] == [("cow:dog", 2), ("cat:dog", 2), ("dog:cat", 2)]


def test_several_targets_have_their_own_weights_and_order() -> None:
    targets = parse_targets(["1:0=3", "2:1=0.5", "0:1"], data_with(None), PREDICTIONS, 3)
    assert [(t.text, t.weight, str(t)) for t in targets] == [
        ("1:0", 3, "1:0=3"),
        ("2:1", 0.5, "2:1=0.5"),
        ("0:1", 1, "0:1"),
    ]


@pytest.mark.parametrize("target", [(2, 4), [2, 4], 7, None])
def test_a_target_that_is_no_text_is_refused_with_an_example(target: Any) -> None:
    with pytest.raises(UsageError, match=r"a target is a text.* '2:4'|a target is a text such as '6:0', got"):
        parse_targets(target, data_with(), PREDICTIONS, 3)


def test_a_target_object_is_taken_as_it_is() -> None:
    mine = Target("my rows", rows=(1, 4))
    targets = parse_targets([mine, "2:1"], data_with(), PREDICTIONS, 3)
    assert targets[0] is mine
    assert mine.shows(LABELS, PREDICTIONS, np.arange(10)).nonzero()[0].tolist() == [1, 4]


@pytest.mark.parametrize(
    "content",
    [
        "1\n3\n7\n",
        "row\n1\n3\n7\n",
        "name,row\na,1\nb,3\nc,7\n",
        "my rows\n7\n3\n1\n1",
        "\ufeffrow\r\n1\r\n3\r\n7\r\n\r\n",
    ],
)
def test_rows_files_of_all_kinds_name_the_misclassified_of_their_rows(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad=1.csv"
    path.write_text(content, encoding="utf-8", newline="")
    (target,) = parse_targets(f"rows:{path}", data_with(), PREDICTIONS, 3)
    assert target.rows == (1, 3, 7)
    assert rows_that_show(f"rows:{path}=2") == [1, 7]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("row\n", "has a header but no rows"),
        ("1\n10\n", "line 2 .* has row 10, but the data has rows 0 to 9"),
        ("-1\n", "has row -1"),
        ("1\ntwo\n", "line 2 .* has 'two', expected a row number"),
        ("1.5\n2.5\n", "has '2.5', expected a row number"),
        ("a,b\n1,2\n", "has 2 columns, but none named 'row'"),
    ],
)
def test_bad_rows_files_are_refused_in_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        parse_targets(f"rows:{path}", data_with(), PREDICTIONS, 3)
    assert "\n" not in str(caught.value)


def test_group_means_the_misclassified_with_that_value() -> None:
    data = data_with(sex=SEX, age=np.array([3, 4] * 5))
    assert rows_that_show("group:sex=m", data) == [1, 5, 7, 9]
    assert rows_that_show("group:f", data) == [2, 4, 8]
    assert rows_that_show("group:age=3", data) == [2, 4, 8]
    assert [t.weight for t in parse_targets("group:sex=m=3", data, PREDICTIONS, 3)] == [3]
    assert [t.weight for t in parse_targets("group:m=3", data, PREDICTIONS, 3)] == [3]


def test_group_and_rows_are_looked_up_again_in_other_data() -> None:
    (group,) = parse_targets("group:sex=f", data_with(sex=SEX), PREDICTIONS, 3)
    other = LabelledData(np.zeros((3, 2)), np.zeros(3), columns={"sex": np.array(["m", "f", "m"])})
    assert group.for_other_data(other).rows == (1,)
    assert Target("rows:x", rows=(1, 2)).for_other_data(other).rows == ()
    assert Target("0:1", label=0, prediction=1).for_other_data(other).label == 0
    with pytest.raises(DataError, match="held-out data has no column 'sex'"):
        group.for_other_data(LabelledData(np.zeros((3, 2)), np.zeros(3)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat:dgo", "no class named 'dgo'; did you mean 'dog'?"),
        ("horse:dog", "no class named 'horse'; available: cat, dog, cow"),
        ("7:0", "no class named '7'"),
        ("cat:cat", "same class on both sides"),
        ("0:cat", "same class on both sides"),
        ("cat", r"'\*:cat' is anything read as it, 'cat:\*' it read as anything"),
        ("2=3", r"'\*:2' is anything read as it"),
        ("cta", "not of a known form; forms: class:class"),
        ("", "not of a known form"),
        ("cat:dog=0", "weight '0', expected a number above 0"),
        ("cat:dog=-2", "weight '-2', expected"),
        ("cat:dog=much", "weight 'much', expected"),
        ("cat:dog=inf", "weight 'inf', expected"),
        ("top:0", "wants a number above 0 after 'top:', got '0'"),
        ("top:many", "got 'many'"),
        ("group:f", "needs data with metadata columns"),
        ("rows:nowhere.csv", "rows file 'nowhere.csv' .* is no file"),
        ("rows:" + "x" * 5000, "is no file"),
    ],
)
def test_bad_targets_are_refused_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises((UsageError, DataError), match=message.replace("?", r"\?").replace("*", "*")) as caught:
        parse_targets(text, data_with(), PREDICTIONS, 3)
    assert "\n" not in str(caught.value)


def test_numbers_outside_the_classes_are_refused_with_the_range() -> None:
    with pytest.raises(UsageError, match="no class '7': the model has the classes 0 to 2"):
        parse_targets("7:0", data_with(None), PREDICTIONS, 3)


def test_unknown_group_gets_did_you_mean() -> None:
    data = data_with(sex=np.array(["female", "male"] * 5))
    with pytest.raises(UsageError, match="did you mean 'female'"):
        parse_targets("group:femal", data, PREDICTIONS, 3)
    with pytest.raises(UsageError, match="no input has 'femal' in column 'sex'; did you mean 'female'"):
        parse_targets("group:sex=femal", data, PREDICTIONS, 3)


def test_group_value_in_two_columns_asks_for_the_column() -> None:
    with pytest.raises(UsageError, match="'group:a=f' or 'group:b=f'"):
        parse_targets("group:f", data_with(a=SEX, b=SEX), PREDICTIONS, 3)


def test_no_target_and_the_same_target_twice_are_refused() -> None:
    with pytest.raises(UsageError, match="expected a target, got none"):
        parse_targets([], data_with(), PREDICTIONS, 3)
    with pytest.raises(UsageError, match="'0:1' is given twice"):
        parse_targets(["cat:dog", "0:1"], data_with(), PREDICTIONS, 3)


def test_top_of_a_perfect_model_has_nothing_to_repair() -> None:
    with pytest.raises(NothingToRepairError, match="classifies all 10 inputs correctly"):
        parse_targets("top:1", data_with(), LABELS, 3)


@pytest.mark.parametrize(
    ("names", "text", "label", "prediction", "weight"),
    [
        (("a:b", "c", "d"), "a:b:c", 0, 1, 1.0),
        (("a=b", "c", "d"), "a=b:c=2", 0, 1, 2.0),
        (("x", "c=2", "d"), "x:c=2", 0, 1, 1.0),
        (("x", "c=2", "d"), "x:c=2=3", 0, 1, 3.0),
    ],
)
def test_names_with_colons_and_equals_signs_are_found(
    names: tuple[str, ...], text: str, label: int, prediction: int, weight: float
) -> None:
    (target,) = parse_targets(text, data_with(names), PREDICTIONS, 3)
    assert (target.label, target.prediction, target.weight) == (label, prediction, weight)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("a", "a:b", "b:c", "c"), "a:b:c"),
        (("c", "c=2", "x", "y"), "x:c=2"),
        (("top", "x", "y", "z"), "top:1"),
        (("::", ":", "x", "y"), "::::"),
    ],
)
def test_text_with_two_meanings_is_refused(names: tuple[str, ...], text: str) -> None:
    with pytest.raises(UsageError, match=r"can mean .* or .*; use class numbers or rename"):
        parse_targets(text, data_with(names), PREDICTIONS, 4)


def test_confusions_are_ranked_with_shares() -> None:
    ranked = confusions(LABELS, PREDICTIONS, 3)
    assert [(c.target, c.count) for c in ranked] == [("2:1", 3), ("0:1", 2), ("1:0", 1), ("1:2", 1)]
    assert ranked[0].share == pytest.approx(3 / 7)
    assert ranked[0].share_of_class == pytest.approx(3 / 4)
    assert sum(c.share for c in ranked) == pytest.approx(1)
    assert confusions(LABELS, LABELS, 3) == ()


@pytest.mark.parametrize("names", [("a:b", "c=1", "*"), ("top", "rows", "group"), (" x", "", "y"), NAMES])
def test_target_texts_of_confusions_mean_that_confusion(names: tuple[str, ...]) -> None:
    data = data_with(names)
    for confusion in confusions(LABELS, PREDICTIONS, 3, names):
        (target,) = parse_targets(confusion.target, data, PREDICTIONS, 3)
        assert (target.label, target.prediction) == (confusion.label, confusion.prediction)


def test_every_refusal_is_one_of_ours() -> None:
    heads = ["cat", "dog", "*", "top", "rows", "group", "sex", "3", "", "é", "\0", ":"]
    rng = np.random.default_rng(0)
    data = data_with(sex=SEX)
    refused = 0
    for _ in range(500):
        text = ":".join(rng.choice(heads, size=rng.integers(1, 4))) + rng.choice(["", "", "=3", "=", "=x", "=-1"])
        try:
            parse_targets(text, data, PREDICTIONS, 3)
        except ArachneError:
            refused += 1
    assert 0 < refused < 500
