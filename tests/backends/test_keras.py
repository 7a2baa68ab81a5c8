"""The Keras adapter on layers of every kind: its own numbers against finite differences, masks, shapes, refusals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("arachne_keras", exc_type=ImportError)

from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
import keras
from keras import layers as kl

from arachne.decisions.losses import cross_entropy, squared_probability_change
from arachne.errors import DataError, ModelError, UsageError
from arachne.model import registry
from arachne.model.cut import PlainCut
from arachne.model.values import Array, Geometry

pytestmark = [
    pytest.mark.backend("keras"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
]

STEP = 1e-2


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def sequential(*layers: Any) -> Any:
    """A model with weights of some size in every vector, so that no bias or scale hides behind a zero or a one."""
    return draw_inputs(keras.Sequential(list(layers)))


def draw_inputs(model: Any) -> Any:
    rng = np.random.default_rng(3)
    for variable in model.trainable_variables:
        offset = 1.0 if "gamma" in variable.path or "scale" in variable.path else 0.0
        spread = 0.3 if len(variable.shape) == 1 else 0.5
        variable.assign((offset + spread * rng.normal(size=tuple(variable.shape))).astype(np.float32))
    return model


def attention() -> Any:
    given = keras.Input((4, 6))
    value = kl.MultiHeadAttention(2, 3, name="attention")(given, given)
    value = kl.LayerNormalization(name="norm")(value + given)
    value = kl.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d", activation="tanh", name="einsum")(
        value
    )
    value = kl.GlobalAveragePooling1D()(value)
    return draw_inputs(keras.Model(given, keras.ops.softmax(kl.Dense(3, name="head")(value))))


def make_nested() -> Any:
    inner = keras.Sequential(
        [keras.Input((4,)), kl.Dense(4, activation="tanh", name="first"), kl.Dense(4, name="second")], name="inner"
    )
    given = keras.Input((4,))
    once = inner(given)
    return draw_inputs(keras.Model(given, kl.Dense(3, name="head")(kl.Add()([once, inner(once)]))))


def make_masked() -> Any:
    return sequential(
        keras.Input((5,), dtype="int32"),
        kl.Embedding(9, 4, mask_zero=True, name="table"),
        kl.Bidirectional(kl.LSTM(3, return_sequences=True), name="both"),
        kl.GRU(3, name="gru"),
        kl.Dense(3, activation="softmax", name="head"),
    )


def tokens() -> Array:
    ids = np.random.default_rng(5).integers(1, 9, (4, 5)).astype(np.int32)
    ids[0, 3:] = ids[2, 1:] = 0
    return ids


MODELS: dict[str, tuple[Callable[[], Any], Array]] = {
    "separable": (
        lambda: sequential(
            keras.Input((7, 6, 2)),
            kl.SeparableConv2D(3, 3, strides=2, padding="same", depth_multiplier=2, activation="tanh", name="conv"),
            kl.Flatten(),
            kl.Dense(3, name="head"),
        ),
        numbers(4, 7, 6, 2),
    ),
    "uneven": (
        lambda: sequential(
            keras.Input((9, 8, 4)),
            kl.Conv2D(6, (3, 2), strides=(2, 1), groups=2, activation="tanh", name="strided"),
            kl.Conv2D(3, (2, 3), dilation_rate=(2, 1), padding="same", activation="tanh", name="dilated"),
            kl.Flatten(),
            kl.Dense(3, name="head"),
        ),
        numbers(4, 9, 8, 4),
    ),
    "transposed": (
        lambda: sequential(
            keras.Input((4, 3, 2)),
            kl.Conv2DTranspose(3, 3, strides=2, padding="same", activation="tanh", name="conv"),
            kl.Flatten(),
            kl.Dense(3, name="head"),
        ),
        numbers(4, 4, 3, 2),
    ),
    "causal": (
        lambda: sequential(
            keras.Input((8, 2)),
            kl.Conv1D(3, 3, dilation_rate=2, padding="causal", activation="tanh", name="conv"),
            kl.BatchNormalization(name="norm"),
            kl.GroupNormalization(3, name="group"),
            kl.Flatten(),
            kl.RMSNormalization(name="rms"),
            kl.Dense(3, name="head"),
        ),
        numbers(4, 8, 2),
    ),
    "lstm": (
        lambda: sequential(
            keras.Input((5, 3)), kl.LSTM(4, name="lstm"), kl.Dense(3, activation="softmax", name="head")
        ),
        numbers(4, 5, 3),
    ),
    "gru": (
        lambda: sequential(
            keras.Input((None, 3)), kl.GRU(4, name="gru"), kl.Dense(1, activation="sigmoid", name="head")
        ),
        numbers(4, 5, 3),
    ),
    "gru resetting before": (
        lambda: sequential(
            keras.Input((5, 3)), kl.GRU(4, reset_after=False, go_backwards=True, name="gru"), kl.Dense(3, name="head")
        ),
        numbers(4, 5, 3),
    ),
    "masked": (make_masked, tokens()),
    "attention": (attention, numbers(4, 4, 6)),
    "nested": (make_nested, numbers(4, 4)),
    "every step": (
        lambda: sequential(
            keras.Input((3, 4)),
            kl.TimeDistributed(kl.Dense(5, activation="tanh", name="inner"), name="steps"),
            kl.Flatten(),
            kl.Dense(3, name="head"),
        ),
        numbers(4, 3, 4),
    ),
}


@pytest.fixture(params=list(MODELS))
def case(request: pytest.FixtureRequest) -> tuple[KerasBackend, Array]:
    make, inputs = MODELS[request.param]
    return KerasBackend.load(make()), inputs


def test_scores_are_the_models_own_before_its_last_activation(case: tuple[KerasBackend, Array]) -> None:
    backend, inputs = case
    scores = backend.forward(inputs)
    given = keras.ops.convert_to_numpy(backend.native(inputs, training=False))
    if given.shape[1] == 1:
        np.testing.assert_allclose(1 / (1 + np.exp(-scores[:, 1:])), given, atol=1e-6)
        np.testing.assert_array_equal(scores[:, 0], 0)
        return
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    ends_in_softmax = np.allclose(given.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(probabilities if ends_in_softmax else scores, given, atol=1e-6)


def test_gradients_agree_with_finite_differences_and_cuts_with_the_model(case: tuple[KerasBackend, Array]) -> None:
    backend, inputs = case
    rng = np.random.default_rng(6)
    labels = rng.integers(0, backend.forward(inputs).shape[1], len(inputs))
    found = backend.weight_gradients(inputs, cross_entropy(labels))
    cut = backend.cut(inputs, [info.name for info in backend.layers])
    for info in backend.layers:
        for parameter, values in backend.get_weights(info.name).items():
            direction = rng.normal(size=values.shape)
            direction /= np.linalg.norm(direction)
            moved = [(values + step * direction).astype(np.float32) for step in (STEP, -STEP)]
            above, below = (cut.scores_with({(info.name, parameter): one}) for one in moved)
            slope = (loss(above, labels) - loss(below, labels)) / (2 * STEP)
            along = float((found[info.name, parameter] * direction).sum())
            assert along == pytest.approx(slope, rel=5e-3, abs=3e-4), f"{info.name}.{parameter}"
            backend.set_weights(info.name, parameter, moved[0])
            np.testing.assert_allclose(backend.forward(inputs), above, rtol=1e-4, atol=2e-5, err_msg=info.name)
            backend.set_weights(info.name, parameter, values)


def test_gradients_behind_a_cut_are_those_of_full_passes(case: tuple[KerasBackend, Array]) -> None:
    backend, inputs = case
    loss = squared_probability_change(backend.forward(inputs)[:, ::-1])
    for info in backend.layers:
        weights = {
            (info.name, name): values * np.float32(0.8) for name, values in backend.get_weights(info.name).items()
        }
        found = backend.cut(inputs, [info.name]).weight_gradients(weights, loss)
        expected = PlainCut(backend, inputs, [info.name]).weight_gradients(weights, loss)
        assert set(found) == set(expected) == set(weights)
        for place, values in expected.items():
            np.testing.assert_allclose(found[place], values, rtol=1e-3, atol=1e-5, err_msg=str(place))


def test_whole_numbers_have_no_input_gradients() -> None:
    backend = KerasBackend.load(make_masked())
    for given in (tokens(), tokens().astype(np.float32)):
        with pytest.raises(UsageError, match="no gradient with respect to whole numbers"):
            backend.input_gradients(given, cross_entropy(np.zeros(4, int)))


def test_a_trace_shows_what_the_layers_do(case: tuple[KerasBackend, Array]) -> None:
    backend, inputs = case
    trace = backend.trace(inputs, [info.name for info in backend.layers])
    seed = numbers(*backend.forward(inputs).shape, seed=8)
    gradients = trace.output_gradients(seed)
    for info in backend.layers:
        weights, uses = backend.get_weights(info.name), trace.activations[info.name]
        assert len(uses) == info.uses
        for use, gradient in zip(uses, gradients[info.name], strict=True):
            assert gradient.shape == use.leaving.shape
            if info.kind == "dense":
                expected = use.entering["weight"] @ weights["weight"].T + weights["bias"]
                np.testing.assert_allclose(use.leaving, expected, rtol=1e-4, atol=2e-5, err_msg=info.name)
            if info.kind == "norm":
                shape = (1, -1, *(1,) * (use.leaving.ndim - 2)) if info.name in ("norm", "group") else (-1,)
                if use.leaving.shape[1] == len(weights["scale"]) or info.name == "rms":
                    expected = use.entering["scale"] * weights["scale"].reshape(shape)
                    expected = expected + weights["bias"].reshape(shape) if "bias" in weights else expected
                    np.testing.assert_allclose(use.leaving, expected, rtol=1e-4, atol=2e-5, err_msg=info.name)


def test_a_cut_continues_from_other_outputs_as_the_gradients_say(case: tuple[KerasBackend, Array]) -> None:
    backend, inputs = case
    seed = numbers(*backend.forward(inputs).shape, seed=8)
    for info in backend.layers:
        cut = backend.cut(inputs, [info.name])
        if not cut.continues_from_outputs:
            assert info.kind == "recurrent"
            continue
        outputs = cut.outputs()
        direction = numbers(*outputs.shape, seed=9)
        above, below = (cut.scores_from_outputs(outputs + step * direction) for step in (STEP, -STEP))
        slope = float(((above - below) / (2 * STEP) * seed).sum())
        along = float((backend.output_gradients(inputs, info.name, seed)[0] * direction).sum())
        assert along == pytest.approx(slope, rel=1e-2, abs=2e-3), info.name


def loss(scores: Array, labels: Array) -> float:
    exact = scores.astype(np.float64)
    exact -= exact.max(axis=1, keepdims=True)
    return float((np.log(np.exp(exact).sum(axis=1)) - exact[np.arange(len(labels)), labels]).mean())


def test_layers_inside_others_have_their_parents_names() -> None:
    assert [info.name for info in KerasBackend.load(attention()).layers] == [
        "attention/query",
        "attention/key",
        "attention/value",
        "attention/attention_output",
        "norm",
        "einsum",
        "head",
    ]
    inner = KerasBackend.load(make_nested())
    assert [(info.name, info.uses) for info in inner.layers] == [("inner/first", 2), ("inner/second", 2), ("head", 1)]


def test_attention_is_four_dense_maps() -> None:
    shapes = {info.name: info.parameters["weight"].shape for info in KerasBackend.load(attention()).layers[:4]}
    assert shapes == {
        "attention/query": (6, 6),
        "attention/key": (6, 6),
        "attention/value": (6, 6),
        "attention/attention_output": (6, 6),
    }
    layer = kl.MultiHeadAttention(2, 3, name="attention")
    given = keras.Input((4, 5))
    backend = KerasBackend.load(keras.Model(given, kl.Dense(3)(kl.Flatten()(layer(given, given)))))
    stored = keras.ops.convert_to_numpy(layer.query_dense.kernel.value)  # (in, heads, dim)
    weight = backend.get_weights("attention/query")["weight"]
    assert weight.shape == (6, 5)
    assert weight[1 * 3 + 2, 4] == stored[4, 1, 2]


def test_gates_are_in_canonical_order() -> None:
    model = sequential(keras.Input((5, 3)), kl.GRU(2, name="gru"), kl.Dense(3))
    weights = KerasBackend.load(model).get_weights("gru")
    kernel, _, biases = (keras.ops.convert_to_numpy(v.value) for v in model.get_layer("gru").trainable_variables)
    z, r, n = np.split(kernel.T, 3)
    np.testing.assert_array_equal(weights["weight_ih"], np.concatenate([r, z, n]))
    np.testing.assert_array_equal(weights["bias_hh"], biases[1][[2, 3, 0, 1, 4, 5]])


def test_padding_is_told_in_numbers() -> None:
    def geometry(length: int, **settings: Any) -> Geometry | None:
        return (
            KerasBackend.load(
                sequential(keras.Input((length, 1)), kl.Conv1D(1, name="conv", **settings), kl.Flatten(), kl.Dense(2))
            )
            .layers[0]
            .geometry
        )

    assert geometry(9, kernel_size=3, strides=2, padding="same") == Geometry((2,), ((1, 1),), (1,))
    assert geometry(8, kernel_size=3, strides=2, padding="same") == Geometry((2,), ((0, 1),), (1,))
    assert geometry(8, kernel_size=3, dilation_rate=2, padding="causal") == Geometry((1,), ((4, 0),), (2,))
    assert geometry(8, kernel_size=4, padding="valid") == Geometry((1,), ((0, 0),), (1,))


def test_what_follows_a_layer_is_told_only_where_it_is_what_its_name_says() -> None:
    def relu(x: Any) -> Any:
        return keras.ops.maximum(x, 0.5)

    def read_notes(*layers: Any, shape: tuple[int, ...] = (4,)) -> tuple[str, ...] | None:
        return KerasBackend.load(sequential(keras.Input(shape), *layers)).layers[0].followed_by

    head = kl.Dense(3, activation="softmax")
    assert read_notes(kl.Dense(5, activation="relu"), kl.Dropout(0.5), head) == ("relu",)
    assert read_notes(kl.Dense(5), kl.ReLU(), head) == ("relu",)
    assert read_notes(kl.Dense(5, activation=relu), head) is None
    assert read_notes(kl.Dense(5), kl.ReLU(max_value=1.0), head) is None
    assert read_notes(kl.Dense(5), kl.PReLU(), head) is None
    assert read_notes(kl.Dense(3, activation="softmax")) == ()
    assert read_notes(kl.Dense(1, activation="sigmoid")) is None
    pooled = kl.Conv2D(2, 3), kl.MaxPooling2D(2), kl.ZeroPadding2D(1), kl.Conv2D(2, 3), kl.Flatten(), kl.Dense(3)
    assert read_notes(*pooled, shape=(8, 8, 1)) == ("max_pool", "zero_pad")
    assert read_notes(kl.Conv2D(2, 3), kl.GlobalMaxPooling2D(), kl.Dense(3), shape=(8, 8, 1)) == ("global_max_pool",)


class Residual(keras.Model):  # type: ignore[misc]  # Keras is untyped
    """A model with a `call` of its own; its layers are made in another order than they are used in."""

    def __init__(self) -> None:
        super().__init__()
        self.last = kl.Dense(3, activation="softmax", name="last")
        self.first = kl.Dense(4, activation="tanh", name="first")
        self.second = kl.Dense(4, name="second")

    def call(self, inputs: Any) -> Any:
        hidden = self.first(inputs)
        return self.last(hidden + self.second(self.second(hidden)))


def test_a_subclassed_model_is_run_as_a_whole() -> None:
    model, inputs = Residual(), numbers(5, 4)
    probabilities = keras.ops.convert_to_numpy(model(inputs))
    backend = KerasBackend.load(model)
    assert [(info.name, info.uses) for info in backend.layers] == [("first", 1), ("second", 2), ("last", 1)]
    assert backend.score_kind == "logits"
    scores = backend.forward(inputs)
    np.testing.assert_allclose(np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), probabilities, atol=1e-6)
    cut = backend.cut(inputs, ["second"])
    assert cut.outputs().shape == (5, 4)
    np.testing.assert_allclose(cut.scores_from_outputs(cut.outputs()), scores, atol=1e-6)
    weight = backend.get_weights("second")["weight"] + 0.5
    changed = cut.scores_with({("second", "weight"): weight})
    backend.set_weights("second", "weight", weight)
    np.testing.assert_allclose(backend.forward(inputs), changed, atol=1e-5)


def test_probabilities_made_in_another_way_become_log_probabilities() -> None:
    given = keras.Input((4,))
    votes = [kl.Dense(3, activation="softmax", name=name)(given) for name in ("one", "two")]
    backend = KerasBackend.load(keras.Model(given, kl.Average()(votes)))
    assert backend.score_kind == "log-probabilities"
    inputs = numbers(5, 4)
    np.testing.assert_allclose(
        np.exp(backend.forward(inputs)), keras.ops.convert_to_numpy(backend.native(inputs)), atol=1e-6
    )


def test_a_fixed_batch_size_is_filled_up_and_has_no_say() -> None:
    layers = [kl.Dense(5, activation="tanh", name="hidden"), kl.Dense(3, activation="softmax", name="head")]
    free, fixed = (
        keras.Sequential([keras.Input((4,)), *layers]),
        keras.Sequential([keras.Input(batch_shape=(4, 4)), *layers]),
    )
    inputs, labels = numbers(6, 4), np.array([0, 1, 2, 0, 1, 2])
    one, other = KerasBackend.load(free), KerasBackend.load(fixed)
    np.testing.assert_allclose(other.forward(inputs), one.forward(inputs), atol=1e-6)
    for layer in ("hidden", "head"):
        np.testing.assert_allclose(
            other.weight_gradients(inputs, cross_entropy(labels))[layer, "weight"],
            one.weight_gradients(inputs, cross_entropy(labels))[layer, "weight"],
            atol=1e-6,
        )
        np.testing.assert_allclose(
            other.activations(inputs, layer)[0].leaving, one.activations(inputs, layer)[0].leaving, atol=1e-6
        )
    np.testing.assert_allclose(other.cut(inputs, ["head"]).scores_with({}), one.forward(inputs), atol=1e-6)


def test_one_of_several_outputs_is_named() -> None:
    given = keras.Input((4,))
    model = keras.Model(given, {"kind": kl.Dense(3, name="a")(given), "place": kl.Dense(2, name="b")(given)})
    assert KerasBackend.load(model, output="place").forward(numbers(2, 4)).shape == (2, 2)
    with pytest.raises(ModelError, match="kind, place"):
        KerasBackend.load(model)
    with pytest.raises(UsageError, match="did you mean 'place'"):
        KerasBackend.load(model, output="plaice")


@pytest.mark.parametrize(
    ("shape", "activation"), [((3,), "sigmoid"), ((1,), None), ((2, 3), None), ((2, 3), "softmax"), ((2, 3), "sigmoid")]
)
def test_outputs_of_any_shape_are_handed_on_for_a_task_to_read(shape: tuple[int, ...], activation: str | None) -> None:
    given = keras.Input((4,))
    output = kl.Reshape(shape)(kl.Dense(int(np.prod(shape)))(given))
    model = keras.Model(given, output if activation is None else kl.Activation(activation)(output))
    backend, x = KerasBackend.load(model), numbers(5, 4)
    outputs = backend.forward(x)
    assert outputs.shape == (5, *shape)
    assert backend.separate_outputs is (activation == "sigmoid")
    ended = {
        "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
        "softmax": lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True),
    }
    again = ended[activation](outputs) if activation else outputs
    np.testing.assert_allclose(again, np.asarray(model(x)), atol=1e-6)


def test_a_state_kept_between_batches_is_refused() -> None:
    model = keras.Sequential([keras.Input(batch_shape=(2, 3, 4)), kl.LSTM(3, stateful=True), kl.Dense(3)])
    with pytest.raises(ModelError, match="stateful"):
        KerasBackend.load(model)


def test_a_model_that_was_never_called_is_refused() -> None:
    with pytest.raises(ModelError, match="call it on some data first"):
        KerasBackend.load(Residual())


def test_a_weight_that_is_not_finite_is_refused() -> None:
    model = sequential(keras.Input((4,)), kl.Dense(3, name="head"))
    model.get_layer("head").kernel.assign(np.full((4, 3), np.nan, np.float32))
    with pytest.raises(ModelError, match="not finite"):
        KerasBackend.load(model)


def test_inputs_that_do_not_fit_are_a_sentence() -> None:
    backend = KerasBackend.load(sequential(keras.Input((4,)), kl.Dense(3)))
    with pytest.raises(DataError, match=r"shape \(n, 4\), got \(2, 5\)"):
        backend.forward(numbers(2, 5))


def test_weights_that_cannot_be_repaired_are_told() -> None:
    class Doubled(kl.Dense):  # type: ignore[misc]  # Keras is untyped
        def call(self, inputs: Any, training: bool | None = None) -> Any:
            return 2 * super().call(inputs)

    given = keras.Input((4,))
    path = kl.PReLU(name="bent")(kl.Dense(6, name="hidden")(given))
    path = Doubled(5, use_bias=False, name="doubled")(path)
    path = kl.Reshape((5, 1))(path)
    path = kl.EinsumDense("bse,se->bs", 5, name="each")(path)
    model = keras.Model(given, [kl.Dense(3, name="head")(path), kl.Dense(2, name="other")(path)])
    backend = KerasBackend.load(model, output="head")
    assert [info.name for info in backend.layers] == ["hidden", "head"]
    assert backend.unreachable == {
        "bent/alpha": "it is used by 'PReLU', which is no layer Arachne knows",
        "doubled/kernel": "its layer 'Doubled' has a call of its own, so what it does with the weight is not known",
        "each/kernel": "its 'EinsumDense' is of a form that Arachne does not know",
        "other/kernel": "the scores do not depend on it",
        "other/bias": "the scores do not depend on it",
    }
    assert backend.describe().notes == ()


def test_adapted_and_quantised_layers_are_told_as_such() -> None:
    model = sequential(
        keras.Input((4,)), kl.Dense(5, name="adapted"), kl.Dense(5, name="small"), kl.Dense(3, name="head")
    )
    model.get_layer("adapted").enable_lora(2)
    model.get_layer("small").quantize("int8")
    reasons = KerasBackend.load(model).unreachable
    assert {name.partition("/")[0] for name in reasons} == {"adapted", "small"}
    assert "LoRA" in reasons["adapted/lora_kernel_a"]
    assert "quantise after the repair" in reasons["small/bias"]


def test_candidates_are_never_traced_again() -> None:
    backend = KerasBackend.load(sequential(keras.Input((4,)), kl.Dense(5, name="hidden"), kl.Dense(3, name="head")))
    calls = []
    layer = backend.native.get_layer("head")

    def count_calls(inputs: Any, training: bool | None = None) -> Any:
        calls.append(1)
        return type(layer).call(layer, inputs)

    layer.call = count_calls
    cut = backend.cut(numbers(50, 4), ["head"])
    weight = backend.get_weights("head")["weight"]
    for candidate in range(20):
        cut.scores_with({("head", "weight"): weight + candidate}, np.arange(candidate + 1))
    compiled = keras.backend.backend() == "tensorflow"
    assert len(calls) == (1 if compiled else 20)


def test_a_keras_model_that_runs_on_torch_is_still_a_keras_model() -> None:
    class Module:
        pass

    Module.__module__ = "torch.nn.modules.module"
    layer = type("Layer", (Module,), {"__module__": "keras.src.layers.layer"})
    mine = type("Mine", (layer,), {"__module__": "my.models"})
    assert registry._for_object(mine()) == "keras"
    assert registry._for_object(type("Net", (Module,), {"__module__": "my.models"})()) == "torch"


def test_a_candidate_neither_sets_weights_nor_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = kl.Dense(100, activation="relu", name="hidden")
    model = keras.Sequential([keras.Input((784,)), hidden, kl.Dense(10, activation="softmax", name="head")])
    backend, inputs = KerasBackend.load(model), numbers(50, 784)
    for layer in ("hidden", "head"):
        cut, weight = backend.cut(inputs, [layer]), backend.get_weights(layer)["weight"]
        before = [variable.numpy() for variable in model.variables]
        with monkeypatch.context() as patched:
            for name in ("set_weights", "predict", "call"):  # what costs twenty times as much: benchmarks/keras.py
                patched.setattr(model, name, partial(pytest.fail, f"{name} was called"))
            scores = cut.scores_with({(layer, "weight"): 2 * weight})
        assert all(np.array_equal(a, b.numpy()) for a, b in zip(before, model.variables, strict=True))
        backend.set_weights(layer, "weight", 2 * weight)
        np.testing.assert_allclose(scores, backend.forward(inputs), atol=1e-4)
        backend.set_weights(layer, "weight", weight)
