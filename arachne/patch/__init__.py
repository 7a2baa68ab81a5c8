"""The patch: what a repair changes, as a thing of its own that can be read, kept, applied, stacked and taken back."""

from arachne.patch.algebra import Conflict, conflicts
from arachne.patch.base import BaseTensor, Fingerprint, PatchBase, tensor_sha256
from arachne.patch.difference import diff
from arachne.patch.file import Written, differing_bytes
from arachne.patch.history import PatchState, patch_state
from arachne.patch.matching import Match, match
from arachne.patch.patch import Patch
from arachne.patch.travel import AppliedPatch, apply_to, for_model, revert_from
from arachne.patch.weight_change import WeightChange

__all__ = [
    "AppliedPatch",
    "BaseTensor",
    "Conflict",
    "Fingerprint",
    "Match",
    "Patch",
    "PatchBase",
    "PatchState",
    "WeightChange",
    "Written",
    "apply_to",
    "conflicts",
    "diff",
    "differing_bytes",
    "for_model",
    "match",
    "patch_state",
    "revert_from",
    "tensor_sha256",
]
