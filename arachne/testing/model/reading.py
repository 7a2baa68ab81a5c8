"""Checks of layers, weights, scores and activations; each docstring is the sentence of the contract it checks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from arachne.errors import ArachneError
from arachne.model.cut import weights_of
from arachne.model.values import WEIGHT_PARAMETERS, Activation, Array, Inputs, LayerInfo, take
from arachne.testing.model.subject import Subject, equal, expect
from arachne.testing.nodes import Conv

LAYER_KINDS = ("dense", "conv", "conv_transpose", "recurrent", "embedding", "norm")


def layers_are_listed(subject: Subject) -> None:
    """Each layer is listed once, with its kind and with its parameters, weight matrices first."""
    names = [info.name for info in subject.backend.layers]
    expect(len(set(names)) == len(names), f"a layer is listed twice: {names}")
    for info in subject.backend.layers:
        expect(info.kind in LAYER_KINDS, f"'{info.name}' is of the kind '{info.kind}'; known: {', '.join(LAYER_KINDS)}")
        first = next(iter(info.parameters), "nothing")
        expect(first in (*WEIGHT_PARAMETERS, "scale"), f"'{info.name}' lists '{first}' first")


def weights_are_as_listed(subject: Subject) -> None:
    """Weights come out with the names, shapes and dtypes that the layers list."""
    for info in subject.backend.layers:
        weights = subject.backend.get_weights(info.name)
        expect(list(weights) == list(info.parameters), f"'{info.name}' gives {list(weights)}")
        for parameter, values in weights.items():
            own, crossing = info.parameters[parameter], str(values.dtype).replace("float32", "bfloat16")
            message = f"'{info.name}.{parameter}' is {values.dtype} {values.shape}, listed as {own.dtype} {own.shape}"
            expect(values.shape == own.shape and own.dtype in (str(values.dtype), crossing), message)


def weights_are_copies(subject: Subject) -> None:
    """Changing what came out changes nothing in the model."""
    before = {key: values.copy() for key, values in weights_of(subject.backend).items()}
    for info in subject.layers:
        for values in subject.backend.get_weights(info.name).values():
            values += 1
    for key, values in weights_of(subject.backend).items():
        equal(values, before[key], f"'{'.'.join(key)}' afterwards")
    equal(subject.backend.forward(subject.inputs), subject.scores, "the scores afterwards")


def weights_come_back(subject: Subject) -> None:
    """Weights that were set come back bit for bit, and the others stay as they were."""
    expected = {key: values.copy() for key, values in weights_of(subject.backend).items()}
    for info in subject.layers:
        for key, values in subject.perturb(info.name).items():
            subject.backend.set_weights(*key, values)
            expected[key] = values.copy()
            values += 1  # copied, never kept
            for other, own in weights_of(subject.backend).items():
                equal(own, expected[other], f"'{'.'.join(other)}' after '{'.'.join(key)}' was set")


def scores_follow_weights(subject: Subject) -> None:
    """The model runs with the weights that were set, in every layer."""
    for info in subject.layers:
        subject.set(subject.perturb(info.name))
        scores = subject.backend.forward(subject.inputs)
        expect(not np.array_equal(scores, subject.scores), f"other weights in '{info.name}' change no score")
        subject.restore()


def scores_are_scores(subject: Subject) -> None:
    """Scores are finite float32 `(n, classes)`, and the same inputs give the same scores bit for bit."""
    scores = subject.backend.forward(subject.inputs)
    expect(scores.dtype == np.float32, f"scores are {scores.dtype}")
    expect(scores.ndim == 2 and len(scores) == subject.n, f"scores are {scores.shape} for {subject.n} inputs")
    expect(bool(np.isfinite(scores).all()), "some scores are infinite or not a number")
    equal(scores, subject.scores, "the second answer")
    kept = scores.copy()
    subject.backend.forward(take(subject.inputs, slice(0, 3)))
    equal(subject.backend.forward(subject.inputs), kept, "the answer after another question")
    equal(scores, kept, "an earlier answer, which belongs to the caller")


def inputs_come_in_any_number(subject: Subject) -> None:
    """Inputs come in any number, also one and none."""
    for rows in (slice(0, 0), slice(0, 1), slice(1, 4)):
        found = subject.backend.forward(take(subject.inputs, rows))
        subject.same(found, subject.scores[rows], f"the scores of inputs {rows.start} to {rows.stop}")
        predicted = subject.backend.predict(take(subject.inputs, rows)).shape
        expect(predicted == found.shape[:1], f"predictions of {len(found)} inputs are {predicted}")


def wrong_inputs_are_refused(subject: Subject) -> None:
    """Inputs of another shape are refused with one of Arachne's own errors."""
    wrong: list[Inputs]
    if isinstance(subject.inputs, Mapping):
        wrong = [dict(list(subject.inputs.items())[1:]) or {"none": np.zeros((3, 1), np.float32)}]
    else:
        wrong = [np.stack([subject.inputs[:3]] * 2, axis=-1), subject.inputs[:3].reshape(3, -1, 1, 1, 1, 1)]
    for inputs in wrong:
        try:
            subject.backend.forward(inputs)
        except ArachneError:
            continue
        except Exception as error:
            raise AssertionError(f"they lead to a {type(error).__name__}, expected a DataError") from error
        raise AssertionError("they are taken without a word")


def activations_fit_the_weights(subject: Subject) -> None:
    """A layer's inputs, taken through its weights in the canonical layout, give its outputs, in every use."""
    for info in subject.layers:
        found = subject.backend.activations(subject.inputs, info.name)
        expect(len(found) == info.uses, f"'{info.name}' has {len(found)} uses here, and lists {info.uses}")
        for use in found:
            expected = _through(info, use, subject.backend.get_weights(info.name))
            if expected is not None:
                subject.same(use.leaving, expected, f"'{info.name}'")


def a_model_tells_what_it_is(subject: Subject) -> None:
    """The description names the backend, the framework, the format, the device and the kind of scores."""
    description = subject.backend.describe()
    expect(
        description.backend == subject.backend.NAME,
        f"it says '{description.backend}' of backend '{subject.backend.NAME}'",
    )
    expect(description.scores in ("logits", "log-probabilities"), f"scores are '{description.scores}'")
    expect(description.scores == subject.backend.score_kind, f"scores are '{subject.backend.score_kind}' elsewhere")
    expect(all((description.framework, description.format, description.device)), f"something is empty: {description}")


def _through(info: LayerInfo, use: Activation, weights: Mapping[str, Array]) -> Array | None:
    """Compute a layer's outputs from its inputs; None for a layer whose kind does not tell how."""
    if use.transposed or info.kind not in ("dense", "conv", "embedding", "norm"):
        return None
    if info.kind == "norm":
        entering, axis = use.entering["scale"], 1
        shape = [1] * entering.ndim
        if entering.shape[axis] != len(weights["scale"]) or entering.shape[-1] == len(weights["scale"]):
            axis = entering.ndim - 1
        shape[axis] = -1
        found: Array = entering * weights["scale"].reshape(shape)
        return found + weights["bias"].reshape(shape) if "bias" in weights else found
    entering = use.entering["weight"]
    if info.kind == "embedding":
        rows: Array = weights["weight"][entering.astype(np.int64)]
        return rows
    if info.kind == "dense":
        product: Array = entering @ weights["weight"].T
        return product + weights["bias"] if "bias" in weights else product
    if info.geometry is None:
        return None
    walk = info.geometry
    node = Conv(info.name, "input", weights["weight"], None, walk.stride, walk.padding, walk.dilation, walk.groups)
    return node.forward([entering], {name: values for name, values in weights.items() if name in ("weight", "bias")})
