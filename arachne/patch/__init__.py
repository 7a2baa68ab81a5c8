"""Patches: the changes of a repair as a value that can be read, stored, applied, stacked and reverted."""

from arachne.patch.algebra import Conflict, conflicts
from arachne.patch.base import BaseTensor, Fingerprint, PatchBase, tensor_sha256
from arachne.patch.file import Written, differing_bytes
from arachne.patch.matching import Match, match
from arachne.patch.patch import Patch
from arachne.patch.transfer import AppliedPatch, apply_to, for_model, revert_from
from arachne.patch.weight_change import WeightChange

__all__ = [
    "AppliedPatch",
    "BaseTensor",
    "Conflict",
    "Fingerprint",
    "Match",
    "Patch",
    "PatchBase",
    "WeightChange",
    "Written",
    "apply_to",
    "conflicts",
    "differing_bytes",
    "for_model",
    "match",
    "revert_from",
    "tensor_sha256",
]
