"""Seeing the torch calls of a pass: layers by the identity of their weights, and the whole pass as a recording.

Everything rests on `TorchFunctionMode`: torch hands us every call made inside it, whether it comes from a module, from
functional code or from an exported program's graph. No hooks are put on the user's model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from arachne_torch.layers import Layer, Owners, Use, gather, note_transpose, operation, recognise

ENDINGS = {
    "softmax": "softmax",
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "log_softmax": "softmax",
    "_log_softmax": "softmax",
    "sigmoid": "sigmoid",
}
"""Last calls of a model behind which the logits are found."""

PLAIN = {
    "relu": "relu",
    "relu_": "relu",
    "tanh": "tanh",
    "tanh_": "tanh",
    "sigmoid": "sigmoid",
    "sigmoid_": "sigmoid",
    "flatten": "flatten",
}
"""Calls without settings that matter, by the name `LayerInfo.followed_by` gives them."""

RESHAPES = ("squeeze", "flatten", "view", "reshape", "squeeze_")
"""Calls that may stand between such an ending and the output."""

PASSING = ("dropout", "feature_dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "contiguous", "detach")
"""Calls that change nothing outside training."""


class Watch(TorchFunctionMode):
    """Sees the calls of one pass: remembers what stood before a softmax or sigmoid, hands on the uses of layers.

    Args:
        owners: The tensors of the model by identity.
        on_use: Called with each use of a layer and its result; what it returns takes the result's place.
    """

    def __init__(self, owners: Owners | None = None, on_use: Callable[[Use, Any], Any] | None = None) -> None:
        super().__init__()
        self._owners = dict(owners or {})
        self._on_use = on_use
        self._behind: dict[int, tuple[Tensor, Tensor]] = {}
        self._alive: list[Any] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = operation(func)
        if name in ENDINGS and result.ndim < 4:  # larger ones are attention's
            given = args[0] if args else (kwargs or {})["input"]
            self._behind[id(result)] = (result, given)
        elif name in RESHAPES and id(args[0]) in self._behind:
            self._behind[id(result)] = (result, self._behind[id(args[0])][1])
        if self._on_use is not None:
            use = recognise(func, args, kwargs or {}, self._owners)
            if use is not None:
                return self._on_use(use, result)
            note_transpose(func, args, result, self._owners)
            if id(result) in self._owners:
                self._alive.append(result)  # an identity means nothing once its object is gone
        return result

    def behind(self, output: Tensor) -> Tensor:
        """What the softmax or sigmoid was given whose result this is, in the shape of the result."""
        return self._behind[id(output)][1].reshape(output.shape)


@dataclass(frozen=True, eq=False)
class Call:
    """One torch call of a pass, with the objects themselves."""

    func: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any
    use: Use | None
    mutates: bool

    @property
    def name(self) -> str:
        """The call's name without its overload."""
        return operation(self.func)


class Recorder(TorchFunctionMode):
    """Keeps every call of one pass; meant for a handful of inputs, since every tensor stays alive."""

    def __init__(self, owners: Owners) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._owners = dict(owners)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        before = [(tensor, tensor._version) for tensor in tensors_in((args, kwargs))]
        result = func(*args, **kwargs)
        mutates = any(tensor._version != version for tensor, version in before)
        use = recognise(func, args, kwargs, self._owners)
        note_transpose(func, args, result, self._owners)
        self.calls.append(Call(func, args, kwargs, result, use, mutates))
        return result

    def layers(self, tensors: Mapping[str, Tensor]) -> dict[str, Layer]:
        """The layers used, in order of execution."""
        layers = gather((call.use for call in self.calls if call.use is not None), tensors)
        takers = self._takers()
        for position, call in enumerate(self.calls):
            if call.use is not None and layers[call.use.layer].info.uses == 1:
                layer = layers[call.use.layer]
                info = replace(layer.info, followed_by=self._followed_by(position, takers))
                layers[call.use.layer] = replace(layer, info=info)
        return layers

    def ending(self, output: Tensor) -> tuple[str, Tensor]:
        """What made the output (`softmax`, `sigmoid`, or `` for anything else), and the tensor that stood before it."""
        made = output
        for call in reversed(self.calls):
            if call.result is made:
                if call.name in ENDINGS:
                    return ENDINGS[call.name], call.args[0] if call.args else call.kwargs["input"]
                if call.name not in RESHAPES:
                    break
                made = call.args[0]
        return "", output

    def size(self) -> int:
        """Bytes of all results together."""
        return sum(tensor.nbytes for call in self.calls for tensor in tensors_in(call.result))

    def _takers(self) -> dict[int, list[int]]:
        """For each tensor, by identity, the positions of the calls that compute with it."""
        takers: dict[int, list[int]] = {}
        for position, call in enumerate(self.calls):
            if call.mutates or next(tensors_in(call.result), None) is not None:
                for identity in {id(tensor) for tensor in tensors_in((call.args, call.kwargs))}:
                    takers.setdefault(identity, []).append(position)
        return takers

    def _followed_by(self, position: int, takers: Mapping[int, Sequence[int]]) -> tuple[str, ...] | None:
        """The chain of single calls from a use to the next linear layer or the end; None where it forks or joins."""
        found: list[str] = []
        while True:
            tensor = self.calls[position].result
            later = [taker for taker in takers.get(id(tensor), ()) if taker > position]
            if not later:
                return tuple(found)
            position = later[0]
            call = self.calls[position]
            in_place = call.result is tensor
            if len(later) > 1 and not in_place:
                return None
            if call.use is not None and call.use.kind.name != "norm":
                return tuple(found)
            if call.use is None and any(given is not tensor for given in tensors_in((call.args, call.kwargs))):
                return None
            if call.name not in PASSING:
                found.append(PLAIN.get(call.name, call.name))


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor inside nested tuples, lists and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
