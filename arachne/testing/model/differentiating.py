"""Checks of gradients and traces; each docstring is the sentence of the contract it checks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from arachne.adapting.plain_fit import plain_fit
from arachne.decisions.losses import cross_entropies, cross_entropy
from arachne.errors import UnknownLayerError, UsageError
from arachne.model.backend import Cut
from arachne.model.cut import weights_of
from arachne.model.fitting import Plan
from arachne.model.trace import PlainTrace
from arachne.model.values import Array
from arachne.testing.model.slopes import agree
from arachne.testing.model.subject import COARSE_DTYPES, NotHereError, Subject, equal, expect


def gradients_are_slopes(subject: Subject) -> None:
    """Gradients with respect to weights agree with finite differences of the scores."""
    subject.needs_gradients()
    keys = [(info.name, parameter) for info, parameter in subject.fine()]
    found = subject.backend.weight_gradients(subject.inputs, cross_entropy(subject.labels), keys)
    judged = 0
    for (layer, parameter), gradient in found.items():

        def loss(values: Array, layer: str = layer, parameter: str = parameter) -> float:
            subject.backend.set_weights(layer, parameter, values)
            return float(cross_entropies(subject.backend.forward(subject.inputs), subject.labels).mean())

        at = subject.backend.get_weights(layer)[parameter]
        judged += agree(at, gradient, loss, f"'{layer}.{parameter}'")
        subject.restore()
    if not judged:
        raise NotHereError("every direction crosses a kink, so that finite differences say nothing")


def chosen_gradients_are_those_among_all(subject: Subject) -> None:
    """Asking for some parameters gives the same gradients as asking for all, and no others."""
    subject.needs_gradients()
    loss = cross_entropy(subject.labels)
    whole = subject.backend.weight_gradients(subject.inputs, loss)
    for chosen in (list(whole)[-1:], list(whole)[::2], list(whole)[::-1], []):
        found = subject.backend.weight_gradients(subject.inputs, loss, chosen)
        expect(list(found) == chosen, f"asked for {chosen}, got {list(found)}")
        for key, values in found.items():
            subject.same(values, whole[key], ".".join(key))
    for layer, parameter in (("no_such_layer", "weight"), (subject.layers[0].name, "no_such_parameter")):
        try:
            subject.backend.weight_gradients(subject.inputs, loss, [(layer, parameter)])
        except UnknownLayerError:
            continue
        raise AssertionError(f"'{layer}.{parameter}' is taken without a word")


def a_loss_sees_each_row_once(subject: Subject) -> None:
    """A loss is shown the scores of every input once, in order, however they are batched."""
    subject.needs_gradients()
    seen: list[tuple[slice, Array]] = []

    def watching(scores: Array, rows: slice) -> Array:
        seen.append((rows, scores.copy()))
        return np.zeros_like(scores)

    subject.backend.weight_gradients(subject.inputs, watching)
    rows = [number for part, _ in seen for number in range(part.start, part.stop)]
    expect(rows == list(range(subject.n)), f"it is shown the rows {rows}")
    subject.same(np.concatenate([scores for _, scores in seen]), subject.scores, "the scores it is shown")


def output_gradients_are_slopes(subject: Subject) -> None:
    """Gradients at what leaves a layer agree with finite differences of scores continued from there."""
    subject.needs_gradients()
    seed, judged = _seed(subject), 0
    for info in subject.layers:
        cut = subject.backend.cut(subject.inputs, [info.name])
        if not cut.continues_from_outputs or info.kind == "recurrent":
            continue
        gradient = subject.backend.output_gradients(subject.inputs, info.name, seed)[0]

        def total(outputs: Array, cut: Cut = cut) -> float:
            return float((cut.scores_from_outputs(outputs).astype(np.float64) * seed).sum())

        judged += agree(cut.outputs(), gradient, total, f"'{info.name}'")
    if not judged:
        raise NotHereError("no cut of this model continues from outputs, so there is nothing to compare with")


def output_gradients_sum_to_those_of_a_bias(subject: Subject) -> None:
    """A bias is added to what leaves a layer, so its gradient is the sum of those over inputs, positions and uses."""
    subject.needs_gradients()
    seed, judged = _seed(subject), 0
    for info in subject.layers:
        if info.kind not in ("dense", "conv", "conv_transpose") or "bias" not in info.parameters:
            continue
        key = (info.name, "bias")
        found = subject.backend.weight_gradients(subject.inputs, lambda scores, rows: seed[rows], [key])
        gradients = subject.backend.output_gradients(subject.inputs, info.name, seed)
        axis = -1 if info.kind == "dense" else 1
        total = sum(np.moveaxis(each, axis, -1).reshape(-1, each.shape[axis]).sum(axis=0) for each in gradients)
        subject.same(np.asarray(total), found[key], f"'{info.name}'")
        judged += 1
    if not judged:
        raise NotHereError("no layer of this model has a bias")


def input_gradients_are_slopes(subject: Subject) -> None:
    """Gradients with respect to the inputs agree with finite differences, where a backend gives them."""
    subject.needs_gradients()
    if isinstance(subject.inputs, Mapping) or subject.inputs.dtype != np.float32:
        raise NotHereError("the inputs are several, or no float32 numbers")
    try:
        gradient = subject.backend.input_gradients(subject.inputs, cross_entropy(subject.labels))
    except UsageError as error:
        raise NotHereError(str(error)) from error

    def loss(inputs: Array) -> float:
        return float(cross_entropies(subject.backend.forward(inputs), subject.labels).mean())

    agree(subject.inputs, np.asarray(gradient), loss, "the inputs")


def training_is_gradient_steps(subject: Subject) -> None:
    """Training gives what gradient steps give, and the model keeps its weights; where a backend can train."""
    subject.needs_gradients()
    if not subject.backend.SUPPORTS_FIT:
        raise NotHereError("the backend says that it cannot train")
    if any(shape.dtype in COARSE_DTYPES for info in subject.backend.layers for shape in info.parameters.values()):
        raise NotHereError("the weights are half precision, too coarse for small steps")
    plan = Plan(batch=4, rate=0.05, optimiser="sgd")
    before = {key: values.copy() for key, values in weights_of(subject.backend).items()}
    found = subject.backend.fit(subject.inputs, subject.labels, plan)
    expected = plain_fit(subject.backend, subject.inputs, subject.labels, plan)
    for (layer, parameter), values in weights_of(subject.backend).items():
        own = before[layer, parameter]
        equal(values, own, f"'{layer}.{parameter}' after training")
        moved = found[layer, parameter] - own
        if moved.any():  # what its author has frozen stays
            subject.same(moved, expected[layer, parameter] - own, f"how training moves '{layer}.{parameter}'")


def a_trace_is_the_single_operations(subject: Subject) -> None:
    """A trace gives the activations and gradients that the single operations give."""
    subject.needs_gradients()
    names = [info.name for info in subject.layers]
    ours = subject.backend.trace(subject.inputs, names)
    plain = PlainTrace(subject.backend, subject.inputs, names)
    for name in names:
        for mine, theirs in zip(ours.activations[name], plain.activations[name], strict=True):
            subject.same(mine.leaving, theirs.leaving, f"what leaves '{name}'")
            expect(set(mine.entering) == set(theirs.entering), f"'{name}' is entered by {sorted(mine.entering)}")
            for parameter, values in theirs.entering.items():
                subject.same(mine.entering[parameter], values, f"what enters '{name}.{parameter}'")
    for seed in (_seed(subject), -2 * _seed(subject)):
        found, expected = ours.output_gradients(seed), plain.output_gradients(seed)
        for name in names:
            for gradient, other in zip(found[name], expected[name], strict=True):
                subject.same(gradient, other, f"the gradient at '{name}'")


def _seed(subject: Subject) -> Array:
    """A vector for each input's Jacobian, `(n, classes)`."""
    return np.random.default_rng(2).normal(size=subject.scores.shape).astype(np.float32)
