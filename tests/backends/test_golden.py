"""Repairs whose patches are pinned: for a seed, the same patch as before, bit for bit, on every backend."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType

import pytest

from arachne.testing import ReferenceBackend
from tests.backends import golden

EXPECTED = json.loads(golden.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=pytest.mark.backend(name)) for name in ("reference", "torch", "onnx", "keras")]
)
def test_a_repair_gives_the_patch_it_always_gave(
    backend: str, case: str, networks_in: Callable[[str], ModuleType]
) -> None:
    build = ReferenceBackend if backend == "reference" else networks_in(backend).build
    assert golden.patch_of(case, build) == EXPECTED[case]
