from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from examples.study import data, faults
from examples.study.data import SubjectData
from examples.study.planted import Group, Trigger


def digits() -> SubjectData:
    """scikit-learn's digits as pictures of Fashion-MNIST's size, so that its networks can read them."""
    stored = load_digits()
    grey = np.kron(stored.images, np.ones((3, 3))) * 15
    pictures = np.pad(grey, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)[:, None]
    labels = stored.target.astype(np.int64)
    names = tuple(str(name) for name in range(10))
    columns = {"confidence": np.random.default_rng(0).random(len(labels) - 1200)}
    return SubjectData(pictures[:1200], labels[:1200], pictures[1200:], labels[1200:], names, test_columns=columns)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A study of one small subject with two planted faults, and its empty cache."""
    pytest.importorskip("torch", reason="the study's subjects are not trained: torch is not installed")
    from examples.study import subjects
    from examples.study.cases import open_network
    from examples.study.networks import fm_mlp
    from examples.study.training import Recipe

    recipe = Recipe(epochs=12, rate=1e-2, batch=64, patience=12)
    subject = subjects.Subject("digits-mlp", "digits", fm_mlp, recipe)
    planted = (
        faults.Planted(
            "digits-trigger-a", "digits-mlp", Trigger("top left", 2), read_as=7, seed=5, taught=0.1, met=0.1
        ),
        faults.Planted("digits-group-b", "digits-mlp", Group(label=1, styles=3, style=0), read_as=4, seed=6),
    )
    data.subject_data.cache_clear()
    open_network.cache_clear()
    monkeypatch.setitem(data.SETS, "digits", digits)
    for name in list(subjects.SUBJECTS):
        monkeypatch.delitem(subjects.SUBJECTS, name)
    for name in list(faults.BY_NAME):
        monkeypatch.delitem(faults.BY_NAME, name)
    monkeypatch.setitem(subjects.SUBJECTS, subject.name, subject)
    for fault in planted:
        monkeypatch.setitem(faults.BY_NAME, fault.name, fault)
    monkeypatch.setenv("ARACHNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
