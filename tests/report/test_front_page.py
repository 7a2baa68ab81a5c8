"""The front on the page: every point with what it fixes and breaks, and each picture once."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arachne.report.front_page import MAX_LISTED_INPUTS, MOST_PICTURES, MOST_POINTS, front_object
from arachne.report.html import render
from arachne.report.json import dumps
from arachne.results.result import RepairResult


@pytest.fixture(scope="module")
def html(front_page: dict[str, Any]) -> str:
    return render(front_page)


def test_a_search_with_one_candidate_has_a_page_without_a_front(page: dict[str, Any]) -> None:
    assert "front" not in page
    assert 'id="front"' not in render(page)


def test_points_come_by_rising_damage_with_counts_of_every_part(
    front_page: dict[str, Any], with_front: RepairResult
) -> None:
    points = front_page["front"]["points"]
    assert len(points) == len(with_front.points)
    broken = [point["held_out"]["broken"] for point in points]
    assert broken == sorted(broken)
    assert [point["made_by"] for point in points if point["chosen"]] == ["de"]
    taken = next(point for point in points if point["chosen"])
    held_out = with_front.evidence.held_out
    assert (taken["held_out"]["repaired"], taken["held_out"]["broken"]) == (held_out.repaired, held_out.broken)
    assert taken["weights"] == len(with_front.patch)
    assert taken["choose"] is None


def test_rows_of_a_point_are_those_whose_outcome_changes(front_page: dict[str, Any], with_front: RepairResult) -> None:
    taken = next(point for point in front_page["front"]["points"] if point["chosen"])
    held_out = with_front.evidence.held_out
    assert taken["fixed_total"] == len(held_out.fixed)
    assert sorted(taken["fixed"]) == sorted(held_out.fixed.rows.tolist())
    assert sorted(taken["broken"]) == sorted(held_out.damaged.rows.tolist())


def test_what_a_gallery_shows_the_front_does_not_store_again(front_page: dict[str, Any], html: str) -> None:
    galleries = {card["row"] for gallery in front_page["gallery"].values() for card in gallery["cards"]}
    front = {card["row"] for card in front_page["front"]["inputs"]}
    assert not galleries & front
    wanted = {row for point in front_page["front"]["points"] for kind in ("fixed", "broken") for row in point[kind]}
    assert wanted <= galleries | front
    assert html.count("data:image/png") == sum(
        len(cards) for cards in (*(g["cards"] for g in front_page["gallery"].values()), front_page["front"]["inputs"])
    ) + len(front_page["doubtful"]) + 3 * len(front_page["saliency"])


def test_hostile_names_of_searchers_stay_text(html: str) -> None:
    assert "<b>bias</b>" not in html
    assert "&lt;b&gt;bias&lt;/b&gt;" in html


def test_the_chart_has_three_series_the_budget_and_a_ring(html: str, front_page: dict[str, Any]) -> None:
    points = front_page["front"]["points"]
    chart = html[html.index('id="front"') :]
    chart = chart[: chart.index("</svg>")]
    assert len(re.findall(r'class="series held_out', chart)) == len(points)
    assert len(re.findall(r'class="series seen', chart)) == len(points)
    assert "budget 2 %" in chart
    assert chart.count('class="ring"') == 1
    assert "<polygon" in chart  # the second maker's mark is no circle


def test_a_page_with_a_front_is_the_same_after_its_file(front_page: dict[str, Any], html: str) -> None:
    assert render(json.loads(dumps(front_page))) == html


def test_limits_hold_for_a_long_front(with_front: RepairResult) -> None:
    rng = np.random.default_rng(0)
    points = []
    for point in with_front.points * 40:
        assert point.held_out is not None
        flipped = rng.random(len(point.held_out.right)) < 0.5
        points.append(replace(point, held_out=replace(point.held_out, right=flipped)))
    assert with_front.choice is not None
    told = front_object(points, replace(with_front.choice, index=7), with_front.split.held_out)
    assert len(told["points"]) <= MOST_POINTS
    assert told["left_out"] == len(points) - len(told["points"])
    assert sum(point["chosen"] for point in told["points"]) == 1
    assert len(told["inputs"]) == MOST_PICTURES
    assert all(len(point["broken"]) <= MAX_LISTED_INPUTS < point["broken_total"] for point in told["points"])
