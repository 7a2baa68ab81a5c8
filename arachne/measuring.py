"""What does a patch, or another model, do? Measured on all of some data; nothing is searched and nothing written."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.readers import read_data
from arachne.data.split import Part, predict_checked, with_model_names
from arachne.data.targets import parse_targets
from arachne.data.unlabelled import read_unlabelled
from arachne.errors import UsageError
from arachne.evidence import Evidence, Flips, PartEvidence
from arachne.patch import Patch, apply_to, for_model
from arachne.registry import load, name_for_file, weight_file
from arachne.result import PatchedModel
from arachne.survival import Scores, Survival, kept, scores_there


def measure(
    model: Any, data: Any, *, target: str | Sequence[str] | None = None, patch: Patch | str | Path | None = None
) -> Evidence:
    """What does a patch do to a model on some data?

    Args:
        model: The model without the patch.
        data: Whatever `read_data` takes; all of it counts as held out.
        target: The mistake; the patch's own when None, every mistake when there is no patch either.
        patch: The patch, or its file; None measures the model as it is.
    """
    return measure_part(model, data, target=target, patch=patch)[1]


def measure_part(
    model: Any, data: Any, *, target: str | Sequence[str] | None = None, patch: Patch | str | Path | None = None
) -> tuple[Part, Evidence]:
    """As `measure`, with the inputs behind the numbers."""
    backend = load(model)
    patch = Patch.load(patch) if isinstance(patch, (str, Path)) else patch
    if target is None:
        target = list(patch.provenance.get("target", ["*:*"])) if patch is not None else "*:*"
    part = whole_part(backend, data, target)
    before = after = backend.forward(part.data.inputs)
    if patch is not None:
        after = PatchedModel(backend, for_model(patch, backend)).forward(part.data.inputs)
    return part, Evidence(PartEvidence.measure(part, before, after))


def compare(model: Any, other: Any, data: Any, *, target: str | Sequence[str] = "*:*") -> Evidence:
    """What is different between two models on some data, such as a model and its patched or converted copy?

    Args:
        model: The model before.
        other: The model after; any framework.
        data: Whatever `read_data` takes; all of it counts as held out.
        target: The mistake the second model should make less often.
    """
    before, after = load(model), load(other)
    part = whole_part(before, data, target)
    inputs = part.data.inputs
    return Evidence(PartEvidence.measure(part, before.forward(inputs), after.forward(inputs)))


def measure_survival(
    model: Any,
    data: Any,
    patch: Patch | str | Path,
    *,
    against: Any = None,
    quantise: str | None = None,
    target: str | Sequence[str] | None = None,
) -> Survival:
    """Does a repair survive export, conversion or quantisation?

    Args:
        model: The model the patch is for; for `quantise` its file.
        data: Whatever `read_data` takes; all of it counts as held out.
        patch: The patch, or its file.
        against: The model where it ends up, with the patch or without.
        quantise: `int8` or `fp16`, in place of `against`: a quantised copy of the model.
        target: The mistake; the patch's own when None.

    Raises:
        UsageError: Neither or both of `against` and `quantise` are given, or `quantise` without a file.
    """
    if (against is None) == (quantise is None):
        raise UsageError("a repair survives in another model or in a quantised copy: give one of the two")
    patch = Patch.load(patch) if isinstance(patch, (str, Path)) else patch
    target = target or list(patch.provenance.get("target", ["*:*"]))
    backend = load(model)
    part = whole_part(backend, data, target)
    inputs = part.data.inputs
    before, after = backend.forward(inputs), PatchedModel(backend, for_model(patch, backend)).forward(inputs)
    if quantise is not None:
        without, with_patch, note = _quantised(backend, patch, model, quantise)
    else:
        without, with_patch, note = scores_there(patch, backend, load(against))
    there_before, there_after = without(inputs), with_patch(inputs)
    there = replace(part, predictions=np.argmax(there_before, axis=1))
    return Survival(
        where=quantise or str(against if isinstance(against, (str, Path)) else "the other model"),
        here=Evidence(PartEvidence.measure(part, before, after)),
        there=Evidence(PartEvidence.measure(there, there_before, there_after)),
        kept=kept(part, after, there_after),
        note=note,
    )


def flips(model: Any, inputs: Any, patch: Patch | str | Path, *, preprocess: str | None = None) -> Flips:
    """Which predictions does a patch change on inputs that nobody has labelled, such as real traffic?

    Args:
        model: The model without the patch.
        inputs: An array or a mapping of arrays, a folder of pictures or `.npy` files, an npz, npy, csv or parquet file;
            labels among them are left out.
        patch: The patch, or its file.
        preprocess: What to do with the inputs, as in `scale=1/255 layout=nchw`.
    """
    backend = load(model)
    patch = Patch.load(patch) if isinstance(patch, (str, Path)) else patch
    found = read_unlabelled(inputs, preprocess=preprocess).inputs
    return Flips.measure(backend.forward(found), PatchedModel(backend, for_model(patch, backend)).forward(found))


def whole_part(backend: ModelBackend, data: Any, target: str | Sequence[str]) -> Part:
    """All of the data as one part, with what the model makes of it."""
    labelled = with_model_names(backend, read_data(data))
    predictions, n_classes = predict_checked(backend, labelled)
    targets = parse_targets(target, labelled, predictions, n_classes)
    return Part(labelled, np.arange(len(labelled)), predictions, targets)


def _quantised(backend: ModelBackend, patch: Patch, model: Any, kind: str) -> tuple[Scores, Scores, str]:
    """Scores of quantised copies of a model file, without and with a patch."""
    if not isinstance(model, (str, Path)):
        raise UsageError("only a model file can be quantised; give its path")
    with tempfile.TemporaryDirectory(prefix="arachne-") as folder:
        patched = Path(folder) / Path(model).name
        apply_to(patch, weight_file(model), patched, backend=name_for_file(model), reopen=weight_file)
        pair = backend.quantised(Path(model), kind), backend.quantised(patched, kind)
    return *pair, f"both models were quantised to {kind}"
