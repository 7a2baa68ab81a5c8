"""Opening and saving models: module objects, `module:factory` with weights, checked programs, trusted TorchScript."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from arachne.errors import EnvironmentFaultError, ModelError, UnsafeModelError, UsageError, did_you_mean
from arachne.io.files import atomic_draft
from arachne.io.reading import error_text
from arachne.io.user_code import call_factory, current_directory_importable, user_code
from arachne_torch.program import Program, load_program, runnable
from arachne_torch.replay import Replay, load_script
from arachne_torch.weight_readers import open_module_weights, open_weights
from arachne_torch.weights import TorchWeightFile

STATE_DICTS = (".safetensors", ".pt", ".pth")


@dataclass(frozen=True)
class LoadedModel:
    """A model and where it came from.

    Attributes:
        module: What is run.
        format: `module`, `state dict`, `TorchScript` or `exported program`.
        path: The file the weights came from.
        program: What is known of `module` if it is an exported program.
    """

    module: nn.Module
    format: str
    path: Path | None = None
    program: Program | None = None


def open_model(source: Any, *, weights: Path | None, device: str | None, trust_code: bool) -> LoadedModel:
    """Wrap an `nn.Module`, open a `.pt2` program, or call `module:factory` and load its weights."""
    if isinstance(source, (nn.Module, ExportedProgram)):
        opened = _from_object(source)
    elif isinstance(source, Path) or Path(str(source)).exists():
        opened = _from_file(Path(source), trust_code)
    elif isinstance(source, str) and ":" in source:
        opened = LoadedModel(call_factory(source, nn.Module, "an nn.Module"), "module")
    else:
        raise ModelError(f"expected an nn.Module, a model file or 'module:factory', got '{source}'")
    if weights is not None:
        if opened.path is not None or opened.program is not None:
            raise UsageError(f"weights '{weights.name}' need a module or a factory to load them into")
        opened = LoadedModel(_load_weights(opened.module, open_module_weights(weights)), "state dict", weights)
    return opened if device is None else _on_device(opened, device)


def save(opened: LoadedModel, path: Path) -> None:
    """Write the model with its current weights, in the format it came in.

    Raises:
        ModelError: The suffix does not fit the model's format.
    """
    suffix = path.suffix.lower()
    state = opened.module.state_dict()
    if opened.path is not None:
        kinds = (".pt", ".pth") if opened.path.suffix.lower() in (".pt", ".pth") else (opened.path.suffix.lower(),)
        if suffix not in kinds:
            raise ModelError(
                f"the model came from '{opened.path.name}', so it is saved as '{kinds[0]}', not as '{suffix}'"
            )
        _save_copy(open_module_weights(opened.path), state, path)
    elif opened.program is not None:
        raise ModelError(
            "an exported program in memory is not saved; write it with torch.export.save and open the file"
        )
    elif suffix == ".safetensors":
        with atomic_draft(path) as temporary:
            safetensors.torch.save_file(_once(opened.module), temporary)
    elif suffix in (".pt", ".pth"):
        with atomic_draft(path) as temporary:
            torch.save(state, temporary)
    else:
        raise ModelError(f"a module is saved as a state dict, '.safetensors' or '.pt', not as '{suffix}'")


def _from_object(source: nn.Module | ExportedProgram) -> LoadedModel:
    if isinstance(source, ExportedProgram):
        program = runnable(source)
        return LoadedModel(program.module, "exported program", program=program)
    if isinstance(source, torch.jit.ScriptModule):
        return LoadedModel(Replay(source, source.inlined_graph), "TorchScript")
    return LoadedModel(getattr(source, "_orig_mod", source), "module")


def _from_file(path: Path, trust_code: bool) -> LoadedModel:
    if path.suffix.lower() == ".pt2":
        program = load_program(path)
        return LoadedModel(program.module, "exported program", path, program)
    if path.suffix.lower() not in STATE_DICTS:
        raise ModelError(f"'{path.name}' is no model of torch; known endings: .pt2, {', '.join(STATE_DICTS)}")
    try:
        scripted = open_weights(path).scripted
    except UnsafeModelError:
        if not trust_code:
            raise
        with current_directory_importable(), user_code(f"the code in '{path.name}'", ModelError):
            model = torch.load(path, map_location="cpu", weights_only=False)
        if isinstance(model, nn.Module):
            return _from_object(model)
        scripted = False
    if scripted and trust_code:
        return LoadedModel(load_script(path), "TorchScript", path)
    if scripted:
        raise ModelError(
            f"'{path.name}' is TorchScript, which holds code of its own: give 'module:factory' as the model and this "
            "file as its weights, or trust the code in it",
            argument="trust_code",
        )
    raise ModelError(
        f"'{path.name}' is a state dict, which needs the code that makes the model: give 'module:factory' as the model "
        "and this file as its weights",
        argument="factory",
    )


def _load_weights(module: nn.Module, file: TorchWeightFile) -> nn.Module:
    names = {location: name for name, location in file.locations.items()}
    read = {location: torch.from_numpy(file.tensor(name)) for location, name in names.items()}  # once, under many names
    state = {name: read[location] for name, location in file.locations.items()}
    wanted = module.state_dict()
    tied = _tied(module)
    missing = [name for name in wanted if name not in state and not tied.get(name, set()) & state.keys()]
    unknown = [name for name in state if name not in wanted]
    wrong = [name for name in state if name in wanted and state[name].shape != wanted[name].shape]
    if missing and (prefix := _prefix(state, wanted)):
        raise ModelError(
            f"'{file.path.name}' has the model's weights with '{prefix}' before each name, as DataParallel and "
            f"torch.compile save them; save them without: torch.save({{name.removeprefix('{prefix}'): tensor for "
            "name, tensor in weights.items()}, 'weights.pt')"
        )
    if missing:
        raise ModelError(f"'{file.path.name}' lacks {len(missing)} weights of the model, the first is '{missing[0]}'")
    if unknown:
        raise ModelError(
            f"'{file.path.name}' has {len(unknown)} weights that the model has not, the first is '{unknown[0]}'"
            + did_you_mean(unknown[0], wanted)
        )
    if wrong:
        name, got, expected = wrong[0], tuple(state[wrong[0]].shape), tuple(wanted[wrong[0]].shape)
        raise ModelError(f"'{file.path.name}' has a '{name}' of shape {got}, the model expects {expected}")
    module.load_state_dict(state, strict=False)
    return module


def _prefix(found: Collection[str], wanted: Collection[str]) -> str:
    """Return what stands before every wanted name among those found; nothing if not all of them are found like this."""
    first = next(iter(wanted), "")
    ends = [name.removesuffix(first) for name in found if first and name.endswith(f".{first}")]
    return next((prefix for prefix in ends if all(prefix + name in found for name in wanted)), "")


def _tied(module: nn.Module) -> dict[str, set[str]]:
    """For each tensor's name the other names of the same tensor."""
    names: dict[int, set[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name)
    return {name: group for group in names.values() for name in group}


def _once(module: nn.Module) -> dict[str, Tensor]:
    """The state dict with each tied tensor under its first name only, as the layers are called."""
    first = {min(group, key=list(module.state_dict()).index) for group in map(frozenset, _tied(module).values())}
    later = {name for name in _tied(module) if name not in first}
    return {name: tensor.contiguous() for name, tensor in module.state_dict().items() if name not in later}


def _on_device(opened: LoadedModel, device: str) -> LoadedModel:
    try:
        where = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"torch knows no device '{device}': {error_text(error)}") from error
    try:
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise EnvironmentFaultError(f"torch cannot compute on '{device}' here: {error_text(error)}") from error
    current = next((parameter.device for parameter in opened.module.parameters()), where)
    if current == where:
        return opened
    module = copy.deepcopy(opened.module) if opened.path is None else opened.module
    return replace(opened, module=module.to(where))


def _save_copy(file: TorchWeightFile, state: dict[str, Any], path: Path) -> None:
    """Only tensors whose stored bits differ from the model's are written."""
    changed = {}
    for name in file.locations:
        values = state.get(name)
        if isinstance(values, Tensor) and values.is_floating_point():
            array = (
                values.detach().cpu().float().numpy()
                if values.dtype == torch.bfloat16
                else values.detach().cpu().numpy()
            )
            if not np.array_equal(array, file.tensor(name)):
                changed[name] = array
    file.rewrite_tensors(path, changed)
