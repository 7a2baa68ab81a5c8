"""The base class of backends guards its own methods."""

from __future__ import annotations

import re

import pytest

from arachne.model.backend import ModelBackend
from arachne.model.inputs import READING_INPUTS, ModelInputs
from arachne.testing import ReferenceBackend
from tests.pages import ROOT


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("forward", "define '_forward' instead"),
        ("_check_arguments", "give it another name"),
        ("_read_all", "give it another name"),
    ],
)
def test_a_subclass_that_overrides_a_final_method_is_refused(name: str, instead: str) -> None:
    sentence = f"'Mine' overrides the final method '{name}' of ModelBackend; {instead}"
    with pytest.raises(TypeError, match=f"^{re.escape(sentence)}$"):
        type("Mine", (ReferenceBackend,), {name: lambda self, inputs: None})


def test_a_subclass_may_have_helpers_of_its_own() -> None:
    mine = type("Mine", (ReferenceBackend,), {"_check": lambda self: "mine", "_forward": lambda self, inputs: None})
    assert mine._check(None) == "mine"  # type: ignore[attr-defined]


def test_a_helper_can_replace_nothing_silently() -> None:
    page = (ROOT / "docs" / "write-a-backend.md").read_text()
    ours = {**vars(ModelInputs), **vars(ModelBackend)}
    own = {n: f for n, f in ours.items() if n.startswith("_") and n[1] != "_" and callable(f)}
    told = {name for name in own if f"`{name}(" in page}
    assert told >= {"_forward", "_cut", "_look", "_read_weights"} & own.keys()
    assert {name for name in own.keys() - told if not getattr(own[name], "__final__", False)} == {*READING_INPUTS}
