"""The steps of an LSTM as one call with a hand-written derivative.

Recorded step by step, a backward pass through an LSTM runs some fifteen small calls for each step, and localisation
takes one such pass for each class. Here all factors that do not depend on the seed are computed once, for all steps
together, and five calls are left.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class LSTMSteps(torch.autograd.Function):
    """Maps the inputs' part of the gates to the states; it has no gradients of weights."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        probe: Tensor,
        state: Tensor,
        cell: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        backwards: bool,
    ) -> tuple[Tensor, ...]:
        """Run all steps.

        Args:
            ctx: What is kept for the backward pass.
            inputs: What the inputs bring to the gates `(steps, n, 4 * units)`.
            probe: Zeros `(n, steps, 4 * units)`; their gradient is that of the gates.
            state: The first state `(n, units)`.
            cell: The first cell `(n, units)`.
            weight: From a state to the gates, `(4 * units, units)`.
            bias: The bias of that map.
            backwards: Whether the last step is the first.

        Returns:
            New states and, not differentiable, states before each step `(steps, n, units)` and gates; the last state
            and cell.
        """
        before, gates, cells, after = [], [], [cell], []
        order = range(len(inputs))[::-1] if backwards else range(len(inputs))
        for t in order:
            before.append(state)
            gates.append(inputs[t] + functional.linear(state, weight, bias))
            i, f, g, o = gates[-1].chunk(4, -1)
            cells.append(f.sigmoid() * cells[-1] + i.sigmoid() * g.tanh())
            state = o.sigmoid() * cells[-1].tanh()
            after.append(state)
        if backwards:
            before, gates, after = before[::-1], gates[::-1], after[::-1]
        stacked = torch.stack(gates)
        if any(ctx.needs_input_grad):
            old, new = (torch.stack(own[::-1] if backwards else own) for own in (cells[:-1], cells[1:]))
            ctx.factors = _factors(stacked, old, new)
            ctx.weight, ctx.order = weight, order
        outputs, states = torch.stack(after), torch.stack(before)
        ctx.mark_non_differentiable(states, stacked)
        return outputs, states, stacked, state.clone(), cells[-1].clone()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        """Back through the steps, once for each seed."""
        outputs, _, _, state, cell = given
        three, last, through, kept = ctx.factors
        gates = torch.empty((*three.shape[:2], 4, three.shape[-1]), dtype=three.dtype, device=three.device)
        for t in reversed(ctx.order):
            state = state + outputs[t]
            cell = torch.addcmul(cell, state, through[t])
            torch.mul(cell.unsqueeze(1), three[t], out=gates[t][:, :3])
            torch.mul(state, last[t], out=gates[t][:, 3])
            cell = cell * kept[t]
            state = gates[t].flatten(1) @ ctx.weight
        found = gates.flatten(2)
        return found, found.transpose(0, 1), state, cell, None, None, None


def _factors(gates: Tensor, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the factors of the gradients at each step.

    Args:
        gates: What the gates are computed from, `(steps, n, 4 * units)`.
        old: The cells before each step `(steps, n, units)`.
        new: The cells behind each step.

    Returns:
        From a cell to the gates i, f and g, `(steps, n, 3, units)`; from a state to the gate o, from a state to its
        cell, and from a cell to the one before it, all `(steps, n, units)`.
    """
    i, f, g, o = gates.chunk(4, -1)
    i, f, g, o, new = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid(), new.tanh()
    three = torch.stack([g * i * (1 - i), old * f * (1 - f), i * (1 - g * g)], 2)
    return three, new * o * (1 - o), o * (1 - new * new), f
