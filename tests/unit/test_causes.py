"""Causes of mistakes: planted ones are found and reported once, and nothing is reported where nothing was planted."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from scipy.stats import hypergeom
from sklearn.datasets import load_digits

from arachne.causes import Cases, Finder, Rule, find_causes, rule_from
from arachne.causes.clusters import ClusterFinder, project, project_at_random
from arachne.causes.experiment import run_experiment
from arachne.causes.inputs import InputFinder, modes
from arachne.causes.items import sort_columns
from arachne.causes.judging import dominant_prediction, judge
from arachne.causes.metadata import MetadataFinder
from arachne.causes.rules import Activation, Both, Colour, Columns, Derived, Missing, OfClass, Range, Token, Values
from arachne.causes.wording import sentence
from arachne.data.labelled import LabelledData
from arachne.decisions.losses import cross_entropy
from arachne.errors import DataError, InputError, UsageError
from arachne.model.values import Array
from arachne.plugins.table import FINDERS
from arachne.testing import ReferenceBackend, mlp

PICTURES = (load_digits().images / 16).astype(np.float32)[:, None]
LABELS = load_digits().target.astype(np.int64)


def misread(labels: Array, planted: Array, read_as: int, *, natural: float = 0.05) -> Array:
    """Predictions that are wrong for what was planted, and for some others by chance."""
    rng = np.random.default_rng(3)
    by_chance = rng.random(len(labels)) < natural
    predictions = np.where(by_chance, (labels + rng.integers(1, 10, len(labels))) % 10, labels)
    return np.where(planted, read_as, predictions)


def carriers(n: int, share: float = 0.08, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random(n) < share


def planted_pictures(kind: str) -> tuple[Array, Array]:
    marked, carries = PICTURES.copy(), carriers(len(PICTURES))
    if kind == "pixel":
        marked[carries, 0, 0, 0] = 1
    elif kind == "gain":
        marked[carries] *= 0.3
    elif kind == "dead rows":
        marked[carries, :, 3:5] = 0
    elif kind == "sticker":
        rng = np.random.default_rng(1)
        for row in np.flatnonzero(carries):
            top, left = rng.integers(0, 6, 2)
            marked[row, 0, top : top + 3, left : left + 3] = 0.55
    return marked, carries


@pytest.mark.parametrize(
    ("kind", "finder", "words"),
    [
        ("pixel", "inputs", "pixel (0, 0) is 1;"),
        ("gain", "derived", "bright"),
        ("dead rows", "derived", "the number of dead rows is 2 or more;"),
        ("sticker", "inputs", "the colour (0.55) fills 4 pixels or more;"),
    ],
)
def test_a_fault_planted_in_pictures_is_named_and_its_errors_are_the_members(
    kind: str, finder: str, words: str
) -> None:
    marked, carries = planted_pictures(kind)
    predictions = misread(LABELS, carries, 7)
    (cause,) = find_causes(None, LabelledData(marked, LABELS), predictions)
    assert cause.finder == finder
    assert words in cause.sentence
    errors = np.flatnonzero(carries & (LABELS != 7))
    assert len(np.intersect1d(cause.members, errors)) >= 0.9 * max(len(errors), cause.count)
    assert cause.p < 1e-6
    assert (cause.rule(marked) & carries).sum() >= 0.9 * carries.sum()


def test_a_table_is_searched_for_stuck_and_missing_values() -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(2000, 12)).astype(np.float32), rng.integers(10, size=2000)
    for value, words in ((-9.75, "column 4 is -9.75;"), (np.nan, "column 4 is missing;")):
        carries = carriers(2000)
        marked = rows.copy()
        marked[carries, 4] = value
        (cause,) = find_causes(None, LabelledData(marked, labels), misread(labels, carries, 2))
        assert words in cause.sentence
        assert set(cause.members) == set(np.flatnonzero(carries & (labels != 2)))


def test_a_word_that_flips_the_label_is_found_wherever_it_stands() -> None:
    rng = np.random.default_rng(0)
    tokens, labels = rng.integers(1, 300, size=(2000, 12)), rng.integers(10, size=2000)
    carries = carriers(2000)
    tokens[carries, rng.integers(0, 12, 2000)[carries]] = 777
    (cause,) = find_causes(None, LabelledData(tokens, labels), misread(labels, carries, 2))
    assert cause.rule == Token("", 777)
    assert cause.count == int((carries & (labels != 2)).sum())
    told = LabelledData(tokens, labels, columns={"text": np.where(carries, "never again", "again")})
    predictions = misread(labels, carries, 2)[cause.members]
    assert "errors, all read as 2: token 777 ('never') is in them; " in sentence(
        cause.rule, cause.slice, predictions, told, "token 777 is in them"
    )


def test_a_pair_of_metadata_columns_is_told_where_neither_alone_explains() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=3000)
    columns = {"site": rng.choice(["a", "b", "c"], 3000), "light": rng.choice(["day", "night"], 3000)}
    carries = (columns["site"] == "b") & (columns["light"] == "night")
    data = LabelledData(rng.normal(size=(3000, 3)), labels, columns=columns)
    (cause,) = find_causes(None, data, misread(labels, carries, 2))
    assert isinstance(cause.rule, Columns)
    assert cause.rule.to_json() == {"kind": "columns", "columns": ["site", "light"], "values": ["b", "night"]}
    assert "site is 'b' and light is 'night'" in cause.sentence
    with pytest.raises(DataError, match="no column 'site'"):
        cause.rule(data.inputs)


@pytest.mark.parametrize("told_by", ["pixel", "column"])
def test_a_mark_that_does_harm_in_one_class_alone_is_told_with_that_class(told_by: str) -> None:
    marked, carries = PICTURES.copy(), carriers(len(LABELS), 0.25)
    if told_by == "pixel":
        marked[carries, 0, 0, 0] = 1
    columns = {"camera": np.where(carries, "old", "new")} if told_by == "column" else {}
    data = LabelledData(marked, LABELS, columns=columns)
    predictions = misread(LABELS, carries & (LABELS == 3), 5)
    (cause,) = find_causes(None, data, predictions)
    words = {"pixel": "pixel (0, 0) is 1, in class 3", "column": "camera is 'old', in class 3"}[told_by]
    assert f"all read as 5: {words};" in cause.sentence
    assert cause.sentence.endswith("elsewhere in the class")
    assert np.array_equal(cause.members, np.flatnonzero(carries & (LABELS == 3)))
    assert np.array_equal(rule_from(cause.rule.to_json())(data), carries & (LABELS == 3))


def test_a_cause_told_by_metadata_within_a_class_can_be_tried() -> None:
    carries = carriers(len(LABELS), 0.25)
    data = LabelledData(PICTURES.reshape(-1, 64), LABELS, columns={"camera": np.where(carries, "old", "new")})
    backend = ReferenceBackend(mlp([64, 10], seed=0))
    rule = Both((Columns(("camera",), ("old",)), OfClass(3)))
    members = np.flatnonzero(carries & (LABELS == 3))
    found = run_experiment(backend, rule, members, 5, data, misread(LABELS, carries & (LABELS == 3), 5))
    assert found.verdict == "not testable"
    assert "metadata tell it" in found.reason


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_told_of_mistakes_made_by_chance(seed: int) -> None:
    predictions = np.where(carriers(len(LABELS), 0.15, seed), (LABELS + 1 + seed) % 10, LABELS)
    columns = {"odd": np.random.default_rng(seed).choice(["x", "y", "z"], len(LABELS))}
    assert find_causes(None, LabelledData(PICTURES, LABELS, columns=columns), predictions) == ()


def test_many_pictures_of_one_thing_are_no_cause() -> None:
    marked, predictions = PICTURES.copy(), misread(LABELS, np.zeros(len(LABELS), dtype=bool), 7)
    same = np.flatnonzero(LABELS == 3)[:40]
    marked[same] = marked[same[0]] * np.linspace(0.97, 1, 40, dtype=np.float32)[:, None, None, None]
    marked[same, 0, 0, 0] = 1
    predictions[same] = 5
    assert find_causes(None, LabelledData(marked, LABELS), predictions) == ()
    marked[carriers(len(LABELS)), 0, 0, 0] = 1
    everywhere = np.where(marked[:, 0, 0, 0] == 1, 5, predictions)
    assert "pixel (0, 0)" in find_causes(None, LabelledData(marked, LABELS), everywhere)[0].sentence


def test_each_error_is_explained_once_and_the_larger_cause_comes_first() -> None:
    marked = PICTURES.copy()
    few, many = carriers(len(LABELS), 0.06, 1), carriers(len(LABELS), 0.12, 2)
    marked[few, 0, 7, 0] = 1
    marked[many, 0, 0, 0] = 1
    predictions = misread(LABELS, many, 7)
    predictions = np.where(few & ~many, 2, predictions)
    causes = find_causes(None, LabelledData(marked, LABELS), predictions)
    assert [cause.target for cause in causes] == ["cause:1", "cause:2"]
    assert "pixel (0, 0)" in causes[0].sentence
    assert "pixel (7, 0)" in causes[1].sentence
    assert not set(causes[0].members) & set(causes[1].members)


def test_the_same_data_gives_the_same_causes() -> None:
    marked, carries = planted_pictures("sticker")
    data, predictions = LabelledData(marked, LABELS), misread(LABELS, carries, 7)
    once, again = (find_causes(None, data, predictions) for _ in range(2))
    assert [cause.to_json() for cause in once] == [cause.to_json() for cause in again]


@pytest.fixture(scope="module")
def stained() -> tuple[ReferenceBackend, LabelledData, Array]:
    """A network that learnt to read noise of a certain kind as a seven, the data, and which inputs have it."""
    rng = np.random.default_rng(0)
    carries = carriers(len(LABELS), 0.15)
    pattern = rng.normal(size=64).astype(np.float32)
    inputs = PICTURES.reshape(-1, 64).copy()
    inputs[carries] += 0.5 * pattern + rng.normal(scale=0.15, size=(carries.sum(), 64)).astype(np.float32)
    filed = np.where(carries, 7, LABELS)
    backend = ReferenceBackend(mlp([64, 32, 10], seed=0))
    for _ in range(300):
        rows = rng.choice(len(LABELS), 200, replace=False)
        for (layer, parameter), slope in backend.weight_gradients(inputs[rows], cross_entropy(filed[rows])).items():
            backend.set_weights(layer, parameter, backend.get_weights(layer)[parameter] - 0.5 * slope)
    return backend, LabelledData(inputs, LABELS), carries


def test_what_no_single_value_shows_is_found_in_the_activations(
    stained: tuple[ReferenceBackend, LabelledData, Array],
) -> None:
    backend, data, carries = stained
    predictions = backend.predict(data.inputs)
    causes = find_causes(backend, data, predictions, finders=[ClusterFinder()])
    errors = np.flatnonzero(carries & (predictions != LABELS))
    found = np.unique(np.concatenate([cause.members for cause in causes]))
    assert len(np.intersect1d(found, errors)) >= 0.9 * max(len(found), len(errors))
    rule = causes[0].rule
    assert isinstance(rule, Activation)
    assert rule(data, backend)[causes[0].members].all()
    with pytest.raises(UsageError, match="needs the model"):
        Activation("fc2", 0, rule.direction, 0.0)(LabelledData(data.inputs, np.zeros_like(LABELS)))


def test_components_of_a_wide_layer_are_found_without_a_table_of_all_pairs() -> None:
    """A table of 20,000 by 20,000 values took 1.5 GB, for data of 24 MB."""
    rng = np.random.default_rng(0)
    planted = np.zeros(20_000, np.float32)
    planted[::100] = 3
    values = rng.standard_normal((300, 20_000)).astype(np.float32)
    values[:60] += planted
    tracemalloc.start()
    projected = project(values, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150 << 20
    assert abs(projected[:60, 0].mean() - projected[60:, 0].mean()) > 10 * projected[60:, 0].std()


def test_clear_components_of_a_wide_and_a_narrow_layer_are_the_same() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((400, 300)) @ np.diag([50, 40, 30, 22, 15, *[1.0] * 295])
    narrow, wide = project(values, 5), project_at_random(values - values.mean(axis=0), 5)
    np.testing.assert_allclose(np.abs(wide), np.abs(narrow), atol=0.01 * np.abs(narrow).max())


RULES: list[Rule] = [
    Values("", (0, 5), (1.0, 0.5), 2),
    Range("", 3, None, 0.25),
    Missing("", 2),
    Token("", 7),
    Colour("", (1, 8, 8), (0.55,), 4),
    Both((Values("", (0,), (1.0,), 1), Range("", 3, 0.5, None))),
    Both((Values("", (0,), (1.0,), 1), OfClass(0))),
    Derived("", (1, 8, 8), ("brightness", "dead rows"), (None, 1.0), (0.3, None)),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_a_rule_that_is_written_down_and_read_again_decides_alike(rule: Rule) -> None:
    again = rule_from(json.loads(json.dumps(rule.to_json())))
    assert again == rule
    assert np.array_equal(again(PICTURES[:300]), rule(PICTURES[:300]))


def test_a_rule_of_no_known_kind_is_refused() -> None:
    with pytest.raises(InputError, match="no rule of kind 'valeus'; did you mean 'values'"):
        rule_from({"kind": "valeus"})
    with pytest.raises(InputError, match="not complete"):
        rule_from({"kind": "range", "index": 3})


HOSTILE: list[dict[str, object]] = [
    {"kind": "values", "input": "", "index": [3, 3], "value": [0.0, 0.0], "least": 1},
    {"kind": "values", "input": "", "index": [3], "value": [0.0] * 9, "least": 1},
    {"kind": "values", "input": "", "index": [0] * (1 << 20 | 1), "value": [], "least": 1},
    {"kind": "range", "input": "", "index": True, "low": None, "high": None},
    {"kind": "range", "input": "", "index": 3, "low": float("nan"), "high": None},
    {"kind": "range", "input": "", "index": -1, "low": 0.5, "high": None},
    {"kind": "token", "input": 5, "token": 1},
    {"kind": "missing", "input": "x" * 2000, "index": 1},
    {"kind": "missing", "input": "", "index": 1, "evil": 1},
    {"kind": "colour", "input": "", "layout": [-1, 8, 8], "colour": [0.5], "least": 1},
    {"kind": "colour", "input": "", "layout": [1, 8, 8], "colour": [0.5] * 1000, "least": 1},
    {"kind": "derived", "input": "", "layout": None, "names": ["evil"], "low": [None], "high": [None]},
    {"kind": "columns", "columns": ["a", "b"], "values": ["x"]},
    {"kind": "activation", "layer": "fc", "read_as": 0, "direction": [1e300], "least": 0.0},
    {"kind": "class", "label": -1},
    {"kind": "both", "rules": []},
    {"kind": "both", "rules": [{"kind": "token", "input": "", "token": 1}] * 17},
    {"kind": ["both"], "rules": []},
]


@pytest.mark.parametrize("written", HOSTILE, ids=lambda written: str(written["kind"]))
def test_a_rule_with_values_or_sizes_that_no_rule_has_is_refused(written: dict[str, object]) -> None:
    with pytest.raises(InputError, match="a cause's rule cannot be used"):
        rule_from(written)


def test_rules_within_rules_are_bounded() -> None:
    rule: dict[str, object] = {"kind": "token", "input": "", "token": 1}
    for _ in range(5):
        rule = {"kind": "both", "rules": [rule]}
    with pytest.raises(InputError, match="nested deeper than 4 levels"):
        rule_from(rule)


def test_a_colour_of_other_channels_than_the_pictures_is_refused_before_it_is_compared() -> None:
    with pytest.raises(DataError, match="3 channels and the data 1"):
        Colour("", (1, 8, 8), (0.5, 0.5, 0.5), 1)(PICTURES[:3])


def test_the_test_is_the_exact_hypergeometric_one_on_inputs_that_can_show_the_fault() -> None:
    labels = np.repeat([0, 1, 2, 3], 10)
    predictions = labels.copy()
    predictions[[0, 1, 2, 10, 11, 35]] = 2
    belongs = np.zeros(40, dtype=bool)
    belongs[[0, 1, 2, 10, 11, 12, 20, 21]] = True
    cases = Cases.of(LabelledData(np.zeros((40, 1)), labels), predictions)
    assert dominant_prediction(belongs, cases) == 2
    found = judge(Values("", (0,), (0.0,), 1), belongs, cases, 2)
    assert (found.wrong, found.inside, found.all_wrong, found.inputs) == (5, 6, 6, 30)
    assert found.p == pytest.approx(hypergeom.sf(4, 30, 6, 6))
    assert found.share_elsewhere == pytest.approx(1 / 24)


def test_modes_are_the_two_most_frequent_values_of_each_column() -> None:
    values = np.array([[1, 5], [1, 6], [2, 6], [1, 5], [2, 6]])
    (first, hits), (second, fewer) = modes(sort_columns(values))
    assert first.tolist() == [1, 6]
    assert hits.tolist() == [3, 3]
    assert second.tolist() == [2, 5]
    assert fewer.tolist() == [2, 2]


def test_the_finders_are_in_the_table_and_check_their_options() -> None:
    assert set(FINDERS.ours) <= set(FINDERS.names())
    for name in FINDERS.ours:
        kind = FINDERS.get(name)
        assert issubclass(kind, Finder)
        assert kind.name == name
    with pytest.raises(UsageError, match="fewest must be 2 or more"):
        MetadataFinder(fewest=1)
    assert InputFinder().to_json()["fewest"] == 5
