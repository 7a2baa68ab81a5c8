"""Task: reads a model's raw outputs as decisions between classes, and carries gradients of them back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from arachne.decisions import losses
from arachne.decisions.decisions import Array, Decisions, correct, decide, margins
from arachne.errors import DataError, UsageError, did_you_mean
from arachne.plugins.options import Configured
from arachne.tasks.figures import Figures
from arachne.tasks.words import WORDS, Words

FALSE, MISSED = "false", "missed"
"""Words of targets: something that is absent was found, something that is there was not."""

Pair = tuple[int | None, int | None]
"""The true class and the class it is read as; None means any."""


@dataclass(frozen=True, kw_only=True)
class Task(Configured, ABC):
    """How a model's outputs are read: which decisions they hold, and between which classes.

    A backend gives raw outputs `(n, ...)`; everything behind it works with decisions: class scores `(m, classes)`,
    labels `(m,)` and the input each belongs to. An input may have several decisions, or none.

    A task defines `read`, `pull_back`, `check` and `n_classes`. It is a frozen dataclass; its options are fields
    declared with `arachne.option`.
    """

    name: ClassVar[str]

    SINGLE: ClassVar[bool] = False
    """Whether the outputs are the class scores themselves, one decision for each input: what fast kernels rely on."""

    ONE_LABEL: ClassVar[bool] = False
    """Whether each input has one label, the number or the name of a class, which is read as for a single label."""

    NEEDS_LABELS: ClassVar[bool] = True
    """Whether inputs need labels; a rule needs none."""

    WORDS: ClassVar[Words] = WORDS
    """How sentences call its decisions."""

    SPARED: ClassVar[str] = "the rest of the outputs"
    """The outputs that `spared_outputs` tells, in words."""

    TABULATES: ClassVar[bool] = False
    """Whether `tabulate` tells something: it needs the raw outputs of a patched model, which take a pass."""

    CROWDED: ClassVar[bool] = False
    """Whether right decisions lie as close together at the border as anywhere, so that every small change breaks some.

    A search then keeps all of them where they are: those far from the border tell how others near it will move.
    """

    NOUN: ClassVar[str] = "input"
    """The thing that one decision is about: an input, a label, a token, a pixel."""

    @property
    def no_causes(self) -> str | None:
        """Why causes of mistakes cannot be searched for; None where they can."""
        if self.ONE_LABEL:
            return None
        return f"causes are looked for where each input has one label, and the task is '{self.name}'"

    @abstractmethod
    def read(self, outputs: Array, labels: Array) -> Decisions:
        """Read raw outputs `(n, ...)` and the labels `(n, ...)` of the same inputs as decisions, input after input.

        Called with the outputs of some inputs at a time. Which decisions an input has depends on its labels alone,
        so that a patched model is compared with the original one decision by decision.
        """

    @abstractmethod
    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        """Carry d loss / d scores `(m, classes)` of the decisions back to d loss / d outputs `(n, ...)`."""

    @abstractmethod
    def check(self, outputs: Array, labels: Array) -> None:
        """Refuse outputs and labels that this task cannot read, in one sentence.

        Raises:
            DataError: Labels that do not fit the outputs.
            ModelError: Outputs of another shape.
        """

    @abstractmethod
    def n_classes(self, outputs: Array) -> int:
        """Return the number of classes that a decision is between.

        Raises:
            ModelError: Outputs of another shape than this task reads.
        """

    def resolve(self, outputs: Array, names: Sequence[str] | None) -> Self:
        """Return the task with all that depends on the model decided: its outputs `(n, ...)` and the users' names."""
        return self

    def n_names(self, outputs: Array) -> int:
        """Return how many names a user gives, with `--classes`: of classes, or of labels that are there or not."""
        return self.n_classes(outputs)

    def name_classes(self, names: Sequence[str] | None, n_names: int) -> tuple[str, ...]:
        """Name all classes that decisions are between, in order, from the user's names or numbers in their place."""
        return tuple(map(str, range(n_names))) if names is None else tuple(names)

    def absent_classes(self, n_classes: int) -> Mapping[int, int]:
        """Return the class that stands for the absence of each other one, such as the background; empty if none does.

        `false:X` is then a target: absent, read as X. `missed:X` is the other way round.
        """
        return {}

    def convert_labels(self, values: Any, names: Sequence[str] | None, inputs: Any = None) -> Array:
        """Convert the labels of a source, numbers or names, to labels of this task `(n, ...)`.

        Args:
            values: The labels as they were read.
            names: The user's names, by which labels may be given.
            inputs: The inputs, an array or a mapping of arrays: a mask among them may say which labels count.

        Raises:
            DataError: They cannot be labels.
        """
        return as_numbers(values, names)

    def label_as_decided(self, outputs: Array) -> Array:
        """Return labels `(n, ...)` that make all of the model's decisions right, read from its outputs `(n, ...)`.

        Inputs that nobody has labelled are compared before and after a patch by them.

        Raises:
            UsageError: The task does not tell.
        """
        raise UsageError(f"the task '{self.name}' reads no inputs without labels")

    def prepare_labels(self, labels: Array, outputs: Array, inputs: Any) -> Array:
        """Add to labels `(n, ...)` which decisions inputs have, where the original model's outputs tell that.

        Called once for all inputs of a source, after `check`; `read` and `pull_back` get the labels it returns.

        Args:
            labels: As `convert_labels` made them.
            outputs: Raw outputs of the original model, `(n, ...)`.
            inputs: The inputs, an array `(n, ...)` or a mapping of arrays.
        """
        return labels

    def spared_outputs(self, outputs: Array) -> Array | None:
        """Tell which values of an input's outputs no patch may change, bool of their shape; None if all may change.

        Layers that these values depend on are left alone.
        """
        return None

    def frame(self, outputs: Array, labels: Array, decisions: Array, inputs: Any) -> Array | None:
        """Tell where in their pictures some decisions are; None if the task does not.

        Args:
            outputs: Raw outputs of the original model, `(n, ...)`.
            labels: The labels of the inputs, as `prepare_labels` made them.
            decisions: Which of the decisions, by number, `(k,)`.
            inputs: The inputs, an array `(n, ...)` or a mapping of arrays.

        Returns:
            Left, top, right and bottom as shares of the picture, `(k, 4)`, NaN where a decision is nowhere.
        """
        return None

    def tabulate(self, before: Array, after: Array, labels: Array) -> Figures | None:
        """Count what people read of this task besides decisions, before and after a patch; None if nothing.

        Args:
            before: Raw outputs of the original model, `(n, ...)`.
            after: Raw outputs with the patch.
            labels: The labels of the inputs, as `prepare_labels` made them.
        """
        return None

    def find_target(self, text: str, classes: Sequence[str]) -> Pair | None:
        """Resolve a target in the task's own words, such as `false:person`; None if it is no such target.

        Args:
            text: The target.
            classes: The names of all classes, as `name_classes` gives them.
        """
        word, colon, name = (part.strip() for part in text.partition(":"))
        absent = self.absent_classes(len(classes))
        if not colon or word not in (FALSE, MISSED) or name not in classes:
            return None
        there = classes.index(name)
        if there not in absent:
            return None
        return (absent[there], there) if word == FALSE else (there, absent[there])

    def target_text(self, label: int, prediction: int, classes: Sequence[str]) -> str | None:
        """Return the target in the task's own words for a class read as another; None if it has no word for it."""
        absent = self.absent_classes(len(classes))
        if absent.get(prediction) == label:
            return f"{FALSE}:{classes[prediction]}"
        return f"{MISSED}:{classes[label]}" if absent.get(label) == prediction else None

    def decide(self, scores: Array) -> Array:
        """Return the class that each decision is for, `(m,)`, from class scores `(m, classes)`."""
        return decide(scores)

    def correct(self, scores: Array, labels: Array) -> Array:
        """Tell which decisions are right, bool `(m,)`; one with a NaN among its scores never is."""
        return correct(scores, labels)

    def margins(self, scores: Array, labels: Array) -> Array:
        """Return the score of the true class minus the best other one, `(m,)`."""
        return margins(scores, labels)

    def losses(self, scores: Array, labels: Array) -> Array:
        """Return the cross-entropy of each decision, float64 `(m,)`."""
        return losses.cross_entropies(scores, labels)


def as_numbers(values: Any, names: Sequence[str] | None) -> Array:
    """Convert labels of any shape to numbers, by their names where they are texts; floats stay floats.

    Raises:
        DataError: A text that is neither a number nor a name, or labels that are ragged.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError("the labels are ragged: expected as many for every input") from error
    if array.dtype.kind == "O":
        array = _from_objects(array)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "U":
        return _from_texts(array, names)
    if array.dtype.kind not in "biuf" or not array.ndim:
        raise DataError(f"expected labels that are numbers or names, one or several for each input, got {array.dtype}")
    return array


def _from_objects(array: Array) -> Array:
    """Convert lists of labels to one array, and None to NaN."""
    try:
        return np.array([[np.nan if one is None else one for one in np.ravel(row).tolist()] for row in array.tolist()])
    except (ValueError, TypeError) as error:
        raise DataError("the labels are ragged: expected as many for every input") from error


def _from_texts(array: Array, names: Sequence[str] | None) -> Array:
    numbers = {name: float(number) for number, name in enumerate(names or ())}
    try:
        flat = [
            numbers[text] if text in numbers else float(text or "nan") for text in np.char.strip(array).ravel().tolist()
        ]
    except ValueError as error:
        text = str(error).rpartition(": ")[2].strip("'")
        raise DataError(
            f"the label '{text}' is neither a number nor a name{did_you_mean(text, names or ())}", argument="classes"
        ) from error
    return np.array(flat).reshape(array.shape)
