"""A name on its way out still works, warns, and says so where people read."""

from __future__ import annotations

import inspect

import pytest

from arachne.deprecation import ArachneDeprecationWarning, deprecated


@deprecated(since="0.2", removed_in="0.4", instead="'new'")
def old(number: int) -> int:
    """Twice a number.

    Args:
        number: The number.
    """
    return 2 * number


@deprecated(since="0.2", removed_in="1.0", instead="'New'")
class Old:
    """Holds a number."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_a_deprecated_function_works_and_warns_where_it_is_called() -> None:
    with pytest.warns(
        ArachneDeprecationWarning, match="'old' is deprecated since 0.2 and will be removed in 0.4"
    ) as told:
        assert old(3) == 6
    assert told[0].filename == __file__
    assert str(told[0].message).endswith("; use 'new'")


def test_a_deprecated_class_is_still_a_class() -> None:
    with pytest.warns(ArachneDeprecationWarning, match="use 'New'"):
        made = Old(3)
    assert isinstance(made, Old)
    assert made.number == 3


def test_the_docstring_carries_the_note_behind_its_first_sentence() -> None:
    first, note, *rest = (inspect.getdoc(old) or "").split("\n\n")
    assert first == "Twice a number."
    assert note == "Deprecated: 'old' is deprecated since 0.2 and will be removed in 0.4; use 'new'."
    assert rest[0].startswith("Args:")
    assert "Deprecated: 'Old'" in (Old.__doc__ or "")


def test_a_name_stays_for_two_minor_versions() -> None:
    with pytest.raises(ValueError, match="too soon"):
        deprecated(since="0.2", removed_in="0.3", instead="'new'")
