"""The five plug-ins, by name, as an installed distribution has them."""

from __future__ import annotations

import json
from importlib import resources

import numpy as np
import pytest
from arachne_lopsided import Lopsided
from arachne_ordinal import Ordinal

import arachne
from arachne.causes import rule_from
from arachne.plugins.table import FINDERS, LOCALISERS, OBJECTIVES, SEARCHERS, TASKS
from arachne.testing import TaskConformance

MODEL = str(resources.files("arachne.demo").joinpath("digits.onnx"))


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (SEARCHERS, "hill"),
        (LOCALISERS, "last"),
        (OBJECTIVES, "mean-gap"),
        (FINDERS, "lopsided"),
        (TASKS, "ordinal"),
    ],
)
def test_each_is_found_by_its_name_and_tells_its_distribution(table, name) -> None:
    plugin = table.get(name)
    assert plugin.name == name
    assert table.origin(plugin) == "arachne-five 0.1.0"


def test_a_repair_runs_with_them() -> None:
    model = arachne.load(MODEL)
    inputs = model.example_inputs(600, seed=1)
    labels = model.predict(inputs)
    wrong = (labels == 7) | (np.arange(600) % 9 == 0)
    labels = np.where(wrong, 3, labels)
    result = arachne.repair(model, (inputs, labels), "3:*", localiser="last", searcher="hill", seed=0, max_break=0.9)
    settings = result.patch.provenance["settings"]
    assert settings["searcher"]["package"] == "arachne-five 0.1.0"
    assert settings["localiser"]["package"] == "arachne-five 0.1.0"


def test_a_rule_is_read_back_as_the_plugins_own() -> None:
    rule = Lopsided("left", 0.8)
    again = rule_from(json.loads(json.dumps(rule.to_json())))
    assert again == rule
    assert again.words == "80 % or more of the ink is on the left"


class TestOrdinal(TaskConformance):
    """The task, by the checks that come with Arachne."""

    def examples(self):
        rng = np.random.default_rng(0)
        return [(Ordinal(), rng.normal(size=(6, 3)), rng.integers(4, size=6))]
