"""What `apply` and `revert` share: change a copy of a file, and tell what was proven about it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

DONE = {"apply": "patched", "revert": "restored"}


def change_file(
    verb: Literal["apply", "revert"], patch_file: Path, model_file: Path, out: Path, *, as_json: bool, quiet: bool
) -> None:
    """Apply or revert a patch on a copy of a model file and print what was proven."""
    from arachne import api
    from arachne.cli.console import Output

    written = (api.apply if verb == "apply" else api.revert)(patch_file, model_file, out)
    if written is None:
        raise TypeError("a file was given, so a file is written")
    changed = "" if written.bytes_changed is None else f" ({written.bytes_changed:,} bytes)"
    sentence = (
        f"{DONE[verb]}: {written.weights} weights{changed} differ from '{model_file}', nothing else does in "
        f"{written.tensors} tensors compared; wrote '{written.path}'"
    )
    value = {
        "schema": "arachne.written/1",
        "command": verb,
        "path": str(written.path),
        "sha256": written.sha256,
        "weights": written.weights,
        "tensors": written.tensors,
        "bytes_changed": written.bytes_changed,
    }
    Output(as_json=as_json, quiet=quiet).result(sentence, value)
