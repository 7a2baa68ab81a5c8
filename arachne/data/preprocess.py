"""Explicit preprocessing: `resize=48 scale=1/255 mean=0.49,0.48,0.45 std=0.25,0.24,0.26 layout=nchw`.

Steps run in the order they are written, on batches of inputs. Images are channels-last, `(n, height, width, channels)`
or `(n, height, width)`, until a `layout` step says otherwise.

| step | does |
|---|---|
| `resize=48`, `resize=48x64` | to 48 by 48; to height 48, width 64 (bilinear, antialiased) |
| `shorter=256` | the shorter side to 256, the longer in proportion |
| `crop=224`, `crop=48x64` | the centre |
| `letterbox=320`, `letterbox=48x64` | in proportion until it fits, grey beside it, as YOLO does |
| `grey`, `rgb` | one channel; three |
| `scale=1/255`, `scale=2` | times a number |
| `mean=…`, `std=…` | minus, divided by, one number or one per channel |
| `layout=nchw`, `layout=nhwc` | channels first, last; a missing channel axis is added |
| `flatten`, `shape=1x28x28` | every input as one row; in another shape |
| `dtype=float32` | as another type |
| `package.module:function` | your own function of a batch, from the current directory |
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.data import image_steps
from arachne.data.checks import as_inputs
from arachne.data.lazy.memmap import allocate_like
from arachne.data.lazy.preprocess import preprocess_lazily
from arachne.errors import ArachneError, DataError, UsageError, did_you_mean
from arachne.io.user_code import load_function
from arachne.model.lazy import is_lazy
from arachne.model.values import Array, Inputs, blocks, by_name, count, take
from arachne.text import is_whole_number

PREP_BATCH = 256
DTYPES = ("float32", "float16", "float64", "uint8", "int32", "int64", "bool")


@dataclass(frozen=True)
class PreprocessStep:
    """One step: its name, its value in canonical form, and the function of a batch."""

    name: str
    value: str
    apply: Callable[[Array], Array]

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.value else self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PreprocessStep) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True)
class Preprocess:
    """The steps from the values in the files to the model's inputs; without steps, inputs are unchanged."""

    steps: tuple[PreprocessStep, ...] = ()

    @classmethod
    def parse(cls, text: str | Preprocess | None) -> Preprocess:
        """Parse the steps in a text.

        Raises:
            UsageError: A step does not exist, or does not take its value.
        """
        if isinstance(text, Preprocess):
            return text
        try:
            words = shlex.split(text or "")
        except ValueError as error:
            raise UsageError(f"cannot read the preprocessing '{text}': {str(error).lower()}") from error
        return cls(tuple(_step(word) for word in words))

    def __str__(self) -> str:
        """The canonical text: parsing it gives the same steps."""
        return " ".join(shlex.quote(str(step)) if set(str(step)) & set(" '\"\\") else str(step) for step in self.steps)

    def __bool__(self) -> bool:
        return bool(self.steps)

    def __call__(self, inputs: Inputs) -> Inputs:
        """Preprocess inputs batch by batch; memory-mapped inputs stay so, and lazy ones are preprocessed when read.

        Raises:
            DataError: A step does not fit the inputs.
        """
        n = count(inputs)
        if not self.steps or not n:
            return inputs
        if is_lazy(inputs):
            return preprocess_lazily(inputs, self)
        results: dict[str, Array] = {}
        for batch in blocks(inputs, PREP_BATCH):
            result = self._batch(take(inputs, batch))
            for name, array in by_name(result).items():
                if name not in results:
                    like = next(iter(by_name(inputs).values()))
                    results[name] = allocate_like((n, *array.shape[1:]), array.dtype, like)
                if array.shape[1:] != results[name].shape[1:]:
                    raise DataError(f"preprocessing '{self}' gave different shapes for different inputs")
                results[name][batch] = array
        return results[""] if list(results) == [""] else results

    def split_images(self) -> tuple[Preprocess, Preprocess]:
        """Split into the leading steps that bring images of any size to one size, and the rest."""
        head = 0
        while head < len(self.steps) and self.steps[head].name in image_steps.PER_IMAGE_STEPS:
            head += 1
        return Preprocess(self.steps[:head]), Preprocess(self.steps[head:])

    def _batch(self, inputs: Inputs) -> Inputs:
        n = count(inputs)
        for step in self.steps:
            if isinstance(inputs, Mapping) and ":" not in step.name:
                raise DataError(f"'{step}' works on one input array, got several: {', '.join(inputs)}")
            try:
                result = step.apply(inputs)  # type: ignore[arg-type]  # a user's function also takes mappings
            except ArachneError:
                raise
            except Exception as error:  # a user's function may raise anything
                raise DataError(f"preprocessing '{step}' failed: {type(error).__name__}: {error}") from error
            inputs = as_inputs(result) if ":" in step.name else result
            if count(inputs) != n:
                raise DataError(f"preprocessing '{step}' made {count(inputs)} inputs of {n}")
        return inputs


def _step(word: str) -> PreprocessStep:
    name, equals, value = word.partition("=")
    if not equals and ":" in word:
        return PreprocessStep(word, "", load_function(word))
    if name not in _STEPS:
        raise UsageError(f"no preprocessing step '{name}'" + did_you_mean(name, [*_STEPS, "module:function"]))
    wants_value, make = _STEPS[name]
    if wants_value != bool(value):
        wanted = f"a value, as in '{name}={_EXAMPLES[name]}'" if wants_value else "no value"
        raise UsageError(f"preprocessing step '{name}' takes {wanted}, got '{word}'")
    canonical, apply = make(name, value)
    return PreprocessStep(name, canonical, apply)


BuiltStep = tuple[str, Callable[[Array], Array]]


def _size_step(name: str, value: str) -> BuiltStep:
    height, by, width = value.partition("x")
    numbers = [_count(name, value, side) for side in (height, width if by else height)]
    if name == "shorter":
        if by:
            raise UsageError(f"preprocessing step 'shorter' takes one number, got '{value}'")
        return str(numbers[0]), lambda batch: image_steps.resize_shorter(batch, numbers[0])
    change = {"resize": image_steps.resize, "crop": image_steps.crop, "letterbox": image_steps.letterbox}[name]
    return f"{numbers[0]}x{numbers[1]}", lambda batch: change(batch, numbers[0], numbers[1])


def _colour_step(name: str, value: str) -> BuiltStep:
    return "", image_steps.grey if name == "grey" else image_steps.rgb


def _scale_step(name: str, value: str) -> BuiltStep:
    above, slash, below = value.partition("/")
    factor = np.float32(_number(name, value, above))
    divisor = np.float32(_number(name, value, below) if slash else 1)
    if divisor == 0:
        raise UsageError("preprocessing step 'scale' divides by zero")

    def scale(batch: Array) -> Array:
        # A division, not a product with 1/255: bit for bit what `x / 255` gives elsewhere.
        scaled: Array = batch.astype(np.float32) * factor if factor != 1 else batch.astype(np.float32)
        return scaled / divisor if divisor != 1 else scaled

    return f"{_text(above)}/{_text(below)}" if slash else _text(above), scale


def _channel_step(name: str, value: str) -> BuiltStep:
    texts = value.split(",")
    numbers = np.array([_number(name, value, text) for text in texts], dtype=np.float32)
    if name == "std" and not numbers.all():
        raise UsageError("preprocessing step 'std' divides by zero")

    def shift(batch: Array) -> Array:
        along = image_steps.along_channels(batch, numbers, name)
        values = batch.astype(np.float32)
        changed: Array = values - along if name == "mean" else values / along
        return changed

    return ",".join(map(_text, texts)), shift


def _layout_step(name: str, value: str) -> BuiltStep:
    if value not in ("nchw", "nhwc"):
        raise UsageError(f"no layout '{value}'" + did_you_mean(value, ("nchw", "nhwc")))
    return value, image_steps.channels_first if value == "nchw" else image_steps.channels_last


def _shape_step(name: str, value: str) -> BuiltStep:
    if name == "flatten":
        return "", lambda batch: batch.reshape(len(batch), -1)
    sides = [_count(name, value, side) for side in value.split("x")]

    def reshape(batch: Array) -> Array:
        if np.prod(sides) != np.prod(batch.shape[1:]):
            raise DataError(f"'shape={value}' does not fit inputs of shape {batch.shape[1:]}")
        return batch.reshape(len(batch), *sides)

    return "x".join(map(str, sides)), reshape


def _dtype_step(name: str, value: str) -> BuiltStep:
    if value not in DTYPES:
        raise UsageError(f"no dtype '{value}' for inputs" + did_you_mean(value, DTYPES))
    return value, lambda batch: batch.astype(value)


def _count(name: str, value: str, text: str) -> int:
    if not (text.isascii() and is_whole_number(text) and int(text) > 0):
        raise UsageError(f"preprocessing step '{name}' takes whole numbers above 0, got '{value}'")
    return int(text)


def _number(name: str, value: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise UsageError(f"preprocessing step '{name}' takes numbers, got '{value}'")
    return number


def _text(number: str) -> str:
    return f"{float(number):.9g}"


_STEPS: Mapping[str, tuple[bool, Callable[[str, str], BuiltStep]]] = {
    "resize": (True, _size_step),
    "shorter": (True, _size_step),
    "crop": (True, _size_step),
    "letterbox": (True, _size_step),
    "grey": (False, _colour_step),
    "rgb": (False, _colour_step),
    "scale": (True, _scale_step),
    "mean": (True, _channel_step),
    "std": (True, _channel_step),
    "layout": (True, _layout_step),
    "flatten": (False, _shape_step),
    "shape": (True, _shape_step),
    "dtype": (True, _dtype_step),
}
_EXAMPLES: Mapping[str, Any] = {
    "resize": "48",
    "shorter": "256",
    "crop": "224",
    "letterbox": "320",
    "scale": "1/255",
    "mean": "0.5",
    "std": "0.5",
    "layout": "nchw",
    "shape": "1x28x28",
    "dtype": "float32",
}
