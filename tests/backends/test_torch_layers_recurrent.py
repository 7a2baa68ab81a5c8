"""Recurrent layers of PyTorch: stacked, both directions, projected, packed, cells; against torch's own outputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from arachne.model.values import Array, Inputs
from arachne_torch import TorchBackend
from arachne_torch.cut import TorchCut
from arachne_torch.lstm import LSTMSteps
from tests.backends.layer_checks import check_all, check_cut

torch.set_num_threads(1)

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

N, STEPS = 6, 5
rng = np.random.default_rng(0)
X = rng.normal(size=(N, STEPS, 3)).astype(np.float32)
LENGTHS = np.array([2, 5, 3, 1, 5, 4])
LABELS = np.arange(N) % 3

RECURRENT_MODULES: dict[str, Callable[..., nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch first, no bias": {"batch_first": True, "bias": False},
    "stacked, both directions": {"batch_first": True, "num_layers": 2, "bidirectional": True},
}
CASES = [*itertools.product(RECURRENT_MODULES, SETTINGS), ("lstm", "projected")]
SETTINGS["projected"] = {"num_layers": 2, "bidirectional": True, "proj_size": 2}


class Reader(nn.Module):
    """A recurrent layer over a sequence, packed where lengths are given."""

    def __init__(self, kind: str, settings: dict[str, Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = settings.get("batch_first", False)
        self.rnn = RECURRENT_MODULES[kind](3, 4, **settings)
        ways = 2 if settings.get("bidirectional") else 1
        self.head = nn.Linear(ways * (settings.get("proj_size", 0) or 4), 3)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Any:
        x = x if self.first else x.transpose(0, 1)
        given: Tensor | PackedSequence = x
        if lengths is not None:
            given = pack_padded_sequence(x, lengths, batch_first=self.first, enforce_sorted=False)
        y, _ = self.rnn(given)
        if lengths is not None:
            y, _ = pad_packed_sequence(y, batch_first=self.first)
        return self.head((y if self.first else y.transpose(0, 1)).sum(1))


def load(kind: str, settings: str, packed: bool) -> tuple[TorchBackend, Inputs]:
    backend = TorchBackend.load(Reader(kind, SETTINGS[settings]))
    inputs: Inputs = {"x": X, "lengths": LENGTHS} if packed else X
    backend.forward(inputs)
    return backend, inputs


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_every_recurrent_layer_is_run_differentiated_and_cut(kind: str, settings: str, packed: bool) -> None:
    backend, inputs = load(kind, settings, packed)
    check_all(backend, inputs, LABELS)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_steps_computed_one_by_one_give_torchs_own_scores(kind: str, settings: str, packed: bool) -> None:
    backend, inputs = load(kind, settings, packed)
    trace: Any = backend.trace(inputs, [info.name for info in backend.layers])
    np.testing.assert_allclose(trace.scores, backend.forward(inputs), atol=1e-5)


def test_each_layer_and_direction_has_a_name_and_its_parameters() -> None:
    backend, _ = load("lstm", "projected", packed=False)
    shapes = {info.name: {name: entry.shape for name, entry in info.parameters.items()} for info in backend.layers}
    gates = {"weight_ih": (16, 3), "weight_hh": (16, 2), "bias_ih": (16,), "bias_hh": (16,)}
    assert shapes == {
        "rnn.l0": gates,
        "rnn.l0.projection": {"weight": (2, 4)},
        "rnn.l0_reverse": gates,
        "rnn.l0_reverse.projection": {"weight": (2, 4)},
        "rnn.l1": gates | {"weight_ih": (16, 4)},
        "rnn.l1.projection": {"weight": (2, 4)},
        "rnn.l1_reverse": gates | {"weight_ih": (16, 4)},
        "rnn.l1_reverse.projection": {"weight": (2, 4)},
        "head": {"weight": (3, 4), "bias": (3,)},
    }
    assert not backend.unreachable


def test_what_enters_and_leaves_an_lstm_is_what_its_equations_say() -> None:
    backend, inputs = load("lstm", "plain", packed=False)
    (use,) = backend.activations(inputs, "rnn.l0")
    weights = backend.get_weights("rnn.l0")
    np.testing.assert_array_equal(use.entering["weight_ih"], X)
    h, c = np.zeros((N, 4)), np.zeros((N, 4))
    for t in range(STEPS):
        np.testing.assert_allclose(use.entering["weight_hh"][:, t], h, atol=1e-5)
        gates = X[:, t] @ weights["weight_ih"].T + h @ weights["weight_hh"].T + weights["bias_ih"] + weights["bias_hh"]
        np.testing.assert_allclose(use.leaving[:, t], gates, atol=1e-5)
        i, f, g, o = np.split(gates, 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))


def test_packed_sequences_keep_the_order_of_the_inputs_and_end_in_zeros() -> None:
    backend, inputs = load("lstm", "stacked, both directions", packed=True)
    for layer in ("rnn.l0", "rnn.l0_reverse"):
        (use,) = backend.activations(inputs, layer)
        for row, length in enumerate(LENGTHS):
            np.testing.assert_array_equal(use.entering["weight_ih"][row, :length], X[row, :length])
            assert not use.leaving[row, length:].any()
        (gradient,) = backend.output_gradients(inputs, layer, np.ones((N, 3), np.float32))
        for row, length in enumerate(LENGTHS):
            assert gradient[row, :length].any()
            assert not gradient[row, length:].any()


def test_batches_of_different_lengths_are_told_together() -> None:
    backend, inputs = load("gru", "batch first, no bias", packed=True)
    (whole,) = backend.activations(inputs, "rnn.l0")
    backend._runner.rows = 1
    (single,) = backend.activations(inputs, "rnn.l0")
    assert single.leaving.shape == whole.leaving.shape == (N, STEPS, 12)
    np.testing.assert_allclose(single.leaving, whole.leaving, atol=1e-5)


def test_a_head_behind_packed_sequences_is_cut_without_running_them_again() -> None:
    backend, inputs = load("lstm", "stacked, both directions", packed=True)
    cut = backend.cut(inputs, ["head"])
    assert isinstance(cut, TorchCut)
    assert [layer for step in cut._all for layer in step.layers] == ["head"]
    check_cut(backend, inputs, ["head"])


def test_an_upper_layer_is_cut_without_running_the_lower_one_again() -> None:
    backend, inputs = load("lstm", "stacked, both directions", packed=False)
    cut = backend.cut(inputs, ["rnn.l1"])
    assert isinstance(cut, TorchCut)
    layers = [layer for step in cut._all for layer in step.layers]
    assert layers == ["rnn.l1", "rnn.l1_reverse", "head"]
    check_cut(backend, inputs, ["rnn.l1", "head"])


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_cell_called_step_by_step_is_one_layer_with_a_use_for_each_step(cell: type[nn.RNNCellBase]) -> None:
    class Looping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.cell, self.head = cell(3, 4), nn.Linear(4, 3)  # type: ignore[call-arg]  # the three take sizes

        def forward(self, x: Tensor) -> Any:
            state: Any = None
            for t in range(x.shape[1]):
                state = self.cell(x[:, t], state)
            return self.head(state[0] if isinstance(state, tuple) else state)

    backend = TorchBackend.load(Looping())
    backend.forward(X)
    assert [(info.name, info.kind, info.uses) for info in backend.layers] == [
        ("cell", "recurrent", STEPS),
        ("head", "dense", 1),
    ]
    check_all(backend, X, LABELS)
    gates = backend.activations(X, "cell")[0].leaving
    weights = backend.get_weights("cell")
    expected: Array = X[:, 0] @ weights["weight_ih"].T + weights["bias_ih"]
    if cell is not nn.GRUCell:
        expected = expected + weights["bias_hh"]
        np.testing.assert_allclose(gates, expected, atol=1e-5)


def test_dropout_between_layers_is_off() -> None:
    settings = {"num_layers": 2, "dropout": 0.5}
    backend = TorchBackend.load(Reader("lstm", settings).train())
    np.testing.assert_array_equal(backend.forward(X), backend.forward(X))
    check_cut(backend, X, ["rnn.l1"])


@pytest.mark.parametrize("backwards", [False, True])
def test_the_derivative_of_an_lstm_is_that_of_its_steps(backwards: bool) -> None:
    torch.manual_seed(0)
    steps, n, units = 4, 3, 2
    probe, weight = torch.zeros(n, steps, 4 * units).double().requires_grad_(), torch.randn(4 * units, units).double()
    inputs, state, cell = (torch.randn(*shape).double() for shape in ((steps, n, 4 * units), (n, units), (n, units)))
    given = [tensor.requires_grad_() for tensor in (inputs, state, cell)]

    def run(inputs: Tensor, state: Tensor, cell: Tensor) -> list[Tensor]:
        outputs, _, _, *last = LSTMSteps.apply(inputs, probe, state, cell, weight, None, backwards)  # type: ignore[no-untyped-call]
        return [outputs, *last]

    assert torch.autograd.gradcheck(run, given)
    by_inputs, by_probe = torch.autograd.grad(sum(one.square().sum() for one in run(*given)), [inputs, probe])  # type: ignore[arg-type]
    np.testing.assert_array_equal(by_inputs.transpose(0, 1), by_probe)
