"""However many workers share the inputs, results are the same bytes as those of one process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import arachne
from arachne.choose.budget import Budget
from arachne.cluster.backend import ClusterBackend
from arachne.cluster.starting import on_cluster
from arachne.cluster.team import Team
from arachne.data.labelled import LabelledData
from arachne.decisions.losses import cross_entropy
from arachne.localise.averages import Averages
from arachne.model import registry
from arachne.model.lazy import is_lazy
from arachne.model.sharding import shards
from arachne.results.result import RepairResult
from arachne.settings import Settings, make_localiser, make_searcher
from tests.backends import golden

if TYPE_CHECKING:
    from distributed import Client

pytestmark = pytest.mark.backend("onnx")

QUICK: dict[str, Any] = {"population": 30, "generations": 12}

WAYS = {
    "default": Settings(budget=Budget(max_break=0.2)),
    "de after bl": Settings(localiser=make_localiser("bl"), searcher=make_searcher("de", **QUICK)),
    "de in a convolution": Settings(
        localiser=make_localiser("rs", count=6, include=("first",)), searcher=make_searcher("de", **QUICK)
    ),
    "keep behind a cut": Settings(
        localiser=make_localiser("contrast", include=("first",)),
        searcher=make_searcher("margin", steps=16),
        budget=Budget(max_break=0.2),
    ),
    "retraining": Settings(searcher=make_searcher("deepfault", synthesised=60, epochs=1, input_steps=2)),
}


def bytes_of(result: RepairResult, folder: Path) -> bytes:
    path = folder / "patch.json"
    result.patch.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_the_patch_is_the_same_bytes_with_two_workers_as_without(
    way: str, client: Client, model_file: Path, data: LabelledData, tmp_path: Path
) -> None:
    alone = arachne.repair(model_file, data, "top:1", settings=WAYS[way])
    shared = arachne.repair(model_file, data, "top:1", settings=WAYS[way], cluster=client)
    assert len(shards(len(alone.split.seen))) > 1
    assert len(alone.patch)
    assert bytes_of(shared, tmp_path) == bytes_of(alone, tmp_path)
    assert shared.backend.remote is None


def npy_folder(data: LabelledData, folder: Path) -> Path:
    np.save(folder / "x.npy", np.asarray(data.inputs))
    np.save(folder / "y.npy", data.labels)
    return folder


def parquet_file(data: LabelledData, folder: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"x": list(np.asarray(data.inputs).reshape(len(data), -1)), "y": data.labels}
    parquet.write_table(pyarrow.table(columns), folder / "digits.parquet", row_group_size=500)
    return folder / "digits.parquet"


@pytest.mark.parametrize("write", [npy_folder, parquet_file])
def test_workers_read_data_larger_than_memory_themselves(
    write: Callable[[LabelledData, Path], Path],
    client: Client,
    model_file: Path,
    data: LabelledData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent, send = list[str](), Team._send

    def note(self: Team, key: str, content: Callable[[], Any], worker: str) -> Any:
        sent.append(key)
        return send(self, key, content, worker)

    monkeypatch.setattr(Team, "_send", note)
    lazy = arachne.read_data(write(data, tmp_path), memory=0, preprocess="shape=1x8x8")
    assert is_lazy(lazy.inputs)
    for way in ("de in a convolution", "keep behind a cut"):
        alone = arachne.repair(model_file, lazy, "top:1", settings=WAYS[way])
        shared = arachne.repair(model_file, lazy, "top:1", settings=WAYS[way], cluster=client)
        assert len(alone.patch)
        assert bytes_of(shared, tmp_path) == bytes_of(alone, tmp_path)
    assert all(key.startswith("model") or "-" in key for key in sent), "inputs were sent"
    assert sent


@pytest.fixture
def shared(client: Client, model_file: Path) -> Iterator[ClusterBackend]:
    """The model, run by two workers."""
    with on_cluster(registry.load(model_file), cluster=client) as found:
        assert isinstance(found, ClusterBackend)
        yield found


def test_every_operation_gives_the_same_bits(shared: ClusterBackend, data: LabelledData) -> None:
    inputs, loss = np.asarray(data.inputs)[:3000], cross_entropy(data.labels[:3000])
    alone = shared.inner
    assert np.array_equal(shared.forward(inputs), alone.forward(inputs))
    (found,), (expected,) = (one.activations(inputs, "head") for one in (shared, alone))
    assert np.array_equal(found.entering["weight"], expected.entering["weight"])
    assert np.array_equal(found.leaving, expected.leaving)
    gradients = alone.weight_gradients(inputs, loss)
    for place, values in shared.weight_gradients(inputs, loss).items():
        assert np.array_equal(values, gradients[place])
    seed = np.ones((len(inputs), 10), np.float32)
    assert np.array_equal(
        shared.output_gradients(inputs, "first", seed)[0], alone.output_gradients(inputs, "first", seed)[0]
    )
    mine, theirs = (np.asarray(one.input_gradients(inputs, loss)) for one in (shared, alone))
    assert np.array_equal(mine, theirs)


def test_what_flows_through_layers_is_averaged_by_workers_to_the_same_bits(
    shared: ClusterBackend, data: LabelledData
) -> None:
    inputs, names = np.asarray(data.inputs)[:3000], [info.name for info in shared.layers]
    seed = np.random.default_rng(0).standard_normal((3000, 10)).astype(np.float32)
    averages = [Averages(one, list(shared.layers), magnitudes=True) for one in (shared, shared.inner)]
    asked = shared.team.traffic.questions
    for backend, one in zip((shared, shared.inner), averages, strict=True):
        backend.observe(inputs, names, one, lambda rows: [seed[rows]])
        backend.observe(inputs[:1500], names, one.weigh(-0.5))
    assert shared.team.traffic.questions == asked + len(shards(3000)) + len(shards(1500))
    for name in names:
        for mine, theirs in zip(*(one.take(name) for one in averages), strict=True):
            assert np.array_equal(mine.gradient, theirs.gradient)
            assert np.array_equal(mine.entering["weight"], theirs.entering["weight"])


def test_a_cut_gives_the_same_bits_for_rows_in_any_order(shared: ClusterBackend, data: LabelledData) -> None:
    inputs = np.asarray(data.inputs)[:3000]
    rows = np.random.default_rng(0).permutation(3000)[:500]
    mine, theirs = (one.cut(inputs, ["first"]) for one in (shared, shared.inner))
    weights = {("first", "weight"): 1.1 * shared.get_weights("first")["weight"]}
    loss = cross_entropy(data.labels[rows])
    assert np.array_equal(mine.scores_by_shard(weights, rows), theirs.scores_by_shard(weights, rows))
    assert np.array_equal(mine.outputs(rows), theirs.outputs(rows))
    some = {("first", "weight"): (np.array([0, 1]), np.array([0, 0]), np.array([2, 0]), np.array([1, 2]))}
    found, expected = (one.gradients_by_shard(weights, loss, rows, some) for one in (mine, theirs))
    assert found["first", "weight"].shape == (2,)
    assert np.array_equal(found["first", "weight"], expected["first", "weight"])
    found, expected = (one.weight_gradients(weights, loss, rows[:9]) for one in (mine, theirs))
    assert np.allclose(found["first", "weight"], expected["first", "weight"], atol=1e-6)
    outputs = theirs.outputs(rows)
    scores = theirs.scores_from_outputs(outputs, rows)
    assert np.allclose(mine.scores_from_outputs(outputs, rows), scores, atol=1e-5)


def test_weights_set_here_are_those_that_workers_compute_with(shared: ClusterBackend, data: LabelledData) -> None:
    inputs = np.asarray(data.inputs)[:2000]
    before, weight = shared.forward(inputs), shared.get_weights("head")["weight"]
    one = weight.copy()
    one[3, 5] += 1
    shared.set_weights("head", "weight", one)
    assert [len(change.values) for change in shared.changes] == [1]
    after = shared.forward(inputs)
    assert not np.array_equal(after, before)
    assert np.array_equal(after, shared.inner.forward(inputs))
    shared.set_weights("head", "weight", weight)
    assert shared.changes == ()
    assert np.array_equal(shared.forward(inputs), before)


def test_a_model_that_workers_do_not_see_is_sent_as_bytes(client: Client, model_file: Path, data: LabelledData) -> None:
    inputs = np.asarray(data.inputs)[:2000]
    with model_file.open("rb") as file:
        own = Path(f"/proc/self/fd/{file.fileno()}")  # another file, or none, in another process
        if not own.is_file():
            pytest.skip("this system shows no descriptors as files")
        with on_cluster(registry.load(own, backend="onnx"), cluster=client) as found:
            assert np.array_equal(found.forward(inputs), registry.load(model_file).forward(inputs))


def test_candidates_are_given_up_in_waves_across_shards(shared: ClusterBackend, data: LabelledData) -> None:
    from arachne.scoring.evaluators import FitnessInputs, PlainEvaluator
    from arachne.scoring.fast.decide import DecidingEvaluator
    from arachne.scoring.fast.remote import RemoteDeficits
    from tests.unit.evaluating import some_suspects

    labels, rows = data.labels, np.arange(len(data))
    right = shared.inner.predict(data.inputs) == labels
    counted = FitnessInputs.around(
        data.inputs, labels, np.where(right, 1.0, 10.0), (~right).astype(np.int64), ("right", "wrong"),
        ("positive", "negative"),
    )  # fmt: skip
    suspects = some_suspects(shared.inner, ["head"], 6)
    source = RemoteDeficits(shared, counted, suspects, 1 << 28)
    evaluator, plain = (
        DecidingEvaluator(shared, counted, suspects, source),
        PlainEvaluator(shared.inner, counted, suspects),
    )
    rng = np.random.default_rng(1)
    trials = suspects.values + suspects.deviations * rng.standard_normal((12, len(suspects)))
    trials = trials.astype(np.float32).astype(np.float64)
    exact = plain.evaluate(trials)
    limits = np.full(len(trials), int(np.sort(exact.sum(axis=1))[2]))
    within = exact.sum(axis=1) <= limits
    for _ in range(2):  # after the first generation shards know how many inputs usually decide
        source.waves.clear()
        found = evaluator.evaluate(trials, limits)
        assert np.array_equal(found[within], exact[within])
        assert (found[~within].sum(axis=1) > limits[~within]).all()
    assert source.waves[-1] < source.waves[0], source.waves
    assert len(rows) > 2 * 1024


@pytest.mark.parametrize("workers", [1, 8])
def test_the_patch_is_the_same_bytes_with_any_number_of_workers(
    workers: int, model_file: Path, data: LabelledData, tmp_path: Path
) -> None:
    way = WAYS["de after bl"]
    alone = arachne.repair(model_file, data, "top:1", settings=way)
    shared = arachne.repair(model_file, data, "top:1", settings=way, workers=workers)
    assert bytes_of(shared, tmp_path) == bytes_of(alone, tmp_path)


@pytest.mark.parametrize("case", ["mlp-auto", "cnn-default"])
def test_two_workers_give_the_pinned_patch(case: str, client: Client, tmp_path: Path) -> None:
    from arachne_onnx.conformance import model_of

    onnx = pytest.importorskip("onnx")
    kind, target, settings = golden.CASES[case]
    onnx.save(model_of(golden.network(kind)), tmp_path / "model.onnx")
    result = arachne.repair(tmp_path / "model.onnx", golden.data_for(kind), target, settings=settings, cluster=client)
    assert golden.entries(result) == json.loads(golden.FILE.read_text(encoding="utf-8"))[case]
