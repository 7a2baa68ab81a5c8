"""Arachne repairs trained neural networks: localise, search, patch, and the evidence that it holds.

Importing this package loads nothing else; every public name is fetched when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arachne.api import apply, diff, localise_weights, open_repair, repair, revert, scan
    from arachne.backend import Cut, ModelBackend, Trace, WeightFile
    from arachne.causes import Cause, Finder
    from arachne.comparing import compare_searchers
    from arachne.comparison import Comparison
    from arachne.data.labelled import LabelledData
    from arachne.data.readers import read_data
    from arachne.errors import ArachneError
    from arachne.evidence import Evidence, Flips, Scan
    from arachne.fairness import Objective
    from arachne.localise import (
        Bidirectional,
        Contrast,
        Fisher,
        GradientLoss,
        Localisation,
        Localiser,
        RandomChoice,
    )
    from arachne.measuring import compare, flips, measure, measure_survival
    from arachne.options import option
    from arachne.patch import Patch
    from arachne.registry import load
    from arachne.result import PatchedModel, RepairResult
    from arachne.search import (
        Candidate,
        DifferentialEvolution,
        Generation,
        Keep,
        Pool,
        Problem,
        Searcher,
        SearchResult,
        SearchState,
    )
    from arachne.search.budget import Budget
    from arachne.settings import Settings
    from arachne.survival import Survival
    from arachne.values import Address, LayerInfo

__version__: str

_HOMES = {
    "arachne.api": ("apply", "diff", "localise_weights", "open_repair", "repair", "revert", "scan"),
    "arachne.backend": ("Cut", "ModelBackend", "Trace", "WeightFile"),
    "arachne.causes": ("Cause", "Finder"),
    "arachne.comparing": ("compare_searchers",),
    "arachne.comparison": ("Comparison",),
    "arachne.data.labelled": ("LabelledData",),
    "arachne.data.readers": ("read_data",),
    "arachne.result": ("PatchedModel", "RepairResult"),
    "arachne.settings": ("Settings",),
    "arachne.errors": ("ArachneError",),
    "arachne.evidence": ("Evidence", "Flips", "Scan"),
    "arachne.fairness": ("Objective",),
    "arachne.localise": (
        "Bidirectional",
        "Contrast",
        "Fisher",
        "GradientLoss",
        "Localisation",
        "Localiser",
        "RandomChoice",
    ),
    "arachne.measuring": ("compare", "flips", "measure", "measure_survival"),
    "arachne.patch": ("Patch",),
    "arachne.registry": ("load",),
    "arachne.options": ("option",),
    "arachne.search": (
        "Candidate",
        "DifferentialEvolution",
        "Generation",
        "Keep",
        "Pool",
        "Problem",
        "SearchResult",
        "SearchState",
        "Searcher",
    ),
    "arachne.search.budget": ("Budget",),
    "arachne.survival": ("Survival",),
    "arachne.values": ("Address", "LayerInfo"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Address",
    "ArachneError",
    "Bidirectional",
    "Budget",
    "Candidate",
    "Cause",
    "Comparison",
    "Contrast",
    "Cut",
    "DifferentialEvolution",
    "Evidence",
    "Finder",
    "Fisher",
    "Flips",
    "Generation",
    "GradientLoss",
    "Keep",
    "LabelledData",
    "LayerInfo",
    "Localisation",
    "Localiser",
    "ModelBackend",
    "Objective",
    "Patch",
    "PatchedModel",
    "Pool",
    "Problem",
    "RandomChoice",
    "RepairResult",
    "Scan",
    "SearchResult",
    "SearchState",
    "Searcher",
    "Settings",
    "Survival",
    "Trace",
    "WeightFile",
    "apply",
    "compare",
    "compare_searchers",
    "diff",
    "flips",
    "load",
    "localise_weights",
    "measure",
    "measure_survival",
    "open_repair",
    "option",
    "read_data",
    "repair",
    "revert",
    "scan",
]


def __getattr__(name: str) -> Any:
    """Fetch a public name from the module it lives in, the first time it is asked for."""
    if name == "__version__":
        return _installed_version()
    if name not in _HOME_OF:
        raise AttributeError(f"module 'arachne' has no attribute '{name}'")
    import importlib

    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def _installed_version() -> str:
    """The version of the installed distribution, which its build takes from the newest tag."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("arachne-repair")
    except PackageNotFoundError:  # the sources are on the path, and nothing is installed
        found = "0+unknown"
    globals()["__version__"] = found
    return found


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]
