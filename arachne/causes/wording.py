"""Describe causes in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from arachne.causes.features import holds_tokens, layout_of
from arachne.causes.judging import Slice
from arachne.causes.rule import Rule
from arachne.causes.rules import Activation, Both, Colour, Columns, Derived, Missing, OfClass, Range, Token, Values
from arachne.data.labelled import LabelledData
from arachne.model.values import Array, by_name
from arachne.text import number_text, pluralise


def sentence(rule: Rule, found: Slice, predictions: Array, data: LabelledData, planted: str | None = None) -> str:
    """Describe a cause in one sentence: the shared property, and how often inputs with it are wrong.

    Args:
        rule: The rule.
        found: Counts of its inputs.
        predictions: The classes that the errors are read as `(k,)`.
        data: The data.
        planted: Words for what an experiment has confirmed, if it says more than the rule.
    """
    count = len(predictions)
    classes, counts = np.unique(predictions, return_counts=True)
    top = int(counts.argmax())
    read_as = ""
    if counts[top] == count:
        read_as = f", all read as {data.class_name(int(classes[top]))}"
    elif found.read_as is not None:
        read_as = f", {counts[top]} read as {data.class_name(int(classes[top]))}"
    share, elsewhere = (f"{100 * value:.3g} %" for value in (found.share, found.share_elsewhere))
    whose = "such inputs" if found.read_as is None or rule.asks_model else "such inputs of other classes"
    where = "elsewhere in the class" if names_class(rule) else "elsewhere"
    whose = "such inputs" if names_class(rule) else whose
    numbers = f"{found.wrong} of {found.inside} {whose} are wrong ({share}), {elsewhere} {where}"
    return f"{pluralise(count, 'error')}{read_as}: {_describe_both(rule, data, planted)}; {numbers}"


def _describe_both(rule: Rule, data: LabelledData, planted: str | None) -> str:
    """Describe what was planted, and the rule if that says something else."""
    own = rule.rules[0] if isinstance(rule, Both) and names_class(rule) else rule
    words = describe_planted(rule, data, planted)
    return words if words == describe(rule, data) else f"{words} (recognised by: {describe(own, data)})"


def describe_planted(rule: Rule, data: LabelledData, planted: str | None) -> str:
    """Describe a cause by the words of what was planted, if anything was; a token by its word instead."""
    own = rule.rules[0] if isinstance(rule, Both) else rule
    if planted is None or isinstance(own, Token):
        return describe(rule, data)
    return _within_class(planted, rule, data)


def _within_class(words: str, rule: Rule, data: LabelledData) -> str:
    """Add the class that a rule is limited to, if it is limited to one."""
    last = rule.rules[-1] if isinstance(rule, Both) else None
    return f"{words}, in class {data.class_name(last.label)}" if isinstance(last, OfClass) else words


def names_class(rule: Rule) -> bool:
    """Tell whether a rule is limited to one true class."""
    return isinstance(rule, Both) and isinstance(rule.rules[-1], OfClass)


def describe(rule: Rule, data: LabelledData) -> str:
    """Describe a rule."""
    if isinstance(rule, Values):
        return _describe_values(rule, data)
    if isinstance(rule, Range):
        return f"{describe_position(data, rule.input, rule.index)} is {_describe_range(rule.low, rule.high)}"
    if isinstance(rule, Missing):
        return f"{describe_position(data, rule.input, rule.index)} is missing"
    if isinstance(rule, Token):
        return f"{describe_token(data, rule.input, rule.token)} is in them"
    if isinstance(rule, Colour):
        colour = ", ".join(map(number_text, rule.colour))
        return f"the colour ({colour}) fills {rule.least} pixels or more"
    if isinstance(rule, OfClass):
        return f"their class is {data.class_name(rule.label)}"
    if isinstance(rule, Both):
        own = rule.rules[:-1] if names_class(rule) else rule.rules
        return _within_class(" and ".join(describe(one, data) for one in own), rule, data)
    if isinstance(rule, Derived):
        parts = zip(rule.names, rule.low, rule.high, strict=True)
        ranges = [(_describe_feature(data, rule.input, name), low, high) for name, low, high in parts]
        return " and ".join(f"{what} {_describe_range(low, high)}" for what, low, high in ranges)
    if isinstance(rule, Columns):
        pairs = zip(rule.columns, rule.values, strict=True)
        return " and ".join(f"{column} is '{value}'" for column, value in pairs)
    if isinstance(rule, Activation):
        return f"close together in what enters layer '{rule.layer}'"
    return rule.words or f"rule of kind '{rule.kind}'"


def _describe_values(rule: Values, data: LabelledData) -> str:
    if len(rule.index) == 1:
        return f"{describe_position(data, rule.input, rule.index[0])} is {number_text(rule.value[0])}"
    same = len(set(rule.value)) == 1
    what = f"are {number_text(rule.value[0])}" if same else "have the same values in all of them"
    region = region_of(rule, data)
    if region is None:
        return f"{len(rule.index)} values {what}"
    top, left, bottom, right = region
    return f"pixels from ({top}, {left}) to ({bottom}, {right}) {what}"


def region_of(rule: Rule, data: LabelledData) -> tuple[int, int, int, int] | None:
    """Return the region of a picture a rule refers to: first row and column, last row and column; None if none."""
    if isinstance(rule, Values):
        index = rule.index
    elif isinstance(rule, Both):
        return region_of(rule.rules[0], data)
    elif isinstance(rule, (Range, Missing)):
        index = (rule.index,)
    else:
        return None
    return region_of_values(index, rule.input, data)


def region_of_values(index: Sequence[int], name: str, data: LabelledData) -> tuple[int, int, int, int] | None:
    """Return the region of a picture that some of its values take up, as `region_of` does.

    Args:
        index: Positions in the flattened input `(k,)`.
        name: The name of the input array.
        data: The data.
    """
    pixels = [pixel_of(data, name, one) for one in index]
    known = [pixel for pixel in pixels if pixel is not None]
    if not known:
        return None
    rows, columns = [pixel[0] for pixel in known], [pixel[1] for pixel in known]
    return min(rows), min(columns), max(rows), max(columns)


def pixel_of(data: LabelledData, name: str, index: int) -> tuple[int, int, int, int] | None:
    """Return row, column, channel and number of channels of a value of a picture; None if inputs are not pictures."""
    array = _array(data, name)
    layout = layout_of(array)
    if layout is None:
        return None
    shape = (*layout, 1) if len(layout) == 2 else layout
    position = [int(one) for one in np.unravel_index(index, shape)]
    if shape[2] in (1, 3, 4):
        return position[0], position[1], position[2], shape[2]
    return position[1], position[2], position[0], shape[0]


def describe_position(data: LabelledData, name: str, index: int) -> str:
    """Describe a value of an input by its position in the flattened input: a pixel, a column by its name, a step."""
    pixel = pixel_of(data, name, index)
    if pixel is not None:
        row, column, channel, channels = pixel
        return f"pixel ({row}, {column})" + (f" of channel {channel}" if channels > 1 else "")
    array = _array(data, name)
    if holds_tokens(array):
        return f"token at step {index}"
    if data.value_names is not None:
        return f"column '{data.value_names[index]}'"
    position = np.unravel_index(index, array.shape[1:])
    where = str(int(position[0])) if len(position) == 1 else str(tuple(map(int, position)))
    return f"{'column' if len(position) == 1 else 'value'} {where}" + (f" of '{name}'" if name else "")


def describe_token(data: LabelledData, name: str, token: int) -> str:
    """Describe a token by its number, and by the word that the texts of the data have where it is."""
    word = word_of(data, _array(data, name), token)
    return f"token {token}" if word is None else f"token {token} ('{word}')"


def _describe_feature(data: LabelledData, of_input: str, name: str) -> str:
    if name.startswith("column "):
        return f"{describe_position(data, of_input, int(name.removeprefix('column ')))} is"
    return name + " is" if not name.endswith("s") or name.endswith("ness") else f"the number of {name} is"


def _describe_range(low: float | None, high: float | None) -> str:
    if high is None:
        return f"{number_text(low or 0.0)} or more"
    return f"{number_text(high)} or less" if low is None else f"from {number_text(low)} to {number_text(high)}"


def _array(data: LabelledData, name: str) -> Array:
    return by_name(data.inputs)[name]


WORD = re.compile(r"\w+|[^\w\s]")

MIN_AGREEMENT = 0.95
"""A word belongs to a token if this share of the texts that have either have both."""

MAX_TEXTS = 5000
"""The most texts looked at."""


def word_of(data: LabelledData, tokens: Array, token: int) -> str | None:
    """Return the word that texts have exactly where their tokens `(n, steps)` have a token; None if there is none."""
    texts = data.texts
    if texts is None or tokens.ndim != 2 or tokens.dtype.kind not in "iu":
        return None
    has = (np.asarray(tokens[:MAX_TEXTS]) == token).any(axis=1)
    if not has.any():
        return None
    words = [set(WORD.findall(str(text).lower())) for text in texts[:MAX_TEXTS]]
    inside = Counter(word for there, own in zip(has, words, strict=True) if there for word in own)
    everywhere = Counter(word for own in words for word in own if word in inside)
    total = int(has.sum())
    agreement = {word: count / (total + everywhere[word] - count) for word, count in inside.items()}
    best = sorted(agreement, key=lambda word: (-agreement[word], word))
    if agreement[best[0]] < MIN_AGREEMENT or (len(best) > 1 and agreement[best[1]] == agreement[best[0]]):
        return None
    return str(best[0])
