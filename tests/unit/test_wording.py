from __future__ import annotations

import pytest

from arachne.text import are, number_text, pluralise, size_text


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 weights"), (1, "1 weight"), (2, "2 weights"), (20_000, "20,000 weights")]
)
def test_a_count_agrees_with_its_noun(number: int, words: str) -> None:
    assert pluralise(number, "weight") == words


def test_an_irregular_plural_is_given() -> None:
    assert pluralise(1, "patch", "patches") == "1 patch"
    assert pluralise(3, "patch", "patches") == "3 patches"


def test_the_verb_agrees_with_the_number() -> None:
    assert [are(number) for number in (0, 1, 2)] == ["are", "is", "are"]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.9, "0.9"), (0.123456, "0.1235"), (999999, "999999"), (-15270.25, "-15270.25"), (1e6 + 0.5, "1000000"),
     (3e20, "3e+20"), (float("nan"), "nan")],
)  # fmt: skip
def test_a_value_is_told_as_its_table_has_it(value: float, words: str) -> None:
    assert number_text(value) == words


def test_sizes_are_told_in_the_largest_unit_that_fits() -> None:
    assert [size_text(size) for size in (12, 2048, 3 << 20, 1610612736, 4 << 30)] == [
        "12 bytes",
        "2 KiB",
        "3 MiB",
        "1.5 GiB",
        "4 GiB",
    ]
