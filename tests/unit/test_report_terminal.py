from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.evidence import Evidence, PartEvidence, measure_part
from arachne.evidence.scan import Scan
from arachne.localise.base import Localisation, ParameterScores
from arachne.model.values import Address, Array
from arachne.patch import Patch, PatchBase
from arachne.report.objects import localisation_object
from arachne.report.terminal import MOST_WEIGHTS, EvidenceTable, LocalisationTable, ScanTable, as_text
from arachne.testing import ReferenceBackend, mlp
from arachne.weights.selection import Selection

HOSTILE = "[bold]x[/bold]\x1b[31m"


@pytest.fixture(scope="module")
def backend() -> ReferenceBackend:
    return ReferenceBackend(mlp([12, 6, 3]))


def part(seed: int, names: tuple[str, ...] = ("shirt", HOSTILE, "bag")) -> PartEvidence:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 4000)
    before = np.where(rng.random(4000) < 0.8, labels, (labels + 1) % 3)
    after = np.where((labels == 0) & (before == 1) & (rng.random(4000) < 0.5), 0, before)
    after = np.where((labels == 1) & (before == 1) & (rng.random(4000) < 0.02), 0, after)
    targets = (Target("shirt:1", label=0, prediction=1), Target("bag:shirt", label=2, prediction=0))
    data = LabelledData(np.zeros((4000, 1)), labels, names)
    return measure_part(Part(data, np.arange(4000), np.eye(3)[before], targets), np.eye(3)[after])


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return Evidence(held_out=part(1), seen=part(0))


@pytest.fixture(scope="module")
def patch(backend: ReferenceBackend) -> Patch:
    info = backend.layers[0]
    addresses = [Address(info.name, "weight", (0, column)) for column in range(info.parameters["weight"].shape[1])]
    return Patch.between(backend, addresses, np.linspace(1, 2, len(addresses)))


def test_the_table_starts_with_the_verdict_and_fits_80_columns(evidence: Evidence, patch: Patch) -> None:
    text = as_text(EvidenceTable(evidence, patch))
    assert text.startswith("REDUCED BY A QUARTER (25.5 %), BUDGET OVERRUN: ")
    assert max(map(len, text.splitlines())) <= 80


def test_each_of_several_faults_is_counted_below_the_row_of_all(evidence: Evidence) -> None:
    rows = [line.strip().split("  ")[0] for line in as_text(EvidenceTable(evidence)).splitlines()]
    at = rows.index("fault, all inputs")
    assert rows[at + 1 : at + 4] == ["shirt:1", "bag:shirt", "other errors fixed"]


def test_a_class_without_inputs_neither_rises_nor_falls() -> None:
    labels, before = np.repeat([0, 1], 20), np.repeat([0, 1], 20)
    before[:10] = 1
    data = LabelledData(np.zeros((40, 1)), labels, ("cat", "dog", "never seen"))
    shown = Part(data, np.arange(40), np.eye(3)[before], (Target("cat:dog", label=0, prediction=1),))
    text = as_text(EvidenceTable(Evidence(held_out=measure_part(shown, np.eye(3)[labels]))))
    assert "Of 2 classes, accuracy rises in 1 (cat, by 50.0 points) and falls in" in text
    assert "nan" not in text


def test_an_empty_patch_is_said_to_be_empty(evidence: Evidence) -> None:
    text = as_text(EvidenceTable(evidence, Patch((), PatchBase())))
    assert "The patch changes no weight." in text
    assert not re.search(r"^ *weight +old +new$", text, re.MULTILINE)


def test_the_table_shows_seen_and_held_out_with_intervals(evidence: Evidence) -> None:
    text = as_text(EvidenceTable(evidence))
    assert re.search(r"^ *seen +held out$", text, re.MULTILINE)
    held_out = evidence.held_out
    assert f"{held_out.repaired} of {held_out.negatives}: {100 * held_out.repair_rate:.1f} %" in text
    low, high = (100 * bound for bound in held_out.breakage.interval)
    assert f"95 %: {low:.2f} % – {high:.2f} %" in text
    assert f"{100 * held_out.accuracy_before:.1f} % → {100 * held_out.accuracy_after:.1f} %" in text


def test_an_evaluation_has_one_column(evidence: Evidence) -> None:
    text = as_text(EvidenceTable(Evidence(held_out=evidence.held_out)))
    assert "held out" in text
    assert not re.search(r"\bseen\b", text)


def test_every_target_has_its_line_when_there_are_several(evidence: Evidence) -> None:
    target = evidence.held_out.targets[1]
    text = as_text(EvidenceTable(evidence))
    assert re.search(rf"bag:shirt .*{target.errors_before} → {target.errors_after}$", text, re.MULTILINE)


def test_names_are_shown_as_text_and_never_as_markup_or_escapes(evidence: Evidence) -> None:
    stream = io.StringIO()
    Console(file=stream, width=80, force_terminal=True, color_system="truecolor").print(EvidenceTable(evidence))
    assert "[bold]x[/bold]" in stream.getvalue()
    assert "\x1b[31m\x1b" not in stream.getvalue()
    assert "\N{REPLACEMENT CHARACTER}[31m" in stream.getvalue()


def test_without_a_terminal_there_are_no_escape_sequences(evidence: Evidence) -> None:
    stream = io.StringIO()
    Console(file=stream, width=80).print(EvidenceTable(evidence))
    assert "\x1b" not in stream.getvalue()


def scan_of(labels: Array, predictions: Array, names: tuple[str, ...] | None = None) -> Scan:
    """A scan of two classes without a model."""
    return Scan(LabelledData(np.zeros((len(labels), 1), np.float32), labels, names), predictions, 2)


def test_a_terminal_without_unicode_gets_ascii(evidence: Evidence, patch: Patch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=stream, width=80)
    console.print(EvidenceTable(evidence, patch))
    console.print(ScanTable(scan_of(np.array([0, 1]), np.array([1, 1]), ("ä", "b"))))
    stream.flush()
    text = stream.buffer.getvalue().decode("ascii")
    assert " -> " in text
    assert "####" in text
    assert "\\xe4:b" in text


def test_a_few_weights_are_shown_and_the_rest_counted(evidence: Evidence, patch: Patch) -> None:
    text = as_text(EvidenceTable(evidence, patch))
    first = patch.entries[0]
    assert re.search(rf"{re.escape(str(first.address))} +{first.old:.6g} +{first.new:.6g}$", text, re.MULTILINE)
    assert f"and {len(patch) - MOST_WEIGHTS} more" in text


def test_a_long_name_of_a_weight_keeps_its_end_and_the_table_fits(evidence: Evidence, patch: Patch) -> None:
    name = "bert.encoder.layer.11.attention.output.dense"
    entries = tuple(replace(one, address=replace(one.address, layer=name)) for one in patch.entries)
    base = replace(patch.base, tensors=tuple(replace(tensor, layer=name) for tensor in patch.base.tensors))
    lines = as_text(EvidenceTable(evidence, Patch(entries, base))).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("…") and "dense.weight[0, 0]" in line for line in lines)


def test_no_line_begins_with_a_per_cent_sign(evidence: Evidence) -> None:
    for width in range(80, 100):
        assert not [line for line in as_text(EvidenceTable(evidence), width).splitlines() if line.strip()[:1] == "%"]


def test_a_scan_ranks_faults_with_count_share_and_bar() -> None:
    labels = np.array([0] * 10 + [1] * 10)
    predictions = np.array([1] * 4 + [0] * 6 + [0] * 2 + [1] * 8)
    lines = as_text(ScanTable(scan_of(labels, predictions, ("cat", "dog")))).splitlines()
    assert lines[0] == "accuracy 70.0 %: 6 of 20 inputs wrong, 2 kinds of mistake"
    assert re.fullmatch(r" *cat:dog +4 +66\.7 % +█{20}", lines[-2])
    assert re.fullmatch(r" *dog:cat +2 +33\.3 % +█{10}", lines[-1])
    one = as_text(ScanTable(scan_of(labels, np.minimum(predictions, labels))))
    assert one.startswith("accuracy 90.0 %: 2 of 20 inputs wrong, 1 kind of mistake\n")


def test_a_scan_of_a_model_without_mistakes_says_so() -> None:
    assert (
        as_text(ScanTable(scan_of(np.zeros(5, np.int64), np.zeros(5, np.int64))))
        == "accuracy 100 %: 0 of 5 inputs wrong, 0 kinds of mistake"
    )


@pytest.fixture(scope="module")
def localisation(backend: ReferenceBackend) -> Localisation:
    name, shape = backend.layers[0].name, backend.layers[0].parameters["weight"].shape
    loss, impact = np.zeros(shape), np.zeros(shape)
    loss[0, 0], impact[0, 0] = 1.0, 0.25
    loss[0, 1], impact[0, 1] = 0.5, 2.0
    suspects = Selection.of(backend, [Address(name, "weight", (0, 0)), Address(name, "weight", (0, 1))])
    return Localisation("bl", suspects, (ParameterScores(name, "weight", loss, impact),), 1, loss.size)


def test_localisation_shows_suspects_with_both_scores_most_suspicious_first(localisation: Localisation) -> None:
    lines = as_text(LocalisationTable(localisation)).splitlines()
    assert "2 of" in lines[0]
    assert "1 of them from behind the first front" in lines[0]
    assert re.search(r"weight\[0, 1\] .* 0\.5 +2$", lines[-2])
    assert re.search(r"weight\[0, 0\] .* 1 +0\.25$", lines[-1])


def test_localisation_is_written_with_addresses_and_scores(localisation: Localisation) -> None:
    written = localisation_object(localisation, target="6:0", seed=0, backend="reference")
    assert [weight["index"] for weight in written["weights"]] == [[0, 1], [0, 0]]
    assert written["weights"][0]["forward_impact"] == 2.0
    assert written["candidates"] == localisation.n_candidates
