"""TorchScript files: their tensors as data, by the names the module gave them; their code is left alone."""

from __future__ import annotations

from typing import Any

from arachne.errors import ModelError
from arachne_torch.archive import Archive
from arachne_torch.pickles import Inert, TensorRecord, read_pickle

MAX_NAMES = 100_000
"""Names that tensors and modules may have together; a module can lie in itself, so there is no end without one."""


def is_script(archive: Archive) -> bool:
    """Whether an archive is TorchScript."""
    return f"{archive.root()}/constants.pkl" in archive.members


def read_script(archive: Archive) -> dict[str, Any]:
    """The tensors of the module and of the modules in it, by their names in the state dict."""
    content = read_pickle(archive.read(f"{archive.root()}/data.pkl"), archive.path.name, scripted=True)
    found: dict[str, Any] = {}
    waiting = [("", content)]
    while waiting:
        name, value = waiting.pop()
        if len(found) + len(waiting) > MAX_NAMES:
            raise ModelError(f"'{archive.path.name}' is TorchScript with more than {MAX_NAMES} names")
        if isinstance(value, TensorRecord):
            found[name] = value
        elif isinstance(value, Inert) and isinstance(value.state, dict):
            waiting += [(f"{name}.{key}" if name else str(key), item) for key, item in reversed(value.state.items())]
    return found
