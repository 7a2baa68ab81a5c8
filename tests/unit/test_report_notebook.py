from __future__ import annotations

import numpy as np

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.evidence import Evidence, Flips, Rate, measure_part
from arachne.evidence.scan import Scan
from arachne.evidence.survival import Survival
from arachne.localise.base import Localisation, ParameterScores
from arachne.model.values import Address, Array
from arachne.report.markup import table
from arachne.testing import ReferenceBackend, mlp
from arachne.weights.selection import Selection


def evidence_of(labels: Array, before: Array, after: Array) -> Evidence:
    data = LabelledData(np.zeros((len(labels), 1)), labels, ("<i>", "b", "c"))
    part = Part(data, np.arange(len(labels)), np.eye(3)[before], (Target("*:*"),))
    return Evidence(measure_part(part, np.eye(3)[after]))


def test_data_evidence_flips_and_survival_are_tables_and_not_arrays() -> None:
    labels = np.arange(300) % 3
    before = np.where(labels == 0, 1, labels)
    evidence = evidence_of(labels, before, labels)
    worse = evidence_of(labels, before, before)
    data = LabelledData(np.zeros((300, 8, 8)), labels, ("<i>", "b", "c"), columns={"sex": np.full(300, "f")})
    shown = {
        "data": (data._repr_html_(), ("300 inputs (8, 8)", "&lt;i&gt;", "33.3 %", "columns: sex")),
        "evidence": (evidence._repr_html_(), ("<b>Removed (", "100 of 100: 100 %")),
        "flips": (
            Flips.measure(np.eye(3)[before], np.eye(3)[labels])._repr_html_(),
            ("100 of 300 predictions", "1 → 0"),
        ),
        "survival": (
            Survival("int8", evidence, worse, Rate(0, 100), "a <note>")._repr_html_(),
            ("did not survive", "int8", "&lt;note&gt;"),
        ),
    }
    for name, (html, words) in shown.items():
        assert "<table>" in html, name
        assert "array(" not in html, name
        assert "<i>" not in html, name
        assert [word for word in words if word not in html] == [], name


def test_everything_in_a_table_is_text() -> None:
    html = table(["<b>"], [["<script>x</script>"], ["a\x1bb"]], above="a & b", below='"c"')
    assert "<script" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;x&lt;/script&gt;" in html
    assert "\x1b" not in html
    assert html.startswith("<div><p>a &amp; b</p><table>")
    assert html.endswith("</table><p>&quot;c&quot;</p></div>")


def test_a_notebook_shows_localisations_and_scans_in_little_room() -> None:
    backend = ReferenceBackend(mlp([40, 20, 3]))
    addresses = [Address("fc1", "weight", (row, column)) for row in range(20) for column in range(40)]
    scores = np.random.default_rng(0).random((20, 40))
    suspects = Selection.of(backend, addresses)
    localisation = Localisation("bl", suspects, (ParameterScores("fc1", "weight", scores, scores),), 3, 860)
    labels = np.arange(2000) % 50
    scan = Scan(LabelledData(np.zeros((2000, 1)), labels, ("<i>",) * 50), (labels + np.arange(2000) // 50 + 1) % 50, 50)
    for shown, words in (
        (localisation, "800 of 860 weights are suspects"),
        (scan, "rarer kinds"),
    ):
        html = shown._repr_html_()
        assert len(html) < 200_000
        assert words in html
        assert html.count("<tr>") == 51
    assert str(localisation).startswith("bl: 800 of 860 weights are suspects: fc1.weight[0, 0], fc1.weight[0, 1], ")
    assert str(localisation).endswith(", fc1.weight[0, 9] and 790 more")
