"""The patch: what a repair changes, as a thing of its own that can be read, kept, applied, stacked and taken back."""

from arachne.patch.algebra import Conflict, conflicts
from arachne.patch.base import Base, BaseTensor, Fingerprint, tensor_sha256
from arachne.patch.difference import diff
from arachne.patch.entry import Entry
from arachne.patch.file import Written, differing_bytes
from arachne.patch.history import Standing, standing
from arachne.patch.matching import Match, match
from arachne.patch.patch import Patch
from arachne.patch.travel import Travelled, apply_to, for_model, revert_from

__all__ = [
    "Base",
    "BaseTensor",
    "Conflict",
    "Entry",
    "Fingerprint",
    "Match",
    "Patch",
    "Standing",
    "Travelled",
    "Written",
    "apply_to",
    "conflicts",
    "diff",
    "differing_bytes",
    "for_model",
    "match",
    "revert_from",
    "standing",
    "tensor_sha256",
]
