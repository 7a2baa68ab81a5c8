"""Seeing the torch calls of a pass: layers by the identity of their weights, and the whole pass as a recording.

Everything rests on `TorchFunctionMode`: torch hands us every call made inside it, whether it comes from a module, from
functional code or from an exported program's graph. No hooks are put on the user's model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from arachne_torch.following_ops import op_name
from arachne_torch.kinds import LayerUse
from arachne_torch.layers import Layer, gather, recognise, written_out
from arachne_torch.output_head import MAX_SOFTMAX_AXES, OUTPUT_HEADS, RESHAPES
from arachne_torch.tensor_ids import TensorIds, operation, tensors_in

OnUses = Callable[[Sequence[LayerUse], Callable[[], Any]], Any]
"""Called with the uses of layers that a call is, and a function that runs the call; gives the call's result."""


class Watch(TorchFunctionMode):
    """Watches the calls of one pass: remembers the input of a softmax or sigmoid, reports the uses of layers.

    Args:
        tensor_ids: The model's tensors by identity.
        on_uses: Takes the place of calls that use layers.
    """

    def __init__(self, tensor_ids: TensorIds | None = None, on_uses: OnUses | None = None) -> None:
        super().__init__()
        self._tensor_ids = tensor_ids
        self._on_uses = on_uses
        self._behind: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._tensor_ids is not None and self._on_uses is not None:
            shown = written_out(func, args, kwargs)
            if shown is not None:
                with self:
                    return shown()
            uses = recognise(func, args, kwargs, self._tensor_ids)
            if uses:
                return self._on_uses(uses, lambda: func(*args, **kwargs))
        result = func(*args, **kwargs)
        if self._tensor_ids is not None:
            self._tensor_ids.note(func, args, result)
        name = operation(func)
        if name in OUTPUT_HEADS and (name == "sigmoid" or result.ndim < MAX_SOFTMAX_AXES):
            self._behind[id(result)] = (result, args[0] if args else kwargs["input"])
        elif name in RESHAPES and args and id(args[0]) in self._behind:
            self._behind[id(result)] = (result, self._behind[id(args[0])][1])
        return result

    def behind(self, output: Tensor) -> Tensor:
        """Return the input of the softmax or sigmoid that made this output, in the shape of the output."""
        return self._behind[id(output)][1].reshape(output.shape)


@dataclass(frozen=True, eq=False)
class Call:
    """One torch call of a pass, with the objects themselves."""

    func: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any
    uses: tuple[LayerUse, ...]
    mutates: bool

    @property
    def name(self) -> str:
        """The call's name without its overload."""
        return operation(self.func)


class Listener(TorchFunctionMode, ABC):
    """Is called after every call of one pass, with attention written out.

    Args:
        tensor_ids: The model's tensors by identity.
    """

    def __init__(self, tensor_ids: TensorIds) -> None:
        super().__init__()
        self._tensor_ids = tensor_ids

    @abstractmethod
    def on_call(self, call: Call) -> None:
        """Called after each call, before its result is handed on."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        shown = written_out(func, args, kwargs)
        if shown is not None:
            with self:
                return shown()
        call = self._run_call(func, args, kwargs)
        self.on_call(call)
        return call.result

    def _run_call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        before = [(tensor, tensor._version) for tensor in tensors_in((args, kwargs))]
        result = func(*args, **kwargs)
        mutates = any(tensor._version != version for tensor, version in before)
        uses = recognise(func, args, kwargs, self._tensor_ids)
        self._tensor_ids.note(func, args, result)
        return Call(func, args, kwargs, result, uses, mutates)


class Recorder(Listener):
    """Keeps every call of one pass; meant for a handful of inputs, since every tensor stays alive."""

    def __init__(self, tensor_ids: TensorIds) -> None:
        super().__init__(tensor_ids)
        self.calls: list[Call] = []

    def on_call(self, call: Call) -> None:
        self.calls.append(call)

    def layers(self, tensors: Mapping[str, Tensor]) -> dict[str, Layer]:
        """The layers used, in order of execution."""
        layers = gather((use for call in self.calls for use in call.uses), tensors)
        takers = self._takers()
        for position, call in enumerate(self.calls):
            for use in call.uses:
                if layers[use.layer].info.uses == 1 and len(call.uses) == 1 and use.kind.continues:
                    layer = layers[use.layer]
                    info = replace(layer.info, followed_by=self._followed_by(position, takers))
                    layers[use.layer] = replace(layer, info=info)
        return layers

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
        """Name the calls from a use to the next linear layer or the end; None at a fork, a join or an unknown call."""
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
            if any(use.kind.name != "norm" for use in call.uses):
                return tuple(found)
            if call.uses or any(given is not tensor for given in tensors_in((call.args, call.kwargs))):
                return None
            word = op_name(call.name, call.args, call.kwargs, tensor, call.result)
            if word is None:
                return None
            found += [word] if word else []
