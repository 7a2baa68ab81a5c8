"""The model without a patch runs over each input once, whatever is asked about it.

How passes are told apart: a pass counts as one of the unpatched model when the weights are those the model was loaded
with. Localisation and search run the model for purposes of their own; what happens during those two steps of a repair,
as `on_step` names them, is left out.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.datasets import load_digits

import arachne
from arachne.data.labelled import LabelledData
from arachne.data.preflight import N_INPUTS
from arachne.data.split import split_by_outcome
from arachne.decisions.losses import cross_entropy
from arachne.evidence import measure
from arachne.evidence.batch_dependence import MAX_SCORE_GAP, PROBE_INPUTS
from arachne.model.values import Array, Inputs
from arachne.patch import Patch
from arachne.search import DifferentialEvolution
from arachne.testing import ReferenceBackend, mlp
from tests.commands import arachne as command_line

QUICK = DifferentialEvolution(population=8, generations=2)


class CountingBackend(ReferenceBackend):
    """Counts how often each input passes through the model, without and with changed weights."""

    NAME = "counting"
    SUFFIXES = (".counted",)
    opened: ClassVar[list[CountingBackend]] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.original = self.weights_now()
        self.step = ""
        self.unpatched: Counter[bytes] = Counter()
        self.patched: Counter[bytes] = Counter()
        self.opened.append(self)

    def _forward(self, inputs: Inputs) -> Array:
        if self.step not in ("localise", "search"):
            same = all(np.array_equal(values, self.original[name]) for name, values in self.weights_now().items())
            (self.unpatched if same else self.patched).update(row.tobytes() for row in np.asarray(inputs))
        return super()._forward(inputs)

    def on_step(self, name: str) -> None:
        self.step = name

    def weights_now(self) -> dict[tuple[str, str], Array]:
        return {
            (info.name, parameter): values
            for info in self.layers
            for parameter, values in self.get_weights(info.name).items()
        }


def train_network() -> ReferenceBackend:
    """A network trained on digits, most of whose eights were filed under one."""
    inputs, labels = digits()
    backend = ReferenceBackend(mlp([64, 16, 10], seed=0))
    rng = np.random.default_rng(0)
    filed = np.where((labels == 8) & (rng.random(len(labels)) < 0.6), 1, labels)
    for _ in range(150):
        for (layer, parameter), slope in backend.weight_gradients(inputs, cross_entropy(filed)).items():
            backend.set_weights(layer, parameter, backend.get_weights(layer)[parameter] - 0.5 * slope)
    return backend


def digits() -> tuple[Array, Array]:
    found = load_digits()
    inputs, first = np.unique((found.data / 16).astype(np.float32), axis=0, return_index=True)
    return inputs, found.target[first].astype(np.int64)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "net.refnet"
    train_network().save(path)
    return path


@pytest.fixture
def backend(model_file: Path) -> CountingBackend:
    return CountingBackend.load(model_file)


@pytest.fixture
def data() -> LabelledData:
    return LabelledData(*digits())


@pytest.fixture
def patch(backend: CountingBackend) -> Patch:
    return Patch.between(backend, [arachne.Address("fc2", "bias", (8,))], [1.5])


def once(data: LabelledData) -> dict[bytes, int]:
    return {row.tobytes(): 1 for row in np.asarray(data.inputs)}


def once_after_a_look(data: LabelledData) -> Counter[bytes]:
    """Passes of a repair, which first runs a few inputs to check labels and targets before anything long begins."""
    few = data.take(range(N_INPUTS))
    return Counter(once(data)) + Counter(once(few))


def test_a_repair_runs_the_unpatched_model_over_each_input_once(backend: CountingBackend, data: LabelledData) -> None:
    result = arachne.repair(backend, data, "8:1", searcher=QUICK, choose=0.2, on_step=backend.on_step)
    assert backend.unpatched == once_after_a_look(data)
    assert len(result.patch)
    assert backend.patched == once(data)
    result.page()
    str(result)
    assert backend.unpatched == once_after_a_look(data)


def test_the_default_repair_runs_the_patched_model_only_where_its_answer_matters(
    backend: CountingBackend, data: LabelledData
) -> None:
    result = arachne.repair(backend, data, "8:1", on_step=backend.on_step)
    assert len(result.patch)
    assert backend.unpatched == once_after_a_look(data)
    changed = [result.evidence.held_out.fixed, result.evidence.held_out.damaged]
    assert sum(map(len, changed)) <= len(backend.patched) < len(data) / 2
    plain = measure(
        backend, result.patch, result.split, run=lambda part: part.read(backend.forward(part.data.inputs)).scores
    )
    for part in ("held_out", "seen"):
        quick, full = getattr(result.evidence, part), getattr(plain, part)
        assert (quick.repaired, quick.broken) == (full.repaired, full.broken)
        np.testing.assert_array_equal(quick.confusion_after, full.confusion_after)
        np.testing.assert_array_equal(quick.fixed.rows, full.fixed.rows)


def test_an_empty_patch_asks_for_no_pass_and_changes_no_number(backend: CountingBackend, data: LabelledData) -> None:
    split = split_by_outcome(backend, data, "8:1", rng=np.random.default_rng(0))
    evidence = measure(backend, Patch.between(backend, [], []), split)
    assert backend.unpatched == once(data)
    assert evidence.held_out.accuracy_after == evidence.held_out.accuracy_before
    assert len(evidence.held_out.fixed) == len(evidence.held_out.damaged) == 0


def test_a_repair_with_a_holdout_runs_the_unpatched_model_over_both_once(
    backend: CountingBackend, data: LabelledData
) -> None:
    even = np.arange(len(data)) % 2 == 0
    seen, holdout = data.take(np.flatnonzero(even)), data.take(np.flatnonzero(~even))
    arachne.repair(backend, seen, "8:1", holdout=holdout, searcher=QUICK, on_step=backend.on_step)
    assert backend.unpatched == once_after_a_look(seen) + Counter(once(holdout))


def test_saving_measures_the_saved_file_once_and_the_unpatched_model_not_again(
    backend: CountingBackend, data: LabelledData, tmp_path: Path
) -> None:
    result = arachne.repair(backend, data, "8:1", searcher=QUICK, on_step=backend.on_step)
    saved: list[CountingBackend] = []

    def reopen(path: Path) -> CountingBackend:
        saved.append(CountingBackend.load(path))
        return saved[0]

    again = result.save(tmp_path, reopen=reopen)
    assert backend.unpatched == once_after_a_look(data)
    assert saved[0].unpatched == once(data)
    assert again.evidence.held_out.broken == result.evidence.held_out.broken
    assert again.evidence.held_out.repaired == result.evidence.held_out.repaired


def test_choosing_again_runs_the_unpatched_model_once_and_the_patched_one_where_its_answer_matters(
    backend: CountingBackend, data: LabelledData, model_file: Path, tmp_path: Path
) -> None:
    arachne.repair(backend, data, "8:1").save(tmp_path / "repaired")
    fresh = CountingBackend.load(model_file)
    chosen = arachne.open_repair(tmp_path / "repaired", fresh, data).choose(max_break=0.02)
    assert len(chosen.patch)
    assert fresh.unpatched == once(data)
    assert 0 < len(fresh.patched) < len(data) / 2


def test_scanning_runs_the_model_over_each_input_once(backend: CountingBackend, data: LabelledData) -> None:
    assert arachne.scan(backend, data).faults[0].target == "8:1"
    assert backend.unpatched == once(data)


def test_measuring_runs_each_model_over_each_input_once(
    backend: CountingBackend, data: LabelledData, patch: Patch
) -> None:
    arachne.measure(backend, data)
    assert backend.unpatched == once(data)
    backend.unpatched.clear()
    arachne.measure(backend, data, patch=patch)
    assert backend.unpatched == backend.patched == once(data)


def test_comparing_runs_each_model_over_each_input_once(
    backend: CountingBackend, data: LabelledData, model_file: Path
) -> None:
    other = CountingBackend.load(model_file)
    arachne.compare(backend, other, data)
    assert backend.unpatched == other.unpatched == once(data)


def test_survival_runs_each_model_over_each_input_once(
    backend: CountingBackend, data: LabelledData, patch: Patch, model_file: Path
) -> None:
    other = CountingBackend.load(model_file)
    arachne.measure_survival(backend, data, patch, against=other, target="8:1")
    assert backend.unpatched == backend.patched == once(data)
    assert other.unpatched == other.patched == once(data)


def test_localising_asks_for_no_pass_to_count_the_classes(backend: CountingBackend, data: LabelledData) -> None:
    arachne.localise_weights(backend, data, "8:1")
    assert backend.unpatched == once(data)


def gaps(scores: Array) -> Array:
    """How far apart the two best scores of each input are, in units of the largest."""
    second, best = np.sort(scores, axis=1)[:, -2:].T
    return np.asarray((best - second) / np.abs(scores).max(axis=1))


@pytest.mark.parametrize("options", [["scan"], ["evaluate"], ["evaluate", "--patch", "p.json", "--report", "p.html"]])
def test_a_command_runs_the_unpatched_model_over_each_input_once(
    options: list[str],
    data: LabelledData,
    patch: Patch,
    model_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = tmp_path / "installed" / "counting-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: counting\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[arachne.backends]\ncounting = {__name__}:CountingBackend\n")
    monkeypatch.syspath_prepend(installed.parent)
    (tmp_path / "net.counted").write_bytes(model_file.read_bytes())
    patch.save(tmp_path / "p.json")
    np.savez(tmp_path / "d.npz", x=np.asarray(data.inputs), y=data.labels)
    CountingBackend.opened.clear()
    done = command_line(options[0], "net.counted", "--data", "d.npz", *options[1:], cwd=tmp_path)
    assert done.code == 0, done.err
    (model,) = CountingBackend.opened
    again = model.unpatched - Counter(once(data))
    assert model.unpatched >= Counter(once(data))
    # A few are run alone, to see whether their class depends on the batch; doubtful ones once more in another.
    assert sum(again.values()) <= PROBE_INPUTS + 2 * np.count_nonzero(gaps(model.forward(data.inputs)) <= MAX_SCORE_GAP)
