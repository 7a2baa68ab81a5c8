"""Quantised ONNX files are repaired in their own whole numbers, and run as onnxruntime runs them."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.cli import run
from arachne.model.values import Array

pytestmark = pytest.mark.backend("onnx")

FORMS: dict[str, dict[str, Any]] = {
    "qdq-per-channel": {"quant_format": "QDQ", "per_channel": True, "weight_type": "QInt8"},
    "qdq-uint8": {"quant_format": "QDQ", "weight_type": "QUInt8", "activation_type": "QUInt8"},
    "qoperator": {"quant_format": "QOperator", "per_channel": True, "weight_type": "QInt8"},
    "dynamic": {"weight_type": "QInt8"},
    "dynamic-per-channel": {"per_channel": True, "weight_type": "QUInt8"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    path.write_bytes(resources.files("arachne.demo").joinpath("digits.npz").read_bytes())
    return path


@pytest.fixture(scope="module")
def inputs(data: Path) -> Array:
    with np.load(data) as arrays:
        return np.asarray(arrays["x"], np.float32)


def convolutional(inputs: Array) -> Any:
    """Two convolutions, a pool and two dense layers with random weights, as a message."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"a.weight": (8, 1, 3, 3), "b.weight": (16, 8, 3, 3), "c.weight": (12, 64), "d.weight": (10, 12)}
    weights = {name: rng.normal(size=shape) / np.sqrt(np.prod(shape[1:])) for name, shape in shapes.items()}
    weights |= {name.replace("weight", "bias"): rng.normal(size=shape[0]) / 9 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["x4"]),
        helper.make_node("Conv", ["x4", "a.weight", "a.bias"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["ar"]),
        helper.make_node("Conv", ["ar", "b.weight", "b.bias"], ["b"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["b"], ["br"]),
        helper.make_node("MaxPool", ["br"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "c.weight", "c.bias"], ["c"], transB=1),
        helper.make_node("Relu", ["c"], ["cr"]),
        helper.make_node("Gemm", ["cr", "d.weight", "d.bias"], ["scores"], transB=1),
    ]
    stored = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()]
    stored.append(numpy_helper.from_array(np.array([-1, 1, 8, 8]), "shape"))
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *inputs.shape[1:]]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10]),
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def quantise(source: Path, destination: Path, inputs: Array, form: str) -> Path:
    """Quantise a model with onnxruntime's own quantisers."""
    import onnx
    from onnxruntime import quantization

    name = onnx.load(source).graph.input[0].name

    class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rows = iter(range(64))

        def get_next(self) -> dict[str, Array] | None:
            row = next(self.rows, None)
            return None if row is None else {name: inputs[row : row + 1]}

    options = dict(FORMS[form])
    for kind in {"weight_type", "activation_type"} & set(options):
        options[kind] = quantization.QuantType[options[kind]]
    if form.startswith("dynamic"):
        model = onnx.load(source)
        del model.graph.value_info[:]  # which an exporter got wrong, and this quantiser insists on
        quantization.quantize_dynamic(model, destination, **options)
        return destination
    options["quant_format"] = quantization.QuantFormat[options["quant_format"]]
    quantization.quantize_static(str(source), str(destination), Calibration(), **options)
    return destination


@pytest.fixture(scope="module", params=FORMS)
def quantised(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, inputs: Array) -> Path:
    """A convolutional network in one of the forms."""
    import onnx

    folder = tmp_path_factory.mktemp("convolutional")
    onnx.save(convolutional(inputs), folder / "float.onnx")
    return quantise(folder / "float.onnx", folder / f"{request.param}.onnx", inputs, request.param)


def own_scores(path: Path, inputs: Array) -> Array:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    # A dynamic quantiser rounds by the whole batch, so each input is run alone.
    batches = np.split(inputs, len(inputs)) if b"DynamicQuantize" in path.read_bytes() else [inputs]
    return np.concatenate([session.run(None, {session.get_inputs()[0].name: batch})[0] for batch in batches])


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


def recurrent(direction: str) -> Any:
    """An LSTM over the rows of a picture and a dense layer on its last state, with random weights, as a message."""
    from onnx import TensorProto, helper, numpy_helper

    rng, ways = np.random.default_rng(4), 2 if direction == "bidirectional" else 1
    shapes = {"w": (ways, 48, 8), "r": (ways, 48, 12), "b": (ways, 96), "d.weight": (12 * ways, 10), "d.bias": (10,)}
    arrays = {name: rng.normal(size=shape).astype(np.float32) / 3 for name, shape in shapes.items()}
    arrays["rows"] = np.array([-1, 8, 8])
    arrays["flat"] = np.array([-1, 12 * ways])
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["pictures"]),
        helper.make_node("Transpose", ["pictures"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["steps", "w", "r", "b"], ["", "last"], "rnn", hidden_size=12, direction=direction),
        helper.make_node("Transpose", ["last"], ["inputs first"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["inputs first", "flat"], ["state"]),
        helper.make_node("Gemm", ["state", "d.weight", "d.bias"], ["scores"], "d"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape])
        for name, shape in (("x", [64]), ("scores", [10]))
    ]
    tensors = [numpy_helper.from_array(values, name) for name, values in arrays.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_dynamically_quantised_lstm_is_repaired_in_its_own_numbers(
    direction: str, inputs: Array, tmp_path: Path
) -> None:
    import onnx

    import arachne

    rows = inputs[:120].reshape(-1, 64)
    onnx.save(recurrent(direction), tmp_path / "float.onnx")
    path = quantise(tmp_path / "float.onnx", tmp_path / "lstm.onnx", rows, "dynamic")
    assert "DynamicQuantizeLSTM" in {node.op_type for node in onnx.load(path).graph.node}
    backend, plain = arachne.load(path), arachne.load(tmp_path / "float.onnx")
    names = [info.name for info in plain.layers]
    assert [info.name for info in backend.layers] == names
    recurrent_names = [info.name for info in backend.layers if info.kind == "recurrent"]
    assert len(recurrent_names) == (1 if direction == "forward" else 2)
    alone = own_scores(path, rows)
    np.testing.assert_array_equal(backend.forward(rows), alone)
    step = np.ptp(alone) / 255
    assert np.abs(backend.cut(rows, recurrent_names[:1]).scores_with({}) - alone).max() < 2.5 * step
    for name in names:  # the same places as in the float file, in the same order
        for parameter, values in plain.get_weights(name).items():
            found = backend.get_weights(name)[parameter]
            assert np.abs(found - values).max() <= np.abs(values).max() / 120
    labels = np.argsort(alone, axis=1)[:, -2]  # every input is wrong as it is

    def pull(scores: Array, part: slice | Array) -> Array:
        wanted = np.zeros_like(scores)
        wanted[np.arange(len(scores)), labels[part]] = -1
        return wanted

    ours, wanted = (
        np.concatenate([one.ravel() for one in model.weight_gradients(rows, pull).values()]) for model in (backend, plain)
    )
    assert ours @ wanted / np.linalg.norm(ours) / np.linalg.norm(wanted) > 0.98
    labels[::2] = alone[::2].argmax(axis=1)
    inside = arachne.Contrast(include=tuple(recurrent_names))
    result = arachne.repair(path, (rows, labels), "*:*", localiser=inside, max_break=0.5, seed=0)
    assert result.evidence.held_out.repaired > 0
    result.model.save(tmp_path / "after.onnx")
    stored = [
        {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(file).graph.initializer}
        for file in (path, tmp_path / "after.onnx")
    ]
    differing = {name for name, values in stored[0].items() if not np.array_equal(values, stored[1][name])}
    assert differing
    assert differing <= {"w_quantized", "r_quantized", "b"}
    arachne.revert(result.patch, tmp_path / "after.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == path.read_bytes()


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


@pytest.fixture
def float_models(tmp_path: Path, inputs: Array) -> tuple[Path, Path]:
    """A float model, and a copy in which three weights of a convolution and two of a dense layer have other values."""
    import onnx

    from arachne_onnx import OnnxBackend

    onnx.save(convolutional(inputs), tmp_path / "net.onnx")
    backend = OnnxBackend.load(tmp_path / "net.onnx")
    for layer, places in (("b", (3, 80, 400)), ("d", (2, 50))):
        values = backend.get_weights(layer)["weight"]
        values.flat[list(places)] *= 0.4
        backend.set_weights(layer, "weight", values)
    backend.save(tmp_path / "changed.onnx")
    return tmp_path / "net.onnx", tmp_path / "changed.onnx"


@pytest.mark.parametrize("form", FORMS)
def test_float_patch_is_rounded_to_the_quantised_copy(
    form: str, float_models: tuple[Path, Path], inputs: Array, tmp_path: Path
) -> None:
    from arachne.patch.commands import apply, diff, revert
    from arachne_onnx import OnnxBackend

    source, after = float_models
    copy = quantise(source, tmp_path / "int8.onnx", inputs, form)
    done = apply(diff(source, after), copy, tmp_path / "patched.onnx")
    assert done is not None
    assert {pair.how for pair in done.match.pairs} == {"quantised"}
    wanted, found, before = (OnnxBackend.load(path) for path in (after, tmp_path / "patched.onnx", copy))
    for layer in ("b", "d"):
        stored = next(one for one in found.layers if one.name == layer).parameters["weight"]
        expected = np.where(
            wanted.get_weights(layer)["weight"] == OnnxBackend.load(source).get_weights(layer)["weight"],
            before.get_weights(layer)["weight"],
            stored.storage.round(wanted.get_weights(layer)["weight"]),
        )
        assert np.array_equal(found.get_weights(layer)["weight"], expected)
    revert(diff(source, after), tmp_path / "patched.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == copy.read_bytes()


def test_float_patch_that_would_clip_is_refused(float_models: tuple[Path, Path], inputs: Array, tmp_path: Path) -> None:
    from arachne.errors import PatchError
    from arachne.patch.commands import apply, diff
    from arachne_onnx import OnnxBackend

    source, _ = float_models
    copy = quantise(source, tmp_path / "int8.onnx", inputs, "qdq-per-channel")
    backend = OnnxBackend.load(source)
    values = backend.get_weights("d")["weight"]
    values[1, 2] = 5 * np.abs(values).max()
    backend.set_weights("d", "weight", values)
    backend.save(tmp_path / "far.onnx")
    with pytest.raises(PatchError, match="the quantised file holds"):
        apply(diff(source, tmp_path / "far.onnx"), copy, tmp_path / "patched.onnx")
    assert not (tmp_path / "patched.onnx").exists()


def test_float_patch_of_another_model_is_not_rounded_to_a_quantised_one(
    float_models: tuple[Path, Path], inputs: Array, tmp_path: Path
) -> None:
    from arachne.errors import PatchError
    from arachne.patch.commands import apply, diff
    from arachne_onnx import OnnxBackend

    source, after = float_models
    other = OnnxBackend.load(source)
    for layer in ("b", "d"):
        values = other.get_weights(layer)["weight"]
        other.set_weights(layer, "weight", values[::-1].copy())
    other.save(tmp_path / "other.onnx")
    copy = quantise(tmp_path / "other.onnx", tmp_path / "int8.onnx", inputs, "qdq-per-channel")
    with pytest.raises(PatchError, match="another model"):
        apply(diff(source, after), copy, tmp_path / "patched.onnx")


def dense_over(stored: Any, scale: Array, **options: int) -> Any:
    """A dense layer in floats before one whose weights are dequantised, opset 21, as a message."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("DequantizeLinear", ["last.weight", "scale"], ["w"], **options),
        helper.make_node("Gemm", ["r", "w", "last.bias"], ["scores"], transB=1),
    ]
    arrays = {
        "first.weight": rng.normal(size=(8, 6)).astype(np.float32),
        "first.bias": np.zeros(8, np.float32),
        "last.weight": stored,
        "last.bias": np.zeros(4, np.float32),
        "scale": scale.astype(np.float32),
    }
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 6), ("scores", 4))
    ]
    tensors = [numpy_helper.from_array(values, name) for name, values in arrays.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("dtype", "scales", "options", "reason"),
    [
        ("int4", 4, {"axis": 0}, "stored as int4, which no patch holds"),
        ("uint4", 4, {"axis": 0}, "stored as uint4, which no patch holds"),
        ("int16", 4, {"axis": 0}, "stored as int16, which no patch holds"),
        ("float8_e4m3fn", 4, {"axis": 0}, "stored as float8e4m3fn, which no patch holds"),
        ("float8_e5m2", 4, {"axis": 0}, "stored as float8e5m2, which no patch holds"),
        ("int8", (4, 2), {"axis": 1, "block_size": 4}, "stored as int8 with a scale for each block of numbers"),
    ],
)
def test_weights_in_other_numbers_are_listed_with_a_reason(
    dtype: str, scales: Any, options: dict[str, int], reason: str, tmp_path: Path
) -> None:
    import ml_dtypes
    import onnx

    import arachne

    whole = np.random.default_rng(1).integers(0, 7, (4, 8)).astype(getattr(ml_dtypes, dtype, dtype))
    onnx.save(dense_over(whole, np.full(scales, 0.2), **options), tmp_path / "odd.onnx")
    found = arachne.load(tmp_path / "odd.onnx")
    assert [layer.name for layer in found.layers] == ["first"]
    assert reason in found.unreachable["last.weight"]
    assert "quantise after the repair" in found.unreachable["last.weight"]


def test_floats_that_the_graph_rounds_are_listed_with_what_to_do(tmp_path: Path) -> None:
    import onnx

    import arachne

    model = dense_over(np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32), np.full(4, 0.1), axis=0)
    dequantises = next(node for node in model.graph.node if node.op_type == "DequantizeLinear")
    dequantises.input[0] = "whole"
    dequantises.input.append("zeros")
    arrays = {"zeros": np.zeros(4, np.int8), "low": np.array(-127, np.int8), "high": np.array(127, np.int8)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(values, name) for name, values in arrays.items())
    rounds = onnx.helper.make_node("QuantizeLinear", ["last.weight", "scale", "zeros"], ["wide"], axis=0)
    model.graph.node.insert(0, rounds)
    model.graph.node.insert(1, onnx.helper.make_node("Clip", ["wide", "low", "high"], ["whole"]))
    onnx.save(model, tmp_path / "unfolded.onnx")
    found = arachne.load(tmp_path / "unfolded.onnx")
    assert [layer.name for layer in found.layers] == ["first"]
    assert "`fold_quantize=True`" in found.unreachable["last.weight"]


@pytest.mark.parametrize(("least", "low"), [(-127, -127), (-128, -128)])
def test_symmetric_weights_stay_symmetric_as_kernels_are_promised(least: int, low: int, tmp_path: Path) -> None:
    import onnx

    import arachne

    whole = np.random.default_rng(1).integers(-100, 100, (4, 8)).astype(np.int8)
    whole[2, 3] = least
    onnx.save(dense_over(whole, np.full(4, 0.5), axis=0), tmp_path / "net.onnx")
    backend = arachne.load(tmp_path / "net.onnx")
    backend.set_weights("last", "weight", np.full((4, 8), -1000.0, np.float32))
    backend.save(tmp_path / "changed.onnx")
    stored = {
        one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(tmp_path / "changed.onnx").graph.initializer
    }
    assert stored["last.weight"].min() == stored["last.weight"].max() == low


def as_pt2e(inputs: Array) -> Any:
    """A convnet as torch.onnx exports it from a module that torchao's `convert_pt2e` made, as a message.

    Weights are int8 by channel, biases stay floats, every activation is quantised and dequantised where it arises, also
    behind pools and reshapes and at the end, and weights are called `_frozen_param0`, `_frozen_param1`, …
    """
    from onnx import TensorProto, helper, numpy_helper

    rng, nodes, arrays = np.random.default_rng(2), [], {}

    def weight(number: int, *shape: int) -> str:
        values = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        scale = (np.abs(values).reshape(len(values), -1).max(axis=1) / 127).astype(np.float32)
        name, scales, zeros = f"_frozen_param{number}", f"val_{2 * number + 1}", f"val_{2 * number + 2}"
        spread = scale.reshape(-1, *[1] * (len(shape) - 1))
        arrays[name] = np.clip(np.rint(values / spread), -127, 127).astype(np.int8)
        arrays[scales], arrays[zeros] = scale, np.zeros(len(scale), np.int8)
        nodes.append(helper.make_node("DequantizeLinear", [name, scales, zeros], [f"{name}_values"], axis=0))
        return f"{name}_values"

    def round_here(name: str, scale: float, zero: int) -> str:
        arrays[f"{name}_scale"], arrays[f"{name}_zero"] = np.array(scale, np.float32), np.array(zero, np.int8)
        grid = [f"{name}_scale", f"{name}_zero"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *grid], [f"{name}_q"], axis=1))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *grid], [f"{name}_dq"], axis=1))
        return f"{name}_dq"

    weights = [weight(0, 6, 1, 3, 3), weight(1, 12, 96), weight(2, 10, 12)]
    for name, size in (("a", 6), ("b", 12), ("c", 10)):
        arrays[f"{name}.bias"] = rng.normal(size=size).astype(np.float32) / 9
    arrays |= {"picture": np.array([-1, 1, 8, 8]), "flat": np.array([-1, 96])}
    nodes.append(helper.make_node("Reshape", ["x", "picture"], ["x4"]))
    nodes.append(helper.make_node("Conv", [round_here("x4", 0.01, -100), weights[0], "a.bias"], ["a"], pads=[1] * 4))
    nodes.append(helper.make_node("Relu", ["a"], ["ar"]))
    nodes.append(
        helper.make_node("MaxPool", [round_here("ar", 0.02, -128)], ["p"], kernel_shape=[2, 2], strides=[2, 2])
    )
    nodes.append(helper.make_node("Reshape", [round_here("p", 0.02, -128), "flat"], ["f"]))
    nodes.append(helper.make_node("Gemm", [round_here("f", 0.02, -128), weights[1], "b.bias"], ["b"], transB=1))
    nodes.append(helper.make_node("Relu", ["b"], ["br"]))
    nodes.append(helper.make_node("Gemm", [round_here("br", 0.02, -128), weights[2], "c.bias"], ["c"], transB=1))
    round_here("c", 0.03, 4)
    nodes[-1].output[0] = "scores"
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *inputs.shape[1:]]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10]),
    ]
    tensors = [numpy_helper.from_array(values, name) for name, values in arrays.items()]
    graph = helper.make_graph(nodes, "main_graph", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_export_of_torchaos_pt2e_is_repaired_in_its_own_numbers(inputs: Array, data: Path, tmp_path: Path) -> None:
    import onnx

    import arachne

    onnx.save(as_pt2e(inputs), tmp_path / "net.onnx")
    backend = arachne.load(tmp_path / "net.onnx")
    assert [layer.kind for layer in backend.layers] == ["conv", "dense", "dense"]
    assert all(layer.is_quantised for layer in backend.layers)
    assert not backend.unreachable
    np.testing.assert_allclose(backend.forward(inputs), own_scores(tmp_path / "net.onnx", inputs), atol=1e-6)
    with np.load(data) as arrays:
        labels = np.asarray(arrays["y"])
    decided = backend.forward(inputs).argmax(axis=1)
    common = np.bincount(decided, minlength=10).argmax()
    relabelled = np.where(decided == common, decided, labels)  # one class is right, so that something can break
    np.savez(tmp_path / "val.npz", x=inputs, y=relabelled)
    result = arachne.repair(tmp_path / "net.onnx", tmp_path / "val.npz", "*:*", max_break=0.2, seed=0)
    assert result.evidence.held_out.repaired > 0
    result.model.save(tmp_path / "after.onnx")
    before, after = (
        {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
        for path in (tmp_path / "net.onnx", tmp_path / "after.onnx")
    )
    differing = {name for name, values in before.items() if not np.array_equal(values, after[name])}
    assert differing
    assert differing <= {name for name in before if name.startswith("_frozen_param") or name.endswith(".bias")}
    arachne.revert(result.patch, tmp_path / "after.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == (tmp_path / "net.onnx").read_bytes()
