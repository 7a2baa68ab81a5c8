from __future__ import annotations

import pytest

from arachne.wording import are, counted


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 weights"), (1, "1 weight"), (2, "2 weights"), (20_000, "20,000 weights")]
)
def test_a_count_agrees_with_its_noun(number: int, words: str) -> None:
    assert counted(number, "weight") == words


def test_an_irregular_plural_is_given() -> None:
    assert counted(1, "patch", "patches") == "1 patch"
    assert counted(3, "patch", "patches") == "3 patches"


def test_the_verb_agrees_with_the_number() -> None:
    assert [are(number) for number in (0, 1, 2)] == ["are", "is", "are"]
