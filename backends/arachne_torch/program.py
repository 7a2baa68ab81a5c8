"""Exported programs (`.pt2`): their description is checked, then torch builds the program from what was checked.

`torch.export.load` trusts its file: it unpickles weights, constants and sample inputs, looks operators up by any dotted
name (`torch.os.system` is one), evaluates symbolic sizes as Python and writes names into source code that it runs. So
torch never sees the file here. The weights come from our own reader, sample inputs are left alone, and the program's
JSON is handed over only if every string in it is of a form that can do no harm.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._export.serde.serialize import SerializedArtifact, deserialize
from torch.export import ExportedProgram

from arachne.errors import ModelError, UnsafeModelError
from arachne_torch.archive import Archive
from arachne_torch.known import operation
from arachne_torch.weights import TorchWeightFile, open_program

MEMBERS = re.compile(
    r"models/model\.json|archive_format|archive_version|byteorder|version|\.format_version|\.storage_alignment|\.data/\w+"
    r"|data/(weights|constants)/(model_(weights|constants)_config\.json|\w+)|data/sample_inputs/model\.pt|extra/.*",
    re.ASCII,
)
"""What an exported program consists of. Anything else, compiled code above all, is refused."""

OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|torchvision|quantized_decomposed)\.(?!__)\w+\.[A-Za-z]\w*"
    r"|torch\.ops\.aten\.__(and|or|xor|lshift|rshift)__\.[A-Za-z]\w*"
    r"|torch\.ops\.higher_order\.(cond|while_loop|scan|map_impl|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|not_|xor)"
    r"|math\.(ceil|floor|trunc|sqrt|prod)|torch\.sym_(int|float|max|min|not|ite|sum|sqrt)|torch\._sym_sqrt",
    re.ASCII,
)
FILE_OPERATORS = ("from_file", "save", "load", "open", "_load", "_save")
"""Operators of `aten` that touch files."""

EXPRESSION = re.compile(r"(?:'?[A-Za-z_]\w*'?|[0-9]+(?:\.[0-9]+)?|[-+*/%(),<>=!&|~ ])*", re.ASCII)
"""Symbolic sizes: words, numbers and operators, but no attribute access."""

WORD = re.compile(
    r"[a-z]{1,3}\d+|[A-Z]\w*|integer|positive|nonnegative|negative|nonzero|real|finite|int_oo|oo", re.ASCII
)
"""The words of such an expression: symbols, SymPy's and torch's functions, what is assumed of a symbol."""

NAME = re.compile(r"[A-Za-z_]\w*|", re.ASCII)
PATH = re.compile(r"[\w.\-]*", re.ASCII)
TEXT = re.compile(r"[\w.,:;=/+\-> ()*]*", re.ASCII)
CONTAINERS = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", None)


def load_program(path: Path) -> ExportedProgram:
    """The program in a file.

    Raises:
        UnsafeModelError: It holds something that could run code.
        ModelError: It cannot be read.
    """
    archive = Archive.open(path)
    if "version" in archive.members:
        raise ModelError(f"'{path.name}' is of an older format; load it with torch.export.load and save it again")
    root = archive.root()
    for member in archive.members:
        if not MEMBERS.fullmatch(member.removeprefix(f"{root}/")):
            raise UnsafeModelError(f"'{path.name}' holds '{member}', which is no part of an exported program")
    description = _without_notes(archive.json(f"{root}/models/model.json"))
    for message in _objections(description):
        raise UnsafeModelError(f"'{path.name}' {message}, which could run code")
    weights, constants = (_tensors(open_program(path, part)) for part in ("weights", "constants"))
    made: Any = (json.dumps(description).encode(), weights, constants, b"")  # torch takes mappings where it says bytes
    try:
        return deserialize(SerializedArtifact(*made))
    except Exception as error:  # a damaged description can fail anywhere inside torch
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ModelError(f"'{path.name}' is an exported program that torch cannot read: {reason}") from error


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
    positional = names[: program.call_spec.in_spec.child(0).num_leaves] if program.call_spec.in_spec else ()
    return Program(module, int(sizes[0]) if fixed else None, positional, notes)


def _switch_off_training(module: fx.GraphModule) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        name = operation(node.target)
        if "dropout" in name and True in node.args:
            node.args = tuple(False if argument is True else argument for argument in node.args)
            notes = ("the program was exported in training mode; its dropout is turned off",)
        if name == "batch_norm" and len(node.args) > 5 and node.args[5] is True:
            raise ModelError("the program was exported in training mode; call model.eval() before torch.export.export")
    module.recompile()
    return notes


def _tensors(file: TorchWeightFile) -> dict[str, Tensor]:
    """The tensors of a table as torch wants them; names of one place share one tensor."""
    made: dict[Any, Tensor] = {}
    for name, place in file.places.items():
        if place not in made:
            tensor = torch.from_numpy(file.tensor(name))
            made[place] = tensor.bfloat16() if place.dtype == "bfloat16" else tensor
            if name in file.trainable:
                made[place] = nn.Parameter(made[place])
    return {name: made[place] for name, place in file.places.items()}


def _without_notes(value: Any) -> Any:
    """The description without what only debuggers read, and without guards, which are source code."""
    if isinstance(value, list):
        return [_without_notes(item) for item in value]
    if isinstance(value, Mapping):
        return {
            name: type(item)() if name in ("metadata", "guards_code") else _without_notes(item)
            for name, item in value.items()
        }
    return value


def _objections(value: Any, key: str = "") -> Iterator[str]:
    """What speaks against a part of the description."""
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
        return bool(OPERATOR.fullmatch(text)) and text.split(".")[-2] not in FILE_OPERATORS
    if key == "expr_str":
        words = re.findall(r"[A-Za-z_]\w*", text, re.ASCII)
        return bool(EXPRESSION.fullmatch(text)) and all(WORD.fullmatch(word) for word in words) and len(text) < 500
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
