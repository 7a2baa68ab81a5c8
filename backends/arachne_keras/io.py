"""Opening and saving models: model objects, checked `.keras` files, and `module:factory` with weights."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from arachne.errors import EnvironmentFaultError, ModelError, UnsafeModelError, UsageError
from arachne.io.files import atomic_draft
from arachne.io.reading import error_text
from arachne.io.user_code import call_factory
from arachne_keras.archive import Archive, open_hdf5
from arachne_keras.bounds import check_sizes, limit_weights
from arachne_keras.environment import quiet
from arachne_keras.hdf5 import locate_tensors
from arachne_keras.kinds import Layer
from arachne_keras.running import Runner
from arachne_keras.weights import KerasWeightFile

OLD = (".h5", ".hdf5")
"""Endings of Keras's old format, and of its weight files."""


@dataclass(frozen=True)
class LoadedModel:
    """A model and where it came from.

    Attributes:
        model: The Keras model.
        format: `model`, `keras`, `weights` or `legacy h5`.
        path: The file the weights came from.
        archive: The checked archive, for a `.keras` file.
        device: The requested device, if any.
        notes: What a user should know about it.
    """

    model: Any
    format: str
    path: Path | None = None
    archive: Archive | None = None
    device: str | None = None
    notes: tuple[str, ...] = ()


def open_model(source: Any, *, weights: Path | None, device: str | None, trust_code: bool) -> LoadedModel:
    """Wrap a `keras.Model`, open a `.keras` file, or call `module:factory` and load its weights."""
    with _on(device):
        if isinstance(source, keras.Model):
            found = LoadedModel(source, "model", device=device)
        elif isinstance(source, Path) or Path(str(source)).exists():
            found = _from_file(Path(source), device, trust_code)
        elif isinstance(source, str) and ":" in source:
            found = LoadedModel(call_factory(source, keras.Model, "a keras.Model"), "model", device=device)
        else:
            raise ModelError(f"expected a keras.Model, a model file or 'module:factory', got '{source}'")
        if weights is None:
            return found
        if found.path is not None:
            raise UsageError(f"weights '{weights.name}' need a model or a factory to load them into")
        return _with_weights(found, weights)


def open_weights(path: Path) -> KerasWeightFile:
    """The weights of a `.keras` file, or of those layers that a `.weights.h5` file names."""
    if path.suffix.lower() in OLD:
        with open_hdf5(path, path.name) as file:
            old = {"model_config", "layer_names"} & set(file.attrs)
        if old:
            raise ModelError(
                f"'{path.name}' is in the old .h5 format, which is only read; save the model as .keras, or its weights "
                "as .weights.h5"
            )
        return KerasWeightFile.of_names(path)
    found = _from_file(path, None, False)
    return KerasWeightFile.of_model(path, found.model, Runner(found.model).layers, found.archive)


def save(model: LoadedModel, layers: dict[str, Layer], path: Path) -> None:
    """Write the model with its current weights, in the format it came in.

    Raises:
        ModelError: The suffix does not fit the model's format.
    """
    if model.path is not None and model.format in ("keras", "weights"):
        ending = ".keras" if model.format == "keras" else ".h5"
        if path.suffix.lower() != ending:
            raise ModelError(
                f"the model came from '{model.path.name}', so it is saved as '{ending}', not as '{path.name}'"
            )
        file = KerasWeightFile.of_model(model.path, model.model, layers, model.archive)
        now = {(name, p): stored.get() for name, layer in layers.items() for p, stored in layer.stored.items()}
        changed = {key: values for key, values in now.items() if values.tobytes() != file.read(*key).tobytes()}
        file.rewrite(path, changed)
        return
    with atomic_draft(path, model.path) as temporary, _ignore_array_warning(), quiet():
        if path.name.endswith(".weights.h5"):
            model.model.save_weights(temporary)
        elif path.suffix.lower() == ".keras":
            model.model.save(temporary)
        else:
            raise ModelError(f"a Keras model is saved as '.keras' or '.weights.h5', not as '{path.name}'")


def _from_file(path: Path, device: str | None, trust_code: bool) -> LoadedModel:
    suffix = path.suffix.lower()
    if path.is_dir():
        raise ModelError(
            f"'{path.name}' is a folder; a SavedModel is a program without layers to repair: save the model as .keras "
            "where it was made"
        )
    if suffix in OLD:
        return _from_h5(path, device, trust_code)
    if suffix != ".keras":
        raise ModelError(f"'{path.name}' is no model of Keras; known endings: .keras, .weights.h5 with a factory")
    archive = Archive(path, trust_code=trust_code)
    stored = sum(math.prod(location.shape) * location.dtype.itemsize for location in archive.locations.values())
    with limit_weights(stored, path.name):
        model = _load_model(path, trust_code)
    check_sizes(model, stored, path.name)
    return LoadedModel(model, "keras", path, archive, device)


def _from_h5(path: Path, device: str | None, trust_code: bool) -> LoadedModel:
    with open_hdf5(path, path.name) as file:
        whole = "model_config" in file.attrs
        if not whole:
            raise ModelError(
                f"'{path.name}' holds weights alone, which need the code that makes the model: give 'module:factory' "
                "as the model and this file as its weights",
                argument="factory",
            )
    if not trust_code:
        raise UnsafeModelError(
            f"'{path.name}' is a whole model in the old .h5 format, which may carry code; save it as .keras, or use "
            "--trust-code if you trust it"
        )
    note = "saved as .keras: the old .h5 format is only read"
    return LoadedModel(_load_model(path, trust_code), "legacy h5", path, None, device, (note,))


def _load_model(path: Path, trust_code: bool) -> Any:
    try:
        with _ignore_array_warning(), quiet():
            model = keras.saving.load_model(path, compile=False, safe_mode=not trust_code)
    except UnsafeModelError:
        raise
    except Exception as error:
        # Keras raises whatever its layers do when a description makes no sense to them.
        raise ModelError(f"Keras cannot build the model in '{path.name}': {error_text(error)}") from error
    if not isinstance(model, keras.Model):
        raise ModelError(f"'{path.name}' holds a '{type(model).__name__}', expected a model")
    return model


def _with_weights(found: LoadedModel, weights: Path) -> LoadedModel:
    if weights.suffix.lower() not in (*OLD, ".keras"):
        raise ModelError(f"'{weights.name}' is no weight file of Keras; known endings: .weights.h5, .keras")
    if weights.suffix.lower() == ".keras":
        Archive(weights)
    else:
        with open_hdf5(weights, weights.name) as file:
            locate_tensors(file, weights.name, weights.stat().st_size)
    try:
        with _ignore_array_warning():
            found.model.load_weights(weights)
    except Exception as error:
        # As above: whatever a layer raises when the weights do not fit.
        raise ModelError(f"the weights in '{weights.name}' do not fit the model: {error_text(error)}") from error
    if not weights.name.endswith(".weights.h5"):
        return LoadedModel(found.model, "model", device=found.device)
    return LoadedModel(found.model, "weights", weights, device=found.device)


@contextmanager
def _on(device: str | None) -> Iterator[None]:
    if device is None:
        yield
        return
    kind, colon, number = device.lower().partition(":")
    asked = f"gpu{colon}{number}" if kind in ("gpu", "cuda") else device  # Keras has one name for all frameworks
    with ExitStack() as stack:
        try:
            stack.enter_context(keras.device(asked))
            # Compute something there: TensorFlow takes the CPU without a word where there is no GPU.
            where = str(getattr(keras.ops.zeros(1), "device", "")).lower()
        except ValueError as error:
            raise UsageError(f"Keras knows no device '{device}': {error_text(error)}") from error
        except (RuntimeError, AssertionError) as error:
            raise EnvironmentFaultError(f"Keras cannot compute on '{device}' here: {error_text(error)}") from error
        if asked.startswith("gpu") and not ("gpu" in where or "cuda" in where):
            raise EnvironmentFaultError(f"Keras cannot compute on '{device}' here: it would take {where or 'the CPU'}")
        yield


@contextmanager
def _ignore_array_warning() -> Iterator[None]:
    """Ignore a warning of NumPy 2 about how Keras 3 converts variables; the arrays are correct."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="__array__ implementation doesn't accept a copy", category=DeprecationWarning
        )
        yield
