from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.run import run_checked, with_model_names
from arachne.data.split import Split, groups_of, overlap, split_by_outcome
from arachne.data.strata import divide
from arachne.data.targets import Target
from arachne.errors import DataError, ModelError, NothingToRepairError, UsageError
from arachne.model.values import Array
from arachne.testing import ReferenceBackend, mlp
from arachne.testing.networks import Network
from arachne.testing.nodes import Dense

DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS = (DIGITS / 16).astype(np.float32)
DATA = LabelledData(DIGITS, LABELS)


@pytest.fixture(scope="module")
def backend() -> ReferenceBackend:
    """A linear classifier by class means: right on some nine of ten digits."""
    means = np.stack([DIGITS[label == LABELS].mean(axis=0) for label in range(10)])
    bias = -0.5 * (means**2).sum(axis=1)
    return ReferenceBackend(Network({"input": (64,)}, (Dense("fc", "input", means, bias.astype(np.float32)),)))


def split(backend: ReferenceBackend, target: str | list[str] = "top:1", seed: int = 0, **more: object) -> Split:
    return split_by_outcome(backend, DATA, target, rng=np.random.default_rng(seed), **more)  # type: ignore[arg-type]  # by keyword


def rows_of(parts: Split) -> list[int]:
    return sorted(np.concatenate([parts.seen.rows, parts.choose.rows, parts.held_out.rows]).tolist())


strata = st.lists(st.integers(0, 6), min_size=1, max_size=80).map(np.array)


@given(strata, st.integers(0, 2**32 - 1))
def test_halves_are_equal_within_one_in_every_stratum_and_in_all(strata: Array, seed: int) -> None:
    first = divide(strata, 0.5, rng=np.random.default_rng(seed))
    assert abs(int(first.sum()) - int((~first).sum())) <= 1
    for stratum in np.unique(strata):
        inside = strata == stratum
        assert abs(int((first & inside).sum()) - int((~first & inside).sum())) <= 1


@given(strata, st.floats(0.05, 0.95), st.integers(0, 2**32 - 1))
def test_any_share_is_met_within_one_in_every_stratum(strata: Array, share: float, seed: int) -> None:
    first = divide(strata, share, rng=np.random.default_rng(seed))
    assert abs(first.sum() - share * len(strata)) <= 1
    for stratum in np.unique(strata):
        inside = strata == stratum
        assert abs((first & inside).sum() - share * inside.sum()) < 1 + 1e-9


@given(strata, st.integers(0, 2**32 - 1))
def test_same_seed_gives_the_same_halves(strata: Array, seed: int) -> None:
    one, other = (divide(strata, 0.5, rng=np.random.default_rng(seed)) for _ in range(2))
    assert np.array_equal(one, other)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8)), min_size=1, max_size=80).map(np.array),
    st.integers(0, 2**32 - 1),
)
def test_groups_are_never_torn_and_halves_differ_by_two_groups_at_most(pairs: Array, seed: int) -> None:
    strata, groups = pairs[:, 0], pairs[:, 1]
    first = divide(strata, 0.5, rng=np.random.default_rng(seed), groups=groups)
    for group in np.unique(groups):
        assert len(set(first[groups == group].tolist())) == 1
    assert abs(int(first.sum()) - int((~first).sum())) <= 2 * max(Counter(groups.tolist()).values())


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_groups_of_a_few_rows_leave_every_stratum_nearly_even(seed: int) -> None:
    rng = np.random.default_rng(seed)
    strata = rng.integers(0, 4, 400)
    groups = rng.integers(0, 120, 400)
    first = divide(strata, 0.5, rng=rng, groups=groups)
    for stratum in range(4):
        assert 0.4 <= first[strata == stratum].mean() <= 0.6


@pytest.mark.parametrize("choose", [0.0, 0.3])
def test_every_row_is_in_exactly_one_part(backend: ReferenceBackend, choose: float) -> None:
    parts = split(backend, choose=choose)
    assert rows_of(parts) == list(range(len(DATA)))
    assert abs(len(parts.seen) + len(parts.choose) - len(parts.held_out)) <= 1
    assert len(parts.choose) == pytest.approx(choose * len(DATA) / 2, abs=1)


def test_parts_hold_the_rows_they_say(backend: ReferenceBackend) -> None:
    parts = split(backend, choose=0.3)
    for part in (parts.seen, parts.choose, parts.held_out):
        assert np.array_equal(part.data.inputs, DIGITS[part.rows])  # type: ignore[arg-type]  # one array
        assert np.array_equal(part.data.labels, LABELS[part.rows])
        assert np.array_equal(part.predictions, backend.predict(DIGITS[part.rows]))


def test_outcomes_are_spread_evenly_over_the_halves(backend: ReferenceBackend) -> None:
    parts = split(backend)
    seen, held_out = (
        Counter(zip(part.data.labels.tolist(), part.predictions.tolist(), strict=True))
        for part in (parts.seen, parts.held_out)
    )
    assert all(abs(seen[outcome] - held_out[outcome]) <= 1 for outcome in seen | held_out)


def test_seed_decides_the_split(backend: ReferenceBackend) -> None:
    one, same, other = (split(backend, seed=seed).seen.rows for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_positives_are_right_and_negatives_show_a_target(backend: ReferenceBackend) -> None:
    part = split(backend, ["*:1", "9:*=2"]).seen
    labels, predictions = part.data.labels, part.predictions
    assert (labels[part.positives] == predictions[part.positives]).all()
    assert len(part.positives) == (labels == predictions).sum()
    wanted = (labels != predictions) & ((predictions == 1) | (labels == 9))
    assert np.array_equal(part.negatives, np.flatnonzero(wanted))


def test_terms_count_each_row_once_and_weigh_by_alpha(backend: ReferenceBackend) -> None:
    part = split(backend, ["*:1", "9:*=2"]).seen
    positives, to_one, nines = part.terms(10)
    assert (positives.name, positives.weight) == ("positives", 1)
    assert (to_one.name, to_one.weight, nines.name, nines.weight) == ("*:1", 10, "9:*", 20)
    both = (part.data.labels == 9) & (part.predictions == 1)
    assert both.any()
    assert both[to_one.rows].any()
    assert not both[nines.rows].any()
    assert sorted([*to_one.rows, *nines.rows]) == part.negatives.tolist()


def test_with_a_holdout_all_of_the_data_is_seen(backend: ReferenceBackend) -> None:
    half = len(DATA) // 2
    data, holdout = DATA.take(range(half)), DATA.take(range(half, len(DATA)))
    same = set(overlap(data, holdout).tolist())
    parts = split_by_outcome(backend, data, "top:1", rng=np.random.default_rng(0), holdout=holdout, drop_overlap=True)
    assert parts.seen.rows.tolist() == list(range(half))
    assert parts.seen.data is data
    assert parts.held_out.rows.tolist() == [row for row in range(len(holdout)) if row not in same]


def test_overlap_with_the_holdout_is_refused_with_count_and_rows(backend: ReferenceBackend) -> None:
    data, holdout = DATA.take(range(900)), DATA.take([*range(1500, 1700), 3, 7])
    assert overlap(data, holdout).tolist() == [200, 201]
    with pytest.raises(DataError, match=r"2 of 202 held-out inputs are also in the data \(held-out rows 200, 201\)"):
        split_by_outcome(backend, data, "top:1", rng=np.random.default_rng(0), holdout=holdout)
    with pytest.raises(DataError, match="all 900 held-out inputs are also in the data"):
        split_by_outcome(backend, data, "top:1", rng=np.random.default_rng(0), holdout=data, drop_overlap=True)


def test_overlap_counts_content_not_labels() -> None:
    other = LabelledData(DIGITS[:5], (LABELS[:5] + 1) % 10)
    assert len(overlap(DATA, other)) == 5


def test_row_targets_do_not_reach_into_a_holdout(backend: ReferenceBackend) -> None:
    wrong = np.flatnonzero(backend.predict(DIGITS) != LABELS)
    target = Target("rows", rows=tuple(wrong.tolist()))
    data, holdout = DATA.take(range(1000)), DATA.take(range(1000, 1797))
    parts = split_by_outcome(backend, data, target, rng=np.random.default_rng(0), holdout=holdout)
    assert len(parts.seen.negatives) == (wrong < 1000).sum()
    assert len(parts.held_out.negatives) == 0


def test_row_targets_apply_to_the_part_each_row_falls_into(backend: ReferenceBackend) -> None:
    wrong = np.flatnonzero(backend.predict(DIGITS) != LABELS)
    parts = split_by_outcome(backend, DATA, Target("r", rows=tuple(wrong.tolist())), rng=np.random.default_rng(0))
    both = np.concatenate([part.rows[part.negatives] for part in (parts.seen, parts.held_out)])
    assert sorted(both.tolist()) == wrong.tolist()


def test_groups_stay_in_one_part_also_when_choosing(backend: ReferenceBackend) -> None:
    person = np.arange(len(DATA)) // 7
    data = LabelledData(DIGITS, LABELS, columns={"person": person})
    for group_by in ("person", person):
        parts = split_by_outcome(backend, data, "top:1", rng=np.random.default_rng(0), choose=0.3, group_by=group_by)
        sides = [set(person[part.rows].tolist()) for part in (parts.seen, parts.choose, parts.held_out)]
        assert sum(map(len, sides)) == len(set.union(*sides))
        assert rows_of(parts) == list(range(len(DATA)))


def test_duplicates_stay_on_one_side(backend: ReferenceBackend) -> None:
    data = LabelledData(np.repeat(DIGITS[:600], 2, axis=0), np.repeat(LABELS[:600], 2))
    parts = split_by_outcome(backend, data, "top:1", rng=np.random.default_rng(0), group_by="duplicates")
    assert not len(overlap(parts.seen.data, parts.held_out.data))


def test_unknown_group_column_and_wrong_length_are_refused() -> None:
    data = LabelledData(DIGITS, LABELS, columns={"person": LABELS})
    with pytest.raises(UsageError, match="no metadata column named 'persn' to group by; did you mean 'person'"):
        groups_of(data, "persn")
    with pytest.raises(DataError, match="expected one group per input, 1797 in all"):
        groups_of(data, np.zeros(3))


def test_a_model_without_this_mistake_has_nothing_to_repair(backend: ReferenceBackend) -> None:
    predictions = backend.predict(DIGITS)
    never = next((a, b) for a in range(10) for b in range(10) if a != b and not (predictions[a == LABELS] == b).any())
    with pytest.raises(NothingToRepairError, match=f"none of 1797 inputs shows '{never[0]}:{never[1]}'"):
        split(backend, f"{never[0]}:{never[1]}")
    right = DATA.take(np.flatnonzero(predictions == LABELS))
    with pytest.raises(NothingToRepairError, match=r"classifies all .* inputs correctly"):
        split_by_outcome(backend, right, "*:*", rng=np.random.default_rng(0))


def test_a_single_negative_that_is_not_seen_is_told(backend: ReferenceBackend) -> None:
    wrong = np.flatnonzero(backend.predict(DIGITS) != LABELS)
    target = Target("r", rows=(int(wrong[0]),))
    told = set()
    for seed in range(20):
        try:
            parts = split_by_outcome(backend, DATA, target, rng=np.random.default_rng(seed))
            assert len(parts.seen.negatives) == 1
        except NothingToRepairError as error:
            told.add(str(error))
    assert any("all inputs that show 'r', 1 of 1797, are outside the part the repair sees" in text for text in told)


def test_labels_the_model_does_not_have_are_refused(backend: ReferenceBackend) -> None:
    labels = LABELS.copy()
    labels[17] = 12
    with pytest.raises(DataError, match="row 17 has the label 12, but the model has the classes 0 to 9"):
        split_by_outcome(backend, LabelledData(DIGITS, labels), "1:2", rng=np.random.default_rng(0))


def test_empty_data_and_bad_shares_are_refused(backend: ReferenceBackend) -> None:
    with pytest.raises(DataError, match="the data has no inputs"):
        run_checked(backend, DATA.take([]))
    with pytest.raises(UsageError, match="share from 0 to below 1"):
        split(backend, choose=1.0)


def test_scores_that_are_not_numbers_are_refused() -> None:
    network = mlp([64, 10])
    broken = ReferenceBackend(network)
    values = broken.get_weights("fc1")["weight"].copy()
    values[0, 0] = np.nan
    broken.set_weights("fc1", "weight", values)
    with pytest.raises(ModelError, match=r"scores are not numbers \(NaN\) for 1,797 inputs, first row 0"):
        run_checked(broken, DATA)


def test_names_of_the_model_are_used_and_assumed_names_renumbered(backend: ReferenceBackend) -> None:
    named = ReferenceBackend(mlp([64, 3]))
    named.class_names = ("dog", "cat", "ape")
    inputs = np.zeros((3, 64), dtype=np.float32)
    assert with_model_names(named, LabelledData(inputs, [0, 1, 2])).class_name(0) == "dog"  # type: ignore[arg-type]  # a list
    data = LabelledData(inputs, np.array([0, 1, 2]), ("ape", "cat", "dog"), names_assumed=True)
    assert with_model_names(named, data).labels.tolist() == [2, 1, 0]
    with pytest.raises(DataError, match="in another order"):
        run_checked(named, data)
    with pytest.raises(DataError, match="no class 'cow'"):
        with_model_names(named, LabelledData(inputs, np.zeros(3), ("cow",), names_assumed=True))


def test_names_must_be_one_for_each_class(backend: ReferenceBackend) -> None:
    with pytest.raises(DataError, match=r"found 2 class names \(a, b\), but the model has 10 classes; give all names"):
        run_checked(backend, LabelledData(DIGITS, LABELS % 2, ("a", "b"), names_assumed=True))
    with pytest.raises(DataError, match="expected one name for each of the model's 10 classes, got 2"):
        run_checked(backend, LabelledData(DIGITS, LABELS % 2, ("a", "b")))


def test_an_empty_part_has_no_rows_and_empty_terms(backend: ReferenceBackend) -> None:
    part = split(backend).choose
    assert isinstance(part, Part)
    assert len(part) == 0
    assert [len(term.rows) for term in part.terms(1)] == [0, 0]
