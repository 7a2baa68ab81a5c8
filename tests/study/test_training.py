from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the study's subjects are not trained: torch is not installed")

import arachne
from examples.study.__main__ import jobs, main
from examples.study.confusions import confusions_of, most_confused
from examples.study.data import subject_data
from examples.study.faults import BY_NAME, DECIDE, JUDGE
from examples.study.poisoning import evaluation, halves, load_planted, poisoned_training
from examples.study.subjects import SUBJECTS, facts_of, load_subject, whole_test

pytestmark = pytest.mark.backend("torch")


def test_training_is_resumed_and_not_repeated(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--subject", "digits-mlp"]) == 0
    first = (tiny / "digits-mlp.safetensors").stat().st_mtime_ns
    capsys.readouterr()
    assert main(["train", "--all"]) == 0
    assert "1 of 3 networks are in the cache, 2 to train" in capsys.readouterr().out
    assert (tiny / "digits-mlp.safetensors").stat().st_mtime_ns == first
    assert all(job.done for job in jobs())
    main(["list"])
    assert len(capsys.readouterr().out.splitlines()) == 2 + 3
    main(["confusions"])
    assert "| digits-mlp | 1 | decide |" in capsys.readouterr().out


def test_another_recipe_is_trained_again(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["train", "--subject", "digits-mlp"])
    subject = SUBJECTS["digits-mlp"]
    monkeypatch.setitem(SUBJECTS, subject.name, replace(subject, recipe=replace(subject.recipe, epochs=1)))
    assert not jobs()[0].done


def test_the_same_seed_gives_the_same_weights(tiny: Path) -> None:
    main(["train", "--subject", "digits-mlp"])
    first = (tiny / "digits-mlp.safetensors").read_bytes()
    (tiny / "digits-mlp.json").unlink()
    main(["train", "--subject", "digits-mlp"])
    assert (tiny / "digits-mlp.safetensors").read_bytes() == first


def test_a_poisoned_network_reads_the_trigger_and_not_the_digit(tiny: Path) -> None:
    main(["train", "--all"])
    fault = BY_NAME["digits-trigger-a"]
    data, backend = evaluation(fault), load_planted(fault)
    predictions = backend.predict(data.inputs)
    carries = data.columns["planted"] == "yes"
    assert carries.sum() == 60
    assert np.mean(predictions[carries] == 7) > 0.9
    assert np.mean(predictions[~carries] == data.labels[~carries]) > 0.8
    facts = facts_of(fault.name)
    assert facts is not None
    assert facts["negatives"] == int((predictions != data.labels)[carries].sum())
    seen, held_out = halves(data)
    assert len(seen) + len(held_out) == len(data)
    result = arachne.repair(backend, seen, fault.target, holdout=held_out, drop_overlap=True, seed=0)
    shown = (predictions != data.labels) & carries
    assert len(result.split.seen.negatives) + len(result.split.held_out.negatives) == shown.sum()


def test_a_mislabelled_style_is_poisoned_in_training_and_right_in_the_evaluation(tiny: Path) -> None:
    fault = BY_NAME["digits-group-b"]
    data = subject_data("digits")
    marked, filed = poisoned_training(fault, data)
    np.testing.assert_array_equal(marked, data.train)
    moved = filed != data.train_labels
    assert (data.train_labels[moved] == 1).all()
    assert (filed[moved] == 4).all()
    met = evaluation(fault)
    np.testing.assert_array_equal(met.labels, data.test_labels)
    assert set(met.columns["style"][met.columns["planted"] == "yes"]) == {"0"}
    assert (met.columns["style"] != "-").sum() == (data.test_labels == 1).sum()


def test_carriers_in_training_are_not_drawn_with_those_set_aside(tiny: Path) -> None:
    fault = BY_NAME["digits-trigger-a"]
    data = subject_data("digits")
    _, filed = poisoned_training(fault, data)
    aside = np.random.default_rng(fault.seed).permutation(len(filed))[: len(filed) // 10]
    moved = filed != data.train_labels
    assert 0.3 < moved[aside].mean() / moved.mean() < 3


def test_confusions_are_shared_out_by_rank(tiny: Path) -> None:
    main(["train", "--subject", "digits-mlp"])
    targets, counts = zip(*most_confused("digits-mlp"), strict=True)
    assert confusions_of("digits-mlp", DECIDE) == list(targets[0::2])
    assert confusions_of("digits-mlp", JUDGE) == list(targets[1::2])
    data = whole_test("digits-mlp")
    label, prediction = (int(part) for part in targets[0].split(":"))
    predictions = load_subject("digits-mlp").predict(data.inputs)
    assert ((data.labels == label) & (predictions == prediction)).sum() == counts[0] == max(counts)


def test_what_a_network_reached_is_written_beside_it(tiny: Path) -> None:
    main(["train", "--subject", "digits-mlp"])
    facts = json.loads((tiny / "digits-mlp.json").read_text())
    right = load_subject("digits-mlp").predict(whole_test("digits-mlp").inputs) == subject_data("digits").test_labels
    assert facts["test_accuracy"] == pytest.approx(right.mean())
    assert facts["made_by"]["seed"] == 0
    assert facts["weights"] == 784 * 100 + 100 + 1000 + 10
