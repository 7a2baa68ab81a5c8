"""Check the configuration of a `.keras` file before Keras reads it.

A configuration names classes by module, and Keras builds any class it finds there. So every name in it has to be one of
Keras' own layers, operations, initialisers and the like. Code in the file (lambdas), classes of other packages, and
layers that open other files are refused.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from types import ModuleType
from typing import Any

import keras

from arachne.errors import ModelError, UnsafeModelError

RUNS_CODE = {
    "Lambda": "runs code that is in the file",
    "TorchModuleWrapper": "unpickles code",
    "TFSMLayer": "loads a program from elsewhere",
    "JaxLayer": "runs a function that is not in the file",
    "FlaxLayer": "runs a function that is not in the file",
}
READS_FILES = ("StringLookup", "IntegerLookup", "IndexLookup", "TextVectorization")
"""Layers of Keras that a file from an unknown source may not contain."""

PLAIN = ("__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__", "__tuple__")
"""Values that are data, however they are written."""

MAX_OBJECTS = 20_000
"""How many layers, initialisers and the like a model may be made of; Keras takes its time over each."""

MAX_NUMBER = 1e300

MODELS = ("Functional", "Sequential", "Model")
OPERATIONS = ("numpy", "nn", "math", "core", "linalg", "image", "einops")
CALLING = (
    "Map",
    "Scan",
    "AssociativeScan",
    "WhileLoop",
    "ForiLoop",
    "Cond",
    "Switch",
    "VectorizedMap",
    "CustomGradient",
)
"""Operations that are given functions."""


def check_config(config: Any, name: str) -> None:
    """Refuse a model's configuration that would build anything but Keras' own data-driven parts.

    Args:
        config: What `config.json` holds.
        name: The file's name, for the message.

    Raises:
        UnsafeModelError: It names something that is not allowed.
        ModelError: It is no configuration of a model.
    """
    if not isinstance(config, Mapping) or config.get("class_name") is None:
        raise ModelError(f"'{name}' has a config.json that describes no model")
    counted = count(1)
    try:
        _check({key: value for key, value in config.items() if key != "compile_config"}, name, counted)
    except RecursionError as error:
        raise ModelError(f"'{name}' has a config.json that is nested too deeply") from error
    if next(counted) > MAX_OBJECTS:
        raise ModelError(f"'{name}' has a config.json of more than {MAX_OBJECTS:,} objects, too many to be built")


def _check(value: Any, name: str, counted: Iterator[int]) -> None:
    if isinstance(value, Mapping):
        if "class_name" in value:
            next(counted)
            _check_class(value, name)
        for inner in value.values():
            _check(inner, name, counted)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, name, counted)
    elif isinstance(value, int | float) and not -MAX_NUMBER <= value <= MAX_NUMBER:
        raise ModelError(f"'{name}' has a config.json with a number that no layer has")


def _check_class(value: Mapping[str, Any], name: str) -> None:
    class_name, module = value["class_name"], value.get("module")
    registered = value.get("registered_name")
    if not isinstance(class_name, str) or not isinstance(module, str | None):
        raise ModelError(f"'{name}' has a config.json in which a class is not called by a name")
    if class_name in PLAIN:
        return
    shown = f"{module}.{class_name}" if module else str(class_name)
    if class_name in ("__lambda__", "__typespec__") or class_name in RUNS_CODE:
        reason = RUNS_CODE.get(class_name, "carries code")
        raise UnsafeModelError(f"'{name}' holds '{class_name}', which {reason}; use --trust-code if you trust it")
    if class_name in READS_FILES:
        raise UnsafeModelError(
            f"'{name}' holds '{class_name}', which may read files by name; give the model numbers, or use --trust-code "
            "if you trust it"
        )
    if class_name == "function":
        function = str(value.get("config"))
        if module in ("builtins", "keras.activations", "keras.ops") and function in ACTIVATIONS:
            return
        raise UnsafeModelError(
            f"'{name}' asks for the function '{module}.{function}'; use --trust-code if you trust it"
        )
    if not _is_known(module, class_name):
        raise UnsafeModelError(
            f"'{name}' holds '{shown}', which is no layer of Keras' own; use --trust-code if you trust it"
        )
    if registered not in (None, class_name):
        raise UnsafeModelError(
            f"'{name}' holds the custom object '{registered}'; use --trust-code if you trust it, with its code imported"
        )


def _is_known(module: str | None, class_name: str) -> bool:
    if module is None:
        return any(class_name in names for names in ALLOWED.values()) or class_name in MODELS
    if module in ("keras", "keras.models") or module.startswith(("keras.src.models.", "keras.src.engine.")):
        return class_name in MODELS or class_name in ALLOWED["keras.dtype_policies"]
    if module.startswith("keras.src.ops."):
        part = module.removeprefix("keras.src.ops.")
        return part in OPERATIONS and _is_operation(sys.modules.get(module), class_name)
    if module.startswith("keras.src."):
        module = "keras." + module.split(".")[2]
    return class_name in ALLOWED.get(module, ())


def _is_operation(module: ModuleType | None, class_name: str) -> bool:
    found = getattr(module, class_name, None)
    return inspect.isclass(found) and issubclass(found, keras.Operation) and class_name not in CALLING


def _classes(*modules: ModuleType) -> frozenset[str]:
    return frozenset(name for module in modules for name, found in vars(module).items() if inspect.isclass(found))


ACTIVATIONS = frozenset(name for name, found in vars(keras.activations).items() if inspect.isfunction(found)) - {
    "get",
    "serialize",
    "deserialize",
}

ALLOWED: Mapping[str, frozenset[str]] = {
    "keras.layers": _classes(keras.layers) - set(RUNS_CODE) - set(READS_FILES) - {"Layer", "Wrapper"},
    "keras.initializers": _classes(keras.initializers),
    "keras.regularizers": _classes(keras.regularizers),
    "keras.constraints": _classes(keras.constraints),
    "keras.dtype_policies": _classes(keras.dtype_policies),
    "keras.random": frozenset({"SeedGenerator"}),
    # What a nested model was compiled with is built, though never used.
    "keras.optimizers": _classes(keras.optimizers, keras.optimizers.schedules),
    "keras.optimizers.schedules": _classes(keras.optimizers.schedules),
    "keras.losses": _classes(keras.losses),
    "keras.metrics": _classes(keras.metrics),
}
"""The classes of each public module of Keras."""
