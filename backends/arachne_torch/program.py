"""Exported programs (`.pt2`): their description is checked, then torch builds the program from it.

`torch.export.load` trusts its file: it unpickles weights, constants and sample inputs, looks operators up by any dotted
name (`torch.os.system` is one), evaluates symbolic sizes as Python and writes names into source code that it runs. So
torch never sees the file here. The weights come from our own reader, sample inputs are left alone, and the program's
JSON is handed over only if every string in it is of a form that can do no harm: operators on a list (`operators.py`),
symbolic sizes that are quickly worked out (`expressions.py`), names that are nothing but names.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from arachne.errors import ModelError, UnsafeModelError
from arachne_torch.archive import Archive
from arachne_torch.bounds import ALWAYS_ALLOWED_BYTES, MAX_PROGRAM_ROWS
from arachne_torch.expressions import is_quick
from arachne_torch.operators import is_allowed
from arachne_torch.tensor_ids import operation
from arachne_torch.weight_readers import open_program
from arachne_torch.weights import TorchWeightFile

MEMBERS = re.compile(
    r"models/model\.json|archive_format|archive_version|byteorder|version|\.format_version|\.storage_alignment|\.data/\w+"
    r"|data/(weights|constants)/(model_(weights|constants)_config\.json|\w+)|data/sample_inputs/model\.pt|extra/.*",
    re.ASCII,
)
"""The members of an exported program. Anything else, compiled code above all, is refused."""

MAX_PARTS, MAX_EXPRESSIONS = 80_000, 500
"""How many parts a description may have, and how many different symbolic sizes; torch takes its time over each."""

OFF = {"train": False, "training": False, "dropout_p": 0.0}
"""Arguments that make operators random, and the values that turn this off."""

NAME = re.compile(r"[A-Za-z_]\w*|", re.ASCII)
PATH = re.compile(r"[\w.\-]*", re.ASCII)
TEXT = re.compile(r"[\w.,:;=/+\-> ()*]*", re.ASCII)
CONTAINERS = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", None)


def load_program(path: Path) -> Program:
    """The program in a file, ready to run.

    Raises:
        UnsafeModelError: It holds something that could run code.
        ModelError: It cannot be read.
    """
    from torch._export.serde.serialize import SerializedArtifact, deserialize  # takes as long as all of torch

    archive = Archive.open(path)
    if "version" in archive.members:
        raise ModelError(f"'{path.name}' is of an older format; load it with torch.export.load and save it again")
    root = archive.root()
    for member in archive.members:
        if not MEMBERS.fullmatch(member.removeprefix(f"{root}/")):
            raise UnsafeModelError(f"'{path.name}' holds '{member}', which is no part of an exported program")
    description = _check_description(archive.json(f"{root}/models/model.json"), path.name)
    weights, constants = (_tensors(open_program(path, part)) for part in ("weights", "constants"))
    made: Any = (json.dumps(description).encode(), weights, constants, b"")  # torch takes mappings where it says bytes
    with _readable(path.name):
        return runnable(deserialize(SerializedArtifact(*made)))


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    """A damaged description can fail anywhere inside torch."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ModelError):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ModelError(f"'{name}' is an exported program that torch cannot read: {reason[:160]}") from error


def _check_description(description: Any, name: str) -> Any:
    """Check that nothing in a description could run code, read files or take for ever; return it without notes.

    Raises:
        UnsafeModelError: Something could.
        ModelError: It is larger or nested deeper than any program.
    """
    try:
        description = _without_notes(description)
        for message in _objections(description):
            raise UnsafeModelError(f"'{name}' {message}, which is not known to be safe")
        parts, expressions = _size(description)
    except RecursionError as error:
        raise ModelError(f"'{name}' has a description that is nested too deeply") from error
    if parts > MAX_PARTS or expressions > MAX_EXPRESSIONS:
        raise ModelError(f"'{name}' has {parts:,} parts and {expressions:,} symbolic sizes, more than can be read")
    return description


def _size(description: Any) -> tuple[int, int]:
    """How many parts a description has, and how many different symbolic sizes."""
    parts, expressions, waiting = 0, set(), [description]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            parts += 1
            if "expr_str" in part:
                expressions.add(str(part["expr_str"]))
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return parts, len(expressions)


@dataclass(frozen=True)
class Program:
    """An exported program made runnable.

    Attributes:
        module: The program as a module.
        batch: The only batch size it takes; None if any.
        positional: The names of inputs it takes by position.
        notes: What was done to it.
    """

    module: nn.Module
    batch: int | None
    positional: tuple[str, ...]
    notes: tuple[str, ...]


def runnable(program: ExportedProgram) -> Program:
    """The program as a module, out of training mode."""
    module = program.module()
    notes = _switch_off_training(module) if isinstance(module, fx.GraphModule) else ()
    names = tuple(map(str, program.graph_signature.user_inputs))
    shapes = [
        node.meta["val"].shape
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names and isinstance(node.meta.get("val"), Tensor)
    ]
    sizes = [shape[0] for shape in shapes if len(shape)]
    fixed = len(sizes) == len(shapes) > 0 and all(isinstance(size, int) and size == sizes[0] for size in sizes)
    known = [math.prod(shape) for shape in shapes if all(isinstance(size, int) for size in shape)]
    if fixed and (int(sizes[0]) > MAX_PROGRAM_ROWS or max(known, default=0) * 4 > ALWAYS_ALLOWED_BYTES):
        raise ModelError(f"the program takes batches of {int(sizes[0]):,}, too many at once")
    positional = names[: program.call_spec.in_spec.child(0).num_leaves] if program.call_spec.in_spec else ()
    return Program(module, int(sizes[0]) if fixed else None, positional, notes)


def _switch_off_training(module: fx.GraphModule) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    for node in (node for part in module.modules() if isinstance(part, fx.GraphModule) for node in part.graph.nodes):
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None:
            continue
        for position, argument in enumerate(schema.arguments):
            given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            off = OFF.get(argument.name)
            if off is None or not given:
                continue
            if "norm" in operation(node.target):
                raise ModelError(
                    "the program was exported in training mode; call model.eval() before torch.export.export"
                )
            notes = ("the program was exported in training mode; its dropout is turned off",)
            if position < len(node.args):
                node.update_arg(position, off)
            else:
                node.update_kwarg(argument.name, off)
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            part.recompile()
    return notes


def _tensors(file: TorchWeightFile) -> dict[str, Tensor]:
    """The tensors of a table as torch wants them; names of one location share one tensor."""
    made: dict[Any, Tensor] = {}
    for name, location in file.locations.items():
        if location not in made:
            tensor = torch.from_numpy(file.tensor(name))
            made[location] = tensor.bfloat16() if location.dtype == "bfloat16" else tensor
            if name in file.trainable:
                made[location] = nn.Parameter(made[location])
    return {name: made[location] for name, location in file.locations.items()}


def _without_notes(value: Any) -> Any:
    """Remove debug information and guards, which are source code, from a description."""
    if isinstance(value, list):
        return [_without_notes(item) for item in value]
    if isinstance(value, Mapping):
        return {
            name: type(item)() if name in ("metadata", "guards_code") else _without_notes(item)
            for name, item in value.items()
        }
    return value


def _objections(value: Any, key: str = "") -> Iterator[str]:
    """Yield every reason to refuse a part of the description."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str) or not PATH.fullmatch(name):
                yield f"has a key {name!r}"
            yield from _objections(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _objections(item, key)
    elif isinstance(value, str) and not _harmless(value, key):
        yield f"has a {key} {value[:60]!r}"


def _harmless(text: str, key: str) -> bool:
    if key == "target":
        return is_allowed(text)
    if key == "expr_str":
        return is_quick(text)
    if key in ("in_spec", "out_spec"):
        return _harmless_tree(text)
    if key in ("as_string", "as_strings", "torch_version"):
        return bool(TEXT.fullmatch(text))
    return bool((NAME if key in ("name", "as_name") else PATH).fullmatch(text))


def _harmless_tree(text: str) -> bool:
    """A description of nested containers: plain ones only, with plain keys."""
    try:
        tree = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return False
    stack = tree[1:] if isinstance(tree, list) else [None]
    while stack:
        node = stack.pop()
        if not isinstance(node, dict) or node.get("type") not in CONTAINERS:
            return False
        context = node.get("context")
        if context is not None and not re.fullmatch(
            r'null|\[("[A-Za-z_]\w*"(, )?)*\]|[A-Za-z_]\w*', str(context), re.ASCII
        ):
            return False
        stack.extend(node.get("children_spec") or [])
    return True
