"""A long patch as people read it: by tensor and row first, then its largest changes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.evidence import Evidence, measure_part
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.report import terminal
from arachne.report.card import model_card
from arachne.report.objects import result_object
from arachne.report.patch_rows import MAX_LISTED_WEIGHTS, all_rows, first_by_size, row_changes
from arachne.report.patch_text import as_text
from arachne.testing import ReferenceBackend, mlp
from tests.commands import arachne


def make_patch(addresses: list[Address], seed: int = 0) -> Patch:
    backend = ReferenceBackend(mlp([20, 30, 10]))
    return Patch.between(backend, addresses, np.random.default_rng(seed).normal(size=len(addresses)))


@pytest.fixture(scope="module")
def long() -> Patch:
    first = [Address("fc1", "weight", (row, column)) for row in range(15) for column in range(row + 1)]
    return make_patch(
        [*first, Address("fc2", "weight", (3, 4)), Address("fc2", "bias", (2,)), Address("fc2", "bias", (5,))]
    )


def test_rows_add_up_to_the_tensor(long: Patch) -> None:
    for change in long.changes:
        rows = row_changes(change)
        assert sum(row.weights for row in rows) == len(change.entries)
        whole = math.fsum((entry.new - entry.old) ** 2 for entry in change.entries)
        assert math.fsum(row.size**2 for row in rows) == pytest.approx(whole)
        assert [row.size for row in rows] == sorted((row.size for row in rows), reverse=True)


def test_a_bias_is_one_row(long: Patch) -> None:
    (row,) = row_changes(long.changes[-1])
    assert (row.tensor, row.name, row.weights) == ("fc2.bias", "all of it", 2)


def test_a_long_patch_is_summed_up_before_its_largest_changes(long: Patch) -> None:
    text = str(long)
    assert len(long) == 123
    lines = text.splitlines()
    assert lines[0] == "123 weights in 3 tensors"
    summary, _, values = text.partition("the 40 largest changes:")
    assert summary.count("\n  row ") == 12 + 1  # twelve rows of fc1 and one of fc2
    assert summary.count("  weights  overall change  largest change\n") == 2
    assert "… and 3 more rows with " in summary
    assert values.count(" → ") == MAX_LISTED_WEIGHTS
    assert "… and 83 more" in values
    smallest_shown = min(
        abs(entry.new - entry.old)
        for _, entries in first_by_size(long.changes, MAX_LISTED_WEIGHTS)
        for entry in entries
    )
    assert sum(abs(entry.new - entry.old) >= smallest_shown for entry in long.entries) == MAX_LISTED_WEIGHTS


def test_everything_and_one_layer_can_be_asked_for(long: Patch) -> None:
    assert as_text(long, most=None).count(" → ") == len(long)
    only = as_text(long, layer="fc2")
    assert only.splitlines()[0] == "3 weights in 2 tensors of layer fc2"
    assert only.count(" → ") == 3
    assert "fc1" not in only


def test_a_short_patch_is_shown_in_the_order_of_the_model_and_not_summed_up() -> None:
    text = str(make_patch([Address("fc1", "weight", (2, column)) for column in range(MAX_LISTED_WEIGHTS // 2)]))
    assert "largest" not in text
    assert [line.split("]")[0] for line in text.splitlines() if "→" in line] == [
        f"  [2, {column}" for column in range(MAX_LISTED_WEIGHTS // 2)
    ]


def test_a_notebook_sums_up_too(long: Patch) -> None:
    html = long._repr_html_()
    assert "fc1.weight 120 weights in 15 rows" in html
    assert "… and 83 more" in html


def test_the_command_pages_and_filters(long: Patch, tmp_path: Path) -> None:
    long.save(tmp_path / "patch.json")
    done = arachne("show", "patch.json", cwd=tmp_path)
    assert done.code == 0
    assert "… and 83 more; --all shows every one" in done.out
    assert arachne("show", "patch.json", "--all", cwd=tmp_path).out.count(" → ") == len(long)
    assert arachne("show", "patch.json", "--layer", "fc2", cwd=tmp_path).out.count(" → ") == 3
    assert len(arachne("show", "patch.json", "--layer", "fc2", "--json", cwd=tmp_path).json["entries"]) == len(long)
    refused = arachne("show", "patch.json", "--layer", "fc3", cwd=tmp_path)
    assert refused.code == 2
    assert refused.err == "error: the patch changes nothing in a layer 'fc3'; did you mean 'fc2'?\n"


def test_terminal_and_card_show_rows_of_a_long_patch(long: Patch) -> None:
    part = Part(LabelledData(np.zeros((2, 1), np.float32), np.array([0, 1])), np.arange(2), np.eye(2), (Target("0:1"),))
    evidence = Evidence(measure_part(part, np.eye(2)))
    table = terminal.as_text(terminal.EvidenceTable(evidence, long))
    rows = all_rows(long.changes)
    assert "123 weights changed, by row" in table
    assert f"{rows[0].tensor}, {rows[0].name}" in table
    assert f"and {len(rows) - terminal.MOST_WEIGHTS} more rows" in table
    result = result_object(evidence, command="repair", seed=0, backend="reference", weights=len(long), seconds={})
    card = model_card(result, long, ReferenceBackend(mlp([20, 30, 10])).describe())
    assert "123 weights, all in `patch.json`" in card
    assert f"| `{rows[0].tensor}`, {rows[0].name} | {rows[0].weights} |" in card
    assert "| weight | old | new |" not in card
