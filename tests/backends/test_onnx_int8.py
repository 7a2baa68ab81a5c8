"""Quantised ONNX files are repaired in their own whole numbers, and run as onnxruntime runs them."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from arachne.cli import run
from arachne.model.values import Array
from tests.backends.int8_files import FORMS, convolutional, digits, own_scores, quantise

pytestmark = pytest.mark.backend("onnx")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    path.write_bytes(resources.files("arachne.demo").joinpath("digits.npz").read_bytes())
    return path


@pytest.fixture(scope="module")
def inputs() -> Array:
    return digits()[0]


@pytest.fixture(scope="module", params=FORMS)
def quantised(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, inputs: Array) -> Path:
    """A convolutional network in one of the forms."""
    import onnx

    folder = tmp_path_factory.mktemp("convolutional")
    onnx.save(convolutional(inputs), folder / "float.onnx")
    return quantise(folder / "float.onnx", folder / f"{request.param}.onnx", inputs, request.param)


def test_scores_are_those_of_onnxruntime_and_every_weight_is_in_reach(quantised: Path, inputs: Array) -> None:
    from arachne_onnx import OnnxBackend

    backend = OnnxBackend.load(quantised)
    np.testing.assert_array_equal(backend.forward(inputs), own_scores(quantised, inputs))
    assert [layer.name for layer in backend.layers] == ["a", "b", "c", "d"]
    assert {layer.parameters["weight"].dtype for layer in backend.layers} <= {"int8", "uint8"}
    assert {layer.parameters["bias"].dtype for layer in backend.layers} <= {"int32", "float32"}
    assert all(set(layer.parameters) == {"weight", "bias"} for layer in backend.layers)
    assert backend.unreachable == {}


def test_weights_are_rounded_to_their_grid_and_a_saved_copy_has_the_same_scores(
    quantised: Path, inputs: Array, tmp_path: Path
) -> None:
    from arachne_onnx import OnnxBackend

    backend, rng = OnnxBackend.load(quantised), np.random.default_rng(1)
    before = backend.forward(inputs)
    for layer in backend.layers:
        for parameter, info in layer.parameters.items():
            values = backend.get_weights(layer.name)[parameter]
            wanted = values + 0.3 * values.std() * rng.normal(size=values.shape)
            backend.set_weights(layer.name, parameter, wanted.astype(values.dtype))
            found = backend.get_weights(layer.name)[parameter]
            np.testing.assert_array_equal(found, info.storage.round(wanted.astype(values.dtype)))
    after = backend.forward(inputs)
    backend.save(tmp_path / "saved.onnx")
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_array_equal(after, own_scores(tmp_path / "saved.onnx", inputs))
    old, new = quantised.read_bytes(), (tmp_path / "saved.onnx").read_bytes()
    assert len(old) == len(new)


def test_gradients_are_those_of_the_float_model_nearly(quantised: Path, inputs: Array) -> None:
    from arachne_onnx import OnnxBackend

    labels = np.arange(len(inputs)) % 10

    def pull(scores: Array, rows: slice | Array) -> Array:
        wanted = np.zeros_like(scores)
        wanted[np.arange(len(scores)), labels[rows]] = 1
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(exponents / exponents.sum(axis=1, keepdims=True) - wanted)

    gradients = []
    for path in (quantised, quantised.with_name("float.onnx")):
        backend = OnnxBackend.load(path)
        backend.forward(inputs)
        found = backend.weight_gradients(inputs, pull, [(layer.name, "weight") for layer in backend.layers])
        gradients.append(np.concatenate([gradient.ravel() for gradient in found.values()]))
    ours, wanted = gradients
    assert ours @ wanted / np.linalg.norm(ours) / np.linalg.norm(wanted) > 0.98


def test_a_cut_differs_from_the_model_by_steps_of_the_last_quantisation_at_most(quantised: Path, inputs: Array) -> None:
    """Sessions that are fed weights use other kernels of onnxruntime, which round differently now and then."""
    from arachne_onnx import OnnxBackend

    backend = OnnxBackend.load(quantised)
    original = backend.forward(inputs)
    step = np.unique(np.abs(np.diff(np.unique(original)))).min()
    if quantised.name.startswith("dynamic"):  # whose scores are not rounded: a step is that of an activation
        step = np.ptp(original) / 255
    values = backend.get_weights("c")["weight"]
    wanted = np.asarray(values * 0.9, values.dtype)
    cut = backend.cut(inputs, ["c"])
    assert type(cut).__name__ == "OnnxCut"
    found = cut.scores_with({("c", "weight"): wanted})
    backend.set_weights("c", "weight", wanted)
    exact = backend.forward(inputs)
    assert np.abs(found - exact).max() < 2.5 * step
    assert np.mean(found.argmax(axis=1) == exact.argmax(axis=1)) > 0.97


def test_dense_layers_of_whole_numbers_are_differentiated_without_rounding(quantised: Path, inputs: Array) -> None:
    import arachne
    from arachne.decisions.losses import cross_entropy
    from arachne.scoring.cut import Cuts, CutScorer
    from arachne.scoring.dense_tail import make_scorer
    from arachne.scoring.rounded import RoundedScorer
    from arachne.scoring.tail_cache import TailCache
    from arachne.weights.selection import Selection

    backend, rows = arachne.load(quantised), np.arange(0, 300, 2)
    backend.look(inputs)
    names = [info.name for info in backend.layers[-2:]]
    suspects = Selection.at(backend, {(name, "weight"): np.arange(60) for name in names})
    exact = CutScorer(backend, Cuts(backend, inputs), suspects)
    plain = TailCache.of(backend, inputs)
    assert plain is None or plain.layers == names[1:]  # scores are never computed without the rounding
    tail = TailCache.of(backend, inputs, rounded=True)
    assert tail is not None
    assert tail.layers == names
    found = make_scorer(backend, inputs, suspects, rounded=tail)
    assert isinstance(found, RoundedScorer)
    rng = np.random.default_rng(1)
    values = suspects.values + 0.05 * rng.normal(size=len(suspects))
    np.testing.assert_array_equal(found.scores(values, rows), exact.scores(values, rows))
    labels = rng.integers(0, 10, len(rows))
    ours, theirs = (one.gradients(values, cross_entropy(labels), rows) for one in (found, exact))
    assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) > 0.98


@pytest.mark.parametrize(("free", "left_out"), [(0.0, True), (2e12, False)])
def test_no_search_of_dense_layers_is_left_out_for_the_passes_of_whole_numbers(
    free: float, left_out: bool, data: Path, inputs: Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import arachne
    from arachne.data.split import split_by_outcome
    from arachne.localise import Contrast
    from arachne.scoring.evaluators import FastEvaluator
    from arachne.search import Pool, SearchState, effort
    from arachne.search.build import build_problem

    monkeypatch.setattr(effort, "FREE_MULTIPLICATIONS", 0.0)
    monkeypatch.setattr(effort, "FREE_IN_WHOLE_NUMBERS", free)
    source = tmp_path / "digits.onnx"
    source.write_bytes(resources.files("arachne.demo").joinpath("digits.onnx").read_bytes())
    backend = arachne.load(quantise(source, tmp_path / "digits.int8.onnx", inputs, "qdq-per-channel"))
    rng, states = np.random.default_rng(0), list[SearchState]()
    split = split_by_outcome(backend, arachne.read_data(str(data)), "*:7", rng=rng)
    suspects = Contrast().localise(backend, split.seen, rng=rng).suspects
    problem = build_problem(backend, split, suspects, 10.0, FastEvaluator)
    pool = Pool(members=("bias", "erase", "margin", "margin@hidden", "margin@fisher"))
    pool.search(problem, rng=rng, on_state=states.append)
    stopped = [str(own.stopped) for own in states[-1].members.values()]
    assert any("would run the model" in one for one in stopped) == left_out, stopped


def test_gradient_steps_stay_within_what_whole_numbers_hold(data: Path, inputs: Array, tmp_path: Path) -> None:
    """Rounding loses what a step goes beyond the range, so that a search must not rely on it."""
    import arachne
    from arachne.data.split import split_by_outcome
    from arachne.localise import Contrast
    from arachne.scoring.evaluators import FastEvaluator
    from arachne.search import SearchState
    from arachne.search.build import build_problem
    from arachne.search.margin import MarginSearch

    source = tmp_path / "digits.onnx"
    source.write_bytes(resources.files("arachne.demo").joinpath("digits.onnx").read_bytes())
    backend = arachne.load(quantise(source, tmp_path / "digits.int8.onnx", inputs, "qdq-per-channel"))
    rng, states = np.random.default_rng(0), list[SearchState]()
    split = split_by_outcome(backend, arachne.read_data(str(data)), "*:7", rng=rng)
    suspects = Contrast(count=12).localise(backend, split.seen, rng=rng).suspects
    problem = build_problem(backend, split, suspects, 10.0, FastEvaluator)
    MarginSearch(folds=2).search(problem, rng=rng, on_state=states.append)
    scale = states[0].arrays["scale"]
    runs = np.array([state.arrays["change"] for state in states[1:]]) * scale + suspects.values
    ends = np.array([suspects.clip(np.full(len(suspects), side * np.inf)) for side in (-1, 1)])
    tolerance = 1e-6 * np.abs(ends).max()
    assert ((runs >= ends[0] - tolerance) & (runs <= ends[1] + tolerance)).all()
    assert (np.abs(runs[:, None] - ends) < tolerance).any()  # it would have gone further


@pytest.mark.parametrize("form", ["qdq-per-channel", "qoperator", "dynamic"])
def test_a_quantised_file_is_repaired_in_its_own_numbers(
    form: str, data: Path, inputs: Array, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "digits.onnx"
    source.write_bytes(resources.files("arachne.demo").joinpath("digits.onnx").read_bytes())
    model = quantise(source, tmp_path / "digits.int8.onnx", inputs, form)
    fix = tmp_path / "fix"
    words = ["--data", str(data), "--target", "*:7", "--seed", "0", "--quiet"]
    assert run(["repair", str(model), *words, "--json", "-o", str(fix)]) == 0
    held_out = json.loads(capsys.readouterr().out)["held_out"]
    assert held_out["repaired"] > 0.8 * held_out["negatives"]
    assert held_out["broken"] < 0.01 * held_out["positives"]
    entries = json.loads((fix / "patch.json").read_text())["entries"]
    assert {entry["dtype"] for entry in entries} <= {"int8", "int32", *(["float32"] if form == "dynamic" else [])}
    whole = [entry for entry in entries if entry["dtype"] != "float32"]
    assert whole
    assert all(isinstance(entry[side], int) for entry in whole for side in ("old", "new"))
    old, new = (np.frombuffer(path.read_bytes(), np.uint8) for path in (model, fix / "model.onnx"))
    assert np.count_nonzero(old != new) <= sum(1 if entry["dtype"] == "int8" else 4 for entry in entries)
    back = tmp_path / "back.onnx"
    assert run(["revert", str(fix / "patch.json"), str(fix / "model.onnx"), "-o", str(back), "--quiet"]) == 0
    assert back.read_bytes() == model.read_bytes()
    again = tmp_path / "again.onnx"
    assert run(["apply", str(fix / "patch.json"), str(model), "-o", str(again), "--quiet"]) == 0
    assert again.read_bytes() == (fix / "model.onnx").read_bytes()
    accuracy = np.mean(own_scores(again, inputs).argmax(axis=1) == np.load(data)["y"])
    assert accuracy > 0.95
    capsys.readouterr()
    assert run(["apply", str(fix / "patch.json"), str(source), "-o", str(tmp_path / "no.onnx")]) == 3
    assert "in int8" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["qdq-per-channel", "qoperator", "dynamic"])
def test_the_papers_search_repairs_a_quantised_file_too(form: str, data: Path, inputs: Array, tmp_path: Path) -> None:
    import arachne
    from arachne.settings import make_searcher

    source = tmp_path / "digits.onnx"
    source.write_bytes(resources.files("arachne.demo").joinpath("digits.onnx").read_bytes())
    model = quantise(source, tmp_path / "digits.int8.onnx", inputs, form)
    result = arachne.repair(model, data, "*:7", searcher=make_searcher("de", generations=8), seed=0)
    assert result.evidence.seen is not None
    assert result.evidence.seen.repaired > 0


@pytest.mark.parametrize("form", ["dynamic", "dynamic-per-channel"])
def test_dynamically_quantised_inputs_are_searched_as_if_each_came_alone(
    form: str, inputs: Array, tmp_path: Path
) -> None:
    import onnx

    from arachne_onnx import OnnxBackend

    onnx.save(convolutional(inputs), tmp_path / "float.onnx")
    path = quantise(tmp_path / "float.onnx", tmp_path / "dynamic.onnx", inputs, form)
    backend = OnnxBackend.load(path)
    alone, cut = own_scores(path, inputs), backend.cut(inputs, ["a"])
    assert type(cut).__name__ == "OnnxCut"
    np.testing.assert_allclose(cut.scores_with({}), alone, atol=1e-5)
    silent = np.zeros_like(inputs[:3])
    np.testing.assert_array_equal(backend.forward(silent), own_scores(path, silent))


def test_products_of_whole_numbers_in_another_form_are_refused_with_their_reason(inputs: Array, tmp_path: Path) -> None:
    import onnx

    import arachne
    from arachne.errors import ModelError

    onnx.save(convolutional(inputs), tmp_path / "float.onnx")
    model = onnx.load(quantise(tmp_path / "float.onnx", tmp_path / "dynamic.onnx", inputs, "dynamic"))
    for node in model.graph.node:
        if node.op_type == "Cast":  # by way of float64, as nobody writes it
            node.attribute[0].i = onnx.TensorProto.DOUBLE
            node.output[0] += "/wide"
    wide = [name for node in model.graph.node for name in node.output if name.endswith("/wide")]
    casts = [onnx.helper.make_node("Cast", [name], [name.removesuffix("/wide")], to=1) for name in wide]
    model.graph.node.extend(casts)
    onnx.save(model, tmp_path / "odd.onnx")
    with pytest.raises(ModelError, match=r"stored as int8 without a scale of its own"):
        arachne.load(tmp_path / "odd.onnx")
