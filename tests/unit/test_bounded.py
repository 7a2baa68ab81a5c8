"""JSON is read only where it cannot become far larger than its text."""

from __future__ import annotations

import pytest

from arachne.bounded import MOST_VALUES, bounded_json


def test_plain_json_is_read() -> None:
    assert bounded_json(b'{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"[" + b"[]," * MOST_VALUES + b"[]]", "more than"),
        (b'{"a": 1, "a": 2}', "a key stands twice"),
        (b'{"b": {"a": 1, "a": 2}}', "a key stands twice"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"{", "Expecting"),
        (b"9" * 5000, "digits"),
    ],
)
def test_other_json_is_refused_as_a_value_error(text: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        bounded_json(text)
