from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from arachne import engine
from arachne.choose.budget import Budget, Choice
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.errors import InputError
from arachne.evidence import Evidence, measure_part
from arachne.report import pictures
from arachne.report.front_page import MOST_PICTURES
from arachne.report.html import layer_runs, render
from arachne.report.json import dumps
from arachne.report.objects import result_object
from arachne.report.page import MOST_CLASSES, MOST_SHOWN, page_object
from arachne.report.terminal import EvidenceTable, as_text
from arachne.results.result import RepairResult
from arachne.scoring.outcome import Baseline, Outcome
from arachne.search import Candidate
from arachne.search.measured import MeasuredCandidate
from arachne.settings import Settings
from arachne.testing import ReferenceBackend
from arachne.text import percent
from arachne.weights.selection import Selection


class Reader(HTMLParser):
    """The elements of a page: tags with attributes, text by element, numbers by name."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.numbers: dict[str, str] = {}
        self._number: str | None = None
        self._raw = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._raw += tag in ("script", "style")
        name = dict(attrs).get("data-number")
        if name is not None:
            self._number = name
            self.numbers[name] = ""

    def handle_endtag(self, tag: str) -> None:
        self._raw -= tag in ("script", "style")
        if tag == "p":
            self._number = None

    def handle_data(self, data: str) -> None:
        if self._number is not None:
            self.numbers[self._number] += data.replace("\N{NO-BREAK SPACE}", " ")
        if not self._raw:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


@pytest.fixture(scope="module")
def html(page: dict[str, Any]) -> str:
    return render(page)


@pytest.fixture(scope="module")
def reader(html: str) -> Reader:
    return Reader(html)


def test_sections_come_in_the_promised_order(reader: Reader) -> None:
    sections = [attributes["id"] for tag, attributes in reader.tags if tag == "section"]
    assert sections == [
        "numbers",
        "confusion",
        "classes",
        "inputs",
        "saliency",
        "confidence",
        "network",
        "localisation",
        "search",
        "settings",
    ]


def test_no_line_of_the_page_begins_with_a_per_cent_sign(page: dict[str, Any]) -> None:
    html = render(page)
    assert not re.search(r"\d %", re.sub(r"(?s)<svg.*?</svg>|<script>.*", "", html))
    assert re.search(r"\d(&nbsp;|\N{NO-BREAK SPACE})%", html)


def test_the_page_leads_with_the_cause_in_the_words_of_the_scan(page: dict[str, Any]) -> None:
    tried = {"cause:1": {"sentence": "confirmed by experiment: planted on 354 right inputs, 100 % fail"}}
    told = {"causes": {"cause:1": "pixel (0, 0) is 1"}, "experiments": tried, "connection": "all are connected to it"}
    html = render({**page, "result": {**page["result"], **told}})
    assert html.index("pixel (0, 0) is 1; confirmed by experiment") < html.index("<h1>")
    assert html.count("confirmed by experiment") == 1
    assert "All are connected to it." in html


def test_what_was_localised_is_counted_and_no_hashes_are_shown(page: dict[str, Any], repaired: RepairResult) -> None:
    html = render(page)
    localised = repaired.localisation
    assert f"looked at {localised.n_candidates:,} weights and localised {len(localised.suspects):,}." in html
    provenance = {"data": {"name": "x.npz", "seen": {"count": 4, "rows": "eNoBcQCO"}}}
    shown = page_object({**repaired.to_json(), "provenance": provenance}, repaired.evidence, repaired.split.held_out)
    assert shown["result"]["provenance"] == {"data": {"name": "x.npz", "seen": {"count": 4}}}


def test_a_fitness_that_falls_is_not_drawn(page: dict[str, Any]) -> None:
    history = [{"number": n, "fitness": f, "repaired": 1, "broken": 0} for n, f in enumerate((1.0, 3.0, 2.0))]
    search = {"stopped": "all members are done", "original_fitness": 1.0, "fitness": 3.0, "history": history}
    html = render({**page, "search": search})
    assert "Several searches ran one after the other, 2 steps in all" in html
    assert "best fitness" not in html
    rising = [{**at, "fitness": float(n)} for n, at in enumerate(history)]
    assert "Fitness is what the search makes large" in render({**page, "search": {**search, "history": rising}})


def test_page_terminal_and_file_show_the_same_numbers(reader: Reader, repaired: RepairResult) -> None:
    held_out = repaired.to_json()["held_out"]
    table = as_text(EvidenceTable(repaired.evidence, repaired.patch))
    rates = re.findall(r"(\d[\d,]*) of (\d[\d,]*): ([\d.]+ %)", table)
    repaired_row, broken_row = rates[1], rates[3]  # seen and held out, twice
    assert reader.numbers["repair_rate"] == repaired_row[2] == percent(held_out["repair_rate"])
    assert (int(repaired_row[0]), int(repaired_row[1])) == (held_out["repaired"], held_out["negatives"])
    assert reader.numbers["break_rate"] == broken_row[2] == percent(held_out["break_rate"])
    assert (int(broken_row[0]), int(broken_row[1])) == (held_out["broken"], held_out["positives"])
    accuracy = re.findall(r"[\d.]+ % → [\d.]+ %", next(line for line in table.splitlines() if "accuracy  " in line))
    assert reader.numbers["accuracy"] == accuracy[1]
    assert accuracy[1] == f"{percent(held_out['accuracy_before'])} → {percent(held_out['accuracy_after'])}"
    fault = re.findall(r"\d+ → \d+", next(line for line in table.splitlines() if "fault, all inputs" in line))
    assert reader.numbers["target_errors"] == fault[1]
    assert fault[1] == f"{held_out['target_errors_before']} → {held_out['target_errors_after']}"
    assert " ".join(repaired.evidence.verdict.sentence.split())[1:] in reader.text


def test_hostile_names_stay_text(html: str, reader: Reader) -> None:
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert "<script>window.hacked = 1</script>" in reader.text
    assert "{{ 7 * 7 }}" in reader.text
    assert "digits/<i>" in reader.text
    assert not any(tag in ("i", "iframe") for tag, _ in reader.tags)
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    assert all(
        attributes["src"].startswith("data:image/")
        for tag, attributes in reader.tags
        if tag == "img" and attributes["src"]
    )


def test_labels_worth_a_look_are_shown(page: dict[str, Any], reader: Reader, repaired: RepairResult) -> None:
    assert len(repaired.doubtful) == len(page["doubtful"]) > 0
    assert "Labels worth a look" in reader.text
    first = page["doubtful"][0]
    assert (first["label"], first["prediction"]) == ("eight", "<script>window.hacked = 1</script>")
    assert f"{first['agreeing']} of 10 alike are that" in reader.text


def test_nothing_is_fetched_from_elsewhere(reader: Reader) -> None:
    addresses = [
        value
        for _, attributes in reader.tags
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data")
    ]
    assert addresses
    assert all(value is not None and value.startswith(("data:", "#")) for value in addresses)
    policy = next(a["content"] for tag, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy


def test_every_picture_has_words_for_those_who_cannot_see_it(html: str, reader: Reader) -> None:
    pictures = [attributes for tag, attributes in reader.tags if tag == "img"]
    assert len(pictures) > 10
    assert all(attributes.get("alt") for attributes in pictures)
    drawings = re.findall(r"<svg[^>]*>(<title>[^<]+</title>)?", html)
    assert drawings
    assert all(drawings)


def test_headings_do_not_skip_a_level(reader: Reader) -> None:
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_the_same_seed_gives_the_same_page_except_for_times(
    html: str,
    backend: ReferenceBackend,
    data: LabelledData,
    settings: Settings,
    page_of: Callable[[RepairResult], dict[str, Any]],
) -> None:
    again = render(page_of(engine.repair(backend, data, "8:1", settings=settings)))
    times = re.compile(r'<dd id="seconds">[^<]*</dd>|<time [^<]*</time>')
    assert len(times.findall(html)) == 2
    assert times.sub("", again) == times.sub("", html)


def test_a_page_read_back_from_its_file_is_the_same_page(page: dict[str, Any], html: str) -> None:
    assert render(json.loads(dumps(page))) == html


def test_another_file_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected a report of schema 'arachne\.report/1', got 'arachne\.result/1'"):
        render({"schema": "arachne.result/1"})


def large_page(n: int = 10_000, classes: int = 43) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, n)
    before = np.where(rng.random(n) < 0.9, labels, rng.integers(0, classes, n))
    after = np.where(rng.random(n) < 0.1, rng.integers(0, classes, n), before)
    after = np.where((before != labels) & (rng.random(n) < 0.4), labels, after)
    data = LabelledData(np.broadcast_to(rng.random((3, 128, 128)), (n, 3, 128, 128)), labels)  # noise packs badly
    part = Part(data, np.arange(n), np.eye(classes)[before] * 9, (Target("*:*"),))
    evidence = Evidence(measure_part(part, np.eye(classes)[after] * 9))
    result = result_object(evidence, command="evaluate", seed=None, backend="reference", weights=0)
    return page_object(result, evidence, part)


def test_the_page_for_ten_thousand_photographs_is_small_and_packs_only_those_it_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packing = Mock(wraps=pictures._picture)
    monkeypatch.setattr(pictures, "_picture", packing)
    html = render(large_page())
    assert packing.call_count == 2 * MOST_SHOWN
    assert len(html.encode()) < 5_000_000
    assert html.count("<img ") == 2 * MOST_SHOWN
    assert f"the {MOST_CLASSES} classes with most changes, 13 left out" in html


def test_a_front_over_ten_thousand_photographs_keeps_the_page_small() -> None:
    rng = np.random.default_rng(1)
    n, classes = 10_000, 10
    labels = rng.integers(0, classes, n)
    before = np.where(rng.random(n) < 0.9, labels, rng.integers(0, classes, n))
    data = LabelledData(np.broadcast_to(rng.random((3, 128, 128)), (n, 3, 128, 128)), labels)
    part = Part(data, np.arange(n), np.eye(classes)[before] * 9, (Target("*:*"),))
    baseline = Baseline.of(part)
    points = [
        MeasuredCandidate(
            Candidate(Selection((), np.zeros(0)), np.zeros(0), made_by="margin"), 300, 1.0, standing, held_out=standing
        )
        for standing in (Outcome(baseline, baseline.right ^ (rng.random(n) < share / 50)) for share in range(80))
    ]
    evidence = Evidence(measure_part(part, np.eye(classes)[labels] * 9))
    result = result_object(evidence, command="evaluate", seed=None, backend="reference", weights=0)
    choice = Choice(3, Budget(), "by hand", "for the test")
    html = render(page_object(result, evidence, part, front=points, choice=choice))
    assert 2_000_000 < len(html.encode()) < 5_000_000
    assert html.count("<img ") == MOST_SHOWN + MOST_PICTURES


def test_a_page_without_search_or_patch_is_whole() -> None:
    page = large_page(n=600, classes=4)
    html = render(page)
    assert 'id="search"' not in html
    assert 'id="localisation"' not in html
    assert html.rstrip().endswith("</html>")


def test_a_deep_network_is_drawn_with_untouched_layers_counted() -> None:
    layers = [{"name": str(number), "changed": number in (5, 6, 30)} for number in range(40)]
    runs = layer_runs(layers)
    assert [len(run["names"]) if "names" in run else run["layer"]["name"] for run in runs] == [5, "5", "6", 23, "30", 9]
    assert len(layer_runs(layers[:20])) == 20


def test_a_page_of_an_empty_part_is_still_a_page(repaired: RepairResult) -> None:
    held_out = repaired.split.held_out
    empty = Part(held_out.data.take([]), held_out.rows[:0], held_out.scores[:0], held_out.targets)
    evidence = replace(repaired.evidence, held_out=measure_part(empty, np.zeros((0, 10))))
    result = result_object(evidence, command="repair", seed=0, backend="reference", weights=0, seconds={})
    html = render(page_object(result, evidence, empty, search=repaired.search))
    assert "<h1>too few</h1>" in html
    assert "None." in html
