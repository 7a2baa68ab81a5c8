"""The reference network is the arbiter, so its gradients are held against differences in double precision."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from arachne.decisions.losses import cross_entropy
from arachne.errors import DataError, ModelError
from arachne.testing import Network, ReferenceBackend, branches, convnet, mlp, random_inputs, residual
from arachne.testing.checks.specimens import SPECIMENS
from arachne.testing.checks.suite import as_outputs, mean_cross_entropy, two_classes
from arachne.testing.networks import conv, dense
from arachne.testing.nodes import Add, AveragePool, Dense, Flatten, MaxPool, Relu, Reuse, Sigmoid, Softmax, Tanh
from arachne.testing.reference_cut import ReferenceCut


def uneven() -> Network:
    """Padding that differs before and after, windows that overlap, a value that leads nowhere."""
    rng = np.random.default_rng(0)
    nodes = (
        conv("conv", "input", 4, 6, (3, 2), rng, stride=(2, 1), padding=((1, 0), (0, 2)), dilation=(1, 2), groups=2),
        Tanh("act", "conv"),
        AveragePool("mean", "act", (2, 3), (1, 2)),
        MaxPool("max", "mean", (2, 2), (1, 1)),
        dense("nowhere", "act", 8, 2, rng),
        Flatten("flatten", "max"),
        dense("fc", "flatten", 24, 3, rng),
        Softmax("inner", "fc"),
        dense("scores", "inner", 3, 3, rng),
    )
    return Network({"input": (4, 9, 8)}, nodes)


NETWORKS: dict[str, Callable[[], Network]] = {**SPECIMENS, "uneven": uneven}


@pytest.mark.parametrize("name", NETWORKS)
def test_weight_gradients_are_exact_to_seven_digits(name: str) -> None:
    network, step = NETWORKS[name](), 1e-6
    backend = ReferenceBackend(network, dtype="float64", batch_size=3)
    inputs, labels = random_inputs(network, 7), np.array([0, 1, 2, 0, 1, 2, 0])
    labels = labels % max(2, backend.forward(inputs).shape[1])
    gradients = backend.weight_gradients(inputs, as_outputs(cross_entropy(labels)))
    rng = np.random.default_rng(1)
    for info in backend.layers:
        for parameter in info.parameters:
            values = backend.get_weights(info.name)[parameter]
            index = tuple(rng.integers(0, length) for length in values.shape)
            losses = []
            for change in (step, -step):
                changed = values.copy()
                changed[index] += change
                backend.set_weights(info.name, parameter, changed)
                losses.append(mean_cross_entropy(two_classes(backend.forward(inputs)), labels))
            backend.set_weights(info.name, parameter, values)
            slope = (losses[0] - losses[1]) / (2 * step)
            assert gradients[info.name, parameter][index] == pytest.approx(slope, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_output_gradients_are_exact_to_seven_digits(name: str) -> None:
    network, step = NETWORKS[name](), 1e-6
    backend = ReferenceBackend(network, dtype="float64", batch_size=3)
    inputs = random_inputs(network, 7)
    rng = np.random.default_rng(2)
    seed = rng.normal(size=backend.forward(inputs).shape)
    for info in backend.layers:
        cut = backend.cut(inputs, [info.name])
        if not cut.continues_from_outputs:
            continue  # see the next test
        outputs = cut.outputs()
        direction = rng.normal(size=outputs.shape)
        above, below = (cut.scores_from_outputs(outputs + change * direction) for change in (step, -step))
        slope = ((above - below) / (2 * step) * seed).sum()
        along = (backend.output_gradients(inputs, info.name, seed)[0] * direction).sum()
        assert along == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ["lstm", "lstm_two_biases", "gru"])
def test_gradients_at_the_gates_of_a_recurrent_layer_are_exact_to_seven_digits(name: str) -> None:
    network, step = NETWORKS[name](), 1e-6
    backend = ReferenceBackend(network, dtype="float64", batch_size=3)
    inputs, layer = random_inputs(network, 7), "read.l0"
    rng = np.random.default_rng(2)
    seed = rng.normal(size=(7, 3))
    weight = backend.get_weights(layer)["weight_ih"]
    direction = rng.normal(size=weight.shape)
    scores = []
    for change in (step, -step):
        backend.set_weights(layer, "weight_ih", weight + change * direction)
        scores.append(backend.forward(inputs))
    backend.set_weights(layer, "weight_ih", weight)
    slope = ((scores[0] - scores[1]) / (2 * step) * seed).sum()
    # A change of weight_ih moves the gates of every step by the change times what enters there.
    moved = backend.activations(inputs, layer)[0].entering["weight_ih"] @ direction.T
    along = (backend.output_gradients(inputs, layer, seed)[0] * moved).sum()
    assert along == pytest.approx(slope, rel=1e-6)


def test_a_cut_at_a_recurrent_layer_says_that_it_does_not_continue_from_gates() -> None:
    network = NETWORKS["lstm"]()
    cut = ReferenceBackend(network).cut(random_inputs(network, 2), ["read.l0"])
    assert cut.outputs().shape == (2, 3, 16)
    assert not cut.continues_from_outputs
    with pytest.raises(NotImplementedError, match=r"cannot continue from the outputs of layer 'read.l0'"):
        cut.scores_from_outputs(cut.outputs())


def test_the_spec_is_never_changed() -> None:
    network = mlp([4, 5, 3])
    before = network.layers["fc1"].parameters["weight"].copy()
    backend = ReferenceBackend(network)
    backend.set_weights("fc1", "weight", before + 1)
    np.testing.assert_array_equal(network.layers["fc1"].parameters["weight"], before)


def test_the_same_seed_makes_the_same_network() -> None:
    inputs = random_inputs(mlp([4, 5, 3]), 3)
    scores = [ReferenceBackend(mlp([4, 5, 3], seed=seed)).forward(inputs) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2])


def test_layers_tell_what_follows_them() -> None:
    told = {info.name: info.followed_by for info in ReferenceBackend(convnet()).layers}
    assert told == {"conv1": ("relu", "max_pool"), "conv2": ("relu", "flatten"), "fc1": ("relu",), "fc2": ()}
    told = {info.name: info.followed_by for info in ReferenceBackend(residual()).layers}
    assert told == {"stem": None, "inner1": ("relu",), "inner2": None, "head": ()}


def test_a_cut_computes_only_what_depends_on_the_touched_layers() -> None:
    network = branches()
    cut = ReferenceBackend(network).cut(random_inputs(network, 5), ["left"])
    assert isinstance(cut, ReferenceCut)
    assert set(cut._kept) == {"act1", "act3"}  # what enters 'left', and all that 'right' has to say


def test_scores_are_found_behind_a_softmax_and_a_single_sigmoid() -> None:
    x = np.array([[1.0, 10.0]], np.float32)
    weight = np.array([[1, 2], [3, 4]], np.float32)
    ending = ReferenceBackend(Network({"input": (2,)}, (Dense("d", "input", weight), Softmax("p", "d"))))
    assert ending.forward(x).tolist() == [[21, 43]]
    ending = ReferenceBackend(Network({"input": (2,)}, (Dense("d", "input", weight[:1]), Sigmoid("p", "d"))))
    assert ending.forward(x).tolist() == [[0, 21]]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((), "a network needs at least one node"),
        ((Relu("a", "nothing"),), "node 'a' takes 'nothing', which nothing before it computes"),
        ((Relu("a", "input"), Relu("a", "input")), "two values of the network are called 'a'"),
        ((Relu("a", "input"), Reuse("b", "a", "a")), "node 'b' reuses 'a', which is no layer before it"),
        ((Add("a", ("input", "b")), Relu("b", "input")), "node 'a' takes 'b', which nothing before it computes"),
    ],
)
def test_a_spec_that_cannot_run_is_refused(nodes: tuple[Relu, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Network({"input": (2,)}, nodes)


def test_labels_outside_the_classes_are_refused() -> None:
    backend = ReferenceBackend(mlp([4, 3]))
    for labels in ([0, 3], [-1, 0]):
        with pytest.raises(DataError, match="labels should lie between 0 and 2"):
            backend.weight_gradients(np.zeros((2, 4)), cross_entropy(np.array(labels)))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("convnet", "float16"), ("convnet", "float32"), ("convnet", "float64")]
    + [(name, "float64") for name in ("batch_norm", "layer_norm", "embedding", "lstm", "gru", "conv_transpose2d")],
)
def test_a_file_keeps_network_and_dtype(tmp_path: Path, name: str, dtype: str) -> None:
    network = NETWORKS[name]()
    backend = ReferenceBackend(network, dtype=dtype)
    backend.save(tmp_path / "a.refnet")
    again = ReferenceBackend.load(tmp_path / "a.refnet")
    inputs = random_inputs(network, 4)
    np.testing.assert_array_equal(again.forward(inputs), backend.forward(inputs))
    assert again.layers == backend.layers
    assert {entry.dtype for entry in again.layers[0].parameters.values()} == {dtype}
    again.save(tmp_path / "b.refnet")
    assert (tmp_path / "a.refnet").read_bytes() == (tmp_path / "b.refnet").read_bytes()


@pytest.mark.parametrize("damage", ["another format", "unknown node", "missing array", "pickled array", "no json"])
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "net.refnet"
    ReferenceBackend(mlp([4, 3])).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    spec = json.loads(members["network.json"])
    if damage == "another format":
        spec["format"] = "something else"
    if damage == "unknown node":
        spec["nodes"][0]["type"] = "Path"
    members["network.json"] = b"{" if damage == "no json" else json.dumps(spec).encode()
    if damage == "missing array":
        del members["fc1.weight.npy"]
    if damage == "pickled array":
        content = io.BytesIO()
        np.save(content, np.array([{"a": 1}]), allow_pickle=True)
        members["fc1.weight.npy"] = content.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(ModelError, match=r"^'net.refnet' is not a readable reference network: [^\n]+$"):
        ReferenceBackend.load(path)
