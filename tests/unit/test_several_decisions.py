"""A task with several decisions in an input, written here alone, runs through a whole repair on raw outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.choose.budget import Budget
from arachne.data.labelled import LabelledData
from arachne.data.split import split_by_outcome
from arachne.decisions.losses import cross_entropies, cross_entropy
from arachne.errors import DataError, ModelError, UsageError
from arachne.localise.observe import weight_gradients_of
from arachne.model.backend import ModelBackend
from arachne.model.values import Address, Array
from arachne.results.reopen import stored_front
from arachne.scoring.base import DecisionScorer
from arachne.scoring.cut import Cuts, CutScorer
from arachne.settings import Settings, make_searcher
from arachne.tasks import Decisions, OutputGradient, Task
from arachne.testing.networks import Network
from arachne.testing.nodes import Dense, Relu
from arachne.testing.reference import ReferenceBackend
from arachne.weights.selection import Selection

IGNORED = -1


class Tokens(Task):
    """A decision for each token whose label is known: outputs `(n, tokens, classes)`, labels `(n, tokens)`."""

    name = "tokens"

    def read(self, outputs: Array, labels: Array) -> Decisions:
        known = labels != IGNORED
        return Decisions(outputs[known], labels[known], np.nonzero(known)[0])

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        found = np.zeros_like(outputs)
        found[labels != IGNORED] = gradient
        return found

    def check(self, outputs: Array, labels: Array) -> None:
        if labels.shape != outputs.shape[:2] or labels.max(initial=0) >= self.n_classes(outputs):
            raise DataError("expected one label for each token")

    def n_classes(self, outputs: Array) -> int:
        if outputs.ndim != 3:
            raise ModelError(f"expected outputs (inputs, tokens, classes), got {outputs.shape}")
        return int(outputs.shape[2])


TOKENS, WIDTH, CLASSES = 4, 6, 3


def tokens(n: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Vectors around the centre of their class, and the classes; some tokens have no label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=(n, TOKENS))
    centres = np.random.default_rng(9).normal(size=(CLASSES, WIDTH))
    inputs = centres[labels] + 0.5 * rng.normal(size=(n, TOKENS, WIDTH))
    labels[rng.random(labels.shape) < 0.2] = IGNORED
    return inputs.astype(np.float32), labels


def tagger() -> ReferenceBackend:
    """A network that reads every token by itself, and takes many of class 2 for class 0."""
    rng = np.random.default_rng(1)
    inputs, labels = tokens(500, seed=2)
    weight = rng.normal(size=(16, WIDTH)).astype(np.float32)
    bias = rng.normal(size=16).astype(np.float32)
    known = labels != IGNORED
    features = np.maximum(inputs[known] @ weight.T + bias, 0)
    out = np.linalg.lstsq(features, 4 * np.eye(CLASSES)[labels[known]], rcond=None)[0].T.astype(np.float32)
    out[0] += 0.85 * out[2]
    nodes = (
        Dense("fc", ("x",), weight, bias),
        Relu("relu", ("fc",)),
        Dense("out", ("relu",), out, np.array([0.3, 0, 0], np.float32)),
    )
    return ReferenceBackend(Network({"x": (TOKENS, WIDTH)}, nodes))


@pytest.fixture(scope="module")
def backend() -> ReferenceBackend:
    return tagger()


@pytest.fixture(scope="module")
def data() -> LabelledData:
    return LabelledData(*tokens(400, seed=3))


def test_parts_go_by_inputs_and_count_decisions(backend: ModelBackend, data: LabelledData) -> None:
    split = split_by_outcome(backend, data, "2:0", rng=np.random.default_rng(0), task=Tokens())
    assert len(split.seen) + len(split.held_out) == len(data)
    assert abs(len(split.seen) - len(split.held_out)) <= 20
    assert not np.intersect1d(split.seen.rows, split.held_out.rows).size
    part = split.seen
    known = data.labels[part.rows] != IGNORED
    assert len(part.decisions) == known.sum()
    np.testing.assert_array_equal(part.labels, data.labels[part.rows][known])
    assert (part.labels[part.negatives] == 2).all()
    assert (part.predictions[part.negatives] == 0).all()
    np.testing.assert_array_equal(part.decision_rows, part.rows[part.decisions.inputs])


def some_suspects(backend: ModelBackend) -> Selection:
    return Selection.of(
        backend, [Address("fc", "weight", (3, 2)), Address("out", "weight", (0, 5)), Address("out", "bias", (1,))]
    )


def test_a_scorer_reads_decisions_and_its_gradients_are_their_slopes(data: LabelledData) -> None:
    backend = ReferenceBackend(tagger().native, dtype="float64")
    part = split_by_outcome(backend, data, "2:0", rng=np.random.default_rng(0), task=Tokens()).seen
    chosen = np.random.default_rng(5).permutation(len(part.decisions))[:70]
    suspects = some_suspects(backend)
    decisions = part.choose_decisions(chosen)
    scorer = DecisionScorer(CutScorer(backend, Cuts(backend, part.data.inputs), suspects), decisions)
    rows = np.arange(10, 60)
    np.testing.assert_allclose(scorer.scores(suspects.values, rows), part.scores[chosen[rows]])
    labels = part.labels[chosen[rows]]
    slope = scorer.gradients(suspects.values, cross_entropy(labels), rows)
    for number in range(len(suspects)):
        step = np.zeros(len(suspects))
        step[number] = 1e-5
        up, down = (
            cross_entropies(scorer.scores(suspects.values + sign * step, rows), labels).mean() for sign in (1, -1)
        )
        np.testing.assert_allclose(slope[number], (up - down) / 2e-5, rtol=1e-5, atol=1e-8)


def test_gradients_of_a_part_are_those_of_its_decisions(data: LabelledData) -> None:
    backend = ReferenceBackend(tagger().native, dtype="float64")
    part = split_by_outcome(backend, data, "2:0", rng=np.random.default_rng(0), task=Tokens()).seen
    rows = part.negatives
    found = weight_gradients_of(backend, part, rows, cross_entropy(part.labels[rows]), [("out", "weight")])
    loss, each = cross_entropy(part.labels[rows]), np.arange(len(rows))
    every = OutputGradient(part.choose_decisions(rows), loss, each, np.arange(len(part)))
    whole = backend.weight_gradients(part.data.inputs, every, [("out", "weight")])
    np.testing.assert_allclose(found["out", "weight"], whole["out", "weight"], rtol=1e-9)


@pytest.mark.parametrize("searcher", ["auto", "de", "front", "last"])
def test_a_whole_repair_with_several_decisions_in_an_input(
    backend: ReferenceBackend, data: LabelledData, searcher: str
) -> None:
    localiser = "contrast" if searcher == "de" else None
    more: dict[str, Any] = {"searcher": searcher} if searcher != "auto" else {}
    result = arachne.repair(backend, data, "2:0", task=Tokens(), localiser=localiser, max_break=0.03, **more)
    held_out = result.evidence.held_out
    part = result.split.held_out
    assert held_out.inputs == len(part.decisions)
    assert held_out.negatives == len(part.negatives) >= 20
    assert held_out.repair_rate > 0.3
    assert held_out.break_rate < 0.06
    after = part.read(result.model.forward(part.data.inputs))
    right = Tokens().correct(after.scores, after.labels)
    assert held_out.repaired == int(right[part.negatives].sum())
    assert held_out.broken == int((~right[part.positives]).sum())
    assert set(held_out.fixed.rows.tolist()) <= set(part.rows.tolist())
    assert result.patch.provenance["settings"]["task"]["name"] == "tokens"


def test_a_result_is_saved_and_measured_again_from_its_file(
    backend: ReferenceBackend, data: LabelledData, tmp_path: Path
) -> None:
    result = arachne.repair(backend, data, "2:0", task=Tokens(), max_break=0.03, searcher="last", rounds=2)
    saved = result.save(tmp_path / "fix", reopen=ReferenceBackend.load)
    assert saved.evidence.held_out.repaired == result.evidence.held_out.repaired
    assert (tmp_path / "fix" / "patch.json").is_file()
    assert "2:0" in (tmp_path / "fix" / "report.html").read_text("utf-8")


def test_inputs_that_must_not_break_count_by_decision(backend: ReferenceBackend, data: LabelledData) -> None:
    kept = LabelledData(*tokens(30, seed=8))
    result = arachne.repair(backend, data, "2:0", task=Tokens(), never_break=kept, max_break=0.05, searcher="last")
    assert result.evidence.never_break is not None
    assert result.evidence.never_break.inputs == int((kept.labels != IGNORED).sum())
    assert result.evidence.never_break.broken == 0


@pytest.mark.parametrize(("kind", "name"), [("searcher", "ridge"), ("localiser", "bl")])
def test_what_knows_one_label_alone_is_refused(
    backend: ReferenceBackend, data: LabelledData, kind: str, name: str
) -> None:
    more: dict[str, Any] = {kind: name}
    with pytest.raises(UsageError, match=f"'{name}' works for one label for each input, and the task is 'tokens'"):
        arachne.repair(backend, data, "2:0", task=Tokens(), **more)


def test_labels_of_tokens_do_not_fit_the_default_task(backend: ReferenceBackend, data: LabelledData) -> None:
    with pytest.raises(ModelError, match="expected class scores of shape"):
        arachne.repair(backend, data, "2:0")
    with pytest.raises(UsageError, match="expected a task"):
        Settings(task="tokens", searcher=make_searcher("last"))  # type: ignore[arg-type]


def test_intervals_and_tests_of_evidence_count_an_input_as_one_draw(
    backend: ReferenceBackend, data: LabelledData, tmp_path: Path
) -> None:
    result = arachne.repair(backend, data, "2:0", task=Tokens(), max_break=0.03, searcher="front")
    held_out = result.evidence.held_out
    part = result.split.held_out
    assert held_out.by_input is not None
    assert held_out.by_input.inputs == len(np.unique(part.decisions.inputs)) < held_out.inputs
    assert held_out.faulty_inputs == len(np.unique(part.decisions.inputs[part.negatives]))
    assert held_out.breakage.draws is not None
    assert held_out.breakage.draws < held_out.positives
    document = result.to_json()["held_out"]
    assert document["break_interval"] == list(held_out.breakage.interval)
    assert document["by_input"]["inputs"] == held_out.by_input.inputs
    result.save(tmp_path / "fix", reopen=ReferenceBackend.load)
    page = (tmp_path / "fix" / "report.html").read_text("utf-8")
    assert "sign flips by input" in page
    assert "McNemar" not in page
    assert "count an input as one draw" in page
    front, _ = stored_front(tmp_path / "fix")
    np.testing.assert_array_equal(front.rows("held_out"), part.rows)
    assert front.points[0].seen.breakage == result.points[0].seen.breakage


def test_a_guarantee_needs_inputs_not_decisions(backend: ReferenceBackend) -> None:
    few = LabelledData(*tokens(800, seed=6))
    budget = Budget(0.01, confidence=0.9)
    assert budget.fewest_positives == 230
    with pytest.raises(DataError, match="takes 277 inputs that are right and kept from the search, and there are 1"):
        arachne.repair(backend, few, "2:0", task=Tokens(), budget=budget)
    enough = LabelledData(*tokens(1000, seed=6))
    result = arachne.repair(backend, enough, "2:0", task=Tokens(), max_break=0.05, confidence=0.9, searcher="last")
    assert result.choice is not None
    assert "counts an input as one draw" in result.choice.rule
    assert result.evidence.held_out.break_rate <= 0.05
