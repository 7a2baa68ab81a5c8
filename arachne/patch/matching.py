"""Translate a patch made in one framework for a file of another.

Names differ between frameworks, contents hardly do. A tensor of the file is taken for one of the patch by its content
in canonical layout; then, where the file may hold rounded values, by the fingerprints of the touched rows; then by the
same fingerprints up to a factor per row, which is what an exporter does when it folds a batch normalisation into the
layer before it. The last two give a derived patch with the file's own bits and scaled new values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arachne.errors import PatchError, did_you_mean
from arachne.io.files import sha256_of
from arachne.model.weight_file import WeightFile
from arachne.patch.base import PatchBase
from arachne.patch.change import TensorChange
from arachne.patch.match_tensor import CLOSE, ORDER, QUANTISED, SAME, SCALED, TOLERANCE, FileTensor, Pair, recognise
from arachne.patch.patch import Patch
from arachne.weights.storage import FILE_STORAGES


@dataclass(frozen=True)
class Match:
    """A patch for one file.

    Attributes:
        patch: With the file's names and bits; the very patch that was given where nothing had to be changed.
        pairs: How each tensor was found.
        derived: Whether its bits are the file's own, so that it has to be kept to be able to revert.
    """

    patch: Patch
    pairs: tuple[Pair, ...]
    derived: bool


def match(
    patch: Patch,
    file: WeightFile,
    *,
    mapping: Mapping[str, str] | None = None,
    exact: bool = False,
    reverting: bool = False,
) -> Match:
    """Find the tensors of a patch in a file.

    Args:
        patch: The patch.
        file: The file, as it was before the patch or as the patch leaves it.
        mapping: Which layer of the file is meant, by the patch's layer.
        exact: Whether equal content is required of tensors in the patch's own dtype; otherwise rounded and scaled ones
            are recognised too.
        reverting: Whether the file should carry the patch already; this only decides what an error says.

    Raises:
        PatchError: A tensor is not there, or could be several; the sentence lists them.
    """
    pairs = find_pairs(patch, file, mapping=mapping, exact=exact, reverting=reverting)
    if all(pair.how == SAME for pair in pairs):
        return Match(patch, pairs, derived=False)
    return _translate(patch, pairs, file)


def find_pairs(
    patch: Patch,
    file: WeightFile,
    *,
    mapping: Mapping[str, str] | None = None,
    exact: bool = False,
    reverting: bool = False,
) -> tuple[Pair, ...]:
    """Where the tensors of a patch are in a file, in the patch's order; arguments and errors as for `match`."""
    listed = list(file.parameters())
    mapping = dict(mapping or {})
    _check_mapping(mapping, patch, listed, file.path.name)
    candidates = _candidates(patch, file, listed, mapping, exact)
    return _choose(patch, candidates, file, listed, reverting)


def _candidates(
    patch: Patch, file: WeightFile, listed: Sequence[tuple[str, str]], mapping: Mapping[str, str], exact: bool
) -> dict[tuple[str, str], list[Pair]]:
    """The possible counterparts of every tensor of the patch, in one pass over the file."""
    found: dict[tuple[str, str], list[Pair]] = {change.key: [] for change in patch.changes}
    for layer, parameter in listed:
        there = FileTensor(
            layer, parameter, file.read(layer, parameter), file.dtype(layer, parameter), file.grid(layer, parameter)
        )
        if there.dtype not in FILE_STORAGES:
            continue
        for change in patch.changes:
            tensor = change.tensor
            if tensor.shape != there.values.shape or mapping.get(tensor.layer, layer) != layer:
                continue
            # A bare state dict may call a parameter as its framework does (`weight_ih_l0`): then only content counts.
            # A copy in another dtype was rounded, whoever wrote it.
            strict = (exact and there.dtype == tensor.dtype) or parameter != tensor.parameter
            pair = recognise(change, there, exact=strict)
            if pair is not None:
                found[change.key].append(pair)
    return found


def _choose(
    patch: Patch,
    candidates: Mapping[tuple[str, str], Sequence[Pair]],
    file: WeightFile,
    listed: Sequence[tuple[str, str]],
    reverting: bool,
) -> tuple[Pair, ...]:
    best = {key: _surest(pairs) for key, pairs in candidates.items()}
    for change in patch.changes:
        if not best[change.key]:
            raise _not_found(change.inverse() if reverting else change, file, listed)
    # What is certain about one tensor of a layer decides for the others: two zero biases look the same.
    layers = {key[0]: pairs[0].layer for key, pairs in best.items() if len(pairs) == 1}
    chosen = []
    for change in patch.changes:
        pairs = best[change.key]
        narrowed = [pair for pair in pairs if pair.layer == layers.get(change.tensor.layer, pair.layer)]
        if len(narrowed) != 1:
            raise _ambiguous(change, pairs, file)
        chosen.append(narrowed[0])
    taken: dict[str, Pair] = {}
    for pair in chosen:
        rival = taken.setdefault(pair.name, pair)
        if rival is not pair:
            raise PatchError(
                f"'{pair.name}' in '{file.path.name}' could be '{rival.change.tensor.name}' and "
                f"'{pair.change.tensor.name}' of the patch; say which is meant",
                argument="mapping",
            )
    if len({pair.done for pair in chosen}) > 1:
        raise PatchError(f"'{file.path.name}' carries only a part of this patch")
    return tuple(chosen)


def _surest(pairs: Sequence[Pair]) -> list[Pair]:
    """The candidates recognised in the surest way; a tensor of the patch's own name wins among equals."""
    if not pairs:
        return []
    how = min((pair.how for pair in pairs), key=ORDER.index)
    best = [pair for pair in pairs if pair.how == how]
    named = [pair for pair in best if (pair.layer, pair.parameter) == pair.change.key]
    return named or best


def _not_found(change: TensorChange, file: WeightFile, listed: Sequence[tuple[str, str]]) -> PatchError:
    tensor, where = change.tensor, file.path.name
    quantised = file.dtype(*change.key) if change.key in listed and file.grid(*change.key) is not None else None
    if quantised is not None and tensor.dtype in TOLERANCE:
        return PatchError(
            f"the patch was made for another model or for other weights: '{tensor.name}' in '{where}', in {quantised}, "
            "is not what rounding makes of the patch's"
        )
    if change.key in listed:
        try:
            change.on(file.read(*change.key), file.dtype(*change.key), where)
        except PatchError as error:
            return error
    shaped = [
        f"'{layer}.{parameter}'" for layer, parameter in listed if file.read(layer, parameter).shape == tensor.shape
    ]
    if not shaped:
        return PatchError(
            f"the patch changes '{tensor.name}' of shape {tensor.shape}, and '{where}' has no such tensor"
        )
    return PatchError(
        f"the patch was made for another model or for other weights: no tensor in '{where}' has the values of "
        f"'{tensor.name}'; of the same shape {tensor.shape}, but different: {', '.join(shaped[:8])}"
    )


def _ambiguous(change: TensorChange, pairs: Sequence[Pair], file: WeightFile) -> PatchError:
    names = ", ".join(f"'{pair.name}'" for pair in pairs[:8])
    return PatchError(
        f"'{change.tensor.name}' of the patch could be {names} in '{file.path.name}'; "
        f"say which is meant, as in {change.tensor.layer}={pairs[0].layer}",
        argument="mapping",
    )


def _check_mapping(mapping: Mapping[str, str], patch: Patch, listed: Sequence[tuple[str, str]], where: str) -> None:
    own = {change.tensor.layer for change in patch.changes}
    theirs = {layer for layer, _ in listed}
    for layer, other in mapping.items():
        if layer not in own:
            raise PatchError(f"the patch changes no layer '{layer}'" + did_you_mean(layer, sorted(own)))
        if other not in theirs:
            raise PatchError(f"'{where}' has no layer '{other}'" + did_you_mean(other, sorted(theirs)))


def _translate(patch: Patch, pairs: Sequence[Pair], file: WeightFile) -> Match:
    derived = any(
        pair.how in (CLOSE, SCALED, QUANTISED) or file.dtype(pair.layer, pair.parameter) != pair.change.tensor.dtype
        for pair in pairs
    )
    done = any(pair.done for pair in pairs)
    if derived and done:
        raise carries_derived(file.path.name)
    translated: list[TensorChange | None] = []
    for pair in pairs:
        change, key = pair.change.move_to(pair.layer, pair.parameter), (pair.layer, pair.parameter)
        grid = file.grid(*key) if pair.how == QUANTISED else None
        translated.append(change.derive(file.read(*key), file.dtype(*key), pair.factors, grid) if derived else change)
    changed = [change for change in translated if change is not None]
    if not changed:
        raise PatchError(f"every change of the patch is smaller than what '{file.path.name}' rounds to")
    known = not done and file.path.is_file()
    base = PatchBase(file.path.name, sha256_of(file.path) if known else None, None)
    origin = {
        "digest": patch.digest,
        "file": patch.base.file,
        "backend": patch.base.backend,
        "tensors": [_pair_json(pair) for pair in pairs],
    }
    provenance = {**patch.provenance, "derived_from": origin}
    return Match(Patch.of(changed, base, provenance=provenance, evidence=patch.evidence), tuple(pairs), derived)


def carries_derived(name: str) -> PatchError:
    """The error for a file that carries a patch with bits of its own."""
    return PatchError(
        f"'{name}' carries this patch in a form derived for it; "
        "only the derived patch that was written beside it can take it out"
    )


def _pair_json(pair: Pair) -> dict[str, object]:
    entry: dict[str, object] = {"from": pair.change.tensor.name, "to": pair.name, "how": pair.how}
    return entry if not pair.factors else {**entry, "factors": {str(row): f for row, f in pair.factors.items()}}
