"""The PyTorch adapter on modules: hand-made numbers, finite differences, and the user's model left as it was."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from arachne.decisions.losses import cross_entropy
from arachne.errors import DataError, ModelError, UnknownLayerError, UsageError, WeightShapeError
from arachne.model.values import Array, Geometry
from arachne_torch import TorchBackend

torch.set_num_threads(1)


def inputs_of(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(fc1=nn.Linear(4, 5), act=nn.ReLU(inplace=True), drop=nn.Dropout(0.5), fc2=nn.Linear(5, 3))
    )


class Branches(nn.Module):
    """Convolutions of several geometries, a norm, a skip, a shared layer, and a softmax at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 6)
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=(1, 0), groups=2)
        self.same = nn.Conv2d(4, 4, (2, 3), padding="same", padding_mode="circular", dilation=(1, 2))
        self.norm = nn.BatchNorm2d(4)
        self.depthwise = nn.Conv2d(4, 8, 2, groups=4)
        self.shared = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = x + torch.relu_(self.norm(self.same(x)))
        x = self.shared(functional.max_pool2d(self.depthwise(x), 2).mean((2, 3)))
        return torch.softmax(self.head(x) + self.head(x.tanh()), dim=-1)


def branches() -> nn.Module:
    torch.manual_seed(1)
    model = Branches()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                module.running_mean.normal_()
                module.weight.uniform_(0.5, 2)
    return model.double()


class Answering(nn.Module):
    """A linear model whose answer is wrapped in some way."""

    def __init__(self, answer: Any, out: int = 3) -> None:
        super().__init__()
        self.fc = nn.Linear(4, out)
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(self.fc(x))


def test_a_dense_network_gives_the_numbers_worked_out_by_hand() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    backend = TorchBackend.load(model)
    backend.set_weights("0", "weight", np.array([[1.0, -1.0], [2.0, 0.0]]))
    backend.set_weights("0", "bias", np.array([0.0, 1.0]))
    backend.set_weights("2", "weight", np.array([[1.0, 2.0], [0.0, -1.0]]))
    backend.set_weights("2", "bias", np.array([0.5, 0.0]))
    x = np.array([[1.0, 2.0]], dtype=np.float32)
    (first,) = backend.activations(x, "0")
    np.testing.assert_array_equal(first.entering["weight"], [[1, 2]])
    np.testing.assert_array_equal(first.leaving, [[-1, 3]])
    np.testing.assert_array_equal(backend.forward(x), [[6.5, -3]])
    (gradient,) = backend.output_gradients(x, "0", np.array([[1.0, 1.0]]))
    np.testing.assert_array_equal(gradient, [[0, 1]])


def test_layers_come_in_order_of_execution_with_their_uses_and_geometry() -> None:
    backend = TorchBackend.load(branches())
    assert backend.layers[0].name == "head"
    backend.forward(inputs_of(3, 2, 9, 8))
    layers = {info.name: info for info in backend.layers}
    assert list(layers) == ["conv", "same", "norm", "depthwise", "shared", "head"]
    assert [info.kind for info in layers.values()] == ["conv", "conv", "norm", "conv", "dense", "dense"]
    assert layers["head"].uses == 2
    assert layers["conv"].geometry == Geometry((2, 2), ((1, 1), (0, 0)), (1, 1), 2)
    assert layers["same"].geometry == Geometry((1, 1), ((0, 0), (0, 0)), (1, 2), 1)
    assert layers["depthwise"].parameters["weight"].shape == (8, 1, 2, 2)
    assert layers["norm"].parameters["scale"].dtype == "float64"
    assert layers["shared"].followed_by is None
    assert layers["depthwise"].followed_by == ("max_pool", "global_average_pool")


class Between(nn.Module):
    """Something between a convolution and a dense layer."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.fc = nn.LazyLinear(3)
        self.between = between

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.between(self.conv(x)))


@pytest.mark.parametrize(
    ("between", "words"),
    [
        (nn.Sequential(nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()), ("relu", "max_pool", "flatten")),
        (nn.Sequential(nn.AvgPool2d(2), nn.Dropout(0.5), nn.Flatten()), ("average_pool", "flatten")),
        (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), ("global_average_pool", "flatten")),
        (nn.Sequential(nn.AdaptiveMaxPool2d(2), nn.Flatten()), ("max_pool", "flatten")),
        (lambda x: x.tanh().mean((2, 3)), ("tanh", "global_average_pool")),
        (lambda x: x.sigmoid().amax(dim=(-1, -2)), ("sigmoid", "global_max_pool")),
        (lambda x: x.mean(1).flatten(1), None),
        (lambda x: functional.silu(x).view(len(x), -1), ("silu", "flatten")),
        (lambda x: x.view(len(x), 2, 36).amax(1), None),
        (nn.Sequential(nn.ZeroPad2d(1), nn.Flatten()), ("zero_pad", "flatten")),
        (lambda x: functional.pad(x, (1, 1), value=2.0).flatten(1), None),
        (lambda x: functional.pad(x, (1, 1, 1, 1), "circular").flatten(1), None),
        (nn.Sequential(nn.GELU(), nn.Flatten()), ("gelu", "flatten")),
        (nn.Sequential(nn.GELU("tanh"), nn.Flatten()), None),
        (nn.Sequential(nn.ELU(), nn.Flatten()), ("elu", "flatten")),
        (nn.Sequential(nn.ELU(0.5), nn.Flatten()), None),
        (nn.Sequential(nn.Softplus(), nn.Flatten()), ("softplus", "flatten")),
        (nn.Sequential(nn.Softplus(2), nn.Flatten()), None),
        (nn.Sequential(nn.ReLU6(), nn.Hardtanh(0, 6), nn.Flatten()), ("relu6", "relu6", "flatten")),
        (nn.Sequential(nn.Hardtanh(), nn.Flatten()), None),
        (nn.Sequential(nn.LeakyReLU(), nn.Flatten()), None),
        (nn.Sequential(nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten()), None),
        (lambda x: functional.max_pool2d(x, 2, return_indices=True)[0].flatten(1), None),
    ],
)
def test_what_follows_a_layer_is_told_only_where_the_word_says_all(between: Any, words: Any) -> None:
    model, x = Between(between).eval(), inputs_of(3, 1, 8, 8)
    model(torch.from_numpy(x))
    backend = TorchBackend.load(model)
    backend.forward(x)
    assert backend.info("conv").followed_by == words
    assert backend.info("fc").followed_by == ()


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_an_even_kernel_padded_to_the_same_size_is_padded_more_behind() -> None:
    backend = TorchBackend.load(nn.Sequential(nn.Conv1d(1, 2, 4, padding="same"), nn.Flatten(), nn.Linear(10, 2)))
    backend.forward(inputs_of(2, 1, 5))
    assert backend.info("0").geometry == Geometry((1,), ((1, 2),), (1,), 1)


def test_what_enters_a_layer_and_its_weights_give_what_leaves_it() -> None:
    model = branches()
    backend = TorchBackend.load(model)
    x = inputs_of(3, 2, 9, 8)
    for name in ("conv", "same", "depthwise"):
        (one,) = backend.activations(x, name)
        weights, geometry = backend.get_weights(name), backend.info(name).geometry
        assert geometry is not None
        pads = [pad for pair in reversed(geometry.padding) for pad in pair]
        again = functional.conv2d(
            functional.pad(torch.from_numpy(one.entering["weight"]), pads),
            torch.from_numpy(weights["weight"]),
            torch.from_numpy(weights["bias"]),
            stride=geometry.stride,
            dilation=geometry.dilation,
            groups=geometry.groups,
        )
        np.testing.assert_allclose(again.numpy(), one.leaving, atol=1e-12)
    (norm,) = backend.activations(x, "norm")
    scale, bias = (backend.get_weights("norm")[name][:, None, None] for name in ("scale", "bias"))
    np.testing.assert_allclose(norm.entering["scale"] * scale + bias, norm.leaving, atol=1e-12)
    assert len(backend.activations(x, "head")) == 2


def test_weight_gradients_agree_with_finite_differences_in_every_parameter() -> None:
    model = branches().eval()
    backend = TorchBackend.load(model)
    x, labels = inputs_of(5, 2, 9, 8), np.array([0, 1, 2, 3, 5])

    def loss() -> float:
        with torch.no_grad():
            probabilities = model(torch.from_numpy(x).double()).numpy()
        return float(-np.log(probabilities[np.arange(5), labels]).mean())

    gradients = backend.weight_gradients(x, cross_entropy(labels))
    assert list(gradients) == backend.resolve_parameters(None)
    for (layer, name), gradient in gradients.items():
        values = dict(backend.get_weights(layer))[name]
        index = np.unravel_index(np.argmax(np.abs(gradient)), gradient.shape)
        sides = []
        for step in (1e-5, -1e-5):
            changed = values.copy()
            changed[index] += step
            backend.set_weights(layer, name, changed)
            sides.append(loss())
        backend.set_weights(layer, name, values)
        assert gradient[index] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-5, abs=1e-9)


def test_gradients_add_up_over_batches() -> None:
    backend = TorchBackend.load(mlp())
    x, labels = inputs_of(10, 4), np.arange(10) % 3
    whole = backend.weight_gradients(x, cross_entropy(labels))
    seed = np.eye(3)[labels]
    product = backend.output_gradients(x, "fc1", seed)
    backend._runner.rows = 3
    np.testing.assert_allclose(
        backend.weight_gradients(x, cross_entropy(labels))["fc1", "weight"], whole["fc1", "weight"], atol=1e-6
    )
    np.testing.assert_allclose(backend.output_gradients(x, "fc1", seed)[0], product[0], atol=1e-6)
    np.testing.assert_allclose(backend.trace(x, ["fc1"]).output_gradients(seed)["fc1"][0], product[0], atol=1e-6)


def test_a_trace_answers_as_the_single_operations_do() -> None:
    backend = TorchBackend.load(branches())
    x = inputs_of(4, 2, 9, 8)
    names = ["conv", "norm", "head"]
    trace = backend.trace(x, names)
    for seed in (np.ones((4, 6)), np.eye(6)[:4]):
        products = trace.output_gradients(seed)
        for name in names:
            for ours, single in zip(products[name], backend.output_gradients(x, name, seed), strict=True):
                np.testing.assert_allclose(ours, single, atol=1e-12)
    for name in names:
        for seen, lone in zip(trace.activations[name], backend.activations(x, name), strict=True):
            np.testing.assert_array_equal(seen.leaving, lone.leaving)


def test_the_users_module_is_left_as_it_was() -> None:
    model = mlp()
    model[2].eval()  # type: ignore[index]  # one part in another mode than the rest
    model[0].weight.requires_grad_(False)  # type: ignore[index]
    model(torch.ones(2, 4)).sum().backward()
    kept = {name: (p.requires_grad, None if p.grad is None else p.grad.clone()) for name, p in model.named_parameters()}
    flags = [part.training for part in model.modules()]
    state = torch.get_rng_state()
    backend = TorchBackend.load(model)
    x = inputs_of(6, 4)
    backend.weight_gradients(x, cross_entropy(np.zeros(6, dtype=int)))
    backend.trace(x, ["fc1", "fc2"]).output_gradients(np.ones((6, 3)))
    backend.cut(x, ["fc2"]).scores_with({})
    with pytest.raises(DataError):
        backend.forward(inputs_of(6, 5))
    assert [part.training for part in model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), state)
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, nn.Parameter)
        assert parameter.requires_grad == kept[name][0]
        grad = kept[name][1]
        assert parameter.grad is None or (grad is not None and torch.equal(parameter.grad, grad))
        assert (parameter.grad is None) == (grad is None)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_weights_are_copied_out_and_in() -> None:
    backend = TorchBackend.load(mlp())
    taken = dict(backend.get_weights("fc1"))
    taken["weight"][:] = 7
    assert not np.any(backend.get_weights("fc1")["weight"] == 7)
    backend.set_weights("fc1", "weight", taken["weight"])
    taken["weight"][:] = 8
    assert np.all(backend.get_weights("fc1")["weight"] == 7)


def test_wrong_names_and_shapes_are_refused_in_one_sentence() -> None:
    backend = TorchBackend.load(mlp())
    with pytest.raises(UnknownLayerError, match="no layer 'fc3'; did you mean"):
        backend.get_weights("fc3")
    with pytest.raises(UnknownLayerError, match="no parameter 'wait'"):
        backend.set_weights("fc1", "wait", np.zeros((5, 4)))
    with pytest.raises(WeightShapeError, match=r"shape \(5, 4\), got values of shape \(4, 5\)"):
        backend.set_weights("fc1", "weight", np.zeros((4, 5)))
    with pytest.raises(DataError, match=r"does not take inputs of shape \(2, 5\)"):
        backend.forward(inputs_of(2, 5))
    with pytest.raises(DataError, match="labels should lie between 0 and 2"):
        backend.weight_gradients(inputs_of(2, 4), cross_entropy(np.array([0, 3])))


def test_functional_code_and_shared_weights_are_layers_too() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(4, 3))
            self.first = nn.Linear(3, 3)
            self.tied = nn.Linear(3, 3)
            self.tied.weight = self.first.weight

        def forward(self, x: Tensor) -> Any:
            return self.tied(torch.relu(self.first(x @ self.kernel)))

    backend = TorchBackend.load(Functional())
    x = inputs_of(3, 4)
    backend.forward(x)
    assert [(info.name, info.uses) for info in backend.layers] == [("kernel", 1), ("first", 2)]
    weight = backend.get_weights("kernel")["weight"]
    assert weight.shape == (3, 4)
    (one,) = backend.activations(x, "kernel")
    np.testing.assert_allclose(one.entering["weight"] @ weight.T, one.leaving, atol=1e-6)
    assert backend.weight_gradients(x, cross_entropy(np.zeros(3, dtype=int)))["kernel", "weight"].shape == (3, 4)


@pytest.mark.parametrize(
    "answer",
    [
        lambda z: {"features": z * 2, "logits": z},
        lambda z: SimpleNamespace(logits=z, loss=z.sum()),
        lambda z: (z,),
        lambda z: z.softmax(1),
        lambda z: functional.log_softmax(z, dim=-1),
        lambda z: {"only": torch.softmax(z, -1)},
    ],
)
def test_logits_are_found_in_what_the_model_answers(answer: Any) -> None:
    model = Answering(answer)
    backend = TorchBackend.load(model)
    x = inputs_of(5, 4)
    with torch.no_grad():
        expected = model.fc(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(backend.forward(x), expected, atol=1e-6)
    assert backend.score_kind == "logits"


def test_one_of_several_outputs_is_chosen_by_name_or_position() -> None:
    model = Answering(lambda z: (z, -z))
    x = inputs_of(5, 4)
    with pytest.raises(ModelError, match="2 outputs, name one with --output or output=: 0, 1"):
        TorchBackend.load(model).forward(x)
    first, second = (TorchBackend.load(model, output=name).forward(x) for name in ("0", "1"))
    np.testing.assert_array_equal(first, -second)
    with pytest.raises(UsageError, match="no output '2'"):
        TorchBackend.load(model, output="2").forward(x)


def test_probabilities_made_by_hand_become_log_probabilities() -> None:
    model = Answering(lambda z: z.exp() / z.exp().sum(1, keepdim=True))
    backend = TorchBackend.load(model)
    x = inputs_of(5, 4)
    np.testing.assert_allclose(np.exp(backend.forward(x)).sum(1), 1, atol=1e-6)
    assert backend.score_kind == "log-probabilities"
    assert backend.describe().scores == "log-probabilities"
    loss = cross_entropy(np.zeros(5, dtype=int), score_kind=backend.score_kind)
    gradient = backend.weight_gradients(x, loss)["fc", "weight"]
    plain = TorchBackend.load(Answering(lambda z: z))
    for parameter in ("weight", "bias"):
        plain.set_weights("fc", parameter, backend.get_weights("fc")[parameter])
    expected = plain.weight_gradients(x, cross_entropy(np.zeros(5, dtype=int)))["fc", "weight"]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


@pytest.mark.parametrize("answer", [torch.sigmoid, lambda z: z.squeeze(1).sigmoid(), lambda z: z.sigmoid().squeeze(1)])
def test_one_sigmoid_output_is_two_classes(answer: Any) -> None:
    model = Answering(answer, out=1)
    scores = TorchBackend.load(model).forward(inputs_of(5, 4))
    assert scores.shape == (5, 2)
    assert np.all(scores[:, 0] == 0)


@pytest.mark.parametrize(
    ("answer", "out", "sentence"),
    [
        (lambda z: z.sum(), 3, "not one row of numbers for each input"),
        (lambda z: "text", 3, "expected a tensor"),
    ],
)
def test_a_model_that_gives_no_class_scores_is_refused(answer: Any, out: int, sentence: str) -> None:
    backend = TorchBackend.load(Answering(answer, out))
    with pytest.raises(ModelError, match=sentence):
        backend.forward(inputs_of(5, 4))


@pytest.mark.parametrize(
    ("answer", "out", "separate"),
    [
        (lambda z: z, 1, False),
        (lambda z: z.squeeze(1), 1, False),
        (lambda z: z[:, :, None], 3, False),
        (lambda z: z.reshape(-1, 2, 3), 6, False),
        (torch.sigmoid, 3, True),
        (lambda z: z.reshape(-1, 2, 3, 1).sigmoid(), 6, True),
        (lambda z: z.reshape(-1, 2, 3).softmax(-1), 6, False),
    ],
)
def test_outputs_of_any_shape_are_handed_on_for_a_task_to_read(answer: Any, out: int, separate: bool) -> None:
    model, x = Answering(answer, out), inputs_of(5, 4)
    backend = TorchBackend.load(model)
    outputs = backend.forward(x)
    with torch.no_grad():
        given = model(torch.tensor(x)).numpy()
    behind = 1 / (1 + np.exp(-outputs)) if separate else outputs
    if given.ndim == 3 and given.shape[2] > 1 and np.allclose(given.sum(-1), 1):
        behind = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    np.testing.assert_allclose(behind, given, atol=1e-6)
    assert backend.separate_outputs is separate


def test_weights_that_are_not_finite_are_refused_by_layer() -> None:
    model = mlp()
    with torch.no_grad():
        model[3].bias[1] = float("nan")  # type: ignore[index]
    with pytest.raises(ModelError, match="layer 'fc2' has weights that are not finite"):
        TorchBackend.load(model)


def test_mappings_are_keyword_arguments_and_bytes_become_floats() -> None:
    class TwoInputs(nn.Module):
        classes = ("cat", "dog")

        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 4)
            self.fc = nn.Linear(4, 2)

        def forward(self, ids: Tensor, picture: Tensor) -> Any:
            assert picture.dtype == torch.float32
            return self.fc(self.words(ids).mean(1) + picture)

    backend = TorchBackend.load(TwoInputs())
    inputs: dict[str, Array] = {
        "ids": np.arange(6, dtype=np.int32).reshape(3, 2),
        "picture": np.full((3, 4), 200, dtype=np.uint8),
    }
    assert backend.forward(inputs).shape == (3, 2)
    assert backend.class_names == ("cat", "dog")
    with pytest.raises(DataError, match="ids"):
        backend.forward({"ids": inputs["ids"]})


def test_half_precision_crosses_as_float32_and_is_rounded_on_the_way_in() -> None:
    backend = TorchBackend.load(mlp().to(torch.bfloat16))
    assert backend.info("fc1").parameters["weight"].dtype == "bfloat16"
    values = backend.get_weights("fc1")["weight"]
    assert values.dtype == np.float32
    backend.set_weights("fc1", "weight", values + 1e-5)
    np.testing.assert_array_equal(
        backend.get_weights("fc1")["weight"], torch.from_numpy(values + 1e-5).bfloat16().float()
    )
    x = inputs_of(3, 4)
    assert backend.forward(x).dtype == np.float32
    assert backend.weight_gradients(x, cross_entropy(np.zeros(3, dtype=int)))["fc1", "weight"].dtype == np.float32


def test_no_inputs_give_no_scores() -> None:
    assert TorchBackend.load(mlp()).forward(inputs_of(0, 4)).shape == (0, 3)


def test_a_script_or_a_model_without_layers_is_refused() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.shift

    with pytest.raises(ModelError, match="no layer that can be repaired"):
        TorchBackend.load(Bare()).forward(inputs_of(2, 4))
    with pytest.raises(ModelError, match="no floating-point weights"):
        TorchBackend.load(nn.ReLU())


def test_a_lazy_model_is_asked_to_be_run_first() -> None:
    with pytest.raises(ModelError, match="layer '0' has no weights yet"):
        TorchBackend.load(nn.Sequential(nn.LazyLinear(3)))
