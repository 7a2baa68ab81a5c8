"""`arachne scan --layers`: what of a model can be repaired, and why the rest cannot."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.commands import Ran, arachne

pytestmark = pytest.mark.backend("torch")

CODE = """
import torch
from torch import nn
from torch.nn.utils import parametrizations

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.rnn = nn.LSTM(4, 8, batch_first=True)
        self.normed = parametrizations.weight_norm(nn.Linear(8, 8))
        self.bent = parametrizations.orthogonal(nn.Linear(8, 8, bias=False))
        self.gain = nn.Parameter(torch.ones(8))

    def forward(self, x):
        y, _ = self.rnn(x)
        return self.head(self.bent(self.normed(self.attention(y, y, y)[0].mean(1)) * self.gain))

def make():
    torch.manual_seed(0)
    return Net()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "layers_net.py").write_text(CODE)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "val.npz", x=rng.normal(size=(6, 5, 4)).astype(np.float32), y=np.arange(6) % 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "layers_net", raising=False)
    return tmp_path


def scan(*arguments: str) -> Ran:
    return arachne("scan", "--model", "layers_net:make", "--backend", "torch", *arguments, cwd=Path.cwd())


def test_layers_are_listed_in_order_of_execution_with_what_cannot_be_repaired(folder: Path) -> None:
    ran = scan("--layers", "--json", "--data", "val.npz")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["schema"] == "arachne.layers/1"
    names = [layer["name"] for layer in told["layers"]]
    assert names == ["rnn.l0", "attention.q", "attention.k", "attention.v", "attention.out_proj", "normed", "head"]
    assert told["layers"][0]["parameters"]["weight_hh"] == {"shape": [32, 8], "dtype": "float32", "weights": 256}
    assert told["weights"] == 32 * 4 + 32 * 8 + 4 * 64 + 64 + 24
    assert told["weights_on_request"] == 64 + 4 * 8 + 8 + 3
    reasons = {entry["parameter"]: entry["reason"] for entry in told["unreachable"]}
    assert "remove_parametrizations" in reasons["bent.parametrizations.weight.original"]
    assert "'mul'" in reasons["gain"]
    sizes = {entry["parameter"]: entry["weights"] for entry in told["unreachable"]}
    assert sizes["gain"] == 8
    assert told["weights_out_of_reach"] == sum(sizes.values())


def test_without_data_the_layers_are_listed_as_the_model_declares_them(folder: Path) -> None:
    told = json.loads(scan("--layers", "--json").out)
    assert told["layers"][0]["name"] == "head"
    assert not told["executed"]


def test_the_table_tells_kinds_shapes_and_reasons(folder: Path) -> None:
    ran = scan("--layers", "--data", "val.npz")
    for text in ("rnn.l0", "recurrent", "weight_ih 32x4", "gain (8 weights): it is used by 'mul'", "728 weights"):
        assert text in ran.out, ran.out


def test_a_scan_of_mistakes_says_how_many_weights_are_in_reach(folder: Path) -> None:
    ran = scan("--data", "val.npz", "--no-causes")
    assert re.search(r"835 of 907 weights are in reach; out of reach: 64 in bent\S+, 8 in gain ", ran.err)


def test_mistakes_need_data(folder: Path) -> None:
    ran = scan()
    assert ran.code == 2
    assert "give --data" in ran.err
