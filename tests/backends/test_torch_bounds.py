"""Operators and symbolic sizes of exported programs: those of real networks pass, no other does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from arachne.errors import ModelError

torch = pytest.importorskip("torch")
nn = torch.nn

from arachne_torch.bounds import Bounded  # noqa: E402  # after the skip
from arachne_torch.expressions import is_quick  # noqa: E402
from arachne_torch.operators import ALLOWED, TURNED_OFF, is_allowed  # noqa: E402

RANDOM_ONLY_IN_TRAINING = {
    *TURNED_OFF.split(),
    *("lstm", "gru", "rnn_tanh", "rnn_relu", "scaled_dot_product_attention"),
    *("_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention_for_cpu"),
}


def test_allowed_operators_exist_and_draw_no_random_numbers() -> None:
    random = set()
    for name in ALLOWED:
        overloads = getattr(torch.ops.aten, name)
        tags = [getattr(overloads, overload).tags for overload in overloads.overloads()]
        random |= {name for found in tags if torch.Tag.nondeterministic_seeded in found}
    assert random == RANDOM_ONLY_IN_TRAINING & ALLOWED


def name_of(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target.namespace}.{target._schema.name.partition('::')[2]}.{target._overloadname}"
    return f"{target.__module__}.{target.__name__}"


class Attention(nn.Module):  # type: ignore[misc,name-defined]  # torch may be missing, then all is skipped
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.scores = nn.Linear(16, 3)

    def forward(self, words: Any) -> Any:
        return self.scores(self.encoder(self.words(words)).mean(1))


@pytest.mark.parametrize(
    ("network", "inputs"),
    [
        (lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
                               nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 3)), (2, 1, 8, 8)),
        (Attention, None),
        (lambda: nn.LSTM(4, 5, 2, batch_first=True), (2, 3, 4)),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_operators_of_usual_networks_are_allowed(network: Callable[[], Any], inputs: tuple[int, ...] | None) -> None:
    given = torch.zeros(2, 7, dtype=torch.int64) if inputs is None else torch.zeros(inputs)
    program = torch.export.export(network().eval(), (given,))
    for version in (program, program.run_decompositions()):
        targets = {name_of(node.target) for node in version.graph.nodes if node.op == "call_function"}
        assert [target for target in sorted(targets) if not is_allowed(target)] == []


@pytest.mark.parametrize(
    "text",
    [
        "s77",
        "2*s0 + 1",
        "Symbol('s77', positive=True, integer=True)",
        "Mul(Integer(2), Symbol('s77', positive=True, integer=True))",
        "Add(FloorDiv(Add(Symbol('s0', integer=True), Integer(-1)), Integer(2)), Integer(1))",
        "Pow(Symbol('s0', integer=True), Integer(2))",
        "Max(1, s0)",
        "(s0//2)",
        "Eq(Mod(Symbol('s0', positive=True, integer=True), Integer(4)), Integer(0))",
    ],
)
def test_sizes_as_torch_writes_them_are_quick(text: str) -> None:
    assert is_quick(text)


@pytest.mark.parametrize(
    "text",
    ["10**10**10", "Pow(Integer(10), Integer(10000000000))", "Sum(s77, (s77, 1, 10**9))", "eval('x')", "s0.x", ""],
)
def test_sizes_that_take_for_ever_or_run_code_are_not(text: str) -> None:
    assert not is_quick(text)


def test_bounded_pass_gives_what_the_plain_one_gives() -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    inputs = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        expected = network(inputs)
        with Bounded([inputs]):
            assert torch.equal(network(inputs), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(10**10),
        lambda: torch.ones(1).expand(10**10) + 1,
        lambda: torch.ones(10**5, 1) + torch.ones(1, 10**5),
        lambda: torch.repeat_interleave(torch.tensor([10**10])),
        lambda: [torch.zeros(10**7) for _ in range(10)],
    ],
)
def test_bounded_pass_refuses_large_results_before_they_are_made(make: Callable[[], Any]) -> None:
    with pytest.raises(ModelError), Bounded([]):
        make()
