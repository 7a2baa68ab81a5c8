"""Names for calls without weights in `LayerInfo.followed_by`; a call has a name only if that describes it fully."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

PASSING = ("dropout", "feature_dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "contiguous", "detach")
"""Calls that change nothing outside training."""


@dataclass(frozen=True, eq=False)
class FollowingCall:
    """A call that takes one tensor and gives one.

    Attributes:
        name: Its name without the overload, or the underscore of a call that works in place.
        given: What it takes.
        result: What it gives.
        args: Its other arguments.
        kwargs: Those given by name.
    """

    name: str
    given: Tensor
    result: Tensor
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def setting(self, name: str, number: int, default: Any) -> Any:
        """An argument, by its name and its place behind the tensor."""
        return self.args[number] if number < len(self.args) else self.kwargs.get(name, default)


Namer = Callable[[FollowingCall], str | None]


def op_name(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], given: Tensor, result: Any) -> str | None:
    """Name a call that takes one tensor: empty for calls that do nothing, None for calls without a name."""
    if name in PASSING:
        return ""
    name = name.removesuffix("_")
    word = NAMES.get(name)
    if not isinstance(result, Tensor):
        return None
    if word is None or isinstance(word, str):
        return word
    others = args[1:] if args else ()
    return word(
        FollowingCall(name, given, result, others, {key: value for key, value in kwargs.items() if value is not given})
    )


def _flatten(step: FollowingCall) -> str | None:
    """A flatten keeps the first axis and makes one of all others."""
    before, after = step.given.shape, step.result.shape
    return "flatten" if len(after) == 2 and before[0] == after[0] else None


def _elu(step: FollowingCall) -> str | None:
    plain = step.setting("alpha", 0, 1.0) == 1 and step.setting("scale", 1, 1.0) == 1
    return "elu" if plain and step.setting("input_scale", 2, 1.0) == 1 else None


def _gelu(step: FollowingCall) -> str | None:
    return "gelu" if step.setting("approximate", 0, "none") == "none" else None


def _softplus(step: FollowingCall) -> str | None:
    return "softplus" if (step.setting("beta", 0, 1), step.setting("threshold", 1, 20)) == (1, 20) else None


def _hardtanh(step: FollowingCall) -> str | None:
    return "relu6" if (step.setting("min_val", 0, -1.0), step.setting("max_val", 1, 1.0)) == (0, 6) else None


def _pad(step: FollowingCall) -> str | None:
    """Zeros around positions; other modes and other numbers have no word."""
    pads = step.setting("pad", 0, ())
    mode, value = step.setting("mode", 1, "constant"), step.setting("value", 2, None)
    if step.name == "constant_pad_nd":
        mode, value = "constant", step.setting("value", 1, 0)
    zeros = mode == "constant" and not value and len(pads) <= 2 * (step.given.ndim - 2)
    return "zero_pad" if zeros and min(pads, default=0) >= 0 else None


def _adaptive(kind: str) -> Namer:
    def namer(step: FollowingCall) -> str:
        everything = all(size == 1 for size in step.result.shape[2:])
        return f"global_{kind}_pool" if everything else f"{kind}_pool"

    return namer


def _global_pool(kind: str) -> Namer:
    """A reduction over all positions."""

    def namer(step: FollowingCall) -> str | None:
        axes, n = step.setting("dim", 0, None), step.given.ndim
        axes = (axes,) if isinstance(axes, int) else tuple(axes or ())
        found = sorted(axis % n for axis in axes)
        return f"global_{kind}_pool" if n > 2 and found == list(range(2, n)) else None

    return namer


NAMES: Mapping[str, str | Namer] = {
    **{name: name for name in ("relu", "relu6", "tanh", "sigmoid", "silu")},
    "elu": _elu,
    "gelu": _gelu,
    "softplus": _softplus,
    "hardtanh": _hardtanh,
    **dict.fromkeys(("flatten", "view", "reshape", "_unsafe_view", "squeeze"), _flatten),
    **dict.fromkeys(("pad", "constant_pad_nd"), _pad),
    **{f"max_pool{n}d": "max_pool" for n in (1, 2, 3)},
    **{f"avg_pool{n}d": "average_pool" for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive("max") for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive("average") for n in (1, 2, 3)},
    "mean": _global_pool("average"),
    "amax": _global_pool("max"),
}
"""The words of `arachne.testing.networks.FOLLOWER_NAMES` and of the evaluator, by call."""
