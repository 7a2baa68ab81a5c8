"""Helpers of all exporters to ONNX: silence, errors in one sentence, and random inputs to check the export with."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from arachne.errors import BackendUnavailableError, ModelError
from arachne.io.reading import error_text
from arachne.model.values import Array, Inputs, LayerInfo
from arachne.weights.storage import STORAGES

ANY_LENGTH = 8
"""How long random inputs are along an axis whose length is left open."""


@contextlib.contextmanager
def exporter_faults() -> Iterator[None]:
    """Turn any exception of an exporter into one of our errors.

    Raises:
        ModelError: The exporter does not know an operation of the model.
        BackendUnavailableError: The exporter is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise BackendUnavailableError(
            f"exporting to ONNX needs a package that is not installed ({error.name}): "
            'pip install "arachne-repair[convert]"'
        ) from error
    except Exception as error:
        # An exporter raises whatever the first operation it does not know makes it raise.
        raise ModelError(f"the model cannot be exported to ONNX: {error_text(error)}") from error


@contextlib.contextmanager
def quiet_exporter() -> Iterator[None]:
    """Keep an exporter quiet: it reports progress, and warns of names that NumPy and torch have deprecated.

    Whether an export is right shows when scores are compared, not in its warnings.
    """
    kept = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(kept)


def random_inputs(
    taken: Mapping[str, tuple[Sequence[Any], str]], n: int, layers: Sequence[LayerInfo], *, seed: int = 0
) -> Inputs:
    """Draw random inputs of the shapes a model takes, to compare it with its export.

    Whole numbers, which an embedding looks up, are below the smallest of the model's tables.

    Args:
        taken: Shape without the axis of inputs and dtype of every input, by name; a length that is not an integer is
            open.
        n: How many.
        layers: The model's layers.
        seed: What the randomness starts from.

    Returns:
        An array `(n, ...)`, or several by name.
    """
    rng = np.random.default_rng(seed)
    tables = [info.parameters["weight"].shape[0] for info in layers if info.kind == "embedding"]

    def draw(shape: Sequence[Any], dtype: str) -> Array:
        sizes = (n, *(size if isinstance(size, int) else ANY_LENGTH for size in shape))
        if dtype in STORAGES:
            return rng.normal(size=sizes).astype(STORAGES[dtype].carrier)
        return rng.integers(0, min(tables, default=2), sizes).astype(dtype)

    arrays = {name: draw(shape, dtype) for name, (shape, dtype) in taken.items()}
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays
