"""Arachne repairs trained neural networks: localise, search, patch, and the evidence that it holds.

Importing this package loads nothing else; every public name is fetched when it is first used.
"""

from __future__ import annotations

import sys as _sys

_STARTED = [word.removeprefix("-m") for word in _sys.orig_argv]
if _sys.argv[:1] == ["-m"] and {"arachne", "arachne.cli"} & {*_STARTED} and not _sys.flags.safe_path:
    # `python -m arachne` would look for every module, such as numpy, in the working folder first.
    del _sys.path[0]

TYPE_CHECKING = False
"""Read by type checkers as true, as that of `typing`, whose import takes longer than all else in this module."""

if TYPE_CHECKING:
    from typing import Any

    from arachne.api import compare_searchers, localise_weights, open_repair, repair, scan
    from arachne.bench.result import Comparison
    from arachne.causes import Cause, Finder
    from arachne.choose.budget import Budget
    from arachne.data.labelled import LabelledData
    from arachne.data.read import read_data
    from arachne.errors import ArachneError
    from arachne.evidence import Evidence, Flips, Scan
    from arachne.evidence.survival import Survival
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
    from arachne.model.backend import Cut, ModelBackend, Trace, WeightFile
    from arachne.model.registry import load
    from arachne.model.values import Address, LayerInfo
    from arachne.patch import Patch
    from arachne.patch.commands import apply, diff, revert
    from arachne.plugins.options import option
    from arachne.results.measure import compare, flips, measure, measure_survival
    from arachne.results.result import PatchedModel, RepairResult
    from arachne.search import (
        Candidate,
        DifferentialEvolution,
        Generation,
        MarginSearch,
        Pool,
        Problem,
        Searcher,
        SearchResult,
        SearchState,
    )
    from arachne.settings import Settings

__version__: str

_HOMES = {
    "arachne.api": ("compare_searchers", "localise_weights", "open_repair", "repair", "scan"),
    "arachne.model.backend": ("Cut", "ModelBackend", "Trace", "WeightFile"),
    "arachne.causes": ("Cause", "Finder"),
    "arachne.bench.result": ("Comparison",),
    "arachne.data.labelled": ("LabelledData",),
    "arachne.data.read": ("read_data",),
    "arachne.results.result": ("PatchedModel", "RepairResult"),
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
    "arachne.results.measure": ("compare", "flips", "measure", "measure_survival"),
    "arachne.patch": ("Patch",),
    "arachne.patch.commands": ("apply", "diff", "revert"),
    "arachne.model.registry": ("load",),
    "arachne.plugins.options": ("option",),
    "arachne.search": (
        "Candidate",
        "DifferentialEvolution",
        "Generation",
        "MarginSearch",
        "Pool",
        "Problem",
        "SearchResult",
        "SearchState",
        "Searcher",
    ),
    "arachne.choose.budget": ("Budget",),
    "arachne.evidence.survival": ("Survival",),
    "arachne.model.values": ("Address", "LayerInfo"),
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
    "LabelledData",
    "LayerInfo",
    "Localisation",
    "Localiser",
    "MarginSearch",
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
