"""Check that the model does better than chance; if not, try common preprocessings, one of which usually helps."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from arachne.data.image_steps import CHANNELS
from arachne.data.preprocess import Preprocess
from arachne.errors import ArachneError, DataError
from arachne.model.values import Array, Inputs, take
from arachne.tasks import correct
from arachne.text import percent

if TYPE_CHECKING:
    from arachne.data.labelled import LabelledData
    from arachne.data.part import Part
    from arachne.model.backend import ModelBackend

TRIAL_INPUTS = 500
"""The most inputs each preprocessing is tried on."""

MIN_INPUTS = 20
"""The fewest inputs for the check: with fewer, a bad model cannot be told from chance."""

MIN_OVERCONFIDENCE = 0.1
"""A model that is surer than right by less is not suspected of another preprocessing."""

MIN_GAIN = 0.2
"""A preprocessing must raise the accuracy by so much before a model is said to be fed otherwise than it was trained.

With a planted fault, turning the trigger's pixel into another value raised it by a tenth.
"""

MIN_ABOVE_ONE_CLASS = 0.05
"""So much more than the most frequent class for every input: small values make many a model say one class only."""

MIN_GAIN_OF_BYTES = 0.01
"""For inputs from 0 to 255 this gain by dividing them suffices: a model that was trained on such inputs loses by it."""

AS_BYTES, BYTES = "scale=1/255", (128.0, 255.0)
"""Inputs whose largest value lies between these look like bytes, and are tried in this scale."""

MIN_PIXELS = 64
"""Rows of fewer numbers are no pictures."""

AS_IT_IS = "as it is"
IMAGENET = "mean=0.485,0.456,0.406 std=0.229,0.224,0.225"


@dataclass(frozen=True)
class Trial:
    """One preprocessing: its text (empty: inputs as they are), and the accuracy, or why it cannot run."""

    text: str
    accuracy: float | None
    reason: str = ""


def near_chance(accuracy: float, n_classes: int) -> bool:
    """Whether `accuracy <= min(2 * c, c + 0.1 * (1 - c))`, where `c = 1 / n_classes` is the accuracy of guessing."""
    chance = 1 / n_classes
    return accuracy <= min(2 * chance, chance + 0.1 * (1 - chance))


def check_accuracy(
    backend: ModelBackend,
    part: Part,
    *,
    raw: Callable[[], tuple[Inputs, Array]] | None = None,
    signs: Sequence[str] = (),
) -> None:
    """Stop when the model does no better than guessing, and show how it does under the common preprocessings.

    Args:
        backend: The original model.
        part: The inputs it was run on.
        raw: Returns the inputs before preprocessing and their labels; called only if they are needed.
        signs: What else looks sick, told below the table.

    Raises:
        DataError: Accuracy near chance; the message ends in a table.
    """
    if len(part) < MIN_INPUTS or not part.task.SINGLE:  # preprocessings are compared by one label for each input
        return
    accuracy = len(part.positives) / max(1, len(part.decisions))
    found = find_misreading(backend, part, accuracy, raw)
    if found is not None:
        raise DataError(found.sentence, below=[*found.table, *signs])


@dataclass(frozen=True)
class Misreading:
    """A model that does worse than it should on some inputs.

    Attributes:
        sentence: How it does.
        table: Lines with its accuracy under the common preprocessings.
        cured: Whether one of them makes it clearly better.
    """

    sentence: str
    table: list[str]
    cured: bool


def find_misreading(
    backend: ModelBackend, part: Part, accuracy: float, raw: Callable[[], tuple[Inputs, Array]] | None = None
) -> Misreading | None:
    """Find out whether inputs are read otherwise than the model was trained; None if nothing speaks for it.

    That is said of a model near chance, of one that is far surer than it is right, if one of the common
    preprocessings makes it clearly better, and of pictures from 0 to 255 if it is better on values from 0 to 1.
    """
    guessing = near_chance(accuracy, part.n_classes)
    scores = part.scores
    sure = float(confidence(scores).mean()) if len(scores) else 0.0
    if not guessing and backend.remote is not None:
        return None  # workers would have to be sent the inputs of every trial
    as_bytes = None if guessing else _find_bytes(backend, part.data)
    if as_bytes is not None or (not guessing and sure - accuracy < MIN_OVERCONFIDENCE):
        return as_bytes
    inputs, labels, given = part.data.inputs, part.data.labels, part.data.preprocessing
    if raw is not None:
        (inputs, labels), given = raw(), str(Preprocess.parse(given).split_images()[0])
    trials = compare_preprocessings(backend, inputs, labels, given)
    best = trials[0].accuracy or 0.0
    constant = float(np.bincount(labels).max()) / max(1, len(labels))  # what one class for every input would give
    cured = best >= max(accuracy + MIN_GAIN, constant + MIN_ABOVE_ONE_CLASS) and bool(trials[0].text)
    if not guessing and not cured:
        return None
    problem = f"the model is right on {percent(accuracy)} of {len(part)} inputs, which is "
    problem += f"near chance for {part.n_classes} classes" if guessing else f"far below its confidence, {percent(sure)}"
    if cured:
        problem += f"; the preprocessing '{trials[0].text}' gives {percent(best)}"
    sentence, table = advice(trials, problem)
    if not isinstance(inputs, Mapping) and len(inputs.shape) == 2:
        table.append("  of a table, check that the columns are in the order the model was trained with")
    return Misreading(sentence, table, cured)


def _find_bytes(backend: ModelBackend, data: LabelledData) -> Misreading | None:
    """Find out whether pictures are handed over as bytes to a model that does better on values from 0 to 1."""
    inputs, labels = data.inputs, data.labels
    if isinstance(inputs, Mapping):
        return None
    rows = _trial_rows(len(labels))
    sample = np.asarray(take(inputs, rows))
    if not _are_pictures(sample) or sample.dtype.kind not in "uif":
        return None
    if sample.min() < 0 or not BYTES[0] < sample.max() <= BYTES[1]:
        return None
    divided, whole = (_try(backend, text, sample, labels[rows]).accuracy for text in (AS_BYTES, ""))
    if divided is None or whole is None or divided < whole + MIN_GAIN_OF_BYTES:
        return None
    wanted = shlex.quote(f"{data.preprocessing} {AS_BYTES}".strip())
    sentence = (
        f"the inputs go up to {sample.max():g}; divided by 255, the model is right on {percent(divided)} of "
        f"{len(rows)} of them, as they are on {percent(whole)}: give --preprocess {wanted}"
    )
    return Misreading(sentence, [], cured=True)


def _are_pictures(inputs: Array) -> bool:
    """Return whether inputs may be pictures, and not the rows of a table."""
    return inputs.ndim > 2 or (inputs.ndim == 2 and inputs.shape[1] >= MIN_PIXELS)


def _trial_rows(number: int) -> Array:
    """Return the numbers of the inputs that preprocessings are tried on."""
    return np.unique(np.linspace(0, number - 1, min(TRIAL_INPUTS, number)).astype(np.int64))


def confidence(scores: Array) -> Array:
    """Return how sure a model is of its decisions `(n,)`, from logits or log-probabilities `(n, classes)`."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(1 / np.exp(shifted).sum(axis=1))


def compare_preprocessings(backend: ModelBackend, inputs: Inputs, labels: Array, given: str = "") -> list[Trial]:
    """Measure the model under the common preprocessings, the best first; those that cannot run last.

    Args:
        backend: The original model.
        inputs: The inputs before preprocessing.
        labels: Their classes `(n,)`.
        given: The steps that these inputs have gone through already; the trials' texts begin with them.
    """
    if isinstance(inputs, Mapping):
        return [_try(backend, "", inputs, labels)]
    rows = _trial_rows(len(labels))
    sample, chosen = np.asarray(take(inputs, rows)), labels[rows]
    trials = []
    for shape in _shapes(sample):
        first = _try(backend, shape, sample, chosen)
        trials.append(first)
        if first.accuracy is None:  # a shape that does not fit does not fit with other values either
            continue
        for values in _values(sample):
            trials.append(_try(backend, f"{values} {shape}".strip(), sample, chosen))
    trials = [replace(trial, text=f"{given} {trial.text}".strip()) if trial.text else trial for trial in trials]
    return sorted(trials, key=lambda trial: -1.0 if trial.accuracy is None else trial.accuracy, reverse=True)


def advice(trials: Sequence[Trial], problem: str) -> tuple[str, list[str]]:
    """Return a sentence about the problem, and the lines of a table of trials to print below it."""
    width = max(len(trial.text or AS_IT_IS) for trial in trials)
    lines = [
        f"  {trial.text or AS_IT_IS:<{width}}  "
        + (f"{percent(trial.accuracy):>6}" if trial.accuracy is not None else f"cannot run: {trial.reason}")
        for trial in trials
    ]
    return f"{problem}; accuracy under the common preprocessings, on at most {TRIAL_INPUTS} inputs:", lines


def _try(backend: ModelBackend, text: str, inputs: Inputs, labels: Array) -> Trial:
    try:
        scores = backend.forward(Preprocess.parse(text)(inputs))
    except ArachneError as error:
        return Trial(text, None, str(error).splitlines()[0])
    return Trial(text, float(np.mean(correct(scores, labels))))


def _shapes(inputs: Array) -> Iterator[str]:
    """Yield preprocessings to other shapes that the model may expect."""
    yield ""
    sides = inputs.shape[1:]
    if len(sides) in (2, 3):
        last = sides[-1] in CHANNELS
        first = len(sides) == 3 and sides[0] in CHANNELS
        yield from ("layout=nchw", "layout=nhwc") if len(sides) == 2 else ()
        yield from ("layout=nchw",) if len(sides) == 3 and last else ()
        yield from ("layout=nhwc",) if first and not last else ()
        if len(sides) == 3 and 1 in (sides[0], sides[-1]):
            height, width = sides[:2] if sides[-1] == 1 else sides[1:]
            yield f"shape={height}x{width}"
        yield "flatten"
    if len(sides) == 1:
        side = round(float(np.sqrt(sides[0])))
        if side * side == sides[0] and side > 1:
            yield from (f"shape={side}x{side}", f"shape=1x{side}x{side}", f"shape={side}x{side}x1")
        yield f"shape=1x{sides[0]}"


def _values(inputs: Array) -> Iterator[str]:
    """Yield preprocessings to other scales that the model may expect; a table has no pixels."""
    if inputs.dtype.kind not in "uif" or not inputs.size:
        return
    if not _are_pictures(inputs):
        yield from _standardisations(inputs, "")
        return
    colour = inputs.ndim == 4 and 3 in (inputs.shape[1], inputs.shape[-1])
    if float(inputs.max()) > 1.5:  # 0 to 255, or something like it
        yield "scale=1/255"
        yield "scale=1/127.5 mean=1"
        if colour:
            yield f"scale=1/255 {IMAGENET}"
        if float(inputs.max()) <= 16:  # scikit-learn's digits
            yield "scale=1/16"
        yield from _standardisations(inputs / 255, "scale=1/255 ")
    else:
        yield "scale=255"
        yield "scale=2 mean=1"
        if colour:
            yield IMAGENET
        yield from _standardisations(inputs, "")


def _standardisations(inputs: Array, first: str) -> Iterator[str]:
    """Yield the preprocessing that gives the inputs mean 0 and deviation 1."""
    mean, deviation = float(inputs.mean()), float(inputs.std())
    if deviation > 0:
        yield f"{first}mean={mean:.4g} std={deviation:.4g}"
