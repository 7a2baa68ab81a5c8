"""`apply`, `revert` and `diff`: put a patch into a model, take it out again, or make one of two files.

Nothing of the search or the evidence is imported here, so that patching a file starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arachne.errors import InputError, UsageError
from arachne.model.registry import load, name_for_file, weight_file
from arachne.patch.in_memory import base_of
from arachne.patch.patch import Patch
from arachne.patch.transfer import AppliedPatch, apply_to, for_model, revert_from


def apply(
    patch: Patch | str | Path,
    model: Any,
    output: str | Path | None = None,
    *,
    mapping: Mapping[str, str] | None = None,
    check: Callable[[Path], None] | None = None,
    named: bool = False,
) -> AppliedPatch | None:
    """Put a patch into a model: a file is copied to `output`, a model object is changed in place.

    Args:
        patch: The patch, or its file.
        model: The model it was made for, or the same one in another framework.
        output: Where the patched copy of a file goes.
        mapping: Which layer of the model is meant, by the patch's layer, where content does not tell.
        check: Called with the finished copy of a file before it is put into its place, which an error prevents.
        named: Whether the copy of a file notes in its metadata which patch it carries; ONNX files can.

    Raises:
        PatchError: The patch was made for another model; nothing is changed or written.
        ModelError: The copy is to note the patch, and its format has no place for that.
    """
    patch = Patch.load(patch) if isinstance(patch, (str, Path)) else patch
    if not isinstance(model, (str, Path)):
        backend = load(model)
        for_model(patch, backend, mapping=mapping).apply(backend)
        return None
    name, target = name_for_file(model), _destination(output, model)
    file = weight_file(model)
    return apply_to(patch, file, target, backend=name, mapping=mapping, reopen=weight_file, check=check, named=named)


def revert(
    patch: Patch | str | Path,
    model: Any,
    output: str | Path | None = None,
    *,
    mapping: Mapping[str, str] | None = None,
) -> AppliedPatch | None:
    """Take a patch out of a model again, bit for bit: a file is copied to `output`, an object changed in place.

    Arguments as for `apply`.

    Raises:
        PatchError: The model does not carry the patch; nothing is changed or written.
    """
    patch = Patch.load(patch) if isinstance(patch, (str, Path)) else patch
    if not isinstance(model, (str, Path)):
        backend = load(model)
        for_model(patch, backend, mapping=mapping, reverting=True).revert(backend)
        return None
    name, target = name_for_file(model), _destination(output, model)
    return revert_from(patch, weight_file(model), target, backend=name, mapping=mapping, reopen=weight_file)


def diff(first: str | Path, second: str | Path, *, mapping: Mapping[str, str] | None = None) -> Patch:
    """The patch that gives the model in one file the weights of that in another, perhaps of another framework.

    Raises:
        PatchError: They are not two models of one network, or layers cannot be told apart.
    """
    from arachne.patch.difference import diff as difference

    files = weight_file(first), weight_file(second)
    return difference(*files, mapping=mapping, backend=name_for_file(first), content=_content(first))


def _content(path: str | Path) -> str | None:
    """The tensors of a model file in one number, as a repair of it would say; None where the file needs code."""
    try:
        return base_of(load(path)).content
    except InputError:
        return None


def _destination(output: str | Path | None, model: str | Path) -> Path:
    if output is None:
        raise UsageError("a model file is never changed: give the path the changed copy goes to")
    endings = [Path(path).suffix.lower().replace(".pth", ".pt") for path in (model, output)]
    if endings[0] != endings[1] and not Path(output).is_dir():
        raise UsageError(f"a copy is of the same kind as the model: its name must end in {endings[0]}, got '{output}'")
    return Path(output)
