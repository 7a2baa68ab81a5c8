"""Weights that a module computes from other parameters: weight norm, old and new, and parametrisations.

A layer's weight is then no parameter. If the parameters it is made from can be chosen so that it takes any value, it is
repaired like any other: gradients are those of the weight itself, and setting it sets those parameters. So a patch
names the weight, and fits an export that stores the weight itself. If they cannot (spectral norm, orthogonal matrices:
another weight would violate the constraint), the parameters stay out of reach.
"""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.weight_norm import WeightNorm

NEW_STYLE = "parametrizations"
"""The part of a module in which parametrisations live, and so of the names of their parameters."""


class DerivedWeight(ABC):
    """One weight that a module computes.

    Attributes:
        holder: The module.
        member: The weight's name in it.
        originals: The parameters it is made from, by their names in the whole model.
    """

    def __init__(self, holder: nn.Module, member: str, originals: Mapping[str, Tensor]) -> None:
        self.holder, self.member, self.originals = holder, member, dict(originals)
        self._found = {name: tensor.detach().clone() for name, tensor in originals.items()}
        self._first = self.value()

    @abstractmethod
    def value(self) -> Tensor:
        """The weight as the originals make it now, without a graph."""

    @abstractmethod
    def inverse(self, weight: Tensor) -> tuple[Tensor, ...]:
        """Compute the originals, in their order, that give this weight."""

    @abstractmethod
    def override(self, weight: Tensor) -> contextlib.AbstractContextManager[None]:
        """Replace the computed weight by a tensor for a while."""

    def put(self, weight: Tensor) -> None:
        """Set the originals so that they give this weight; the initial weight restores the initial originals."""
        made: tuple[Tensor, ...] = tuple(self._found.values())
        if not torch.equal(weight, self._first):
            made = self.inverse(weight)
        with torch.no_grad():
            for original, values in zip(self.originals.values(), made, strict=True):
                original.copy_(values)


class WeightNormed(DerivedWeight):
    """Old weight norm, which computes the weight in a hook before the module's call."""

    def __init__(self, holder: nn.Module, hook: WeightNorm, originals: Mapping[str, Tensor]) -> None:
        self._hook = hook
        super().__init__(holder, hook.name, originals)

    def value(self) -> Tensor:
        g, v = self.originals.values()
        return torch._weight_norm(v.detach(), g.detach(), self._hook.dim)

    def inverse(self, weight: Tensor) -> tuple[Tensor, ...]:
        g, v = (tensor.detach() for tensor in self.originals.values())
        return decompose_weight(weight, g, v, self._hook.dim)

    @contextlib.contextmanager
    def override(self, weight: Tensor) -> Iterator[None]:
        kept = self.holder.__dict__.get(self.member)
        self._hook.__dict__["compute_weight"] = lambda module: weight
        self.holder.__dict__[self.member] = weight
        try:
            yield
        finally:
            del self._hook.__dict__["compute_weight"]
            self.holder.__dict__[self.member] = kept


class ParametrisedWeight(DerivedWeight):
    """A weight with one or more of torch's parametrisations, weight norm among them."""

    def __init__(self, holder: nn.Module, member: str, originals: Mapping[str, Tensor]) -> None:
        self._steps: Any = holder.get_submodule(f"{NEW_STYLE}.{member}")
        super().__init__(holder, member, originals)

    def value(self) -> Tensor:
        return self._build_weight(*(tensor.detach() for tensor in self.originals.values()))

    def inverse(self, weight: Tensor) -> tuple[Tensor, ...]:
        first = self._steps[0]
        with torch.no_grad():
            for step in reversed(list(self._steps)[1:]):
                weight = step.right_inverse(weight)
            if type(first).__name__ == "_WeightNorm":
                g, v = (tensor.detach() for tensor in self.originals.values())
                return decompose_weight(weight, g, v, first.dim)
            made = first.right_inverse(weight)
        return (made,) if isinstance(made, Tensor) else tuple(made)

    def is_free(self) -> bool:
        """Whether the weight can take any value; tested with one far from the current value."""
        weight = self.value()
        noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)).to(weight)
        wanted = weight.roll(1, 0) + noise * weight.std(correction=0).clamp_min(1e-3)
        try:
            made = self._build_weight(*self.inverse(wanted))
        except Exception:  # a parametrisation is the user's code: it may refuse a weight in any way, or have no inverse
            return False
        return made.shape == wanted.shape and torch.allclose(made, wanted, rtol=1e-4, atol=1e-6)

    def _build_weight(self, *originals: Tensor) -> Tensor:
        flags = [(part, part.training) for part in self._steps.modules()]
        try:
            self._steps.eval()
            with torch.no_grad():
                weight: Tensor = self._steps[0](*originals)
                for step in list(self._steps)[1:]:
                    weight = step(weight)
        finally:
            for part, flag in flags:
                part.training = flag
        return weight

    @contextlib.contextmanager
    def override(self, weight: Tensor) -> Iterator[None]:
        self._steps.__dict__["forward"] = lambda: weight
        try:
            yield
        finally:
            del self._steps.__dict__["forward"]


def find_derived(module: nn.Module) -> dict[str, DerivedWeight]:
    """Find the derived weights that can take any value, by the names they would have as parameters."""
    found: dict[str, DerivedWeight] = {}
    for path, part in module.named_modules():
        prefix = f"{path}." if path else ""
        if parametrize.is_parametrized(part):
            for member, steps in part.get_submodule(NEW_STYLE).named_children():
                names = {f"{prefix}{NEW_STYLE}.{member}.{name}": tensor for name, tensor in _originals(steps)}
                derived = ParametrisedWeight(part, member, names)
                if all(tensor.is_floating_point() for tensor in names.values()) and derived.is_free():
                    found[prefix + member] = derived
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm):
                own = {f"{prefix}{hook.name}{end}": getattr(part, hook.name + end) for end in ("_g", "_v")}
                found[prefix + hook.name] = WeightNormed(part, hook, own)
    return found


def _originals(steps: nn.Module) -> list[tuple[str, Tensor]]:
    """A parametrisation's own parameters, in the order in which it takes them."""
    return [(name, tensor) for name, tensor in steps.named_parameters(recurse=False) if name.startswith("original")]


def decompose_weight(weight: Tensor, g: Tensor, v: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Decompose a weight into length and direction, bit for bit; unchanged rows keep their length and direction.

    Args:
        weight: The weight that is wanted.
        g: The lengths as they are.
        v: The directions as they are.
        dim: The axis along which there is one length for each row; -1 for one length in all.
    """
    with torch.no_grad():
        lengths = torch.norm_except_dim(weight, 2, dim)
        if dim in (0, weight.ndim - 1):  # the kernel that torch has for these sums up in another order
            with contextlib.suppress(RuntimeError):
                lengths = torch._weight_norm_interface(weight.contiguous(), lengths, dim)[1].reshape(g.shape).to(g)
        same = torch._weight_norm(v, g, dim) == weight
        stays = same.all() if dim == -1 else same.movedim(dim, 0).flatten(1).all(1).reshape(g.shape)
        kept = stays | (lengths == 0)  # a direction of no length would be no number
        return torch.where(stays, g, lengths), torch.where(kept, v, weight)


def axis_of(g: Tensor, v: Tensor) -> int:
    """The axis along which weight norm has one length for each row, from the shapes; -1 for one length in all."""
    return next((axis for axis, size in enumerate(g.shape) if size == v.shape[axis] and size > 1), 0 if g.ndim else -1)


def normed_pairs(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[str, str]]:
    """In a state dict, the lengths and directions of weight norm by the name of the weight they make."""
    found = {}
    for pattern, length, direction in ((_NEW_PAIR, "original0", "original1"), (_OLD_PAIR, "_g", "_v")):
        for name, shape in shapes.items():
            pair = pattern.fullmatch(name)
            other = name.removesuffix(length) + direction
            if pair is not None and _is_length(shape, shapes.get(other, ())):
                found[f"{pair[1]}{pair[2]}"] = (name, other)
    return found


def _is_length(short: tuple[int, ...], long: tuple[int, ...]) -> bool:
    """Whether one tensor may hold the lengths of the rows of another, along one axis or of all of it."""
    if not short or len(short) != len(long):
        return not short and len(long) > 1
    fits = all(size in (1, whole) for size, whole in zip(short, long, strict=True))
    return len(long) > 1 and fits and sum(size != 1 for size in short) <= 1


_NEW_PAIR = re.compile(rf"((?:.*\.)?){NEW_STYLE}\.(\w+)\.original0")
_OLD_PAIR = re.compile(r"((?:.*\.)?)((?:weight|bias)\w*)_g")
