"""Batches: everything once, no more than asked for at a time, and in even numbers."""

from __future__ import annotations

import itertools

import pytest

from arachne.model.values import EVEN, batches


@pytest.mark.parametrize(
    ("n", "size"), [(1, 1), (10, 3), (64, 64), (65, 64), (1500, 372), (4288, 1000), (5000, 1 << 20)]
)
def test_batches_cover_everything_once_and_are_no_longer_than_asked_for(n: int, size: int) -> None:
    parts = list(batches(n, size))
    assert list(itertools.chain.from_iterable(range(part.start, part.stop) for part in parts)) == list(range(n))
    assert all(0 < part.stop - part.start <= size for part in parts)


def test_no_batches_of_nothing() -> None:
    assert list(batches(0, 10)) == []


def test_batches_are_even_and_of_about_one_length() -> None:
    lengths = [part.stop - part.start for part in batches(23 * EVEN, 400)]
    assert all(length % EVEN == 0 for length in lengths)
    assert max(lengths) - min(lengths) <= EVEN


def test_small_batches_are_of_about_one_length() -> None:
    lengths = [part.stop - part.start for part in batches(50, 16)]
    assert max(lengths) - min(lengths) <= 1
