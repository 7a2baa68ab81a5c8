"""Every kind of layer of PyTorch in a small network: found, named, run, differentiated and cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from arachne.decisions.losses import cross_entropy
from arachne.model.values import Array, Geometry, Inputs
from arachne_torch import TorchBackend
from tests.backends.layer_checks import check_all

torch.set_num_threads(1)

N = 6
rng = np.random.default_rng(0)
IMAGES = rng.normal(size=(N, 4, 6, 6)).astype(np.float32)
SIGNALS = rng.normal(size=(N, 4, 12)).astype(np.float32)
SEQUENCES = rng.normal(size=(N, 5, 8)).astype(np.float32)
TOKENS = rng.integers(0, 9, size=(N, 5))
LABELS = np.arange(N) % 3


class Conv(nn.Module):
    """One convolution of any kind, a bend, a pool, a head."""

    def __init__(self, conv: nn.Module, channels: int) -> None:
        super().__init__()
        self.conv, self.head = conv, nn.Linear(channels, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(torch.tanh(self.conv(x)).flatten(2).mean(2))


class Norms(nn.Module):
    """All norms with a scale, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)
        self.batch, self.instance = nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True)
        self.group, self.layer, self.rms = nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.RMSNorm(4)
        self.head = nn.Linear(4, 3)
        for part in (self.batch, self.instance, self.group, self.layer, self.rms):
            nn.init.uniform_(part.weight, 0.5, 1.5)

    def forward(self, x: Tensor) -> Any:
        x = self.group(torch.tanh(self.instance(self.batch(self.conv(x)))))
        return self.head(self.rms(self.layer(x.flatten(2).transpose(1, 2))).tanh().mean(1))


class Attention(nn.Module):
    """Attention over a sequence, packed or separate projections, in any order of axes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.first = settings.get("batch_first", False)
        self.attention = nn.MultiheadAttention(8, 2, **settings)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Any:
        y = x if self.first else x.transpose(0, 1)
        y, _ = self.attention(y, y * 0.5, y + 1, key_padding_mask=padding, need_weights=padding is not None)
        return self.head((y if self.first else y.transpose(0, 1)).mean(1))


class OwnAttention(nn.Module):
    """`scaled_dot_product_attention` with one packed map, as many models write it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        n, steps, _ = x.shape
        q, k, v = self.qkv(x).reshape(n, steps, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(self.out(y.transpose(1, 2).reshape(n, steps, 8)).mean(1))


class Words(nn.Module):
    """Tokens and learned positions; with tied weights the table is the last layer too."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.table, self.positions = nn.Embedding(9, 4), nn.Embedding(5, 4)
        self.hidden = nn.Linear(4, 4)
        self.last = nn.Linear(4, 9, bias=False)
        if tied:
            self.last.weight = self.table.weight

    def forward(self, ids: Tensor) -> Any:
        x = self.table(ids) + self.positions(torch.arange(ids.shape[1])[None])
        return self.last(torch.tanh(self.hidden(x)).sum(1))


class Encoder(nn.Module):
    """torch's own transformer layers, steps first."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        y = self.encoder(x.transpose(0, 1), src_key_padding_mask=mask == 0)
        return self.head(y[0])


MASK = np.arange(5)[None] < np.array([5, 3, 4, 2, 5, 1])[:, None]

NETWORKS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "conv1d": (lambda: Conv(nn.Conv1d(4, 6, 3, dilation=2, groups=2, padding="same"), 6), SIGNALS),
    "depthwise": (lambda: Conv(nn.Conv2d(4, 8, 3, stride=2, groups=4, padding=1), 8), IMAGES),
    "reflected": (lambda: Conv(nn.Conv2d(4, 5, 3, padding=1, padding_mode="reflect"), 5), IMAGES),
    "conv3d": (lambda: Conv(nn.Conv3d(4, 5, 2), 5), IMAGES[:, :, None].repeat(2, 2)),
    "transposed1d": (lambda: Conv(nn.ConvTranspose1d(4, 6, 3, stride=2, dilation=2), 6), SIGNALS),
    "transposed2d": (
        lambda: Conv(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), 6),
        IMAGES,
    ),
    "norms": (Norms, IMAGES),
    "attention": (Attention, SEQUENCES),
    "attention batch first": (lambda: Attention(batch_first=True, bias=False), SEQUENCES),
    "attention separate": (lambda: Attention(batch_first=True, kdim=8, vdim=8, add_bias_kv=True), SEQUENCES),
    "attention masked": (Attention, {"x": SEQUENCES, "padding": ~MASK}),
    "own attention": (OwnAttention, SEQUENCES),
    "words": (lambda: Words(tied=False), TOKENS),
    "tied words": (lambda: Words(tied=True), TOKENS),
    "encoder": (Encoder, {"x": SEQUENCES, "mask": MASK}),
}


def load(name: str) -> tuple[TorchBackend, Inputs]:
    torch.manual_seed(0)
    make, inputs = NETWORKS[name]
    backend = TorchBackend.load(make())
    backend.forward(inputs)
    return backend, inputs


@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_layer_is_run_differentiated_and_cut(name: str) -> None:
    backend, inputs = load(name)
    check_all(backend, inputs, LABELS)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_what_is_known_without_running_is_what_is_found_by_running(name: str) -> None:
    make, inputs = NETWORKS[name]
    backend = TorchBackend.load(make())
    declared = {info.name: (info.kind, dict(info.parameters), info.geometry) for info in backend.layers}
    backend.forward(inputs)
    found = {info.name: (info.kind, dict(info.parameters), info.geometry) for info in backend.layers}
    assert declared == found


def test_packed_projections_are_three_layers_of_one_tensor() -> None:
    backend, _ = load("attention")
    assert [info.name for info in backend.layers] == [
        "attention.q",
        "attention.k",
        "attention.v",
        "attention.out_proj",
        "head",
    ]
    stored = backend.native.attention.in_proj_weight
    backend.set_weights("attention.k", "weight", np.full((8, 8), 7.0))
    assert stored[8:16].eq(7).all()
    assert not stored[:8].eq(7).any()
    assert not stored[16:].eq(7).any()
    assert backend.info("attention.v").parameters["bias"].shape == (8,)


def test_several_projections_of_one_tensor_change_together_in_a_cut() -> None:
    backend, inputs = load("attention")
    changed: dict[tuple[str, str], Array] = {
        (f"attention.{part}", "weight"): np.full((8, 8), value, np.float32) for part, value in (("q", 0.1), ("v", -0.2))
    }
    cut = backend.cut(inputs, ["attention.q", "attention.v"])
    for (layer, parameter), values in changed.items():
        backend.set_weights(layer, parameter, values)
    np.testing.assert_allclose(cut.scores_with(changed), backend.forward(inputs), atol=1e-5)


def test_a_transposed_convolution_is_told_as_the_convolution_it_is_the_gradient_of() -> None:
    backend, _ = load("transposed2d")
    info = backend.layers[0]
    assert info.kind == "conv_transpose"
    assert info.parameters["weight"].shape == (4, 3, 3, 3)
    assert info.geometry == Geometry((2, 2), ((1, 1), (1, 1)), (1, 1), 2)


def test_a_table_tied_to_the_last_layer_is_one_layer_with_two_uses() -> None:
    backend, inputs = load("tied words")
    info = backend.info("table")
    assert (info.kind, info.uses) == ("embedding", 2)
    lookup, product = backend.activations(inputs, "table")
    np.testing.assert_array_equal(lookup.entering["weight"], TOKENS)
    assert product.entering["weight"].shape == (N, 4)
    assert product.leaving.shape == (N, 9)
    assert "last" not in [info.name for info in backend.layers]
    assert not backend.unreachable


def test_positions_that_are_the_same_for_all_inputs_get_a_gradient_for_each() -> None:
    backend, inputs = load("words")
    (use,) = backend.activations(inputs, "positions")
    np.testing.assert_array_equal(use.entering["weight"], np.tile(np.arange(5), (N, 1)))
    seed = rng.normal(size=(N, 9)).astype(np.float32)
    (together,) = backend.output_gradients(inputs, "positions", seed)
    for row in range(N):
        (single,) = backend.output_gradients(TOKENS[row : row + 1], "positions", seed[row : row + 1])
        np.testing.assert_allclose(together[row], single[0], atol=1e-5)


def test_the_batch_is_found_on_whatever_axis_it_lies() -> None:
    backend, inputs = load("attention")
    (use,) = backend.activations(inputs, "attention.q")
    np.testing.assert_allclose(use.entering["weight"], SEQUENCES, atol=1e-6)
    (alone,) = backend.activations(SEQUENCES[:1], "attention.q")
    np.testing.assert_allclose(alone.leaving, use.leaving[:1], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["norms", "attention", "words", "transposed1d"])
def test_half_precision_weights_are_repaired_in_their_own_dtype(name: str, dtype: torch.dtype) -> None:
    make, inputs = NETWORKS[name]
    torch.manual_seed(0)
    module = make().to(dtype)
    backend = TorchBackend.load(module)
    scores = backend.forward(inputs)
    assert scores.dtype == np.float32
    labels = LABELS % scores.shape[1]
    assert list(backend.weight_gradients(inputs, cross_entropy(labels))) == backend.resolve_parameters(None)
    stored = str(dtype).removeprefix("torch.")
    for info in backend.layers:
        for parameter, entry in info.parameters.items():
            assert entry.dtype == stored
            values = backend.get_weights(info.name)[parameter]
            assert values.dtype == np.float32
            backend.set_weights(info.name, parameter, values)
    np.testing.assert_array_equal(backend.forward(inputs), scores)
    layer = backend.layers[0].name
    np.testing.assert_allclose(backend.cut(inputs, [layer]).scores_with({}), scores, rtol=0.05, atol=0.05)
