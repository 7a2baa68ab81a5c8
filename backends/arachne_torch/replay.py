"""A TorchScript module run node by node, so that its calls can be seen as those of any other module.

TorchScript computes where no call can be watched. Its graph is known, though: `Replay` walks through it and makes every
call itself, with the module's own tensors as ordinary parameters and buffers. Only a file whose code is trusted comes
here, since loading TorchScript can run any code.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from arachne.errors import DataError, ModelError
from arachne.io.user_code import user_code

Values = dict[str, Any]
"""The graph's values by name."""


def load_script(path: Path) -> nn.Module:
    """The module of a TorchScript file, its training behaviour switched off.

    Raises:
        ModelError: torch cannot load it, or it has an unsupported node.
    """
    with user_code(f"the code in '{path.name}'", ModelError):
        script = torch.jit.load(path, map_location="cpu").eval()  # type: ignore[no-untyped-call]  # torch's
        graph = script.inlined_graph
    return Replay(script, graph)


class Replay(nn.Module):
    """Makes the calls of a TorchScript graph one by one.

    Args:
        script: The module; its tensors are shared, not copied.
        graph: Its graph, all methods written out.
    """

    def __init__(self, script: Any, graph: Any) -> None:
        super().__init__()
        self._script, self._graph = [script], graph  # in a list, so that it is no part of this module
        self._names: dict[int, str] = {}
        for name, tensor in script.named_parameters():
            _hold(self, name).register_parameter(name.rpartition(".")[2], nn.Parameter(tensor.detach(), False))
            self._names.setdefault(tensor.data_ptr(), name)
        for name, tensor in script.named_buffers():
            _hold(self, name).register_buffer(name.rpartition(".")[2], tensor.detach())
        _check(graph)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The module's answer."""
        _, *declared = (value.debugName() for value in self._graph.inputs())
        given = dict(zip(declared, inputs, strict=False))
        plain = {name.partition(".")[0]: name for name in declared}
        given |= {plain[name]: value for name, value in named.items() if name in plain}
        if len(given) != len(declared) or len(inputs) + len(named) != len(declared):
            raise DataError(f"the model takes {len(declared)} inputs ({', '.join(plain)})")
        values: Values = {next(self._graph.inputs()).debugName(): "", **given}
        results = self._run(self._graph, values)
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, block: Any, values: Values) -> list[Any]:
        for node in block.nodes():
            found = self._step(node, node.kind(), values)
            names = [value.debugName() for value in node.outputs()]
            values.update(zip(names, [found] if len(names) == 1 else found or (), strict=True))
        returned = block.returnNode() if isinstance(block, torch._C.Block) else block.return_node()
        return [values[value.debugName()] for value in returned.inputs()]

    def _step(self, node: Any, kind: str, values: Values) -> Any:
        given = [values[value.debugName()] for value in node.inputs()]
        if kind == "prim::GetAttr":
            return self._attribute(given[0], node.s("name"), node.output())
        if kind == "prim::Constant":
            return node.output().toIValue()
        if kind == "prim::If":
            found = self._run(list(node.blocks())[0 if given[0] else 1], values)
            return found[0] if len(found) == 1 else found
        if kind == "prim::Loop":
            found = self._loop(node, given, values)
            return found[0] if len(found) == 1 else found
        if kind in STEPS:
            return STEPS[kind](*given)
        return _call(node)(given)

    def _loop(self, node: Any, given: Sequence[Any], values: Values) -> list[Any]:
        """Run a loop of at most the first value's number of rounds, while its condition is true."""
        most, going, *carried = given
        (block,) = node.blocks()
        names = [value.debugName() for value in block.inputs()]
        for number in range(most):
            if not going:
                break
            values.update(zip(names, [number, *carried], strict=True))
            going, *carried = self._run(block, values)
        return list(carried)

    def _attribute(self, path: Any, name: str, output: Any) -> Any:
        """Return a submodule or a value by path: our parameters and buffers, with training switched off."""
        full = f"{path}.{name}" if path else name
        if output.type().kind() == "ClassType":
            return full
        if name == "training":
            return False
        holder: Any = self.get_submodule(str(path)) if _has(self, str(path)) else None
        if holder is not None and (name in holder._parameters or name in holder._buffers):
            return getattr(holder, name)
        value = self._script[0]
        for part in full.split("."):
            value = getattr(value, part)
        if isinstance(value, (list, tuple)) and all(isinstance(item, Tensor) for item in value):
            return [self._own(item) for item in value]
        return value

    def _own(self, tensor: Tensor) -> Tensor:
        """Our parameter that shares a tensor's numbers, as it stands now; recurrent modules list theirs."""
        name = self._names.get(tensor.data_ptr())
        if name is None:
            return tensor
        path, _, member = name.rpartition(".")
        found = self.get_submodule(path)._parameters[member]
        return tensor if found is None else found


def _hold(root: nn.Module, name: str) -> nn.Module:
    """The part of a module that holds the tensor of that name; made where it is not there."""
    for part in name.split(".")[:-1]:
        if part not in root._modules:
            root.add_module(part, nn.Module())
        root = root.get_submodule(part)
    return root


def _has(root: nn.Module, path: str) -> bool:
    return not path or path in dict(root.named_modules())


def _raise(message: str, *_: Any) -> None:
    raise DataError(f"the model refuses the inputs: {message}")


STEPS: Mapping[str, Callable[..., Any]] = {
    "prim::ListConstruct": lambda *items: list(items),
    "prim::TupleConstruct": lambda *items: items,
    "prim::TupleUnpack": lambda items: items if len(items) > 1 else items[0],
    "prim::ListUnpack": lambda items: items if len(items) > 1 else items[0],
    "prim::TupleIndex": operator.getitem,
    "prim::NumToTensor": torch.tensor,
    "prim::unchecked_cast": lambda value: value,
    "prim::unchecked_unwrap_optional": lambda value: value,
    "prim::Uninitialized": lambda: None,
    "prim::RaiseException": _raise,
    "prim::dtype": lambda tensor: tensor.dtype,
    "prim::device": lambda tensor: tensor.device,
    "prim::is_cuda": lambda tensor: tensor.is_cuda,
    "prim::min": min,
    "prim::max": max,
    "prim::data": lambda tensor: tensor.detach(),
    "aten::Int": int,
    "aten::IntImplicit": int,
    "aten::Float": float,
    "aten::FloatImplicit": float,
    "aten::Bool": bool,
    "aten::ScalarImplicit": lambda tensor: tensor.item(),
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::__not__": operator.not_,
    "aten::__contains__": operator.contains,
    "aten::format": lambda text, *values: text.replace("{}", "%s") % values,
    "aten::len": len,
    "aten::list": list,
    "aten::warn": lambda *_: None,
}
"""The steps that are plain Python."""

PLAIN = frozenset({"__getitem__", "eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "floordiv", "neg"})
"""Calls that run in Python if no argument is a tensor, such as those on sizes."""


def _call(node: Any) -> Callable[[Sequence[Any]], Any]:
    """The torch call a node is, on its values in order."""
    schema = torch._C.parse_schema(node.schema())
    name = schema.name.partition("::")[2]
    tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    if name in PLAIN and not tensors:
        plain: Callable[..., Any] = getattr(operator, name)
        return lambda given: plain(*given)
    function = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default")
    keywords = [argument.name if argument.kwarg_only else None for argument in schema.arguments]

    def call(given: Sequence[Any]) -> Any:
        positional = [value for key, value in zip(keywords, given, strict=True) if key is None]
        named = {key: value for key, value in zip(keywords, given, strict=True) if key is not None}
        return function(*positional, **named)

    return call


def _check(block: Any) -> None:
    """Refuse unsupported nodes before anything runs."""
    for node in block.nodes():
        kind = node.kind()
        known = kind in STEPS or kind in ("prim::GetAttr", "prim::Constant", "prim::If", "prim::Loop")
        if not known and not kind.startswith("aten::"):
            raise ModelError(
                f"the TorchScript model uses '{kind}', which cannot be run step by step; open the module it was made of"
            )
        for inner in node.blocks():
            _check(inner)
