"""Preprocessing steps for images, in batches `(n, height, width, channels)` or `(n, height, width)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from arachne.errors import DataError
from arachne.model.values import Array

PER_IMAGE_STEPS = ("resize", "shorter", "crop", "letterbox", "grey", "rgb")
"""The steps that can be applied to single images of different sizes."""

LETTERBOX_GREY = 114
"""The brightness beside a picture that `letterbox` has made smaller, of 255."""

CHANNELS = (1, 3, 4)
"""The numbers of channels a picture may have."""


def channel_axis(batch: Array) -> int | None:
    """Return the axis of the channels: the last one, or axis 1 if only that one fits; None without channels.

    Raises:
        DataError: The array is not a batch of images.
    """
    if batch.ndim == 3:
        return None
    if batch.ndim != 4:
        raise DataError(f"expected images of shape (height, width, channels), got inputs of shape {batch.shape[1:]}")
    return 1 if batch.shape[1] in CHANNELS and batch.shape[-1] not in CHANNELS else 3


def channels_first(batch: Array) -> Array:
    """Move the channels to axis 1: `(n, channels, height, width)`, as in PyTorch."""
    axis = channel_axis(batch)
    if axis is None:
        return batch[:, None]
    return np.moveaxis(batch, 3, 1) if axis == 3 else batch


def channels_last(batch: Array) -> Array:
    """Move the channels to the last axis: `(n, height, width, channels)`, as in Keras."""
    axis = channel_axis(batch)
    if axis is None:
        return batch[..., None]
    return np.moveaxis(batch, 1, 3) if axis == 1 else batch


def along_channels(batch: Array, numbers: Array, name: str) -> Array:
    """Reshape one number per channel so that they broadcast over the channels of a batch."""
    if len(numbers) == 1:
        return numbers
    axes = [channel_axis(batch)] if batch.ndim == 4 else [batch.ndim - 1, 1]
    for axis in axes:
        if axis is not None and axis < batch.ndim and batch.shape[axis] == len(numbers):
            return numbers.reshape([-1 if other == axis else 1 for other in range(batch.ndim)])
    raise DataError(f"'{name}' has {len(numbers)} numbers, which fit no channels of inputs of shape {batch.shape[1:]}")


def resize(batch: Array, height: int, width: int) -> Array:
    """Resize images, bilinear with antialiasing; the channel axis stays."""
    last = channels_last(batch)
    if last.shape[1:3] == (height, width):
        return batch
    resized = np.stack([_resize_image(image, height, width) for image in last])
    if batch.ndim == 3:
        return resized[..., 0]
    return np.moveaxis(resized, 3, 1) if channel_axis(batch) == 1 else resized


def resize_shorter(batch: Array, side: int) -> Array:
    """Resize the shorter side to a length, the longer one in proportion."""
    found = place("shorter", [side], *channels_last(batch).shape[1:3])
    return resize(batch, found.height, found.width)


def letterbox(batch: Array, height: int, width: int) -> Array:
    """Resize images in proportion until they fit, and pad both sides with grey, as YOLO does."""
    first = 2 if batch.ndim == 4 and channel_axis(batch) == 1 else 1
    had = batch.shape[first : first + 2]
    at = place("letterbox", [height, width], had[0], had[1])
    grey_value = LETTERBOX_GREY if batch.dtype.kind in "iu" else LETTERBOX_GREY / 255
    found = np.full((*batch.shape[:first], height, width, *batch.shape[first + 2 :]), grey_value, batch.dtype)
    window = (slice(None),) * first + (slice(at.top, at.top + at.height), slice(at.left, at.left + at.width))
    found[window] = resize(batch, at.height, at.width)
    return found


class Placement(NamedTuple):
    """Where a step puts an image in a new one: scaled to `height` and `width`, at `top` and `left`, below 0 if cut."""

    top: int
    left: int
    height: int
    width: int
    new_height: int
    new_width: int


def place(step: str, sides: Sequence[int], height: int, width: int) -> Placement:
    """Return where one of the steps that change an image's size puts an image, so that labels can follow it.

    Args:
        step: `resize`, `shorter`, `crop` or `letterbox`.
        sides: The numbers of the step: a height and a width, or the shorter side.
        height: The height of the image.
        width: Its width.
    """
    if step == "shorter":
        sides = [max(sides[0], side * sides[0] // min(height, width)) for side in (height, width)]
    new_height, new_width = sides
    if step == "crop":
        return Placement(-((height - new_height) // 2), -((width - new_width) // 2), height, width, *sides)
    shown = new_height, new_width
    if step == "letterbox":
        share = min(new_height / height, new_width / width)
        shown = max(1, round(height * share)), max(1, round(width * share))
    return Placement((new_height - shown[0]) // 2, (new_width - shown[1]) // 2, *shown, *sides)


def crop(batch: Array, height: int, width: int) -> Array:
    """Crop each image to its centre."""
    first = 2 if batch.ndim == 4 and channel_axis(batch) == 1 else 1
    had = batch.shape[first : first + 2]
    channel_axis(batch)
    if height > had[0] or width > had[1]:
        raise DataError(f"cannot crop images of {had[0]}x{had[1]} to {height}x{width}; resize them first")
    top, left = (had[0] - height) // 2, (had[1] - width) // 2
    window = (slice(None),) * first + (slice(top, top + height), slice(left, left + width))
    cropped: Array = batch[window]
    return cropped


def grey(batch: Array) -> Array:
    """Convert to one channel, by the weights Pillow uses for brightness."""
    axis = channel_axis(batch)
    if axis is None or batch.shape[axis] == 1:
        return batch
    if batch.shape[axis] not in CHANNELS:
        raise DataError(f"cannot make grey images of {batch.shape[axis]} channels")
    red, green, blue = (np.take(batch, [channel], axis=axis) for channel in range(3))
    if batch.dtype == np.uint8:
        wide = red.astype(np.uint32) * 19595 + green.astype(np.uint32) * 38470 + blue.astype(np.uint32) * 7471
        return ((wide + 0x8000) >> 16).astype(np.uint8)
    mixed: Array = (0.299 * red + 0.587 * green + 0.114 * blue).astype(batch.dtype)
    return mixed


def rgb(batch: Array) -> Array:
    """Convert to three channels: repeat a grey one, drop an alpha channel."""
    axis = channel_axis(batch)
    if axis is None:
        return np.repeat(batch[..., None], 3, axis=3)
    if batch.shape[axis] == 1:
        return np.repeat(batch, 3, axis=axis)
    if batch.shape[axis] not in CHANNELS:
        raise DataError(f"cannot make colour images of {batch.shape[axis]} channels")
    return np.take(batch, range(3), axis=axis) if batch.shape[axis] == 4 else batch


def _resize_image(image: Array, height: int, width: int) -> Array:
    """Resize one `(height, width, channels)` image."""
    size = (width, height)
    if image.dtype == np.uint8 and image.shape[2] in CHANNELS:
        plain = image[..., 0] if image.shape[2] == 1 else image
        small = np.asarray(Image.fromarray(plain).resize(size, Image.Resampling.BILINEAR))
        return small.reshape(height, width, image.shape[2])
    channels = [
        np.asarray(Image.fromarray(channel.astype(np.float32)).resize(size, Image.Resampling.BILINEAR))
        for channel in np.moveaxis(image, 2, 0)
    ]
    small = np.stack(channels, axis=2)
    return small if image.dtype.kind == "f" else np.round(small).astype(image.dtype)
