"""The PyTorch cut against the plain one: skips, parallel branches, shared layers, in-place calls, folded batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from arachne.adapting.batch_axis import BatchAxis
from arachne.errors import UnknownLayerError, WeightShapeError
from arachne.model.cut import PlainCut
from arachne.model.values import Array, Inputs
from arachne_torch import TorchBackend
from arachne_torch.cut import TorchCut, _Joined
from arachne_torch.tape import NotRecordableError

torch.set_num_threads(1)


class Residual(nn.Module):
    """Two branches from one stem, a skip around both, a shared head; every non-linearity works in place."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.left = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.right = nn.Conv2d(4, 4, 1)
        self.relu = nn.ReLU(inplace=inplace)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        x = self.relu(self.stem(x))
        joined = self.norm(self.left(x)) + self.right(x)
        joined += x
        x = self.drop(self.relu(joined)).mean((2, 3))
        return self.head(self.head(x).view(x.size(0), -1))


class Folded(nn.Module):
    """Steps folded into the batch before the cut, positions made from the batch size behind it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 4)
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor, length: Tensor) -> Any:
        n, steps, width = x.shape
        x = torch.tanh(self.first(x.reshape(n * steps, width)))
        x = self.second(x).reshape(n, steps, -1) + torch.zeros(n, 1, 4)
        chosen = x[torch.arange(n), length]
        return functional.softmax(self.last(chosen), dim=-1)


class Undecided(nn.Module):
    """Its course depends on the inputs' values."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Any:
        return self.fc(x) if x.sum() > 0 else self.fc(-x)


def images(n: int = 7) -> Array:
    return np.random.default_rng(0).normal(size=(n, 1, 5, 5)).astype(np.float32)


def compare(backend: TorchBackend, inputs: Inputs, layers: list[str]) -> TorchCut:
    fast, plain = backend.cut(inputs, layers), PlainCut(backend, inputs, layers)
    assert isinstance(fast, TorchCut)
    assert fast.layer == plain.layer
    rng = np.random.default_rng(1)
    changed = {
        (layer, name): (values + 0.1 * rng.normal(size=values.shape)).astype(np.float32)
        for layer in layers
        for name, values in backend.get_weights(layer).items()
    }
    for rows in (None, np.array([4, 1, 1, 0]), np.array([6]), np.array([], dtype=int)):
        np.testing.assert_allclose(fast.outputs(rows), plain.outputs(rows), atol=1e-5)
        np.testing.assert_allclose(fast.scores_with(changed, rows), plain.scores_with(changed, rows), atol=1e-5)
        np.testing.assert_allclose(fast.scores_with({}, rows), plain.scores_with({}, rows), atol=1e-5)
        again = fast.scores_from_outputs(fast.outputs(rows), rows)
        np.testing.assert_allclose(again, plain.scores_with({}, rows), atol=1e-5)
    return fast


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("layers", [["stem"], ["left", "right"], ["right"], ["norm"], ["head"], ["right", "head"]])
def test_the_cut_agrees_with_a_full_pass(inplace: bool, layers: list[str]) -> None:
    compare(TorchBackend.load(Residual(inplace)), images(), layers)


def test_nothing_before_the_cut_runs_again_and_all_crossing_tensors_are_kept() -> None:
    cut = compare(TorchBackend.load(Residual(False)), images(), ["right"])
    calls = [layer for step in cut._all for layer in step.layers]
    assert calls == ["right", "head", "head"]
    assert len(cut._crossing) == 2  # what enters `right` (and is the skip), and what leaves `norm`


def test_batches_do_not_change_the_scores() -> None:
    backend = TorchBackend.load(Residual(True))
    backend.forward(images())
    backend._runner.rows = 2
    compare(backend, images(), ["left"])


@pytest.mark.parametrize("axis", [BatchAxis(0), BatchAxis(2), BatchAxis(0, 2), BatchAxis(1, 2, strided=True)])
@pytest.mark.parametrize("last", [False, True])
def test_batches_that_cross_the_cut_are_put_together_as_in_one_pass(axis: BatchAxis, last: bool) -> None:
    assert axis.axis is not None
    whole = torch.arange(8 * 8 * 8 * 3, dtype=torch.float32).reshape(8, 8, 8, 3)
    whole = whole.contiguous(memory_format=torch.channels_last) if last else whole
    inputs = 8 // axis.each
    rows = torch.arange(8).reshape((axis.each, inputs) if axis.strided else (inputs, axis.each))
    found = _Joined(inputs, axis)
    for part in (slice(0, 3), slice(3, inputs)):
        own = rows[:, part] if axis.strided else rows[part]
        batch = whole.index_select(axis.axis, own.ravel())
        found.add(batch.contiguous(memory_format=torch.channels_last) if last else batch)
    joined = found.crossing
    tensor = joined.tensor if joined.folded is None else joined.tensor.flatten(joined.folded, joined.folded + 1)
    assert torch.equal(tensor, whole)
    with pytest.raises(NotRecordableError, match="other sizes"):
        found.add(whole)


def test_a_tensor_that_lacks_rows_of_inputs_does_not_cross_the_cut() -> None:
    found = _Joined(5, BatchAxis(0))
    found.add(torch.zeros(2, 3))
    with pytest.raises(NotRecordableError, match="other sizes"):
        found.add(torch.zeros(2, 4))
    with pytest.raises(NotRecordableError, match="other sizes"):
        _ = found.crossing


def test_rows_that_a_loss_does_not_pull_at_change_no_gradient() -> None:
    backend, many = TorchBackend.load(Residual(False)), np.concatenate([images()] * 20)
    backend.forward(many)
    pulled_at = np.random.default_rng(0).random(len(many)) < 0.15
    pulled_at[:5] = True

    def loss(scores: Array, rows: slice) -> Array:
        return np.asarray(scores * pulled_at[rows, None])

    plain = PlainCut(backend, many, ["left"]).weight_gradients({}, loss)
    backend._runner.rows = 2
    cut = backend.cut(many, ["left"])
    assert isinstance(cut, TorchCut)
    cut.__dict__["_affordable"] = 4  # rows at a time, as of a large model
    for rows in (None, np.arange(len(many))):
        for place, found in cut.weight_gradients({}, loss, rows).items():
            np.testing.assert_allclose(found, plain[place], rtol=1e-4, atol=1e-5)
    nothing = cut.weight_gradients({}, lambda scores, rows: np.zeros_like(scores))
    assert not any(found.any() for found in nothing.values())


def test_a_batch_folded_into_steps_is_taken_apart_by_rows() -> None:
    rng = np.random.default_rng(0)
    inputs: dict[str, Array] = {"x": rng.normal(size=(7, 2, 3)).astype(np.float32), "length": rng.integers(0, 2, 7)}
    backend = TorchBackend.load(Folded())
    for layers in (["second"], ["last"], ["first", "last"]):
        compare(backend, inputs, layers)


def test_changed_outputs_change_the_scores_behind_them() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 2, bias=False))
    backend = TorchBackend.load(model)
    backend.set_weights("2", "weight", np.array([[1.0, 0.0], [0.0, 2.0]]))
    cut = backend.cut(np.ones((3, 2), np.float32), ["0"])
    given = np.array([[1.0, -1.0], [2.0, 3.0]])
    np.testing.assert_array_equal(cut.scores_from_outputs(given, np.array([0, 2])), [[1, 0], [2, 6]])
    np.testing.assert_array_equal(given, [[1, -1], [2, 3]])


def test_weights_set_later_do_not_reach_the_cut() -> None:
    backend = TorchBackend.load(Residual(False))
    cut = backend.cut(images(), ["left"])
    before = cut.scores_with({})
    for layer in ("stem", "left", "head"):
        backend.set_weights(layer, "weight", backend.get_weights(layer)["weight"] + 1)
    np.testing.assert_array_equal(cut.scores_with({}), before)


def test_the_cut_leaves_the_models_weights_alone() -> None:
    backend = TorchBackend.load(Residual(True))
    kept = backend.get_weights("left")["weight"]
    scores = backend.forward(images())
    backend.cut(images(), ["left"]).scores_with({("left", "weight"): kept + 1})
    np.testing.assert_array_equal(backend.get_weights("left")["weight"], kept)
    np.testing.assert_array_equal(backend.forward(images()), scores)


def test_a_model_that_cannot_be_recorded_gets_the_plain_cut_and_a_note() -> None:
    backend = TorchBackend.load(Undecided())
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    cut = backend.cut(x, ["fc"])
    assert not cut.continues_from_outputs
    np.testing.assert_array_equal(cut.scores_with({}), backend.forward(x))
    assert any("candidates run the whole model" in note for note in backend.describe().notes)


def test_values_read_on_the_way_hold_for_all_inputs_or_the_cut_is_plain() -> None:
    class Masked(nn.Module):
        """Skips its mask where nothing is masked, as transformers do."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor, mask: Tensor) -> Any:
            return self.fc(x if mask.all() else x * mask)

    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    compare(TorchBackend.load(Masked()), {"x": x, "mask": np.ones((7, 3), bool)}, ["fc"])
    compare(TorchBackend.load(Masked()), {"x": x, "mask": np.eye(7, 3, dtype=bool)}, ["fc"])


def test_a_cut_takes_only_the_weights_it_was_made_for() -> None:
    backend = TorchBackend.load(Residual(False))
    cut = backend.cut(images(), ["left"])
    with pytest.raises(UnknownLayerError, match="not made for layer 'stem'"):
        cut.scores_with({("stem", "weight"): backend.get_weights("stem")["weight"]})
    with pytest.raises(WeightShapeError, match="got values of shape"):
        cut.scores_with({("left", "weight"): np.zeros(4)})
    with pytest.raises(UnknownLayerError):
        backend.cut(images(), ["middle"])
