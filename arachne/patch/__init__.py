"""The patch: what a repair changes, as a thing of its own that can be read, kept, applied and taken back."""

from arachne.patch.base import Base, BaseTensor, Fingerprint, tensor_sha256
from arachne.patch.entry import Entry
from arachne.patch.file import Written
from arachne.patch.patch import Patch

__all__ = ["Base", "BaseTensor", "Entry", "Fingerprint", "Patch", "Written", "tensor_sha256"]
